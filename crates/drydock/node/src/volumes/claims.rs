//! The claims of a pod: from the name in its specification to a directory of this node.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::VolumeError;
use crate::Shared;
use crate::fetch::words;
use crate::quantity;
use crate::storage::decide::{capacity, is_ours};
use crate::storage::directory::Root;
use crate::storage::hard;

/// Something as it is, and not what it leads to.
const OPENED: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// A directory, to see what is in it.
const READ: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// What a group may do with files and directories that a pod's group of files has.
const FILES: u32 = 0o660;
const DIRECTORIES: u32 = 0o2770;
/// The mode of a volume that one pod has at a time, and what a kubelet tells others.
const ALONE: &str = "ReadWriteOncePod";
const TAKEN: &str = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";

/// Claims that are there, by the volume's name in the pod.
pub(crate) type Claimed = BTreeMap<String, Opened>;

/// A claim that can be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    pub path: PathBuf,
    pub read_only: bool,
}

/// The volumes of a pod that are claims: the volume's name, the claim's, and whether it is only to be read.
pub(crate) fn names(pod: &Pod) -> Vec<(String, String, bool)> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let claim = |volume: &k8s_openapi::api::core::v1::Volume| {
        if let Some(source) = &volume.persistent_volume_claim {
            let read_only = source.read_only == Some(true);
            return Some((volume.name.clone(), source.claim_name.clone(), read_only));
        }
        volume.ephemeral.as_ref()?;
        let pod = pod.metadata.name.as_deref().unwrap_or_default();
        Some((volume.name.clone(), format!("{pod}-{}", volume.name), false))
    };
    volumes.iter().filter_map(claim).collect()
}

/// What is found in the API for one of them.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The volume's name in the pod.
    pub volume: String,
    pub object: Box<PersistentVolume>,
    pub read_only: bool,
}

impl Shared {
    /// Finds the volumes of a pod's claims.
    ///
    /// # Errors
    /// What a kubelet says of claims that are not ready.
    pub(crate) async fn fetch_claims(&self, pod: &Pod) -> Result<Vec<Found>, String> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let mut found = Vec::new();
        for (volume, claim, read_only) in names(pod) {
            let object = self.fetch_claim(pod, &namespace, &claim).await.map_err(|why| {
                format!(
                    "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed \
                     to process volumes=[{volume}]: error processing PVC {namespace}/{claim}: {why}"
                )
            })?;
            found.push(Found { volume, object: Box::new(object), read_only });
        }
        Ok(found)
    }

    async fn fetch_claim(&self, pod: &Pod, namespace: &str, name: &str) -> Result<PersistentVolume, String> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let claim = claims.get(name).await;
        let claim =
            claim.map_err(|error| format!("failed to fetch PVC from API server: {}", words(&error)))?;
        let volume = usable(pod, &claim, name)?;
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let object = volumes
            .get(&volume)
            .await
            .map_err(|error| format!("failed to fetch PV {volume} from API server: {}", words(&error)))?;
        let of = object.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()).ok_or_else(|| {
            format!(
                "found PV object {volume} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the \
                 claim"
            )
        })?;
        if of.uid != claim.metadata.uid {
            let (has, is) = (of.uid.clone().unwrap_or_default(), claim.metadata.uid.unwrap_or_default());
            return Err(format!(
                "found PV object {volume} but its pv.Spec.ClaimRef.UID {has} does not point to claim.UID {is}"
            ));
        }
        Ok(object)
    }
}

/// The volume of a claim that a pod may use now.
fn usable(pod: &Pod, claim: &PersistentVolumeClaim, name: &str) -> Result<String, String> {
    let ephemeral = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref()).is_some_and(|volumes| {
        let pod = pod.metadata.name.as_deref().unwrap_or_default();
        volumes.iter().any(|volume| volume.ephemeral.is_some() && format!("{pod}-{}", volume.name) == name)
    });
    let owners = claim.metadata.owner_references.iter().flatten();
    let mut own = owners.filter(|owner| owner.controller == Some(true));
    if ephemeral && !own.any(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref()) {
        return Err("PVC was not created for pod".to_owned());
    }
    let held = claim.metadata.finalizers.iter().flatten().any(|one| one == "kubernetes.io/pvc-protection");
    if claim.metadata.deletion_timestamp.is_some() && !held {
        return Err("PVC is being deleted".to_owned());
    }
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Bound") {
        return Err("PVC is not bound".to_owned());
    }
    let volume =
        claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).filter(|name| !name.is_empty());
    volume.ok_or_else(|| "PVC has empty pvc.Spec.VolumeName".to_owned())
}

