//! From what is written to what is there, and then nothing.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ballast_operator::{Action, Answer, Failure, Question};
use ballast_runtime::{About, Engine, Namespaces, NoEngine, Options};
use drydock::Drydock;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use serde_json::json;
use tokio::sync::Notify;

use crate::{
    notebook::{NotebookOperator, notebook},
    support::*,
};

#[tokio::test]
async fn a_resource_gets_its_children_and_its_status() {
    let drydock = cluster().await;
    let running = run(&drydock);
    create(&drydock, &notebook("a", 2)).await;
    let seen = until(&drydock, "a", "Ready", "True Written").await;
    assert_eq!(seen.status.unwrap().pages, 2);
    assert_eq!(page(&drydock, "a-0").await.as_deref(), Some("hello"));
    assert_eq!(page(&drydock, "a-1").await.as_deref(), Some("hello"));
    eventually("the event is there", async || {
        events(&drydock, "a").await.contains(&"Normal Ready: 2 pages".to_owned()).then_some(())
    })
    .await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_change_is_followed_and_what_is_too_much_is_removed() {
    let drydock = cluster().await;
    let _running = run(&drydock);
    create(&drydock, &notebook("a", 3)).await;
    until(&drydock, "a", "Ready", "True Written").await;
    change(&drydock, "a", json!({"text": "changed", "pages": 1})).await;
    page_reads(&drydock, "a-0", "changed").await;
    eventually("two pages are gone", async || {
        let gone = page(&drydock, "a-1").await.is_none() && page(&drydock, "a-2").await.is_none();
        gone.then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_resource_costs_one_request_per_child_two_for_its_status_and_one_per_event() {
    let drydock = cluster().await;
    let _running = run(&drydock);
    create(&drydock, &notebook("a", 2)).await;
    until(&drydock, "a", "Ready", "True Written").await;
    rest(&drydock).await;
    let mut made = requests(&drydock);
    made.iter_mut().filter(|line| line.contains("events")).for_each(|line| *line = "event".into());
    made.sort();
    assert_eq!(
        made,
        [
            "event",
            "patch configmaps a-0 201",
            "patch configmaps a-1 201",
            "patch test.example.com/notebooks/status a 200",
            "patch test.example.com/notebooks/status a 200",
        ]
    );
}

#[tokio::test]
async fn at_rest_there_are_no_requests() {
    let drydock = cluster().await;
    let running = run(&drydock);
    for number in 0..10 {
        create(&drydock, &notebook(&format!("n{number}"), 2)).await;
    }
    for number in 0..10 {
        until(&drydock, &format!("n{number}"), "Ready", "True Written").await;
    }
    rest(&drydock).await;
    let before = requests(&drydock).len();
    let rounds = |metrics: &ballast_runtime::Metrics| {
        let text = metrics.text();
        text.lines()
            .find_map(|line| line.strip_prefix("notebook_controller_reconcile_total ")?.parse::<u64>().ok())
    };
    let looked = rounds(&running.metrics).unwrap();
    assert!(looked <= 30, "ten notebooks took {looked} rounds");
    // A new process looks at everything once, and finds nothing to do.
    running.stop().await.unwrap();
    let running = run(&drydock);
    eventually("everything was looked at", async || (rounds(&running.metrics)? >= 10).then_some(())).await;
    rest(&drydock).await;
    assert_eq!(requests(&drydock).len(), before, "{:#?}", &requests(&drydock)[before..]);
    assert_eq!(rounds(&running.metrics), Some(10));
}

#[tokio::test]
async fn what_was_there_before_the_process_is_seen() {
    let drydock = cluster().await;
    create(&drydock, &notebook("a", 1)).await;
    let _running = run(&drydock);
    until(&drydock, "a", "Ready", "True Written").await;
}

#[tokio::test]
async fn a_plan_says_when_to_look_again() {
    let drydock = cluster().await;
    let running = run(&drydock);
    let mut written = notebook("a", 1);
    written.spec.look_again = Some(1);
    create(&drydock, &written).await;
    eventually("it was looked at again and again", async || {
        let text = running.metrics.text();
        let counted = r#"controller_runtime_reconcile_total{controller="notebook",result="requeue_after"} "#;
        let times: u64 = text.lines().find_map(|line| line.strip_prefix(counted)?.parse().ok())?;
        (times >= 3).then_some(())
    })
    .await;
}

#[tokio::test]
async fn only_the_namespaces_that_are_named_are_watched() {
    let drydock = cluster().await;
    let namespaces: Api<Namespace> = Api::all(drydock.client());
    for name in ["one", "two", "three"] {
        let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let notebooks: Api<crate::notebook::Notebook> = Api::namespaced(drydock.client(), name);
        notebooks.create(&PostParams::default(), &notebook("a", 1)).await.unwrap();
    }
    let options = Options { namespaces: Namespaces::parse("one,two"), ..options() };
    let _running = run_with(&drydock, NotebookOperator, NoEngine, options);
    let status = async |namespace: &str| {
        let notebooks: Api<crate::notebook::Notebook> = Api::namespaced(drydock.client(), namespace);
        notebooks.get("a").await.unwrap().status
    };
    for name in ["one", "two"] {
        eventually("it has a status", async || status(name).await).await;
    }
    rest(&drydock).await;
    assert!(status("three").await.is_none());
}

#[tokio::test]
async fn what_is_deleted_is_forgotten_and_can_come_again() {
    let drydock = cluster().await;
    let _running = run(&drydock);
    create(&drydock, &notebook("a", 1)).await;
    until(&drydock, "a", "Ready", "True Written").await;
    notebooks(&drydock).delete("a", &DeleteParams::default()).await.unwrap();
    // No garbage collector runs here: the test is one.
    config_maps(&drydock).delete("a-0", &DeleteParams::default()).await.unwrap();
    create(&drydock, &notebook("a", 1)).await;
    until(&drydock, "a", "Ready", "True Written").await;
}

/// Says when it is asked for an action, and comes back from it when it may.
#[derive(Clone, Default)]
struct Gate(Arc<[Notify; 2]>);

impl Engine for Gate {
    fn ask<'a>(&'a self, _: About<'a>, _: &'a Question) -> BoxFuture<'a, Answer> {
        Box::pin(async { Answer::Said(json!("nothing")) })
    }

    fn act<'a>(&'a self, _: About<'a>, _: &'a Action) -> BoxFuture<'a, Result<(), Failure>> {
        let [reached, open] = &*self.0;
        Box::pin(async move {
            reached.notify_one();
            open.notified().await;
            Ok(())
        })
    }
}

