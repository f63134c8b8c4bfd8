//! The volumes of a pod: where their files are on the node, and how they come there.
//!
//! Secrets and tokens are in memory, in one file system that is mounted in the node's own mount namespace, so that
//! they are gone with it. Claims are the node's and stay. Everything else of a pod is in its directory.

pub(crate) mod atomic;
pub(crate) mod claims;
mod part;
pub(crate) mod payload;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use drydock_sandbox::{Mount, MountKind, remove_all, words};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, HostPathVolumeSource, Pod, Volume, VolumeMount,
};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::container::ConfigError;
use crate::container::environment::Sources;
use crate::container::expand::expand;
use crate::container::fields::Place;
use crate::quantity;
use crate::storage::directory::whole;
use claims::{Claimed, Opened};
use payload::{Payload, Tokens};

/// A volume that can't be had: what the event says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("MountVolume.SetUp failed for volume {volume:?} : {why}")]
pub(crate) struct VolumeError {
    pub volume: String,
    pub why: String,
}

/// Where a pod's volumes are made.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// The pod's directory for volumes on disk.
    pub disk: PathBuf,
    /// The same in memory.
    pub memory: PathBuf,
}

/// Volumes that are there, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prepared {
    volumes: BTreeMap<String, PathBuf>,
    /// Those that nobody in the pod writes to: what the API fills, and claims that are only to be read.
    read_only: BTreeSet<String>,
    /// Those that are paths of the machine: what is gone from there may have to be made again.
    paths: BTreeMap<String, HostPathVolumeSource>,
}

/// Brings the volumes of a pod about, or up to date, each for itself: those that are there, and why the others are not.
/// With `fresh` nothing of the pod has run yet. Blocks.
pub(crate) fn prepare(
    (pod, fresh): (&Pod, bool),
    place: &Place,
    places: &Places,
    (sources, claimed): (&Sources, &Claimed),
    tokens: &Tokens,
    now: Timestamp,
) -> (Prepared, Vec<VolumeError>) {
    let (mut prepared, mut failed) = (Prepared::default(), Vec::new());
    let spec = pod.spec.as_ref();
    let group = spec
        .and_then(|spec| spec.security_context.as_ref()?.fs_group)
        .and_then(|group| u32::try_from(group).ok());
    for volume in spec.and_then(|spec| spec.volumes.as_deref()).unwrap_or_default() {
        if let Some(Opened { path, read_only }) = claimed.get(&volume.name) {
            prepared.add(volume, path.clone(), *read_only);
            continue;
        }
        let made = payload::of(volume, pod, place, sources, tokens).and_then(|files| match files {
            Some(files) => Ok((filled(volume, &files, places, group, now)?, true)),
            None => Ok((other(volume, places, group, fresh)?, false)),
        });
        match made {
            Ok((path, read_only)) => prepared.add(volume, path, read_only),
            Err(why) => failed.push(VolumeError { volume: volume.name.clone(), why }),
        }
    }
    (prepared, failed)
}

/// A volume that the API fills.
fn filled(
    volume: &Volume,
    files: &Payload,
    places: &Places,
    group: Option<u32>,
    now: Timestamp,
) -> Result<PathBuf, String> {
    let root = if payload::is_private(volume) { &places.memory } else { &places.disk };
    let path = root.join(&volume.name);
    // Only config maps are on disk in Kubernetes; memory has the sticky bit.
    let mode = if volume.config_map.is_some() { 0o777 } else { 0o1777 };
    atomic::write(&path, files, mode, group, now).map_err(|error| error.to_string())?;
    Ok(path)
}

fn other(volume: &Volume, places: &Places, group: Option<u32>, fresh: bool) -> Result<PathBuf, String> {
    if let Some(empty) = &volume.empty_dir {
        let path = places.disk.join(&volume.name);
        empty_directory(empty, &path, group).map_err(|error| error.to_string())?;
        return Ok(path);
    }
    if let Some(host) = &volume.host_path {
        return host_path(host, fresh);
    }
    Err("this node has no volumes of this kind".to_owned())
}

