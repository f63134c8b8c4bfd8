//! StatefulSets and the revisions they remember.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::meta::{Meta, is_zero, nullable};
use super::selector::LabelSelector;
use super::template::Template;

/// A StatefulSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StatefulSet {
    /// Metadata.
    pub metadata: Meta,
    /// What was asked for.
    pub spec: StatefulSetSpec,
    /// What is.
    #[serde(deserialize_with = "nullable")]
    pub status: StatefulSetStatus,
}

/// `spec` of a StatefulSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetSpec {
    /// How many pods.
    pub replicas: i32,
    /// Which pods are its own.
    pub selector: LabelSelector,
    /// What each pod is.
    pub template: Template,
    /// What each pod has of its own, as it was written.
    #[serde(deserialize_with = "nullable")]
    pub volume_claim_templates: Vec<ClaimTemplate>,
    /// The Service that its pods are found by.
    pub service_name: Box<str>,
    /// `OrderedReady` or `Parallel`.
    pub pod_management_policy: Box<str>,
    /// How one template is replaced by another.
    pub update_strategy: UpdateStrategy,
    /// How many old revisions are kept.
    pub revision_history_limit: Option<i32>,
    /// How long a pod must be ready to count.
    pub min_ready_seconds: i32,
    /// What becomes of claims.
    #[serde(deserialize_with = "nullable")]
    pub persistent_volume_claim_retention_policy: RetentionPolicy,
    /// How pods are counted.
    #[serde(deserialize_with = "nullable")]
    pub ordinals: Ordinals,
}

/// A claim that each pod gets.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimTemplate {
    /// Its name, labels and annotations.
    pub metadata: Meta,
    /// What is claimed.
    pub spec: Value,
}

/// `updateStrategy` of a StatefulSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpdateStrategy {
    /// `RollingUpdate` or `OnDelete`.
    pub r#type: Box<str>,
    /// How far it rolls.
    pub rolling_update: Option<Partition>,
}

/// How far a rolling update of a StatefulSet goes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Partition {
    /// Pods before this one stay as they are.
    pub partition: i32,
}

/// What becomes of the claims of a StatefulSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RetentionPolicy {
    /// When the set is deleted.
    pub when_deleted: Retention,
    /// When there are fewer pods.
    pub when_scaled: Retention,
}

/// What becomes of a claim that nobody needs any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Retention {
    /// It goes.
    Delete,
    /// It stays.
    #[default]
    #[serde(other)]
    Retain,
}

/// How the pods of a StatefulSet are counted.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Ordinals {
    /// The number of the first pod.
    pub start: i32,
}

impl StatefulSet {
    /// The number of the first pod.
    pub fn start(&self) -> i32 {
        self.spec.ordinals.start
    }

    /// The number after that of the last pod.
    pub fn end(&self) -> i32 {
        self.start().saturating_add(self.spec.replicas)
    }

    /// Whether there shall be a pod of this number.
    pub fn wants(&self, ordinal: i32) -> bool {
        (self.start()..self.end()).contains(&ordinal)
    }
}

/// `status` of a StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetStatus {
    /// The generation this status is about.
    #[serde(skip_serializing_if = "is_zero_generation")]
    pub observed_generation: i64,
    /// Pods there are.
    pub replicas: i32,
    /// Pods that are ready.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    /// Pods of the current revision.
    #[serde(skip_serializing_if = "is_zero")]
    pub current_replicas: i32,
    /// Pods of the revision that is rolled out.
    #[serde(skip_serializing_if = "is_zero")]
    pub updated_replicas: i32,
    /// The revision that was last rolled out completely.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub current_revision: Box<str>,
    /// The revision of the template.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub update_revision: Box<str>,
    /// How many hashes were found taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// Pods that are ready long enough.
    pub available_replicas: i32,
}

fn is_zero_generation(number: &i64) -> bool {
    *number == 0
}

/// A ControllerRevision: a template that was rolled out once.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Revision {
    /// Metadata.
    pub metadata: Meta,
    /// Its place in the history.
    pub revision: i64,
    /// The template, with the word by which it replaces another.
    #[serde(rename = "data", deserialize_with = "template_of")]
    pub template: Template,
}

fn template_of<'de, D: Deserializer<'de>>(input: D) -> Result<Template, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Data {
        spec: Spec,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Spec {
        template: Template,
    }
    // Another controller's revision may hold anything.
    let data = Value::deserialize(input)?;
    Ok(serde_json::from_value::<Data>(data).unwrap_or_default().spec.template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_holds_the_template_it_replaces_with() {
        let revision: Revision = serde_json::from_str(
            r#"{"metadata":{"name":"r"},"revision":3,"data":{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"a":"1"}}}}}}"#,
        )
        .unwrap();
        let template: Template = serde_json::from_str(r#"{"metadata":{"labels":{"a":"1"}}}"#).unwrap();
        assert_eq!((revision.revision, revision.template), (3, template));
        let foreign: Revision = serde_json::from_str(r#"{"metadata":{},"data":[1]}"#).unwrap();
        assert_eq!(foreign.revision, 0);
    }
}