/// A manager in the middle of a round: it is at the gate, and the pages of `a` come after it.
async fn in_a_round(drydock: &Drydock, options: Options) -> (Running, Gate) {
    let gate = Gate::default();
    let running = run_with(drydock, NotebookOperator, gate.clone(), options);
    let mut written = notebook("a", 5);
    written.spec.stalls = true;
    create(drydock, &written).await;
    gate.0[0].notified().await;
    (running, gate)
}

#[tokio::test]
async fn stopping_lets_what_is_under_way_finish() {
    let drydock = cluster().await;
    let (running, gate) = in_a_round(&drydock, options()).await;
    running.stop.cancel();
    create(&drydock, &notebook("later", 1)).await;
    rest(&drydock).await;
    assert!(!running.ended.is_finished(), "a round is under way");
    gate.0[1].notify_one();
    running.stop().await.unwrap();
    assert_eq!(page(&drydock, "a-4").await.as_deref(), Some("hello"), "a round is finished before the end");
    let before = requests(&drydock).len();
    change(&drydock, "a", json!({"text": "later"})).await;
    rest(&drydock).await;
    assert_eq!(requests(&drydock).len(), before, "who has stopped does nothing any more");
    assert_eq!(page(&drydock, "later-0").await, None, "no round is begun when the end has begun");
}

#[tokio::test]
async fn what_does_not_finish_in_time_is_broken_off() {
    let drydock = cluster().await;
    let grace = Duration::from_millis(100);
    let (running, _gate) = in_a_round(&drydock, Options { grace, ..options() }).await;
    let began = Instant::now();
    running.stop().await.unwrap();
    let took = began.elapsed();
    assert!(took >= grace && took < options().grace, "{took:?}");
    assert_eq!(page(&drydock, "a-0").await, None);
}
