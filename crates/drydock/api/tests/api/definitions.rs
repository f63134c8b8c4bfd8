//! Custom resource definitions and their objects.

use std::time::Duration;

use drydock_store::{Change, Draft, Expect, Facets, Key, Options, Page, Range, Revision, Store};
use futures::FutureExt as _;
use serde_json::{Value, json};

use crate::cluster::Cluster;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const PROBES: &str = "/apis/api.example.com/v1/namespaces/default/probes";

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "probes.api.example.com"},
        "spec": {
            "group": "api.example.com",
            "scope": "Namespaced",
            "names": {"plural": "probes", "singular": "probe", "kind": "Probe", "listKind": "ProbeList", "shortNames": ["pb"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size", "labelSelectorPath": ".status.selector"}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["version"], "properties": {"size": {"type": "integer", "minimum": 1, "default": 1}, "version": {"type": "string"}}},
                    "status": {"type": "object", "properties": {"size": {"type": "integer"}, "selector": {"type": "string"}}},
                }}},
            }],
        },
    })
}

fn probe(spec: Value) -> Value {
    json!({"apiVersion": "api.example.com/v1", "kind": "Probe", "metadata": {"name": "a"}, "spec": spec})
}

async fn with_probes() -> Cluster {
    let cluster = Cluster::new().await;
    cluster.must(&format!("POST {CRDS}"), definition()).await;
    cluster
}

