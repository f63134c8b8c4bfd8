//! The scheduler on a cluster in memory: pods wait, are told why, and go where they fit.

use std::collections::BTreeMap;
use std::time::Duration;

use drydock::Drydock;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

fn pods(drydock: &Drydock) -> Api<Pod> {
    Api::namespaced(drydock.client(), "default")
}

fn pod(name: &str, cpu: &str) -> Pod {
    let container = json!({ "name": "c", "image": "i", "resources": { "requests": { "cpu": cpu } } });
    serde_json::from_value(json!({ "metadata": { "name": name }, "spec": { "containers": [container] } }))
        .unwrap()
}

async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

/// A node that is ready and has this many cores.
async fn add_node(drydock: &Drydock, name: &str, cpu: &str) {
    let nodes: Api<Node> = Api::all(drydock.client());
    create(&nodes, json!({ "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } } }))
        .await;
    let status = json!({ "status": {
        "allocatable": { "cpu": cpu, "memory": "4Gi", "pods": "110" },
        "conditions": [{ "type": "Ready", "status": "True" }],
    } });
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

async fn until(api: &Api<Pod>, name: &str, condition: impl Fn(&Pod) -> bool) -> Pod {
    let wait = await_condition(api.clone(), name, move |pod: Option<&Pod>| pod.is_some_and(&condition));
    tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap().unwrap().unwrap()
}

/// The condition `PodScheduled` as `status reason: message`.
fn scheduled(pod: &Pod) -> String {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let one = conditions.iter().find(|one| one.type_ == "PodScheduled");
    one.map_or_else(String::new, |one| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        format!("{} {}: {}", one.status, text(&one.reason), text(&one.message))
    })
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())
}

/// The first event with this reason about this pod: its type, sender and message.
async fn event(drydock: &Drydock, pod: &str, reason: &str) -> String {
    let events: Api<Event> = Api::namespaced(drydock.client(), "default");
    let selector = format!("involvedObject.name={pod},reason={reason}");
    let seen = watcher(events, watcher::Config::default().fields(&selector)).applied_objects().boxed();
    let first =
        tokio::time::timeout(Duration::from_secs(20), { seen }.try_next()).await.unwrap().unwrap().unwrap();
    let from = first.reporting_component.unwrap_or_default();
    format!("{} {from}: {}", first.type_.unwrap_or_default(), first.message.unwrap_or_default())
}

#[tokio::test]
async fn a_pod_waits_for_a_node_and_is_given_the_first_it_fits() {
    let drydock = Drydock::builder().start().await.unwrap();
    let pods = pods(&drydock);
    pods.create(&PostParams::default(), &pod("p", "2")).await.unwrap();
    let waiting = until(&pods, "p", |pod| !scheduled(pod).is_empty()).await;
    assert_eq!(scheduled(&waiting), "False Unschedulable: no nodes available to schedule pods");
    assert_eq!(
        event(&drydock, "p", "FailedScheduling").await,
        "Warning default-scheduler: no nodes available to schedule pods"
    );
    add_node(&drydock, "small", "1").await;
    let told = until(&pods, "p", |pod| scheduled(pod).contains("cpu")).await;
    assert_eq!(
        scheduled(&told),
        "False Unschedulable: 0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, \
         preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    );
    add_node(&drydock, "large", "3").await;
    let bound = until(&pods, "p", |pod| node_of(pod).is_some()).await;
    assert_eq!((node_of(&bound), scheduled(&bound).as_str()), (Some("large"), "True : "));
    assert_eq!(
        event(&drydock, "p", "Scheduled").await,
        "Normal default-scheduler: Successfully assigned default/p to large"
    );
}

#[tokio::test]
async fn a_pod_takes_the_room_of_one_that_went() {
    let drydock = Drydock::builder().start().await.unwrap();
    let pods = pods(&drydock);
    add_node(&drydock, "n", "1").await;
    pods.create(&PostParams::default(), &pod("a", "1")).await.unwrap();
    until(&pods, "a", |pod| node_of(pod).is_some()).await;
    pods.create(&PostParams::default(), &pod("b", "1")).await.unwrap();
    until(&pods, "b", |pod| scheduled(pod).contains("Insufficient")).await;
    pods.delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
    until(&pods, "b", |pod| node_of(pod) == Some("n")).await;
}

#[tokio::test]
async fn many_pods_at_once_are_spread_and_no_node_is_given_too_much() {
    let drydock = Drydock::builder().start().await.unwrap();
    let pods = pods(&drydock);
    for name in ["a", "b", "c"] {
        add_node(&drydock, name, "10").await;
    }
    for number in 0..36 {
        pods.create(&PostParams::default(), &pod(&format!("p{number}"), "1")).await.unwrap();
    }
    let seen = watcher(pods.clone(), watcher::Config::default()).applied_objects().boxed();
    let mut told = BTreeMap::new();
    let all = async {
        let mut seen = { seen };
        while told.len() < 36 {
            let pod = seen.try_next().await.unwrap().unwrap();
            if node_of(&pod).is_some() || scheduled(&pod).contains("3 Insufficient cpu") {
                told.insert(pod.name_any(), node_of(&pod).unwrap_or_default().to_owned());
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.unwrap();
    let mut counts = BTreeMap::<String, usize>::new();
    for pod in pods.list(&ListParams::default()).await.unwrap() {
        *counts.entry(node_of(&pod).unwrap_or_default().to_owned()).or_default() += 1;
    }
    assert_eq!(format!("{counts:?}"), r#"{"": 6, "a": 10, "b": 10, "c": 10}"#);
}

#[tokio::test]
async fn pods_of_other_schedulers_and_gated_ones_are_left_alone() {
    let drydock = Drydock::builder().start().await.unwrap();
    let pods = pods(&drydock);
    let container = json!([{ "name": "c", "image": "i" }]);
    let other = json!({ "metadata": { "name": "other" }, "spec": { "schedulerName": "mine", "containers": container } });
    create(&pods, other).await;
    let gated = json!({ "metadata": { "name": "gated" },
        "spec": { "schedulingGates": [{ "name": "x.io/gate" }], "containers": container } });
    create(&pods, gated).await;
    add_node(&drydock, "n", "4").await;
    pods.create(&PostParams::default(), &pod("p", "1")).await.unwrap();
    until(&pods, "p", |pod| node_of(pod).is_some()).await;
    for name in ["other", "gated"] {
        assert_eq!(node_of(&pods.get(name).await.unwrap()), None);
    }
    let open = json!({ "spec": { "schedulingGates": null } });
    pods.patch("gated", &PatchParams::default(), &Patch::Merge(open)).await.unwrap();
    until(&pods, "gated", |pod| node_of(pod) == Some("n")).await;
}
