//! Creating, reading, updating and deleting.

use serde_json::{Value, json};

use crate::cluster::{Cluster, config_map};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn an_object_is_created_read_updated_and_deleted() {
    let cluster = Cluster::new().await;
    cluster.check(&format!("GET {MAPS}/a"), "", r#"404 NotFound: configmaps "a" not found"#).await;
    cluster
        .check(&format!("POST {MAPS}"), &config_map("a", json!({"x": "1"})), "201 ConfigMap default/a")
        .await;
    cluster
        .check(
            &format!("POST {MAPS}"),
            &config_map("a", json!({})),
            r#"409 AlreadyExists: configmaps "a" already exists"#,
        )
        .await;
    let created = cluster.get(&format!("{MAPS}/a")).await;
    assert_eq!(created["data"], json!({"x": "1"}));
    assert_eq!(created["apiVersion"], "v1");
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        assert!(created["metadata"][field].is_string(), "{field}: {created}");
    }
    assert_eq!(created["metadata"]["managedFields"][0]["manager"], "test");

    let mut changed = created.clone();
    changed["data"]["x"] = "2".into();
    let updated = cluster.must(&format!("PUT {MAPS}/a"), changed.clone()).await;
    assert_eq!(updated["data"]["x"], "2");
    assert_eq!(updated["metadata"]["uid"], created["metadata"]["uid"]);
    cluster
        .check(
            &format!("PUT {MAPS}/a"),
            &changed.to_string(),
            r#"409 Conflict: Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to the latest version and try again"#,
        )
        .await;
    cluster
        .check(&format!("PATCH {MAPS}/a"), r#"{"data":{"y":"3","x":null}}"#, "200 ConfigMap default/a")
        .await;
    assert_eq!(cluster.get(&format!("{MAPS}/a")).await["data"], json!({"y": "3"}));
    cluster.check(&format!("DELETE {MAPS}/a"), "", "200 Success a").await;
    cluster.check(&format!("DELETE {MAPS}/a"), "", r#"404 NotFound: configmaps "a" not found"#).await;
}

#[tokio::test]
async fn an_update_that_changes_nothing_writes_nothing() {
    let cluster = Cluster::new().await;
    let created: Value = serde_json::from_str(&config_map("a", json!({"x": "1"}))).unwrap();
    let created = cluster.must(&format!("POST {MAPS}"), created).await;
    let same = cluster.must(&format!("PUT {MAPS}/a"), created.clone()).await;
    assert_eq!(same, created);
    let patched = cluster.must(&format!("PATCH {MAPS}/a"), json!({"data": {"x": "1"}})).await;
    assert_eq!(patched["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let cluster = Cluster::new().await;
    let before = cluster.api.store().revision();
    cluster
        .check(&format!("POST {MAPS}?dryRun=All"), &config_map("a", json!({})), "201 ConfigMap default/a")
        .await;
    assert_eq!(cluster.api.store().revision(), before);
    cluster
        .check(
            &format!("POST {MAPS}?dryRun=Some"),
            &config_map("a", json!({})),
            r#"422 Invalid: CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All""#,
        )
        .await;
}

#[tokio::test]
async fn names_are_generated() {
    let cluster = Cluster::new().await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}});
    let one = cluster.must(&format!("POST {MAPS}"), body.clone()).await;
    let two = cluster.must(&format!("POST {MAPS}"), body).await;
    let name = one["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("x-") && name.len() == 7, "{name}");
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);
}

#[tokio::test]
async fn bad_bodies_are_refused_in_kubernetes_words() {
    let cluster = Cluster::new().await;
    let post = format!("POST {MAPS}");
    for (body, expected) in [
        (
            "{",
            "400 BadRequest: the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input ({)",
        ),
        (
            "",
            "400 BadRequest: the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)",
        ),
        (
            "{}",
            r#"422 Invalid: ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required"#,
        ),
        (
            r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a"}}"#,
            r#"400 BadRequest: Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion"#,
        ),
        (
            r#"{"kind":"ConfigMap","apiVersion":"v2","metadata":{"name":"a"}}"#,
            r#"400 BadRequest: ConfigMap in version "v2" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for version "v2" in scheme "pkg/runtime/scheme.go:110""#,
        ),
        (
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"b"}}"#,
            "400 BadRequest: the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"3"}}"#,
            "500 : resourceVersion should not be set on objects to be created",
        ),
    ] {
        cluster.check(&post, body, expected).await;
    }
    let strict = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","foo":1},"bar":{"a":1},"data":{"a":"b","a":"c"}}"#;
    cluster
        .check(
            &format!("POST {MAPS}?fieldValidation=Strict"),
            strict,
            r#"400 BadRequest: ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "metadata.foo", unknown field "bar", duplicate field "data.a""#,
        )
        .await;
    let answer = cluster.send(&post, strict).await;
    let warnings: Vec<_> = answer.headers().get_all("warning").iter().map(|w| w.to_str().unwrap()).collect();
    assert_eq!(
        warnings,
        [
            r#"299 - "unknown field \"metadata.foo\"""#,
            r#"299 - "unknown field \"bar\"""#,
            r#"299 - "duplicate field \"data.a\"""#
        ]
    );
    let many: String = (0..5000).map(|n| format!(r#","f{n:04}":1"#)).collect();
    let many = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"m"}}{many}}}"#);
    let answer = cluster.send(&post, many.as_str()).await;
    let warnings: Vec<_> = answer.headers().get_all("warning").iter().map(|w| w.to_str().unwrap()).collect();
    assert_eq!((warnings.len(), warnings[99]), (100, r#"299 - "unknown field \"f0099\"""#));
    let (_, refused) = cluster.ask(&format!("POST {MAPS}?fieldValidation=Strict"), many.as_str()).await;
    let message = refused["message"].as_str().unwrap();
    assert!(message.ends_with(r#"unknown field "f0098", unknown field "f0099""#), "{message}");
    let yaml = |validation: &str| {
        format!("POST {MAPS}?fieldValidation={validation}\nContent-Type: application/yaml")
    };
    let twice = "{apiVersion: v1, kind: ConfigMap, metadata: {name: b}, data: {a: one, a: two}}";
    cluster
        .check(
            &yaml("Strict"),
            twice,
            r#"400 BadRequest: ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: duplicate field "data.a""#,
        )
        .await;
    cluster.check(&yaml("Ignore"), twice, "201 ConfigMap default/b").await;
    cluster
        .check(
            &format!("{post}\nContent-Type: text/plain"),
            "x",
            "415 UnsupportedMediaType: the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )
        .await;
    let large = config_map("large", json!({"x": "x".repeat(3 << 20)}));
    cluster
        .check(&post, &large, "413 RequestEntityTooLarge: Request entity too large: limit is 3145728")
        .await;
}

#[tokio::test]
async fn a_pod_can_be_labelled() {
    let cluster = Cluster::new().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    cluster.must("POST /api/v1/namespaces/default/serviceaccounts", account).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = cluster.must("POST /api/v1/namespaces/default/pods", pod).await;
    let labelled = cluster
        .must("PATCH /api/v1/namespaces/default/pods/p", json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    assert_eq!(labelled["spec"], made["spec"]);
}

#[tokio::test]
async fn yaml_is_read_and_written() {
    let cluster = Cluster::new().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: \"1\"\n";
    cluster
        .check(&format!("POST {MAPS}\nContent-Type: application/yaml"), yaml, "201 ConfigMap default/a")
        .await;
    let (_, text) = cluster.ask(&format!("GET {MAPS}/a\nAccept: application/yaml"), "").await;
    assert!(text.as_str().unwrap().contains("kind: ConfigMap"), "{text}");
}

#[tokio::test]
async fn unknown_paths_are_not_found() {
    let cluster = Cluster::new().await;
    cluster.check("GET /apis/nope/v1/nope", "", "404 404 page not found").await;
    cluster
        .check("GET /api/v1/nope", "", "404 NotFound: the server could not find the requested resource")
        .await;
    cluster
        .check(
            "POST /api/v1/namespaces/nope/configmaps",
            &config_map("a", json!({})),
            r#"404 NotFound: namespaces "nope" not found"#,
        )
        .await;
}

#[tokio::test]
async fn a_refused_object_without_a_name_is_called_by_how_its_name_begins() {
    let cluster = Cluster::new().await;
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "going"}});
    cluster.must("POST /api/v1/namespaces", body).await;
    cluster.must("DELETE /api/v1/namespaces/going", Value::Null).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    cluster.must("POST /api/v1/namespaces/default/serviceaccounts", account).await;
    for (metadata, called) in [
        (json!({"name": "web-0", "generateName": "web-"}), "web-0"),
        (json!({"generateName": "web-"}), "web-"),
        (json!({}), "Unknown"),
    ] {
        let pod = |field: &str, value: &str| {
            let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                "spec": {"containers": [{"name": "c", "image": "i"}]}});
            pod["spec"][field] = value.into();
            pod.to_string()
        };
        let refused =
            |kind: &str, why: &str| format!(r#"403 Forbidden: {kind} "{called}" is forbidden: {why}"#);
        let pods = "POST /api/v1/namespaces/default/pods";
        let why = r#"error looking up service account default/nobody: serviceaccount "nobody" not found"#;
        cluster.check(pods, &pod("serviceAccountName", "nobody"), &refused("pods", why)).await;
        let why = "no PriorityClass with name none was found";
        cluster.check(pods, &pod("priorityClassName", "none"), &refused("pods", why)).await;
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).to_string();
        let why = "unable to create new content in namespace going because it is being terminated";
        let maps = "POST /api/v1/namespaces/going/configmaps";
        cluster.check(maps, &map, &refused("configmaps", why)).await;
    }
}
