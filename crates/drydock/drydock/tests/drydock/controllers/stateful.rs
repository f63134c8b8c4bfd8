//! StatefulSets: pods by name, one after another, with claims that stay.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::controllers::support::{Cluster, eventually, object};

async fn declare(cluster: &Cluster, replicas: i32, image: &str, more: Value) {
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": { "name": "db" },
        "spec": {
            "replicas": replicas,
            "serviceName": "db",
            "selector": { "matchLabels": { "app": "db" } },
            "template": {
                "metadata": { "labels": { "app": "db" } },
                "spec": { "containers": [{ "name": "db", "image": image, "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }] },
            },
            "volumeClaimTemplates": [{
                "metadata": { "name": "data" },
                "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
            }],
        },
    });
    for (field, value) in more.as_object().unwrap() {
        set["spec"][field] = value.clone();
    }
    let parameters = PatchParams::apply("test").force();
    cluster.in_default::<StatefulSet>().patch("db", &parameters, &Patch::Apply(set)).await.unwrap();
}

/// Waits until this many pods are ready and all of the template.
async fn settled(cluster: &Cluster, replicas: i32) -> StatefulSet {
    let sets: Api<StatefulSet> = cluster.in_default();
    eventually("all of it", || async {
        let set = sets.get("db").await.ok()?;
        let status = set.status.clone()?;
        let done = status.observed_generation == set.metadata.generation
            && status.replicas == replicas
            && status.ready_replicas.unwrap_or(0) == replicas
            && status.updated_replicas.unwrap_or(0) == replicas
            && status.current_revision == status.update_revision;
        done.then_some(set)
    })
    .await
}

async fn claims(cluster: &Cluster) -> Vec<String> {
    cluster.names(&cluster.in_default::<PersistentVolumeClaim>()).await.into_iter().collect()
}

#[tokio::test]
async fn pods_have_names_that_stay_and_claims_that_stay_with_them() {
    let cluster = Cluster::start().await;
    cluster.run_pods();
    declare(&cluster, 2, "db:1", json!({})).await;
    settled(&cluster, 2).await;
    let pods: Api<Pod> = cluster.in_default();
    let first = pods.get("db-0").await.unwrap();
    let spec = first.spec.clone().unwrap();
    assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("db-0"), Some("db")));
    assert_eq!(first.labels()["apps.kubernetes.io/pod-index"], "0");
    assert_eq!(claims(&cluster).await, ["data-db-0", "data-db-1"]);
    pods.delete("db-0", &DeleteParams::default()).await.unwrap();
    eventually("another of the same name", || async {
        (pods.get("db-0").await.ok()?.uid() != first.uid()).then_some(())
    })
    .await;
    declare(&cluster, 1, "db:1", json!({})).await;
    settled(&cluster, 1).await;
    assert_eq!(claims(&cluster).await, ["data-db-0", "data-db-1"]);
    let events: Api<Event> = cluster.in_default();
    let told = eventually("what was done", || async {
        let all = events.list(&ListParams::default()).await.ok()?.items;
        let told: BTreeSet<String> = all
            .into_iter()
            .filter(|one| one.involved_object.kind.as_deref() == Some("StatefulSet"))
            .filter_map(|one| one.message)
            .collect();
        (told.len() == 5).then_some(told)
    })
    .await;
    assert_eq!(
        told.into_iter().collect::<Vec<_>>(),
        [
            "create Claim data-db-0 Pod db-0 in StatefulSet db success",
            "create Claim data-db-1 Pod db-1 in StatefulSet db success",
            "create Pod db-0 in StatefulSet db successful",
            "create Pod db-1 in StatefulSet db successful",
            "delete Pod db-1 in StatefulSet db successful",
        ]
    );
}

/// How often this was told of the set.
async fn times(cluster: &Cluster, reason: &str, message: &str) -> i32 {
    let selector = ListParams::default().fields(&format!("involvedObject.name=db,reason={reason}"));
    let all = cluster.in_default::<Event>().list(&selector).await.unwrap();
    let told = all.iter().find(|one| one.message.as_deref() == Some(message));
    told.and_then(|one| one.count).unwrap_or(0)
}

