//! What is wrong with the status of a job. A rule is held only where what it is about has changed, so that a status
//! from before the rule can still be put right.

use drydock_schema::FieldError;
use serde_json::Value;

use super::policies::{total_of, wrong};
use crate::{
    json,
    path::Path,
    rules::{duplicate, in_order, not_negative, showing},
};

fn holds(job: &Value, kind: &str) -> bool {
    let conditions = json::list(&job["status"], "conditions").iter();
    conditions.into_iter().any(|one| json::text(one, "type") == kind && json::text(one, "status") == "True")
}

fn is_over(job: &Value) -> bool {
    holds(job, "Complete") || holds(job, "Failed")
}

pub(super) fn validate(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (status, path) = (&new["status"], Path::new("status"));
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        not_negative(status, field, &path, errors);
    }
    let at = path.field("uncountedTerminatedPods");
    let waiting = &status["uncountedTerminatedPods"];
    let mut seen: Vec<&str> = Vec::new();
    for field in ["succeeded", "failed"] {
        for (index, uid) in json::list(waiting, field).iter().enumerate() {
            let uid = uid.as_str().unwrap_or_default();
            let at = at.field(field);
            if uid.is_empty() {
                errors.push(FieldError::invalid(at.index(index), uid, "must not be empty"));
            } else if seen.contains(&uid) {
                errors.push(duplicate(at.index(index), uid));
            } else {
                seen.push(uid);
            }
        }
    }
    conditions(new, old, &path, errors);
    counters(new, old, &path, errors);
    times(new, old, &path, errors);
    indexes(new, old, &path, errors);
}

fn conditions(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let at = path.field("conditions");
    let changed = |kind: &str| holds(new, kind) != holds(old, kind);
    let both = |one: &str, other: &str| holds(new, one) && holds(new, other);
    for (one, other, apply) in [
        ("Complete", "Failed", changed("Complete") || changed("Failed")),
        ("Complete", "FailureTarget", changed("Complete") || changed("FailureTarget")),
        ("SuccessCriteriaMet", "Failed", true),
        ("SuccessCriteriaMet", "FailureTarget", true),
    ] {
        if apply && both(one, other) {
            errors.push(wrong(at, &format!("cannot set {one}=True and {other}=true conditions")));
        }
    }
    for (end, target) in [("Failed", "FailureTarget"), ("Complete", "SuccessCriteriaMet")] {
        if (changed(end) || changed(target)) && holds(new, end) && !holds(new, target) {
            let detail = format!("cannot set {end}=True condition without the {target}=true condition");
            errors.push(wrong(at, &detail));
        }
    }
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if holds(old, kind) && !holds(new, kind) {
            errors.push(wrong(at, &format!("cannot disable the terminal {kind}=True condition")));
        }
    }
    if holds(old, "SuccessCriteriaMet") && !holds(new, "SuccessCriteriaMet") {
        errors.push(wrong(at, "cannot disable the SuccessCriteriaMet=True condition"));
    }
}

fn counters(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let (status, spec) = (&new["status"], &new["spec"]);
    let count = |job: &Value, field: &str| job["status"][field].as_i64().unwrap_or_default();
    let ends = is_over(new) != is_over(old);
    for field in ["active", "terminating"] {
        let changed = ends || count(new, field) != count(old, field);
        if changed && count(new, field) > 0 && is_over(new) {
            let detail = format!("{field}>0 is invalid for finished job");
            errors.push(FieldError::invalid(path.field(field), count(new, field), detail));
        }
    }
    let waiting = &status["uncountedTerminatedPods"];
    let uncounted = json::list(waiting, "succeeded").len() + json::list(waiting, "failed").len();
    if ends && is_over(new) && uncounted > 0 {
        let at = path.field("uncountedTerminatedPods");
        let shown = in_order(&[("Succeeded", &waiting["succeeded"]), ("Failed", &waiting["failed"])]);
        let error = FieldError::invalid(at, waiting.clone(), "must be empty for finished job");
        errors.push(showing(error, shown));
    }
    let changed = count(new, "ready") != count(old, "ready") || count(new, "active") != count(old, "active");
    if changed && count(new, "ready") > count(new, "active") {
        let detail = "cannot set more ready pods than active";
        errors.push(FieldError::invalid(path.field("ready"), count(new, "ready"), detail));
    }
    let shrinks =
        json::text(spec, "completionMode") == "Indexed" && spec["completions"] == spec["parallelism"];
    for field in ["failed", "succeeded"] {
        if count(new, field) < count(old, field) && !(field == "succeeded" && shrinks) {
            let detail = format!("cannot decrease the {field} counter");
            errors.push(FieldError::invalid(path.field(field), count(new, field), detail));
        }
    }
}

