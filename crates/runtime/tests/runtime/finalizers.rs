//! Holding on to a resource, and letting it go.

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
