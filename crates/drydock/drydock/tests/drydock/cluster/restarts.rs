//! Starting again: from a snapshot, and from a directory.

use drydock::{Drydock, StartError};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::json;

use crate::cluster::support::*;

#[tokio::test]
async fn a_cluster_starts_again_from_after_any_write() {
    let drydock = Drydock::builder().controllers(false).history(usize::MAX).start().await.unwrap();
    let api = config_maps(&drydock);
    let mut expected = vec![(drydock.revision(), vec![])];
    for name in ["a", "b"] {
        create(&api, name).await.unwrap();
        expected.push((drydock.revision(), names(&api).await));
    }
    api.delete("a", &DeleteParams::default()).await.unwrap();
    expected.push((drydock.revision(), names(&api).await));
    for (revision, expected) in expected {
        let snapshot = drydock.snapshot(revision).unwrap();
        let again = Drydock::builder().controllers(false).from_snapshot(snapshot).start().await.unwrap();
        let api = config_maps(&again);
        assert_eq!(names(&api).await, expected, "at {revision}");
        let before = again.revision();
        assert_eq!(before, revision, "starting writes nothing");
        create(&api, "new").await.unwrap();
        assert!(again.revision() > before);
    }
    assert_eq!(names(&api).await, ["b"], "the first cluster is untouched");
}

#[tokio::test]
async fn custom_resources_are_served_again_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let start = || Drydock::builder().controllers(false).data_dir(directory.path().join("data")).start();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    {
        let drydock = start().await.unwrap();
        let definitions: Api<CustomResourceDefinition> = Api::all(drydock.client());
        let definition = serde_json::from_value(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {"spec": {"type": "object", "properties": {
                        "size": {"type": "integer", "default": 3}}}}}}}],
            },
        }));
        definitions.create(&Default::default(), &definition.unwrap()).await.unwrap();
        await_condition(definitions, "widgets.example.com", conditions::is_crd_established()).await.unwrap();
        let widgets: Api<DynamicObject> = Api::default_namespaced_with(drydock.client(), &resource);
        let widget = DynamicObject::new("w", &resource).data(json!({"spec": {}}));
        widgets.create(&Default::default(), &widget).await.unwrap();
        drydock.shutdown().await;
    }
    let drydock = start().await.unwrap();
    let widgets: Api<DynamicObject> = Api::default_namespaced_with(drydock.client(), &resource);
    assert_eq!(widgets.get("w").await.unwrap().data["spec"]["size"], 3);
}

#[tokio::test]
async fn a_directory_holds_one_cluster_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let start = || Drydock::builder().controllers(false).data_dir(directory.path()).start();
    let first = start().await.unwrap();
    create(&config_maps(&first), "a").await.unwrap();
    let error = start().await.unwrap_err();
    assert!(matches!(error, StartError::Store(_)), "{error}");
    drop(first);
    let second = start().await.unwrap();
    assert_eq!(names(&config_maps(&second)).await, ["a"]);
}
