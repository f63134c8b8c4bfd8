//! Watches that are behind.

use std::time::Duration;

use drydock::Fault;
use serde_json::json;

use crate::{notebook::notebook, support::*};

#[tokio::test]
async fn a_watch_that_shows_nothing_does_not_keep_a_round_from_seeing_its_own_writes() {
    let drydock = cluster().await;
    let _running = run(&drydock);
    create(&drydock, &notebook("first", 1)).await;
    until(&drydock, "first", "Ready", "True Written").await;
    rest(&drydock).await;
    let stale = drydock.faults().order(Fault::watch_stale().resource("configmaps").user(OPERATOR));
    create(&drydock, &notebook("a", 2)).await;
    // The status counts pages that are in the view: it can be right only if the view has what was just written.
    until(&drydock, "a", "Ready", "True Written").await;
    rest(&drydock).await;
    let created = requests(&drydock).iter().filter(|line| line.starts_with("patch configmaps a-")).count();
    assert_eq!(created, 2, "each page is written once: {:#?}", requests(&drydock));
    assert!(requests(&drydock).iter().any(|line| line.starts_with("get configmaps a-")));
    stale.lift();
}

#[tokio::test]
async fn a_watch_that_says_nothing_is_begun_anew_where_a_plan_finds_it_behind() {
    let drydock = cluster().await;
    let _running = run(&drydock);
    for name in ["a", "b", "c", "d"] {
        let mut suspicious = notebook(name, 1);
        (suspicious.spec.relists, suspicious.spec.look_again) = (true, Some(1));
        create(&drydock, &suspicious).await;
        until(&drydock, name, "Ready", "True Written").await;
    }
    let stale = drydock.faults().order(Fault::watch_stale().resource("configmaps").user(OPERATOR));
    config_maps(&drydock).delete("a-0", &Default::default()).await.unwrap();
    page_reads(&drydock, "a-0", "hello").await;
    // However many find it behind, it is not listed more often than a list is new.
    let lists = || {
        let entries = drydock.requests().entries();
        let is_list = |entry: &&drydock::LogEntry| {
            entry.verb == drydock::Verb::List && entry.path == "/api/v1/configmaps" && entry.user == OPERATOR
        };
        entries.iter().filter(is_list).count()
    };
    let (before, began) = (lists(), std::time::Instant::now());
    eventually("three lists", async || (lists() >= before + 3).then_some(())).await;
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    stale.lift();
}

#[tokio::test]
async fn a_late_watch_costs_no_second_write() {
    let drydock = cluster().await;
    let late = Fault::watch_late(Duration::from_millis(150)).resource("configmaps").user(OPERATOR);
    drydock.faults().order(late.always());
    let _running = run(&drydock);
    create(&drydock, &notebook("a", 2)).await;
    until(&drydock, "a", "Ready", "True Written").await;
    change(&drydock, "a", json!({"text": "changed"})).await;
    page_reads(&drydock, "a-1", "changed").await;
    rest(&drydock).await;
    let written = requests(&drydock).iter().filter(|line| line.starts_with("patch configmaps a-")).count();
    assert_eq!(written, 4, "{:#?}", requests(&drydock));
}

#[tokio::test]
async fn a_stale_view_of_the_resource_itself_writes_no_status_twice() {
    let drydock = cluster().await;
    let _running = run(&drydock);
    create(&drydock, &notebook("a", 1)).await;
    until(&drydock, "a", "Ready", "True Written").await;
    rest(&drydock).await;
    let stale =
        drydock.faults().order(Fault::watch_stale().resource("test.example.com/notebooks").user(OPERATOR));
    config_maps(&drydock).delete("a-0", &Default::default()).await.unwrap();
    page_reads(&drydock, "a-0", "hello").await;
    until(&drydock, "a", "Ready", "True Written").await;
    rest(&drydock).await;
    let statuses = requests(&drydock).iter().filter(|line| line.contains("notebooks/status a 200")).count();
    assert!(statuses <= 4, "{:#?}", requests(&drydock));
    stale.lift();
}

#[tokio::test]
async fn a_resource_that_is_gone_while_its_watch_still_shows_it_is_left_alone() {
    let drydock = cluster().await;
    let _running = run(&drydock);
    create(&drydock, &notebook("a", 1)).await;
    until(&drydock, "a", "Ready", "True Written").await;
    rest(&drydock).await;
    let stale =
        drydock.faults().order(Fault::watch_stale().resource("test.example.com/notebooks").user(OPERATOR));
    notebooks(&drydock).delete("a", &Default::default()).await.unwrap();
    // The garbage collector takes the child as often as it comes back.
    for _ in 0..5 {
        if config_maps(&drydock).delete("a-0", &Default::default()).await.is_ok() {
            rest(&drydock).await;
        }
    }
    let written = requests(&drydock).iter().filter(|line| line.starts_with("patch configmaps a-0")).count();
    assert!(written <= 2, "once in its life, and once because nobody knew: {:#?}", requests(&drydock));
    stale.lift();
    create(&drydock, &notebook("a", 1)).await;
    until(&drydock, "a", "Ready", "True Written").await;
}
