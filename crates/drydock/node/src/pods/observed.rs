//! What the node knows about one pod: the other input of every decision beside the pod itself.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use super::backoff::Backoff;

/// One pod on this machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Observed {
    /// When the node first saw it.
    pub seen: Option<Timestamp>,
    pub sandbox: Sandbox,
    /// The address of the last sandbox: a pod may be over before the API has shown it.
    pub address: Option<Ipv4Addr>,
    /// Why there is no sandbox, or no volume, yet.
    pub blocked: Option<Blocked>,
    pub volumes_ready: bool,
    /// By name; a container that is not here has not been looked at.
    pub containers: BTreeMap<String, Seen>,
    /// It has written more than it may; what to say about that.
    pub exceeded: Option<String>,
    /// It ends as a whole, and why.
    pub failed: Option<Failure>,
    /// When its containers began to be ended with it.
    pub ending: Option<Timestamp>,
    /// It is not in the API any more.
    pub absent: bool,
    /// Everything of it was removed from this machine.
    pub cleared: bool,
    /// The API was told to remove it; others may still hold it.
    pub released: bool,
    /// The node stops: its containers end within this many seconds, and nothing begins.
    pub halting: Option<i64>,
}

/// The pod's namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sandbox {
    #[default]
    None,
    Up(Ipv4Addr),
    /// Its init ended under it.
    Gone,
}

/// A step that failed and is tried again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Blocked {
    pub until: Timestamp,
    pub attempts: u32,
}

/// Why a pod as a whole ends before its containers do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub reason: &'static str,
    pub message: String,
    /// How long its containers have to end by themselves, where that is not as the pod says.
    pub grace: Option<i64>,
}

impl Failure {
    /// It took more than it may.
    pub const EVICTED: &str = "Evicted";
    /// Its node stopped.
    pub const SHUT_DOWN: &str = "Terminated";

    /// Whether the node ended what would have gone on: whoever counts failures may not count this one. One that took more
    /// than it may has only itself to blame.
    pub fn is_disruption(&self) -> bool {
        self.reason == Self::SHUT_DOWN
    }
}

/// One container.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    pub state: State,
    /// How it ended the time before.
    pub last: Option<Ended>,
    pub restarts: i32,
    pub image: ImageState,
    /// How often in a row it could not be had.
    pub pull_failures: u32,
    /// The image of the last start: as asked for, and what it was.
    pub asked: String,
    pub image_id: String,
    pub backoff: Backoff,
    /// Its startup probe succeeded, or it has none.
    pub started: bool,
    /// Its readiness probe succeeded, or it has none and is started.
    pub ready: bool,
    /// It is to be ended and started again, and why.
    pub unhealthy: Option<Unhealthy>,
    /// It is being stopped.
    pub stopping: bool,
    /// Starting it failed, and is tried again after this.
    pub retry: Option<Timestamp>,
    /// It was started in the sandbox that is there now.
    pub here: bool,
    /// The hook after its start is not done: it runs, and does not count as running.
    pub hooking: bool,
}

/// A container that a probe condemned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unhealthy {
    /// What the event says.
    pub message: String,
    /// How long it has to end by itself, where the probe says another time than the pod.
    pub grace: Option<i64>,
}

/// Where a container is.
#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) enum State {
    #[default]
    New,
    /// It can't start now.
    Waiting {
        reason: String,
        message: String,
    },
    Running {
        id: String,
        since: Timestamp,
    },
    Ended(Ended),
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ended {
    pub id: String,
    pub code: i32,
    pub signal: Option<i32>,
    pub reason: String,
    pub message: String,
    pub started: Timestamp,
    pub finished: Timestamp,
}

/// Whether a container's image is there.
#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) enum ImageState {
    #[default]
    Unknown,
    Pulling,
    Here,
    /// It can't be had now.
    Failed {
        reason: String,
        message: String,
        at: Timestamp,
    },
}

impl Seen {
    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    pub fn ended(&self) -> Option<&Ended> {
        match &self.state {
            State::Ended(ended) => Some(ended),
            // One that waits to be started again ended before.
            State::Waiting { .. } | State::New => self.last.as_ref(),
            State::Running { .. } => None,
        }
    }
}

impl Observed {
    pub fn of(&self, name: &str) -> Option<&Seen> {
        self.containers.get(name)
    }
}

/// When a container is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    Always,
    OnFailure,
    Never,
}

impl Restart {
    pub fn of(spec: &PodSpec) -> Self {
        match spec.restart_policy.as_deref() {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    /// Whether an end with this code is followed by a start.
    pub fn after(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// An init container that runs on beside the others.
pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// The containers that run one after the other before the others, as written.
pub(crate) fn init_containers(spec: &PodSpec) -> &[Container] {
    spec.init_containers.as_deref().unwrap_or_default()
}

/// The containers that somebody added to look into the pod, as containers: they have fewer fields and the same names.
pub(crate) fn ephemeral_containers(spec: &PodSpec) -> Vec<Container> {
    let written = spec.ephemeral_containers.iter().flatten();
    let read = |one| serde_json::to_value(one).and_then(serde_json::from_value);
    written.filter_map(|one| read(one).ok()).collect()
}

/// The pod as events and messages call it: `name_namespace(uid)`.
pub(crate) fn full_name(pod: &Pod) -> String {
    let meta = &pod.metadata;
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    format!("{}_{}({})", text(&meta.name), text(&meta.namespace), text(&meta.uid))
}
