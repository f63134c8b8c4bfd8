//! Places that every user can enter: a test that is run as somebody else may stand in a checkout that they can't.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

fn is_open(path: &Path) -> bool {
    path.ancestors().all(|part| fs::metadata(part).is_ok_and(|found| found.mode() & 0o001 != 0))
}

/// A directory that every user can enter.
pub fn directory() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if is_open(target) {
        return target.to_owned();
    }
    let other = std::env::temp_dir().join(concat!(env!("CARGO_PKG_NAME"), "-tests"));
    fs::create_dir_all(&other).unwrap();
    other
}

/// A program where every user can run it.
pub fn program(built: PathBuf) -> PathBuf {
    if is_open(&built) {
        return built;
    }
    let copy = directory().join(format!("program-{}", std::process::id()));
    if !copy.exists() {
        fs::copy(built, &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    }
    copy
}
