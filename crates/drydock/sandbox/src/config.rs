//! What callers say about pods and containers: plain values, written to state files as they are.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::identity::{Capabilities, User};

/// A pod to be made: what its containers share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PodConfig {
    /// Unique on this host and usable as a file name: letters, digits, `-`, `_`, `.`; at most 64.
    pub id: String,
    /// The pod's own host name.
    pub hostname: String,
    /// The text of `/etc/resolv.conf`; none leaves the tree's own.
    pub resolv_conf: Option<String>,
    /// The text of `/etc/hosts`; none gives loopback and the pod's own name.
    pub hosts: Option<String>,
    /// Limits of the pod as a whole.
    pub limits: Limits,
    /// The node's own network and address instead of ones of the pod's own.
    #[serde(default)]
    pub host_network: bool,
    /// One PID namespace for all containers, with the pod's init as PID 1, instead of one each.
    pub share_process_namespace: bool,
    /// What the caller wants to find again when it adopts the pod; not looked at here.
    #[serde(default)]
    pub note: String,
}

impl PodConfig {
    /// A pod with nothing but its name.
    pub fn named(id: impl Into<String>) -> Self {
        let id = id.into();
        Self {
            hostname: id.clone(),
            id,
            resolv_conf: None,
            hosts: None,
            limits: Limits::default(),
            host_network: false,
            share_process_namespace: false,
            note: String::new(),
        }
    }
}

/// How much a group of processes may use. Enforced where [`crate::Abilities`] says so, ignored elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory; beyond it the kernel ends a container as a whole, or its largest process where cgroups are of
    /// version 1.
    pub memory: Option<u64>,
    /// Thousandths of a core, as a ceiling.
    pub cpu_millis: Option<u64>,
    /// Thousandths of a core, as a share when cores are scarce.
    pub cpu_request_millis: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
}

/// A container to be started in a pod.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContainerConfig {
    /// Unique in the pod, also over restarts, and usable as a file name.
    pub id: String,
    /// The image's tree. Never written to.
    pub rootfs: PathBuf,
    /// The container sees its root read-only; mounts keep their own mode.
    pub read_only_root: bool,
    /// Beside `/proc`, `/sys`, `/dev` and the pod's own files below `/etc`; made in this order.
    pub mounts: Vec<Mount>,
    /// The program and its arguments.
    pub args: Vec<String>,
    /// The whole environment; `PATH` and `HOME` are added when missing.
    pub env: Vec<(String, String)>,
    /// Where the program starts; made when missing. Empty is `/`.
    pub cwd: String,
    /// Who runs it.
    pub user: User,
    /// What it may do when it runs as root.
    pub capabilities: Capabilities,
    /// No program gives it more than it has.
    pub no_new_privileges: bool,
    /// Nothing of `/proc` and `/sys` is hidden or read-only, and the machine's devices are there and in its mounts.
    pub privileged: bool,
    /// Limits of each process.
    pub rlimits: Vec<Rlimit>,
    /// Limits of all its processes together.
    pub limits: Limits,
    /// How readily the kernel ends it when memory is short; lowering needs a privilege, and is skipped without.
    pub oom_score_adj: Option<i32>,
    /// Where its output goes, in the CRI log format. None throws it away.
    pub log: Option<PathBuf>,
    /// A terminal of its own as standard input, output and error.
    pub tty: bool,
    /// Standard input stays open for those who attach; otherwise it is empty.
    pub stdin: bool,
    /// Standard input ends when the first who attached lets go.
    pub stdin_once: bool,
    /// A container of the pod that runs: its processes are in sight and in reach, and its end is this one's too.
    #[serde(default)]
    pub beside: Option<String>,
    /// What the caller wants to find again when it adopts the container; not looked at here.
    #[serde(default)]
    pub note: String,
}

impl ContainerConfig {
    /// A container that runs a program of a tree as root with what containers usually may do.
    pub fn new(id: impl Into<String>, rootfs: impl Into<PathBuf>, args: &[&str]) -> Self {
        Self {
            id: id.into(),
            rootfs: rootfs.into(),
            read_only_root: false,
            mounts: Vec::new(),
            args: args.iter().map(ToString::to_string).collect(),
            env: Vec::new(),
            cwd: String::new(),
            user: User::default(),
            capabilities: Capabilities::default(),
            no_new_privileges: false,
            privileged: false,
            rlimits: Vec::new(),
            limits: Limits::default(),
            oom_score_adj: None,
            log: None,
            tty: false,
            stdin: false,
            stdin_once: false,
            beside: None,
            note: String::new(),
        }
    }
}

/// Something mounted into a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mount {
    /// Where, as the container sees it; made when missing.
    pub destination: PathBuf,
    /// What.
    pub what: MountKind,
}

/// What can be mounted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum MountKind {
    /// A file or directory of the node, with what is mounted below it.
    Bind {
        /// Its path on the node.
        source: PathBuf,
        /// The container can't write to it.
        read_only: bool,
    },
    /// A part of a directory of the node, whose links are somebody else's: a path that leads out of it is refused.
    Part {
        /// The directory's path on the node.
        source: PathBuf,
        /// The path below it.
        below: PathBuf,
        /// The container can't write to it.
        read_only: bool,
    },
}

/// A limit of one process, by the kernel's name without the prefix: `nofile`, `core`, `memlock`, …
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rlimit {
    /// Which.
    pub name: String,
    /// What holds; none is unlimited.
    pub soft: Option<u64>,
    /// Up to where the process may raise it; none is unlimited.
    pub hard: Option<u64>,
}

/// A further program in a running container.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ExecConfig {
    /// The program and its arguments.
    pub args: Vec<String>,
    /// Added to the container's environment.
    pub env: Vec<(String, String)>,
    /// Where it starts; none is where the container does.
    pub cwd: Option<String>,
    /// Who runs it; none is who runs the container.
    pub user: Option<User>,
    /// A terminal of its own.
    pub tty: bool,
    /// Standard input comes from the caller; otherwise it is empty.
    pub stdin: bool,
}

/// How a container or a program in it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// What it returned; 128 and the signal's number when a signal ended it.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The kernel ended a process of it for its memory limit.
    pub oom_killed: bool,
    /// When it started.
    pub started: Timestamp,
    /// When it ended.
    pub finished: Timestamp,
}

/// What a container uses now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that can't be given back under pressure.
    pub memory: u64,
    /// Processor time since its start, in nanoseconds.
    pub cpu_nanos: u64,
}

/// The addresses of a host's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cidr {
    /// The first address.
    pub base: Ipv4Addr,
    /// How many leading bits are common.
    pub prefix: u8,
}

impl Cidr {
    /// The address at a distance from the first.
    pub fn nth(&self, n: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.base).wrapping_add(n))
    }

    /// How many addresses there are, the first and the last included.
    pub fn size(&self) -> u32 {
        1u32.checked_shl(32u32.saturating_sub(u32::from(self.prefix))).unwrap_or(u32::MAX)
    }
}

impl std::str::FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text}: want four numbers, a slash and a length, as in 10.244.0.0/16");
        let (base, prefix) = text.split_once('/').ok_or_else(bad)?;
        let base: Ipv4Addr = base.parse().map_err(|_| bad())?;
        let prefix: u8 = prefix.parse().map_err(|_| bad())?;
        if !(8..=29).contains(&prefix) {
            return Err(format!("{text}: the length must be between 8 and 29"));
        }
        let mask = u32::MAX << (32 - u32::from(prefix));
        Ok(Self { base: Ipv4Addr::from(u32::from(base) & mask), prefix })
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}
