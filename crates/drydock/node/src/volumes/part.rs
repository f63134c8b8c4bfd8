//! Parts of volumes: paths below them, which pods may have made or may be changing.
//!
//! Everything is done through what was opened, and no path is followed out of the volume. Whoever mounts a part looks
//! again in the same way.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

const OUTSIDE: &str = "must stay below the volume";
const OPENED: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Sees to it that there is something at a path below a volume: a directory, open to the same as the volume is, where
/// nothing is.
pub(super) fn provide(volume: &Path, below: &str) -> Result<(), String> {
    let parts: Vec<Component<'_>> = Path::new(below).components().collect();
    if !parts.iter().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(OUTSIDE.to_owned());
    }
    let said = |error: Errno| match error {
        Errno::XDEV | Errno::LOOP => OUTSIDE.to_owned(),
        other => other.to_string(),
    };
    let top = rustix::fs::open(volume, OPENED, Mode::empty()).map_err(said)?;
    // With the bit by which what is made there gets the volume's group.
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&top).map_err(said)?.st_mode & 0o2777);
    let (mut at, mut path) = (top.try_clone().map_err(|error| error.to_string())?, PathBuf::new());
    for part in parts {
        path.push(part);
        at = match beneath(&top, &path) {
            Err(Errno::NOENT) => {
                match rustix::fs::mkdirat(&at, part.as_os_str(), mode) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(said(error)),
                }
                let made = beneath(&top, &path).map_err(said)?;
                // What a process may be kept from at a creation is given after it.
                rustix::fs::chmod(format!("/proc/self/fd/{}", made.as_raw_fd()), mode).map_err(said)?;
                made
            }
            found => found.map_err(said)?,
        };
    }
    Ok(())
}

fn beneath(top: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(top, path, OPENED, Mode::empty(), resolve)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_part_is_made_where_it_is_missing_and_never_outside() {
        let machine = tempfile::tempdir().unwrap();
        let volume = machine.path().join("volume");
        fs::create_dir_all(volume.join("there")).unwrap();
        fs::set_permissions(&volume, fs::Permissions::from_mode(0o2777)).unwrap();
        fs::write(volume.join("file"), "1").unwrap();
        symlink("there", volume.join("inside")).unwrap();
        symlink("/etc", volume.join("absolute")).unwrap();
        symlink("../", volume.join("up")).unwrap();
        symlink("loop", volume.join("loop")).unwrap();
        let check = |below: &str, expected: Result<(), &str>| {
            assert_eq!(
                provide(&volume, below).as_ref().map_err(String::as_str),
                expected.as_ref().map_err(|text| *text),
                "{below}"
            );
        };
        check("file", Ok(()));
        check("a/b", Ok(()));
        assert_eq!(fs::metadata(volume.join("a/b")).unwrap().permissions().mode() & 0o7777, 0o2777);
        check("inside/new", Ok(()));
        assert!(volume.join("there/new").is_dir());
        for out in ["absolute", "absolute/new", "up", "up/new", "../x", "/x", "a/../b", "loop"] {
            check(out, Err(OUTSIDE));
        }
        assert_eq!(fs::read_dir(machine.path()).unwrap().count(), 1);
    }
}
