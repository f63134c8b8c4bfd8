//! `MySQL`: one server with its volume, its credentials and its backups.

use std::collections::BTreeMap;

use ballast_operator::{Conditioned, resources::Resources};
use k8s_openapi::{
    api::core::v1::{Affinity, Toleration},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;
use crate::{
    flavour::Flavour,
    validate::{
        CLASS_FIXED, DATABASE_FIXED, FLAVOUR_FIXED, NAME_MESSAGE, ONE_SCRIPT, ONE_SOURCE, RESTORE_FIXED,
        SCRIPT_FIXED, USER_FIXED,
    },
};

/// What is wanted of a MySQL.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "operators.example.com",
    version = "v1alpha1",
    kind = "MySQL",
    plural = "mysqls",
    singular = "mysql",
    shortname = "mysql",
    category = "ballast",
    namespaced,
    doc = "A MySQL or MariaDB server with a database and a user in it, its volume and its backups.",
    status = "MySQLStatus",
    derive = "PartialEq",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#,
        description = "Whether the server answered a query and is as asked for"
    ),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.version",
        description = "The version that runs"
    ),
    printcolumn(
        name = "Storage",
        type_ = "string",
        json_path = ".spec.storageSize",
        description = "The size of the volume that is asked for"
    ),
    printcolumn(
        name = "Last backup",
        type_ = "date",
        json_path = ".status.lastBackup",
        description = "When the last complete backup was made"
    ),
    printcolumn(
        name = "Flavour",
        type_ = "string",
        json_path = ".status.flavour",
        description = "Which of the two servers runs",
        priority = 1
    ),
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        description = "Where in its life it is",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new(schema::name_rule()).message(NAME_MESSAGE),
    attr = r#"x_kube(crates(kube_core = "::kube_core"))"#,
    crates(kube = "::kube_derive", kube_core = "::kube_core")
)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[x_kube(validation = Rule::new("self.databaseName == oldSelf.databaseName").message(DATABASE_FIXED).field_path(".databaseName"))]
#[x_kube(validation = Rule::new("self.databaseUser == oldSelf.databaseUser").message(USER_FIXED).field_path(".databaseUser"))]
#[x_kube(validation = Rule::new(schema::fixed("flavour")).message(FLAVOUR_FIXED))]
#[x_kube(validation = Rule::new(schema::fixed("storageClassName")).message(CLASS_FIXED))]
#[x_kube(validation = Rule::new(schema::fixed("initScript")).message(SCRIPT_FIXED))]
#[x_kube(validation = Rule::new(schema::fixed("restoreFrom")).message(RESTORE_FIXED))]
#[serde(rename_all = "camelCase")]
pub struct MySQLSpec {
    /// The database that is there from the beginning: up to 64 characters, spaces, backquotes and
    /// umlauts included, and no `'`, `"` or `\`. It can't be changed.
    #[schemars(schema_with = "schema::database_name")]
    pub database_name: String,

    /// The user to whom that database belongs: up to 32 characters. The password is in the Secret `mysql-secret-NAME`,
    /// key `password`. It can't be changed.
    #[schemars(schema_with = "schema::database_user")]
    pub database_user: String,

    /// The size of the volume that the data is on, such as `10Gi`. It can grow where the storage class allows it, and
    /// never shrinks.
    #[serde(default = "usual_size")]
    #[schemars(schema_with = "schema::storage_size")]
    pub storage_size: String,

    /// When backups are made: five fields as a CronJob has them, such as `0 2 * * *`, or a word like `@daily`. In UTC.
    /// Without it backups are made only when asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::schedule")]
    pub backup_schedule: Option<String>,

    /// The version to run, of two or three numbers, such as `8.0`, `8.4.3` or `11.8`. From 10 to 25 it is MariaDB,
    /// otherwise MySQL, unless `flavour` says something else. A newer one is an upgrade, which begins with a backup; an older one,
    /// or one that is too far ahead, is not carried out, and a condition says what to do instead.
    #[serde(default = "usual_version")]
    #[schemars(schema_with = "schema::version")]
    pub mysql_version: String,

    /// Which server: MySQL or MariaDB. Follows from `mysqlVersion` where it is absent. It can't be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional::<Flavour>")]
    pub flavour: Option<Flavour>,

    /// The image to run, without a tag: `mysql`, `mariadb`, or a mirror such as `registry.example.com/library/mysql`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::image")]
    pub image: Option<String>,

    /// The storage class of the data's volume; the cluster's default where it is absent. It can't be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub storage_class_name: Option<String>,

    /// What configures the database once it first serves: run exactly once, as the root user. It can't be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_script: Option<InitScript>,

    /// What the instance begins with instead of an empty database. It is verified before it is used and after it was
    /// loaded. It can't be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_from: Option<RestoreFrom>,

    /// Where backups are kept, and for how long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<Backups>,

    /// What becomes of the data when this resource is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,

