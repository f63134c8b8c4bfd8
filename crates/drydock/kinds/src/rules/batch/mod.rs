//! Jobs and cron jobs.

mod cron;
mod job;
mod policies;
mod status;

use serde_json::{Value, json};

use super::{PLAIN, Rules, pod};
use crate::json;

pub(crate) const JOB: Rules = Rules {
    default: default_job,
    create: create_job,
    validate: job::validate,
    validate_update: job::validate_update,
    validate_status: status::validate,
    ..PLAIN
};

pub(crate) const CRON_JOB: Rules = Rules {
    default: default_cron_job,
    create: |object| json::set(object, "status", json!({})),
    validate: cron::validate,
    validate_update: cron::validate_update,
    ..PLAIN
};

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
