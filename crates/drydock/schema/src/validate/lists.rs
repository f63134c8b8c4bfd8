//! Lists that are sets or maps hold nothing twice.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::child;
use crate::{FieldError, FieldErrorKind, ListKind, Schema};

pub(super) fn check(schema: &Schema, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, value, "", &mut errors);
    errors
}

fn walk(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if let Some(known) = schema.properties.get(name) {
                    walk(known, field, &child(path, name), errors);
                } else if let Some(known) = &schema.additional {
                    walk(known, field, &format!("{path}[{name}]"), errors);
                }
            }
        }
        Value::Array(items) => {
            match &schema.list {
                ListKind::Atomic => {}
                ListKind::Set => repeated(items.iter().cloned(), path, errors),
                ListKind::Map(keys) => map(items, keys, path, errors),
            }
            if let Some(known) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    walk(known, item, &format!("{path}[{index}]"), errors);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn map(items: &[Value], keys: &[String], path: &str, errors: &mut Vec<FieldError>) {
    for (index, item) in items.iter().enumerate() {
        if !item.is_null() && !item.is_object() {
            errors.push(FieldError::invalid(
                format!("{path}[{index}]"),
                item.clone(),
                "must be an object for an array of list-type map",
            ));
            return;
        }
    }
    let key_of = |item: &Value| {
        let fields = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
        Value::Object(Map::from_iter(fields))
    };
    repeated(items.iter().map(key_of), path, errors);
}

/// Names the second of several equal values, and no further one.
fn repeated(values: impl Iterator<Item = Value>, path: &str, errors: &mut Vec<FieldError>) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (index, value) in values.enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            errors.push(FieldError::new(
                FieldErrorKind::Duplicate,
                format!("{path}[{index}]"),
                Some(value),
                "",
            ));
        }
    }
}
