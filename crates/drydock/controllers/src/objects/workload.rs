//! Deployments, ReplicaSets and disruption budgets.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::condition::Condition;
use super::meta::{Meta, is_zero, nullable};
use super::selector::LabelSelector;
use super::template::Template;

/// A number, or a share of another number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrPercent {
    /// A number.
    Int(i32),
    /// `25%`.
    Percent(Box<str>),
}

impl IntOrPercent {
    /// The number it means, given the whole. What can't be read is nothing.
    pub fn of(&self, whole: i32, round_up: bool) -> i32 {
        match self {
            Self::Int(number) => *number,
            Self::Percent(text) => {
                let share: i64 = text.strip_suffix('%').and_then(|number| number.parse().ok()).unwrap_or(0);
                let scaled = share * i64::from(whole);
                let rounded = if round_up { (scaled + 99).div_euclid(100) } else { scaled.div_euclid(100) };
                i32::try_from(rounded).unwrap_or(i32::MAX)
            }
        }
    }
}

fn one() -> i32 {
    1
}

/// A Deployment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Deployment {
    /// Metadata.
    pub metadata: Meta,
    /// What was asked for.
    pub spec: DeploymentSpec,
    /// What is.
    #[serde(deserialize_with = "nullable")]
    pub status: DeploymentStatus,
}

/// `spec` of a Deployment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentSpec {
    /// How many pods.
    #[serde(default = "one")]
    pub replicas: i32,
    /// Which ReplicaSets are its own.
    pub selector: LabelSelector,
    /// What each pod is.
    pub template: Template,
    /// How one template is replaced by another.
    pub strategy: Strategy,
    /// How long a pod must be ready to count.
    pub min_ready_seconds: i32,
    /// How many old ReplicaSets are kept.
    pub revision_history_limit: Option<i32>,
    /// Whether roll-outs are held.
    pub paused: bool,
    /// How long without progress is a failure.
    pub progress_deadline_seconds: Option<i32>,
}

/// `strategy` of a Deployment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Strategy {
    /// `RollingUpdate` or `Recreate`.
    pub r#type: Box<str>,
    /// The bounds of a rolling update.
    #[serde(deserialize_with = "nullable")]
    pub rolling_update: RollingUpdate,
}

/// The bounds of a rolling update.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdate {
    /// How many pods beyond the wanted number.
    pub max_surge: Option<IntOrPercent>,
    /// How many pods short of the wanted number.
    pub max_unavailable: Option<IntOrPercent>,
}

/// `status` of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStatus {
    /// The generation this status is about.
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// Pods there are.
    #[serde(skip_serializing_if = "is_zero")]
    pub replicas: i32,
    /// Pods of the current template.
    #[serde(skip_serializing_if = "is_zero")]
    pub updated_replicas: i32,
    /// Pods that are ready.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    /// Pods that are ready long enough.
    #[serde(skip_serializing_if = "is_zero")]
    pub available_replicas: i32,
    /// Pods that are missing.
    #[serde(skip_serializing_if = "is_zero")]
    pub unavailable_replicas: i32,
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    /// How many hashes were found taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
}

/// A ReplicaSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReplicaSet {
    /// Metadata.
    pub metadata: Meta,
    /// What was asked for.
    pub spec: ReplicaSetSpec,
    /// What is.
    #[serde(deserialize_with = "nullable")]
    pub status: ReplicaSetStatus,
}

/// `spec` of a ReplicaSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetSpec {
    /// How many pods.
    #[serde(default = "one")]
    pub replicas: i32,
    /// How long a pod must be ready to count.
    pub min_ready_seconds: i32,
    /// Which pods are its own.
    pub selector: LabelSelector,
    /// What each pod is.
    pub template: Template,
}

/// `status` of a ReplicaSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetStatus {
    /// Pods there are.
    pub replicas: i32,
    /// Pods that carry all labels of the template.
    #[serde(skip_serializing_if = "is_zero")]
    pub fully_labeled_replicas: i32,
    /// Pods that are ready.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    /// Pods that are ready long enough.
    #[serde(skip_serializing_if = "is_zero")]
    pub available_replicas: i32,
    /// The generation this status is about.
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// Metadata.
    pub metadata: Meta,
    /// What was asked for.
    pub spec: BudgetSpec,
    /// What is.
    #[serde(deserialize_with = "nullable")]
    pub status: BudgetStatus,
}

/// `spec` of a PodDisruptionBudget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetSpec {
    /// How many must stay.
    pub min_available: Option<IntOrPercent>,
    /// How many may go.
    pub max_unavailable: Option<IntOrPercent>,
    /// Of which pods; of none when it is left out.
    pub selector: Option<LabelSelector>,
}

/// `status` of a PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatus {
    /// The generation this status is about.
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// Pods whose eviction was granted and that are not gone yet.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "nullable")]
    pub disrupted_pods: BTreeMap<Box<str>, Timestamp>,
    /// How many may go now.
    pub disruptions_allowed: i32,
    /// How many are healthy.
    pub current_healthy: i32,
    /// How many must be healthy.
    pub desired_healthy: i32,
    /// How many there should be.
    pub expected_pods: i32,
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub conditions: Vec<BudgetCondition>,
}

/// A condition in the later form, where reason and message are always said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetCondition {
    /// What it is about.
    pub r#type: Box<str>,
    /// `True`, `False` or `Unknown`.
    pub status: Box<str>,
    /// The generation it is about.
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// When its status changed.
    pub last_transition_time: Option<Timestamp>,
    /// Why, in one word.
    pub reason: Box<str>,
    /// Why, in a sentence.
    pub message: Box<str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_the_way_that_was_asked() {
        let share = |text: &str| IntOrPercent::Percent(text.into());
        assert_eq!(share("25%").of(3, true), 1);
        assert_eq!(share("25%").of(3, false), 0);
        assert_eq!(share("25%").of(10, true), 3);
        assert_eq!(share("25%").of(10, false), 2);
        assert_eq!(share("100%").of(7, false), 7);
        assert_eq!(share("nonsense").of(7, true), 0);
        assert_eq!(IntOrPercent::Int(4).of(1, true), 4);
    }
}
