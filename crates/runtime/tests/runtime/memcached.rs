//! The first real operator on the runtime.

use ballast_memcached::{Memcached, MemcachedOperator};
use ballast_runtime::NoEngine;
use drydock::{Drydock, Fault, Verb};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service, policy::v1::PodDisruptionBudget};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

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

/// Somebody edits the spec of a child so that the server takes no apply beside it. Gives the spec as it
/// was made and as it is when the event has said what was taken away.
async fn edit_in_the_way<K>(drydock: &Drydock, edit: fn(&mut Value), taken: &str) -> (Value, Value)
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let caches: Api<Memcached> = Api::namespaced(drydock.client(), "default");
    caches.create(&PostParams::default(), &memcached("sample")).await.unwrap();
    until_there(drydock, "sample").await;
    let children: Api<K> = Api::namespaced(drydock.client(), "default");
    let read = async || serde_json::to_value(children.get("sample").await.unwrap()).unwrap();
    let mut child = read().await;
    let made = child["spec"].clone();
    edit(&mut child["spec"]);
    let how = PostParams { field_manager: Some("kubectl-edit".into()), ..PostParams::default() };
    children.replace("sample", &how, &serde_json::from_value(child).unwrap()).await.unwrap();
    let note = format!(
        "Warning FieldsTakenBack: took {taken} of {} default/sample away, which kubectl-edit had put beside what is \
         wanted there",
        K::kind(&())
    );
    eventually("it is said what was taken away", async || {
        events(drydock, "sample").await.contains(&note).then_some(())
    })
    .await;
    rest(drydock).await;
    let conditions = caches.get("sample").await.unwrap().status.unwrap().conditions;
    let degraded = conditions.iter().find(|condition| condition.type_ == "Degraded").unwrap();
    assert_eq!(degraded.status, "False", "{degraded:?}");
    (made, read().await["spec"].clone())
}

#[tokio::test]
async fn a_port_that_is_renumbered_by_hand_is_put_right() {
    let (drydock, _running) = start(false).await;
    let edit = |spec: &mut Value| spec["ports"][0]["port"] = json!(11212);
    let taken = r#".spec.ports[port=11212,protocol="TCP"]"#;
    let (made, is) = edit_in_the_way::<Service>(&drydock, edit, taken).await;
    assert_eq!(is, made);
}

#[tokio::test]
async fn a_containers_port_is_put_right_and_a_container_that_somebody_added_stays() {
    let (drydock, _running) = start(false).await;
    let edit = |spec: &mut Value| {
        let containers = spec.pointer_mut("/template/spec/containers").unwrap().as_array_mut().unwrap();
        containers[0]["ports"][0]["containerPort"] = json!(11212);
        containers.push(json!({"name": "sidecar", "image": "exporter:1"}));
    };
    let taken =
        r#".spec.template.spec.containers[name="memcached"].ports[containerPort=11212,protocol="TCP"]"#;
    let (made, mut is) = edit_in_the_way::<Deployment>(&drydock, edit, taken).await;
    let added = is["template"]["spec"]["containers"].as_array_mut().unwrap().pop().unwrap();
    assert_eq!(added["name"], "sidecar");
    assert_eq!(is, made);
}

#[tokio::test]
async fn a_probe_of_another_sort_is_put_right() {
    let (drydock, _running) = start(false).await;
    let edit = |spec: &mut Value| {
        for probe in ["readinessProbe", "livenessProbe"] {
            let probe = &mut spec["template"]["spec"]["containers"][0][probe];
            probe.as_object_mut().unwrap().remove("tcpSocket");
            probe["exec"] = json!({"command": ["true"]});
        }
    };
    let taken = r#".spec.template.spec.containers[name="memcached"].livenessProbe.exec, .spec.template.spec.containers[name="memcached"].readinessProbe.exec"#;
    let (made, is) = edit_in_the_way::<Deployment>(&drydock, edit, taken).await;
    assert_eq!(is, made);
}

#[tokio::test]
async fn a_budget_of_the_other_sort_is_put_right_and_a_contest_where_it_comes_back() {
    let (drydock, _running) = start(false).await;
    let edit = |spec: &mut Value| {
        spec.as_object_mut().unwrap().remove("maxUnavailable");
        spec["minAvailable"] = json!(2);
    };
    let (made, is) = edit_in_the_way::<PodDisruptionBudget>(&drydock, edit, ".spec.minAvailable").await;
    assert_eq!(is, made);
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(drydock.client(), "default");
    let other = Patch::Merge(json!({"spec": {"maxUnavailable": null, "minAvailable": 2}}));
    let how = PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
    for _ in 0..2 {
        budgets.patch("sample", &how, &other).await.unwrap();
        eventually("it is put right again", async || {
            budgets.get("sample").await.unwrap().spec?.max_unavailable.map(drop)
        })
        .await;
    }
    let caches: Api<Memcached> = Api::namespaced(drydock.client(), "default");
    eventually("it is contested", async || {
        let conditions = caches.get("sample").await.unwrap().status?.conditions;
        conditions.iter().any(|condition| condition.reason == "FieldContested").then_some(())
    })
    .await;
}
