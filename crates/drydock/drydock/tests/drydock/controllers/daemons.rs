//! DaemonSets: a pod on every node, through nodes that come and templates that change.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::controllers::support::{Cluster, eventually, object};

/// A node that is ready.
pub async fn add_node(cluster: &Cluster, name: &str) {
    let nodes: Api<Node> = cluster.all();
    nodes.create(&PostParams::default(), &object(json!({ "metadata": { "name": name } }))).await.unwrap();
    let status = json!({ "status": {
        "allocatable": { "cpu": "4", "memory": "4Gi", "pods": "110" },
        "conditions": [{ "type": "Ready", "status": "True" }],
    } });
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

/// Pods that go are gone at once: there is nobody on the nodes to end them.
pub async fn declare(cluster: &Cluster, image: &str) {
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "d" },
        "spec": {
            "selector": { "matchLabels": { "app": "d" } },
            "template": {
                "metadata": { "labels": { "app": "d" } },
                "spec": { "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": image }] },
            },
        },
    });
    let parameters = PatchParams::apply("test").force();
    cluster.in_default::<DaemonSet>().patch("d", &parameters, &Patch::Apply(set)).await.unwrap();
}

/// The image on each node, once that many have a pod of the current template that is ready.
async fn settled(cluster: &Cluster, nodes: i32) -> BTreeMap<String, String> {
    let sets: Api<DaemonSet> = cluster.in_default();
    eventually("every node has its pod", || async {
        let set = sets.get("d").await.ok()?;
        let status = set.status?;
        let done = status.observed_generation == set.metadata.generation
            && status.desired_number_scheduled == nodes
            && status.number_available == Some(nodes)
            && status.updated_number_scheduled == Some(nodes);
        done.then_some(())
    })
    .await;
    let pods = cluster.in_default::<Pod>().list(&ListParams::default()).await.unwrap();
    let living = pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let specs = living.map(|pod| pod.spec.unwrap());
    specs.map(|spec| (spec.node_name.unwrap(), spec.containers[0].image.clone().unwrap())).collect()
}

#[tokio::test]
async fn every_node_has_its_pod_and_a_new_template_reaches_each() {
    let cluster = Cluster::start().await;
    cluster.run_pods();
    for node in ["a", "b"] {
        add_node(&cluster, node).await;
    }
    declare(&cluster, "one").await;
    let on = |nodes: &[&str], image: &str| -> BTreeMap<String, String> {
        nodes.iter().map(|node| ((*node).to_owned(), image.to_owned())).collect()
    };
    assert_eq!(settled(&cluster, 2).await, on(&["a", "b"], "one"));
    add_node(&cluster, "c").await;
    assert_eq!(settled(&cluster, 3).await, on(&["a", "b", "c"], "one"));
    // Whoever is drained keeps its own.
    let cordon = Patch::Merge(json!({ "spec": { "unschedulable": true } }));
    cluster.all::<Node>().patch("a", &PatchParams::default(), &cordon).await.unwrap();
    declare(&cluster, "two").await;
    assert_eq!(settled(&cluster, 3).await, on(&["a", "b", "c"], "two"));
}

/// The revisions there are: the image of each by its number.
async fn remembered(cluster: &Cluster) -> BTreeMap<i64, String> {
    let revisions = cluster.in_default::<ControllerRevision>().list(&ListParams::default()).await.unwrap();
    let image = |revision: &ControllerRevision| {
        let data = &revision.data.as_ref().unwrap().0;
        data["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
    };
    revisions.iter().map(|revision| (revision.revision, image(revision))).collect()
}

#[tokio::test]
async fn templates_are_remembered_under_numbers_and_a_few_are_kept() {
    let cluster = Cluster::start().await;
    cluster.run_pods();
    add_node(&cluster, "a").await;
    for image in ["one", "two", "one"] {
        declare(&cluster, image).await;
        settled(&cluster, 1).await;
    }
    let of = |all: &[(i64, &str)]| -> BTreeMap<i64, String> {
        all.iter().map(|(number, image)| (*number, (*image).to_owned())).collect()
    };
    assert_eq!(remembered(&cluster).await, of(&[(2, "two"), (3, "one")]));
    // Pods say of which they are.
    let pods = cluster.in_default::<Pod>().list(&ListParams::default()).await.unwrap();
    let hash = pods.items[0].metadata.labels.as_ref().unwrap()["controller-revision-hash"].clone();
    let of_it = ListParams::default().labels(&format!("controller-revision-hash={hash}"));
    let revisions = cluster.in_default::<ControllerRevision>().list(&of_it).await.unwrap();
    assert_eq!(revisions.items.len(), 1);
    assert_eq!(revisions.items[0].revision, 3);
    let few = Patch::Merge(json!({ "spec": { "revisionHistoryLimit": 0 } }));
    cluster.in_default::<DaemonSet>().patch("d", &PatchParams::default(), &few).await.unwrap();
    eventually("what is past goes", || async {
        (remembered(&cluster).await == of(&[(3, "one")])).then_some(())
    })
    .await;
}
