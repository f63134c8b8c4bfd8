//! What may change in a pod: almost nothing.

use drydock_schema::FieldError;
use serde_json::Value;

use super::{container::image_without_blanks, placement, validate::spec_of_pod};
use crate::{json, path::Path};

/// The fields that may change, as Kubernetes lists them.
const CHANGEABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
                          `spec.tolerations` (only additions to existing tolerations),\
                          `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// What is wrong with a change of a pod.
pub(super) fn validate(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (new, old) = (&new["spec"], &old["spec"]);
    spec_of_pod(new, &Path::new("spec"), errors);
    for field in ["containers", "initContainers"] {
        let (new, old) = (json::list(new, field), json::list(old, field));
        if new.len() != old.len() {
            let detail = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(format!("spec.{field}"), detail));
            return;
        }
        for (index, container) in new.iter().enumerate() {
            if json::text(container, "image").is_empty() {
                errors.push(FieldError::required(format!("spec.{field}[{index}].image"), ""));
            }
            let (spec, list) = (Path::new("spec"), field);
            image_without_blanks(container, &spec.field(list).index(index), errors);
        }
    }
    if !deadline(new, old, errors) {
        return;
    }
    let kept = json::list(old, "tolerations").iter().all(|toleration| {
        json::list(new, "tolerations").iter().any(|other| same_toleration(toleration, other))
    });
    if !kept {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", detail));
    }
    gates(new, old, errors);
    let mut munged = with_old_changeables(new, old);
    if !json::list(old, "schedulingGates").is_empty() {
        placement::narrowed(new, old, errors);
        placement::with_old(&mut munged, old);
    }
    if !json::same(&munged, old) {
        let detail = format!(
            "pod updates may not change fields other than {CHANGEABLE}\n{}",
            difference(old, &munged)
        );
        errors.push(FieldError::forbidden("spec", detail));
    }
}

/// What holds a pod back from a node may go, and nothing may be added to it.
fn gates(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    const LIST: &str = "schedulingGates";
    for (index, gate) in json::list(new, LIST).iter().enumerate() {
        let name = json::text(gate, "name");
        if !json::list(old, LIST).iter().any(|old| json::text(old, "name") == name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(FieldError::forbidden(format!("spec.{LIST}[{index}].name"), detail));
        }
    }
}

/// What is wrong with a change of the containers that look into a pod: they may be added, and stay as they are.
pub(crate) fn ephemeral(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    const LIST: &str = "ephemeralContainers";
    let (new, old) = (&new["spec"], &old["spec"]);
    spec_of_pod(new, &Path::new("spec"), errors);
    for old in json::list(old, LIST) {
        let name = json::text(old, "name");
        let kept = json::list(new, LIST).iter().find(|new| json::text(new, "name") == name);
        let detail = match kept {
            None => format!("existing ephemeral containers {name:?} may not be removed\n"),
            Some(new) if !json::same(new, old) => {
                format!("existing ephemeral containers {name:?} may not be changed\n{}", difference(old, new))
            }
            Some(_) => continue,
        };
        errors.push(FieldError::forbidden(format!("spec.{LIST}"), detail));
    }
}

/// A deadline may be set or shortened. Answers whether it is worth looking further.
fn deadline(new: &Value, old: &Value, errors: &mut Vec<FieldError>) -> bool {
    const PATH: &str = "spec.activeDeadlineSeconds";
    match (new["activeDeadlineSeconds"].as_i64(), old["activeDeadlineSeconds"].as_i64()) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            let detail = crate::names::out_of_range(0, i64::from(i32::MAX));
            errors.push(FieldError::invalid(PATH, new, detail));
            false
        }
        (Some(new), Some(old)) if old < new => {
            errors.push(FieldError::invalid(PATH, new, "must be less than or equal to previous value"));
            false
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.push(FieldError::invalid(PATH, Value::Null, detail));
            true
        }
        _ => true,
    }
}

fn same_toleration(a: &Value, b: &Value) -> bool {
    ["key", "operator", "value", "effect"].iter().all(|field| json::text(a, field) == json::text(b, field))
}

/// `new` with everything that may change put back to what it was.
fn with_old_changeables(new: &Value, old: &Value) -> Value {
    let mut munged = new.clone();
    for field in ["containers", "initContainers"] {
        for (container, old) in json::list_mut(&mut munged, field).iter_mut().zip(json::list(old, field)) {
            json::set(container, "image", json::text(old, "image"));
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        json::put_back(&mut munged, old, field);
    }
    if old["terminationGracePeriodSeconds"].as_i64().is_some_and(|period| period < 0)
        && munged["terminationGracePeriodSeconds"].as_i64() == Some(1)
    {
        json::set(&mut munged, "terminationGracePeriodSeconds", old["terminationGracePeriodSeconds"].clone());
    }
    munged
}

/// Which fields differ, the old line before the new one.
fn difference(old: &Value, new: &Value) -> String {
    let mut lines = Vec::new();
    describe("", old, new, &mut lines);
    lines.join("\n")
}

fn describe(path: &str, old: &Value, new: &Value, lines: &mut Vec<String>) {
    if json::same(old, new) {
        return;
    }
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            let mut names: Vec<_> = a.keys().chain(b.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let (a, b) = (a.get(name).unwrap_or(&Value::Null), b.get(name).unwrap_or(&Value::Null));
                describe(&format!("{path}.{name}"), a, b, lines);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                describe(&format!("{path}[{index}]"), a, b, lines);
            }
        }
        _ => {
            let path = path.trim_start_matches('.');
            for (sign, value) in [("-", old), ("+", new)] {
                if !value.is_null() {
                    lines.push(format!("{sign} {path}: {value}"));
                }
            }
        }
    }
}
