//! Who runs the pods: root, and a plain user whom the machine knows nothing of.

#[path = "../../../sandbox/tests/pods/anyone.rs"]
mod anyone;

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
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
        let home = anyone::directory().join(format!("node-tests-{self:?}").to_lowercase());
        fs::create_dir_all(&home).unwrap();
        if self != Self::is_me() {
            chown(&home, Some(PLAIN), Some(PLAIN)).unwrap();
        }
        home
    }

    /// This program as this user.
    pub fn command(self) -> Command {
        let mut command = Command::new(anyone::program(std::env::current_exe().unwrap()));
        command.env("HOME", self.home()).current_dir(self.home());
        if self != Self::is_me() {
            command.uid(PLAIN).gid(PLAIN);
        }
        command
    }
}
