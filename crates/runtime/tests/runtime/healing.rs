//! What others do to our children.

use drydock::{Fault, Verb};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::{notebook::notebook, support::*};

async fn edit(drydock: &drydock::Drydock, manager: &str, patch: serde_json::Value) {
    let how = PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
    config_maps(drydock).patch("a-0", &how, &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test]
async fn a_child_that_is_edited_by_hand_is_put_right_and_the_event_names_who_did_it() {
    let drydock = cluster().await;
    let _running = run(&drydock);
    create(&drydock, &notebook("a", 1)).await;
    until(&drydock, "a", "Ready", "True Written").await;
    edit(&drydock, "kubectl-edit", json!({"data": {"text": "scribble"}})).await;
    page_reads(&drydock, "a-0", "hello").await;
    let expected = "Warning FieldsTakenBack: put .data.text of ConfigMap default/a-0 back, which kubectl-edit had changed";
    eventually("the event is there", async || {
        events(&drydock, "a").await.iter().any(|event| event == expected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_server_that_fails_while_an_edit_is_put_right_is_no_contest() {
    let drydock = cluster().await;
    let _running = run(&drydock);
    create(&drydock, &notebook("a", 1)).await;
    until(&drydock, "a", "Ready", "True Written").await;
    rest(&drydock).await;
    let before = requests(&drydock).len();
    let fault = Fault::internal_error().verb(Verb::Patch).resource("configmaps").user(OPERATOR).times(3);
    let order = drydock.faults().order(fault);
    edit(&drydock, "kubectl-edit", json!({"data": {"text": "scribble"}})).await;
    page_reads(&drydock, "a-0", "hello").await;
    assert_eq!(order.count(), 3);
    until(&drydock, "a", "Degraded", "False Fine").await;
    let made = eventually("the event is there", async || {
        let made = requests(&drydock).split_off(before);
        made.iter().any(|line| line.contains("events")).then_some(made)
    })
    .await;
    let first = |what: &str| made.iter().position(|line| line.contains(what));
    assert!(first("patch configmaps a-0 200") < first("events"), "said before it was done: {made:#?}");
}

#[tokio::test]
async fn what_others_add_is_left_alone() {
    let drydock = cluster().await;
    let _running = run(&drydock);
    create(&drydock, &notebook("a", 1)).await;
    until(&drydock, "a", "Ready", "True Written").await;
    edit(&drydock, "somebody", json!({"data": {"other": "theirs"}, "metadata": {"labels": {"x": "y"}}}))
        .await;
    change(&drydock, "a", json!({"text": "changed"})).await;
    page_reads(&drydock, "a-0", "changed").await;
    let page = config_maps(&drydock).get("a-0").await.unwrap();
    assert_eq!(page.data.unwrap()["other"], "theirs");
    assert_eq!(page.metadata.labels.unwrap()["x"], "y");
    assert!(!events(&drydock, "a").await.iter().any(|event| event.contains("FieldsTakenBack")));
}

#[tokio::test]
async fn a_child_that_is_deleted_comes_back() {
    let drydock = cluster().await;
    let _running = run(&drydock);
    create(&drydock, &notebook("a", 2)).await;
    until(&drydock, "a", "Ready", "True Written").await;
    let before = config_maps(&drydock).get("a-1").await.unwrap();
    config_maps(&drydock).delete("a-1", &DeleteParams::default()).await.unwrap();
    eventually("it is there again", async || {
        let now = config_maps(&drydock).get_opt("a-1").await.unwrap()?;
        (now.metadata.uid != before.metadata.uid).then_some(())
    })
    .await;
    until(&drydock, "a", "Ready", "True Written").await;
}

#[tokio::test]
async fn a_field_that_keeps_flipping_is_contested_and_answered_ever_more_slowly() {
    let drydock = cluster().await;
    let _running = run(&drydock);
    create(&drydock, &notebook("a", 1)).await;
    until(&drydock, "a", "Ready", "True Written").await;
    for _ in 0..3 {
        edit(&drydock, "other-controller", json!({"data": {"text": "mine"}})).await;
        page_reads(&drydock, "a-0", "hello").await;
    }
    until(&drydock, "a", "Degraded", "True Contested").await;
    edit(&drydock, "other-controller", json!({"data": {"text": "mine"}})).await;
    rest(&drydock).await;
    assert_eq!(page(&drydock, "a-0").await.as_deref(), Some("mine"), "the answer has to wait");
    page_reads(&drydock, "a-0", "hello").await;
}

#[tokio::test]
async fn a_strangers_object_is_never_touched() {
    let drydock = cluster().await;
    let stranger = ConfigMap {
        metadata: ObjectMeta { name: Some("a-0".into()), ..ObjectMeta::default() },
        data: Some([("text".to_owned(), "a stranger's".to_owned())].into()),
        ..ConfigMap::default()
    };
    config_maps(&drydock).create(&PostParams::default(), &stranger).await.unwrap();
    let _running = run(&drydock);
    create(&drydock, &notebook("a", 1)).await;
    let degraded = until(&drydock, "a", "Degraded", "True Failed").await;
    let conditions = degraded.status.unwrap().conditions;
    let message = conditions.iter().find(|one| one.type_ == "Degraded").unwrap().message.clone();
    assert_eq!(message, "ConfigMap default/a-0 exists and it was not made by this resource");
    assert_eq!(page(&drydock, "a-0").await.as_deref(), Some("a stranger's"));
}
