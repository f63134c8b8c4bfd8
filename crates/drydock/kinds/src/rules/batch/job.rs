//! What is wrong with a job.

use drydock_schema::{FieldError, FieldErrorKind};
use serde_json::Value;

use super::{NAME, OLD_NAME, OLD_OWNER, OWNER, policies};
use crate::{
    json, names,
    path::Path,
    rules::{immutable, not_negative, not_supported, pod, selector},
    selector::LabelSelector,
};

/// Most pods at a time of a job whose pods are numbered, and most numbers that may fail: Kubernetes' bounds, so that
/// the status stays within its size.
const MOST: i64 = 100_000;
/// The bounds where there are more numbers than that.
const MOST_OF_MANY: i64 = 10_000;
/// The longest name of who looks after a job.
const LONGEST_MANAGER: usize = 63;

pub(super) fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let uid = json::text(&object["metadata"], "uid");
    let manual = spec["manualSelector"].as_bool() == Some(true);
    if !manual && !uid.is_empty() {
        generated(object, uid, errors);
    }
    spec_of_job(spec, &path, errors);
    if manual || !uid.is_empty() {
        selected(spec, &path, errors);
    }
    let completions = spec["completions"].as_i64().unwrap_or(0);
    if is_indexed(spec) && completions > 0 {
        let name = json::text(&object["metadata"], "name");
        let longest = format!("{name}-{}", completions - 1);
        if !names::dns_label(&longest).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {longest}");
            errors.push(FieldError::invalid("metadata.name", name, detail));
        }
    }
}

fn is_indexed(spec: &Value) -> bool {
    json::text(spec, "completionMode") == "Indexed"
}

/// The labels and the selector that the server makes are those that it made.
fn generated(object: &Value, uid: &str, errors: &mut Vec<FieldError>) {
    let name = json::text(&object["metadata"], "name");
    let labels = &object["spec"]["template"]["metadata"]["labels"];
    let path = Path::new("spec");
    let (path, expected) =
        (path.field("template"), [(OLD_OWNER, uid), (OLD_NAME, name), (OWNER, uid), (NAME, name)]);
    let metadata = path.field("metadata");
    let at = metadata.field("labels");
    for (label, value) in expected {
        let detail = format!("must be '{value}'");
        match labels.get(label).and_then(Value::as_str) {
            None => errors.push(FieldError::required(at.key(label), detail)),
            Some(found) if found != value => {
                errors.push(FieldError::invalid(at.key(label), labels.clone(), detail));
            }
            Some(_) => {}
        }
    }
    let given = object["spec"].get("selector");
    if let Some(known) = given.and_then(|given| LabelSelector::from_object(Some(given)))
        && !known.matches(|key| expected.iter().find(|(label, _)| *label == key).map(|(_, value)| *value))
    {
        let given = given.cloned().unwrap_or_default();
        errors.push(FieldError::invalid("spec.selector", given, "`selector` not auto-generated"));
    }
}

/// What is selected is what the template makes.
fn selected(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let given = spec.get("selector").filter(|selector| selector.is_object());
    match given {
        None => errors.push(FieldError::required(path.field("selector"), "")),
        Some(given) => selector::validate(given, &path.field("selector"), errors),
    }
    let labels = &spec["template"]["metadata"]["labels"];
    let fits = match (given, LabelSelector::from_object(given)) {
        (Some(_), Some(selector)) => selector.matches(|key| labels.get(key).and_then(Value::as_str)),
        (Some(_), None) => true,
        (None, _) => false,
    };
    if !fits {
        let (template, detail) = (path.field("template"), "`selector` does not match template `labels`");
        let metadata = template.field("metadata");
        errors.push(FieldError::invalid(metadata.field("labels"), labels.clone(), detail));
    }
}

