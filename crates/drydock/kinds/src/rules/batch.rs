//! Jobs and cron jobs.

use drydock_schema::FieldError;
use serde_json::{Value, json};

use super::{PLAIN, Rules, immutable, not_negative, not_supported, pod};
use crate::{json, names, path::Path};

pub(crate) const JOB: Rules = Rules {
    default: default_job,
    create: create_job,
    validate: |object, errors| validate_job_spec(&object["spec"], &Path::new("spec"), errors),
    validate_update: |new, old, errors| {
        validate_job_spec(&new["spec"], &Path::new("spec"), errors);
        for (pointer, path) in [
            ("/spec/completions", "spec.completions"),
            ("/spec/selector", "spec.selector"),
            ("/spec/template", "spec.template"),
            ("/spec/completionMode", "spec.completionMode"),
            ("/spec/backoffLimitPerIndex", "spec.backoffLimitPerIndex"),
        ] {
            immutable(new, old, pointer, path, errors);
        }
    },
    ..PLAIN
};

pub(crate) const CRON_JOB: Rules = Rules {
    default: default_cron_job,
    create: |object| json::set(object, "status", json!({})),
    validate: validate_cron_job,
    validate_update: |new, _, errors| validate_cron_job(new, errors),
    ..PLAIN
};

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

fn default_template(spec: &mut Value) {
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
    if let Some(labels) = json::object_at(spec, "template")
        .and_then(|template| json::object_at(template, "metadata"))
        .and_then(|metadata| json::object_at(metadata, "labels"))
    {
        for (label, value) in [
            ("batch.kubernetes.io/controller-uid", &uid),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", &uid),
            ("job-name", &name),
        ] {
            json::set(labels, label, value.as_str());
        }
    }
    json::set(spec, "selector", json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
}

fn validate_job_spec(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for field in
        ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"]
    {
        not_negative(spec, field, path, errors);
    }
    let template = path.field("template");
    pod::validate_template(&spec["template"], &template, errors);
    let policy = json::text(&spec["template"]["spec"], "restartPolicy");
    let at = template.field("spec");
    if policy == "Always" {
        let detail = "valid values: \"OnFailure\", \"Never\"";
        errors.push(FieldError::required(at.field("restartPolicy"), detail));
    } else if !["OnFailure", "Never"].contains(&policy) {
        errors.push(not_supported(at.field("restartPolicy"), policy, &["OnFailure", "Never"]));
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

fn validate_cron_job(object: &Value, errors: &mut Vec<FieldError>) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let name = json::text(&object["metadata"], "name");
    if name.len() > 52 {
        errors.push(FieldError::invalid("metadata.name", name, names::too_long(52)));
    }
    let schedule = json::text(spec, "schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required(path.field("schedule"), ""));
    } else if !schedule.starts_with('@') && schedule.split_whitespace().count() != 5 {
        let found = schedule.split_whitespace().count();
        let detail = format!("expected exactly 5 fields, found {found}: [{schedule}]");
        errors.push(FieldError::invalid(path.field("schedule"), schedule, detail));
    }
    let policy = json::text(spec, "concurrencyPolicy");
    let policies = ["Allow", "Forbid", "Replace"];
    if !policies.contains(&policy) {
        errors.push(not_supported(path.field("concurrencyPolicy"), policy, &policies));
    }
    for field in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        not_negative(spec, field, &path, errors);
    }
    let template = path.field("jobTemplate");
    validate_job_spec(&spec["jobTemplate"]["spec"], &template.field("spec"), errors);
}
