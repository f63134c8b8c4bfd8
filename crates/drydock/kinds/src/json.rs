//! Small steps in JSON objects.

use drydock_schema::Schema;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::quantity::Quantity;

/// Sets `object.field`; nothing happens when `object` is not an object.
pub(crate) fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut() {
        map.insert(field.to_owned(), value.into());
    }
}

/// Sets `object.field` where nothing is.
pub(crate) fn default(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut()
        && map.get(field).is_none_or(Value::is_null)
    {
        map.insert(field.to_owned(), value.into());
    }
}

/// Sets `object.field` where nothing or an empty string is: how Kubernetes defaults fields that
/// are not pointers.
pub(crate) fn default_text(object: &mut Value, field: &str, value: &str) {
    if text(object, field).is_empty()
        && object.get(field).is_none_or(|value| value.is_null() || value.is_string())
    {
        set(object, field, value);
    }
}

/// Sets `object.field` where nothing or zero is.
pub(crate) fn default_number(object: &mut Value, field: &str, value: i64) {
    if object.get(field).is_none_or(|value| value.is_null() || value.as_i64() == Some(0)) {
        set(object, field, value);
    }
}

/// Removes `object.field`.
pub(crate) fn remove(object: &mut Value, field: &str) -> Option<Value> {
    object.as_object_mut().and_then(|map| map.remove(field))
}

/// Makes a field what it is in `old`, or removes it where there is none.
pub(crate) fn put_back(object: &mut Value, old: &Value, field: &str) {
    match old.get(field) {
        Some(value) => set(object, field, value.clone()),
        None => {
            remove(object, field);
        }
    }
}

/// `object.field` as text; empty when it is missing or something else.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// `object.field` as a list; empty when it is missing or something else.
pub(crate) fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// `object.field` as a list to change; empty when it is missing or something else.
pub(crate) fn list_mut<'a>(object: &'a mut Value, field: &str) -> &'a mut [Value] {
    object.get_mut(field).and_then(Value::as_array_mut).map(Vec::as_mut_slice).unwrap_or_default()
}

/// `object.field` as a map.
pub(crate) fn map<'a>(object: &'a Value, field: &str) -> Option<&'a Map<String, Value>> {
    object.get(field).and_then(Value::as_object)
}

/// `object.field`, made an empty object where there is none. Nothing when `object` is not an
/// object or the field is something else.
pub(crate) fn object_at<'a>(object: &'a mut Value, field: &str) -> Option<&'a mut Value> {
    let entry = object.as_object_mut()?.entry(field).or_insert(Value::Null);
    if entry.is_null() {
        *entry = Value::Object(Map::new());
    }
    entry.is_object().then_some(entry)
}

/// The value at a path of plain fields, `spec.nodeName` or `.spec.nodeName`.
pub(crate) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.trim_start_matches('.').split('.').try_fold(object, |value, field| value.get(field))
}

/// The value at a path of plain fields, as field selectors compare it.
pub(crate) fn text_at(object: &Value, path: &str) -> String {
    match at(object, path) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    }
}

/// Whether two values say the same; `null` says as much as nothing.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(name, value)| same(value, b.get(name).unwrap_or(&Value::Null)))
                && b.iter().all(|(name, value)| value.is_null() || a.contains_key(name))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        _ => a == b,
    }
}

/// Writes amounts and times in their one form.
pub(crate) fn canonical(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, child) in fields.iter_mut() {
                if let Some(known) = schema.field(name) {
                    canonical(known, child);
                }
            }
        }
        Value::Array(items) => {
            if let Some(known) = &schema.items {
                items.iter_mut().for_each(|item| canonical(known, item));
            }
        }
        Value::String(_) | Value::Number(_) => match (schema.format.as_deref(), schema.name.as_deref()) {
            (Some("quantity"), _) => canonical_quantity(value),
            (Some("date-time"), name) => {
                canonical_time(value, name.is_some_and(|name| name.ends_with(".MicroTime")));
            }
            _ => {}
        },
        Value::Null | Value::Bool(_) => {}
    }
}

/// `0.1` becomes `100m`. What is no amount stays, and is refused later.
fn canonical_quantity(value: &mut Value) {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Ok(quantity) = Quantity::parse(&text) {
        *value = quantity.to_string().into();
    }
}

/// Times are in UTC, to the second, or to the microsecond where that is their type.
fn canonical_time(value: &mut Value, micro: bool) {
    let Some(Ok(time)) = value.as_str().map(str::parse::<Timestamp>) else { return };
    let format = if micro { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    *value = time.strftime(format).to_string().into();
}