/// An empty directory, whole or not at all. One that is there is left as it is: the pod may have changed it.
fn empty_directory(empty: &EmptyDirVolumeSource, path: &Path, group: Option<u32>) -> io::Result<()> {
    let inherited = if group.is_some() { 0o2000 } else { 0 };
    if empty.medium.as_deref() == Some("Memory") {
        // Memory is gone with the node that mounted it.
        if is_mounted(path) {
            return Ok(());
        }
        fs::create_dir_all(path)?;
        let size = empty.size_limit.as_ref().and_then(quantity::units).filter(|size| *size > 0);
        return tmpfs(path, 0o1777 | inherited, group, size);
    }
    if path.is_dir() {
        return Ok(());
    }
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    whole(path, |half| {
        atomic::own(half, None, group);
        fs::set_permissions(half, fs::Permissions::from_mode(0o777 | inherited))
    })
}

/// A path of the machine, made where its type says so and it is not there, and checked as its type says before anything
/// of the pod runs. What has become of it since is no reason to leave the pod alone.
fn host_path(host: &HostPathVolumeSource, fresh: bool) -> Result<PathBuf, String> {
    let path = PathBuf::from(&host.path);
    let wanted = host.type_.as_deref().unwrap_or_default();
    let failed = |what| {
        let path = path.display().to_string();
        move |error: io::Error| format!("{what} {path}: {}", words(&error))
    };
    match wanted {
        // Where no type is said, what is missing is made, as container runtimes do.
        "" | "DirectoryOrCreate" if !path.exists() => fs::create_dir_all(&path).map_err(failed("mkdir"))?,
        "FileOrCreate" if !path.exists() => drop(fs::File::create(&path).map_err(failed("open"))?),
        _ => {}
    }
    if !fresh || wanted.is_empty() {
        return Ok(path);
    }
    type Fits = fn(&fs::FileType) -> bool;
    let (name, fits): (_, Fits) = match wanted {
        "Directory" | "DirectoryOrCreate" => ("directory", fs::FileType::is_dir),
        "File" | "FileOrCreate" => ("file", fs::FileType::is_file),
        "Socket" => ("socket file", FileTypeExt::is_socket),
        "CharDevice" => ("character device", FileTypeExt::is_char_device),
        "BlockDevice" => ("block device", FileTypeExt::is_block_device),
        other => return Err(format!("{other} is an invalid volume type")),
    };
    match fs::metadata(&path) {
        Ok(found) if fits(&found.file_type()) => Ok(path),
        _ => Err(format!("hostPath type check failed: {} is not a {name}", host.path)),
    }
}

/// Mounts memory at a path, with the permissions that it has from the beginning.
pub(crate) fn tmpfs(path: &Path, mode: u32, group: Option<u32>, size: Option<u64>) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let mount = |group: Option<u32>| {
        let mut options = format!("mode={mode:04o}");
        options.extend(group.map(|group| format!(",gid={group}")));
        options.extend(size.map(|size| format!(",size={size}")));
        let options = CString::new(options).unwrap_or_default();
        rustix::mount::mount("tmpfs", path, "tmpfs", flags, Some(options.as_c_str()))
    };
    match mount(group) {
        // A node with a single user has no groups to give.
        Err(Errno::INVAL) if group.is_some() => Ok(mount(None)?),
        mounted => Ok(mounted?),
    }
}

/// Whether something is mounted at a path.
pub(crate) fn is_mounted(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (fs::metadata(path), path.parent().map(fs::metadata)) {
        (Ok(own), Some(Ok(parent))) => own.dev() != parent.dev(),
        _ => false,
    }
}

