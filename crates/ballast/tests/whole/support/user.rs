//! Who runs `ballast`: root where this process is, and a plain user that the machine does not know.

#[path = "../../../../drydock/sandbox/tests/pods/anyone.rs"]
mod anyone;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::{Cluster, Process, ballast, program, said, table};

/// A user that no machine has.
pub const PLAIN: u32 = 54_321;

/// The image of this program, as `ballast manifests` and the examples name it.
pub const THIS: &str = concat!("ballast:", env!("CARGO_PKG_VERSION"));

/// Who runs `ballast`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    Root,
    Plain,
}

impl User {
    pub fn is_me() -> Self {
        if fs::metadata("/proc/self").unwrap().uid() == 0 { User::Root } else { User::Plain }
    }

    /// Those whom this process can be.
    pub fn all() -> Vec<Self> {
        match Self::is_me() {
            User::Root => vec![User::Root, User::Plain],
            User::Plain => {
                eprintln!("not root: nothing is done as root here");
                vec![User::Plain]
            }
        }
    }

    /// A directory of this user's alone, which stays: images are made once.
    pub fn home(self) -> PathBuf {
        let home = anyone::directory().join(format!("node-walk-{self:?}").to_lowercase());
        fs::create_dir_all(&home).unwrap();
        if self != Self::is_me() {
            chown(&home, Some(PLAIN), Some(PLAIN)).unwrap();
        }
        home
    }

    /// `ballast` as this user.
    pub fn ballast(self) -> Command {
        let usual = ballast();
        let mut command = Command::new(if self == Self::is_me() {
            usual.get_program().into()
        } else {
            anyone::program(program())
        });
        for (name, value) in usual.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let home = self.home();
        command
            .env("HOME", &home)
            .env_remove("XDG_DATA_HOME")
            .env_remove("XDG_CACHE_HOME")
            .current_dir(&home);
        if self != Self::is_me() {
            command.uid(PLAIN).gid(PLAIN);
        }
        command
    }

    /// Makes images: that may take longer than any test waits.
    pub fn pull(self, images: &[&str]) {
        for image in images {
            said(self.ballast().args(["image", "pull", image]), "").ok();
        }
    }

    /// Makes the image of this very build. Those of earlier builds are of no use to anybody.
    pub fn pull_this(self) {
        self.pull(&[THIS]);
        let listed = said(self.ballast().args(["image", "ls"]), "").ok();
        for row in table(&listed).iter().filter(|row| row[0] == "<none>") {
            said(self.ballast().args(["image", "rm", &row[1]]), "");
        }
    }

    /// A directory of this user's that goes.
    pub fn directory(self) -> TempDir {
        let directory = tempfile::tempdir_in(self.home()).unwrap();
        if self != Self::is_me() {
            chown(directory.path(), Some(PLAIN), Some(PLAIN)).unwrap();
        }
        directory
    }

    /// A cluster of this user's.
    pub fn up(self, flags: &[&str]) -> Cluster {
        self.up_with(flags, |_| {})
    }

    /// A cluster of this user's, started a little differently.
    pub fn up_with(self, flags: &[&str], differently: impl FnOnce(&mut Command)) -> Cluster {
        let directory = self.directory();
        let kubeconfig = directory.path().join("kubeconfig");
        let mut command = self.ballast();
        command.args(["up", "--listen", "127.0.0.1:0"]).args(flags).arg("--kubeconfig").arg(&kubeconfig);
        differently(&mut command);
        let up = Process::start(command);
        assert_eq!(up.line(), format!("ready: export KUBECONFIG={}", kubeconfig.display()));
        Cluster { up, kubeconfig, directory }
    }
}