/// What is wrong with the specification, also inside a cron job.
pub(super) fn spec_of_job(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        not_negative(spec, field, path, errors);
    }
    completion_mode(spec, path, errors);
    if spec["podFailurePolicy"].is_object() {
        policies::failure(spec, &path.field("podFailurePolicy"), errors);
    }
    if spec["successPolicy"].is_object() {
        policies::success(spec, is_indexed(spec), &path.field("successPolicy"), errors);
    }
    if let Some(policy) = spec["podReplacementPolicy"].as_str() {
        let both = ["Failed", "TerminatingOrFailed"];
        let allowed = if spec["podFailurePolicy"].is_object() { &both[..1] } else { &both[..] };
        if !allowed.contains(&policy) {
            errors.push(not_supported(path.field("podReplacementPolicy"), policy, allowed));
        }
    }
    if let Some(by) = spec["managedBy"].as_str() {
        managed_by(by, &path.field("managedBy"), errors);
    }
    let template = path.field("template");
    pod::validate_template(&spec["template"], &template, errors);
    let policy = json::text(&spec["template"]["spec"], "restartPolicy");
    let at = template.field("spec");
    let at = at.field("restartPolicy");
    match policy {
        "Always" | "" => errors.push(FieldError::required(at, "valid values: \"OnFailure\", \"Never\"")),
        "OnFailure" if spec["podFailurePolicy"].is_object() => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.push(FieldError::invalid(at, policy, detail));
        }
        "OnFailure" | "Never" => {}
        _ => errors.push(not_supported(at, policy, &["OnFailure", "Never"])),
    }
}

/// Who looks after a job is a name below a domain.
fn managed_by(by: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match by.split_once('/') {
        _ if by.is_empty() => errors.push(FieldError::required(path, "")),
        Some((domain, name)) if !domain.is_empty() && !name.is_empty() => {
            let wrong = names::dns_subdomain(domain).into_iter();
            errors.extend(wrong.map(|message| FieldError::invalid(path, domain, message)));
        }
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(path, by, detail));
        }
    }
    if by.len() > LONGEST_MANAGER {
        let detail = format!("may not be more than {LONGEST_MANAGER} bytes");
        errors.push(FieldError::new(FieldErrorKind::TooLong, path, None, detail));
    }
}

fn completion_mode(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let number = |field: &str| spec[field].as_i64();
    let (most_failed, per_index) = (number("maxFailedIndexes"), number("backoffLimitPerIndex"));
    if most_failed.is_some() && per_index.is_none() {
        let at = path.field("backoffLimitPerIndex");
        errors.push(FieldError::required(at, "when maxFailedIndexes is specified"));
    }
    let mode = json::text(spec, "completionMode");
    if !["", "NonIndexed", "Indexed"].contains(&mode) {
        errors.push(not_supported(path.field("completionMode"), mode, &["NonIndexed", "Indexed"]));
    }
    if mode != "Indexed" {
        if matches!(mode, "" | "NonIndexed") {
            for (field, value) in [("backoffLimitPerIndex", per_index), ("maxFailedIndexes", most_failed)] {
                if let Some(value) = value {
                    let detail = "requires indexed completion mode";
                    errors.push(FieldError::invalid(path.field(field), value, detail));
                }
            }
        }
        return;
    }
    let mut at_most = |field: &str, value: Option<i64>, most: i64, detail: String| {
        if let Some(value) = value.filter(|value| *value > most) {
            errors.push(FieldError::invalid(path.field(field), value, detail));
        }
    };
    let (completions, parallelism) = (number("completions"), number("parallelism"));
    let detail = format!("must be less than or equal to {MOST} when completion mode is Indexed");
    at_most("parallelism", parallelism, MOST, detail);
    if let Some(completions) = completions {
        let detail = "must be less than or equal to completions";
        at_most("maxFailedIndexes", most_failed, completions, detail.into());
    }
    at_most("maxFailedIndexes", most_failed, MOST, format!("must be less than or equal to {MOST}"));
    let many = completions.is_some_and(|completions| completions > MOST) && per_index.is_some();
    if many {
        let detail = format!(
            "must be less than or equal to {MOST_OF_MANY} when completions are above {MOST} and used with backoff \
             limit per index"
        );
        at_most("parallelism", parallelism, MOST_OF_MANY, detail.clone());
        at_most("maxFailedIndexes", most_failed, MOST_OF_MANY, detail);
    }
    if completions.is_none() {
        errors.push(FieldError::required(path.field("completions"), "when completion mode is Indexed"));
    }
    if many && most_failed.is_none() {
        let detail = format!("must be specified when completions is above {MOST}");
        errors.push(FieldError::required(path.field("maxFailedIndexes"), detail));
    }
}

