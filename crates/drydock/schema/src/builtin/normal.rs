//! A built-in object as Go writes it after having read it.

use serde_json::{Map, Value};

use super::{
    fields::{Field, Kind},
    table::{Entry, TABLE},
};

/// Brings an object into the form that Kubernetes stores and gives back: `null` goes, and so does
/// what Go's encoder leaves out; structs that are no pointers are there, if only as `{}`.
///
/// Fields that the definition does not know are left alone. Normalising twice changes nothing.
pub fn normalise(definition: &str, value: &mut Value) {
    if let Some(entry) = TABLE.get(definition) {
        object(entry, value);
    }
}

fn object(entry: &'static Entry, value: &mut Value) {
    let message = entry.message();
    if is_scalar(entry.name) || message.is_list {
        return;
    }
    let Value::Object(fields) = value else { return };
    struct_fields(entry, fields);
}

fn struct_fields(entry: &'static Entry, fields: &mut Map<String, Value>) {
    for field in &entry.message().fields {
        let target = match field.kind {
            Kind::Message(name) => TABLE.get(name),
            _ => None,
        };
        if field.inline {
            if let Some(target) = target {
                struct_fields(target, fields);
            }
            continue;
        }
        match fields.get_mut(&field.name) {
            Some(Value::Null) | None => {
                fields.remove(&field.name);
                if let Some(zero) = zero(field, target) {
                    fields.insert(field.name.clone(), zero);
                }
            }
            Some(value) => {
                inside(field, target, value);
                if is_left_out(field, value) {
                    fields.remove(&field.name);
                }
            }
        }
    }
}

fn inside(field: &Field, target: Option<&'static Entry>, value: &mut Value) {
    if let (true, Kind::String, Value::Object(values)) = (field.map, field.kind, &mut *value) {
        // Nothing, read into a string, is an empty one.
        values.values_mut().filter(|value| value.is_null()).for_each(|value| *value = "".into());
    }
    let Some(target) = target else { return };
    match value {
        Value::Array(items) if field.repeated => items.iter_mut().for_each(|item| object(target, item)),
        Value::Object(values) if field.map => values.values_mut().for_each(|value| object(target, value)),
        value => object(target, value),
    }
}

fn is_left_out(field: &Field, value: &Value) -> bool {
    if field.pointer || !field.omit_empty {
        return false;
    }
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty() && !matches!(field.kind, Kind::Message(_)),
        Value::Number(number) => number.as_f64() == Some(0.0) && !matches!(field.kind, Kind::Message(_)),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() && field.map,
        Value::Bool(true) => false,
    }
}

/// What Go writes for a field that was not given: an empty struct, or no time at all.
fn zero(field: &Field, target: Option<&'static Entry>) -> Option<Value> {
    let target = target?;
    if field.pointer || field.repeated || field.map || field.omit_zero || target.message().is_list {
        return None;
    }
    match target.name.rsplit('.').next()? {
        "Time" | "MicroTime" => Some(Value::Null),
        "Quantity" => Some("0".into()),
        _ if is_scalar(target.name) => None,
        _ => {
            let mut value = Value::Object(Map::new());
            object(target, &mut value);
            Some(value)
        }
    }
}

/// Types that are no structs in JSON, and those whose inside is nobody's business.
fn is_scalar(name: &str) -> bool {
    let Some((_, local)) = name.rsplit_once('.') else { return false };
    matches!(local, "Quantity" | "IntOrString" | "Time" | "MicroTime" | "RawExtension" | "FieldsV1")
        || local.starts_with("JSON")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::json;

    #[track_caller]
    fn check(definition: &str, given: &str, expected: &str) {
        let read = |text: &str| json::parse_yaml(text.as_bytes()).expect("YAML").value;
        let (mut value, expected) = (read(given), read(expected));
        normalise(definition, &mut value);
        assert_eq!(value, expected);
        normalise(definition, &mut value);
        assert_eq!(value, expected, "twice");
    }

    #[test]
    fn what_go_leaves_out_goes_and_what_it_writes_is_there() {
        check(
            "io.k8s.api.apps.v1.Deployment",
            "{metadata: {name: x, labels: {}, creationTimestamp: null}, spec: {replicas: 0, paused: false, minReadySeconds: 0, selector: {matchLabels: {a: b}}, template: {spec: {hostNetwork: false, automountServiceAccountToken: false, volumes: [{name: v, emptyDir: {}}], containers: [{name: c, image: '', args: [], env: [{name: E, value: ''}], ports: null}]}}}, unknown: null}",
            "{metadata: {name: x}, spec: {replicas: 0, selector: {matchLabels: {a: b}}, strategy: {}, template: {metadata: {}, spec: {automountServiceAccountToken: false, volumes: [{name: v, emptyDir: {}}], containers: [{name: c, resources: {}, env: [{name: E}]}]}}}, status: {}, unknown: null}",
        );
    }

    #[test]
    fn times_that_are_not_given_are_null() {
        check(
            "io.k8s.api.core.v1.PodStatus",
            "{conditions: [{type: Ready, status: 'True', lastTransitionTime: '2024-01-01T00:00:00Z'}]}",
            "{conditions: [{type: Ready, status: 'True', lastProbeTime: null, lastTransitionTime: '2024-01-01T00:00:00Z'}]}",
        );
    }

    #[test]
    fn a_definition_that_is_not_there_changes_nothing() {
        let mut value = json!({"a": null});
        normalise("io.example.Thing", &mut value);
        assert_eq!(value, json!({"a": null}));
    }
}
