//! The schema and `validate` give the same answer.
#![expect(clippy::unwrap_used, reason = "in a test a failure is the answer")]

use std::sync::{Arc, LazyLock};

use ballast_gordon::{Gordon, GordonPods, GordonSpec, Wanted};
use drydock_schema::{Schema, validate};
use kube_core::CustomResourceExt as _;
use proptest::prelude::*;
use serde_json::{Value, json};

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let crd = serde_json::to_value(Gordon::crd()).unwrap();
    Schema::from_openapi(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]).unwrap()
});

/// What the server would say of an object, one line per error.
fn refusals(object: &Value) -> String {
    let errors = validate::object(&SCHEMA, object, None);
    errors.iter().map(|error| format!("{error}\n")).collect()
}

fn check(name: &str, more: Value, expected: &str) {
    let mut object = json!({
        "apiVersion": "operator.prgcont.cz/v1", "kind": "Gordon",
        "metadata": {"name": name, "namespace": "default"},
    });
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let refusals = refusals(&object);
    let fits = if expected.is_empty() { refusals.is_empty() } else { refusals.contains(expected) };
    assert!(fits, "{object}\n--- actual ---\n{refusals}--- expected ---\n{expected}");
}

fn check_pods(pods: Value, expected: &str) {
    check("gordoncluster", json!({"spec": {"gordon": pods}}), expected);
}

#[test]
fn what_can_not_be_is_refused_in_words_for_people() {
    check_pods(json!({"replicas": 3}), "");
    check_pods(json!({"replicas": 0}), "");
    check_pods(json!({"replicas": 3, "image": "registry.example.com:5000/a/gordon:v2"}), "");
    check_pods(json!({"replicas": -1}), "replicas must not be negative");
    check_pods(json!({"replicas": 1001}), "replicas must be at most 1000");
    check_pods(json!({"replicas": "three"}), "must be of type integer");
    check_pods(json!({}), "spec.gordon.replicas: Required value");
    check("gordoncluster", json!({"spec": {}}), "spec.gordon: Required value");
    check("gordoncluster", json!({}), "spec: Required value");
    for image in ["", "a b", "gordon:", ":v1", "GORDON", "gordon:v1:v2", "gordon:-"] {
        check_pods(json!({"replicas": 3, "image": image}), "image must be the name of an image");
    }
    let spec = json!({"spec": {"gordon": {"replicas": 3}}});
    check(&"a".repeat(52), spec.clone(), "at most 51 characters long");
    check("a.b", spec, "the name must hold only lower-case letters");
}

#[test]
fn what_another_program_remembers_is_let_in_beside_spec_and_status() {
    let with = |state: Value| json!({"spec": {"gordon": {"replicas": 3}}, "state": state});
    check("gordoncluster", with(json!({"pods": ["gordon-x2x9k"], "replicas": 3})), "");
    check("gordoncluster", with(json!({"pods": []})), "");
    check("gordoncluster", with(json!({"pods": "gordon"})), "must be of type array");
}

/// Mostly right, so that a single field that is wrong decides.
fn mostly<T: Clone + std::fmt::Debug + 'static>(
    right: T,
    odd: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<T> {
    prop_oneof![4 => Just(right), 1 => odd].boxed()
}

prop_compose! {
    fn gordon()(
        name in mostly("sample".to_owned(), prop_oneof!["[a-z0-9-]{1,60}", "[a-zA-Z0-9.-]{1,5}"]),
        replicas in mostly(3, prop_oneof![-2..3i32, 998..1003i32, any::<i32>()]),
        image in mostly(None, proptest::option::of(prop_oneof![
            "([a-z0-9.-]{1,4}(:[0-9]{0,2})?/)?[a-z0-9._-]{0,4}(/[a-z0-9._-]{0,3}){0,2}(:[a-zA-Z0-9._-]{0,4})?",
            "[a-z]{1,4}:[a-z0-9]{125,131}",
            "[A-Za-z0-9:/@._-]{0,8}",
            "[a-z]{250,260}",
        ])),
    ) -> Gordon {
        Gordon::new(&name, GordonSpec { gordon: GordonPods { replicas, image } })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn schema_and_validate_give_the_same_answer(resource in gordon()) {
        let object = serde_json::to_value(&resource).unwrap();
        let by_schema = refusals(&object);
        let by_code = Wanted::try_from(&resource);
        prop_assert_eq!(by_schema.is_empty(), by_code.is_ok(), "{}\nschema: {}\ncode: {:?}", object, by_schema, by_code);
    }
}
