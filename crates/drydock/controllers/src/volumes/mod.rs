//! Brings claims and volumes together, as Kubernetes' persistent volume controller does.
//!
//! [`claim`] and [`volume`] decide, each for its own kind; this file gathers what they need, carries out and tells.
//! A claim gets a volume that is there and fits, or is said to wait for whoever makes volumes of its class: nothing is
//! made or removed here. Whoever does watches for the annotation that names it, makes a volume that is meant for the
//! claim, and removes it once it is `Released`.
//!
//! # Guarantees
//! - A binding is written to the volume first, then to the claim; each write only onto the version that was decided
//!   on. Whatever stops it in between, the next look goes on from there: the volume says whose it is.
//! - A volume whose claim is not in the cache is released only when the API says that the claim is gone.
//!
//! # Deliberately absent
//! Recycling, and the drivers that Kubernetes once had built in.

mod claim;
pub mod find;
mod volume;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::machinery::awaited::{Awaited, LOOK_AGAIN};
use crate::machinery::cache::{Cache, Kind, Object, Progress};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::recorder::Recorder;
use crate::machinery::rest::{Error, Rest, json_bytes};
use crate::objects::meta::Meta;
use crate::objects::pod::Pod;
use crate::objects::resource::{Key, Resource};
use crate::objects::storage::{Claim, Class, Volume};
use claim::{Told, View};
use volume::Reclaim;

/// On a claim: it had a volume once.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a claim or a volume: a controller chose the other, and no person.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a claim: the node that its pod will be on.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a volume: who made it.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a claim: who is to make a volume for it, by its name of today and of long ago.
const PROVISIONER: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];

/// How long a claim waits for a pod to be placed before it says so: Kubernetes looks at all claims as often.
const PLACED: Duration = Duration::from_secs(15);

/// What claims are bound by.
type Informers<'a> =
    (&'a mut Informer<Claim>, &'a mut Informer<Volume>, &'a mut Informer<Class>, &'a mut Informer<Pod>);

/// The controller of claims.
pub struct Claims {
    rest: Rest,
    recorder: Recorder,
    /// Tells in the name of whoever makes volumes larger.
    expander: Recorder,
    claims: Arc<Cache<Claim>>,
    volumes: Arc<Cache<Volume>>,
    classes: Arc<Cache<Class>>,
    pods: Arc<Cache<Pod>>,
    awaited: Awaited<Key>,
}

