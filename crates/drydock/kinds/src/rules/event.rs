//! Events, in both groups.

use drydock_schema::FieldError;
use serde_json::{Value, json};

use super::{PLAIN, Rules};
use crate::{json, names};

/// Fields that events can be selected by, in the names of the core group.
pub(crate) const FIELDS: &[&str] = &[
    "involvedObject.apiVersion",
    "involvedObject.fieldPath",
    "involvedObject.kind",
    "involvedObject.name",
    "involvedObject.namespace",
    "involvedObject.resourceVersion",
    "involvedObject.uid",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

pub(crate) const CORE: Rules = Rules {
    default: default_core,
    validate: |object, errors| validate(object, &CORE_NAMES, errors),
    validate_update: |new, _, errors| validate(new, &CORE_NAMES, errors),
    ..PLAIN
};

pub(crate) const NEW: Rules = Rules {
    default: |object| {
        json::default(object, "regarding", json!({}));
        json::default(object, "deprecatedSource", json!({}));
    },
    validate: |object, errors| {
        validate(object, &NEW_NAMES, errors);
        validate_new(object, errors);
    },
    validate_update: |new, _, errors| validate(new, &NEW_NAMES, errors),
    ..PLAIN
};

/// How a group spells the fields that are checked.
struct Names {
    object: &'static str,
    controller: &'static str,
    message: &'static str,
}

const CORE_NAMES: Names =
    Names { object: "involvedObject", controller: "reportingComponent", message: "message" };
const NEW_NAMES: Names = Names { object: "regarding", controller: "reportingController", message: "note" };

fn default_core(object: &mut Value) {
    json::default(object, "source", json!({}));
    json::default(object, "reportingComponent", "");
    json::default(object, "reportingInstance", "");
    json::default(object, "involvedObject", json!({}));
}

/// An event belongs to the namespace of what it is about; one with a time of its own says who
/// reports it and what was done. Kubernetes speaks of the object as `involvedObject` in both groups.
fn validate(object: &Value, spelled: &Names, errors: &mut Vec<FieldError>) {
    const MISMATCH: &str = "does not match event.namespace";
    let namespace = json::text(&object["metadata"], "namespace");
    let about = json::text(&object[spelled.object], "namespace");
    let timed = !json::text(object, "eventTime").is_empty();
    let matches = if about.is_empty() {
        namespace == "default" || (timed && namespace == "kube-system")
    } else {
        timed || namespace == about
    };
    if !matches {
        errors.push(FieldError::invalid("involvedObject.namespace", about, MISMATCH));
    }
    if !timed {
        return;
    }
    let controller = json::text(object, spelled.controller);
    if controller.is_empty() {
        errors.push(FieldError::required(spelled.controller, ""));
    }
    for message in names::qualified_name(controller) {
        errors.push(FieldError::invalid(spelled.controller, controller, message));
    }
    for (field, most) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        let value = json::text(object, field);
        if value.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if value.len() > most {
            errors.push(FieldError::invalid(field, "", format!("can have at most {most} characters")));
        }
    }
    if json::text(object, spelled.message).len() > 1024 {
        errors.push(FieldError::invalid("message", "", "can have at most 1024 characters"));
    }
}

/// The new group is stricter.
fn validate_new(object: &Value, errors: &mut Vec<FieldError>) {
    if json::text(object, "eventTime").is_empty() {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = json::text(object, "type");
    if !["Normal", "Warning"].contains(&kind) {
        errors.push(FieldError::invalid("type", "", format!("has invalid value: {kind}")));
    }
    for (field, shown) in [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
    ] {
        if object.get(field).is_some_and(|value| !value.is_null()) {
            errors.push(FieldError::invalid(shown, "", "needs to be unset"));
        }
    }
    if json::map(object, "deprecatedSource").is_some_and(|source| !source.is_empty()) {
        errors.push(FieldError::invalid("source", "", "needs to be unset"));
    }
}

/// The value of a selectable field of an event in the stored form.
pub(crate) fn field(field: &str, object: &Value) -> String {
    if field == "source" {
        let source = json::text(&object["source"], "component");
        let source = if source.is_empty() { json::text(object, "reportingComponent") } else { source };
        return source.to_owned();
    }
    json::text_at(object, field)
}

/// The stored name of a field of a selector.
pub(crate) fn field_label(new_group: bool, label: &str) -> Option<String> {
    let core = if new_group {
        match label.split_once('.') {
            Some(("regarding", rest)) => format!("involvedObject.{rest}"),
            _ if label == "reportingController" => "reportingComponent".to_owned(),
            _ if matches!(label, "reason" | "type") => label.to_owned(),
            _ => return None,
        }
    } else {
        label.to_owned()
    };
    FIELDS.contains(&core.as_str()).then_some(core)
}
