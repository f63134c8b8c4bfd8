//! One object's trouble is its own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use ballast_operator::{Action, Answer, Class, Failure, Question};
use ballast_runtime::{About, Backoff, Engine, Options};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;

use crate::{
    notebook::{NotebookOperator, notebook},
    support::*,
};

/// Answers at once, and never comes back from an action.
struct Staller;

impl Engine for Staller {
    fn ask<'a>(&'a self, about: About<'a>, _: &'a Question) -> BoxFuture<'a, Answer> {
        let maps = about.children.iter().count();
        Box::pin(async move { Answer::Said(json!(format!("{} has {maps} children", about.name))) })
    }

    fn act<'a>(&'a self, _: About<'a>, _: &'a Action) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(std::future::pending())
    }
}

/// Counts the actions that it is asked for, and how many of them were under way at once.
#[derive(Clone, Default)]
struct Crowd(Arc<[AtomicUsize; 3]>);

impl Engine for Crowd {
    fn ask<'a>(&'a self, _: About<'a>, _: &'a Question) -> BoxFuture<'a, Answer> {
        Box::pin(async { Answer::Said(json!("nothing")) })
    }

    fn act<'a>(&'a self, _: About<'a>, _: &'a Action) -> BoxFuture<'a, Result<(), Failure>> {
        let [all, now, most] = &*self.0;
        Box::pin(async move {
            all.fetch_add(1, Ordering::SeqCst);
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(50)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        })
    }
}

#[tokio::test]
async fn no_more_rounds_are_under_way_than_are_asked_for() {
    let drydock = cluster().await;
    let crowd = Crowd::default();
    let options = Options { concurrency: 3, ..options() };
    let _running = run_with(&drydock, NotebookOperator, crowd.clone(), options);
    for number in 0..12 {
        let mut stalling = notebook(&format!("stalling-{number}"), 1);
        stalling.spec.stalls = true;
        create(&drydock, &stalling).await;
    }
    let [all, _, most] = &*crowd.0;
    eventually("everybody had a turn", async || (all.load(Ordering::SeqCst) >= 12).then_some(())).await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

/// Fails at whatever it is asked for, and remembers when and for whom.
#[derive(Clone, Default)]
struct Failing(Arc<Mutex<Vec<(String, Instant)>>>);

impl Failing {
    fn tries(&self, name: &str) -> Vec<Instant> {
        self.0.lock().iter().filter(|(who, _)| who == name).map(|(_, when)| *when).collect()
    }
}

impl Engine for Failing {
    fn ask<'a>(&'a self, _: About<'a>, _: &'a Question) -> BoxFuture<'a, Answer> {
        Box::pin(async { Answer::Said(json!("nothing")) })
    }

    fn act<'a>(&'a self, about: About<'a>, _: &'a Action) -> BoxFuture<'a, Result<(), Failure>> {
        self.0.lock().push((about.name.to_owned(), Instant::now()));
        Box::pin(async { Err(Failure::new(Class::Retry, "not now")) })
    }
}

#[tokio::test]
async fn what_fails_is_tried_at_ever_longer_intervals_of_its_own() {
    let drydock = cluster().await;
    let (failing, first) = (Failing::default(), Duration::from_millis(40));
    let options = Options { concurrency: 1, backoff: Backoff { first, ..Backoff::default() }, ..options() };
    let _running = run_with(&drydock, NotebookOperator, failing.clone(), options);
    let mut stalling = notebook("old", 1);
    stalling.spec.stalls = true;
    // Who wants to look all the time does not try all the time.
    stalling.spec.look_again = Some(0);
    create(&drydock, &stalling).await;
    let tried = |name, times| {
        let failing = failing.clone();
        async move {
            eventually("it is tried again", async || {
                Some(failing.tries(name)).filter(|tries| tries.len() >= times)
            })
            .await
        }
    };
    let tries = tried("old", 7).await;
    let pauses: Vec<Duration> = tries.windows(2).map(|two| two[1] - two[0]).collect();
    for (failures, pause) in pauses.iter().enumerate() {
        let least = first * (1 << failures) / 2;
        assert!(*pause >= least, "{pause:?} after {} failures, and not {least:?}: {pauses:?}", failures + 1);
    }
    // Its next try is long hence. Others neither wait for it, nor as long as it does.
    stalling.metadata.name = Some("new".into());
    create(&drydock, &stalling).await;
    create(&drydock, &notebook("fine", 1)).await;
    tried("new", 3).await;
    until(&drydock, "fine", "Ready", "True Written").await;
    assert_eq!(failing.tries("old").len(), 7);
}

