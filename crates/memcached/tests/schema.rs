//! The schema and `validate` give the same answer.
#![expect(clippy::unwrap_used, reason = "in a test a failure is the answer")]

use std::sync::{Arc, LazyLock};

use ballast_memcached::{Cache, Memcached, MemcachedSpec, Resources};
use drydock_schema::{Schema, validate};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_core::CustomResourceExt as _;
use proptest::prelude::*;
use serde_json::{Value, json};

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let crd = serde_json::to_value(Memcached::crd()).unwrap();
    Schema::from_openapi(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]).unwrap()
});

/// What the server would say of an object, one line per error.
fn refusals(object: &Value) -> String {
    let errors = validate::object(&SCHEMA, object, None);
    errors.iter().map(|error| format!("{error}\n")).collect()
}

fn check(name: &str, spec: Value, expected: &str) {
    let object = json!({
        "apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    });
    let refusals = refusals(&object);
    let fits = if expected.is_empty() { refusals.is_empty() } else { refusals.contains(expected) };
    assert!(fits, "{object}\n--- actual ---\n{refusals}--- expected ---\n{expected}");
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
        "should match",
    );
}

fn amounts() -> impl Strategy<Value = Option<std::collections::BTreeMap<String, Quantity>>> {
    let amount =
        prop_oneof!["[0-9]{1,3}(\\.[0-9]{0,2})?(Ki|Mi|Gi|m|k|M|G|e3|E-2|)", "[-+0-9.eEKMimnu]{0,5}",];
    proptest::option::of(proptest::collection::btree_map("cpu|memory", amount.prop_map(Quantity), 0..2))
}

/// Mostly right, so that a single field that is wrong decides.
fn mostly<T: Clone + std::fmt::Debug + 'static>(
    right: T,
    odd: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<T> {
    prop_oneof![4 => Just(right), 1 => odd].boxed()
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
        resources in mostly(None, proptest::option::of((amounts(), amounts()))),
    ) -> Memcached {
        let resources = resources.map(|(limits, requests)| Resources { limits, requests });
        Memcached::new(&name, MemcachedSpec { size, version, image, resources })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn schema_and_validate_give_the_same_answer(resource in memcached()) {
        let object = serde_json::to_value(&resource).unwrap();
        let by_schema = refusals(&object);
        let by_code = Cache::try_from(&resource);
        prop_assert_eq!(by_schema.is_empty(), by_code.is_ok(), "{}\nschema: {}\ncode: {:?}", object, by_schema, by_code);
    }
}
