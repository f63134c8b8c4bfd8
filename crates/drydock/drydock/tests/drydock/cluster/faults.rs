//! Each fault does what it says, to whom it says, and as often as it says.

use std::time::Duration;

use drydock::{Fault, Identity, Verb};
use futures::{FutureExt, StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use kube::api::{Api, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;

use crate::cluster::support::*;

#[tokio::test]
async fn the_nth_write_is_refused_as_ordered_and_takes_no_effect() {
    for (fault, expected) in [
        (Fault::conflict(), (409, "Conflict")),
        (Fault::too_many_requests(), (429, "TooManyRequests")),
        (Fault::internal_error(), (500, "InternalError")),
    ] {
        let drydock = quiet().await;
        let api = config_maps(&drydock);
        let order = drydock.faults().order(fault.nth(2));
        create(&api, "first").await.unwrap();
        assert_eq!(order.count(), 0);
        match create(&api, "second").await.unwrap_err() {
            kube::Error::Api(status) => assert_eq!((status.code, status.reason.as_str()), expected),
            other => panic!("{other}"),
        }
        create(&api, "third").await.unwrap();
        assert_eq!((order.count(), names(&api).await), (1, vec!["first".into(), "third".into()]));
    }
}

#[tokio::test]
async fn a_cut_connection_leaves_the_client_in_doubt() {
    let drydock = quiet().await;
    let api = config_maps(&drydock);
    for (fault, took_effect) in [(Fault::cut_before(), false), (Fault::cut_after(), true)] {
        create(&api, &format!("pooled-{took_effect}")).await.unwrap();
        let order = drydock.faults().order(fault);
        let name = format!("doubtful-{took_effect}");
        let error = create(&api, &name).await.unwrap_err();
        assert!(!matches!(error, kube::Error::Api(_)), "there was no answer: {error}");
        assert_eq!(api.get_opt(&name).await.unwrap().is_some(), took_effect);
        assert_eq!(order.count(), 1, "it was tried once");
    }
}

#[tokio::test]
async fn a_fault_waits_for_the_request_it_is_about() {
    let drydock = quiet().await;
    let api = config_maps(&drydock);
    let other: Api<_> = Api::namespaced(drydock.client_as(Identity::admin("other")), "default");
    create(&api, "a").await.unwrap();
    let order = drydock.faults().order(
        Fault::internal_error()
            .verb(Verb::Patch)
            .resource("configmaps")
            .namespace("default")
            .name("a")
            .user("other"),
    );
    create(&api, "b").await.unwrap();
    create(&other, "c").await.unwrap();
    let patch = |api: &Api<_>, name: &'static str| {
        let api = api.clone();
        async move { api.patch(name, &PatchParams::default(), &Patch::Merge(json!({"data": {"key": "2"}}))).await }
    };
    patch(&api, "a").await.unwrap();
    patch(&other, "b").await.unwrap();
    assert_eq!(order.count(), 0);
    assert_eq!(code(&patch(&other, "a").await.unwrap_err()), 500);
    patch(&other, "a").await.unwrap();
}

#[tokio::test]
async fn dry_runs_and_reads_are_no_writes() {
    let drydock = quiet().await;
    let api = config_maps(&drydock);
    let order = drydock.faults().order(Fault::conflict());
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    api.create(&dry, &config_map("a", "1")).await.unwrap();
    assert_eq!(names(&api).await, Vec::<String>::new());
    assert_eq!(order.count(), 0);
    let reads = drydock.faults().order(Fault::internal_error().verb(Verb::List).always());
    assert!(api.list(&Default::default()).await.is_err());
    assert!(api.list(&Default::default()).await.is_err());
    reads.lift();
    assert!(api.list(&Default::default()).await.is_ok());
    assert_eq!(code(&create(&api, "a").await.unwrap_err()), 409);
}

#[tokio::test]
async fn faults_can_come_in_rows_and_be_taken_back() {
    let drydock = quiet().await;
    let api = config_maps(&drydock);
    let order = drydock.faults().order(Fault::internal_error().nth(2).times(2));
    let mut outcomes = Vec::new();
    for name in ["a", "b", "c", "d"] {
        outcomes.push(create(&api, name).await.is_ok());
    }
    assert_eq!((outcomes, order.count()), (vec![true, false, false, true], 2));
    drydock.faults().order(Fault::internal_error().always());
    drydock.faults().clear();
    create(&api, "e").await.unwrap();
}

/// What a watch says until its end, each event as its object's name. kube's own watch takes a cut for an end, so
/// this looks at the connection.
async fn followed(client: kube::Client, from: &str) -> Vec<String> {
    let path = format!("/api/v1/namespaces/default/configmaps?watch=1&resourceVersion={from}");
    let request = http::Request::get(path).body(kube::client::Body::empty()).unwrap();
    let mut body = client.send(request).await.unwrap().into_body();
    let mut told = Vec::new();
    while let Some(frame) = tokio::time::timeout(Duration::from_secs(10), body.frame()).await.unwrap() {
        let Ok(frame) = frame else {
            told.push("cut".into());
            break;
        };
        for line in frame.into_data().unwrap().split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: serde_json::Value = serde_json::from_slice(line).unwrap();
            let object = &event["object"];
            told.push(object["metadata"]["name"].as_str().map_or(object["code"].to_string(), String::from));
        }
    }
    told
}

#[tokio::test]
async fn a_watch_is_cut_ended_or_expired_in_the_place_of_an_event() {
    for (fault, expected) in [
        (Fault::watch_cut(), vec!["a", "cut"]),
        (Fault::watch_end(), vec!["a"]),
        (Fault::watch_expired(), vec!["a", "410"]),
    ] {
        let drydock = quiet().await;
        let api = config_maps(&drydock);
        let from = drydock.revision().to_string();
        create(&api, "a").await.unwrap();
        create(&api, "b").await.unwrap();
        drydock.faults().order(fault.nth(2).resource("configmaps"));
        assert_eq!(followed(drydock.client(), &from).await, expected);
    }
}

#[tokio::test]
async fn a_late_event_is_late() {
    let drydock = quiet().await;
    let api = config_maps(&drydock);
    let from = drydock.revision().to_string();
    create(&api, "a").await.unwrap();
    create(&api, "b").await.unwrap();
    let order = drydock.faults().order(Fault::watch_late(Duration::from_millis(200)).nth(2));
    let started = std::time::Instant::now();
    let mut watch = api.watch(&WatchParams::default(), &from).await.unwrap().boxed();
    watch.try_next().await.unwrap().unwrap();
    order.happened().await;
    watch.try_next().await.unwrap().unwrap();
    assert!(started.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn a_stale_watch_says_nothing_until_it_may_and_then_everything() {
    let drydock = quiet().await;
    let api = config_maps(&drydock);
    let from = drydock.revision().to_string();
    let order = drydock.faults().order(Fault::watch_stale());
    let mut stale = api.watch(&WatchParams::default(), &from).await.unwrap().boxed();
    create(&api, "a").await.unwrap();
    create(&api, "b").await.unwrap();
    order.happened().await;
    assert!(stale.next().now_or_never().is_none(), "the API knows, the watch does not");
    order.lift();
    for expected in ["a", "b"] {
        match stale.try_next().await.unwrap().unwrap() {
            WatchEvent::Added(object) => assert_eq!(object.metadata.name.as_deref(), Some(expected)),
            other => panic!("{other:?}"),
        }
    }
}