#[tokio::test]
async fn what_a_definition_defines_is_served_at_once() {
    let cluster = Cluster::new().await;
    cluster.check(&format!("GET {PROBES}"), "", "404 404 page not found").await;
    cluster.must(&format!("POST {CRDS}"), definition()).await;
    let stored = cluster.get(&format!("{CRDS}/probes.api.example.com")).await;
    let conditions: Vec<String> = stored["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| format!("{}={}", c["type"].as_str().unwrap(), c["status"].as_str().unwrap()))
        .collect();
    assert_eq!(conditions, ["NamesAccepted=True", "Established=True"]);
    cluster.check(&format!("GET {PROBES}"), "", "200 ProbeList []").await;
    let groups = cluster.get("/apis").await;
    assert!(groups["groups"].as_array().unwrap().iter().any(|g| g["name"] == "api.example.com"));
    let resources = cluster.get("/apis/api.example.com/v1").await;
    let names: Vec<&str> =
        resources["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["probes", "probes/status", "probes/scale"]);
}

#[tokio::test]
async fn objects_are_defaulted_pruned_and_validated() {
    let cluster = with_probes().await;
    let post = format!("POST {PROBES}");
    let made = cluster.must(&post, probe(json!({"version": "1", "foo": 1}))).await;
    assert_eq!(made["spec"], json!({"version": "1", "size": 1}));
    assert_eq!(made["metadata"]["generation"], 1);
    let listed = cluster.get(PROBES).await;
    assert_eq!(listed["items"][0], made);
    cluster.check(&format!("{post}?fieldValidation=Strict"), &probe(json!({"version": "1", "foo": 1})).to_string(), r#"400 BadRequest: Probe in version "v1" cannot be handled as a Probe: strict decoding error: unknown field "spec.foo""#).await;
    for (spec, expected) in [
        (
            json!({"size": 0, "version": "1"}),
            r#"422 Invalid: Probe.api.example.com "a" is invalid: spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"#,
        ),
        (json!({}), r#"422 Invalid: Probe.api.example.com "a" is invalid: spec.version: Required value"#),
        (
            json!({"size": "three", "version": "1"}),
            r#"422 Invalid: Probe.api.example.com "a" is invalid: [spec.size: Invalid value: "string": spec.size in body must be of type integer: "string", .spec.size: Invalid value: 0: .spec.size accessor error: three is of the type string, expected int64]"#,
        ),
    ] {
        cluster.check(&post, &probe(spec).to_string(), expected).await;
    }
    for (body, expected) in [
        (
            "{}",
            "400 BadRequest: the object provided is unrecognized (must be of type Probe): Object 'Kind' is missing in '{}' ({})",
        ),
        (
            r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a"}}"#,
            "400 BadRequest: the API version in the data (v1) does not match the expected API version (api.example.com/v1)",
        ),
        (
            r#"{"kind":"Nope","apiVersion":"api.example.com/v1","metadata":{"name":"a"}}"#,
            r#"422 Invalid: Nope.api.example.com "a" is invalid: kind: Invalid value: "Nope": must be Probe"#,
        ),
    ] {
        cluster.check(&post, body, expected).await;
    }
    cluster.check(&format!("PUT {PROBES}/a"), &probe(json!({"version": "2"})).to_string(), r#"422 Invalid: probes.api.example.com "a" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"#).await;
}

#[tokio::test]
async fn a_finalizer_that_says_not_whose_it_is_is_warned_of_when_it_comes() {
    let cluster = with_probes().await;
    let mut held = probe(json!({"version": "1"}));
    held["metadata"]["finalizers"] = json!(["hold"]);
    let told = async |line: &str, body: &Value| {
        let answer = cluster.send(line, body.to_string()).await;
        assert!(answer.status().is_success(), "{line}");
        let warnings = answer.headers().get_all("warning").iter();
        warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let warning = |name: &str| {
        format!(
            r#"299 - "metadata.finalizers: \"{name}\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers""#
        )
    };
    assert_eq!(told(&format!("POST {PROBES}"), &held).await, [warning("hold")]);
    let more = json!({"metadata": {"finalizers": ["hold", "example.com/hold", "tight"]}});
    assert_eq!(told(&format!("PATCH {PROBES}/a"), &more).await, [warning("tight")]);
}

#[tokio::test]
async fn a_custom_resource_is_scaled_by_its_paths() {
    let cluster = with_probes().await;
    cluster.must(&format!("POST {PROBES}"), probe(json!({"version": "1"}))).await;
    cluster
        .must(&format!("PATCH {PROBES}/a/status"), json!({"status": {"size": 1, "selector": "x=y"}}))
        .await;
    let scale = cluster.get(&format!("{PROBES}/a/scale")).await;
    assert_eq!(
        (&scale["spec"]["replicas"], &scale["status"]),
        (&json!(1), &json!({"replicas": 1, "selector": "x=y"}))
    );
    cluster.must(&format!("PATCH {PROBES}/a/scale"), json!({"spec": {"replicas": 3}})).await;
    let probe = cluster.get(&format!("{PROBES}/a")).await;
    assert_eq!((&probe["spec"]["size"], &probe["metadata"]["generation"]), (&json!(3), &json!(2)));
    assert_eq!(probe["status"]["size"], 1);
}

#[tokio::test]
async fn a_definition_takes_its_objects_with_it_and_waits_for_their_finalizers() {
    let cluster = with_probes().await;
    let mut held = probe(json!({"version": "1"}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.must(&format!("POST {PROBES}"), held).await;
    let mut watch = cluster.watch(&format!("{CRDS}?watch=1")).await;
    assert_eq!(watch.line().await, "ADDED CustomResourceDefinition probes.api.example.com");
    let mut probes = cluster.watch(&format!("{PROBES}?watch=1")).await;
    assert_eq!(probes.line().await, "ADDED Probe default/a");
    let ending = cluster.must(&format!("DELETE {CRDS}/probes.api.example.com"), Value::Null).await;
    assert_eq!(ending["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(watch.line().await, "MODIFIED CustomResourceDefinition probes.api.example.com");
    let mut another = probe(json!({"version": "1"}));
    another["metadata"]["name"] = "b".into();
    let refused = r#"403 Forbidden: probes.api.example.com "b" is forbidden: create not allowed while custom resource definition is terminating"#;
    cluster.check(&format!("POST {PROBES}"), &another.to_string(), refused).await;
    let apply = format!("PATCH {PROBES}/b?fieldManager=test\nContent-Type: application/apply-patch+yaml");
    cluster.check(&apply, &another.to_string(), refused).await;
    let marked = probes.next().await.unwrap();
    assert!(marked["object"]["metadata"]["deletionTimestamp"].is_string(), "{marked}");
    cluster.must(&format!("PATCH {PROBES}/a"), json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(probes.line().await, "DELETED Probe default/a");
    assert_eq!(watch.line().await, "DELETED CustomResourceDefinition probes.api.example.com");
    cluster.check(&format!("GET {PROBES}"), "", "404 404 page not found").await;
}

#[tokio::test]
async fn definitions_are_served_again_after_a_start_from_a_snapshot() {
    let cluster = with_probes().await;
    cluster.must(&format!("POST {PROBES}"), probe(json!({"version": "1"}))).await;
    let store = cluster.api.store();
    let snapshot = store.snapshot(store.revision()).unwrap();
    let again = Cluster::over(Store::from_snapshot(snapshot, Options::default())).await;
    again.check(&format!("GET {PROBES}"), "", "200 ProbeList [a]").await;
}

const GONE: &str = "DELETED CustomResourceDefinition probes.api.example.com";

#[tokio::test]
async fn a_definition_goes_on_from_after_any_write() {
    let cluster = Cluster::over(Store::in_memory(Options::unlimited())).await;
    let store = cluster.api.store();
    let Revision(empty) = store.revision();
    cluster.must(&format!("POST {CRDS}"), definition()).await;
    assert_eq!(store.revision(), Revision(empty + 2), "it is written, and then settled");
    cluster.must(&format!("POST {PROBES}"), probe(json!({"version": "1"}))).await;
    let Revision(used) = store.revision();
    let mut watch = cluster.watch(&format!("{CRDS}?watch=1")).await;
    cluster.must(&format!("DELETE {CRDS}/probes.api.example.com"), Value::Null).await;
    watch.until(GONE).await;
    let Revision(gone) = store.revision();
    for revision in empty + 1..=gone {
        let snapshot = store.snapshot(Revision(revision)).unwrap();
        let again = Cluster::over(Store::from_snapshot(snapshot, Options::default())).await;
        let expected = match revision {
            _ if revision == used => "200 ProbeList [a]",
            _ if revision < used => "200 ProbeList []",
            _ => "404 404 page not found",
        };
        if used < revision && revision < gone {
            again.watch(&format!("{CRDS}?watch=1&resourceVersion={revision}")).await.until(GONE).await;
        }
        again.check(&format!("GET {PROBES}"), "", expected).await;
    }
}

#[tokio::test]
async fn a_definition_takes_along_what_came_late() {
    let cluster = with_probes().await;
    let mut held = probe(json!({"version": "1"}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.must(&format!("POST {PROBES}"), held).await;
    let mut definitions = cluster.watch(&format!("{CRDS}?watch=1")).await;
    let mut probes = cluster.watch(&format!("{PROBES}?watch=1")).await;
    cluster.must(&format!("DELETE {CRDS}/probes.api.example.com"), Value::Null).await;
    probes.until("MODIFIED Probe default/a").await;
    // As a write that was past its checks when the deletion came.
    let late = Draft {
        head: br#"{"apiVersion":"api.example.com/v1","kind":"Probe","metadata":{"name":"late","namespace":"default","uid":"late","resourceVersion":""#.to_vec(),
        tail: br#""},"spec":{"version":"1"}}"#.to_vec(),
        facets: Facets::default(),
    };
    let key = Key::new("api.example.com/probes", "default", "late");
    cluster.api.store().commit(key, Expect::Absent, Change::Put(late)).await.unwrap();
    probes.until("DELETED Probe default/late").await;
    cluster.must(&format!("PATCH {PROBES}/a"), json!({"metadata": {"finalizers": null}})).await;
    definitions.until(GONE).await;
}

#[tokio::test]
async fn a_definition_that_serves_nothing_any_more_takes_its_objects_along() {
    let cluster = with_probes().await;
    cluster.must(&format!("POST {PROBES}"), probe(json!({"version": "1"}))).await;
    let mut versions = definition()["spec"]["versions"].clone();
    versions[0]["served"] = false.into();
    let name = format!("{CRDS}/probes.api.example.com");
    cluster.must(&format!("PATCH {name}"), json!({"spec": {"versions": versions}})).await;
    cluster.check(&format!("GET {PROBES}"), "", "404 404 page not found").await;
    let mut definitions = cluster.watch(&format!("{CRDS}?watch=1")).await;
    cluster.must(&format!("DELETE {name}"), Value::Null).await;
    definitions.until(GONE).await;
}

/// Two versions that know different fields; `storage` says in which of them objects are kept.
fn versions(storage: &str, known: &[&str]) -> Value {
    let version = |name: &str| {
        let properties: Value =
            known.iter().map(|field| ((*field).to_owned(), json!({"type": "string"}))).collect();
        json!({"name": name, "served": true, "storage": name == storage, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": properties}},
        }}})
    };
    json!([version("v1"), version("v2")])
}

#[tokio::test]
async fn objects_are_shown_as_their_definition_is_now() {
    let cluster = Cluster::new().await;
    let mut first = definition();
    first["spec"]["versions"] = versions("v1", &["a", "b"]);
    cluster.must(&format!("POST {CRDS}"), first).await;
    cluster.must(&format!("POST {PROBES}"), probe(json!({"a": "1", "b": "2"}))).await;
    let (old, new) = (format!("{PROBES}/a"), format!("{}/a", PROBES.replace("/v1/", "/v2/")));
    let moved = json!({"spec": {"versions": versions("v2", &["a"])}});
    cluster.must(&format!("PATCH {CRDS}/probes.api.example.com"), moved).await;
    for (path, version) in [(&old, "api.example.com/v1"), (&new, "api.example.com/v2")] {
        let shown = cluster.get(path).await;
        assert_eq!((&shown["apiVersion"], &shown["spec"]), (&json!(version), &json!({"a": "1"})));
        let mut watch = cluster.watch(&format!("{}?watch=1", path.trim_end_matches("/a"))).await;
        let seen = watch.next().await.unwrap()["object"].take();
        assert_eq!(seen, shown);
        assert_eq!(cluster.get(path.trim_end_matches("/a")).await["items"], json!([shown]));
    }
    let patched = cluster.must(&format!("PATCH {new}"), json!({"spec": {"a": "3"}})).await;
    assert_eq!(
        (&patched["apiVersion"], &patched["spec"]),
        (&json!("api.example.com/v2"), &json!({"a": "3"}))
    );
}

#[tokio::test]
async fn watches_end_with_what_their_definition_was() {
    let cluster = Cluster::new().await;
    let mut first = definition();
    first["spec"]["versions"] = versions("v1", &["a"]);
    cluster.must(&format!("POST {CRDS}"), first).await;
    cluster.must(&format!("POST {PROBES}"), probe(json!({"a": "1"}))).await;
    let name = format!("{CRDS}/probes.api.example.com");
    let watch = async |version: &str, query: &str| {
        let path = PROBES.replace("/v1/", &format!("/{version}/"));
        let mut watch = cluster.watch(&format!("{path}?watch=1{query}")).await;
        assert_eq!(watch.line().await, "ADDED Probe default/a");
        watch
    };
    let both = async || [watch("v1", "").await, watch("v2", "&labelSelector=!x").await];

    let mut watches = both().await;
    let told = json!({"metadata": {"annotations": {"example.com/of": "no account"}}});
    cluster.must(&format!("PATCH {name}"), told).await;
    let retouch = async |labels: Value| {
        cluster.must(&format!("PATCH {PROBES}/a"), json!({"metadata": {"labels": labels}})).await
    };
    retouch(json!({"y": "1"})).await;
    for watch in &mut watches {
        assert_eq!(watch.line().await, "MODIFIED Probe default/a", "what objects look like is as it was");
    }
    for change in [
        json!({"versions": versions("v1", &["a", "b"])}),
        json!({"versions": versions("v2", &["a"])}),
        json!({"names": {"shortNames": ["prb"]}}),
    ] {
        let mut watches = both().await;
        retouch(json!({"y": change.to_string().len().to_string()})).await;
        cluster.must(&format!("PATCH {name}"), json!({"spec": change})).await;
        retouch(json!({"y": "2"})).await;
        for watch in &mut watches {
            assert_eq!(watch.line().await, "MODIFIED Probe default/a", "{change}: it was before");
            assert_eq!(watch.line().await, "end", "{change}");
        }
    }
    let mut watches = both().await;
    cluster.must(&format!("DELETE {name}"), Value::Null).await;
    for watch in &mut watches {
        watch.until("DELETED Probe default/a").await;
        assert_eq!(watch.line().await, "end");
    }
}

#[tokio::test]
async fn a_default_that_comes_later_is_shown_also_where_it_has_no_type() {
    let cluster = Cluster::new().await;
    let mut first = definition();
    first["spec"]["versions"] = versions("v1", &["a"]);
    cluster.must(&format!("POST {CRDS}"), first.clone()).await;
    cluster.must(&format!("POST {PROBES}"), probe(json!({"a": "1"}))).await;
    let port = json!({"x-kubernetes-int-or-string": true, "default": "http"});
    for version in first["spec"]["versions"].as_array_mut().unwrap() {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["port"] = port.clone();
    }
    cluster.must(&format!("PATCH {CRDS}/probes.api.example.com"), json!({"spec": first["spec"]})).await;
    assert_eq!(cluster.get(&format!("{PROBES}/a")).await["spec"], json!({"a": "1", "port": "http"}));
}

#[tokio::test]
async fn a_definition_whose_end_was_cut_short_can_be_made_again() {
    let cluster = with_probes().await;
    let mut held = probe(json!({"version": "1"}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.must(&format!("POST {PROBES}"), held).await;
    let mut probes = cluster.watch(&format!("{PROBES}?watch=1")).await;
    let name = format!("{CRDS}/probes.api.example.com");
    cluster.must(&format!("DELETE {name}"), Value::Null).await;
    probes.until("MODIFIED Probe default/a").await;
    cluster.must(&format!("PATCH {name}"), json!({"metadata": {"finalizers": null}})).await;
    cluster.must(&format!("POST {CRDS}"), definition()).await;
    assert_eq!(probes.line().await, "end");
    let mut another = probe(json!({"version": "1"}));
    another["metadata"]["name"] = "b".into();
    cluster.must(&format!("POST {PROBES}"), another).await;
    let mut probes = cluster.watch(&format!("{PROBES}?watch=1")).await;
    cluster.must(&format!("PATCH {PROBES}/a"), json!({"metadata": {"finalizers": null}})).await;
    probes.until("DELETED Probe default/a").await;
    // Whoever ended the old definition has seen all that, and left the new one alone.
    cluster.must(&format!("DELETE {PROBES}/b"), Value::Null).await;
    probes.until("DELETED Probe default/b").await;
    cluster.check(&format!("GET {PROBES}"), "", "200 ProbeList []").await;
}

#[tokio::test]
async fn a_definition_that_changes_while_it_ends_comes_to_its_end() {
    let cluster = with_probes().await;
    let mut held = probe(json!({"version": "1"}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.must(&format!("POST {PROBES}"), held).await;
    let mut definitions = cluster.watch(&format!("{CRDS}?watch=1")).await;
    let mut probes = cluster.watch(&format!("{PROBES}?watch=1")).await;
    let name = format!("{CRDS}/probes.api.example.com");
    cluster.must(&format!("DELETE {name}"), Value::Null).await;
    probes.until("MODIFIED Probe default/a").await;
    cluster.must(&format!("PATCH {name}"), json!({"spec": {"names": {"shortNames": ["prb"]}}})).await;
    assert_eq!(probes.line().await, "end");
    cluster.must(&format!("PATCH {PROBES}/a"), json!({"metadata": {"finalizers": null}})).await;
    definitions.until(GONE).await;
}

#[tokio::test]
async fn names_that_become_free_are_given_to_who_waited() {
    let cluster = with_probes().await;
    let mut other = definition();
    other["metadata"]["name"] = "tests.api.example.com".into();
    other["spec"]["names"] = json!({"plural": "tests", "kind": "Test", "shortNames": ["pb"]});
    cluster.must(&format!("POST {CRDS}"), other).await;
    let tests = "/apis/api.example.com/v1/namespaces/default/tests";
    cluster.check(&format!("GET {tests}"), "", "404 404 page not found").await;
    let first = format!("{CRDS}/probes.api.example.com");
    let name = async |short: Value| {
        let change = json!({"spec": {"names": {"shortNames": short}}});
        cluster.must(&format!("PATCH {first}"), change).await;
        cluster.get(&first).await["status"]["conditions"][0].clone()
    };
    assert_eq!(name(Value::Null).await["status"], "True");
    cluster.check(&format!("GET {tests}"), "", "200 TestList []").await;

    // Now it is the first that waits, until the other is gone.
    assert_eq!(name(json!(["pb"])).await["reason"], "ShortNamesConflict");
    let mut definitions = cluster.watch(&format!("{CRDS}?watch=1")).await;
    cluster.must(&format!("DELETE {CRDS}/tests.api.example.com"), Value::Null).await;
    definitions.until("DELETED CustomResourceDefinition tests.api.example.com").await;
    definitions.until("MODIFIED CustomResourceDefinition probes.api.example.com").await;
    assert_eq!(cluster.get(&first).await["status"]["conditions"][0]["status"], "True");
}

#[tokio::test]
async fn a_definition_is_seen_through_also_when_its_writer_goes_away() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::kept(directory.path()).await;
    let mut watch = cluster.watch(&format!("{CRDS}?watch=1")).await;
    cluster.abandon(&format!("POST {CRDS}"), definition().to_string());
    cluster.eventually(&format!("POST {PROBES}"), &probe(json!({"version": "1"})).to_string(), 201).await;
    cluster.abandon(&format!("DELETE {CRDS}/probes.api.example.com"), "");
    watch.until(GONE).await;
}

#[tokio::test]
async fn no_object_outlives_its_definition() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = Cluster::kept(directory.path()).await;
    let range = Range { resource: "api.example.com/probes".into(), namespace: None };
    for _ in 0..4 {
        cluster.must(&format!("POST {CRDS}"), definition()).await;
        let mut definitions = cluster.watch(&format!("{CRDS}?watch=1")).await;
        cluster.abandon(&format!("DELETE {CRDS}/probes.api.example.com"), "");
        // Now the mark of the deletion is being written, and nobody sees it yet. What comes now is written after it,
        // and so large that the definition is found empty meanwhile. Where that was written at once, it is refused.
        tokio::task::yield_now().await;
        let large = probe(json!({"version": "x".repeat(2 << 20)})).to_string();
        let _refused = cluster.send(&format!("POST {PROBES}"), large).now_or_never();
        definitions.until(GONE).await;
        let empty = async {
            while !cluster.api.store().list(&range, Page::default()).unwrap().items.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), empty).await.expect("an object without a definition");
    }
}
