//! Nodes, as far as the scheduler and those who listen for them look at them, and their Leases.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use super::meta::{Meta, nullable};
use super::placement::Amounts;

/// A node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Metadata.
    pub metadata: Meta,
    /// What was asked for.
    pub spec: NodeSpec,
    /// What is.
    pub status: NodeStatus,
}

/// `spec` of a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Whether it takes no new pods.
    pub unschedulable: bool,
    /// What keeps pods away that do not tolerate it.
    #[serde(deserialize_with = "nullable")]
    pub taints: Vec<Taint>,
}

/// A taint.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// What it is about.
    pub key: Box<str>,
    /// Its value.
    pub value: Box<str>,
    /// What it does to a pod.
    pub effect: Effect,
}

/// What a taint does to a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// It is not put there.
    NoSchedule,
    /// It is better put elsewhere.
    PreferNoSchedule,
    /// It is not put there, and what runs there goes.
    NoExecute,
    /// In a toleration: any of them.
    #[default]
    #[serde(other)]
    Any,
}

/// `status` of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// What pods can have of it.
    pub allocatable: Amounts,
    /// Its condition `Ready`.
    #[serde(rename = "conditions", deserialize_with = "ready")]
    pub ready: Ready,
}

/// The condition `Ready` of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Whether it is true.
    pub state: Readiness,
    /// When the node said so last, by its own clock.
    pub heartbeat: Option<Timestamp>,
}

/// Whether a node is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// It says it is.
    Ready,
    /// It says it is not, or nothing yet.
    #[default]
    NotReady,
    /// It has not been heard of for long.
    Unreachable,
}

fn ready<'de, D: Deserializer<'de>>(input: D) -> Result<Ready, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Condition {
        r#type: Box<str>,
        status: Box<str>,
        last_heartbeat_time: Option<Timestamp>,
    }
    let conditions = Option::<Vec<Condition>>::deserialize(input)?.unwrap_or_default();
    let Some(own) = conditions.iter().find(|one| &*one.r#type == "Ready") else {
        return Ok(Ready::default());
    };
    let state = match &*own.status {
        "True" => Readiness::Ready,
        "Unknown" => Readiness::Unreachable,
        _ => Readiness::NotReady,
    };
    Ok(Ready { state, heartbeat: own.last_heartbeat_time })
}

/// A Lease: the word of somebody who lives.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Lease {
    /// Metadata.
    pub metadata: Meta,
    /// What is said.
    pub spec: LeaseSpec,
}

/// `spec` of a Lease.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    /// When it was renewed, by the clock of who holds it.
    pub renew_time: Option<Timestamp>,
}

impl Node {
    /// Whether a pod that could not be put there before could be now, or the other way round: anything but
    /// a heartbeat.
    pub fn differs(&self, other: &Node) -> bool {
        self.metadata.labels != other.metadata.labels
            || self.spec != other.spec
            || self.status.allocatable != other.status.allocatable
            || self.status.ready.state != other.status.ready.state
            || self.metadata.uid != other.metadata.uid
    }

    /// Its taints, and those that its condition amounts to: they are not written of a node without a Lease, and of
    /// one that has it a moment later.
    pub fn taints(&self) -> impl Iterator<Item = Taint> + '_ {
        let implied = match self.status.ready.state {
            Readiness::Ready => None,
            Readiness::NotReady => Some("node.kubernetes.io/not-ready"),
            Readiness::Unreachable => Some("node.kubernetes.io/unreachable"),
        };
        let implied =
            implied.map(|key| Taint { key: key.into(), value: "".into(), effect: Effect::NoSchedule });
        self.spec.taints.iter().cloned().chain(implied)
    }
}
