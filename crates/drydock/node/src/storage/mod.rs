//! Claims of this node's classes become directories: the part that Kubernetes leaves to whoever makes volumes.
//!
//! The controllers bind claims to volumes; what is here makes a volume when a claim is told to wait for one, makes it
//! larger when its claim wants that, and removes it once it is released and its policy says so. What to do is
//! [`decide`]d from all claims, volumes and classes, whenever one of them changes.
//!
//! ```text
//! DIRECTORY/volumes/            0700: the way in is a pod's mount, and no other
//!   pvc-UID/                    what pods see; made open to all, as nobody knows who they will run as
//!   .pvc-UID/                   of a volume of a hard size: what holds it (see `hard`)
//!   .going-…                    on its way out
//! ```
//!
//! **What always holds.** A volume is in the API only when its directory is there, and gone from it only when the
//! directory is. A directory is found by the volume's name, which is made of the claim's uid, never by a path that
//! somebody wrote; it is removed only by the deletion of its volume, never because nobody seems to know it. A volume
//! that a pod here still has is not removed, whatever the API says of the pod.
//!
//! **Not here.** Which volume a claim gets, and which node a pod: the controllers' and the scheduler's. There is one
//! node; a class that binds at once is served by it.

mod copy;
pub(crate) mod decide;
pub(crate) mod directory;
pub(crate) mod hard;
mod holders;
mod manifests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Resource};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::Shared;
use crate::events::Kind;
use crate::fetch::words;
use crate::quantity;
use crate::volumes::is_mounted;
use decide::{Asked, Size, View, Work, capacity, decide, requested, volume_name};
use directory::{Place, Root};

pub use manifests::{HARD_CLASS, STANDARD_CLASS, classes, permissions};

/// Who makes these volumes, as classes name it.
pub const PROVISIONER: &str = "drydock.local/directory";
/// On a volume: who made it.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Holds a volume until its directory is gone.
const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// A work that failed is tried again after this, doubling, and at last every two minutes.
const RETRY: SignedDuration = SignedDuration::from_millis(200);
const RETRY_LONGEST: SignedDuration = SignedDuration::from_secs(120);

/// What failed, and when it is tried again.
struct Failed {
    attempts: u32,
    until: Timestamp,
    asked: Asked,
}

/// What failed, by whom it was for.
#[derive(Default)]
struct Failures(BTreeMap<String, Failed>);

impl Failures {
    /// Forgets what is not to be done any more, or is asked for otherwise by now.
    fn keep(&mut self, works: &[Work]) {
        self.0.retain(|uid, failed| {
            works.iter().any(|work| work.uid() == *uid && work.asked() == failed.asked)
        });
    }

    /// Whether a work waits until it is tried again.
    fn waits(&self, work: &Work, now: Timestamp) -> bool {
        self.0.get(&work.uid()).is_some_and(|failed| now < failed.until)
    }

    /// A work failed.
    fn add(&mut self, work: &Work, now: Timestamp) {
        let attempts = self.0.get(&work.uid()).map_or(0, |failed| failed.attempts) + 1;
        let pause = (RETRY * 2i32.saturating_pow(attempts.min(11) - 1)).min(RETRY_LONGEST);
        self.0.insert(work.uid(), Failed { attempts, until: now + pause, asked: work.asked() });
    }

    /// When the next is tried again.
    fn next(&self) -> Option<Timestamp> {
        self.0.values().map(|failed| failed.until).min()
    }
}

