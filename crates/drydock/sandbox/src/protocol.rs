//! Who says what: the node to the keeper and the inits, the inits to the node, a starting program to its init.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::cgroup::Group;
use crate::config::{ContainerConfig, ExecConfig, Exit};
use crate::error::StartError;

/// Asked of the keeper.
#[derive(Serialize, Deserialize)]
pub(crate) enum KeeperRequest {
    /// A new pod; its init answers.
    Pod(Box<PodSetup>),
    /// End every pod, then yourself.
    Shutdown,
}

/// What an init needs to set its pod up.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct PodSetup {
    pub id: String,
    pub hostname: String,
    pub directory: PathBuf,
    /// Where the memory that its containers share is to be mounted.
    pub shm: PathBuf,
    /// None is the node's own network.
    pub network: Option<PodNetwork>,
    pub share_process_namespace: bool,
}

/// A network of a pod's own.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct PodNetwork {
    pub link: String,
    pub bridge: u32,
    pub address: Ipv4Addr,
    pub prefix: u8,
    pub gateway: Ipv4Addr,
}

/// The init's word that the pod is there, or why not.
#[derive(Serialize, Deserialize)]
pub(crate) enum PodAnswer {
    Up,
    Failed { step: String, errno: i32 },
}

/// Asked of an init.
#[derive(Serialize, Deserialize)]
pub(crate) enum InitRequest {
    /// Answered by [`Started`].
    Start(Box<ContainerSetup>),
    /// Answered by an [`Exit`] when there is one.
    Wait { id: String },
    /// Answered by [`Done`].
    Signal { id: String, signal: i32 },
    /// To a program beside a container, by its number outside; SIGKILL to all of its process group. Answered by
    /// [`Done`].
    SignalExec { pid: i32, signal: i32 },
    /// With standard input, output and error, unless there is a terminal. Answered by [`Started`], then [`Exit`].
    Exec { id: String, config: Box<ExecConfig> },
    /// A TCP socket of the pod's network namespace. Answered by [`Done`] with the socket.
    Socket,
    /// Answered by [`Done`] with where the rest will be and the way in, if there is one and it is wanted, or it is a
    /// terminal; then what the container writes: see [`crate::attach`].
    Attach { id: String, stdin: bool },
    /// Answered by [`Done`].
    ReopenLog { id: String },
    /// Forget a container that has ended, or is only being started. Answered by [`Done`].
    Forget { id: String },
}

/// A container as its init needs it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ContainerSetup {
    pub config: ContainerConfig,
    pub directory: PathBuf,
    /// The pod's `/etc` files that exist: name and path.
    pub etc: Vec<(String, PathBuf)>,
    /// The pod's `/dev/shm`.
    pub shm: PathBuf,
    pub group: Group,
    pub overlay: bool,
    /// The node is in a user namespace: overlay keeps its marks in attributes that a user may write.
    pub user_namespace: bool,
    /// The node has one user only: a container's user is made by a user namespace of its own.
    pub one_user: bool,
    /// A limit of processes that no cgroup holds.
    pub pids_without_cgroup: Option<u64>,
}

impl ContainerSetup {
    /// Whether the container gets a user namespace of its own.
    pub fn nested_user(&self) -> bool {
        let user = &self.config.user;
        self.one_user && (user.uid != 0 || user.gid != 0 || self.pids_without_cgroup.is_some())
    }
}

/// A program runs, with its terminal when it has one; or why it does not.
#[derive(Serialize, Deserialize)]
pub(crate) enum Started {
    Yes {
        pid: i32,
        started: Timestamp,
    },
    No(StartError),
    /// There is no such container, or it does not run.
    Absent,
}

/// Something was done, or why not.
#[derive(Serialize, Deserialize)]
pub(crate) enum Done {
    Yes,
    Absent,
    Failed(String),
}

/// How a container ended, or that there is none.
#[derive(Serialize, Deserialize)]
pub(crate) enum Ended {
    Exit(Exit),
    Absent,
}

/// What a program says before it runs. The end of the stream means that it does.
#[derive(Serialize, Deserialize)]
pub(crate) enum Birth {
    /// Its number outside the pod.
    Pid(i32),
    /// Beside it: the terminal.
    Terminal,
    Failed(StartError),
}
