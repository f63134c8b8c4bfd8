//! What is wrong with a cron job.

use drydock_cron::{Schedule, zone};
use drydock_schema::FieldError;
use serde_json::Value;

use super::job::spec_of_job;
use crate::{
    json, names,
    path::Path,
    rules::{not_negative, not_supported},
};

/// The longest name: that of a job may have 63 characters, and eleven say the time.
const LONGEST: usize = 52;

pub(super) fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let name = json::text(&object["metadata"], "name");
    if name.len() > LONGEST {
        errors.push(FieldError::invalid("metadata.name", name, names::too_long(LONGEST)));
    }
    time_zone(&object["spec"], errors);
    spec(&object["spec"], None, errors);
}

pub(super) fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if !json::same(&new["spec"]["timeZone"], &old["spec"]["timeZone"]) {
        time_zone(&new["spec"], errors);
    }
    spec(&new["spec"], Some(&old["spec"]), errors);
}

fn spec(spec: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
    let schedule = json::text(spec, "schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required(path.field("schedule"), ""));
    } else {
        let mut refuse =
            |detail: &str| errors.push(FieldError::invalid(path.field("schedule"), schedule, detail));
        if let Err(error) = Schedule::parse(schedule) {
            refuse(&error.to_string());
        }
        // The zone stood in the schedule before there was a field for it, and may stay there.
        let before = old.is_some_and(|old| json::text(old, "schedule").contains("TZ"));
        match (schedule.contains("TZ"), before) {
            (true, true) if spec.get("timeZone").is_some() => {
                refuse("cannot use both timeZone field and TZ or CRON_TZ in schedule");
            }
            (true, false) => refuse("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
            _ => {}
        }
    }
    let policy = json::text(spec, "concurrencyPolicy");
    let policies = ["Allow", "Forbid", "Replace"];
    if !policies.contains(&policy) {
        errors.push(not_supported(path.field("concurrencyPolicy"), policy, &policies));
    }
    for field in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        not_negative(spec, field, &path, errors);
    }
    let (template, job) = (path.field("jobTemplate"), &spec["jobTemplate"]["spec"]);
    let at = template.field("spec");
    spec_of_job(job, &at, errors);
    if let Some(selector) = job.get("selector").filter(|selector| selector.is_object()) {
        let detail = "`selector` will be auto-generated";
        errors.push(FieldError::invalid(at.field("selector"), selector.clone(), detail));
    }
    if job["manualSelector"].as_bool() == Some(true) {
        let mut error = not_supported(at.field("manualSelector"), "", &["nil", "false"]);
        error.value = Some(true.into());
        errors.push(error);
    }
}

fn time_zone(spec: &Value, errors: &mut Vec<FieldError>) {
    let Some(name) = spec["timeZone"].as_str() else { return };
    let mut refuse = |detail: &str| errors.push(FieldError::invalid("spec.timeZone", name, detail));
    if name.is_empty() {
        return refuse("timeZone must be nil or non-empty string");
    }
    if name.eq_ignore_ascii_case("local") {
        refuse("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones");
    }
    // What Go takes for the machine's own.
    if name != "Local"
        && let Err(error) = zone(name)
    {
        refuse(&error.to_string());
    }
}
