//! Jobs and cron jobs.

mod cron;
mod job;
mod policies;
mod status;

use serde_json::{Value, json};

use super::{PLAIN, Rules, counted, name_of_pods, pod};
use crate::{json, path::Path};

pub(crate) const JOB: Rules = Rules {
    default: default_job,
    create: create_job,
    validate: job::validate,
    validate_update: job::validate_update,
    validate_status: status::validate,
    warnings: |new, old| {
        let mut warnings = Vec::new();
        name_of_pods(new, old, &mut warnings);
        if counted(new, old) {
            spec_warnings(&new["spec"], &Path::new("spec"), &mut warnings);
        }
        warnings
    },
    ..PLAIN
};

pub(crate) const CRON_JOB: Rules = Rules {
    default: default_cron_job,
    create: |object| json::set(object, "status", json!({})),
    validate: cron::validate,
    validate_update: cron::validate_update,
    warnings: |new, old| {
        let (spec, mut warnings) = (&new["spec"], Vec::new());
        name_of_pods(new, old, &mut warnings);
        if counted(new, old) {
            let path = Path::new("spec.jobTemplate.spec");
            spec_warnings(&spec["jobTemplate"]["spec"], &path, &mut warnings);
        }
        if old.is_some() && json::text(spec, "schedule").contains("TZ") {
            warnings.push(TIME_ZONE_IN_SCHEDULE.to_owned());
        }
        warnings
    },
    ..PLAIN
};

/// Only schedules from long ago have one. The path is Kubernetes' own.
const TIME_ZONE_IN_SCHEDULE: &str = "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
    https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details";

/// How many indexes can fail, of how many at once, and still be written down.
const COMPLETIONS: i64 = 100_000;
const PARALLELISM: i64 = 10_000;

/// What is worth saying about the specification of a job at `path`.
fn spec_warnings(spec: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    let number = |field: &str| spec[field].as_i64().unwrap_or_default();
    if json::text(spec, "completionMode") == "Indexed"
        && number("completions") > COMPLETIONS
        && number("parallelism") > PARALLELISM
    {
        warnings.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    pod::template_warnings(&spec["template"], &path.field("template"), warnings);
}

/// The labels by which pods are known as those of a job, today's and those of long ago.
const OWNER: &str = "batch.kubernetes.io/controller-uid";
const NAME: &str = "batch.kubernetes.io/job-name";
const OLD_OWNER: &str = "controller-uid";
const OLD_NAME: &str = "job-name";

fn default_job(object: &mut Value) {
    let template = object["spec"]["template"]["metadata"].get("labels").cloned();
    if let Some(labels) = template
        && let Some(metadata) = json::object_at(object, "metadata")
    {
        json::default(metadata, "labels", labels);
    }
    if let Some(spec) = json::object_at(object, "spec") {
        default_job_spec(spec);
    }
}

fn default_job_spec(spec: &mut Value) {
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        json::set(spec, "completions", 1);
    }
    json::default(spec, "parallelism", 1);
    let limit = if spec.get("backoffLimitPerIndex").is_some() { i32::MAX } else { 6 };
    json::default(spec, "backoffLimit", limit);
    json::default(spec, "completionMode", "NonIndexed");
    json::default(spec, "suspend", false);
    json::default(spec, "manualSelector", false);
    let replacement = if spec.get("podFailurePolicy").is_some() { "Failed" } else { "TerminatingOrFailed" };
    json::default(spec, "podReplacementPolicy", replacement);
    default_template(spec);
}

/// What is shared by jobs and what cron jobs make.
fn default_template(spec: &mut Value) {
    if let Some(policy) = spec.get_mut("podFailurePolicy") {
        for rule in json::list_mut(policy, "rules") {
            for pattern in json::list_mut(rule, "onPodConditions") {
                json::default_text(pattern, "status", "True");
            }
        }
    }
    if let Some(template) = json::object_at(spec, "template") {
        json::default(template, "metadata", json!({}));
        pod::default_template(template);
    }
}

/// A job that does not choose its pods by hand is known by its uid, which the server has given it by
/// now.
fn create_job(object: &mut Value) {
    json::set(object, "status", json!({}));
    let uid = json::text(&object["metadata"], "uid").to_owned();
    let name = json::text(&object["metadata"], "name").to_owned();
    if object["spec"]["manualSelector"].as_bool() == Some(true) || uid.is_empty() {
        return;
    }
    let Some(spec) = object.get_mut("spec") else { return };
    // What was given stays; where it differs it is refused later.
    if let Some(labels) = json::object_at(spec, "template")
        .and_then(|template| json::object_at(template, "metadata"))
        .and_then(|metadata| json::object_at(metadata, "labels"))
    {
        for (label, value) in [(OWNER, &uid), (NAME, &name), (OLD_OWNER, &uid), (OLD_NAME, &name)] {
            json::default(labels, label, value.as_str());
        }
    }
    if let Some(labels) =
        json::object_at(spec, "selector").and_then(|selector| json::object_at(selector, "matchLabels"))
    {
        json::default(labels, OWNER, uid);
    }
}

fn default_cron_job(object: &mut Value) {
    let Some(spec) = json::object_at(object, "spec") else { return };
    json::default_text(spec, "concurrencyPolicy", "Allow");
    json::default(spec, "suspend", false);
    json::default(spec, "successfulJobsHistoryLimit", 3);
    json::default(spec, "failedJobsHistoryLimit", 1);
    if let Some(template) = json::object_at(spec, "jobTemplate") {
        json::default(template, "metadata", json!({}));
        if let Some(job) = json::object_at(template, "spec") {
            default_template(job);
        }
    }
}
