//! Holding on to a resource, and letting it go.

use std::time::Duration;

use drydock::Fault;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::DeleteParams};

use crate::{
    notebook::{FINALIZER, notebook},
    support::*,
};

#[tokio::test]
async fn a_resource_is_held_until_its_data_is_gone() {
    let drydock = cluster().await;
    let _running = run(&drydock);
    let mut held = notebook("a", 1);
    held.spec.held = true;
    held.spec.locked = true;
    create(&drydock, &held).await;
    until(&drydock, "a", "Ready", "True Written").await;
    rest(&drydock).await;
    let seen = notebooks(&drydock).get("a").await.unwrap();
    assert_eq!(seen.metadata.finalizers.unwrap(), [FINALIZER]);
    let secrets: Api<Secret> = Api::namespaced(drydock.client(), "default");
    assert!(secrets.get("a").await.unwrap().metadata.owner_references.is_none());
    notebooks(&drydock).delete("a", &DeleteParams::default()).await.unwrap();
    eventually("it is gone", async || {
        notebooks(&drydock).get_opt("a").await.unwrap().is_none().then_some(())
    })
    .await;
    assert!(secrets.get_opt("a").await.unwrap().is_none());
    let made = requests(&drydock);
    let place = |what: &str| made.iter().position(|line| line.starts_with(what)).unwrap();
    assert!(
        place("delete secrets a 200")
            < made.iter().rposition(|line| line.starts_with("patch test.example.com/notebooks a")).unwrap()
    );
}

#[tokio::test]
async fn what_was_let_go_is_not_looked_at_again_while_its_watch_still_shows_it() {
    let drydock = cluster().await;
    let _running = run(&drydock);
    let mut held = notebook("a", 1);
    held.spec.held = true;
    create(&drydock, &held).await;
    until(&drydock, "a", "Ready", "True Written").await;
    rest(&drydock).await;
    // Up to the deletion itself the watch is as it should be; that the resource is gone it does not show.
    let late =
        Fault::watch_late(Duration::from_secs(2)).resource("test.example.com/notebooks").user(OPERATOR);
    drydock.faults().order(late.nth(2));
    let _ = notebooks(&drydock).delete("a", &Default::default()).await.unwrap();
    eventually("it is gone", async || {
        notebooks(&drydock).get_opt("a").await.unwrap().is_none().then_some(())
    })
    .await;
    rest(&drydock).await;
    let released: Vec<String> = requests(&drydock)
        .into_iter()
        .filter(|line| line.starts_with("patch test.example.com/notebooks a"))
        .collect();
    // The first took the finalizer, the second let it go.
    assert_eq!(released.len(), 2, "{:#?}", requests(&drydock));
    assert!(!requests(&drydock).iter().any(|line| line.ends_with(" 404")), "{:#?}", requests(&drydock));
}
