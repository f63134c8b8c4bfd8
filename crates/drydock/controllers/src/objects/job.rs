//! Jobs, and what makes them on a schedule.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition::Condition;
use super::meta::{Meta, Pairs, is_zero, nullable};
use super::selector::LabelSelector;
use super::template::Template;

/// A Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Job {
    /// Metadata.
    pub metadata: Meta,
    /// What was asked for.
    pub spec: JobSpec,
    /// What is.
    #[serde(deserialize_with = "nullable")]
    pub status: JobStatus,
}

/// `spec` of a Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    /// How many pods at a time.
    pub parallelism: i32,
    /// How many must succeed; when not said, the first that does ends it.
    pub completions: Option<i32>,
    /// How many seconds it may take.
    pub active_deadline_seconds: Option<i64>,
    /// How many pods may fail.
    pub backoff_limit: i32,
    /// How many pods of one index may fail.
    pub backoff_limit_per_index: Option<i32>,
    /// How many indexes may fail.
    pub max_failed_indexes: Option<i32>,
    /// Which pods are its own.
    pub selector: LabelSelector,
    /// What each pod is.
    pub template: Template,
    /// How long it stays when it is over.
    pub ttl_seconds_after_finished: Option<i64>,
    /// `NonIndexed` or `Indexed`.
    pub completion_mode: Box<str>,
    /// Whether it is held.
    pub suspend: bool,
    /// What a failed pod means.
    pub pod_failure_policy: Option<FailurePolicy>,
    /// When enough indexes have succeeded.
    pub success_policy: Option<SuccessPolicy>,
    /// When a pod is replaced: `TerminatingOrFailed` or `Failed`.
    pub pod_replacement_policy: Box<str>,
    /// Who acts on it; this controller when not said.
    pub managed_by: Option<Box<str>>,
}

/// `podFailurePolicy` of a Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct FailurePolicy {
    /// The first that matches counts.
    pub rules: Vec<FailureRule>,
}

/// One rule about failed pods.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailureRule {
    /// What it means.
    pub action: FailureAction,
    /// Which exit codes match.
    pub on_exit_codes: Option<ExitCodes>,
    /// Which conditions match.
    #[serde(deserialize_with = "nullable")]
    pub on_pod_conditions: Vec<ConditionPattern>,
}

/// What a failed pod means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum FailureAction {
    /// The whole Job has failed.
    FailJob,
    /// Its index has failed.
    FailIndex,
    /// Nothing.
    Ignore,
    /// It counts, as without a rule.
    #[default]
    #[serde(other)]
    Count,
}

/// Exit codes that match.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExitCodes {
    /// Of which container; of any when not said.
    pub container_name: Option<Box<str>>,
    /// `In` or `NotIn`.
    pub operator: Box<str>,
    /// Which.
    pub values: Vec<i32>,
}

/// A condition that matches.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ConditionPattern {
    /// What it is about.
    pub r#type: Box<str>,
    /// `True` when not said.
    pub status: Box<str>,
}

/// `successPolicy` of a Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SuccessPolicy {
    /// The first that matches ends the Job.
    pub rules: Vec<SuccessRule>,
}

/// When enough indexes have succeeded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SuccessRule {
    /// These must have.
    pub succeeded_indexes: Option<Box<str>>,
    /// That many must have, of those where both are said.
    pub succeeded_count: Option<i32>,
}

/// Who acts on a Job when nobody else is named.
const OURSELVES: &str = "kubernetes.io/job-controller";

impl Job {
    /// Whether somebody else acts on it.
    pub fn managed_by_another(&self) -> bool {
        self.spec.managed_by.as_deref().is_some_and(|name| name != OURSELVES)
    }

    /// Whether each pod has a number of its own.
    pub fn indexed(&self) -> bool {
        &*self.spec.completion_mode == "Indexed"
    }

    /// Whether a pod is replaced only when it is over.
    pub fn replaces_only_failed(&self) -> bool {
        &*self.spec.pod_replacement_policy == "Failed" || self.spec.pod_failure_policy.is_some()
    }

    /// How it ended: the condition `Complete` or `Failed`.
    pub fn ended(&self) -> Option<&Condition> {
        self.status
            .conditions
            .iter()
            .find(|one| matches!(&*one.r#type, "Complete" | "Failed") && &*one.status == "True")
    }
}

/// `status` of a Job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    /// Since when it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// When it succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Timestamp>,
    /// Pods that are neither over nor ending.
    #[serde(skip_serializing_if = "is_zero")]
    pub active: i32,
    /// Pods that succeeded.
    #[serde(skip_serializing_if = "is_zero")]
    pub succeeded: i32,
    /// Pods that failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed: i32,
    /// Pods that are ending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<i32>,
    /// Indexes that succeeded.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub completed_indexes: Box<str>,
    /// Indexes that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_indexes: Option<Box<str>>,
    /// Pods that are over and not yet among the counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncounted_terminated_pods: Option<Uncounted>,
    /// Pods that are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<i32>,
}

/// Pods that are over and not yet among the counts, by their uids.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Uncounted {
    /// Those that succeeded.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub succeeded: Vec<Box<str>>,
    /// Those that failed.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub failed: Vec<Box<str>>,
}

/// A CronJob.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CronJob {
    /// Metadata.
    pub metadata: Meta,
    /// What was asked for.
    pub spec: CronJobSpec,
    /// What is.
    #[serde(deserialize_with = "nullable")]
    pub status: CronJobStatus,
}

/// `spec` of a CronJob.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobSpec {
    /// When.
    pub schedule: Box<str>,
    /// In which time zone.
    pub time_zone: Option<Box<str>>,
    /// How late is too late.
    pub starting_deadline_seconds: Option<i64>,
    /// What becomes of a Job that still runs: `Allow`, `Forbid` or `Replace`.
    pub concurrency_policy: Box<str>,
    /// Whether it is held.
    pub suspend: bool,
    /// What is made.
    pub job_template: JobTemplate,
    /// How many Jobs that succeeded are kept.
    pub successful_jobs_history_limit: Option<i32>,
    /// How many Jobs that failed are kept.
    pub failed_jobs_history_limit: Option<i32>,
}

/// What a CronJob makes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct JobTemplate {
    /// Labels and annotations.
    pub metadata: TemplateMeta,
    /// The specification, as it was written.
    pub spec: Value,
}

/// What a template says of an object's metadata.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TemplateMeta {
    /// Labels.
    #[serde(deserialize_with = "nullable")]
    pub labels: Pairs,
    /// Annotations.
    #[serde(deserialize_with = "nullable")]
    pub annotations: Pairs,
}

/// `status` of a CronJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobStatus {
    /// Jobs that run.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub active: Vec<Reference>,
    /// For when a Job was last made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Timestamp>,
    /// When a Job last succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_successful_time: Option<Timestamp>,
}

/// A reference to an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reference {
    /// Group and version.
    pub api_version: Box<str>,
    /// The kind.
    pub kind: Box<str>,
    /// The name.
    pub name: Box<str>,
    /// The namespace.
    pub namespace: Box<str>,
    /// The version that was referred to.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub resource_version: Box<str>,
    /// The uid.
    pub uid: Box<str>,
}
