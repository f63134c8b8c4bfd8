//! What tests of others see and do.

use std::sync::Arc;

use drydock_access::{Identity, SigningKey, Tokens};
use drydock_api::{After, Api, Before, Caller, Cut, Interceptor, OnEvent, Options, RequestLog, Seen, Verb};
use futures::future::{BoxFuture, FutureExt};
use http_body_util::BodyExt;
use serde_json::json;

use crate::cluster::{Cluster, config_map};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Interferes with writes of objects named after what is to happen to them.
struct Mischief;

impl Interceptor for Mischief {
    fn before<'a>(&'a self, request: Seen<'a>) -> BoxFuture<'a, Before> {
        let name = request.info.resource.as_ref().and_then(|path| path.name.clone()).unwrap_or_default();
        let before = match name.as_str() {
            "busy" => Before::Fail { code: 429, message: "later".into() },
            "cut-before" => Before::Cut,
            _ => Before::Proceed,
        };
        async move { before }.boxed()
    }

    fn after<'a>(&'a self, request: Seen<'a>, status: u16) -> BoxFuture<'a, After> {
        let name = request.info.resource.as_ref().and_then(|path| path.name.clone()).unwrap_or_default();
        let write = request.info.verb.is_write() && status < 300;
        let after = match name.as_str() {
            "cut-after" if write => After::Cut,
            "lost" if write => After::Fail { code: 500, message: "lost".into() },
            _ => After::Deliver,
        };
        async move { after }.boxed()
    }

    fn event<'a>(&'a self, request: Seen<'a>, number: u64) -> BoxFuture<'a, OnEvent> {
        let agent = request.user_agent.to_owned();
        let fate = match (agent.as_str(), number) {
            ("cut", 2) => OnEvent::Cut,
            ("end", 2) => OnEvent::End,
            ("expire", 2) => OnEvent::Expire,
            _ => OnEvent::Deliver,
        };
        async move { fate }.boxed()
    }
}

async fn cluster() -> Cluster {
    let store = drydock_store::Store::in_memory(drydock_store::Options::default());
    let tokens = Arc::new(Tokens::new(SigningKey::generate().unwrap()));
    let options = Options {
        interceptor: Some(Arc::new(Mischief)),
        log: Arc::new(RequestLog::new(100)),
        ..Options::new(tokens)
    };
    let api = Api::new(store, options);
    api.bootstrap().await.unwrap();
    Cluster::of(api, Caller::Trusted(Identity::admin("admin")))
}

#[tokio::test]
async fn requests_fail_or_are_cut_before_or_after_they_took_effect() {
    let cluster = cluster().await;
    for name in ["busy", "cut-before", "cut-after", "lost"] {
        cluster
            .check(
                &format!("POST {MAPS}"),
                &config_map(name, json!({})),
                &format!("201 ConfigMap default/{name}"),
            )
            .await;
    }
    let patch = |name: &str| format!("PATCH {MAPS}/{name}");
    let change = r#"{"data":{"x":"1"}}"#;
    let busy = cluster.send(&patch("busy"), change).await;
    assert_eq!((busy.status().as_u16(), busy.headers()["retry-after"].to_str().unwrap()), (429, "1"));
    for (name, took_effect) in [("cut-before", false), ("cut-after", true)] {
        let answer = cluster.send(&patch(name), change).await;
        assert!(answer.extensions().get::<Cut>().is_some(), "{name}");
        let list = cluster.get(&format!("{MAPS}?fieldSelector=metadata.name%3D{name}x")).await;
        assert_eq!(list["items"], json!([]));
        let stored =
            cluster.api.store().get(&drydock_store::Key::new("/configmaps", "default", name)).unwrap();
        assert_eq!(String::from_utf8_lossy(&stored.value).contains(r#""x":"1""#), took_effect, "{name}");
    }
    cluster.check(&patch("lost"), change, "500 InternalError: lost").await;
}

#[tokio::test]
async fn watches_are_cut_ended_and_expired() {
    let cluster = cluster().await;
    for name in ["a", "b"] {
        cluster
            .check(
                &format!("POST {MAPS}"),
                &config_map(name, json!({})),
                &format!("201 ConfigMap default/{name}"),
            )
            .await;
    }
    for (agent, lines) in [("cut", "1 cut"), ("end", "1"), ("expire", "2")] {
        let mut body =
            cluster.send(&format!("GET {MAPS}?watch=1\nUser-Agent: {agent}"), "").await.into_body();
        let (mut text, mut end) = (String::new(), "");
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap()),
                Err(Cut) => end = " cut",
            }
        }
        assert_eq!(format!("{}{end}", text.lines().count()), lines, "{text}");
    }
}

#[tokio::test]
async fn requests_are_kept() {
    let cluster = cluster().await;
    cluster.api.requests().clear();
    cluster.check(&format!("POST {MAPS}"), &config_map("a", json!({})), "201 ConfigMap default/a").await;
    cluster.must(&format!("PATCH {MAPS}/a?fieldManager=x"), json!({"data": {"x": "1"}})).await;
    let entries = cluster.api.requests().entries();
    let last = entries.last().unwrap();
    assert_eq!(entries.len(), 2);
    assert_eq!(
        (last.verb, last.resource.as_str(), last.name.as_str(), last.status),
        (Verb::Patch, "/configmaps", "a", 200)
    );
    assert_eq!(
        (last.user.as_str(), last.user_agent.as_str(), last.query.as_str()),
        ("admin", "test/1.0", "fieldManager=x")
    );
    assert!(last.sent > 0 && last.received > 0);
}