/// Opens what was found: the directory, and whose files are in it. The pod has all of it from here on, or where one
/// can't be had, no more than before: it would keep others from what it does not use. Blocks.
pub(crate) fn open(found: &[Found], root: &Root, pod: &Pod, fresh: bool) -> Result<Claimed, VolumeError> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let before = root.holders.of(uid);
    let opened = open_all(found, root, pod, fresh);
    if opened.is_err() {
        root.holders.keep(uid, &before);
    }
    opened
}

fn open_all(found: &[Found], root: &Root, pod: &Pod, fresh: bool) -> Result<Claimed, VolumeError> {
    let mut claimed = Claimed::new();
    for Found { volume, object, read_only } in found {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let failed = |why: String| VolumeError { volume: name.to_owned(), why };
        let modes = object.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
        if !root.holders.add(name, pod.metadata.uid.as_deref().unwrap_or_default(), modes == [ALONE]) {
            return Err(failed(TAKEN.to_owned()));
        }
        let path = place(object, root, fresh).map_err(failed)?;
        let local = object.spec.as_ref().is_some_and(|spec| spec.local.is_some());
        // What was running already keeps what it has.
        if let (true, true, false, Some(group)) = (local, fresh, *read_only, Group::of(pod)) {
            let taken = top(&path, object).and_then(|top| group.take(&top));
            let refused = taken.map_err(|error| failed(format!("applyFSGroup failed: {error}")))?;
            if refused > 0 {
                tracing::warn!(volume = name, refused, "not all files are given to the pod's group");
            }
        }
        claimed.insert(volume.clone(), Opened { path, read_only: *read_only });
    }
    Ok(claimed)
}

/// Where a volume is on this node.
fn place(volume: &PersistentVolume, root: &Root, fresh: bool) -> Result<PathBuf, String> {
    let spec = volume.spec.clone().unwrap_or_default();
    if is_ours(volume) {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let place = root.place(name).ok_or_else(|| format!("{name:?} is no volume of this node"))?;
        if hard::is_hard(&place) {
            hard::mount(root, &place, capacity(volume).and_then(quantity::units).unwrap_or(0))?;
        }
        return match place.data.is_dir() {
            true => Ok(place.data),
            false => Err(format!("path {:?} does not exist", place.data)),
        };
    }
    if let Some(local) = spec.local {
        let path = PathBuf::from(&local.path);
        return if path.exists() { Ok(path) } else { Err(format!("path {:?} does not exist", local.path)) };
    }
    match spec.host_path {
        Some(host) => super::host_path(&host, fresh),
        None => Err("this node has no volumes of this kind".to_owned()),
    }
}

/// Opens the directory that a volume is. A path that an administrator wrote may be a link to it; one of this node's own
/// never is.
fn top(path: &Path, volume: &PersistentVolume) -> io::Result<OwnedFd> {
    let opened = if is_ours(volume) { OPENED } else { OPENED.difference(OFlags::NOFOLLOW) };
    Ok(rustix::fs::open(path, opened | OFlags::DIRECTORY, Mode::empty())?)
}

/// The group that a pod's files are to be of.
struct Group {
    group: u32,
    /// Leave all as it is where the top is right.
    only_on_mismatch: bool,
}

impl Group {
    fn of(pod: &Pod) -> Option<Self> {
        let context = pod.spec.as_ref()?.security_context.as_ref()?;
        let group = u32::try_from(context.fs_group?).ok()?;
        let only_on_mismatch = context.fs_group_change_policy.as_deref() == Some("OnRootMismatch");
        Some(Self { group, only_on_mismatch })
    }

