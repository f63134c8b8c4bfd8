//! Server-side apply by force, as far as tests of operators need it.

use serde_json::{Map, Value, json};

/// The keys of a list that is a map, each with its default.
type Keys = &'static [(&'static str, Option<&'static str>)];

/// Lists that are maps, and their keys. A key that an item lacks is written with the default behind it.
const MAPS: &[(&str, Keys)] = &[
    ("containers", &[("name", None)]),
    ("initContainers", &[("name", None)]),
    ("volumes", &[("name", None)]),
    ("env", &[("name", None)]),
    ("volumeMounts", &[("mountPath", None)]),
    ("conditions", &[("type", None)]),
    ("ownerReferences", &[("uid", None)]),
    ("topologySpreadConstraints", &[("topologyKey", None), ("whenUnsatisfiable", None)]),
];
const CONTAINER_PORTS: Keys = &[("containerPort", None), ("protocol", Some("TCP"))];
const SERVICE_PORTS: Keys = &[("port", None), ("protocol", Some("TCP"))];

/// Values that are owned whole.
const ATOMS: &[&str] =
    &["selector", "labelSelector", "fieldRef", "resourceFieldRef", "secretKeyRef", "configMapKeyRef"];

/// The live object after an apply, with the entry of `manager` in its managedFields and none of anyone else's
/// claims on what was taken.
pub(crate) fn apply(live: Option<Value>, want: &Value, manager: &str, subresource: Option<&str>) -> Value {
    let mut result = live.unwrap_or_else(|| json!({}));
    let before = result.clone();
    let mut others: Vec<Value> = result["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let ours = |entry: &Value| {
        entry["manager"] == manager
            && entry["operation"] == "Apply"
            && entry["subresource"].as_str() == subresource
    };
    if let Some(old) = others.iter().find(|entry| ours(entry)).and_then(|entry| entry["fieldsV1"].as_object())
    {
        prune(&mut result, old, want, "");
    }
    others.retain(|entry| !ours(entry));
    merge(&mut result, want, "");
    let fields = fields_of(&claimed(want), "");
    for other in &mut others {
        disown(&mut other["fieldsV1"], &fields);
    }
    let api_version = want["apiVersion"].clone();
    let mut entry = json!({
        "manager": manager, "operation": "Apply", "apiVersion": api_version, "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    });
    if let Some(subresource) = subresource {
        entry["subresource"] = json!(subresource);
    }
    others.push(entry);
    if before["spec"] != result["spec"] {
        let generation = before["metadata"]["generation"].as_i64().unwrap_or(0);
        result["metadata"]["generation"] = json!(generation + 1);
    }
    result["metadata"]["managedFields"] = Value::Array(others);
    result
}

fn claimed(want: &Value) -> Value {
    let mut want = want.clone();
    if let Some(map) = want.as_object_mut() {
        map.remove("apiVersion");
        map.remove("kind");
        if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("name");
            metadata.remove("namespace");
            if metadata.is_empty() {
                map.remove("metadata");
            }
        }
    }
    want
}

fn keys_of(field: &str, list: &[Value]) -> Option<Keys> {
    if field == "ports" {
        let in_container = list.iter().any(|item| item.get("containerPort").is_some());
        return Some(if in_container { CONTAINER_PORTS } else { SERVICE_PORTS });
    }
    MAPS.iter().find(|(name, _)| *name == field).map(|(_, keys)| *keys)
}

fn key_of(item: &Value, keys: Keys) -> Map<String, Value> {
    keys.iter()
        .filter_map(|(name, default)| {
            let value = item.get(*name).cloned().or_else(|| default.map(Value::from))?;
            Some(((*name).to_owned(), value))
        })
        .collect()
}

fn fields_of(value: &Value, field: &str) -> Value {
    match value {
        Value::Object(map) if !ATOMS.contains(&field) => Value::Object(
            map.iter().map(|(name, value)| (format!("f:{name}"), fields_of(value, name))).collect(),
        ),
        Value::Array(list) => match keys_of(field, list) {
            None => json!({}),
            Some(keys) => {
                let item = |item: &Value| {
                    let key = format!("k:{}", Value::Object(key_of(item, keys)));
                    let mut fields = if field == "ownerReferences" { json!({}) } else { fields_of(item, "") };
                    if let Some(map) = fields.as_object_mut().filter(|map| !map.is_empty()) {
                        map.insert(".".to_owned(), json!({}));
                    }
                    (key, fields)
                };
                Value::Object(list.iter().map(item).collect())
            }
        },
        _ => json!({}),
    }
}

fn merge(live: &mut Value, want: &Value, field: &str) {
    match want {
        Value::Object(map) if !ATOMS.contains(&field) && live.is_object() => {
            for (name, wanted) in map {
                merge(&mut live[name.as_str()], wanted, name);
            }
        }
        Value::Array(list) if keys_of(field, list).is_some() => {
            let keys = keys_of(field, list).unwrap_or_default();
            let mut items = live.as_array().cloned().unwrap_or_default();
            for wanted in list {
                let key = key_of(wanted, keys);
                let found = items.iter_mut().find(|item| key_of(item, keys) == key);
                match found {
                    Some(item) => merge(item, wanted, ""),
                    None => {
                        let mut item = wanted.clone();
                        if let Some(map) = item.as_object_mut() {
                            map.extend(key);
                        }
                        items.push(item);
                    }
                }
            }
            *live = Value::Array(items);
        }
        Value::Object(map) if !ATOMS.contains(&field) => {
            *live = json!({});
            for (name, wanted) in map {
                merge(&mut live[name.as_str()], wanted, name);
            }
        }
        other => *live = other.clone(),
    }
}

/// Takes away what was ours and is no longer wanted.
fn prune(live: &mut Value, owned: &Map<String, Value>, want: &Value, field: &str) {
    for (key, fields) in owned {
        if let Some(name) = key.strip_prefix("f:") {
            match want.get(name) {
                None => {
                    if let Some(map) = live.as_object_mut() {
                        map.remove(name);
                    }
                }
                Some(wanted) => {
                    if let Some(fields) = fields.as_object().filter(|fields| !fields.is_empty()) {
                        prune(&mut live[name], fields, wanted, name);
                    }
                }
            }
        } else if let Some(json) = key.strip_prefix("k:") {
            let key: Map<String, Value> = serde_json::from_str(json).unwrap_or_default();
            let Some(items) = live.as_array_mut() else { continue };
            let keys = keys_of(field, items).unwrap_or_default();
            let wanted = want.as_array().and_then(|list| list.iter().find(|item| key_of(item, keys) == key));
            match wanted {
                None => items.retain(|item| key_of(item, keys) != key),
                Some(wanted) => {
                    if let (Some(item), Some(fields)) =
                        (items.iter_mut().find(|item| key_of(item, keys) == key), fields.as_object())
                    {
                        prune(item, fields, wanted, "");
                    }
                }
            }
        }
    }
}

/// Takes `taken` out of what another manager owns.
fn disown(owned: &mut Value, taken: &Value) {
    let (Some(owned), Some(taken)) = (owned.as_object_mut(), taken.as_object()) else { return };
    for (key, below) in taken {
        if below.as_object().is_some_and(Map::is_empty) {
            owned.remove(key);
        } else if let Some(mine) = owned.get_mut(key) {
            disown(mine, below);
            if mine.as_object().is_some_and(Map::is_empty) {
                owned.remove(key);
            }
        }
    }
}
