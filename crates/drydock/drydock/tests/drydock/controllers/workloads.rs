//! Deployments and ReplicaSets: rolling out, scaling, and what happens when watches or writes fail.

use std::collections::BTreeSet;

use drydock::{Fault, Verb};
use futures::TryStreamExt;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::controllers::support::{Cluster, eventually, object};

#[tokio::test]
async fn a_deployment_rolls_out_scales_and_rolls_back() {
    let cluster = Cluster::start().await;
    cluster.run_pods();
    cluster.deploy(3, "web:1").await;
    let first = cluster.rolled_out(3).await;
    assert_eq!(first.annotations()["deployment.kubernetes.io/revision"], "1");
    let conditions = first.status.unwrap().conditions.unwrap();
    let told: BTreeSet<_> = conditions
        .iter()
        .map(|one| format!("{}={} {}", one.type_, one.status, one.reason.clone().unwrap_or_default()))
        .collect();
    assert_eq!(
        told.into_iter().collect::<Vec<_>>(),
        ["Available=True MinimumReplicasAvailable", "Progressing=True NewReplicaSetAvailable"]
    );
    let sets: Api<ReplicaSet> = cluster.in_default();
    let old = cluster.names(&sets).await;
    assert_eq!(old.len(), 1);

    cluster.deploy(3, "web:2").await;
    assert_eq!(cluster.rolled_out(3).await.annotations()["deployment.kubernetes.io/revision"], "2");
    assert_eq!(cluster.names(&sets).await.len(), 2);

    cluster.deploy(5, "web:2").await;
    cluster.rolled_out(5).await;
    cluster.deploy(1, "web:2").await;
    cluster.rolled_out(1).await;

    cluster.deploy(1, "web:1").await;
    assert_eq!(cluster.rolled_out(1).await.annotations()["deployment.kubernetes.io/revision"], "3");
    assert_eq!(cluster.names(&sets).await.len(), 2, "a rollback uses the set that is there");
    let back = sets.get(old.first().unwrap()).await.unwrap();
    assert_eq!(back.annotations()["deployment.kubernetes.io/revision-history"], "1");
    let pods = cluster.in_default::<Pod>().list(&ListParams::default()).await.unwrap();
    assert_eq!(pods.items.len(), 1);
    assert!(pods.items[0].name_any().starts_with(&format!("{}-", back.name_any())));
}

#[tokio::test]
async fn pods_that_are_ending_are_not_counted() {
    let cluster = Cluster::start().await;
    cluster.run_pods();
    cluster.deploy(2, "web:1").await;
    cluster.rolled_out(2).await;
    let pods: Api<Pod> = cluster.in_default();
    for name in cluster.names(&pods).await {
        let held = Patch::Merge(json!({ "metadata": { "finalizers": ["x.io/held"] } }));
        pods.patch(&name, &PatchParams::default(), &held).await.unwrap();
    }
    cluster.deploy(1, "web:1").await;
    let deployment = cluster.rolled_out(1).await;
    assert_eq!(cluster.names(&pods).await.len(), 2, "one is held while it goes");
    let set = cluster.in_default::<ReplicaSet>().list(&ListParams::default()).await.unwrap().items.remove(0);
    // A field of a gate that is off: a server of this version drops it.
    let counted = (deployment.status.unwrap().terminating_replicas, set.status.unwrap().terminating_replicas);
    assert_eq!(counted, (None, None));
}

#[tokio::test]
async fn what_was_done_is_told_in_events() {
    let cluster = Cluster::start().await;
    cluster.deploy(1, "web:1").await;
    let events: Api<Event> = cluster.in_default();
    let told = eventually("three events", || async {
        let all = events.list(&ListParams::default()).await.ok()?.items;
        let told: BTreeSet<_> = all
            .iter()
            .map(|one| {
                format!(
                    "{} {}",
                    one.involved_object.kind.clone().unwrap_or_default(),
                    one.reason.clone().unwrap_or_default()
                )
            })
            .collect();
        (told.len() == 3).then_some(told)
    })
    .await;
    assert_eq!(
        told.into_iter().collect::<Vec<_>>(),
        ["Deployment ScalingReplicaSet", "Pod FailedScheduling", "ReplicaSet SuccessfulCreate"]
    );
}

#[tokio::test]
async fn a_recreating_deployment_has_no_old_pod_beside_a_new_one() {
    let cluster = Cluster::start().await;
    cluster.run_pods();
    cluster.deploy(2, "web:1").await;
    let strategy = json!({ "spec": { "strategy": { "type": "Recreate", "rollingUpdate": null } } });
    let deployments: Api<Deployment> = cluster.in_default();
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(strategy)).await.unwrap();
    cluster.rolled_out(2).await;
    let pods: Api<Pod> = cluster.in_default();
    let old: BTreeSet<_> = cluster.names(&pods).await;
    let changes = watcher(pods.clone(), watcher::Config::default()).applied_objects();
    let image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "web", "image": "web:2" }] } } } });
    deployments.patch("web", &PatchParams::default(), &Patch::Strategic(image)).await.unwrap();
    let mut changes = std::pin::pin!(changes);
    loop {
        let pod = changes.try_next().await.unwrap().unwrap();
        if !old.contains(&pod.name_any()) {
            break;
        }
    }
    assert!(cluster.names(&pods).await.is_disjoint(&old));
    cluster.rolled_out(2).await;
}

