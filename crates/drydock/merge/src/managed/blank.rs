//! The object from which a create starts.
//!
//! A custom resource starts from nothing. A built-in kind starts from a value of its Go type,
//! and that already has some fields: structs that are not behind a pointer, and fields that are
//! written even when empty. Who creates the object owns what it puts into these, but not the
//! fields themselves.

use drydock_schema::{Schema, Type};
use serde_json::{Map, Value};

/// Structs that are part of their parent although nothing requires them.
const ALWAYS_THERE: &[&str] = &[
    "acceptedNames",
    "daemonEndpoints",
    "deprecatedSource",
    "devices",
    "jobTemplate",
    "kubeletEndpoint",
    "loadBalancer",
    "metadata",
    "nodeInfo",
    "podSelector",
    "resources",
    "source",
    "spec",
    "status",
    "strategy",
    "template",
    "updateStrategy",
    "user",
    "userInfo",
];

/// Fields of an Event, and one of a StatefulSet, that are written even when they are empty.
const WRITTEN_WHEN_EMPTY: &[(&str, Option<&str>)] = &[
    ("deprecatedFirstTimestamp", None),
    ("deprecatedLastTimestamp", None),
    ("eventTime", None),
    ("firstTimestamp", None),
    ("lastTimestamp", None),
    ("reportingComponent", Some("")),
    ("reportingInstance", Some("")),
    ("serviceName", Some("")),
];

/// The object that a create of this kind starts from.
pub(super) fn blank(schema: &Schema) -> Value {
    let mut fields = Map::new();
    if schema.name.is_some() {
        for (name, child) in &schema.properties {
            let required = schema.required.contains(name);
            let is_struct = child.kind == Type::Object && child.name.is_some();
            if is_struct && (required || ALWAYS_THERE.contains(&name.as_str())) {
                fields.insert(name.clone(), blank(child));
            } else if let Some((_, empty)) = WRITTEN_WHEN_EMPTY.iter().find(|(field, _)| field == name) {
                fields.insert(name.clone(), empty.map_or(Value::Null, Value::from));
            } else if required {
                let zero = match child.kind {
                    Type::String => Value::String(String::new()),
                    Type::Integer | Type::Number => Value::from(0),
                    Type::Boolean => Value::Bool(false),
                    _ => Value::Null,
                };
                fields.insert(name.clone(), zero);
            }
        }
    }
    Value::Object(fields)
}