pub(super) fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    validate(new, errors);
    let spec = &new["spec"];
    if !is_indexed(spec) {
        immutable(new, old, "/spec/completions", "spec.completions", errors);
    } else if let Some(completions) = spec["completions"].as_i64()
        && spec["completions"] != old["spec"]["completions"]
        && spec["completions"] != spec["parallelism"]
    {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.push(FieldError::invalid("spec.completions", completions, detail));
    }
    let old = &with_movable_placement(new, old);
    for (pointer, path) in [
        ("/spec/selector", "spec.selector"),
        ("/spec/template", "spec.template"),
        ("/spec/completionMode", "spec.completionMode"),
        ("/spec/podFailurePolicy", "spec.podFailurePolicy"),
        ("/spec/backoffLimitPerIndex", "spec.backoffLimitPerIndex"),
        ("/spec/managedBy", "spec.managedBy"),
        ("/spec/successPolicy", "spec.successPolicy"),
    ] {
        immutable(new, old, pointer, path, errors);
    }
}

/// The old job as it may have been: one that is held and never began may yet go elsewhere.
fn with_movable_placement(new: &Value, old: &Value) -> Value {
    let mut old = old.clone();
    if old["spec"]["suspend"].as_bool() != Some(true) || old["status"].get("startTime").is_some() {
        return old;
    }
    for pointer in [
        "/spec/template/metadata/labels",
        "/spec/template/metadata/annotations",
        "/spec/template/spec/nodeSelector",
        "/spec/template/spec/tolerations",
        "/spec/template/spec/schedulingGates",
    ] {
        let Some((parent, field)) = pointer.rsplit_once('/') else { continue };
        let moved = new.pointer(pointer).cloned();
        match (old.pointer_mut(parent), moved) {
            (Some(parent), Some(moved)) => json::set(parent, field, moved),
            (Some(parent), None) => {
                json::remove(parent, field);
            }
            (None, _) => {}
        }
    }
    if let Some(spec) = old.pointer_mut("/spec/template/spec") {
        move_node_affinity(&new["spec"]["template"]["spec"], spec);
    }
    old
}

/// Gives the old pod the affinity to nodes that the new one has. It may come and go with the whole affinity, as long
/// as nothing else is in that.
fn move_node_affinity(new: &Value, old: &mut Value) {
    const FIELD: &str = "nodeAffinity";
    let Some(new) = new.get("affinity") else {
        if let Some(held) = old.get_mut("affinity") {
            json::remove(held, FIELD);
            if held.as_object().is_some_and(serde_json::Map::is_empty) {
                json::remove(old, "affinity");
            }
        }
        return;
    };
    let Some(held) = json::object_at(old, "affinity") else { return };
    match new.get(FIELD) {
        Some(moved) => json::set(held, FIELD, moved.clone()),
        None => {
            json::remove(held, FIELD);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(status: &Value, from: &Value, to: &Value, expected: bool) {
        let kind = crate::Registry::builtin().find("batch", "v1", "jobs").unwrap();
        let job = |affinity: &Value| {
            let mut job = json!({"apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": "j", "namespace": "n"},
                "spec": {"suspend": true, "template": {"spec":
                    {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
            if !affinity.is_null() {
                job["spec"]["template"]["spec"]["affinity"] = affinity.clone();
            }
            kind.default(&mut job);
            job["status"] = status.clone();
            job
        };
        let errors: Vec<String> =
            kind.validate_update(&job(to), &job(from), None).iter().map(ToString::to_string).collect();
        let refused = errors.iter().any(|error| error.starts_with("spec.template: Invalid value"));
        assert_eq!(!refused, expected, "{from} to {to}: {errors:#?}");
    }

    #[test]
    fn a_job_that_never_began_may_be_given_an_affinity_to_nodes_and_lose_it() {
        let here = json!({"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}});
        let near = json!({"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}]});
        let (none, nodes) = (Value::Null, json!({"nodeAffinity": here}));
        let (pods, both) = (json!({"podAffinity": near}), json!({"nodeAffinity": here, "podAffinity": near}));
        for (from, to, expected) in [
            (&none, &nodes, true),
            (&nodes, &none, true),
            (&pods, &both, true),
            (&both, &pods, true),
            (&none, &both, false),
            (&both, &none, false),
            (&none, &pods, false),
            (&pods, &none, false),
            (&pods, &nodes, false),
        ] {
            check(&json!({}), from, to, expected);
        }
        check(&json!({"startTime": "2026-01-01T00:00:00Z"}), &none, &nodes, false);
    }
}