/// Removes a pod's volumes. Blocks.
pub(crate) fn remove(places: &Places) -> io::Result<()> {
    for entry in fs::read_dir(&places.disk).into_iter().flatten().flatten() {
        if is_mounted(&entry.path()) {
            rustix::mount::unmount(entry.path(), UnmountFlags::DETACH)?;
        }
    }
    remove_all(&places.disk)?;
    remove_all(&places.memory)
}

impl Prepared {
    fn add(&mut self, volume: &Volume, path: PathBuf, read_only: bool) {
        self.volumes.insert(volume.name.clone(), path);
        if read_only {
            self.read_only.insert(volume.name.clone());
        }
        if let Some(host) = &volume.host_path {
            self.paths.insert(volume.name.clone(), host.clone());
        }
    }

    /// Takes what was brought about later; the rest stays as it was.
    pub fn update(&mut self, later: Self) {
        self.volumes.extend(later.volumes);
        self.read_only.extend(later.read_only);
        self.paths.extend(later.paths);
    }

    /// What a container mounts of them. A path of the machine that was removed since is made again. Blocks.
    pub fn mounts(&self, container: &Container, env: &[(String, String)]) -> Result<Vec<Mount>, ConfigError> {
        let value = |name: &str| env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let mut mounts = Vec::new();
        for wish in container.volume_mounts.iter().flatten() {
            let volume = self.volumes.get(&wish.name).ok_or_else(|| {
                ConfigError(format!(
                    "cannot find volume {:?} to mount into container {:?}",
                    wish.name, container.name
                ))
            })?;
            if let Some(host) = self.paths.get(&wish.name) {
                host_path(host, false).map_err(ConfigError)?;
            }
            let below = part_of(wish, &value)?;
            let read_only = wish.read_only == Some(true) || self.read_only.contains(&wish.name);
            let source = volume.clone();
            let what = if below.is_empty() {
                MountKind::Bind { source, read_only }
            } else {
                part::provide(volume, &below).map_err(|error| {
                    tracing::warn!(volume = wish.name, path = below, error, "no part of a volume");
                    // Why is the node's own affair: it would tell of what lies outside of the volume.
                    let (name, container) = (&wish.name, &container.name);
                    ConfigError(format!(
                        "failed to prepare subPath for volumeMount {name:?} of container {container:?}"
                    ))
                })?;
                MountKind::Part { source, below: below.into(), read_only }
            };
            mounts.push(Mount { destination: Path::new("/").join(&wish.mount_path), what });
        }
        Ok(mounts)
    }
}

