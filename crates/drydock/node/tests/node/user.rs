//! Who runs the pods: root, and a plain user whom the machine knows nothing of.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A user that no machine has.
const PLAIN: u32 = 54_322;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    Root,
    Plain,
}

impl User {
    pub fn is_me() -> Self {
        if rustix::process::geteuid().is_root() { Self::Root } else { Self::Plain }
    }

    /// Those whom this process can be.
    pub fn all() -> Vec<Self> {
        match Self::is_me() {
            Self::Root => vec![Self::Root, Self::Plain],
            Self::Plain => {
                println!("not root: nothing is run as root here");
                vec![Self::Plain]
            }
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Plain => "a plain user",
        }
    }

    /// A directory of this user's alone, which stays: images are made once.
    pub fn home(self) -> PathBuf {
        let home = open_to_all().join(format!("node-tests-{self:?}").to_lowercase());
        fs::create_dir_all(&home).unwrap();
        if self != Self::is_me() {
            chown(&home, Some(PLAIN), Some(PLAIN)).unwrap();
        }
        home
    }

    /// This program as this user.
    pub fn command(self) -> Command {
        let mut command = Command::new(program());
        command.env("HOME", self.home()).current_dir(self.home());
        if self != Self::is_me() {
            command.uid(PLAIN).gid(PLAIN);
        }
        command
    }
}

fn is_open(path: &Path) -> bool {
    path.ancestors().all(|part| fs::metadata(part).is_ok_and(|found| found.mode() & 0o001 != 0))
}

/// A directory that every user can enter.
fn open_to_all() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if is_open(target) {
        return target.to_owned();
    }
    let other = std::env::temp_dir().join("drydock-tests");
    fs::create_dir_all(&other).unwrap();
    other
}

/// This program where every user can run it.
fn program() -> PathBuf {
    let built = std::env::current_exe().unwrap();
    if is_open(&built) {
        return built;
    }
    let copy = open_to_all().join(format!("node-tests-{}", std::process::id()));
    if !copy.exists() {
        fs::copy(built, &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    }
    copy
}
