//! The schema and `validate` give the same answer.

use ballast_gordon::{Gordon, GordonPods, GordonSpec, Wanted};
use ballast_staging::schema::{Definition, mostly, same_answer};
use proptest::prelude::*;
use serde_json::{Value, json};

fn check(name: &str, fields: &Value, expected: &str) {
    Definition::of::<Gordon>().check(name, fields, expected);
}

fn check_pods(pods: Value, expected: &str) {
    check("gordoncluster", &json!({"spec": {"gordon": pods}}), expected);
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
    check("gordoncluster", &json!({"spec": {}}), "spec.gordon: Required value");
    check("gordoncluster", &json!({}), "spec: Required value");
    for image in ["", "a b", "gordon:", ":v1", "GORDON", "gordon:v1:v2", "gordon:-"] {
        check_pods(json!({"replicas": 3, "image": image}), "image must be the name of an image");
    }
    let spec = json!({"spec": {"gordon": {"replicas": 3}}});
    check(&"a".repeat(52), &spec, "at most 51 characters long");
    check("a.b", &spec, "the name must hold only lower-case letters");
}

#[test]
fn what_another_program_remembers_is_let_in_beside_spec_and_status() {
    let with = |state: Value| json!({"spec": {"gordon": {"replicas": 3}}, "state": state});
    check("gordoncluster", &with(json!({"pods": ["gordon-x2x9k"], "replicas": 3})), "");
    check("gordoncluster", &with(json!({"pods": []})), "");
    check("gordoncluster", &with(json!({"pods": "gordon"})), "must be of type array");
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

#[test]
fn schema_and_validate_give_the_same_answer() {
    same_answer(gordon(), |resource| Wanted::try_from(resource));
}