    /// How long the last backup may take where `deletionPolicy` is Snapshot. When it is over, the resource stays, and a
    /// condition says why.
    #[serde(default = "usual_deadline")]
    #[schemars(range(min = 60, max = 604_800))]
    pub final_backup_deadline_seconds: i64,

    /// What the server may use of cpu, memory and ephemeral-storage; a request is at most its limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<Resources>,

    /// The labels of the machines that the pods may run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,

    /// The taints of machines that the pods put up with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,

    /// Where the pods would rather run, or must.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// The priority class of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub priority_class_name: Option<String>,

    /// While true nothing is changed; what runs goes on, scheduled backups and their records too. Deletion is carried out all the same.
    #[serde(default)]
    pub paused: bool,
}

pub(crate) fn usual_size() -> String {
    "10Gi".to_owned()
}

fn usual_version() -> String {
    "8.0".to_owned()
}

fn usual_deadline() -> i64 {
    3600
}

/// A script of SQL statements: one of the two.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[x_kube(validation = Rule::new("has(self.inline) != has(self.configMap)").message(ONE_SCRIPT))]
#[serde(rename_all = "camelCase")]
pub struct InitScript {
    /// The statements themselves. Whoever may read this resource reads them too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 262_144))]
    pub inline: Option<String>,
    /// Where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapScript>,
}

/// A script in a ConfigMap.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapScript {
    /// The ConfigMap, in the same namespace.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
    /// The key in it.
    #[serde(default = "usual_key")]
    #[schemars(schema_with = "schema::config_key")]
    pub key: String,
}

fn usual_key() -> String {
    "init.sql".to_owned()
}

/// What an instance begins with: one of the two.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[x_kube(validation = Rule::new("has(self.backup) != has(self.volume)").message(ONE_SOURCE))]
#[serde(rename_all = "camelCase")]
pub struct RestoreFrom {
    /// A MySQLBackup in the same namespace, which is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub backup: Option<String>,
    /// A file on a volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeFile>,
}

/// A backup's file on a volume. Its manifest must be beside it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct VolumeFile {
    /// The claim of the volume, in the same namespace.
    #[schemars(schema_with = "schema::object_name")]
    pub claim_name: String,
    /// The path on the volume: `backup-20300101-020000.sql.zst`.
    #[schemars(schema_with = "schema::file")]
    pub file: String,
    /// The SHA-256 of the file, where it is known: 64 digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::sha256")]
    pub sha256: Option<String>,
}

/// Where backups are kept, and for how long.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct Backups {
    /// The size of the volume for backups; that of the data where it is absent. It never shrinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::backup_size")]
    pub storage_size: Option<String>,
    /// The storage class of that volume; the cluster's default where it is absent. It matters when the volume is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub storage_class_name: Option<String>,
    /// Which backups are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
}

/// Which backups are kept. The last complete one always is, and one that is being restored from, and those that
/// people asked for, by a MySQLBackup of their own or by a Job from the CronJob.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    /// The newest so many.
    #[serde(default = "usual_count")]
    #[schemars(range(min = 1, max = 1000))]
    pub count: i32,
    /// And of those, the ones that are younger than this: `36h`, `30d`, `8w`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::age")]
    pub age: Option<String>,
}

pub(crate) fn usual_count() -> i32 {
    7
}

/// What becomes of the data.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeletionPolicy {
    /// A last complete backup is made and kept with the others; then the server, its volume and its passwords go.
    #[default]
    Snapshot,
    /// The server goes; its volume, its passwords and its backups stay, and a MySQL of the same name takes them up.
    Retain,
    /// Everything goes: the server, its volume, its passwords and its backups.
    Delete,
}

/// What is known of a MySQL.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct MySQLStatus {
    /// Where in its life it is: `Pending`, `Restoring`, `Starting`, `Configuring`, `Ready`, `Upgrading`, `Failed`,
    /// `Unknown` or `Deleting`.
    #[serde(default)]
    pub phase: String,

    /// A sentence about that. `MySQL instance is running` where it is Ready.
    #[serde(default)]
    pub message: String,

    /// When the last complete backup was made: one that was read back and matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_backup: Option<Time>,

    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Which server runs, or last did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional::<Flavour>")]
    pub flavour: Option<Flavour>,

    /// The version that it says it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// The image that the server is to run: that of the spec, unless a change to it is refused or not yet begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,

    /// What the instance was restored from, once it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_from: Option<String>,

    /// Whether the init script was run to its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub init_script_done: bool,

    /// The schedule of backups that holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Scheduled>,

    /// What is known: `Ready` (the server answered a query and is as asked for), `Progressing` (a change is on its way),
    /// `Degraded` (something is wrong that will not pass by itself), `BackupHealthy` (the last backup that was due is
    /// complete).
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

impl Conditioned for MySQLStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }
}

/// A schedule, and since when it holds: what was due before is not missed.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct Scheduled {
    /// The schedule.
    pub schedule: String,
    /// Since when.
    pub since: Time,
}