impl Claims {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        (recorder, expander): (Recorder, Recorder),
        (claims, volumes, classes, pods): Informers<'_>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        let keys = queue.clone();
        claims.on_change(move |change| {
            if let Some(claim) = change.after {
                keys.add(claim.metadata.key());
            }
        });
        let (keys, all) = (queue.clone(), claims.cache.clone());
        volumes.on_change(move |change| {
            let Some(volume) = change.latest() else { return };
            let concerned = |claim: &Claim| {
                *claim.spec.volume_name == *volume.metadata.name
                    || volume.is_for(claim)
                    || (claim.spec.volume_name.is_empty() && claim.class() == volume.class())
            };
            all.all(concerned).iter().for_each(|claim| keys.add(claim.metadata.key()));
        });
        let (keys, all) = (queue.clone(), claims.cache.clone());
        classes.on_change(move |_| {
            let waiting = all.all(|claim| claim.spec.volume_name.is_empty());
            waiting.iter().for_each(|claim| keys.add(claim.metadata.key()));
        });
        let (keys, all) = (queue.clone(), claims.cache.clone());
        pods.on_change(move |change| {
            let (Some(pod), true) = (change.after, change.before.is_none()) else { return };
            for (claim, _) in pod.claims() {
                let key = Key::new(pod.metadata.namespace.clone(), claim);
                if all.get(&key).is_some_and(|claim| claim.spec.volume_name.is_empty()) {
                    keys.add_after(key, PLACED);
                }
            }
        });
        Self {
            rest,
            recorder,
            expander,
            claims: claims.cache.clone(),
            volumes: volumes.cache.clone(),
            classes: classes.cache.clone(),
            pods: pods.cache.clone(),
            awaited: Awaited::default(),
        }
    }

    /// Brings one claim nearer to a volume.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        if self.awaited.holds(key) {
            return Ok(Next::After(LOOK_AGAIN));
        }
        let Some(claim) = self.claims.get(key) else {
            self.awaited.forget(key);
            return Ok(Next::OnChange);
        };
        let volumes = self.volumes.all(|_| true);
        let classes = self.classes.all(|_| true);
        let unplaced = self.unplaced(key);
        let view = View { volumes: &volumes, classes: &classes, unplaced: &unplaced };
        let done = match claim::decide(&claim, &view) {
            claim::Plan::Bind(volume) => self.bind(&claim, &volume).await,
            claim::Plan::Assign(class) => {
                self.change(&claim, |claim| claim["spec"]["storageClassName"] = json!(&*class)).await
            }
            claim::Plan::Provision(provisioner) => self.provision(&claim, &provisioner).await,
            claim::Plan::Wait(told) => {
                self.tell(&claim, told);
                self.say(&claim, "Pending").await
            }
            claim::Plan::Fail(told) => {
                self.tell(&claim, Some(told));
                Ok(())
            }
            claim::Plan::Lose(told) => {
                self.tell(&claim, Some(told).filter(|_| &*claim.status.phase != "Lost"));
                self.say(&claim, "Lost").await
            }
        };
        match done {
            Err(error) if error.not_found() => Ok(Next::OnChange),
            other => other.map(|()| Next::OnChange),
        }
    }

    /// The pods that use a claim and have no node.
    fn unplaced(&self, claim: &Key) -> Vec<Box<str>> {
        let waits = |pod: &Pod| {
            pod.spec.node_name.is_empty()
                && !pod.finished()
                && pod.claims().iter().any(|(name, _)| **name == *claim.name)
        };
        let pods = self.pods.in_namespace(&claim.namespace, waits);
        pods.iter().map(|pod| Box::from(&*pod.metadata.name)).collect()
    }

    fn tell(&self, claim: &Arc<Claim>, told: Option<Told>) {
        if let Some(Told { severity, reason, message }) = told {
            self.recorder.record(&**claim, severity, reason, message);
        }
    }

    fn note<T: Object>(&self, claim: &Claim, cache: &Arc<Cache<T>>, written: &Meta) {
        let cache: Arc<dyn Progress> = cache.clone();
        self.awaited.note(&claim.metadata.key(), &cache, written.version());
    }

    /// Changes a claim.
    async fn change(&self, claim: &Claim, change: impl FnOnce(&mut Value)) -> Result<(), Error> {
        let written = edit::<Claim>(&self.rest, &claim.metadata, None, change).await?;
        self.note(claim, &self.claims, &written);
        Ok(())
    }

    /// Has a claim without a volume say this phase.
    async fn say(&self, claim: &Claim, phase: &str) -> Result<(), Error> {
        let status = &claim.status;
        let same = *status.phase == *phase
            && status.access_modes.is_empty()
            && status.capacity.iter().next().is_none();
        if same {
            return Ok(());
        }
        let change = |claim: &mut Value| {
            if let Some(status) = claim["status"].as_object_mut() {
                status.remove("accessModes");
                status.remove("capacity");
            }
            claim["status"]["phase"] = json!(phase);
        };
        let written = edit::<Claim>(&self.rest, &claim.metadata, Some("status"), change).await?;
        self.note(claim, &self.claims, &written);
        Ok(())
    }

    /// Has somebody else make a volume.
    async fn provision(&self, claim: &Arc<Claim>, provisioner: &str) -> Result<(), Error> {
        let said = PROVISIONER.iter().all(|name| claim.metadata.annotations.get(name) == Some(provisioner));
        if !said {
            self.change(claim, |claim| {
                for name in PROVISIONER {
                    claim["metadata"]["annotations"][name] = json!(provisioner);
                }
            })
            .await?;
        }
        self.tell(claim, Some(claim::provisioning(provisioner)));
        Ok(())
    }

    /// Gives a volume to a claim, as far as that is not done.
    async fn bind(&self, claim: &Arc<Claim>, volume: &Arc<Volume>) -> Result<(), Error> {
        let mut at = volume.metadata.clone();
        if volume.spec.claim_ref.as_ref().is_none_or(|of| of.uid != claim.metadata.uid) {
            let chosen = !volume.is_for(claim);
            at = edit::<Volume>(&self.rest, &at, None, |volume| give(volume, claim, chosen)).await?;
            self.note(claim, &self.volumes, &at);
        }
        if &*volume.status.phase != "Bound" {
            at = edit::<Volume>(&self.rest, &at, Some("status"), |volume| set_phase(volume, "Bound", None))
                .await?;
            self.note(claim, &self.volumes, &at);
        }
        let mut own = claim.metadata.clone();
        let named = *claim.spec.volume_name == *volume.metadata.name;
        if !named || own.annotations.get(BIND_COMPLETED).is_none() {
            own = edit::<Claim>(&self.rest, &own, None, |claim| {
                if !named {
                    claim["spec"]["volumeName"] = json!(&*volume.metadata.name);
                    claim["metadata"]["annotations"][BOUND_BY_CONTROLLER] = json!("yes");
                }
                claim["metadata"]["annotations"][BIND_COMPLETED] = json!("yes");
            })
            .await?;
            self.note(claim, &self.claims, &own);
        }
        let is_bound = &*claim.status.phase == "Bound";
        if !is_bound || claim.status.access_modes != volume.spec.access_modes {
            let given: Value = self.rest.get(Volume::resource(), &volume.metadata.key(), None).await?;
            own = edit::<Claim>(&self.rest, &own, Some("status"), |claim| {
                claim["status"]["phase"] = json!("Bound");
                claim["status"]["accessModes"] = given["spec"]["accessModes"].clone();
                // What it has may differ from what the volume has while that is made larger.
                if !is_bound {
                    claim["status"]["capacity"] = given["spec"]["capacity"].clone();
                }
            })
            .await?;
            self.note(claim, &self.claims, &own);
        } else if claim.requested() > claim.status.capacity.get("storage") {
            let message = "waiting for an external controller to expand this PVC";
            let Told { severity, reason, message } = Told::warning("ExternalExpanding", message);
            self.expander.record(&**claim, severity, reason, message);
        }
        Ok(())
    }
}

