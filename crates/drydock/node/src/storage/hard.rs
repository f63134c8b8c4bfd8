//! Volumes of a hard size: full when they hold what they say, as a disk of that size would be.
//!
//! A directory has no size, and what gives it one (quotas, loop devices) is root's. So such a volume is a file system
//! in memory with a size, mounted in the node's own mount namespace, where every user may have one. It outlives pods,
//! and with the namespace also the node and the API server, however they end. When the node is told to stop, what it
//! holds is written to disk, and read back by the next mount.
//!
//! ```text
//! .pvc-UID/saved/       all of it, as long as it is on disk
//! .pvc-UID/loaded/      what it held when it was last brought into memory: what is there is newer
//! .pvc-UID/saving/      half of the next `saved`
//! ```
//!
//! **What always holds.** Where `saved` is, that is the volume, and no pod has it: whatever is mounted as well is half of
//! it, of a load that was cut short, or the same once more, of a save that was. Where `saved` is not, what is mounted is
//! the volume. So it goes from one to the other in a single rename of `saved`: away after the last file was read, there
//! after the last was written, and on disk before a pod has it. Whoever is killed anywhere else has changed nothing, and
//! the next begins anew. One at a time does this to a volume, and nobody once the node has begun to save.
//!
//! Where there is neither, memory was lost with the machine or with whoever held the namespace: the volume is not mounted
//! again, empty or old, as if nothing had been; its pods are told.
//!
//! **What is kept.** Directories, files with their holes, links of both kinds, owners, permissions, and times but those of
//! symbolic links. Sockets and pipes are nothing without the programs that made them, and devices can't be opened there.
//! Extended attributes are not kept, nor what is one: access control lists, and capabilities of files.

use std::ffi::CString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use drydock_sandbox::remove_all;
use rustix::mount::{MountFlags, UnmountFlags};

use super::copy::copy;
use super::directory::{self, Place, Root};
use crate::volumes::is_mounted;

/// What whoever claims one is told.
pub(crate) const CAVEAT: &str = "A volume of a hard size is in the node's memory: it outlives pods, a crash of the node, \
                                 and a stop, which saves it; it does not outlive the machine";

const FLAGS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

fn saved(place: &Place) -> PathBuf {
    place.aside.join("saved")
}

fn loaded(place: &Place) -> PathBuf {
    place.aside.join("loaded")
}

/// Whether a volume is of a hard size.
pub(crate) fn is_hard(place: &Place) -> bool {
    place.aside.is_dir()
}

/// Makes one, empty.
pub(crate) fn make(place: &Place) -> io::Result<()> {
    if !is_hard(place) {
        directory::make(&place.data)?;
        directory::whole(&place.aside, |half| {
            let saved = half.join("saved");
            fs::create_dir(&saved)?;
            fs::set_permissions(saved, fs::Permissions::from_mode(0o777))
        })?;
    }
    sync_parent(&place.aside)
}

/// Where a volume is.
enum Where {
    Disk,
    Memory,
    /// It was in memory.
    Gone,
}

fn find(place: &Place) -> Where {
    if saved(place).is_dir() {
        Where::Disk
    } else if is_mounted(&place.data) {
        Where::Memory
    } else {
        Where::Gone
    }
}

/// Mounts one that is not, with what it holds.
pub(crate) fn mount(root: &Root, place: &Place, bytes: u64) -> Result<(), String> {
    root.alone(place, || {
        let there = match find(place) {
            // What came into memory now would be lost.
            _ if root.is_closed() => return Err("the node is stopping".to_owned()),
            Where::Memory => Ok(()),
            Where::Disk => load(place, bytes),
            Where::Gone => {
                return Err(format!(
                    "what it held was in the node's memory, and is gone with whoever kept it; what was last saved is in \
                     {:?}; delete the claim to begin anew",
                    loaded(place)
                ));
            }
        };
        // Whoever moved `saved` away may have been killed before that was on disk.
        there.and_then(|()| sync_parent(&loaded(place))).map_err(|error| error.to_string())
    })
}

/// Reads from disk what one holds.
fn load(place: &Place, bytes: u64) -> io::Result<()> {
    unmount(place)?;
    rustix::mount::mount("tmpfs", &place.data, "tmpfs", FLAGS, Some(options(bytes).as_c_str()))?;
    let (saved, loaded) = (saved(place), loaded(place));
    let filled = copy(&saved, &place.data).and_then(|()| {
        remove_all(&loaded)?;
        // From here on what is in memory is it.
        fs::rename(&saved, &loaded)
    });
    if filled.is_err() {
        unmount(place)?;
    }
    filled
}

/// Makes one larger, mounted or not.
pub(crate) fn grow(root: &Root, place: &Place, bytes: u64) -> io::Result<()> {
    root.alone(place, || match is_mounted(&place.data) {
        true => Ok(rustix::mount::mount_remount(&place.data, FLAGS, format!("size={bytes}"))?),
        false => Ok(()),
    })
}

/// Takes away what is mounted, for good.
pub(crate) fn unmount(place: &Place) -> io::Result<()> {
    match is_mounted(&place.data) {
        true => Ok(rustix::mount::unmount(&place.data, UnmountFlags::DETACH)?),
        false => Ok(()),
    }
}

fn options(bytes: u64) -> CString {
    CString::new(format!("mode=0777,size={bytes}")).unwrap_or_default()
}

/// Writes to disk what one holds, and unmounts it. Nobody must use it any more.
pub(crate) fn save(root: &Root, place: &Place) -> io::Result<()> {
    root.alone(place, || {
        match find(place) {
            Where::Memory => write(place)?,
            // That was done before.
            Where::Disk => {}
            Where::Gone => return Ok(()),
        }
        unmount(place)?;
        remove_all(&loaded(place))
    })
}

fn write(place: &Place) -> io::Result<()> {
    let half = place.aside.join("saving");
    remove_all(&half)?;
    DirBuilder::new().mode(0o700).create(&half)?;
    copy(&place.data, &half)?;
    rustix::fs::syncfs(File::open(&half)?)?;
    // From here on what is on disk is it.
    fs::rename(&half, saved(place))?;
    sync_parent(&half)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::directory::Root;

    #[test]
    fn nothing_comes_into_memory_once_the_node_has_begun_to_save() {
        let machine = tempfile::tempdir().unwrap();
        let root = Root::below(machine.path());
        root.prepare().unwrap();
        let place = root.place("pvc-1").unwrap();
        make(&place).unwrap();
        assert!(!crate::storage::close(&root));
        assert_eq!(mount(&root, &place, 1 << 20).unwrap_err(), "the node is stopping");
        assert!(saved(&place).is_dir() && !is_mounted(&place.data));
    }

    #[test]
    fn what_was_in_memory_and_is_gone_is_not_mounted_as_if_nothing_had_been() {
        let machine = tempfile::tempdir().unwrap();
        let root = Root::below(machine.path());
        root.prepare().unwrap();
        let place = root.place("pvc-1").unwrap();
        make(&place).unwrap();
        make(&place).unwrap();
        assert!(is_hard(&place) && saved(&place).is_dir());
        fs::rename(saved(&place), loaded(&place)).unwrap();
        let why = mount(&root, &place, 1 << 20).unwrap_err();
        assert!(why.starts_with("what it held was in the node's memory, and is gone"), "{why}");
        assert!(root.with_aside().contains(&place));
        root.remove(&place).unwrap();
        assert!(!is_hard(&place));
    }
}
