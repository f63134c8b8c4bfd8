//! Kinds that come from definitions: a definition in YAML, an object in YAML, what becomes of it.

#![expect(clippy::expect_used, reason = "a failure here is the answer, not an accident")]

use std::sync::Arc;

use drydock_kinds::{
    Kind, Registry, crd, discovery,
    selector::FieldSelector,
    table::{self, Include},
};
use jiff::Timestamp;
use serde_json::{Value, json};

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: memcacheds.cache.example.com}
spec:
  group: cache.example.com
  scope: Namespaced
  names: {plural: memcacheds, kind: Memcached, shortNames: [mc], categories: [ballast]}
  versions:
    - name: v1alpha1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          required: [spec]
          properties:
            spec:
              type: object
              required: [size]
              properties:
                size: {type: integer, minimum: 1}
                version: {type: string, default: "1.6", x-kubernetes-validations: [{rule: "self != 'bad'", message: not bad}]}
            status:
              type: object
              properties:
                nodes: {type: array, items: {type: string}}
                conditions:
                  type: array
                  items: {type: object, properties: {type: {type: string}, status: {type: string}}}
      subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}
      selectableFields: [{jsonPath: .spec.version}]
      additionalPrinterColumns:
        - {name: Size, type: integer, jsonPath: .spec.size}
        - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
        - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    - name: v1beta1
      served: true
      storage: false
      deprecated: true
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
"#;

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("YAML")
}

fn registry() -> Registry {
    let mut definition = yaml(DEFINITION);
    let registry = Registry::builtin();
    let kind =
        registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions").expect("a known kind");
    kind.default(&mut definition);
    kind.prepare_create(&mut definition);
    let errors: Vec<_> = kind.validate(&definition).iter().map(ToString::to_string).collect();
    assert!(errors.is_empty(), "{errors:?}");
    crd::settle(&mut definition, std::iter::empty(), Timestamp::UNIX_EPOCH);
    registry.install(&definition);
    registry
}

fn kind(version: &str) -> Arc<Kind> {
    registry().find("cache.example.com", version, "memcacheds").expect("a known kind")
}

#[track_caller]
fn check_refused(object: &str, expected: &[&str]) {
    let kind = kind("v1alpha1");
    let mut object = yaml(object);
    kind.default(&mut object);
    let errors: Vec<_> = kind.validate(&object).iter().map(ToString::to_string).collect();
    assert_eq!(errors, expected);
}

#[test]
fn an_object_is_checked_by_its_schema_and_its_metadata() {
    check_refused("{metadata: {name: a, namespace: b}, spec: {size: 3}}", &[]);
    check_refused(
        "{metadata: {name: A, namespace: b}, spec: {size: 0}}",
        &[
            "metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
             characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
             for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ],
    );
}

#[test]
fn rules_are_asked_only_of_what_is_sound_in_its_metadata_too() {
    let bad = |metadata: &str| format!("{{metadata: {metadata}, spec: {{size: 3, version: bad}}}}");
    check_refused(&bad("{name: a, namespace: b}"), &["spec.version: Invalid value: \"string\": not bad"]);
    check_refused(
        &bad("{namespace: b}"),
        &[
            "metadata.name: Required value: name or generateName is required",
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
             correct the existing errors to complete validation",
        ],
    );
}

#[test]
fn defaults_are_set_and_the_status_is_not_the_clients() {
    let kind = kind("v1alpha1");
    let mut object = yaml("{metadata: {name: a}, spec: {size: 3}, status: {nodes: [x]}}");
    kind.default(&mut object);
    kind.prepare_create(&mut object);
    assert_eq!(
        object,
        json!({"metadata": {"name": "a", "generation": 1}, "spec": {"size": 3, "version": "1.6"}})
    );
}

#[test]
fn the_status_is_changed_alone() {
    let kind = kind("v1alpha1");
    let old = yaml("{metadata: {name: a, generation: 1, labels: {a: b}}, spec: {size: 3}}");
    let mut new = yaml(
        "{metadata: {name: a, labels: {c: d}, resourceVersion: '7'}, spec: {size: 5}, status: {nodes: [x]}}",
    );
    kind.prepare_update(&mut new, &old, Some("status"));
    let expected = yaml(
        "{metadata: {name: a, generation: 1, labels: {a: b}, resourceVersion: '7'}, spec: {size: 3}, status: {nodes: [x]}}",
    );
    assert_eq!(new, expected);
}

