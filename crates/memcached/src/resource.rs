//! What people write and read. The doc comments become `kubectl explain`.

use ballast_operator::{
    Conditioned,
    image::{self, MAX_REPOSITORY, MAX_TAG, TAG},
    resources::Resources,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::{CustomResource, KubeSchema};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::validate::{
    IMAGE_NOT_A_REPOSITORY, MAX_NAME, MAX_SIZE, NAME_MESSAGE, SIZE_TOO_LARGE, SIZE_TOO_SMALL,
    VERSION_MISSING, VERSION_NOT_A_TAG,
};

/// What is wanted of a set of memcached nodes.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "cache.example.com",
    version = "v1alpha1",
    kind = "Memcached",
    plural = "memcacheds",
    singular = "memcached",
    shortname = "mc",
    category = "ballast",
    namespaced,
    doc = "A set of memcached nodes of one version, with a Service under which clients find them.",
    status = "MemcachedStatus",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size", description = "How many nodes are wanted"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#,
        description = "Whether every node is of the wanted version and answers"
    ),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version", description = "The version wanted"),
    printcolumn(
        name = "Running",
        type_ = "string",
        json_path = ".status.version",
        description = "The version that the nodes say they run",
        priority = 1
    ),
    printcolumn(
        name = "Nodes",
        type_ = "integer",
        json_path = ".status.readyReplicas",
        description = "How many nodes answer",
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
    validation = Rule::new(name_rule()).message(NAME_MESSAGE),
    attr = r#"x_kube(crates(kube_core = "::kube_core"))"#,
    crates(kube = "::kube_derive", kube_core = "::kube_core")
)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[x_kube(
    validation = Rule::new("has(self.version) && self.version != ''")
        .message(VERSION_MISSING)
        .reason(Reason::FieldValueRequired)
        .field_path(".version")
)]
#[serde(rename_all = "camelCase")]
pub struct MemcachedSpec {
    /// How many nodes there should be. `kubectl scale` sets it too.
    #[x_kube(validation = Rule::new("self > 0").message(SIZE_TOO_SMALL))]
    #[x_kube(validation = Rule::new(format!("self <= {MAX_SIZE}")).message(SIZE_TOO_LARGE.as_str()))]
    pub size: i32,

    /// The version of memcached to run: the tag of its image, such as `1.6.38`. It must be specified.
    /// A change of it replaces the nodes one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "version_schema")]
    pub version: Option<String>,

    /// The image to run, without a tag: `memcached`, or a mirror such as `registry.example.com:5000/library/memcached`.
    /// Defaults to `memcached`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "image_schema")]
    pub image: Option<String>,

    /// What each node may use of cpu, memory and ephemeral-storage; a request is at most its limit. Where nothing is
    /// said, a node asks for 100m of CPU and 96Mi of memory, and may use 128Mi of memory: 64 MB of them hold the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "resources_schema")]
    pub resources: Option<Resources>,
}

/// What is known of a set of memcached nodes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct MemcachedStatus {
    /// The names of the memcached pods.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub nodes: Vec<String>,

    /// The servers that answer, as a client lists them: `10.1.2.3:11211`.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub servers: Vec<String>,

    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// How many nodes there are.
    #[serde(default)]
    pub replicas: i32,

    /// How many nodes answered when they were asked for their version.
    #[serde(default)]
    pub ready_replicas: i32,

    /// The label selector of the pods, for whoever scales by a metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,

    /// The version that the nodes say they run; two during an upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// How the nodes fare, in coarse numbers that are renewed every five minutes at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics: Option<Statistics>,

    /// The nodes that take connections and say nothing. One that stays so is replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub silent: Vec<SilentServer>,

    /// What is known: `Ready` (every node is of the wanted version and answers), `Progressing` (a change is on its way),
    /// `Degraded` (something is wrong that will not pass by itself).
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

impl Conditioned for MemcachedStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }
}

/// How all nodes together fare since they were started.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct Statistics {
    /// When they were asked.
    pub as_of: Time,
    /// How many of a hundred reads found something. Absent while there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit_ratio: Option<String>,
    /// How many entries had to go before their time to make room, in two digits.
    pub evictions: i64,
    /// How much they hold.
    pub memory_used: String,
    /// How much they may hold.
    pub memory_limit: String,
}

/// A node that takes connections and says nothing.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct SilentServer {
    /// Its pod.
    pub pod: String,
    /// Since when.
    pub since: Time,
}

fn name_rule() -> String {
    format!(
        "size(self.metadata.name) <= {MAX_NAME} && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')"
    )
}

/// Not `required`, and no default: an absent version gets the message that a person can read.
fn version_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": MAX_TAG,
        "x-kubernetes-validations": [{
            "rule": format!("self == '' || self.matches('^{TAG}$')"),
            "message": VERSION_NOT_A_TAG,
        }],
    })
}

fn image_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": MAX_REPOSITORY,
        "x-kubernetes-validations": [{
            "rule": format!("self.matches('^{}$')", image::repository()),
            "message": IMAGE_NOT_A_REPOSITORY,
        }],
    })
}

fn resources_schema(_: &mut SchemaGenerator) -> Schema {
    // A JSON object, so it is a schema.
    Schema::try_from(Resources::schema()).unwrap_or_default()
}