/// Serves claims for as long as the node runs.
pub(crate) async fn run(shared: &Arc<Shared>) {
    let changed = Arc::new(Notify::new());
    let (claims, claims_work) = follow::<PersistentVolumeClaim>(shared, &changed);
    let (volumes, volumes_work) = follow::<PersistentVolume>(shared, &changed);
    let (classes, classes_work) = follow::<StorageClass>(shared, &changed);
    let work = async {
        for ready in [claims.wait_until_ready().await, volumes.wait_until_ready().await] {
            // The other side is dropped together with this one.
            let _stopping = ready;
        }
        let _stopping = classes.wait_until_ready().await;
        let mut failed = Failures::default();
        loop {
            let (claims, volumes, classes) = (claims.state(), volumes.state(), classes.state());
            let view = View { node: &shared.name, claims: &claims, volumes: &volumes, classes: &classes };
            let works = decide(&view);
            failed.keep(&works);
            for work in works {
                if failed.waits(&work, shared.now()) {
                    continue;
                }
                if shared.carry_out(&work).await {
                    failed.0.remove(&work.uid());
                } else {
                    failed.add(&work, shared.now());
                }
            }
            let wake = failed.next();
            let pause = wake.map(|at| at.duration_since(shared.now()).try_into().unwrap_or(Duration::ZERO));
            tokio::select! {
                () = changed.notified() => {}
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    };
    tokio::join!(claims_work, volumes_work, classes_work, work);
}

/// All objects of a kind, and what keeps the sight of them up to date.
fn follow<K>(shared: &Shared, changed: &Arc<Notify>) -> (reflector::Store<K>, BoxFuture<'static, ()>)
where
    K: Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let (seen, writer) = reflector::store();
    let changes = watcher(Api::<K>::all(shared.client.clone()), watcher::Config::default());
    let changed = Arc::clone(changed);
    let following = async move {
        let mut changes = std::pin::pin!(changes.default_backoff().reflect(writer));
        while let Some(change) = changes.next().await {
            match change {
                Ok(_) => changed.notify_one(),
                Err(error) => tracing::debug!(%error, kind = %K::kind(&()), "volumes can't be watched"),
            }
        }
    };
    (seen, Box::pin(following))
}

impl Shared {
    /// True when it is done, or nothing is to be done any more.
    async fn carry_out(self: &Arc<Self>, work: &Work) -> bool {
        match work {
            Work::Provision(claim, class) => self.provision(claim, class).await,
            Work::Grow(claim, volume) => self.grow(claim, volume).await,
            Work::Remove(volume) => self.remove_volume(volume).await,
            Work::LetGo(volume) => self.let_go(volume).await.is_ok(),
        }
    }

    fn say_of_claim(&self, claim: &PersistentVolumeClaim, kind: Kind, reason: &'static str, message: String) {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("PersistentVolumeClaim".to_owned()),
            ..claim.object_ref(&())
        };
        self.recorder.about(about, PROVISIONER, kind, reason, message);
    }

    async fn provision(self: &Arc<Self>, claim: &PersistentVolumeClaim, class: &StorageClass) -> bool {
        let meta = &claim.metadata;
        let (namespace, name) =
            (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        let message = format!("External provisioner is provisioning volume for claim \"{namespace}/{name}\"");
        self.say_of_claim(claim, Kind::Normal, "Provisioning", message);
        match self.try_provision(claim, class).await {
            Ok(volume) => {
                let message = format!("Successfully provisioned volume {volume}");
                self.say_of_claim(claim, Kind::Normal, "ProvisioningSucceeded", message);
                if self.storage.place(&volume).is_some_and(|place| hard::is_hard(&place)) {
                    self.say_of_claim(claim, Kind::Normal, "HeldInMemory", hard::CAVEAT.to_owned());
                }
                true
            }
            Err(why) => {
                let class = class.metadata.name.clone().unwrap_or_default();
                let message = format!("failed to provision volume with StorageClass {class:?}: {why}");
                self.say_of_claim(claim, Kind::Warning, "ProvisioningFailed", message);
                false
            }
        }
    }

    async fn try_provision(
        self: &Arc<Self>,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
    ) -> Result<String, String> {
        let name = volume_name(claim).ok_or("the claim has no uid")?;
        let place = self.storage.place(&name).ok_or("the claim has no uid")?;
        let (claim, class, root) = (claim.clone(), class.clone(), self.storage.clone());
        let object = volume(&name, &claim, &class, &place, &self.name);
        let memory = self.machine.memory;
        let work = move || -> Result<(), String> {
            let Size { hard, .. } = decide::size(&claim, &class, size_of_disk(&root)?, memory)?;
            let made = if hard { hard::make(&place) } else { directory::make(&place.data) };
            made.map_err(|error| error.to_string())
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())??;
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let object = serde_json::from_value(object).map_err(|error| error.to_string())?;
        match volumes.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(name),
            Err(error) => Err(words(&error)),
            Ok(_) => Ok(name),
        }
    }

    async fn grow(self: &Arc<Self>, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
        let name = volume.metadata.name.clone().unwrap_or_default();
        let message = format!("External resizer is resizing volume {name}");
        self.say_of_claim(claim, Kind::Normal, "Resizing", message);
        match self.try_grow(claim, volume, &name).await {
            Ok(()) => {
                let message = "Resize volume succeeded".to_owned();
                self.say_of_claim(claim, Kind::Normal, "VolumeResizeSuccessful", message);
                true
            }
            Err(why) => {
                let message = format!("resize volume {name:?} by resizer {PROVISIONER:?} failed: {why}");
                self.say_of_claim(claim, Kind::Warning, "VolumeResizeFailed", message);
                false
            }
        }
    }

    async fn try_grow(
        self: &Arc<Self>,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
        name: &str,
    ) -> Result<(), String> {
        let wanted = requested(claim).ok_or("the claim asks for no storage")?.clone();
        let bytes = quantity::units(&wanted).ok_or("the claim asks for no storage")?;
        let place = self.storage.place(name);
        if let Some(place) = place.filter(hard::is_hard) {
            let most = decide::most_in_memory(self.machine.memory);
            if bytes > most {
                return Err(decide::too_large(bytes, most));
            }
            let root = self.storage.clone();
            let grown = tokio::task::spawn_blocking(move || hard::grow(&root, &place, bytes)).await;
            grown.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        } else {
            decide::on_disk(bytes, size_of_disk(&self.storage)?)?;
        }
        let now = json!({"storage": wanted});
        if capacity(volume) != Some(&wanted) {
            let patch = json!({"metadata": {"uid": volume.metadata.uid}, "spec": {"capacity": now}});
            let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
            let changed = volumes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
            changed.map_err(|error| words(&error))?;
        }
        let meta = &claim.metadata;
        let patch = json!({"metadata": {"uid": meta.uid}, "status": {"capacity": now}});
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client.clone(), meta.namespace.as_deref().unwrap_or_default());
        let of = meta.name.as_deref().unwrap_or_default();
        let changed = claims.patch_status(of, &PatchParams::default(), &Patch::Merge(patch)).await;
        changed.map(drop).map_err(|error| words(&error))
    }

    async fn remove_volume(self: &Arc<Self>, volume: &PersistentVolume) -> bool {
        let name = volume.metadata.name.clone().unwrap_or_default();
        let Some(place) = self.storage.place(&name) else { return true };
        if self.storage.holders.has(&name) {
            return false;
        }
        let root = self.storage.clone();
        let removed = tokio::task::spawn_blocking(move || discard(&root, &place)).await;
        let failure = match removed {
            Ok(Ok(())) => match self.forget_volume(volume).await {
                Ok(()) => return true,
                Err(error) => words(&error),
            },
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("PersistentVolume".to_owned()),
            ..volume.object_ref(&())
        };
        self.recorder.about(about, PROVISIONER, Kind::Warning, "VolumeFailedDelete", failure);
        false
    }

    /// Takes a volume out of the API, whose directory is gone.
    async fn forget_volume(&self, volume: &PersistentVolume) -> Result<(), kube::Error> {
        self.let_go(volume).await?;
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let preconditions = Preconditions { uid: volume.metadata.uid.clone(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match volumes.delete(name, &parameters).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop),
        }
    }

    /// Takes this node's hold off a volume.
    async fn let_go(&self, volume: &PersistentVolume) -> Result<(), kube::Error> {
        let held = volume.metadata.finalizers.iter().flatten();
        let left: Vec<&String> = held.filter(|finalizer| *finalizer != FINALIZER).collect();
        if volume.metadata.finalizers.as_ref().is_none_or(|all| all.len() == left.len()) {
            return Ok(());
        }
        let meta = &volume.metadata;
        let version = &meta.resource_version;
        let patch = json!({"metadata": {"uid": meta.uid, "resourceVersion": version, "finalizers": left}});
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let name = meta.name.as_deref().unwrap_or_default();
        match volumes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop),
        }
    }
}