fn times(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let time = |job: &Value, field: &str| job["status"][field].as_str().map(str::to_owned);
    let (start, end) = (time(new, "startTime"), time(new, "completionTime"));
    let (start_changed, end_changed) = (start != time(old, "startTime"), end != time(old, "completionTime"));
    let complete = holds(new, "Complete");
    let completes = complete != holds(old, "Complete");
    let at = path.field("completionTime");
    match &end {
        Some(end) if (completes || end_changed) && !complete => {
            let detail = "cannot set completionTime when there is no Complete=True condition";
            errors.push(FieldError::invalid(at, end.as_str(), detail));
        }
        None if (completes || end_changed) && complete => {
            errors.push(FieldError::required(at, "completionTime is required for Complete jobs"));
        }
        _ => {}
    }
    if let (Some(start), Some(end)) = (&start, &end)
        && (start_changed || end_changed)
        && end < start
    {
        errors.push(FieldError::invalid(at, end.as_str(), "must be equal to or after `startTime`"));
    }
    if let (Some(end), Some(_)) = (&end, time(old, "completionTime"))
        && end_changed
    {
        errors.push(FieldError::invalid(at, end.as_str(), "field is immutable"));
    }
    let spec = &new["spec"];
    let held = spec["suspend"].as_bool() == Some(true);
    let nothing_to_do = held && spec["completions"].as_i64() == Some(0);
    let ends = is_over(new) != is_over(old);
    if start.is_none() && is_over(new) && (ends || start_changed) && !nothing_to_do {
        let detail = "startTime is required for finished job";
        errors.push(FieldError::required(path.field("startTime"), detail));
    }
    let resumes = holds(old, "Suspended") && !holds(new, "Suspended");
    if time(old, "startTime").is_some() && start_changed && !held && !resumes {
        let detail = "startTime cannot be removed for unsuspended job";
        errors.push(FieldError::required(path.field("startTime"), detail));
    }
}

fn indexes(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    let text = |job: &Value, field: &str| job["status"][field].as_str().map(str::to_owned);
    for field in ["completedIndexes", "failedIndexes"] {
        let Some(value) = text(new, field).filter(|value| Some(value) != text(old, field).as_ref()) else {
            continue;
        };
        let at = path.field(field);
        let parsed = field == "completedIndexes" || spec.get("backoffLimitPerIndex").is_some();
        if let Some(completions) = spec["completions"].as_i64().filter(|_| parsed)
            && let Err(why) = total_of(&value, completions)
        {
            let detail = format!("error parsing {field}: {why}");
            errors.push(FieldError::invalid(at, value.as_str(), detail));
        }
        let detail = match field {
            "completedIndexes" if json::text(spec, "completionMode") != "Indexed" && !value.is_empty() => {
                "cannot set non-empty completedIndexes when non-indexed completion mode"
            }
            "failedIndexes" if spec.get("backoffLimitPerIndex").is_none() => {
                "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
            }
            _ => continue,
        };
        errors.push(FieldError::invalid(at, value, detail));
    }
}
