//! Nodes, as far as the scheduler looks at them.

use serde::{Deserialize, Deserializer};

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// What pods can have of it.
    pub allocatable: Amounts,
    /// Whether its condition `Ready` is true.
    #[serde(rename = "conditions", deserialize_with = "readiness")]
    pub readiness: Readiness,
}

/// The condition `Ready` of a node.
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

fn readiness<'de, D: Deserializer<'de>>(input: D) -> Result<Readiness, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Condition {
        r#type: Box<str>,
        status: Box<str>,
    }
    let conditions = Option::<Vec<Condition>>::deserialize(input)?.unwrap_or_default();
    let status = conditions.iter().find(|one| &*one.r#type == "Ready").map(|one| &*one.status);
    Ok(match status {
        Some("True") => Readiness::Ready,
        Some("Unknown") => Readiness::Unreachable,
        _ => Readiness::NotReady,
    })
}

impl Node {
    /// Whether a pod that could not be put there before could be now, or the other way round: anything but
    /// a heartbeat.
    pub fn differs(&self, other: &Node) -> bool {
        self.metadata.labels != other.metadata.labels
            || self.spec != other.spec
            || self.status != other.status
            || self.metadata.uid != other.metadata.uid
    }

    /// Its taints, and those that its condition amounts to: Kubernetes has a controller that writes them.
    pub fn taints(&self) -> impl Iterator<Item = Taint> + '_ {
        let implied = match self.status.readiness {
            Readiness::Ready => None,
            Readiness::NotReady => Some("node.kubernetes.io/not-ready"),
            Readiness::Unreachable => Some("node.kubernetes.io/unreachable"),
        };
        let implied =
            implied.map(|key| Taint { key: key.into(), value: "".into(), effect: Effect::NoSchedule });
        self.spec.taints.iter().cloned().chain(implied)
    }
}