/// Has no volume brought into memory any more. Whether one is there. Blocks.
pub(crate) fn close(root: &Root) -> bool {
    root.close();
    holds_memory(root)
}

/// Whether volumes are in memory. Blocks.
pub(crate) fn holds_memory(root: &Root) -> bool {
    root.with_aside().iter().any(|place| root.alone(place, || is_mounted(&place.data)))
}

/// The size of the file system that volumes are on.
fn size_of_disk(volumes: &Root) -> Result<u64, String> {
    let disk = rustix::fs::statvfs(volumes.path()).map_err(|error| error.to_string())?;
    Ok(disk.f_blocks * disk.f_frsize)
}

/// Writes what volumes hold in memory to disk, which nobody uses any more. Blocks.
///
/// # Errors
/// What was not written is in memory still.
pub(crate) fn save(root: &Root) -> std::io::Result<()> {
    each_aside(root, |place| hard::save(root, place))
}

/// Unmounts what is in memory, for good. Blocks.
pub(crate) fn drop_memory(root: &Root) -> std::io::Result<()> {
    each_aside(root, hard::unmount)
}

/// Does something to each volume that has something beside it: one that fails keeps the others from nothing. The first
/// failure is given back, further ones are logged.
fn each_aside(root: &Root, work: impl Fn(&Place) -> std::io::Result<()>) -> std::io::Result<()> {
    let mut first = Ok(());
    for place in root.with_aside() {
        let name = place.data.file_name().unwrap_or_default().to_string_lossy();
        match (work(&place), &first) {
            (Ok(()), _) => {}
            (Err(error), Ok(())) => {
                first = Err(std::io::Error::new(error.kind(), format!("{name}: {error}")));
            }
            (Err(error), Err(_)) => tracing::warn!(%error, volume = %name, "a further volume fails as well"),
        }
    }
    first
}

