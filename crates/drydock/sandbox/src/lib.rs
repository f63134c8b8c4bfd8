//! Pods as real processes of this machine.
//!
//! Plain values in, processes out: this crate knows nothing of Kubernetes' API. A [`Host`] is a node's machine;
//! it makes [`Pod`]s, which are namespaces with an address and an init, in which [`Container`]s are started from
//! trees of files.
//!
//! ```text
//! node ── enter() ─▶ its own network and mount namespace (and user namespace, without root)
//!   │ keeper.sock
//! keeper              one thread; forks an init for each pod; holds the namespaces while no node runs
//!   │ fork
//! init                PID 1 of the pod; starts containers, writes logs and exit codes, serves init.sock
//!   │ fork, exec
//! container           PID 1 of its own PID namespace, or one of the pod's when they share
//! ```
//!
//! Keeper and inits stay in the node's own mount namespace and run nothing of a tree's; the only programs of a
//! tree that run are the containers'. So a tree needs no program of ours, and no library for one.
//!
//! # Guarantees
//!
//! - Pods don't depend on the process that made them. With [`Options::outlive`] they run on when it ends, and the
//!   next one finds them with their logs and exit codes; without, they end with it, however it ended,
//!   and what was made for them goes too.
//! - Pods don't depend on the keeper either. One that is killed is followed by another while the node lives.
//! - Nothing is left behind: after [`Pod::stop`] no process, mount, namespace, link, cgroup or file of the pod;
//!   after [`Host::close`] none of the host. What a crash leaves, the next [`Host::open`] ends and removes, and
//!   only that: processes are known by number, start time and boot.
//! - A container never writes to its tree, and sees nothing of the machine's files but what is mounted into it.
//!
//! # Conditions
//!
//! Linux 5.11 or newer. Root, or a machine that grants user namespaces. What else differs between machines is in
//! [`Abilities`]: limits need cgroups, of either version, granted to the user; layered trees need overlay file
//! systems, in user namespaces too; more than one user needs root or `newuidmap` with a range in `/etc/subuid`.
//! A privilege that a node lacks for lowering a process' out-of-memory score is done without.
//!
//! # What it does not do
//!
//! It translates no addresses and filters no packets: a pod reaches other pods, the node and, as root, the machine.
//! It does not limit disks or networks, and installs no filter of system calls.

mod abilities;
mod attach;
mod birth;
mod cgroup;
mod config;
mod container;
mod enter;
mod error;
mod host;
mod identity;
mod init;
mod keeper;
mod keeping;
mod log;
mod netlink;
mod network;
mod pod;
mod process;
mod protocol;
mod removal;
mod rootfs;
mod spawn;
mod state;
mod supervised;
mod sweep;
mod wire;

pub use abilities::{Abilities, Ability};
pub use config::{
    Cidr, ContainerConfig, ExecConfig, Exit, Limits, Mount, MountKind, PodConfig, Rlimit, Usage,
};
pub use container::{Attached, Container, Exec, Piece, Reader, Streams, Terminal};
pub use enter::{EnterError, Entered, Entry, Users, enter, hook};
pub use error::{Error, StartError, words};
pub use host::{Host, Network, Options};
pub use identity::{Capabilities, User};
pub use pod::Pod;
pub use process::Process;
pub use removal::remove_all;
