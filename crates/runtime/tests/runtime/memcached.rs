//! The first real operator on the runtime.

use ballast_memcached::{Memcached, MemcachedOperator};
use ballast_runtime::NoEngine;
use drydock::{Drydock, Fault, Verb};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service, policy::v1::PodDisruptionBudget};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::support::*;

async fn start(controllers: bool) -> (Drydock, Running) {
    let drydock = Drydock::builder().controllers(controllers).requests(100_000).start().await.unwrap();
    install::<Memcached>(&drydock).await;
    let running = run_with(&drydock, MemcachedOperator, NoEngine, options());
    (drydock, running)
}

fn memcached(name: &str) -> Memcached {
    let manifest = json!({
        "apiVersion": "cache.example.com/v1alpha1",
        "kind": "Memcached",
        "metadata": {"name": name},
        "spec": {"size": 3, "version": "1.6.39"},
    });
    serde_json::from_value(manifest).unwrap()
}

async fn until_there(drydock: &Drydock, name: &str) {
    let deployments: Api<Deployment> = Api::namespaced(drydock.client(), "default");
    let services: Api<Service> = Api::namespaced(drydock.client(), "default");
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(drydock.client(), "default");
    let caches: Api<Memcached> = Api::namespaced(drydock.client(), "default");
    eventually("the children and the status are there", async || {
        deployments.get_opt(name).await.unwrap()?;
        services.get_opt(name).await.unwrap()?;
        budgets.get_opt(name).await.unwrap()?;
        caches.get(name).await.unwrap().status
    })
    .await;
}

#[tokio::test]
async fn a_memcached_costs_one_request_per_child_one_for_its_status_and_one_event() {
    let (drydock, _running) = start(false).await;
    let caches: Api<Memcached> = Api::namespaced(drydock.client(), "default");
    caches.create(&PostParams::default(), &memcached("sample")).await.unwrap();
    until_there(&drydock, "sample").await;
    rest(&drydock).await;
    let mut made = requests(&drydock);
    made.iter_mut().filter(|line| line.contains("events")).for_each(|line| *line = "event".into());
    made.sort();
    assert_eq!(
        made,
        [
            "event",
            "patch apps/deployments sample 201",
            "patch cache.example.com/memcacheds/status sample 200",
            "patch policy/poddisruptionbudgets sample 201",
            "patch services sample 201",
        ]
    );
}

#[tokio::test]
async fn with_the_clusters_own_controllers_it_settles_and_then_rests() {
    let (drydock, _running) = start(true).await;
    let caches: Api<Memcached> = Api::namespaced(drydock.client(), "default");
    caches.create(&PostParams::default(), &memcached("sample")).await.unwrap();
    until_there(&drydock, "sample").await;
    eventually("the pods are named", async || {
        (caches.get("sample").await.unwrap().status?.nodes.len() == 3).then_some(())
    })
    .await;
    rest(&drydock).await;
    let before = requests(&drydock).len();
    rest(&drydock).await;
    assert_eq!(requests(&drydock).len(), before);
    assert!(before < 20, "{:#?}", requests(&drydock));
}

#[tokio::test]
async fn a_deployment_that_is_scaled_by_hand_or_deleted_is_put_right() {
    let (drydock, _running) = start(true).await;
    let caches: Api<Memcached> = Api::namespaced(drydock.client(), "default");
    caches.create(&PostParams::default(), &memcached("sample")).await.unwrap();
    until_there(&drydock, "sample").await;
    let deployments: Api<Deployment> = Api::namespaced(drydock.client(), "default");
    let how = PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
    deployments.patch("sample", &how, &Patch::Merge(json!({"spec": {"replicas": 7}}))).await.unwrap();
    let replicas = async |wanted: i32| {
        let spec = deployments.get_opt("sample").await.unwrap()?.spec?;
        (spec.replicas == Some(wanted)).then_some(())
    };
    eventually("it has three replicas again", async || replicas(3).await).await;
    eventually("the event names who did it", async || {
        let events = events(&drydock, "sample").await;
        events
            .iter()
            .any(|event| event.contains(".spec.replicas") && event.contains("kubectl-edit"))
            .then_some(())
    })
    .await;
    deployments.delete("sample", &DeleteParams::background()).await.unwrap();
    eventually("it is there again", async || replicas(3).await).await;
}

#[tokio::test]
async fn a_step_that_keeps_failing_is_said_once_and_silences_nothing() {
    let (drydock, running) = start(false).await;
    let fault = Fault::internal_error().verb(Verb::Patch).resource("services").user(OPERATOR).always();
    let order = drydock.faults().order(fault);
    let caches: Api<Memcached> = Api::namespaced(drydock.client(), "default");
    caches.create(&PostParams::default(), &memcached("sample")).await.unwrap();
    let said = async |reason: &str| {
        let mut said = events(&drydock, "sample").await;
        said.retain(|event| event.split_once(':').is_some_and(|(what, _)| what.ends_with(reason)));
        said
    };
    eventually("the failure is said", async || said("StepFailed").await.pop()).await;
    // What was done before the step that fails is said, what was to come of it is not.
    let size = Patch::Merge(json!({"spec": {"size": 5}}));
    caches.patch("sample", &PatchParams::default(), &size).await.unwrap();
    eventually("the scaling is said", async || said("Scaling").await.pop()).await;
    let fail_again = async || {
        let before = order.count();
        eventually("it fails again", async || (order.count() >= before + 2).then_some(())).await;
    };
    fail_again().await;
    // Nor does a process that begins take anything back.
    let counted = r#"ballast_events_total{controller="memcached",reason="StepFailed",type="Warning"} 1"#;
    let metrics = running.metrics.text();
    assert!(metrics.contains(counted), "{metrics}");
    running.crash().await;
    let running = run_with(&drydock, MemcachedOperator, NoEngine, options());
    fail_again().await;
    assert!(!running.metrics.text().contains("ballast_events_total{"), "{}", running.metrics.text());
    let told = events(&drydock, "sample").await;
    assert_eq!(told.len(), 2, "{told:?}");
    order.lift();
    eventually("it is over", async || said("Recovered").await.pop()).await;
}