/// Has a volume say whose it is.
pub fn give(volume: &mut Value, claim: &Claim, chosen: bool) {
    let meta = &claim.metadata;
    volume["spec"]["claimRef"] = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": &*meta.namespace,
        "name": &*meta.name,
        "uid": &*meta.uid,
        "resourceVersion": &*meta.resource_version,
    });
    if chosen {
        volume["metadata"]["annotations"][BOUND_BY_CONTROLLER] = json!("yes");
    }
}

fn set_phase(volume: &mut Value, phase: &str, message: Option<&str>) {
    volume["status"]["phase"] = json!(phase);
    match (message, volume["status"].as_object_mut()) {
        (Some(message), Some(status)) => drop(status.insert("message".into(), json!(message))),
        (None, Some(status)) => drop(status.remove("message")),
        (_, None) => {}
    }
}

/// Changes an object, or its status, if it is still at the version that was decided on.
pub async fn edit<T: Kind>(
    rest: &Rest,
    at: &Meta,
    subresource: Option<&str>,
    change: impl FnOnce(&mut Value),
) -> Result<Meta, Error> {
    let (resource, key): (&Resource, Key) = (T::resource(), at.key());
    let mut object: Value = rest.get(resource, &key, None).await?;
    change(&mut object);
    object["metadata"]["resourceVersion"] = json!(&*at.resource_version);
    rest.replace(resource, &key, subresource, json_bytes(&object)?).await
}

/// The controller of volumes.
pub struct Volumes {
    rest: Rest,
    recorder: Recorder,
    claims: Arc<Cache<Claim>>,
    volumes: Arc<Cache<Volume>>,
    claim_keys: Arc<Queue<Key>>,
    awaited: Awaited<Key>,
}

impl Volumes {
    /// The controller, listening to these informers. It has claims looked at by their own queue.
    pub fn new(
        rest: Rest,
        recorder: Recorder,
        claims: &mut Informer<Claim>,
        volumes: &mut Informer<Volume>,
        (queue, claim_keys): (&Arc<Queue<Key>>, &Arc<Queue<Key>>),
    ) -> Self {
        let keys = queue.clone();
        volumes.on_change(move |change| {
            if let Some(volume) = change.after {
                keys.add(volume.metadata.key());
            }
        });
        let (keys, all) = (queue.clone(), volumes.cache.clone());
        claims.on_change(move |change| {
            let Some(claim) = change.latest() else { return };
            let concerned =
                |volume: &Volume| *claim.spec.volume_name == *volume.metadata.name || volume.is_for(claim);
            all.all(concerned).iter().for_each(|volume| keys.add(volume.metadata.key()));
        });
        Self {
            rest,
            recorder,
            claims: claims.cache.clone(),
            volumes: volumes.cache.clone(),
            claim_keys: claim_keys.clone(),
            awaited: Awaited::default(),
        }
    }

