//! Paths that name no resource.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http_body_util::BodyExt;
use serde_json::json;

use crate::cluster::{Cluster, config_map};

#[tokio::test]
async fn the_version_and_health_are_told() {
    let cluster = Cluster::new().await;
    let version = cluster.get("/version").await;
    assert_eq!((&version["major"], &version["minor"]), (&json!("1"), &json!("34")));
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1.34."));
    cluster.check("GET /readyz", "", "200 ok").await;
    cluster
        .check("GET /readyz?verbose", "", "200 [+]ping ok\n[+]log ok\n[+]store ok\nreadyz check passed")
        .await;
    cluster.check("GET /livez/ping", "", "200 ok").await;
    cluster.check("GET /nope", "", "404 404 page not found").await;
}

#[tokio::test]
async fn discovery_is_cached_by_its_tag() {
    let cluster = Cluster::new().await;
    let accept =
        "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let first = cluster.send(&format!("GET /apis\n{accept}"), "").await;
    let tag = first.headers()["etag"].to_str().unwrap().to_owned();
    assert!(first.headers()["content-type"].to_str().unwrap().contains("APIGroupDiscoveryList"));
    let again = cluster.send(&format!("GET /apis\n{accept}\nIf-None-Match: {tag}"), "").await;
    assert_eq!(again.status(), 304);
    let plain = cluster.get("/apis").await;
    assert_eq!(plain["kind"], "APIGroupList");
    let (_, resources) = cluster.ask("GET /api/v1", "").await;
    assert_eq!(resources["kind"], "APIResourceList");
}

#[tokio::test]
async fn openapi_is_served_in_both_versions_and_in_protobuf() {
    let cluster = Cluster::new().await;
    let index = cluster.get("/openapi/v3").await;
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
    let document = cluster.get(url).await;
    assert!(document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"].is_object());
    assert_eq!(cluster.get("/openapi/v2").await["swagger"], "2.0");
    let protobuf = cluster
        .send("GET /openapi/v2\nAccept: application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "")
        .await;
    assert_eq!(protobuf.status(), 200);
    let bytes = protobuf.into_body().collect().await.unwrap().to_bytes();
    assert!(bytes.starts_with(b"\x0a\x032.0"));
}

#[tokio::test]
async fn a_document_is_made_once_however_its_path_is_written() {
    let cluster = Cluster::new().await;
    for path in ["/openapi/v2", "/openapi/v3", "/openapi/v3/apis/apps/v1", "/apis", "/apis/apps/v1"] {
        let mut places = Vec::new();
        for path in [path.to_owned(), format!("{path}/"), format!("/{path}//")] {
            let answer = cluster.send(&format!("GET {path}"), "").await;
            assert_eq!(answer.status(), 200, "{path}");
            places.push(answer.body().bytes().unwrap().as_ptr());
        }
        assert!(places.iter().all(|place| *place == places[0]), "{path} is kept more than once");
    }
}

#[tokio::test]
async fn people_are_shown_lines_and_programs_none() {
    let cluster = Cluster::new().await;
    for (line, lines) in [
        ("GET /api/v1/namespaces/default", false),
        ("GET /api/v1/namespaces/default?pretty=true", true),
        ("GET /api/v1/namespaces/default\nUser-Agent: curl/8.5.0", true),
        ("GET /api/v1/namespaces/default?pretty=\nUser-Agent: Mozilla/5.0 (X11)", true),
        ("GET /api/v1/namespaces/default?pretty=0\nUser-Agent: curl/8.5.0", false),
        ("GET /api/v1/namespaces/none\nUser-Agent: curl/8.5.0", true),
        ("GET /openapi/v2\nUser-Agent: curl/8.5.0", false),
    ] {
        let answer = cluster.send(line, "").await;
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(bytes.starts_with(b"{\n  \""), lines, "{line}");
    }
}

#[tokio::test]
async fn large_answers_are_compressed_for_those_who_ask() {
    let cluster = Cluster::new().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let large = config_map("a", json!({"x": "x".repeat(200_000)}));
    cluster.check(&format!("POST {maps}"), &large, "201 ConfigMap default/a").await;
    let answer = cluster.send(&format!("GET {maps}\nAccept-Encoding: gzip"), "").await;
    assert_eq!(answer.headers()["content-encoding"], "gzip");
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(bytes.len() < 10_000, "{}", bytes.len());
    assert!(cluster.send(&format!("GET {maps}"), "").await.headers().get("content-encoding").is_none());
}

#[tokio::test]
async fn readiness_answers_for_those_who_asked_it_to() {
    let cluster = Cluster::new().await;
    let ready = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ready);
    let check = move || if seen.load(Ordering::Relaxed) { Ok(()) } else { Err("not yet".to_owned()) };
    cluster.api.check("operators", Arc::new(check));
    let failed = "500 [+]ping ok\n[+]log ok\n[+]store ok\n[-]operators failed: not yet\nreadyz check failed";
    cluster.check("GET /readyz", "", failed).await;
    cluster.check("GET /readyz/operators", "", "500 [-]operators failed: not yet\nreadyz check failed").await;
    for well in ["/livez", "/healthz", "/readyz/store"] {
        cluster.check(&format!("GET {well}"), "", "200 ok").await;
    }
    cluster.check("GET /livez/operators", "", "404 404 page not found").await;
    ready.store(true, Ordering::Relaxed);
    cluster.check("GET /readyz", "", "200 ok").await;
    cluster.check("GET /readyz/operators", "", "200 ok").await;
}
