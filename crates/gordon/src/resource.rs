//! What people write and read. The doc comments become `kubectl explain`.
#![expect(clippy::duplicated_attributes, reason = "each printed column has its own type and priority")]

use std::borrow::Cow;

use ballast_operator::{Conditioned, image};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::validate::{
    IMAGE_NOT_ONE, MAX_IMAGE, MAX_NAME, MAX_REPLICAS, NAME_MESSAGE, REPLICAS_NEGATIVE, REPLICAS_TOO_MANY,
};

/// What is wanted of a Gordon.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "operator.prgcont.cz",
    version = "v1",
    kind = "Gordon",
    plural = "gordons",
    singular = "gordon",
    shortname = "gn",
    category = "ballast",
    namespaced,
    schema = "manual",
    status = "GordonStatus",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.gordon.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Replicas",
        type_ = "integer",
        json_path = ".spec.gordon.replicas",
        description = "How many pods are wanted"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#,
        description = "Whether all of them are ready"
    ),
    printcolumn(
        name = "Pods",
        type_ = "integer",
        json_path = ".status.readyReplicas",
        description = "How many pods are ready",
        priority = 1
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#,
        description = "Why it is ready or not",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    crates(kube = "::kube_derive", kube_core = "::kube_core")
)]
#[x_kube(crates(kube_core = "::kube_core"))]
pub struct GordonSpec {
    /// The pods.
    pub gordon: GordonPods,
}

/// Which pods are wanted.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct GordonPods {
    /// How many pods there should be. `kubectl scale` sets it too.
    #[x_kube(validation = Rule::new("self >= 0").message(REPLICAS_NEGATIVE))]
    #[x_kube(validation = Rule::new(format!("self <= {MAX_REPLICAS}")).message(REPLICAS_TOO_MANY.as_str()))]
    pub replicas: i32,

    /// The image to run, with its tag. Defaults to `prgcont/gordon:v1.0`. A change of it replaces the pods one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "image_schema")]
    pub image: Option<String>,
}

/// What is known of a Gordon.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct GordonStatus {
    /// The names of the pods.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pods: Vec<String>,

    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// How many pods there are.
    #[serde(default)]
    pub replicas: i32,

    /// How many pods are ready.
    #[serde(default)]
    pub ready_replicas: i32,

    /// The label selector of the pods, for whoever scales by a metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,

    /// What is known: `Ready` (as many pods as wanted are ready, and of the wanted image), `Progressing` (a change is
    /// on its way), `Degraded` (something is wrong that will not pass by itself).
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

impl Conditioned for GordonStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }
}

/// What another program that looks after this Gordon remembers of it. Ballast neither reads nor writes it.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The names of the pods that it made.
    #[serde(default)]
    pub pods: Vec<String>,
    /// How many pods it made.
    #[serde(default)]
    pub replicas: i32,
}

/// By hand, because `state` stands beside `spec` and `status`.
impl JsonSchema for Gordon {
    fn schema_name() -> Cow<'static, str> {
        "Gordon".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "As many pods of a web server as are wanted, kept at that number.",
            "required": ["spec"],
            "properties": {
                "spec": generator.subschema_for::<GordonSpec>(),
                "state": generator.subschema_for::<State>(),
                "status": generator.subschema_for::<GordonStatus>(),
            },
            "x-kubernetes-validations": [{
                "rule": format!(
                    "size(self.metadata.name) <= {MAX_NAME} && \
                     self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')"
                ),
                "message": *NAME_MESSAGE,
            }],
        })
    }
}

fn image_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": MAX_IMAGE,
        "x-kubernetes-validations": [{
            "rule": format!("self.matches('^{}(:[A-Za-z0-9_][A-Za-z0-9._-]{{0,{}}})?$')", image::repository(), image::MAX_TAG - 1),
            "message": IMAGE_NOT_ONE,
        }],
    })
}
