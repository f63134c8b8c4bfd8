//! The four patches, status and scale.

use serde_json::{Value, json};

use crate::cluster::{Cluster, config_map};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment(replicas: u32) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
    }})
}

fn patch(kind: &str, path: &str) -> String {
    format!("PATCH {path}\nContent-Type: application/{kind}")
}

#[tokio::test]
async fn json_patches_are_carried_out_or_refused() {
    let cluster = Cluster::new().await;
    cluster
        .must(&format!("POST {MAPS}"), serde_json::from_str(&config_map("a", json!({"x": "1"}))).unwrap())
        .await;
    let line = patch("json-patch+json", &format!("{MAPS}/a"));
    cluster
        .check(
            &line,
            r#"[{"op":"replace","path":"/data/x","value":"2"},{"op":"add","path":"/data/y","value":"3"}]"#,
            "200 ConfigMap default/a",
        )
        .await;
    assert_eq!(cluster.get(&format!("{MAPS}/a")).await["data"], json!({"x": "2", "y": "3"}));
    let (code, _) = cluster.ask(&line, r#"[{"op":"test","path":"/data/x","value":"9"}]"#).await;
    assert_eq!(code, 422);
    cluster
        .check(
            &line,
            r#"[{"op":"replace","path":"/metadata/name","value":"b"}]"#,
            "400 BadRequest: the name of the object (b) does not match the name on the URL (a)",
        )
        .await;
    let copy = json!({"op": "copy", "from": "/x", "path": "/x/-"});
    let mut doubling = vec![json!({"op": "add", "path": "/x", "value": ["0123456789"]})];
    doubling.resize(36, copy);
    let refused = "422 Invalid: the server rejected our request due to an error in our request";
    cluster.check(&line, &json!(doubling).to_string(), refused).await;
    cluster
        .check(
            &patch("nope", &format!("{MAPS}/a")),
            "{}",
            "415 UnsupportedMediaType: 415: Unsupported Media Type",
        )
        .await;
}

#[tokio::test]
async fn a_patch_adds_no_finalizer_that_says_not_whose_it_is() {
    let cluster = Cluster::new().await;
    cluster
        .must(&format!("POST {MAPS}"), serde_json::from_str(&config_map("a", json!({"x": "1"}))).unwrap())
        .await;
    cluster
        .check(
            &format!("PATCH {MAPS}/a"),
            r#"{"metadata":{"finalizers":["hold"]}}"#,
            r#"422 Invalid: ConfigMap "a" is invalid: metadata.finalizers[0]: Invalid value: "hold": name is neither a standard finalizer name nor is it fully qualified"#,
        )
        .await;
}

#[tokio::test]
async fn a_strategic_merge_patch_merges_containers_by_name_and_counts_a_generation() {
    let cluster = Cluster::new().await;
    let made = cluster.must(&format!("POST {DEPLOYMENTS}"), deployment(1)).await;
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(made["spec"]["strategy"]["type"], "RollingUpdate");
    let change = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}, {"name": "e", "image": "j"}]}}}});
    let (code, patched) = cluster
        .ask(&patch("strategic-merge-patch+json", &format!("{DEPLOYMENTS}/d")), change.to_string())
        .await;
    assert_eq!(code, 200, "{patched}");
    let images: Vec<&str> = patched["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["image"].as_str().unwrap())
        .collect();
    assert_eq!(images, ["i:2", "j"]);
    assert_eq!(patched["metadata"]["generation"], 2);
}

