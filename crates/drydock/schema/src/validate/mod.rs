//! Whether an object fulfils its schema, in the words of Kubernetes' API extensions server.
//!
//! [`shape`] checks, in this order: types, bounds, enumerations, patterns, formats and required
//! fields (`values`); what embedded objects need; that lists which are sets or maps hold nothing
//! twice (`lists`). [`rules`] evaluates CEL rules (`evaluate`), where the object is sound enough to
//! be looked at. [`object`] is both.
//!
//! On an update, what fails but did not change since `old` is let through (ratcheting), so that a
//! stricter schema does not block unrelated edits.

mod evaluate;
mod lists;
mod values;

use serde_json::Value;

use crate::{FieldError, FieldErrorKind, ListKind, MapKind, Schema};

/// The path of the whole object, as Kubernetes prints it.
pub(crate) const ROOT: &str = "<nil>";

/// Everything that is wrong with `new`, a whole object; nothing when it may be stored.
#[must_use]
pub fn object(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = shape(schema, new, old);
    rules(schema, new, old, &mut errors);
    errors
}

/// What is wrong with `new`, rules aside.
#[must_use]
pub fn shape(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = values::check(schema, new, old);
    embedded(schema, new, "", &mut errors);
    if old.is_none_or(|old| lists::check(schema, old).is_empty()) {
        errors.extend(lists::check(schema, new));
    }
    errors
}

/// Adds what the rules say of `new` to all that was found wrong before, or that they could not be asked.
pub fn rules(schema: &Schema, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if !schema.has_rules {
        return;
    }
    if errors.iter().any(blocks_rules) {
        errors.push(FieldError::invalid(
            ROOT,
            Value::Null,
            "some validation rules were not checked because the object was invalid; \
             correct the existing errors to complete validation",
        ));
    } else {
        errors.extend(evaluate::object(schema, new, old));
    }
}

/// What is wrong with a default: types and bounds, then rules, below `path`.
pub(crate) fn default(schema: &Schema, value: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = values::check(schema, value, None);
    let of_rules = errors.is_empty() && schema.has_rules;
    if of_rules {
        errors = evaluate::default(schema, value);
    }
    for error in &mut errors {
        error.path = match error.path.as_str() {
            ROOT | "" => path.to_owned(),
            // Kubernetes names an item of the default itself `default.[0]`, but in what it says of rules.
            inner if of_rules && inner.starts_with('[') => format!("{path}{inner}"),
            inner => format!("{path}.{inner}"),
        };
    }
    errors
}

fn blocks_rules(error: &FieldError) -> bool {
    matches!(
        error.kind,
        FieldErrorKind::NotSupported
            | FieldErrorKind::Required
            | FieldErrorKind::TooLong
            | FieldErrorKind::TooMany
            | FieldErrorKind::TypeInvalid
    )
}

/// The path of a field below `path`.
fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The field of the old object that a field of the new one is compared with.
fn old_field<'a>(schema: &Schema, old: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    if schema.map == MapKind::Atomic {
        return None;
    }
    old?.get(name)
}

/// The item of the old list that an item of the new one is compared with: the one of the same keys.
fn old_item<'a>(schema: &Schema, old: Option<&'a Value>, item: &Value) -> Option<&'a Value> {
    let ListKind::Map(keys) = &schema.list else { return None };
    let same =
        |other: &&Value| keys.iter().all(|key| key_of(schema, other, key) == key_of(schema, item, key));
    old?.as_array()?.iter().find(same)
}

fn key_of<'a>(schema: &'a Schema, item: &'a Value, key: &str) -> Option<&'a Value> {
    item.get(key).or_else(|| schema.items.as_ref()?.properties.get(key)?.default.as_ref())
}

/// Embedded objects must say what they are.
fn embedded(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            if schema.embedded_resource {
                for name in ["apiVersion", "kind"] {
                    let path = child(path, name);
                    match fields.get(name) {
                        None => errors.push(FieldError::required(path, "")),
                        Some(Value::String(text)) if text.is_empty() => {
                            errors.push(FieldError::invalid(path, "", "must not be empty"));
                        }
                        Some(Value::String(_)) => {}
                        Some(other) => {
                            errors.push(FieldError::invalid(path, other.clone(), "must be a string"))
                        }
                    }
                }
            }
            for (name, field) in fields {
                if let Some(known) = schema.properties.get(name) {
                    embedded(known, field, &child(path, name), errors);
                } else if let Some(known) = &schema.additional {
                    embedded(known, field, &format!("{path}[{name}]"), errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(known) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    embedded(known, item, &format!("{path}[{index}]"), errors);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