    /// Gives a directory and all in it to the group; of how much in it this node may not. What is in it may change
    /// meanwhile: everything is done to what was opened, and no link is followed.
    fn take(&self, top: &OwnedFd) -> io::Result<usize> {
        let found = rustix::fs::fstat(top)?;
        let right = found.st_gid == self.group && found.st_mode & DIRECTORIES == DIRECTORIES;
        if self.only_on_mismatch && right {
            return Ok(0);
        }
        // A node with a single user has no groups to give; its files are that user's anyway.
        if !self.may(top)? {
            return Ok(0);
        }
        // The top last of all: it is what says that the rest is done.
        rustix::fs::chmod(through(top), Mode::from_raw_mode(found.st_mode & 0o5777))?;
        let refused = self.below(&rustix::fs::openat(top, ".", READ, Mode::empty())?)?;
        self.one(top)?;
        Ok(refused)
    }

    /// The same for all that is below a directory. Pods may have made it deeper than there are descriptors: so one after
    /// the other is reached from the top.
    fn below(&self, top: &OwnedFd) -> io::Result<usize> {
        let mut refused = 0;
        let mut left: Vec<Vec<CString>> = vec![Vec::new()];
        while let Some(way) = left.pop() {
            let Some(directory) = reached(top, &way)? else { continue };
            for entry in Dir::read_from(&directory)? {
                let entry = entry?;
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                let opened = match rustix::fs::openat(&directory, name, OPENED, Mode::empty()) {
                    Err(Errno::NOENT | Errno::ACCESS) => continue,
                    opened => opened?,
                };
                // What is somebody else's, or may be changed by nobody, keeps the rest from nothing: so does a kubelet.
                refused += usize::from(!self.may(&opened)?);
                if FileType::from_raw_mode(rustix::fs::fstat(&opened)?.st_mode) == FileType::Directory {
                    left.push(way.iter().cloned().chain([name.to_owned()]).collect());
                }
            }
        }
        Ok(refused)
    }

    /// The same for one thing, where this node may.
    fn may(&self, opened: &OwnedFd) -> io::Result<bool> {
        match self.one(opened) {
            Err(Errno::PERM | Errno::INVAL | Errno::ACCESS | Errno::ROFS | Errno::OPNOTSUPP) => Ok(false),
            other => Ok(other.map(|()| true)?),
        }
    }

    fn one(&self, opened: &OwnedFd) -> Result<(), Errno> {
        // A change of owner takes the special bits away: they are what they were before it.
        let mode = rustix::fs::fstat(opened)?.st_mode;
        let group = Some(rustix::fs::Gid::from_raw(self.group));
        rustix::fs::chownat(opened, "", None, group, AtFlags::EMPTY_PATH)?;
        let more = match FileType::from_raw_mode(mode) {
            FileType::Symlink => return Ok(()),
            FileType::Directory => DIRECTORIES,
            _ => FILES,
        };
        rustix::fs::chmod(through(opened), Mode::from_raw_mode(mode & 0o7777 | more))
    }
}

/// The directory to which these names lead, each below the one before; none when it is gone or something else by now, or
/// somebody else's who lets nobody look into it.
fn reached(top: &OwnedFd, way: &[CString]) -> io::Result<Option<OwnedFd>> {
    let mut at = top.try_clone()?;
    for name in way {
        at = match rustix::fs::openat(&at, name, READ, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(None),
            opened => opened?,
        };
    }
    Ok(Some(at))
}

