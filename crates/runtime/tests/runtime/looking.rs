//! One look, without watching and without writing.

use ballast_operator::{Object, settle};
use ballast_runtime::{Key, LookError, NoEngine, look, look_at_manifest, look_offline};
use jiff::Timestamp;
use serde_json::json;

use crate::{
    notebook::{NotebookOperator, notebook},
    support::*,
};

fn manifest(pages: u32) -> Object {
    Object::new(json!({
        "apiVersion": "test.example.com/v1",
        "kind": "Notebook",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"pages": pages, "text": "hello"},
    }))
    .unwrap()
}

#[tokio::test]
async fn a_look_at_what_is_at_rest_shows_no_effects() {
    let drydock = cluster().await;
    let running = run(&drydock);
    create(&drydock, &notebook("a", 2)).await;
    until(&drydock, "a", "Ready", "True Written").await;
    running.stop().await.unwrap();
    let key = Key::new(Some("default"), "a");
    let looked = look(&drydock.client(), &NotebookOperator, &NoEngine, &key, Timestamp::now()).await.unwrap();
    assert!(looked.plan.effects::<NotebookOperator>(&looked.view).is_empty(), "{}", looked.plan);
}

#[tokio::test]
async fn a_look_at_a_manifest_shows_what_would_change_and_changes_nothing() {
    let drydock = cluster().await;
    let running = run(&drydock);
    create(&drydock, &notebook("a", 1)).await;
    until(&drydock, "a", "Ready", "True Written").await;
    running.stop().await.unwrap();
    let client = drydock.client();
    let before = drydock.revision();
    let looked = look_at_manifest(&client, &NotebookOperator, &NoEngine, &manifest(2), Timestamp::now())
        .await
        .unwrap();
    let settled: Vec<String> =
        settle::<NotebookOperator>(&looked.plan, &looked.view).iter().map(ToString::to_string).collect();
    assert!(
        settled.iter().any(|line| line.starts_with("keep    apply ConfigMap default/a-0")),
        "{settled:#?}"
    );
    assert!(
        settled.iter().any(|line| line.starts_with("create  apply ConfigMap default/a-1")),
        "{settled:#?}"
    );
    assert_eq!(drydock.revision(), before);
}

#[tokio::test]
async fn what_is_not_there_is_said_so() {
    let drydock = cluster().await;
    let key = Key::new(Some("default"), "nobody");
    let error =
        look(&drydock.client(), &NotebookOperator, &NoEngine, &key, Timestamp::now()).await.unwrap_err();
    assert!(matches!(error, LookError::Missing(_)));
    assert_eq!(error.to_string(), "there is no Notebook default/nobody");
}

#[test]
fn offline_everything_is_to_be_made() {
    let looked = look_offline(&NotebookOperator, &manifest(2), Timestamp::UNIX_EPOCH).unwrap();
    let effects = looked.plan.effects::<NotebookOperator>(&looked.view);
    assert_eq!(effects.len(), 3, "two pages and the status");
}
