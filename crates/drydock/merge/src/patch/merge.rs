//! Merge patch (RFC 7386).

use serde_json::{Map, Value};

use super::PatchError;
use crate::wording;

/// The object with the patch merged in: objects field by field, `null` removes, everything else
/// replaces.
#[must_use]
pub fn merge(live: &Value, patch: &Value) -> Value {
    match (live, patch) {
        (Value::Object(live), Value::Object(patch)) => Value::Object(fields(live, patch)),
        _ => without_nulls(patch),
    }
}

/// Refuses a patch that is not an object.
///
/// # Errors
///
/// When it is not.
pub fn require_object(patch: &Value) -> Result<(), PatchError> {
    match patch {
        Value::Object(_) => Ok(()),
        Value::Null => Err(PatchError::BadRequest("Invalid JSON Patch".to_owned())),
        other => Err(PatchError::BadRequest(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            wording::json_kind(other)
        ))),
    }
}

fn fields(live: &Map<String, Value>, patch: &Map<String, Value>) -> Map<String, Value> {
    let mut out = Map::new();
    for (name, value) in live {
        match patch.get(name) {
            None => {
                out.insert(name.clone(), value.clone());
            }
            Some(Value::Null) => {}
            Some(patch) => {
                let merged = match (value, patch) {
                    (Value::Object(value), Value::Object(patch)) => Value::Object(fields(value, patch)),
                    (Value::Object(_), patch) => patch.clone(),
                    (_, patch) => without_nulls(patch),
                };
                out.insert(name.clone(), merged);
            }
        }
    }
    for (name, value) in patch {
        if !value.is_null() && !live.contains_key(name) {
            out.insert(name.clone(), without_nulls(value));
        }
    }
    out
}

/// What is new has nothing that a `null` could remove.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name.clone(), without_nulls(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        scalar => scalar.clone(),
    }
}