/// Removes what a volume held. Blocks.
fn discard(root: &Root, place: &Place) -> std::io::Result<()> {
    root.alone(place, || {
        hard::unmount(place)?;
        root.remove(place)
    })
}

/// A volume of this node, as the API shows it.
fn volume(
    name: &str,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    place: &Place,
    node: &str,
) -> Value {
    let spec = claim.spec.clone().unwrap_or_default();
    let policy = class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned());
    let finalizers = if policy == "Delete" { vec![FINALIZER] } else { Vec::new() };
    let meta = &claim.metadata;
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}, "finalizers": finalizers},
        "spec": {
            "capacity": {"storage": requested(claim)},
            "accessModes": spec.access_modes,
            "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": class.metadata.name,
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
            },
            "local": {"path": place.data.to_string_lossy()},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{
                "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}],
            }]}},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim's wish for a volume: its size, how it stands with it, and the version of its class.
    fn work(size: &str, phase: &str, class: &str) -> Work {
        let claim = json!({
            "metadata": {"name": "c", "uid": "1"},
            "spec": {"resources": {"requests": {"storage": size}}},
            "status": {"phase": phase},
        });
        let class = json!({"metadata": {"name": "s", "resourceVersion": class}, "provisioner": PROVISIONER});
        let (claim, class) = (serde_json::from_value(claim), serde_json::from_value(class));
        Work::Provision(Arc::new(claim.unwrap()), Arc::new(class.unwrap()))
    }

    #[test]
    fn what_failed_waits_longer_each_time_until_it_is_asked_for_otherwise() {
        let now = Timestamp::UNIX_EPOCH;
        let mut failed = Failures::default();
        let first = work("1Ei", "Pending", "1");
        for pause in [200, 400, 800] {
            failed.add(&first, now);
            assert_eq!(failed.next(), Some(now + SignedDuration::from_millis(pause)));
        }
        // What others say of it is no reason to try again.
        let same = work("1Ei", "Lost", "1");
        failed.keep(std::slice::from_ref(&same));
        assert!(failed.waits(&same, now));
        for other in [work("20Mi", "Pending", "1"), work("1Ei", "Pending", "2")] {
            let mut failed = Failures::default();
            failed.add(&first, now);
            failed.keep(std::slice::from_ref(&other));
            assert!(!failed.waits(&other, now));
            failed.add(&other, now);
            assert_eq!(failed.next(), Some(now + RETRY), "it is the first time");
        }
        failed.keep(&[]);
        assert_eq!(failed.next(), None);
    }
}
