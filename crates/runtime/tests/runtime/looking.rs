//! One look, without watching and without writing.

use ballast_operator::{Object, settle};
use ballast_runtime::{Key, LookError, NoEngine, look, look_at};
use jiff::Timestamp;
use serde_json::json;

use crate::{
    notebook::{NotebookOperator, notebook},
    support::*,
};

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
async fn a_look_at_how_it_would_be_shows_what_would_change_and_changes_nothing() {
    let drydock = cluster().await;
    let running = run(&drydock);
    create(&drydock, &notebook("a", 1)).await;
    until(&drydock, "a", "Ready", "True Written").await;
    running.stop().await.unwrap();
    let client = drydock.client();
    let before = drydock.revision();
    let mut resource = serde_json::to_value(notebooks(&drydock).get("a").await.unwrap()).unwrap();
    resource["spec"]["pages"] = json!(2);
    let resource = Object::new(resource).unwrap();
    let looked = look_at(&client, &NotebookOperator, &NoEngine, &resource, Timestamp::now()).await.unwrap();
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