/// The way to something that was opened.
fn through(opened: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", opened.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    use super::*;
    use rustix::thread::{CapabilitySet, CapabilitySets};
    use serde_json::{Value, json};

    fn pod(volumes: Value) -> Pod {
        let spec = json!({"containers": [], "volumes": volumes});
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec});
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_pod_has_the_claims_it_names_and_those_that_are_made_for_it() {
        let pod = pod(json!([
            {"name": "a", "persistentVolumeClaim": {"claimName": "data", "readOnly": true}},
            {"name": "b", "emptyDir": {}},
            {"name": "c", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        ]));
        let expected = [("a", "data", true), ("c", "p-c", false)];
        let expected = expected.map(|(volume, claim, only)| (volume.to_owned(), claim.to_owned(), only));
        assert_eq!(names(&pod), expected);
    }

    #[test]
    fn a_claim_is_usable_when_it_is_bound_and_stays() {
        let check = |claim: Value, expected: Result<&str, &str>| {
            let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
            let pod = pod(json!([{"name": "c", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]));
            let name = claim.metadata.name.clone().unwrap();
            let found = usable(&pod, &claim, &name);
            assert_eq!(found.as_deref().map_err(String::as_str), expected);
        };
        let claim = |meta: Value, phase: &str| json!({"metadata": meta, "spec": {"volumeName": "v"}, "status": {"phase": phase}});
        check(claim(json!({"name": "data"}), "Bound"), Ok("v"));
        check(claim(json!({"name": "data"}), "Pending"), Err("PVC is not bound"));
        let going = json!({"name": "data", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        check(claim(going, "Bound"), Err("PVC is being deleted"));
        check(claim(json!({"name": "p-c"}), "Bound"), Err("PVC was not created for pod"));
        let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}]);
        check(claim(json!({"name": "p-c", "ownerReferences": owner}), "Bound"), Ok("v"));
    }

    /// Gives a volume to a group.
    fn take(group: u32, only_on_mismatch: bool, volume: &Path) -> io::Result<usize> {
        let top = rustix::fs::open(volume, OPENED | OFlags::DIRECTORY, Mode::empty())?;
        Group { group, only_on_mismatch }.take(&top)
    }

    #[test]
    fn a_volume_may_be_deeper_than_there_are_descriptors() {
        let machine = tempfile::tempdir().unwrap();
        let volume = machine.path().join("volume");
        fs::create_dir(&volume).unwrap();
        let group = fs::metadata(&volume).unwrap().gid();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut at = rustix::fs::open(&volume, flags, Mode::empty()).unwrap();
        for _ in 0..1_200 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, "d", flags, Mode::empty()).unwrap();
        }
        take(group, false, &volume).unwrap();
        assert_eq!(rustix::fs::fstat(&at).unwrap().st_mode & DIRECTORIES, DIRECTORIES);
        drydock_sandbox::remove_all(&volume).unwrap();
    }

    #[test]
    fn files_are_given_to_the_group_and_links_are_not_followed() {
        let machine = tempfile::tempdir().unwrap();
        let (volume, outside) = (machine.path().join("volume"), machine.path().join("outside"));
        fs::create_dir_all(volume.join("sub")).unwrap();
        for path in [volume.join("sub/file"), outside.clone()] {
            fs::write(&path, "1").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        symlink(&outside, volume.join("link")).unwrap();
        // Its own group is one that everybody can give.
        let group = fs::metadata(&volume).unwrap().gid();
        let take = |only_on_mismatch| take(group, only_on_mismatch, &volume).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        take(false);
        assert_eq!(mode(&volume) & DIRECTORIES, DIRECTORIES);
        assert_eq!(mode(&volume.join("sub")) & DIRECTORIES, DIRECTORIES);
        assert_eq!(mode(&volume.join("sub/file")), 0o660);
        assert_eq!(mode(&outside), 0o600);
        fs::set_permissions(volume.join("sub/file"), fs::Permissions::from_mode(0o600)).unwrap();
        take(true);
        assert_eq!(mode(&volume.join("sub/file")), 0o600);
        fs::set_permissions(&volume, fs::Permissions::from_mode(0o755)).unwrap();
        take(true);
        assert_eq!(mode(&volume.join("sub/file")), 0o660);
        fs::set_permissions(volume.join("sub/file"), fs::Permissions::from_mode(0o6755)).unwrap();
        take(false);
        assert_eq!(mode(&volume.join("sub/file")), 0o6775, "what runs as its owner still does");
    }

    /// Does something without any of root's powers.
    fn powerless<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        let none = CapabilitySet::empty();
        let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
        let work = || {
            rustix::thread::set_capabilities(None, none).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    #[test]
    fn what_is_somebody_elses_keeps_the_rest_of_a_volume_from_nothing() {
        let machine = tempfile::tempdir().unwrap();
        let group = fs::metadata(machine.path()).unwrap().gid();
        let names = ["a", "b", "c"];
        // Each of them: nobody knows in which order it is done.
        for (foreign, other) in [("a", "b"), ("b", "c"), ("c", "a")] {
            let volume = machine.path().join(foreign);
            let file = |directory: &str| volume.join(directory).join("file");
            for directory in names.map(|name| volume.join(name)) {
                fs::create_dir_all(&directory).unwrap();
                fs::write(directory.join("file"), "1").unwrap();
                fs::set_permissions(directory.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
            }
            fs::set_permissions(volume.join(foreign), fs::Permissions::from_mode(0o700)).unwrap();
            for path in [volume.join(foreign), file(other)] {
                if let Err(error) = chown(path, Some(54_322), Some(54_322)) {
                    println!("not tested: nobody can be given a file here: {error}");
                    return;
                }
            }
            let refused = powerless(|| take(group, false, &volume));
            assert_eq!(refused.unwrap(), 2, "a directory, and a file in another");
            for name in names {
                let mode = if [foreign, other].contains(&name) { 0o600 } else { 0o660 };
                assert_eq!(fs::metadata(file(name)).unwrap().mode() & 0o777, mode);
            }
            assert_eq!(fs::metadata(&volume).unwrap().mode() & DIRECTORIES, DIRECTORIES);
        }
    }

    #[test]
    fn a_pod_that_can_not_have_all_its_claims_keeps_none_from_others() {
        let machine = tempfile::tempdir().unwrap();
        let root = Root::below(machine.path());
        let found = |name: &str, path: &Path| Found {
            volume: name.to_owned(),
            object: Box::new(
                serde_json::from_value(json!({
                    "metadata": {"name": name},
                    "spec": {"accessModes": [ALONE], "local": {"path": path}},
                }))
                .unwrap(),
            ),
            read_only: false,
        };
        let (x, y) = (found("x", machine.path()), found("y", machine.path()));
        let gone = found("gone", &machine.path().join("gone"));
        let open = |found: &[Found], uid: &str| {
            let mut pod = pod(json!([]));
            pod.metadata.uid = Some(uid.to_owned());
            open(found, &root, &pod, true).map_err(|error| error.why)
        };
        // One has the first of what another wants, and the other way round.
        open(std::slice::from_ref(&y), "b").unwrap();
        assert_eq!(open(&[x.clone(), y.clone()], "a"), Err(TAKEN.to_owned()));
        open(&[y.clone(), x.clone()], "b").unwrap();
        // What a pod had before it keeps.
        assert!(open(&[x.clone(), gone], "b").unwrap_err().contains("does not exist"));
        assert_eq!(open(std::slice::from_ref(&x), "a"), Err(TAKEN.to_owned()));
        root.holders.remove("b");
        assert_eq!(open(&[x, y], "a").unwrap().len(), 2);
    }

    #[test]
    fn a_link_is_followed_where_an_administrator_wrote_its_path_and_nowhere_else() {
        let machine = tempfile::tempdir().unwrap();
        let (target, link) = (machine.path().join("target"), machine.path().join("link"));
        let root = Root::below(machine.path());
        root.prepare().unwrap();
        fs::create_dir(&target).unwrap();
        let group = fs::metadata(&target).unwrap().gid();
        let mut pod = pod(json!([]));
        pod.spec.as_mut().unwrap().security_context =
            serde_json::from_value(json!({"fsGroup": group})).unwrap();
        let open = |annotations: Value, path: &Path| {
            fs::set_permissions(&target, fs::Permissions::from_mode(0o755)).unwrap();
            symlink(&target, path).unwrap();
            let object = json!({
                "metadata": {"name": "pvc-1", "annotations": annotations},
                "spec": {"local": {"path": path}},
            });
            let object = Box::new(serde_json::from_value(object).unwrap());
            let found = Found { volume: "v".to_owned(), object, read_only: false };
            let opened = open(&[found], &root, &pod, true);
            let mode = fs::metadata(&target).unwrap().mode() & 0o7777;
            (opened.map(drop).map_err(|error| error.why), mode)
        };
        assert_eq!(open(json!({}), &link), (Ok(()), 0o2775));
        let ours = json!({"pv.kubernetes.io/provisioned-by": crate::PROVISIONER});
        let (refused, mode) = open(ours, &root.place("pvc-1").unwrap().data);
        assert_eq!((refused.unwrap_err().contains("Not a directory"), mode), (true, 0o755));
    }
}
