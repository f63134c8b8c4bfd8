//! What is wrong with objects of one schema, in the words of Kubernetes 1.34, which was asked.

#![expect(clippy::expect_used, reason = "a failure in a test is the answer")]

use std::sync::Arc;

use drydock_schema::{
    Schema, defaults, json,
    unknown::{self, Root},
    validate,
};
use serde_json::{Value, json};

const UNCHECKED: &str = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

fn thing() -> Arc<Schema> {
    let definition = json::parse_yaml(include_bytes!("data/thing.yaml")).expect("YAML").value;
    Schema::from_openapi(&definition).expect("a structural schema")
}

fn named(name: &str, spec: &str) -> Value {
    let mut object =
        json!({"apiVersion": "schema.example.com/v1", "kind": "Thing", "metadata": {"name": name}});
    if !spec.is_empty() {
        object["spec"] = json::parse_yaml(spec.as_bytes()).expect("YAML").value;
    }
    object
}

/// Prunes and defaults as the server does before it validates.
fn admitted(schema: &Schema, mut object: Value) -> Value {
    unknown::prune(schema, &mut object, Root::Resource);
    defaults::apply(schema, &mut object);
    object
}

fn errors(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<String> {
    validate::object(schema, new, old).iter().map(ToString::to_string).collect()
}

#[track_caller]
fn check(spec: &str, expected: &[&str]) {
    let schema = thing();
    let object = admitted(&schema, named("x", spec));
    assert_eq!(errors(&schema, &object, None), expected, "{spec}");
}

/// The same, where the object is too broken for rules to be looked at.
#[track_caller]
fn check_blocked(spec: &str, expected: &[&str]) {
    check(spec, &[expected, &[UNCHECKED]].concat());
}

/// An update from one spec to another.
#[track_caller]
fn check_update(old: &str, new: &str, expected: &[&str]) {
    let schema = thing();
    let (old, new) = (admitted(&schema, named("x", old)), admitted(&schema, named("x", new)));
    assert_eq!(errors(&schema, &new, Some(&old)), expected);
}

#[test]
fn what_is_right_passes() {
    check("{version: a}", &[]);
    check("{version: a, size: 1.0, any: {x: [1, {y: null}]}, nul: null, ios: 80%, ratio: 0.7}", &[]);
    // A whole number is compared with bounds that are cut to whole numbers, as Kubernetes does it.
    check("{version: a, ratio: 0}", &[]);
    check(
        "{version: a, ratio: 1}",
        &["spec.ratio: Invalid value: 1: spec.ratio in body should be less than 1"],
    );
    check("{version: a, when: '2024-01-02T03:04:05Z', labels: {a: b}, one: {a: x}, not5: 4}", &[]);
}

#[test]
fn what_must_be_there_is_required() {
    check_blocked("", &["spec: Required value"]);
    check_blocked("{}", &["spec.version: Required value"]);
    check_blocked("{version: null}", &["spec.version: Required value"]);
}

#[test]
fn strings_are_measured_and_matched() {
    check(
        "{version: ''}",
        &[r#"spec.version: Invalid value: "": spec.version in body should be at least 1 chars long"#],
    );
    check(
        "{version: UPPER}",
        &[r#"spec.version: Invalid value: "UPPER": spec.version in body should match '^[a-z0-9.]+$'"#],
    );
    check_blocked("{version: abcdefghijklm}", &["spec.version: Too long: may not be more than 10 bytes"]);
    check_blocked(
        "{version: a, mode: c}",
        &[r#"spec.mode: Unsupported value: "c": supported values: "a", "b""#],
    );
    check_blocked(
        "{version: a, level: 3}",
        &[r#"spec.level: Unsupported value: 3: supported values: "1", "2""#],
    );
    check_blocked(
        "{version: a, when: x}",
        &[r#"spec.when: Invalid value: "x": spec.when in body must be of type date-time: "x""#],
    );
}

#[test]
fn types_are_named() {
    for (spec, expected) in [
        (
            "{version: 1}",
            r#"spec.version: Invalid value: "integer": spec.version in body must be of type string: "integer""#,
        ),
        (
            "{version: a, size: three}",
            r#"spec.size: Invalid value: "string": spec.size in body must be of type integer: "string""#,
        ),
        (
            "{version: a, ratio: x}",
            r#"spec.ratio: Invalid value: "string": spec.ratio in body must be of type number: "string""#,
        ),
        (
            "{version: a, when: 5}",
            r#"spec.when: Invalid value: "int64": spec.when in body must be of type date-time: "int64""#,
        ),
        (
            "{version: a, list: [1]}",
            r#"spec.list[0]: Invalid value: "integer": spec.list[0] in body must be of type string: "integer""#,
        ),
        (
            "{version: a, list: x}",
            r#"spec.list: Invalid value: "string": spec.list in body must be of type array: "string""#,
        ),
        (
            "{version: a, ios: 1.5}",
            r#"spec.ios: Invalid value: "number": spec.ios in body must be of type integer,string: "number""#,
        ),
        (
            "{version: a, ios: true}",
            r#"spec.ios: Invalid value: "boolean": spec.ios in body must be of type integer,string: "boolean""#,
        ),
        (
            "{version: a, flag: 'true'}",
            r#"spec.flag: Invalid value: "string": spec.flag in body must be of type boolean: "string""#,
        ),
        ("str", r#"spec: Invalid value: "string": spec in body must be of type object: "string""#),
        ("[]", r#"spec: Invalid value: "array": spec in body must be of type object: "array""#),
    ] {
        check_blocked(spec, &[expected]);
    }
    for size in ["1000000000000000000000000000000", "10000000000000000000", "1e17"] {
        let errors = errors(&thing(), &named("x", &format!("{{version: a, size: {size}}}")), None);
        assert_eq!(
            errors[0],
            r#"spec.size: Invalid value: "number": spec.size in body must be of type integer: "number""#,
            "{size}"
        );
    }
    check_blocked(
        "{version: a, size: 1.5}",
        &[
            r#"spec.size: Invalid value: "number": spec.size in body must be of type integer: "number""#,
            "spec.size: Invalid value: 1.5: spec.size in body should be a multiple of 1",
        ],
    );
}

#[test]
fn numbers_are_bounded() {
    let rule = r#"spec: Invalid value: "object": failed rule: !has(self.size) || 10 / self.size > 0"#;
    check(
        "{version: a, size: -1}",
        &["spec.size: Invalid value: -1: spec.size in body should be greater than or equal to 0", rule],
    );
    check(
        "{version: a, size: 101}",
        &["spec.size: Invalid value: 101: spec.size in body should be less than or equal to 100", rule],
    );
    check(
        "{version: a, size: 1000000000000}",
        &[
            "spec.size: Invalid value: 1000000000000: spec.size in body should be less than or equal to 100",
            rule,
        ],
    );
    check(
        "{version: a, ratio: 0.1}",
        &["spec.ratio: Invalid value: 0.1: spec.ratio in body should be greater than or equal to 0.5"],
    );
    check(
        "{version: a, ratio: 1.5}",
        &["spec.ratio: Invalid value: 1.5: spec.ratio in body should be less than 1.5"],
    );
}

#[test]
fn lists_and_maps_are_counted() {
    check(
        "{version: a, list: []}",
        &["spec.list: Invalid value: 0: spec.list in body should have at least 1 items"],
    );
    check_blocked("{version: a, list: [a, b, c]}", &["spec.list: Too many: 3: must have at most 2 items"]);
    check(
        "{version: a, labels: {}}",
        &["spec.labels: Invalid value: 0: spec.labels in body should have at least 1 properties"],
    );
    check_blocked(
        "{version: a, labels: {a: '1', b: '2', c: '3'}}",
        &["spec.labels: Too many: 3: must have at most 2 items"],
    );
    check_blocked(
        "{version: a, labels: {a.b/c: '1234'}}",
        &["spec.labels.a.b/c: Too long: may not be more than 3 bytes"],
    );
}

#[test]
fn sets_and_maps_hold_nothing_twice() {
    check("{version: a, set: [a, a, a]}", &[r#"spec.set[1]: Duplicate value: "a""#]);
    check(
        "{version: a, ports: [{port: 1}, {port: 1, protocol: TCP}]}",
        &[r#"spec.ports[1]: Duplicate value: {"port":1,"protocol":"TCP"}"#],
    );
    check("{version: a, ports: [{port: 1}, {port: 1, protocol: UDP}]}", &[]);
}

#[test]
fn alternatives_explain_themselves() {
    check_blocked(
        "{version: a, one: {}}",
        &[
            r#"<nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found none valid"#,
            "spec.one.a: Required value",
        ],
    );
    check(
        "{version: a, one: {a: '1', b: '2'}}",
        &[
            r#"<nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ],
    );
    check(
        "{version: a, not5: 5}",
        &[r#"<nil>: Invalid value: "": "spec.not5" must not validate the schema (not)"#],
    );
}

#[test]
fn embedded_objects_say_what_they_are() {
    check_blocked(
        "{version: a, tpl: {}}",
        &["spec.tpl.apiVersion: Required value", "spec.tpl.kind: Required value"],
    );
}

#[test]
fn rules_speak_with_their_message() {
    check("{version: a, min: 7}", &[r#"spec: Invalid value: "object": min must not exceed max"#]);
    check(
        "{version: a, size: 13}",
        &[
            r#"spec: Invalid value: "object": size must not be thirteen"#,
            r#"spec: Invalid value: "object": failed rule: !has(self.size) || 10 / self.size > 0"#,
        ],
    );
    check(
        "{version: a, size: 0}",
        &[
            r#"spec: Invalid value: "object": division by zero evaluating rule: !has(self.size) || 10 / self.size > 0"#,
        ],
    );
    let schema = thing();
    let object = admitted(&schema, named("bad", "{version: a}"));
    assert_eq!(errors(&schema, &object, None), [r#"<nil>: Invalid value: "object": name must not be bad"#]);
}

#[test]
fn transition_rules_compare_with_the_past() {
    check("{version: a, frozen: x}", &[]);
    check_update("{version: a, frozen: x}", "{version: b, frozen: x}", &[]);
    check_update(
        "{version: a, frozen: x}",
        "{version: a, frozen: z}",
        &["spec.frozen: Forbidden: frozen is immutable"],
    );
    check_update(
        "{version: a}",
        "{version: a, frozen: z}",
        &[r#"spec: Invalid value: "object": no such key: frozen evaluating rule: frozen is immutable"#],
    );
}

#[test]
fn what_was_wrong_before_and_did_not_change_is_let_through() {
    check_update("{version: UPPER}", "{version: UPPER, min: 1}", &[]);
    check_update("{version: a, list: [a, b, c]}", "{version: b, list: [a, b, c]}", &[]);
    check_update("{version: a, set: [a, a]}", "{version: a, set: [b, b]}", &[]);
    check_update(
        "{version: a, ports: [{port: x}]}",
        "{version: a, ports: [{port: z}]}",
        &[
            r#"spec.ports[0].port: Invalid value: "string": spec.ports[0].port in body must be of type integer: "string""#,
            UNCHECKED,
        ],
    );
    // The rule stands on spec, and spec changed.
    check_update(
        "{version: a, min: 7}",
        "{version: b, min: 7}",
        &[r#"spec: Invalid value: "object": min must not exceed max"#],
    );
    check_update("{version: a, min: 7}", "{version: a, min: 7}", &[]);
}

#[test]
fn unknown_fields_are_removed_and_named() {
    let schema = thing();
    let mut object =
        named("x", "{version: a, foo: 1, ports: [{port: 1, x: 1}], any: {free: 1}, labels: {k: v}}");
    object["extra"] = 1.into();
    object["metadata"]["foo"] = 1.into();
    object["metadata"]["labels"] = json!({"a": "b"});
    object["spec"]["tpl"] =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "foo": 1}, "spec": {"x": 1}});
    let removed = unknown::prune(&schema, &mut object, Root::Resource);
    assert_eq!(removed, ["metadata.foo", "extra", "spec.foo", "spec.ports[0].x", "spec.tpl.metadata.foo"]);
    assert_eq!(
        object,
        json!({
            "apiVersion": "schema.example.com/v1", "kind": "Thing",
            "metadata": {"name": "x", "labels": {"a": "b"}},
            "spec": {
                "version": "a", "ports": [{"port": 1}], "any": {"free": 1}, "labels": {"k": "v"},
                "tpl": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"x": 1}},
            },
        })
    );
}

#[test]
fn defaults_fill_what_is_missing_and_nulls_that_are_no_value() {
    let schema = thing();
    let mut object = named(
        "x",
        "{version: a, max: null, min: null, nul: null, ports: [{port: 1}, {port: 2, protocol: UDP}]}",
    );
    defaults::apply(&schema, &mut object);
    assert_eq!(
        object["spec"],
        json!({"version": "a", "max": 5, "nul": null, "ports": [{"port": 1, "protocol": "TCP"}, {"port": 2, "protocol": "UDP"}]})
    );
}

#[test]
fn the_fields_of_built_in_kinds_are_known() {
    let schema = drydock_schema::builtin::definition_for("apps", "v1", "Deployment").expect("built in");
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "naem": "y"},
        "spec": {"replicas": 1, "replica": 2, "template": {"spec": {"containers": [{"name": "a", "imagee": "b"}]}}},
    });
    let removed = unknown::prune(&schema, &mut object, Root::Resource);
    assert_eq!(removed, ["metadata.naem", "spec.replica", "spec.template.spec.containers[0].imagee"]);
}
