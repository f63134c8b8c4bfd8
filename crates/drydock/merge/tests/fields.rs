//! Field sets and their two written forms, and the odd corners of patches and entries that no
//! recorded sequence reaches.

#![expect(clippy::unwrap_used, reason = "a test that can't go on says where")]

use drydock_merge::{
    fields::FieldSet,
    managed::{self, Apply, Update},
    patch,
};
use drydock_schema::builtin;
use jiff::Timestamp;
use serde_json::{Value, json};

/// What a `fieldsV1` is shown as, one path a line.
fn check(fields: Value, shown: &[&str]) {
    let set = FieldSet::from_fields_v1(&fields).unwrap();
    assert_eq!(set.to_string(), shown.join("\n"));
    assert_eq!(set.to_fields_v1(), fields);
    assert_eq!(set.len(), shown.len());
}

#[test]
fn paths_are_shown_as_conflicts_show_them() {
    check(json!({}), &[]);
    check(json!({"f:spec": {"f:replicas": {}}}), &[".spec.replicas"]);
    check(
        json!({"f:metadata": {"f:labels": {".": {}, "f:app": {}}}}),
        &[".metadata.labels", ".metadata.labels.app"],
    );
    check(
        json!({"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}}}),
        &[".ports[port=80,protocol=\"TCP\"]", ".ports[port=80,protocol=\"TCP\"].name"],
    );
    check(json!({"f:finalizers": {"v:\"a\\\"b\"": {}}}), &[".finalizers[=\"a\\\"b\"]"]);
    check(json!({"f:numbers": {"v:10": {}, "v:9": {}}}), &[".numbers[=9]", ".numbers[=10]"]);
    check(json!({"f:flags": {"v:true": {}}, "f:list": {"i:3": {}}}), &[".flags[=true]", ".list[3]"]);
}

#[test]
fn keys_are_escaped_as_other_servers_escape_them() {
    check(json!({"f:items": {"k:{\"name\":\"a\\u0026b\\u003c\"}": {}}}), &[".items[name=\"a&b<\"]"]);
}

#[test]
fn what_is_no_field_set_is_refused_and_what_is_not_known_is_left_out() {
    for (fields, error) in [
        (json!({"f": {}}), "key must be 2 characters long:"),
        (json!({"spec": {}}), "missing colon: spec"),
        (json!({"i:x": {}}), "invalid path element: i:x"),
        (json!({"k:x": {}}), "invalid path element: k:x"),
        (json!({"f:a": 1}), "fields must be objects"),
    ] {
        assert_eq!(FieldSet::from_fields_v1(&fields).unwrap_err().to_string(), error);
    }
    assert!(FieldSet::from_fields_v1(&json!({"x:new": {}})).unwrap().is_empty());
}

#[test]
fn entries_are_checked_with_the_words_of_kubernetes() {
    for (entries, error) in [
        (json!([{}]), "operation must be `Apply` or `Update`"),
        (json!([{"operation": "Apply"}]), "apiVersion must not be empty"),
        (json!([{"operation": "Apply", "apiVersion": "v1"}]), "missing fieldsType in managed fields entry 0"),
        (
            json!([{"operation": "Apply", "apiVersion": "v1", "fieldsType": "V2"}]),
            "invalid fieldsType \"V2\" in managed fields entry 0",
        ),
    ] {
        assert_eq!(managed::validate(&entries).unwrap_err().to_string(), error);
    }
}

#[test]
fn a_json_patch_has_at_most_ten_thousand_operations() {
    let add = json!({"op": "add", "path": "/a", "value": 1});
    let many = Value::Array(vec![add; 10_001]);
    let error = patch::json(&json!({}), &many).unwrap_err();
    assert_eq!(error.code(), 413);
    assert_eq!(
        error.to_string(),
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
}

#[test]
fn an_apply_says_what_kind_it_is_not() {
    let schema = builtin::definition("io.k8s.api.core.v1.ConfigMap").unwrap();
    let ignore = FieldSet::new();
    let live = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    for (applied, error) in [
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment"}),
            "invalid object type: apps/v1, Kind=Deployment",
        ),
        (json!({"apiVersion": "v1", "kind": "Secret"}), "invalid object type: /v1, Kind=Secret"),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"managedFields": []}}),
            "metadata.managedFields must be nil",
        ),
    ] {
        let request = Apply {
            schema: &schema,
            live: Some(&live),
            applied: &applied,
            manager: "a",
            api_version: "v1",
            subresource: None,
            force: false,
            now: Timestamp::UNIX_EPOCH,
            ignore: &ignore,
        };
        assert_eq!(managed::apply(request).unwrap_err().to_string(), error);
    }
}

#[test]
fn a_write_that_only_moved_a_time_is_given_its_old_times_back() {
    let schema = builtin::definition("io.k8s.api.core.v1.ConfigMap").unwrap();
    let ignore = FieldSet::new();
    let write = |live: Option<&Value>, new: Value, now: i64| {
        managed::update(Update {
            schema: &schema,
            live,
            new,
            manager: "a",
            api_version: "v1",
            subresource: None,
            now: Timestamp::from_second(now).unwrap(),
            ignore: &ignore,
        })
    };
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "1"}});
    let live = write(None, object, 1);
    let mut changed = live.clone();
    changed["data"]["a"] = json!("2");
    let mut stored = write(Some(&live), changed, 60);
    // Something after the merge put the value back.
    stored["data"]["a"] = json!("1");
    assert_ne!(stored, live);
    managed::keep_times(&live, &mut stored);
    assert_eq!(stored, live);
}
