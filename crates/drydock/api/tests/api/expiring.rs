//! Events end by themselves.

use std::sync::{Arc, Mutex};

use drydock_access::{Identity, SigningKey, Tokens};
use drydock_api::{Api, Caller, Options};
use drydock_store::{EventKind, Range, Store};
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};

use crate::cluster::Cluster;

const EVENTS: &str = "/api/v1/namespaces/default/events";

fn event(name: &str) -> String {
    format!(
        r#"{{"metadata": {{"name": "{name}", "finalizers": ["example.com/held"]}}, "involvedObject": {{"namespace": "default"}}}}"#
    )
}

#[tokio::test]
async fn an_event_is_gone_an_hour_after_its_last_change() {
    let start: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    let now = Arc::new(Mutex::new(start));
    let clock = now.clone();
    let options = Options {
        clock: Arc::new(move || *clock.lock().unwrap()),
        ..Options::new(Arc::new(Tokens::new(SigningKey::generate().unwrap())))
    };
    let store = Store::in_memory(drydock_store::Options::default());
    let api = Api::new(store.clone(), options);
    api.bootstrap().await.unwrap();
    let cluster = Cluster::of(api.clone(), Caller::Trusted(Identity::admin("admin")));
    let at = |minutes: i64| *now.lock().unwrap() = start + SignedDuration::from_mins(minutes);
    for name in ["changed", "old"] {
        cluster.ask(&format!("POST {EVENTS}"), event(name)).await;
    }
    at(40);
    cluster.ask(&format!("PATCH {EVENTS}/changed"), r#"{"count": 2}"#).await;
    cluster.ask(&format!("POST {EVENTS}"), event("young")).await;
    let seen = Range { resource: "/events".into(), namespace: None };
    let mut watch = store.watch(seen, store.revision()).unwrap();
    for (minutes, gone) in [(60, vec!["old"]), (100, vec!["changed", "young"])] {
        at(minutes);
        tokio::select! {
            () = api.expire_events() => {}
            () = async {
                for name in gone {
                    let seen = watch.next().await.unwrap().unwrap();
                    assert_eq!((seen.kind, &*seen.object.key.name), (EventKind::Deleted, name));
                }
            } => {}
        }
    }
    cluster.check(&format!("GET {EVENTS}"), "", "200 EventList []").await;
}
