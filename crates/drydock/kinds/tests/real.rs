//! What a real API server made of the same objects: `tests/real/*.json` were recorded from
//! Kubernetes v1.34, with what it alone can know (uid, revision, times, addresses) left out.

#![expect(clippy::expect_used, reason = "a failure here is the answer, not an accident")]

use drydock_kinds::{Kind, Registry};
use serde_json::Value;

const DEFAULTS: &str = include_str!("real/defaults.json");
const REFUSALS: &str = include_str!("real/refusals.json");

/// Refusals that are worded differently here, and why.
const DIFFERENT: &[(&str, &str)] = &[(
    "a definition has one storage version and schemas",
    "the internal form of a schema is not shown, and the storage version is not missed twice",
)];

/// Fields that a real server adds and this one does not, and why.
const ABSENT: &[(&str, &str)] = &[
    ("PersistentVolumeClaim \"pvc\".metadata.finalizers", "the API server's admission sets it, not the kind"),
    ("Node \"kinds-node\".spec.taints", "no controller would take the taint away"),
];

fn cases(text: &str) -> Vec<Value> {
    serde_json::from_str(text).expect("a recording is a list")
}

fn kind_of(registry: &Registry, object: &Value) -> std::sync::Arc<Kind> {
    let api_version = object["apiVersion"].as_str().expect("an apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    registry.find_kind(group, version, object["kind"].as_str().expect("a kind")).expect("a known kind")
}

/// The object as the server has it right before it is stored.
fn created(kind: &Kind, given: &Value) -> Value {
    let mut object = given.clone();
    if kind.namespaced {
        object["metadata"]["namespace"] = "kinds-h".into();
    }
    kind.default(&mut object);
    kind.prepare_create(&mut object);
    object
}

/// Without `null`s, which mean the same as nothing.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), without_nulls(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

#[test]
fn objects_are_defaulted_as_a_real_server_defaults_them() {
    let registry = Registry::builtin();
    let mut wrong = Vec::new();
    for case in cases(DEFAULTS) {
        let kind = kind_of(&registry, &case["given"]);
        let (ours, theirs) = (without_nulls(&created(&kind, &case["given"])), without_nulls(&case["stored"]));
        differences(
            &format!("{} {}", kind.kind, case["given"]["metadata"]["name"]),
            &ours,
            &theirs,
            &mut wrong,
        );
    }
    wrong.retain(|line| !ABSENT.iter().any(|(path, _)| line.starts_with(path)));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn defaulting_again_changes_nothing() {
    let registry = Registry::builtin();
    for case in cases(DEFAULTS) {
        let kind = kind_of(&registry, &case["given"]);
        let mut object = case["given"].clone();
        kind.default(&mut object);
        let once = object.clone();
        kind.default(&mut object);
        assert_eq!(object, once);
    }
}

#[test]
fn what_a_real_server_stores_is_valid() {
    let registry = Registry::builtin();
    for case in cases(DEFAULTS) {
        let kind = kind_of(&registry, &case["given"]);
        let errors: Vec<_> = kind.validate(&case["stored"]).iter().map(ToString::to_string).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", case["given"]);
    }
}

#[test]
fn objects_are_refused_in_the_words_of_a_real_server() {
    let registry = Registry::builtin();
    let mut wrong = Vec::new();
    for case in cases(REFUSALS) {
        let why = case["why"].as_str().expect("a reason");
        if DIFFERENT.iter().any(|(known, _)| *known == why) {
            continue;
        }
        let kind = kind_of(&registry, &case["given"]);
        let object = created(&kind, &case["given"]);
        let errors = match changed(&kind, &case, &object) {
            Some(changed) => kind.validate_update(&changed, &object, None),
            None => kind.validate(&object),
        };
        let mut ours: Vec<_> = errors.iter().map(ToString::to_string).collect();
        let mut theirs: Vec<_> = case["errors"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        ours.sort();
        ours.dedup();
        theirs.sort();
        theirs.dedup();
        if ours != theirs {
            wrong.push(format!(
                "{why}:\n  ours\n    {}\n  theirs\n    {}",
                ours.join("\n    "),
                theirs.join("\n    ")
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The object of an update, where the case is one.
fn changed(kind: &Kind, case: &Value, object: &Value) -> Option<Value> {
    let mut new = match (case.get("changed"), case.get("patch")) {
        (Some(changed), _) => changed.clone(),
        (_, Some(patch)) => patched(object, patch),
        _ => return None,
    };
    if kind.namespaced {
        new["metadata"]["namespace"] = "kinds-h".into();
    }
    kind.default(&mut new);
    kind.prepare_update(&mut new, object, None);
    new["metadata"]["resourceVersion"] = "1".into();
    Some(new)
}

/// As much of JSON patch as the recordings use.
fn patched(object: &Value, patch: &Value) -> Value {
    let mut object = object.clone();
    for operation in patch.as_array().expect("a list") {
        let path = operation["path"].as_str().expect("a path");
        let value = operation["value"].clone();
        match path.strip_suffix("/-") {
            Some(list) => object.pointer_mut(list).and_then(Value::as_array_mut).expect("a list").push(value),
            None => *object.pointer_mut(path).expect("a field") = value,
        }
    }
    object
}

fn differences(path: &str, ours: &Value, theirs: &Value, wrong: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let names: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            for name in names {
                let (a, b) = (a.get(name).unwrap_or(&Value::Null), b.get(name).unwrap_or(&Value::Null));
                differences(&format!("{path}.{name}"), a, b, wrong);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{path}[{index}]"), a, b, wrong);
            }
        }
        _ if ours == theirs => {}
        _ => wrong.push(format!("{path}: ours {ours}, theirs {theirs}")),
    }
}
