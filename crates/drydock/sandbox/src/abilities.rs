//! What this machine lets the node do. Everything else is the same everywhere.

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};

use crate::cgroup::{Cgroups, Controller};
use crate::enter::Users;
use crate::removal::remove_all;
use crate::rootfs::overlay_options;

/// Whether something can be done here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ability {
    /// It can.
    Yes,
    /// It can't, and why.
    No(String),
}

impl Ability {
    /// Whether it can.
    pub fn is_yes(&self) -> bool {
        *self == Self::Yes
    }
}

/// What this machine grants.
#[derive(Clone, Debug)]
pub struct Abilities {
    /// Running as the machine's root, so that pods can be reached from it.
    pub root: bool,
    /// Whose numbers containers can have. With one user only, a container's user is that one under another
    /// number, further groups are ignored, and a program that changes its user after its start fails.
    pub users: Users,
    /// Trees are layered; otherwise each container's start copies its tree.
    pub overlay: Ability,
    /// Limits of memory hold.
    pub memory_limits: Ability,
    /// Limits of processor time hold.
    pub cpu_limits: Ability,
    /// Limits of processes hold. Where no cgroup does it, a node with one user counts processes by container;
    /// a node with several can't.
    pub pid_limits: Ability,
}

impl Abilities {
    pub(crate) fn find(state: &Path, root: bool, users: Users, cgroups: &Result<Cgroups, String>) -> Self {
        let limits = |controller: Controller, name: &str| match cgroups {
            Ok(cgroups) if cgroups.limits(controller) => Ability::Yes,
            Ok(_) => Ability::No(format!("the cgroup controller {name} is not granted")),
            Err(why) => Ability::No(why.clone()),
        };
        let pid_limits = match (limits(Controller::Pids, "pids"), users) {
            (Ability::No(_), Users::One) => Ability::Yes,
            (other, _) => other,
        };
        Self {
            root,
            users,
            overlay: match try_overlay(state, !root) {
                Ok(()) => Ability::Yes,
                Err(error) => Ability::No(format!("overlay file systems: {error}")),
            },
            memory_limits: limits(Controller::Memory, "memory"),
            cpu_limits: limits(Controller::Cpu, "cpu"),
            pid_limits,
        }
    }
}

/// Layers one directory above another and writes to it, where containers will be.
fn try_overlay(state: &Path, user_namespace: bool) -> io::Result<()> {
    let probe = state.join("probe");
    remove_all(&probe)?;
    for name in ["lower", "upper", "work", "root"] {
        fs::create_dir_all(probe.join(name))?;
    }
    let options =
        overlay_options(&probe.join("lower"), &probe.join("upper"), &probe.join("work"), user_namespace)?;
    let root = probe.join("root");
    let mounted = rustix::mount::mount("overlay", &root, "overlay", MountFlags::empty(), options.as_c_str());
    let written = match mounted {
        Ok(()) => {
            let written = fs::write(root.join("file"), "x");
            rustix::mount::unmount(&root, UnmountFlags::DETACH)?;
            written
        }
        Err(error) => Err(error.into()),
    };
    remove_all(&probe)?;
    written
}
