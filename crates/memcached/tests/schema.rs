//! The schema and `validate` give the same answer.

use ballast_memcached::{Cache, Memcached, MemcachedSpec};
use ballast_operator::resources::Resources;
use ballast_staging::schema::{Definition, mostly, same_answer};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use proptest::prelude::*;
use serde_json::{Value, json};

fn check(name: &str, spec: Value, expected: &str) {
    Definition::of::<Memcached>().check(name, &json!({"spec": spec}), expected);
}

#[test]
fn the_seeds_messages_are_said_by_the_schema() {
    check("sample", json!({"size": 3, "version": "1.6.9"}), "");
    check("sample", json!({"size": 0, "version": "1.6.9"}), "size must be greater than 0");
    check("sample", json!({"size": -1, "version": "1.6.9"}), "size must be greater than 0");
    check("sample", json!({"size": 1_000_000_000_000_i64, "version": "1.6.9"}), "size must be at most 1000");
    check("sample", json!({"size": "three", "version": "1.6.9"}), "must be of type integer");
    check("sample", json!({"size": 3}), "spec.version: Required value: version must be specified");
    check(
        "sample",
        json!({"size": 3, "version": ""}),
        "spec.version: Required value: version must be specified",
    );
    check("sample", json!({"size": 3, "version": "a b"}), "version must be an image tag");
    check("sample", json!({"version": "1.6.9"}), "spec.size: Required value");
    check("9lives", json!({"size": 3, "version": "1.6.9"}), "the name must begin with a lower-case letter");
    check("a.b", json!({"size": 3, "version": "1.6.9"}), "the name must begin with a lower-case letter");
    check(&"a".repeat(64), json!({"size": 3, "version": "1.6.9"}), "at most 63 characters long");
    check(
        "sample",
        json!({"size": 3, "version": "1", "image": "memcached:1"}),
        "image must be the name of an image",
    );
    check("sample", json!({"size": 3, "version": "1", "image": "registry.example.com:5000/a/b"}), "");
    check(
        "sample",
        json!({"size": 3, "version": "1", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}),
        "",
    );
    check(
        "sample",
        json!({"size": 3, "version": "1", "resources": {"limits": {"cpu": "lots"}}}),
        "spec.resources.limits: Invalid value: \"object\": an amount is a number with an optional suffix",
    );
}

fn check_resources(resources: Value, expected: &str) {
    check("sample", json!({"size": 3, "version": "1", "resources": resources}), expected);
}

#[test]
fn a_request_is_at_most_its_limit() {
    for name in ["cpu", "memory", "ephemeral-storage"] {
        let both =
            |request: Value, limit: Value| json!({"requests": {name: request}, "limits": {name: limit}});
        let message = format!(
            "spec.resources: Invalid value: \"object\": requests.{name} must be at most limits.{name}"
        );
        check_resources(both("20Mi".into(), "10Mi".into()), &message);
        check_resources(both("1Mi".into(), "1M".into()), &message);
        check_resources(both(2.into(), "1500m".into()), &message);
        check_resources(both("10Mi".into(), "10Mi".into()), "");
        check_resources(both(1.into(), "1500m".into()), "");
    }
    check_resources(json!({"requests": {"cpu": "2"}, "limits": {"memory": "1Mi"}}), "");
    check_resources(json!({"requests": {"memory": "1Gi"}}), "");
}

#[test]
fn a_resource_that_memcached_has_no_use_for_is_refused() {
    let message = "spec.resources.limits: Invalid value: \"object\": only cpu, memory and ephemeral-storage can be given";
    check_resources(json!({"limits": {"nonsense": "1"}}), message);
    check_resources(json!({"limits": {"hugepages-2Mi": "2Mi"}}), message);
}

#[test]
fn an_amount_that_would_take_a_server_hours_to_compute_is_refused() {
    for side in ["limits", "requests"] {
        for amount in ["1e999999999", "1e2147483648", "1e-999999999", &"1".repeat(100)] {
            let mut resources = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}});
            resources[side]["cpu"] = json!(amount);
            check_resources(resources, &format!("spec.resources.{side}"));
        }
    }
}

fn amounts() -> impl Strategy<Value = Option<std::collections::BTreeMap<String, Quantity>>> {
    let amount = prop_oneof![
        4 => "[0-9]{1,3}(\\.[0-9]{0,2})?(Ki|Mi|Gi|Ti|m|k|M|G|T|e3|E+2|)",
        1 => "[0-9]{0,16}(\\.[0-9]{0,4})?(Ki|Mi|Ti|m|k|M|T|e9|n|P|)",
        1 => "[-+0-9.eEKMimnu]{0,5}",
    ];
    let name = prop_oneof![20 => "cpu|memory|ephemeral-storage", 1 => "nonsense|hugepages-2Mi|"];
    proptest::option::of(proptest::collection::btree_map(name, amount.prop_map(Quantity), 0..4))
}

prop_compose! {
    fn memcached()(
        name in mostly("sample".to_owned(), prop_oneof!["[a-z][a-z0-9-]{0,70}", "[a-z0-9.-]{1,5}"]),
        size in mostly(3, prop_oneof![-2..3i32, 998..1003i32, any::<i32>()]),
        version in mostly(
            Some("1.6.9".to_owned()),
            proptest::option::of(prop_oneof!["[A-Za-z0-9._-]{0,130}", "[a-z. :é\n-]{0,4}"]),
        ),
        image in mostly(None, proptest::option::of(prop_oneof![
            "([a-z0-9.-]{1,4}(:[0-9]{0,2})?/)?[a-z0-9._-]{0,4}(/[a-z0-9._-]{0,3}){0,2}",
            "[A-Za-z0-9:/@._-]{0,8}",
            "[a-z]{250,260}",
        ])),
        resources in prop_oneof![Just(None), (amounts(), amounts()).prop_map(Some)],
    ) -> Memcached {
        let resources = resources.map(|(limits, requests)| Resources { limits, requests });
        Memcached::new(&name, MemcachedSpec { size, version, image, resources })
    }
}

#[test]
fn schema_and_validate_give_the_same_answer() {
    same_answer(memcached(), |resource| Cache::try_from(resource));
}