#[tokio::test]
async fn an_apply_creates_merges_and_names_conflicts() {
    let cluster = Cluster::new().await;
    let apply = |manager: &str, force: bool| {
        format!(
            "PATCH {DEPLOYMENTS}/d?fieldManager={manager}{}\nContent-Type: application/apply-patch+yaml",
            if force { "&force=true" } else { "" }
        )
    };
    cluster.check(&format!("PATCH {DEPLOYMENTS}/d\nContent-Type: application/apply-patch+yaml"), "{}", r#"422 Invalid: PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch"#).await;
    let (code, made) = cluster.ask(&apply("one", false), deployment(1).to_string()).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["metadata"]["managedFields"][0]["operation"], "Apply");
    let (code, same) = cluster.ask(&apply("one", false), deployment(1).to_string()).await;
    assert_eq!((code, &same), (200, &made));
    let mut other = deployment(3);
    other["spec"] = json!({"replicas": 3});
    let (code, conflict) = cluster.ask(&apply("two", false), other.to_string()).await;
    assert_eq!(code, 409, "{conflict}");
    assert_eq!(conflict["message"], r#"Apply failed with 1 conflict: conflict with "one": .spec.replicas"#);
    assert_eq!(
        conflict["details"]["causes"],
        json!([{"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".spec.replicas"}])
    );
    let (code, forced) = cluster.ask(&apply("two", true), other.to_string()).await;
    assert_eq!((code, &forced["spec"]["replicas"]), (200, &json!(3)));
    assert_eq!(forced["metadata"]["generation"], 2);
}

#[tokio::test]
async fn the_status_is_written_by_its_own_path() {
    let cluster = Cluster::new().await;
    cluster.must(&format!("POST {DEPLOYMENTS}"), deployment(1)).await;
    let line = format!("PATCH {DEPLOYMENTS}/d");
    let change = json!({"spec": {"replicas": 2}, "status": {"replicas": 7}});
    let main = cluster.must(&line, change.clone()).await;
    assert_eq!((&main["spec"]["replicas"], main["status"].get("replicas")), (&json!(2), None));
    let status = cluster
        .must(
            &format!("PATCH {DEPLOYMENTS}/d/status"),
            json!({"spec": {"replicas": 9}, "status": {"replicas": 7}}),
        )
        .await;
    assert_eq!((&status["spec"]["replicas"], &status["status"]["replicas"]), (&json!(2), &json!(7)));
    assert_eq!(status["metadata"]["generation"], main["metadata"]["generation"]);
    let manager = status["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|m| m["subresource"] == "status")
        .unwrap();
    assert_eq!(manager["fieldsV1"], json!({"f:status": {"f:replicas": {}}}));
}

#[tokio::test]
async fn a_deployment_is_scaled() {
    let cluster = Cluster::new().await;
    cluster.must(&format!("POST {DEPLOYMENTS}"), deployment(1)).await;
    let scale = cluster.get(&format!("{DEPLOYMENTS}/d/scale")).await;
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(scale["spec"], json!({"replicas": 1}));
    assert_eq!(scale["status"], json!({"replicas": 0, "selector": "app=d"}));
    let mut wanted = scale.clone();
    wanted["spec"]["replicas"] = 4.into();
    let put = cluster.must(&format!("PUT {DEPLOYMENTS}/d/scale"), wanted.clone()).await;
    assert_eq!(put["spec"]["replicas"], 4);
    let (code, _) = cluster.ask(&format!("PUT {DEPLOYMENTS}/d/scale"), wanted.to_string()).await;
    assert_eq!(code, 409, "the version is an old one");
    cluster.must(&format!("PATCH {DEPLOYMENTS}/d/scale"), json!({"spec": {"replicas": 0}})).await;
    let deployment = cluster.get(&format!("{DEPLOYMENTS}/d")).await;
    assert_eq!(deployment["spec"]["replicas"], 0);
    assert_eq!(deployment["metadata"]["generation"], 3);
    cluster
        .check(
            &format!("PATCH {DEPLOYMENTS}/d/scale"),
            r#"{"spec":{"replicas":-1}}"#,
            r#"422 Invalid: Scale.autoscaling "d" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"#,
        )
        .await;
}

#[tokio::test]
async fn an_applied_scale_is_owned_as_one() {
    let cluster = Cluster::new().await;
    cluster.must(&format!("POST {DEPLOYMENTS}"), deployment(1)).await;
    let body = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 5}});
    let line = patch("apply-patch+yaml", &format!("{DEPLOYMENTS}/d/scale?fieldManager=hpa"));
    let (code, conflict) = cluster.ask(&line, body.to_string()).await;
    assert_eq!(code, 409, "{conflict}");
    let line = patch("apply-patch+yaml", &format!("{DEPLOYMENTS}/d/scale?fieldManager=hpa&force=true"));
    let (code, scale) = cluster.ask(&line, body.to_string()).await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(5)));
    let object = cluster.get(&format!("{DEPLOYMENTS}/d")).await;
    let entry = object["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|m| m["manager"] == "hpa")
        .unwrap();
    assert_eq!((&entry["operation"], &entry["subresource"]), (&json!("Apply"), &json!("scale")));
    assert_eq!(entry["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
}

#[tokio::test]
async fn many_writers_who_name_no_version_all_succeed() {
    let cluster = Cluster::new().await;
    cluster.must(&format!("POST {MAPS}"), serde_json::from_str(&config_map("a", json!({}))).unwrap()).await;
    let line = format!("PATCH {MAPS}/a");
    let writes = (0..20).map(|n| cluster.must(&line, json!({"data": {format!("k{n}"): "v"}})));
    futures::future::join_all(writes).await;
    assert_eq!(cluster.get(&format!("{MAPS}/a")).await["data"].as_object().unwrap().len(), 20);
}

#[tokio::test]
async fn a_patch_makes_nothing_that_is_too_deep_to_read_again() {
    let cluster = Cluster::new().await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.x.io"},
        "spec": {
            "group": "x.io", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    cluster.must("POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    let nested = |depth: usize| "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
    let (things, thing) =
        ("/apis/x.io/v1/namespaces/default/things", "/apis/x.io/v1/namespaces/default/things/deep");
    let body = format!(
        r#"{{"apiVersion":"x.io/v1","kind":"Thing","metadata":{{"name":"deep"}},"free":{}}}"#,
        nested(100)
    );
    let (code, _) = cluster.ask(&format!("POST {things}"), body).await;
    assert_eq!(code, 201);
    let place = "/free".to_owned() + &"/a".repeat(100);
    let patch = format!(r#"[{{"op":"replace","path":"{place}","value":{}}}]"#, nested(100));
    let line = format!("PATCH {thing}\nContent-Type: application/json-patch+json");
    let (code, answer) = cluster.ask(&line, patch).await;
    assert_eq!((code, &answer["message"]), (400, &"exceeded max depth of 120".into()));
    let (code, answer) = cluster.ask(&format!("POST {things}"), nested(121)).await;
    assert_eq!(code, 400);
    assert!(answer["message"].as_str().unwrap().contains("exceeded max depth of 120"), "{answer}");
    cluster.get(thing).await;
}

#[tokio::test]
async fn a_list_that_is_copied_into_itself_is_refused_and_ends_no_server() {
    let cluster = Cluster::new().await;
    cluster.must(&format!("POST {MAPS}"), serde_json::from_str(&config_map("a", json!({}))).unwrap()).await;
    cluster.must(&format!("POST {DEPLOYMENTS}"), deployment(1)).await;
    let list = "[".repeat(118) + &"]".repeat(118);
    let copies: String = (0..10)
        .map(|round| format!(r#",{{"op":"copy","from":"/zz","path":"/zz{}"}}"#, "/0".repeat(118 << round)))
        .collect();
    let body = format!(r#"[{{"op":"add","path":"/zz","value":{list}}}{copies}]"#);
    for path in [format!("{MAPS}/a"), format!("{DEPLOYMENTS}/d/scale")] {
        let line = patch("json-patch+json", &path);
        cluster.check(&line, &body, "400 BadRequest: exceeded max depth of 120").await;
    }
}

#[tokio::test]
async fn what_is_applied_twice_is_refused_or_warned_of() {
    let cluster = Cluster::new().await;
    let line = |validation: &str| {
        patch("apply-patch+yaml", &format!("{MAPS}/a?fieldManager=x&fieldValidation={validation}"))
    };
    let twice = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  a: one\n  a: two\n";
    cluster
        .check(
            &line("Strict"),
            twice,
            "400 BadRequest: error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 6: key \"a\" already set in map",
        )
        .await;
    let told = async |validation: &str| {
        let answer = cluster.send(&line(validation), twice).await;
        assert!(answer.status().is_success());
        let warnings = answer.headers().get_all("warning").iter();
        warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(told("Warn").await, [r#"299 - "line 6: key \"a\" already set in map""#]);
    assert_eq!(told("Ignore").await, Vec::<String>::new());
}