    /// Has one volume say what it is.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        if self.awaited.holds(key) {
            return Ok(Next::After(LOOK_AGAIN));
        }
        let Some(volume) = self.volumes.get(key) else {
            self.awaited.forget(key);
            return Ok(Next::OnChange);
        };
        let claim = self.claim_of(&volume).await?;
        let done = match volume::decide(&volume, claim.as_deref()) {
            volume::Plan::Phase(phase) => self.say(&volume, phase, None).await,
            volume::Plan::LeaveToClaim => {
                claim.iter().for_each(|claim| self.claim_keys.add(claim.metadata.key()));
                Ok(())
            }
            volume::Plan::Mismatch(on_volume, on_claim) => {
                self.tell(&*volume, on_volume);
                claim.iter().for_each(|claim| self.tell(&**claim, on_claim.clone()));
                Ok(())
            }
            volume::Plan::Unbind => self.unbind(&volume).await,
            volume::Plan::Release(reclaim) => self.release(&volume, reclaim).await,
        };
        match done {
            Err(error) if error.not_found() => Ok(Next::OnChange),
            other => other.map(|()| Next::OnChange),
        }
    }

    /// The claim that a volume says it has; asked of the API where the cache has another or none.
    async fn claim_of(&self, volume: &Volume) -> Result<Option<Arc<Claim>>, Error> {
        let Some(of) = volume.spec.claim_ref.as_ref().filter(|of| !of.uid.is_empty()) else {
            return Ok(None);
        };
        let key = Key::new(&*of.namespace, &*of.name);
        let known = self.claims.get(&key).filter(|claim| claim.metadata.uid == of.uid);
        if known.is_some() || matches!(&*volume.status.phase, "Released" | "Failed") {
            return Ok(known);
        }
        match self.rest.get::<Claim>(Claim::resource(), &key, None).await {
            Err(error) if error.not_found() => Ok(None),
            other => other.map(|claim| Some(Arc::new(claim))),
        }
    }

    fn tell<T: Kind>(&self, about: &T, Told { severity, reason, message }: Told) {
        self.recorder.record(about, severity, reason, message);
    }

    async fn say(&self, volume: &Volume, phase: &str, message: Option<&str>) -> Result<(), Error> {
        if *volume.status.phase == *phase {
            return Ok(());
        }
        self.say_at(volume, &volume.metadata, phase, message).await.map(drop)
    }

    async fn say_at(
        &self,
        volume: &Volume,
        at: &Meta,
        phase: &str,
        message: Option<&str>,
    ) -> Result<Meta, Error> {
        let change = |volume: &mut Value| set_phase(volume, phase, message);
        let written = edit::<Volume>(&self.rest, at, Some("status"), change).await?;
        self.note(volume, &written);
        Ok(written)
    }

    fn note(&self, volume: &Volume, written: &Meta) {
        let cache: Arc<dyn Progress> = self.volumes.clone();
        self.awaited.note(&volume.metadata.key(), &cache, written.version());
    }

    async fn unbind(&self, volume: &Volume) -> Result<(), Error> {
        let chosen = volume::bound_by_controller(volume);
        let change = |volume: &mut Value| {
            if let (true, Some(spec)) = (chosen, volume["spec"].as_object_mut()) {
                spec.remove("claimRef");
            } else if let Some(of) = volume["spec"]["claimRef"].as_object_mut() {
                of.remove("uid");
            }
            if let Some(annotations) = volume["metadata"]["annotations"].as_object_mut() {
                annotations.remove(BOUND_BY_CONTROLLER);
            }
        };
        let written = edit::<Volume>(&self.rest, &volume.metadata, None, change).await?;
        self.note(volume, &written);
        if &*volume.status.phase != "Available" {
            self.say_at(volume, &written, "Available", None).await?;
        }
        Ok(())
    }

    async fn release(&self, volume: &Arc<Volume>, reclaim: Reclaim) -> Result<(), Error> {
        // One that failed says so until somebody looks after it.
        let mut at = volume.metadata.clone();
        let over = matches!(&*volume.status.phase, "Released" | "Failed");
        if !over {
            at = self.say_at(volume, &at, "Released", None).await?;
        }
        if let Reclaim::Fail(told) = reclaim
            && &*volume.status.phase != "Failed"
        {
            self.say_at(volume, &at, "Failed", Some(&told.message)).await?;
            self.tell(&**volume, told);
        }
        Ok(())
    }
}
