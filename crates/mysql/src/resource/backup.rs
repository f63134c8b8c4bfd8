//! `MySQLBackup`: one backup, and what is proved of it.

use ballast_operator::Conditioned;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;
use crate::{
    flavour::Flavour,
    validate::{BACKUP_FIXED, BACKUP_NAME_MESSAGE},
};

/// Which backup is wanted.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "operators.example.com",
    version = "v1alpha1",
    kind = "MySQLBackup",
    plural = "mysqlbackups",
    singular = "mysqlbackup",
    shortname = "mysqlbackup",
    category = "ballast",
    namespaced,
    doc = "One backup of a MySQL, and what is proved of it.",
    status = "MySQLBackupStatus",
    derive = "PartialEq",
    printcolumn(name = "Instance", type_ = "string", json_path = ".spec.instance", description = "The MySQL"),
    printcolumn(
        name = "Outcome",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#,
        description = "Complete once it was read back and matched, and while its volume is there"
    ),
    printcolumn(name = "Size", type_ = "string", json_path = ".status.size", description = "The size of the file"),
    printcolumn(
        name = "Completed",
        type_ = "date",
        json_path = ".status.completedAt",
        description = "When it was proved"
    ),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.version",
        description = "The version of the server",
        priority = 1
    ),
    printcolumn(
        name = "File",
        type_ = "string",
        json_path = ".status.file",
        description = "The file on the volume",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new(schema::backup_name_rule()).message(BACKUP_NAME_MESSAGE),
    attr = r#"x_kube(crates(kube_core = "::kube_core"))"#,
    crates(kube = "::kube_derive", kube_core = "::kube_core")
)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[x_kube(validation = Rule::new("self.instance == oldSelf.instance && self.reason == oldSelf.reason").message(BACKUP_FIXED))]
#[serde(rename_all = "camelCase")]
pub struct MySQLBackupSpec {
    /// The MySQL, in the same namespace.
    #[schemars(schema_with = "schema::instance")]
    pub instance: String,

    /// Why it is made. People leave this alone.
    #[serde(default)]
    pub reason: Cause,

    /// What becomes of the file when this resource is deleted: it goes too, or it stays.
    #[serde(default)]
    pub deletion_policy: Fate,

    /// How long it may take, where there is a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 604_800))]
    pub deadline_seconds: Option<i64>,
}

/// Why a backup is made.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// Somebody asked for it, by making this resource or a Job of the same name from the CronJob. It is kept until somebody
    /// deletes it.
    #[default]
    Requested,
    /// A Job of the same name was made by the CronJob's clock, and this is the record of it.
    Scheduled,
    /// The server is about to be upgraded.
    BeforeUpgrade,
    /// The MySQL is about to go.
    BeforeDeletion,
}

/// What becomes of a backup's file.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// It goes with the resource.
    #[default]
    Delete,
    /// It stays where it is.
    Retain,
}

/// What came of a backup.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was read back from its beginning, its checksum matched, and the dump was seen to end properly.
    Complete,
    /// It was not.
    Failed,
}

/// What is proved of a backup.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct MySQLBackupStatus {
    /// What came of it. Absent while nothing did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional::<Outcome>")]
    pub outcome: Option<Outcome>,

    /// A sentence about that.
    #[serde(default)]
    pub message: String,

    /// The claim of the volume that the file is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,

    /// The file on that volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,

    /// Its size, for people: `12Mi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,

    /// Its size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,

    /// The size of what is in it, before it was compressed, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_bytes: Option<i64>,

    /// The SHA-256 of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,

    /// The SHA-256 of the manifest beside it, which has the digests of all tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_sha256: Option<String>,

    /// How many rows there are in all tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<i64>,

    /// How many tables there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_count: Option<i64>,

    /// What is in each table; of the first 1000 where there are more. The manifest has them all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub tables: Vec<TableDigest>,

    /// How long it took, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,

    /// Which server it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional::<Flavour>")]
    pub flavour: Option<Flavour>,

    /// The version of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// When it was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,

    /// When it was proved to be complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Time>,

    /// When its outcome was known, complete or failed: of several backups the last is the one that ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<MicroTime>,

    /// Who is being restored from it: it is not deleted meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub restoring: Vec<String>,

    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// What is known: `Ready` (it is complete), `Progressing` (it is being made), `Degraded` (it is not, and will not be).
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

impl Conditioned for MySQLBackupStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }
}

/// What is in a table, whatever the order of its rows.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct TableDigest {
    /// The database that it is in.
    pub database: String,
    /// Its name.
    pub name: String,
    /// How many rows it has.
    pub rows: i64,
    /// The digest of their contents.
    pub digest: String,
}
