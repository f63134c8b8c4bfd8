//! Lists and watches.

use futures::FutureExt as _;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::cluster::Cluster;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn create(cluster: &Cluster, name: &str, labels: Value) -> Value {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}});
    cluster.must(&format!("POST {MAPS}"), body).await
}

fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

#[tokio::test]
async fn a_watch_shows_what_there_is_and_then_what_happens() {
    let cluster = Cluster::new().await;
    create(&cluster, "a", json!({})).await;
    let mut watch = cluster.watch(&format!("{MAPS}?watch=true")).await;
    assert_eq!(watch.line().await, "ADDED ConfigMap default/a");
    create(&cluster, "b", json!({})).await;
    assert_eq!(watch.line().await, "ADDED ConfigMap default/b");
    cluster.must(&format!("PATCH {MAPS}/a"), json!({"data": {"x": "y"}})).await;
    assert_eq!(watch.line().await, "MODIFIED ConfigMap default/a");
    cluster.must(&format!("DELETE {MAPS}/a"), Value::Null).await;
    assert_eq!(watch.line().await, "DELETED ConfigMap default/a");
}

#[tokio::test]
async fn a_watch_resumes_where_another_ended() {
    let cluster = Cluster::new().await;
    let first = create(&cluster, "a", json!({})).await;
    create(&cluster, "b", json!({})).await;
    let mut watch = cluster.watch(&format!("{MAPS}?watch=1&resourceVersion={}", version(&first))).await;
    assert_eq!(watch.line().await, "ADDED ConfigMap default/b");
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let cluster = Cluster::new().await;
    create(&cluster, "a", json!({})).await;
    let options = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = cluster.watch(&format!("{MAPS}?{options}")).await;
    assert_eq!(watch.line().await, "ADDED ConfigMap default/a");
    assert_eq!(watch.line().await, "BOOKMARK initial-events-end");
    create(&cluster, "b", json!({})).await;
    assert_eq!(watch.line().await, "ADDED ConfigMap default/b");
}

#[tokio::test]
async fn an_object_that_is_no_longer_selected_is_deleted_to_the_watcher() {
    let cluster = Cluster::new().await;
    create(&cluster, "a", json!({"app": "x"})).await;
    let mut watch = cluster.watch(&format!("{MAPS}?watch=1&labelSelector=app%3Dx")).await;
    assert_eq!(watch.line().await, "ADDED ConfigMap default/a");
    let changed =
        cluster.must(&format!("PATCH {MAPS}/a"), json!({"metadata": {"labels": {"app": "y"}}})).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["metadata"]["labels"]["app"], "x");
    assert_eq!(version(&event["object"]), version(&changed));
    cluster.must(&format!("PATCH {MAPS}/a"), json!({"metadata": {"labels": {"app": "x"}}})).await;
    assert_eq!(watch.line().await, "ADDED ConfigMap default/a");
}

/// An event as far as it matters here.
fn told(event: &Value) -> String {
    format!("{} {} {}", event["type"], event["object"]["metadata"]["name"], version(&event["object"]))
}

#[tokio::test]
async fn many_watches_are_told_the_same_whoever_reads_first_and_how_often() {
    let cluster = Cluster::new().await;
    for name in ["a", "b", "c"] {
        create(&cluster, name, json!({"app": "x"})).await;
    }
    let from = cluster.api.store().revision();
    // What some ask for in the same words, one asks for in other words: with that one nobody shares.
    let wishes = [
        ("labelSelector=app%3Dx", "labelSelector=app%20in%20(x)"),
        (
            "labelSelector=app%3Dx&fieldSelector=metadata.name!%3Dc",
            "labelSelector=app,app%20in%20(x),!c&fieldSelector=metadata.name!%3Dc",
        ),
        ("", "labelSelector=!nobody"),
    ];
    for (many, one) in wishes {
        let watch = async |words: &str| {
            cluster.watch(&format!("{MAPS}?watch=1&resourceVersion={from}&{words}")).await
        };
        let mut alone = watch(one).await;
        let mut expected = Vec::new();
        let mut readers = Vec::new();
        for often in [1, 2, 3, 7, 50, usize::MAX] {
            readers.push((often, watch(many).await, Vec::new()));
        }
        for number in 1..=150 {
            let (name, app) = (["a", "b", "c"][number % 3], if number % 4 == 0 { "y" } else { "x" });
            let change = json!({"metadata": {"labels": {"app": app}}, "data": {"n": number.to_string()}});
            cluster.must(&format!("PATCH {MAPS}/{name}"), change).await;
            for (_, watch, seen) in readers.iter_mut().filter(|(often, ..)| number % often == 0) {
                while let Some(event) = watch.next().now_or_never() {
                    seen.push(told(&event.unwrap()));
                }
            }
        }
        let last = json!({"metadata": {"labels": {"app": "x"}}, "data": {"n": "last"}});
        let last = cluster.must(&format!("PATCH {MAPS}/a"), last).await;
        while !expected.last().is_some_and(|event: &String| event.ends_with(version(&last))) {
            expected.push(told(&alone.next().await.unwrap()));
        }
        assert!(expected.len() > 50, "{expected:?}");
        for (often, mut watch, mut seen) in readers {
            while seen.len() < expected.len() {
                seen.push(told(&watch.next().await.unwrap()));
            }
            assert_eq!(seen, expected, "{many}: read every {often} changes");
        }
    }
}

