//! A server that fails.

use drydock::{Fault, Verb};

use crate::{notebook::notebook, support::*};

/// Whatever goes wrong with one of the first writes, the end is the same.
async fn check(fault: impl Fn() -> Fault) {
    for nth in 1..=5 {
        let drydock = cluster().await;
        let order = drydock.faults().order(fault().user(OPERATOR).nth(nth));
        let _running = run(&drydock);
        create(&drydock, &notebook("a", 2)).await;
        order.happened().await;
        until(&drydock, "a", "Ready", "True Written").await;
        until(&drydock, "a", "Degraded", "False Fine").await;
        rest(&drydock).await;
        assert_eq!(page(&drydock, "a-1").await.as_deref(), Some("hello"));
    }
}

#[tokio::test]
async fn a_conflict_is_tried_again() {
    check(Fault::conflict).await;
}

#[tokio::test]
async fn a_server_that_fails_is_tried_again() {
    check(Fault::internal_error).await;
}

#[tokio::test]
async fn a_connection_cut_before_the_write_is_tried_again() {
    check(Fault::cut_before).await;
}

#[tokio::test]
async fn a_connection_cut_after_the_write_is_looked_into() {
    check(Fault::cut_after).await;
}

#[tokio::test]
async fn a_server_that_asks_for_patience_gets_it() {
    let drydock = cluster().await;
    let order = drydock.faults().order(Fault::too_many_requests().user(OPERATOR));
    let _running = run(&drydock);
    create(&drydock, &notebook("a", 1)).await;
    order.happened().await;
    until(&drydock, "a", "Ready", "True Written").await;
}

#[tokio::test]
async fn watches_that_break_are_begun_again() {
    type Make = fn() -> Fault;
    for fault in [Fault::watch_cut as Make, Fault::watch_end, Fault::watch_expired] {
        let drydock = cluster().await;
        let _running = run(&drydock);
        let order = drydock.faults().order(fault().user(OPERATOR).times(3));
        create(&drydock, &notebook("a", 2)).await;
        until(&drydock, "a", "Ready", "True Written").await;
        assert!(order.count() > 0);
        config_maps(&drydock).delete("a-0", &Default::default()).await.unwrap();
        page_reads(&drydock, "a-0", "hello").await;
    }
}

#[tokio::test]
async fn a_kind_that_can_not_be_listed_at_first_is_listed_later() {
    let drydock = cluster().await;
    let fault = Fault::internal_error().verb(Verb::List).resource("configmaps").user(OPERATOR).times(2);
    let order = drydock.faults().order(fault);
    let running = run(&drydock);
    order.happened().await;
    assert!(!running.health.is_ready());
    create(&drydock, &notebook("a", 1)).await;
    until(&drydock, "a", "Ready", "True Written").await;
    assert!(running.health.is_ready());
}

#[tokio::test]
async fn an_event_that_can_not_be_sent_harms_nothing() {
    let drydock = cluster().await;
    drydock.faults().order(Fault::internal_error().resource("events.k8s.io/events").user(OPERATOR).always());
    let _running = run(&drydock);
    create(&drydock, &notebook("a", 1)).await;
    until(&drydock, "a", "Ready", "True Written").await;
}
