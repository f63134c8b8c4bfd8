//! What makes a built-in kind special, beyond its names and its shape.

pub(crate) mod address;
pub(crate) mod batch;
pub(crate) mod config;
pub(crate) mod core;
pub(crate) mod definition;
pub(crate) mod endpoints;
pub(crate) mod event;
pub(crate) mod node_labels;
pub(crate) mod pod;
pub(crate) mod policy;
pub(crate) mod rbac;
pub(crate) mod resources;
pub(crate) mod selector;
pub(crate) mod service;
pub(crate) mod storage;
pub(crate) mod workload;

use drydock_schema::{FieldError, FieldErrorKind};
use serde_json::Value;

use crate::{json, names, path::Path};

/// The functions of a row. Each does nothing unless the row says otherwise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Sets what was not given.
    pub default: fn(&mut Value),
    /// What the server says at creation.
    pub create: fn(&mut Value),
    /// What an update keeps of the old object, beyond status and metadata.
    pub update: fn(&mut Value, &Value),
    /// What an update of the status keeps of the old object, beyond everything but the status.
    pub status: fn(&mut Value, &Value),
    /// What is wrong with a new object.
    pub validate: fn(&Value, &mut Vec<FieldError>),
    /// What is wrong with a change.
    pub validate_update: fn(&Value, &Value, &mut Vec<FieldError>),
    /// What is wrong with a change of the status.
    pub validate_status: fn(&Value, &Value, &mut Vec<FieldError>),
    /// What is not wrong with a new object, or one that is to take the place of an old one, and yet worth saying.
    pub warnings: fn(&Value, Option<&Value>) -> Vec<String>,
    /// The same of a new status.
    pub status_warnings: fn(&Value) -> Vec<String>,
    /// How long a deleted object lives on, given for how long it was asked to.
    pub grace: fn(&Value, Option<i64>) -> Option<i64>,
}

/// A kind without rules of its own.
pub(crate) const PLAIN: Rules = Rules {
    default: |_| {},
    create: |_| {},
    update: |_, _| {},
    status: |_, _| {},
    validate: |_, _| {},
    validate_update: |_, _, _| {},
    validate_status: |_, _, _| {},
    warnings: |_, _| Vec::new(),
    status_warnings: |_| Vec::new(),
    grace: |_, _| None,
};

/// The specification is new, or was counted as another than the old one.
pub(crate) fn counted(new: &Value, old: Option<&Value>) -> bool {
    old.is_none_or(|old| new["metadata"]["generation"] != old["metadata"]["generation"])
}

/// What is worth saying about the name of what makes pods, when it is new.
pub(crate) fn name_of_pods(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    let wrong = names::dns_label(json::text(&new["metadata"], "name"));
    if old.is_none() && !wrong.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
             label is recommended: [{}]",
            wrong.join(" ")
        ));
    }
}

/// What is worth saying about annotations that have a better place, each with what is said of it.
pub(crate) fn deprecated_annotations(object: &Value, known: &[(&str, &str)], warnings: &mut Vec<String>) {
    for (name, message) in known.iter().filter(|(name, _)| is_annotated(object, name)) {
        warnings.push(format!("metadata.annotations[{name}]: {message}"));
    }
}

/// Whether the object has an annotation of this name.
pub(crate) fn is_annotated(object: &Value, name: &str) -> bool {
    json::map(&object["metadata"], "annotations").is_some_and(|annotations| annotations.contains_key(name))
}

/// `Unsupported value: "x": supported values: "a", "b"`.
pub(crate) fn not_supported(path: impl Into<String>, value: &str, supported: &[&str]) -> FieldError {
    let supported: Vec<_> = supported.iter().map(|value| format!("{value:?}")).collect();
    let detail = format!("supported values: {}", supported.join(", "));
    FieldError::new(FieldErrorKind::NotSupported, path, Some(value.into()), detail)
}

/// `Duplicate value: "x"`.
pub(crate) fn duplicate(path: impl Into<String>, value: impl Into<Value>) -> FieldError {
    FieldError::new(FieldErrorKind::Duplicate, path, Some(value.into()), "")
}

/// `must be greater than or equal to 0`, for a number that is there.
pub(crate) fn not_negative(object: &Value, field: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some(number) = object.get(field).and_then(Value::as_i64)
        && number < 0
    {
        errors.push(FieldError::invalid(path.field(field), number, "must be greater than or equal to 0"));
    }
}

/// `field is immutable`, when the values at a pointer differ.
pub(crate) fn immutable(new: &Value, old: &Value, pointer: &str, path: &str, errors: &mut Vec<FieldError>) {
    let at = |object: &Value| object.pointer(pointer).cloned().unwrap_or_default();
    if !json::same(&at(new), &at(old)) {
        let value = at(new);
        errors.push(FieldError::invalid(path, value, "field is immutable"));
    }
}

/// A number of pods, or a part of them in percent.
pub(crate) fn number_or_percent(value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::String(text) => {
            for message in names::percent(text) {
                errors.push(FieldError::invalid(path, text.as_str(), message));
            }
        }
        Value::Number(number) if number.as_i64().is_some_and(|number| number < 0) => {
            errors.push(FieldError::invalid(path, value.clone(), "must be greater than or equal to 0"));
        }
        _ => {}
    }
}

/// `must not be greater than 100%`.
pub(crate) fn at_most_all(value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let percent =
        value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|text| text.parse::<i64>().ok());
    if percent.is_some_and(|percent| percent > 100) {
        errors.push(FieldError::invalid(path, value.clone(), "must not be greater than 100%"));
    }
}

/// The fields of an object in the order in which Kubernetes' own type has them, as it prints them in
/// errors.
pub(crate) fn in_order(fields: &[(&str, &Value)]) -> String {
    let fields: Vec<_> =
        fields.iter().map(|(name, value)| format!("{}:{value}", Value::from(*name))).collect();
    format!("{{{}}}", fields.join(","))
}

/// An error whose value is printed as `shown`.
pub(crate) fn showing(mut error: FieldError, shown: String) -> FieldError {
    error.shown = Some(shown.into_boxed_str());
    error
}