#[tokio::test]
async fn what_many_watches_are_told_is_written_once() {
    let cluster = Cluster::new().await;
    let from = cluster.api.store().revision();
    let watch = async |words: &str| {
        let path = format!("GET {MAPS}?watch=1&resourceVersion={from}{words}");
        cluster.send(&path, "").await.into_body()
    };
    let mut same = [watch("").await, watch("").await, watch("").await];
    let mut other = watch("&labelSelector=app%3Dx").await;
    create(&cluster, "a", json!({"app": "x"})).await;
    let mut pieces = Vec::new();
    for body in same.iter_mut().chain([&mut other]) {
        pieces.push(body.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    let [first, second, third, other] = pieces.try_into().unwrap();
    assert_eq!([second.as_ptr(), third.as_ptr()], [first.as_ptr(); 2]);
    assert_eq!(first, other);
    assert_ne!(first.as_ptr(), other.as_ptr());
}

#[tokio::test]
async fn a_watch_from_a_forgotten_revision_is_expired() {
    let cluster = Cluster::new().await;
    let first = create(&cluster, "a", json!({})).await;
    create(&cluster, "b", json!({})).await;
    cluster.api.store().compact(cluster.api.store().revision());
    let mut watch = cluster.watch(&format!("{MAPS}?watch=1&resourceVersion={}", version(&first))).await;
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(event["object"]["reason"], "Expired");
    assert_eq!(watch.line().await, "end");
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_its_time_is_over_and_sends_bookmarks_until_then() {
    let cluster = Cluster::new().await;
    let list = cluster.get(MAPS).await;
    let path =
        format!("{MAPS}?watch=1&allowWatchBookmarks=1&timeoutSeconds=100&resourceVersion={}", version(&list));
    let answer = cluster.send(&format!("GET {path}"), "").await;
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with(r#"{"type":"BOOKMARK""#), "{text}");
}

#[tokio::test]
async fn a_watch_may_be_meant_to_last_for_ever() {
    let cluster = Cluster::new().await;
    let path = format!("/api/v1/configmaps?watch=1&timeoutSeconds={}", i64::MAX);
    let mut watch = cluster.watch(&path).await;
    create(&cluster, "a", json!({})).await;
    watch.until("ADDED ConfigMap default/a").await;
}

#[tokio::test]
async fn pages_show_the_revision_of_the_first() {
    let cluster = Cluster::new().await;
    for name in ["a", "b", "c", "d"] {
        create(&cluster, name, json!({})).await;
    }
    let first = cluster.get(&format!("{MAPS}?limit=2")).await;
    assert_eq!(first["metadata"]["remainingItemCount"], 2);
    create(&cluster, "b2", json!({})).await;
    cluster.must(&format!("DELETE {MAPS}/d"), Value::Null).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let path = format!("GET {MAPS}?limit=2&continue={token}");
    cluster.check(&path, "", "200 ConfigMapList [c d]").await;
    let second = cluster.get(&path[4..]).await;
    assert_eq!(version(&second), version(&first));
    assert!(second["metadata"].get("continue").is_none());
    cluster.api.store().compact(cluster.api.store().revision());
    let (code, expired) = cluster.ask(&path, "").await;
    assert_eq!((code, expired["reason"].as_str().unwrap()), (410, "Expired"));
    let token = expired["metadata"]["continue"].as_str().unwrap();
    cluster.check(&format!("GET {MAPS}?continue={token}"), "", "200 ConfigMapList [b2 c]").await;
}

#[tokio::test]
async fn lists_are_selected_by_labels_and_fields() {
    let cluster = Cluster::new().await;
    create(&cluster, "a", json!({"app": "x"})).await;
    create(&cluster, "b", json!({"app": "y"})).await;
    create(&cluster, "c", json!({"app": "x"})).await;
    for (query, expected) in [
        ("", "200 ConfigMapList [a b c]"),
        ("?labelSelector=app%3Dx", "200 ConfigMapList [a c]"),
        ("?labelSelector=app%20notin%20(x)", "200 ConfigMapList [b]"),
        ("?fieldSelector=metadata.name%3Db", "200 ConfigMapList [b]"),
        ("?fieldSelector=metadata.name!%3Db", "200 ConfigMapList [a c]"),
        ("?labelSelector=app%3Dx&limit=1", "200 ConfigMapList [a]"),
        (
            "?fieldSelector=data.x%3Dy",
            r#"400 BadRequest: "data.x" is not a known field selector: only "metadata.name", "metadata.namespace""#,
        ),
        ("?limit=many", r#"400 BadRequest: strconv.ParseInt: parsing "many": invalid syntax"#),
        ("?resourceVersion=99999", "504 Timeout: Timeout: Too large resource version: 99999, current: "),
    ] {
        let (code, value) = cluster.ask(&format!("GET {MAPS}{query}"), "").await;
        let actual = format!("{code} {}", crate::cluster::short(&value));
        assert!(actual.starts_with(expected), "{query}: {actual}");
    }
}

#[tokio::test]
async fn an_old_revision_can_be_listed_exactly() {
    let cluster = Cluster::new().await;
    let first = create(&cluster, "a", json!({})).await;
    create(&cluster, "b", json!({})).await;
    let query = format!("?resourceVersion={}&resourceVersionMatch=Exact", version(&first));
    cluster.check(&format!("GET {MAPS}{query}"), "", "200 ConfigMapList [a]").await;
}

#[tokio::test]
async fn tables_and_metadata_are_given_to_those_who_ask() {
    let cluster = Cluster::new().await;
    create(&cluster, "a", json!({"app": "x"})).await;
    let table = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let (_, table_value) = cluster.ask(&format!("GET {MAPS}\n{table}"), "").await;
    assert_eq!(table_value["kind"], "Table");
    assert_eq!(table_value["rows"][0]["cells"][0], "a");
    assert_eq!(table_value["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let metadata =
        "Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";
    let (_, list) = cluster.ask(&format!("GET {MAPS}\n{metadata}"), "").await;
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["metadata"]["labels"], json!({"app": "x"}));
    assert!(list["items"][0].get("data").is_none());
}
