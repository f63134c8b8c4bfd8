//! CEL: the same rules on the same object as a Kubernetes 1.34 was given, with the same outcome.

use drydock_schema::{Schema, json, validate};
use serde_json::json;

#[test]
fn rules_come_out_as_they_do_on_kubernetes() {
    let data = json::parse_yaml(include_bytes!("data/rules.yaml")).expect("YAML").value;
    let object = json!({"apiVersion": "example.com/v1", "kind": "Cel", "metadata": {"name": "x"}, "spec": data["value"]});
    let mut different = Vec::new();
    for case in data["rules"].as_array().expect("a list") {
        let mut spec = data["schema"].clone();
        spec["x-kubernetes-validations"] = json!([{"rule": case["rule"], "message": "fails"}]);
        let definition = json!({"type": "object", "properties": {"spec": spec}});
        let outcome = match Schema::from_openapi(&definition) {
            Err(errors) => errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            Ok(schema) => match validate::object(&schema, &object, None).as_slice() {
                [] => "holds".to_owned(),
                errors => {
                    errors.iter().map(|error| error.detail.replace(" evaluating rule: fails", "")).collect()
                }
            },
        };
        if (case["outcome"] == outcome.as_str()) != case["differs"].is_null() {
            different
                .push(format!("{}\n    expected {}\n    found    {outcome}", case["rule"], case["outcome"]));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn an_old_self_may_be_optional() {
    let definition = json!({"type": "object", "properties": {"a": {
        "type": "integer",
        "x-kubernetes-validations": [
            {"rule": "!oldSelf.hasValue() || self >= oldSelf.value()", "optionalOldSelf": true, "message": "may only grow"},
            {"rule": "oldSelf.hasValue() || self == 1", "optionalOldSelf": true, "messageExpression": "'must begin with 1'"},
        ],
    }}});
    let schema = Schema::from_openapi(&definition).expect("a structural schema");
    let check = |old: Option<i64>, new: i64, expected: &[&str]| {
        let (old, new) = (old.map(|old| json!({"a": old})), json!({"a": new}));
        let errors: Vec<String> =
            validate::object(&schema, &new, old.as_ref()).iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected);
    };
    check(None, 1, &[]);
    check(None, 2, &[r#"a: Invalid value: "integer": must begin with 1"#]);
    check(Some(1), 2, &[]);
    check(Some(2), 1, &[r#"a: Invalid value: "integer": may only grow"#]);
}

/// Rules that are far too deep are an error like any other, on a thread with an ordinary stack.
#[test]
fn a_rule_that_nests_too_deep_is_refused() {
    let long =
        |head: &str, part: &str, tail: &str, times: usize| head.to_owned() + &part.repeat(times) + tail;
    for times in [90, 200, 1_000, 5_000] {
        for rule in [
            "(".repeat(times) + "true" + &")".repeat(times),
            "[".repeat(times) + "1" + &"]".repeat(times) + " == []",
            long("", "!", "true", times),
            long("", "-", "1 == 1", times),
            long("1", " + 1", " > 0", times),
            long("self", ".a", " == 1", times),
            long("self", "[0]", " == 1", times),
            long("true", " && true", "", times),
            long("true", " ? true : true", "", times),
            long("", "[1].all(x, ", "true", times) + &")".repeat(times),
        ] {
            let definition = json!({"type": "object", "properties": {"a": {
                "x-kubernetes-preserve-unknown-fields": true,
                "x-kubernetes-validations": [{"rule": rule, "message": "fails"}],
            }}});
            if let Ok(schema) = Schema::from_openapi(&definition) {
                let _ = validate::object(&schema, &json!({"a": {"a": [1]}}), None);
            }
        }
    }
}
