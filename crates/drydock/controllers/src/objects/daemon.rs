//! DaemonSets.

use serde::{Deserialize, Serialize};

use super::condition::Condition;
use super::meta::{Meta, is_zero, nullable};
use super::selector::LabelSelector;
use super::template::Template;
use super::workload::Strategy;

/// The label that says of which template a pod, or a revision, is.
pub const REVISION: &str = "controller-revision-hash";

/// A DaemonSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DaemonSet {
    /// Metadata.
    pub metadata: Meta,
    /// What was asked for.
    pub spec: DaemonSetSpec,
    /// What is.
    #[serde(deserialize_with = "nullable")]
    pub status: DaemonSetStatus,
}

/// `spec` of a DaemonSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetSpec {
    /// Which pods are its own.
    pub selector: LabelSelector,
    /// What each pod is.
    pub template: Template,
    /// How one template is replaced by another: `RollingUpdate` or `OnDelete`.
    pub update_strategy: Strategy,
    /// How long a pod must be ready to count.
    pub min_ready_seconds: i32,
    /// How many old templates are kept.
    pub revision_history_limit: Option<i32>,
}

impl DaemonSet {
    /// The hash of the template, which its pods have as a label.
    pub fn hash(&self) -> String {
        self.spec.template.hash(self.status.collision_count)
    }
}

/// `status` of a DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetStatus {
    /// Nodes that have a pod and should.
    pub current_number_scheduled: i32,
    /// Nodes that have a pod and should not.
    pub number_misscheduled: i32,
    /// Nodes that should have a pod.
    pub desired_number_scheduled: i32,
    /// Nodes whose pod is ready.
    pub number_ready: i32,
    /// The generation this status is about.
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// Nodes whose pod is of the current template.
    #[serde(skip_serializing_if = "is_zero")]
    pub updated_number_scheduled: i32,
    /// Nodes whose pod has been ready for long enough.
    #[serde(skip_serializing_if = "is_zero")]
    pub number_available: i32,
    /// Nodes that should have such a pod and have none.
    #[serde(skip_serializing_if = "is_zero")]
    pub number_unavailable: i32,
    /// How many hashes were found taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// Conditions; they are somebody else's.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
}
