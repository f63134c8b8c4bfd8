//! Nodes: what a cordon amounts to, and what becomes of one that is not heard of any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use drydock::Drydock;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::controllers::support::{Cluster, eventually, object};

async fn add(cluster: &Cluster, name: &str) {
    let node = object(json!({ "metadata": { "name": name } }));
    cluster.all::<Node>().create(&PostParams::default(), &node).await.unwrap();
}

/// Says of a node whether it is ready.
async fn post(cluster: &Cluster, name: &str, ready: &str, at: Timestamp) {
    let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status, "reason": "Said", "message": "so", "lastHeartbeatTime": at, "lastTransitionTime": at });
    let status = json!({ "status": { "conditions": [condition("Ready", ready), condition("DiskPressure", "False")] } });
    let nodes: Api<Node> = cluster.all();
    nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await.unwrap();
}

async fn change(cluster: &Cluster, name: &str, patch: Value) {
    cluster.all::<Node>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// The conditions of a node, and its taints.
async fn shown(cluster: &Cluster, name: &str) -> [Vec<String>; 2] {
    let node = cluster.all::<Node>().get(name).await.unwrap();
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    assert!(taints.iter().all(|taint| taint.time_added.is_some()), "{taints:?}");
    [
        conditions
            .into_iter()
            .map(|one| format!("{}={} {}", one.type_, one.status, one.reason.unwrap_or_default()))
            .collect(),
        taints.into_iter().map(|one| format!("{}:{}", one.key, one.effect)).collect(),
    ]
}

/// Waits until a node has these taints.
async fn tainted(cluster: &Cluster, name: &str, expected: &[&str]) {
    eventually(&format!("{name} has {expected:?}"), || async {
        (shown(cluster, name).await[1] == expected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_cordon_is_a_taint_and_goes_with_it() {
    let cluster = Cluster::start().await;
    add(&cluster, "a").await;
    post(&cluster, "a", "True", Timestamp::now()).await;
    let own = json!({ "key": "own", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z" });
    change(&cluster, "a", json!({ "spec": { "unschedulable": true, "taints": [own] } })).await;
    tainted(&cluster, "a", &["own:NoSchedule", "node.kubernetes.io/unschedulable:NoSchedule"]).await;
    change(&cluster, "a", json!({ "spec": { "unschedulable": false } })).await;
    tainted(&cluster, "a", &["own:NoSchedule"]).await;
}

#[tokio::test]
async fn nothing_is_known_of_a_silent_node_until_it_posts_again() {
    let seconds = Arc::new(AtomicI64::new(1_782_864_030));
    let now = Arc::clone(&seconds);
    let now = move || Timestamp::from_second(now.load(Ordering::SeqCst)).unwrap();
    let cluster = Cluster::of(Drydock::builder().clock(now.clone())).await;
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-node-lease");
    let renew = async |name: &str| {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name },
            "spec": { "holderIdentity": name, "renewTime": format!("{:.6}", now()) },
        });
        leases.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(lease)).await.unwrap();
    };
    for name in ["silent", "heard", "made"] {
        add(&cluster, name).await;
        post(&cluster, name, "True", now()).await;
    }
    renew("silent").await;
    let unreachable =
        ["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"];
    eventually("it is given up", || async {
        seconds.fetch_add(5, Ordering::SeqCst);
        renew("heard").await;
        for name in ["silent", "made"] {
            let looked = json!({ "looked": now().to_string() });
            change(&cluster, name, json!({ "metadata": { "annotations": looked } })).await;
        }
        (shown(&cluster, "silent").await[1] == unreachable).then_some(())
    })
    .await;
    assert!(now().as_second() >= 1_782_864_030 + 50, "it had its time");
    let [mut conditions, _] = shown(&cluster, "silent").await;
    conditions.sort();
    assert_eq!(
        conditions,
        [
            "DiskPressure=Unknown NodeStatusUnknown",
            "MemoryPressure=Unknown NodeStatusNeverUpdated",
            "PIDPressure=Unknown NodeStatusNeverUpdated",
            "Ready=Unknown NodeStatusUnknown",
        ]
    );
    let said = ["Ready=True Said".to_owned(), "DiskPressure=False Said".to_owned()];
    for name in ["heard", "made"] {
        assert_eq!(shown(&cluster, name).await, [said.to_vec(), Vec::new()], "{name}");
    }
    let events: Api<Event> = cluster.in_default();
    let told = eventually("it is told", || async {
        let about = ListParams::default().fields("involvedObject.name=silent,reason=NodeNotReady");
        events.list(&about).await.ok()?.items.pop()?.message
    })
    .await;
    assert_eq!(told, "Node silent status is now: NodeNotReady");

    post(&cluster, "silent", "False", now()).await;
    tainted(
        &cluster,
        "silent",
        &["node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/not-ready:NoExecute"],
    )
    .await;
    post(&cluster, "silent", "True", now()).await;
    tainted(&cluster, "silent", &[]).await;
}