#[test]
fn another_version_shows_what_it_knows() {
    let beta = kind("v1beta1");
    assert!(!beta.is_storage_version());
    assert_eq!(beta.deprecation_warning(), Some("cache.example.com/v1beta1 Memcached is deprecated"));
    let stored = yaml(
        "{apiVersion: cache.example.com/v1alpha1, kind: Memcached, metadata: {name: a}, spec: {size: 3, version: '1.6'}}",
    );
    let mut shown = stored.clone();
    beta.from_storage(&mut shown);
    assert_eq!(
        shown,
        yaml(
            "{apiVersion: cache.example.com/v1beta1, kind: Memcached, metadata: {name: a}, spec: {size: 3}}"
        )
    );
    beta.to_storage(&mut shown);
    assert_eq!(shown["apiVersion"], "cache.example.com/v1alpha1");
}

#[test]
fn what_was_stored_under_another_definition_is_shown_as_this_one_has_it() {
    let mut shown = yaml(
        "{apiVersion: cache.example.com/v1, kind: Memcached, metadata: {name: a, uid: b}, spec: {size: 3, memory: 64}}",
    );
    kind("v1alpha1").from_storage(&mut shown);
    assert_eq!(
        shown,
        yaml(
            "{apiVersion: cache.example.com/v1alpha1, kind: Memcached, metadata: {name: a, uid: b}, spec: {size: 3, version: '1.6'}}"
        )
    );
}

#[test]
fn selectable_fields_are_those_of_the_definition() {
    let kind = kind("v1alpha1");
    let selector = FieldSelector::parse("spec.version=1.6", &kind).expect("a selector");
    let object = yaml("{metadata: {name: a, namespace: b}, spec: {version: '1.6'}}");
    let fields = kind.selectable_fields(&object);
    assert!(
        selector
            .matches(|name| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str()))
    );
    let refused = FieldSelector::parse("spec.size=3", &kind).expect_err("not selectable");
    assert_eq!(refused.to_string(), "field label not supported: spec.size");
}

#[test]
fn columns_are_those_of_the_definition() {
    let kind = kind("v1alpha1");
    let now = "2024-01-01T00:01:30Z".parse().expect("a time");
    let objects = [
        yaml(
            "{metadata: {name: a, creationTimestamp: '2024-01-01T00:00:00Z'}, spec: {size: 3}, status: {conditions: [{type: Ready, status: 'True'}]}}",
        ),
        yaml("{metadata: {name: b, creationTimestamp: '2024-01-01T00:00:00Z'}, spec: {}}"),
    ];
    let table = table::render(&kind, &objects.iter().collect::<Vec<_>>(), json!({}), now, Include::None);
    let cells: Vec<_> =
        table["rows"].as_array().expect("rows").iter().map(|row| row["cells"].clone()).collect();
    assert_eq!(cells, [json!(["a", 3, "True", "90s"]), json!(["b", null, null, "90s"])]);
}

#[test]
fn a_definition_that_goes_takes_its_group_along() {
    let registry = registry();
    let before = registry.generation();
    let group = discovery::api_group(&registry, "cache.example.com").expect("a group");
    assert_eq!(group["preferredVersion"]["version"], "v1beta1");
    registry.uninstall("memcacheds.cache.example.com");
    assert!(registry.generation() > before);
    assert_eq!(discovery::api_group(&registry, "cache.example.com"), None);
}

#[test]
fn a_definition_that_is_not_established_serves_nothing() {
    assert!(crd::kinds_of(&yaml(DEFINITION)).is_empty());
}

#[test]
fn both_groups_of_events_are_one_store() {
    let registry = Registry::builtin();
    let core = registry.find("", "v1", "events").expect("a known kind");
    let new = registry.find("events.k8s.io", "v1", "events").expect("a known kind");
    assert_eq!(core.resource_key(), new.resource_key());
    let stored = yaml(
        "{apiVersion: v1, kind: Event, metadata: {name: e}, involvedObject: {kind: Pod, name: p}, message: hi, count: 2, \
         reportingComponent: c, source: {component: c}}",
    );
    let mut shown = stored.clone();
    new.from_storage(&mut shown);
    assert_eq!(
        shown,
        yaml(
            "{apiVersion: events.k8s.io/v1, kind: Event, metadata: {name: e}, regarding: {kind: Pod, name: p}, note: hi, \
             deprecatedCount: 2, reportingController: c, deprecatedSource: {component: c}}",
        )
    );
    new.to_storage(&mut shown);
    assert_eq!(shown, stored);
    let selector = FieldSelector::parse("regarding.name=p", &new).expect("a selector");
    assert_eq!(selector.exact("involvedObject.name"), Some("p"));
}