/// The path below a volume that is mounted; empty for all of it.
fn part_of(wish: &VolumeMount, value: &dyn Fn(&str) -> Option<String>) -> Result<String, ConfigError> {
    let path = match wish.sub_path_expr.as_deref() {
        None | Some("") => wish.sub_path.clone().unwrap_or_default(),
        Some(text) => {
            let missing = RefCell::new(BTreeSet::new());
            let path = expand(text, &|name| {
                let value = value(name).filter(|value| !value.is_empty());
                if value.is_none() {
                    missing.borrow_mut().insert(name.to_owned());
                }
                value
            });
            let missing: Vec<String> = missing.into_inner().into_iter().collect();
            if !missing.is_empty() {
                return Err(ConfigError(format!("missing value for {}", missing.join(", "))));
            }
            path
        }
    };
    if path.starts_with('/') {
        return Err(ConfigError(format!("error SubPath `{path}` must not be an absolute path")));
    }
    if path.split('/').any(|step| step == "..") {
        return Err(ConfigError(format!("unable to provision SubPath `{path}`: must not contain '..'")));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use rustix::fs::inotify::ReadFlags;
    use serde_json::{Value, json};

    use super::*;
    use crate::storage::directory::tests::happens;

    #[test]
    fn a_part_whose_name_can_not_be_told_is_none() {
        let check = |mount: Value, expected: Result<&str, &str>| {
            let mount: VolumeMount = serde_json::from_value(mount).unwrap();
            let value = |name: &str| match name {
                "A" => Some("one".to_owned()),
                "EMPTY" => Some(String::new()),
                "UP" => Some("..".to_owned()),
                _ => None,
            };
            let found = part_of(&mount, &value).map_err(|ConfigError(error)| error);
            assert_eq!(found.as_deref().map_err(String::as_str), expected);
        };
        let expression = |text: &str| json!({"name": "v", "mountPath": "/v", "subPathExpr": text});
        check(json!({"name": "v", "mountPath": "/v"}), Ok(""));
        check(json!({"name": "v", "mountPath": "/v", "subPath": "$(A)"}), Ok("$(A)"));
        check(expression("by/$(A)"), Ok("by/one"));
        check(expression("$(NOPE)/$(EMPTY)/$(A)"), Err("missing value for EMPTY, NOPE"));
        check(expression("$(UP)/x"), Err("unable to provision SubPath `../x`: must not contain '..'"));
        check(expression("/$(A)"), Err("error SubPath `/one` must not be an absolute path"));
    }

    struct Machine(tempfile::TempDir);

    impl Machine {
        /// Prepares volumes while the config map `m` says this; those that failed, in the words of the event.
        fn prepare(&self, volumes: &Value, says: &str, token: Result<&str, &str>) -> (Prepared, Vec<String>) {
            self.prepare_for(true, volumes, says, token)
        }

        /// The same, before or after something of the pod has run.
        fn prepare_for(
            &self,
            fresh: bool,
            volumes: &Value,
            says: &str,
            token: Result<&str, &str>,
        ) -> (Prepared, Vec<String>) {
            let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [], "volumes": volumes}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let places = Places { disk: self.0.path().join("disk"), memory: self.0.path().join("memory") };
            let map = serde_json::from_value(json!({"data": {"a": says}})).unwrap();
            let sources = Sources { config_maps: [("m".to_owned(), map)].into(), ..Sources::default() };
            let wishes = payload::tokens(pod.spec.as_ref().unwrap().volumes.as_deref().unwrap());
            let token = || token.map(str::to_owned).map_err(str::to_owned);
            let tokens = wishes.into_iter().map(|wish| (wish, token())).collect();
            let (place, claimed) = (Place::default(), Claimed::new());
            let (prepared, failed) =
                prepare((&pod, fresh), &place, &places, (&sources, &claimed), &tokens, Timestamp::UNIX_EPOCH);
            (prepared, failed.iter().map(VolumeError::to_string).collect())
        }
    }

    #[test]
    fn a_volume_that_can_not_be_had_holds_up_no_other() {
        let machine = Machine(tempfile::tempdir().unwrap());
        let volumes = json!([
            {"name": "gone", "configMap": {"name": "gone"}},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
            {"name": "kind", "nfs": {"server": "s", "path": "/"}},
            {"name": "map", "configMap": {"name": "m"}},
        ]);
        let expected = [
            r#"MountVolume.SetUp failed for volume "gone" : configmap "gone" not found"#,
            r#"MountVolume.SetUp failed for volume "token" : failed to fetch token: no"#,
            r#"MountVolume.SetUp failed for volume "kind" : this node has no volumes of this kind"#,
        ];
        for says in ["1", "2"] {
            let (prepared, failed) = machine.prepare(&volumes, says, Err("failed to fetch token: no"));
            assert_eq!(failed, expected);
            assert_eq!(fs::read_to_string(prepared.volumes["map"].join("a")).unwrap(), says);
        }
        let (mut before, _) = machine.prepare(&volumes, "2", Ok("good"));
        before.update(machine.prepare(&volumes, "2", Err("failed to fetch token: no")).0);
        assert_eq!(before.volumes.keys().collect::<Vec<_>>(), ["map", "token"], "what was there stays");
        assert_eq!(fs::read_to_string(before.volumes["token"].join("token")).unwrap(), "good");
    }

    #[test]
    fn a_file_is_had_by_whatever_way_its_path_is_written() {
        let machine = Machine(tempfile::tempdir().unwrap());
        let items = json!([{"key": "a", "path": "./x//y"}, {"key": "a", "path": "./z"}]);
        let volumes = json!([{"name": "map", "configMap": {"name": "m", "items": items}}]);
        for says in ["1", "2"] {
            let (prepared, failed) = machine.prepare(&volumes, says, Ok(""));
            assert_eq!(failed, [""; 0]);
            for path in ["x/y", "z"] {
                assert_eq!(fs::read_to_string(prepared.volumes["map"].join(path)).unwrap(), says);
            }
        }
    }

    #[test]
    fn an_empty_directory_is_there_once_it_is_whole_and_is_then_left_alone() {
        let machine = Machine(tempfile::tempdir().unwrap());
        let disk = machine.0.path().join("disk");
        // What somebody was killed in.
        fs::create_dir_all(disk.join(".coming-empty/half")).unwrap();
        let prepare = || {
            let (_, failed) = machine.prepare(&json!([{"name": "empty", "emptyDir": {}}]), "", Ok(""));
            assert_eq!(failed, [""; 0]);
        };
        assert_eq!(happens(&disk, "empty", prepare), [ReadFlags::MOVED_TO]);
        let path = disk.join("empty");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(), fs::read_dir(&path).unwrap().count()), (0o777, 0));
        // The pod's doing.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        prepare();
        assert_eq!(mode(), 0o700);
    }

    #[test]
    fn a_path_of_the_machine_is_checked_before_the_pod_runs_and_not_again() {
        let machine = Machine(tempfile::tempdir().unwrap());
        let path = machine.0.path().join("socket");
        let volumes = json!([{"name": "socket", "hostPath": {"path": path, "type": "Socket"}}]);
        let wrong = format!(
            "MountVolume.SetUp failed for volume \"socket\" : hostPath type check failed: {} is not a socket file",
            path.display()
        );
        let (prepared, failed) = machine.prepare_for(true, &volumes, "", Ok(""));
        assert_eq!((prepared.volumes.len(), failed), (0, vec![wrong]));
        let (prepared, failed) = machine.prepare_for(false, &volumes, "", Ok(""));
        assert_eq!((&prepared.volumes["socket"], failed), (&path, Vec::new()));
        assert!(!path.exists(), "nothing is made in its place");
    }

    #[test]
    fn a_path_of_the_machine_that_was_removed_is_made_again_where_its_type_says_so() {
        let machine = Machine(tempfile::tempdir().unwrap());
        let at = |name: &str| machine.0.path().join("paths").join(name);
        let volume =
            |(name, kind): &(&str, &str)| json!({"name": name, "hostPath": {"path": at(name), "type": kind}});
        let mount = |(name, _): &(&str, &str)| json!({"name": name, "mountPath": format!("/{name}")});
        let kinds = [("any", ""), ("directory", "DirectoryOrCreate"), ("file", "FileOrCreate")];
        let volumes: Value = kinds.iter().map(volume).collect();
        let mounts: Value = kinds.iter().map(mount).collect();
        let container: Container =
            serde_json::from_value(json!({"name": "c", "volumeMounts": mounts})).unwrap();
        let (prepared, failed) = machine.prepare_for(true, &volumes, "", Ok(""));
        assert_eq!(failed, [""; 0]);
        let check = || {
            assert!(at("any").is_dir() && at("directory").is_dir() && at("file").is_file());
            fs::remove_dir_all(at("any")).unwrap();
            fs::remove_dir_all(at("directory")).unwrap();
            fs::remove_file(at("file")).unwrap();
        };
        check();
        // Before a container is started again.
        assert_eq!(prepared.mounts(&container, &[]).unwrap().len(), 3);
        check();
        // And by the next run of the node.
        assert_eq!(machine.prepare_for(false, &volumes, "", Ok("")).1, [""; 0]);
        check();
    }
}