#[tokio::test]
async fn a_claim_that_goes_is_in_the_way_of_a_new_pod_and_of_no_other_claim() {
    let cluster = Cluster::start().await;
    let template = |name: &str| {
        json!({
            "metadata": { "name": name },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        })
    };
    declare(&cluster, 1, "db:1", json!({ "volumeClaimTemplates": [template("data"), template("logs")] }))
        .await;
    let claims: Api<PersistentVolumeClaim> = cluster.in_default();
    let held = Patch::Merge(json!({ "metadata": { "finalizers": ["x.io/held"] } }));
    eventually("one is held", || async {
        claims.patch("data-db-0", &PatchParams::default(), &held).await.ok()
    })
    .await;
    claims.delete("data-db-0", &DeleteParams::default()).await.unwrap();
    let made = "create Claim logs-db-0 Pod db-0 in StatefulSet db success";
    for count in 1..4 {
        eventually("the other is made, and made again", || async {
            (times(&cluster, "SuccessfulCreate", made).await == count).then_some(())
        })
        .await;
        claims.delete("logs-db-0", &DeleteParams::default()).await.unwrap();
    }
    let failed = "create Pod db-0 in StatefulSet db failed error: pvc data-db-0 is being deleted";
    assert_eq!(times(&cluster, "FailedCreate", failed).await, 0, "the pod is there");
    cluster.in_default::<Pod>().delete("db-0", &DeleteParams::default()).await.unwrap();
    eventually("it is said why no other comes", || async {
        (times(&cluster, "FailedCreate", failed).await > 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_update_is_remembered_rolls_from_the_last_and_can_be_taken_back() {
    let cluster = Cluster::start().await;
    cluster.run_pods();
    declare(&cluster, 2, "db:1", json!({"revisionHistoryLimit": 1})).await;
    let first = settled(&cluster, 2).await.status.unwrap().current_revision;
    let partition = |number: i32| {
        let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": number } });
        json!({ "updateStrategy": strategy, "revisionHistoryLimit": 1 })
    };
    declare(&cluster, 2, "db:2", partition(1)).await;
    let image = |name: &'static str| {
        let pods: Api<Pod> = cluster.in_default();
        async move { pods.get(name).await.ok()?.spec?.containers[0].image.clone() }
    };
    eventually("the last at the new one", || async { (image("db-1").await? == "db:2").then_some(()) }).await;
    assert_eq!(image("db-0").await.as_deref(), Some("db:1"));
    declare(&cluster, 2, "db:2", partition(0)).await;
    let second = settled(&cluster, 2).await.status.unwrap().current_revision;
    assert_ne!(first, second);
    declare(&cluster, 2, "db:1", partition(0)).await;
    let third = settled(&cluster, 2).await.status.unwrap().current_revision;
    assert_eq!(first, third, "a template that was there before is the same revision");
    let revisions: Api<ControllerRevision> = cluster.in_default();
    let told = eventually("two revisions, the first the later", || async {
        let all = revisions.list(&ListParams::default()).await.ok()?.items;
        let mut all: Vec<_> = all.into_iter().map(|one| (one.revision, one.name_any())).collect();
        all.sort();
        (all.last()?.1 == *first.as_ref()?).then_some(all)
    })
    .await;
    assert_eq!(told.iter().map(|one| one.0).collect::<Vec<_>>(), [2, 3]);
    declare(&cluster, 2, "db:3", partition(0)).await;
    settled(&cluster, 2).await;
    eventually("the oldest forgotten", || async {
        (cluster.names(&revisions).await.len() == 2).then_some(())
    })
    .await;
}

#[tokio::test]
async fn claims_go_when_the_policy_says_so() {
    let all = ["data-db-0", "data-db-1", "data-db-2"];
    for (scaled, deleted, after_scaling, after_deletion) in [
        ("Delete", "Delete", &all[..1], &[][..]),
        ("Delete", "Retain", &all[..1], &all[..1]),
        ("Retain", "Delete", &all, &[]),
        ("Retain", "Retain", &all, &all),
    ] {
        let cluster = Cluster::start().await;
        cluster.run_pods();
        let policy = json!({ "whenDeleted": deleted, "whenScaled": scaled });
        let more =
            json!({ "persistentVolumeClaimRetentionPolicy": policy, "podManagementPolicy": "Parallel" });
        declare(&cluster, 3, "db:1", more.clone()).await;
        settled(&cluster, 3).await;
        declare(&cluster, 1, "db:1", more).await;
        settled(&cluster, 1).await;
        eventually(&format!("{policy} when scaled"), || async {
            (claims(&cluster).await == after_scaling).then_some(())
        })
        .await;
        let sets: Api<StatefulSet> = cluster.in_default();
        sets.delete("db", &DeleteParams::foreground()).await.unwrap();
        eventually(&format!("{policy} when deleted"), || async {
            let gone = sets.get_opt("db").await.ok()?.is_none();
            (gone && claims(&cluster).await == after_deletion).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_claim_in_use_waits_and_gets_the_default_class() {
    let cluster = Cluster::start().await;
    let class = json!({
        "metadata": { "name": "fast", "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } },
        "provisioner": "x.io/fast",
    });
    cluster.all::<StorageClass>().create(&PostParams::default(), &object(class)).await.unwrap();
    let api: Api<PersistentVolumeClaim> = cluster.in_default();
    let claim = json!({
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    let made = api.create(&PostParams::default(), &object(claim)).await.unwrap();
    assert_eq!(made.spec.unwrap().storage_class_name.as_deref(), Some("fast"));
    let pod = json!({
        "metadata": { "name": "user" },
        "spec": {
            "nodeName": "n",
            "containers": [{ "name": "c", "image": "i" }],
            "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }],
        },
    });
    let pods: Api<Pod> = cluster.in_default();
    pods.create(&PostParams::default(), &object(pod)).await.unwrap();
    api.delete("data", &DeleteParams::default()).await.unwrap();
    let volumes: Api<PersistentVolume> = cluster.all();
    let volume = json!({
        "metadata": { "name": "pv" },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "hostPath": { "path": "/x" } },
    });
    volumes.create(&PostParams::default(), &object(volume)).await.unwrap();
    volumes.delete("pv", &DeleteParams::default()).await.unwrap();
    eventually("the unused volume gone", || async {
        volumes.get_opt("pv").await.ok()?.is_none().then_some(())
    })
    .await;
    assert!(api.get("data").await.unwrap().metadata.deletion_timestamp.is_some());
    pods.delete("user", &DeleteParams::default().grace_period(0)).await.unwrap();
    eventually("the claim gone", || async { api.get_opt("data").await.ok()?.is_none().then_some(()) }).await;
}
