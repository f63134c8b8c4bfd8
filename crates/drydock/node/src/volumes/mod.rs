//! The volumes of a pod: where their files are on the node, and how they come there.
//!
//! Secrets and tokens are in memory, in one file system that is mounted in the node's own mount namespace, so that
//! they are gone with it. Claims are the node's and stay. Everything else of a pod is in its directory.

pub(crate) mod atomic;
pub(crate) mod claims;
mod part;
pub(crate) mod payload;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use drydock_sandbox::{Mount, MountKind};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, HostPathVolumeSource, Pod, Volume};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::container::ConfigError;
use crate::container::environment::Sources;
use crate::container::expand::expand;
use crate::container::fields::Place;
use crate::quantity;
use claims::{Claimed, Opened};
use payload::TokenWish;

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
}

/// Brings the volumes of a pod about, or up to date. Blocks.
pub(crate) fn prepare(
    pod: &Pod,
    place: &Place,
    places: &Places,
    (sources, claimed): (&Sources, &Claimed),
    tokens: &BTreeMap<TokenWish, String>,
    now: Timestamp,
) -> Result<Prepared, VolumeError> {
    let mut prepared = Prepared::default();
    let spec = pod.spec.as_ref();
    let group = spec
        .and_then(|spec| spec.security_context.as_ref()?.fs_group)
        .and_then(|group| u32::try_from(group).ok());
    for volume in spec.and_then(|spec| spec.volumes.as_deref()).unwrap_or_default() {
        let failed = |why: String| VolumeError { volume: volume.name.clone(), why };
        if let Some(Opened { path, read_only }) = claimed.get(&volume.name) {
            prepared.volumes.insert(volume.name.clone(), path.clone());
            if *read_only {
                prepared.read_only.insert(volume.name.clone());
            }
            continue;
        }
        let files = payload::of(volume, pod, place, sources, tokens).map_err(failed)?;
        let path = match files {
            Some(files) => {
                let root = if payload::is_private(volume) { &places.memory } else { &places.disk };
                let path = root.join(&volume.name);
                // Only config maps are on disk in Kubernetes; memory has the sticky bit.
                let mode = if volume.config_map.is_some() { 0o777 } else { 0o1777 };
                atomic::write(&path, &files, mode, group, now).map_err(|error| failed(error.to_string()))?;
                prepared.read_only.insert(volume.name.clone());
                path
            }
            None => other(volume, places, group).map_err(failed)?,
        };
        prepared.volumes.insert(volume.name.clone(), path);
    }
    Ok(prepared)
}

fn other(volume: &Volume, places: &Places, group: Option<u32>) -> Result<PathBuf, String> {
    let words = |error: io::Error| error.to_string();
    if let Some(empty) = &volume.empty_dir {
        let path = places.disk.join(&volume.name);
        let memory = empty.medium.as_deref() == Some("Memory");
        // Memory is gone with the node that mounted it.
        if path.is_dir() && (!memory || is_mounted(&path)) {
            return Ok(path);
        }
        fs::create_dir_all(&path).map_err(words)?;
        if memory {
            let size = empty.size_limit.as_ref().and_then(quantity::units).filter(|size| *size > 0);
            tmpfs(&path, size).map_err(words)?;
        }
        let mode = if memory { 0o1777 } else { 0o777 } | if group.is_some() { 0o2000 } else { 0 };
        atomic::own(&path, None, group);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(words)?;
        return Ok(path);
    }
    if let Some(host) = &volume.host_path {
        return host_path(host);
    }
    Err("this node has no volumes of this kind".to_owned())
}

/// A path of the machine, checked as its type says.
fn host_path(host: &HostPathVolumeSource) -> Result<PathBuf, String> {
    let path = PathBuf::from(&host.path);
    let wanted = host.type_.as_deref().unwrap_or_default();
    let words = |error: io::Error| error.to_string();
    if wanted == "DirectoryOrCreate" && !path.exists() {
        fs::create_dir_all(&path).map_err(words)?;
    } else if wanted == "FileOrCreate" && !path.exists() {
        fs::File::create(&path).map_err(words)?;
    }
    type Fits = fn(&fs::FileType) -> bool;
    let (name, fits): (_, Fits) = match wanted {
        "Directory" | "DirectoryOrCreate" => ("directory", fs::FileType::is_dir),
        "File" | "FileOrCreate" => ("file", fs::FileType::is_file),
        "Socket" => ("socket file", FileTypeExt::is_socket),
        "CharDevice" => ("character device", FileTypeExt::is_char_device),
        "BlockDevice" => ("block device", FileTypeExt::is_block_device),
        "" => {
            // Where no type is said, what is missing is made, as container runtimes do.
            if !path.exists() {
                fs::create_dir_all(&path).map_err(words)?;
            }
            return Ok(path);
        }
        other => return Err(format!("{other} is an invalid volume type")),
    };
    match fs::metadata(&path) {
        Ok(found) if fits(&found.file_type()) => Ok(path),
        _ => Err(format!("hostPath type check failed: {} is not a {name}", host.path)),
    }
}

/// Mounts memory at a path.
pub(crate) fn tmpfs(path: &Path, size: Option<u64>) -> io::Result<()> {
    let options = match size {
        Some(size) => format!("mode=0755,size={size}"),
        None => "mode=0755".to_owned(),
    };
    let options = std::ffi::CString::new(options).unwrap_or_default();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(rustix::mount::mount("tmpfs", path, "tmpfs", flags, Some(options.as_c_str()))?)
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
    atomic::remove(&places.disk)?;
    atomic::remove(&places.memory)
}

impl Prepared {
    /// What a container mounts of them.
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
            let below = match (&wish.sub_path_expr, &wish.sub_path) {
                (Some(text), _) if !text.is_empty() => expand(text, &value),
                (_, Some(text)) => text.clone(),
                _ => String::new(),
            };
            let read_only = wish.read_only == Some(true) || self.read_only.contains(&wish.name);
            let source = volume.clone();
            let what = if below.is_empty() {
                MountKind::Bind { source, read_only }
            } else {
                part::provide(volume, &below).map_err(|why| {
                    ConfigError(format!("failed to prepare subPath for volumeMount: {below:?} {why}"))
                })?;
                MountKind::Part { source, below: below.into(), read_only }
            };
            mounts.push(Mount { destination: Path::new("/").join(&wish.mount_path), what });
        }
        Ok(mounts)
    }
}