fn metric(running: &Running, name: &str) -> u64 {
    let name = format!("{name} ");
    running.metrics.text().lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn a_panic_in_a_plan_touches_nobody_else_and_is_counted() {
    let drydock = cluster().await;
    let running = run_with(
        &drydock,
        NotebookOperator,
        Staller,
        Options {
            concurrency: 1,
            backoff: Backoff { first_after_bug: Duration::from_millis(50), ..Backoff::default() },
            ..options()
        },
    );
    let mut burning = notebook("burning", 1);
    burning.spec.panics = true;
    create(&drydock, &burning).await;
    create(&drydock, &notebook("calm", 1)).await;
    until(&drydock, "calm", "Ready", "True Written").await;
    let panics = r#"controller_runtime_reconcile_panics_total{controller="notebook"}"#;
    eventually("it panicked more than once", async || (metric(&running, panics) > 1).then_some(())).await;
    change(&drydock, "burning", json!({"panics": false})).await;
    until(&drydock, "burning", "Ready", "True Written").await;
    until(&drydock, "burning", "Degraded", "False Fine").await;
}

#[tokio::test]
async fn a_round_that_never_ends_is_broken_off_and_holds_up_nobody() {
    let drydock = cluster().await;
    let options = Options { concurrency: 1, round_timeout: Duration::from_millis(200), ..options() };
    let running = run_with(&drydock, NotebookOperator, Staller, options);
    let mut stalling = notebook("stalling", 1);
    stalling.spec.stalls = true;
    create(&drydock, &stalling).await;
    create(&drydock, &notebook("quick", 1)).await;
    until(&drydock, "quick", "Ready", "True Written").await;
    let timeouts = r#"controller_runtime_reconcile_timeouts_total{controller="notebook"}"#;
    eventually("it was broken off", async || (metric(&running, timeouts) > 0).then_some(())).await;
    change(&drydock, "stalling", json!({"stalls": false})).await;
    until(&drydock, "stalling", "Ready", "True Written").await;
}

#[tokio::test]
async fn what_the_server_refuses_waits_for_a_change_and_the_status_says_why() {
    let drydock = cluster().await;
    let running = run(&drydock);
    let mut refused = notebook("a", 1);
    refused.spec.label = Some("no such label!".into());
    create(&drydock, &refused).await;
    let seen = until(&drydock, "a", "Degraded", "True Failed").await;
    let conditions = seen.status.unwrap().conditions;
    let message = conditions.iter().find(|one| one.type_ == "Degraded").unwrap().message.clone();
    assert!(message.contains("Invalid value: \"no such label!\""), "{message}");
    rest(&drydock).await;
    let tried = requests(&drydock).iter().filter(|line| line.starts_with("patch configmaps")).count();
    assert_eq!(tried, 2, "once, and once more so that the status says it: {:#?}", requests(&drydock));
    let terminal = r#"controller_runtime_terminal_reconcile_errors_total{controller="notebook"}"#;
    assert_eq!(metric(&running, terminal), 1, "the first time it was tried again");
    change(&drydock, "a", json!({"label": "fine"})).await;
    until(&drydock, "a", "Ready", "True Written").await;
    until(&drydock, "a", "Degraded", "False Fine").await;
}

#[tokio::test]
async fn questions_are_put_to_the_service_before_each_plan() {
    let drydock = cluster().await;
    let _running = run_with(&drydock, NotebookOperator, Staller, options());
    let mut asking = notebook("a", 2);
    asking.spec.asks = true;
    create(&drydock, &asking).await;
    eventually("the answer is in the status", async || {
        let notebook = notebooks(&drydock).get("a").await.unwrap();
        let read = notebook.status?.conditions.into_iter().find(|one| one.type_ == "Read")?;
        (read.message == "a has 2 children").then_some(())
    })
    .await;
}

#[tokio::test]
async fn without_an_engine_the_service_is_silent() {
    let drydock = cluster().await;
    let _running = run(&drydock);
    let mut asking = notebook("a", 1);
    asking.spec.asks = true;
    create(&drydock, &asking).await;
    until(&drydock, "a", "Read", "Unknown Asked").await;
}