#[tokio::test]
async fn a_set_takes_pods_that_fit_and_replaces_those_that_do_not() {
    let cluster = Cluster::start().await;
    cluster.run_pods();
    let pods: Api<Pod> = cluster.in_default();
    let set = json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } },
        },
    });
    cluster.in_default::<ReplicaSet>().create(&PostParams::default(), &object(set)).await.unwrap();
    let owned = |count: usize| {
        let pods = &pods;
        move || async move {
            let all = pods.list(&ListParams::default()).await.ok()?.items;
            let owned = all.iter().filter(|pod| !pod.owner_references().is_empty());
            let names: BTreeSet<_> = owned.map(ResourceExt::name_any).collect();
            (names.len() == 2 && all.len() == count).then_some(names)
        }
    };
    eventually("two pods", owned(2)).await;
    let container = json!([{ "name": "c", "image": "i" }]);
    let stray = json!({ "metadata": { "name": "stray", "labels": { "app": "web" } }, "spec": { "containers": container } });
    pods.create(&PostParams::default(), &object(stray)).await.unwrap();
    let two = eventually("one too many, and one of them gone", owned(2)).await;
    let relabelled = two.first().unwrap();
    let label = json!({ "metadata": { "labels": { "app": "other" } } });
    pods.patch(relabelled, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    eventually("let go and replaced", owned(3)).await;
    assert!(pods.get(relabelled).await.unwrap().owner_references().is_empty());
}

#[tokio::test]
async fn a_pod_that_can_not_be_taken_yet_is_not_replaced() {
    let cluster = Cluster::start().await;
    cluster.run_pods();
    let pods: Api<Pod> = cluster.in_default();
    let spec = json!({ "containers": [{ "name": "c", "image": "i" }] });
    let stray = json!({ "metadata": { "name": "stray", "labels": { "app": "web" } }, "spec": spec });
    let stray = object(stray);
    eventually("a pod", || async { pods.create(&PostParams::default(), &stray).await.ok() }).await;
    let own = "system:serviceaccount:kube-system:replicaset-controller";
    let refused = |fault: Fault| fault.verb(Verb::Patch).resource("pods").user(own).times(2);
    let order = cluster.drydock.faults().order(refused(Fault::conflict()));
    let template = json!({ "metadata": { "labels": { "app": "web" } }, "spec": spec });
    let set = json!({
        "metadata": { "name": "web" },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "web" } }, "template": template },
    });
    cluster.in_default::<ReplicaSet>().create(&PostParams::default(), &object(set)).await.unwrap();
    eventually("it is taken", || async {
        (!pods.get("stray").await.ok()?.owner_references().is_empty()).then_some(())
    })
    .await;
    assert_eq!(order.count(), 2);
    let asked = cluster.drydock.requests().entries();
    let made =
        asked.iter().filter(|one| one.user == own && one.verb == Verb::Create && one.resource == "pods");
    assert_eq!(made.count(), 0);
}

/// Orders faults of the watch by which the controllers know of pods.
fn of_pod_watches(fault: Fault) -> Fault {
    fault.verb(Verb::Watch).resource("pods").user("system:kube-controller-manager")
}

#[tokio::test]
async fn pods_are_not_created_twice_while_the_first_ones_are_not_seen() {
    let cluster = Cluster::start().await;
    let pods: Api<Pod> = cluster.in_default();
    cluster.deploy(1, "web:1").await;
    eventually("the first pod", || async { (cluster.names(&pods).await.len() == 1).then_some(()) }).await;
    let stale = cluster.drydock.faults().order(of_pod_watches(Fault::watch_stale()));
    cluster.deploy(3, "web:1").await;
    eventually("three pods", || async { (cluster.names(&pods).await.len() == 3).then_some(()) }).await;
    // Something about the set changes; whoever decides on what is seen of its pods would make more.
    let sets: Api<ReplicaSet> = cluster.in_default();
    let set = cluster.names(&sets).await.first().unwrap().clone();
    let note = Patch::Merge(json!({ "metadata": { "annotations": { "note": "1" } } }));
    sets.patch(&set, &PatchParams::default(), &note).await.unwrap();
    cluster.deploy(4, "web:1").await;
    eventually("the wish for a fourth", || async {
        (sets.get(&set).await.ok()?.spec?.replicas == Some(4)).then_some(())
    })
    .await;
    assert_eq!(cluster.names(&pods).await.len(), 3);
    stale.lift();
    eventually("four pods", || async { (cluster.names(&pods).await.len() == 4).then_some(()) }).await;
}

#[tokio::test]
async fn a_lost_watch_loses_no_change() {
    for fault in [Fault::watch_cut(), Fault::watch_end(), Fault::watch_expired()] {
        let cluster = Cluster::start().await;
        cluster.run_pods();
        let order = cluster.drydock.faults().order(of_pod_watches(fault.nth(2)));
        cluster.deploy(3, "web:1").await;
        cluster.rolled_out(3).await;
        assert_eq!(order.count(), 1);
    }
}

#[tokio::test]
async fn pods_that_can_not_be_created_are_told_and_tried_again() {
    let cluster = Cluster::start().await;
    cluster.run_pods();
    let failing = Fault::internal_error().verb(Verb::Create).resource("pods").always();
    let order = cluster.drydock.faults().order(failing);
    cluster.deploy(2, "web:1").await;
    let deployments: Api<Deployment> = cluster.in_default();
    let failure = |wanted: bool| {
        let deployments = &deployments;
        move || async move {
            let conditions = deployments.get("web").await.ok()?.status?.conditions.unwrap_or_default();
            let told = conditions.into_iter().find(|one| one.type_ == "ReplicaFailure");
            (told.is_some() == wanted).then_some(told)
        }
    };
    let told = eventually("the failure", failure(true)).await.unwrap();
    assert_eq!(told.reason.as_deref(), Some("FailedCreate"));
    order.lift();
    cluster.rolled_out(2).await;
    eventually("its end", failure(false)).await;
}
