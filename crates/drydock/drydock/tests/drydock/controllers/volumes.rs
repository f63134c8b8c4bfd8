//! Claims and volumes come together, part, and are told about.

use drydock::{Fault, Verb};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::controllers::support::{Cluster, eventually, object};

async fn volume(cluster: &Cluster, name: &str, size: &str, more: Value) {
    let mut spec = json!({
        "capacity": { "storage": size }, "accessModes": ["ReadWriteOnce"], "hostPath": { "path": "/x" },
    });
    let mut meta = json!({ "name": name });
    for (field, value) in more.as_object().unwrap() {
        let place = if ["labels", "annotations"].contains(&field.as_str()) { &mut meta } else { &mut spec };
        place[field] = value.clone();
    }
    let volumes: Api<PersistentVolume> = cluster.all();
    let volume = object(json!({ "metadata": meta, "spec": spec }));
    volumes.create(&PostParams::default(), &volume).await.unwrap();
}

async fn claim(cluster: &Cluster, name: &str, size: &str, more: Value) {
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": size } }, "storageClassName": "",
    });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let claims: Api<PersistentVolumeClaim> = cluster.in_default();
    let claim = object(json!({ "metadata": { "name": name }, "spec": spec }));
    claims.create(&PostParams::default(), &claim).await.unwrap();
}

async fn class(cluster: &Cluster, name: &str, mode: &str, default: bool) {
    let annotations = json!({ "storageclass.kubernetes.io/is-default-class": default.to_string() });
    let class = json!({
        "metadata": { "name": name, "annotations": annotations },
        "provisioner": "x.io/disk",
        "volumeBindingMode": mode,
        "allowVolumeExpansion": true,
    });
    cluster.all::<StorageClass>().create(&PostParams::default(), &object(class)).await.unwrap();
}

/// Waits until a claim says `PHASE VOLUME CAPACITY`.
async fn claim_is(cluster: &Cluster, name: &str, expected: &str) {
    let claims: Api<PersistentVolumeClaim> = cluster.in_default();
    eventually(&format!("the claim {name} is {expected}"), || async {
        let claim = claims.get(name).await.ok()?;
        let status = claim.status?;
        let volume = claim.spec?.volume_name.unwrap_or_default();
        let capacity = status.capacity.and_then(|all| all.get("storage").map(|one| one.0.clone()));
        let shown = format!("{} {volume} {}", status.phase?, capacity.unwrap_or_default());
        (shown.trim() == expected).then_some(())
    })
    .await;
}

async fn volume_is(cluster: &Cluster, name: &str, phase: &str) -> PersistentVolume {
    let volumes: Api<PersistentVolume> = cluster.all();
    eventually(&format!("the volume {name} is {phase}"), || async {
        let volume = volumes.get(name).await.ok()?;
        (volume.status.as_ref()?.phase.as_deref() == Some(phase)).then_some(volume)
    })
    .await
}

/// Waits for an event, and gives `TYPE COMPONENT: MESSAGE`.
async fn told(cluster: &Cluster, about: &str, reason: &str) -> String {
    let events: Api<Event> = cluster.in_default();
    eventually(&format!("{reason} of {about}"), || async {
        let all = events.list(&ListParams::default()).await.ok()?.items;
        let one = all.into_iter().find(|event| {
            event.involved_object.name.as_deref() == Some(about) && event.reason.as_deref() == Some(reason)
        })?;
        Some(format!("{} {}: {}", one.type_?, one.source?.component?, one.message?))
    })
    .await
}

#[tokio::test]
async fn a_claim_gets_the_smallest_volume_that_fits_and_leaves_it_released() {
    let cluster = Cluster::start().await;
    volume(&cluster, "large", "5Gi", json!({})).await;
    volume(&cluster, "small", "1Gi", json!({})).await;
    volume_is(&cluster, "small", "Available").await;
    volume_is(&cluster, "large", "Available").await;
    claim(&cluster, "data", "1Gi", json!({})).await;
    claim_is(&cluster, "data", "Bound small 1Gi").await;
    let bound = volume_is(&cluster, "small", "Bound").await;
    let of = bound.spec.unwrap().claim_ref.unwrap();
    assert_eq!((of.namespace.as_deref(), of.name.as_deref()), (Some("default"), Some("data")));
    assert_eq!(bound.metadata.annotations.unwrap()["pv.kubernetes.io/bound-by-controller"], "yes");
    let claims: Api<PersistentVolumeClaim> = cluster.in_default();
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    volume_is(&cluster, "small", "Released").await;
    // It is nobody's until somebody looks after it.
    claim(&cluster, "data", "1Gi", json!({})).await;
    claim_is(&cluster, "data", "Bound large 5Gi").await;
    claim(&cluster, "huge", "1Ti", json!({})).await;
    assert_eq!(
        told(&cluster, "huge", "FailedBinding").await,
        "Normal persistentvolume-controller: no persistent volumes available for this claim and no storage class is set"
    );
    let volumes: Api<PersistentVolume> = cluster.all();
    let freed = json!({ "spec": { "claimRef": null } });
    volumes.patch("small", &PatchParams::default(), &Patch::Merge(freed)).await.unwrap();
    volume_is(&cluster, "small", "Available").await;
    claim(&cluster, "later", "1Gi", json!({})).await;
    claim_is(&cluster, "later", "Bound small 1Gi").await;
}

#[tokio::test]
async fn claims_and_volumes_may_name_each_other() {
    let cluster = Cluster::start().await;
    claim(&cluster, "named", "1Gi", json!({ "volumeName": "mine" })).await;
    claim_is(&cluster, "named", "Pending mine").await;
    volume(&cluster, "mine", "2Gi", json!({})).await;
    claim_is(&cluster, "named", "Bound mine 2Gi").await;
    claim(&cluster, "late", "1Gi", json!({ "volumeName": "mine" })).await;
    let taken = told(&cluster, "late", "FailedBinding").await;
    assert_eq!(
        taken,
        "Warning persistentvolume-controller: volume \"mine\" already bound to a different claim."
    );
    let reserved = json!({ "claimRef": { "namespace": "default", "name": "reserved" } });
    volume(&cluster, "kept-for-it", "9Gi", reserved).await;
    volume(&cluster, "free", "1Gi", json!({})).await;
    volume_is(&cluster, "free", "Available").await;
    volume_is(&cluster, "kept-for-it", "Available").await;
    claim(&cluster, "reserved", "1Gi", json!({})).await;
    claim_is(&cluster, "reserved", "Bound kept-for-it 9Gi").await;
    claim(&cluster, "wrong", "2Gi", json!({ "volumeName": "free" })).await;
    assert_eq!(
        told(&cluster, "wrong", "VolumeMismatch").await,
        "Warning persistentvolume-controller: Cannot bind to requested volume \"free\": requested PV is too small"
    );
    let coloured = json!({ "labels": { "colour": "blue" } });
    volume(&cluster, "blue", "3Gi", coloured).await;
    let wish = json!({ "selector": { "matchLabels": { "colour": "blue" } } });
    claim(&cluster, "blue", "1Gi", wish).await;
    claim_is(&cluster, "blue", "Bound blue 3Gi").await;
}

#[tokio::test]
async fn many_claims_share_no_volume() {
    let cluster = Cluster::start().await;
    for number in 0..12 {
        volume(&cluster, &format!("v{number}"), "1Gi", json!({})).await;
        claim(&cluster, &format!("c{number}"), "1Gi", json!({})).await;
    }
    let claims: Api<PersistentVolumeClaim> = cluster.in_default();
    let volumes = eventually("all are bound", || async {
        let all = claims.list(&ListParams::default()).await.ok()?.items;
        let bound: std::collections::BTreeSet<String> = all
            .into_iter()
            .filter(|claim| {
                claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
            })
            .filter_map(|claim| claim.spec?.volume_name)
            .collect();
        (bound.len() == 12).then_some(bound)
    })
    .await;
    for name in volumes {
        volume_is(&cluster, &name, "Bound").await;
    }
}

#[tokio::test]
async fn what_is_gone_is_lost_and_what_can_not_be_removed_failed() {
    let cluster = Cluster::start().await;
    for name in ["lost", "failed"] {
        let policy = json!({ "persistentVolumeReclaimPolicy": "Delete" });
        volume(&cluster, name, "1Gi", policy).await;
        claim(&cluster, name, "1Gi", json!({ "volumeName": name })).await;
        claim_is(&cluster, name, &format!("Bound {name} 1Gi")).await;
    }
    let volumes: Api<PersistentVolume> = cluster.all();
    volumes.delete("lost", &DeleteParams::default()).await.unwrap();
    assert!(volumes.get("lost").await.unwrap().metadata.deletion_timestamp.is_some(), "it is in use");
    let forced = json!({ "metadata": { "finalizers": null } });
    volumes.patch("lost", &PatchParams::default(), &Patch::Merge(forced)).await.unwrap();
    claim_is(&cluster, "lost", "Lost lost").await;
    assert_eq!(
        told(&cluster, "lost", "ClaimLost").await,
        "Warning persistentvolume-controller: Bound claim has lost its PersistentVolume. Data on the volume is lost!"
    );
    let claims: Api<PersistentVolumeClaim> = cluster.in_default();
    claims.delete("failed", &DeleteParams::default()).await.unwrap();
    let failed = volume_is(&cluster, "failed", "Failed").await;
    let why = "host_path deleter only supports /tmp/.+ but received provided /x";
    assert_eq!(failed.status.unwrap().message.as_deref(), Some(why));
    let event = told(&cluster, "failed", "VolumeFailedDelete").await;
    assert_eq!(event, format!("Warning persistentvolume-controller: {why}"));
}

#[tokio::test]
async fn a_class_says_who_makes_volumes_and_when() {
    let cluster = Cluster::start().await;
    let claims: Api<PersistentVolumeClaim> = cluster.in_default();
    claim(&cluster, "early", "1Gi", json!({ "storageClassName": null })).await;
    claim(&cluster, "unknown", "1Gi", json!({ "storageClassName": "none" })).await;
    assert_eq!(
        told(&cluster, "unknown", "ProvisioningFailed").await,
        "Warning persistentvolume-controller: storageclass.storage.k8s.io \"none\" not found"
    );
    class(&cluster, "now", "Immediate", true).await;
    class(&cluster, "later", "WaitForFirstConsumer", false).await;
    let waiting = told(&cluster, "early", "ExternalProvisioning").await;
    assert!(waiting.contains("either by the external provisioner 'x.io/disk' or manually"), "{waiting}");
    let early = claims.get("early").await.unwrap();
    assert_eq!(early.metadata.annotations.unwrap()["volume.kubernetes.io/storage-provisioner"], "x.io/disk");
    assert_eq!(early.spec.unwrap().storage_class_name.as_deref(), Some("now"));
    claim(&cluster, "waits", "1Gi", json!({ "storageClassName": "later" })).await;
    let first = told(&cluster, "waits", "WaitForFirstConsumer").await;
    let expected = "waiting for first consumer to be created before binding";
    assert_eq!(first, format!("Normal persistentvolume-controller: {expected}"));
    // What was made for a claim is its, and goes by whoever made it.
    let uid = early.metadata.uid.unwrap();
    let made = json!({
        "claimRef": { "namespace": "default", "name": "early", "uid": uid }, "storageClassName": "now",
        "persistentVolumeReclaimPolicy": "Delete", "annotations": { "pv.kubernetes.io/provisioned-by": "x.io/disk" },
    });
    volume(&cluster, "made", "1Gi", made).await;
    claim_is(&cluster, "early", "Bound made 1Gi").await;
    let larger = json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } });
    claims.patch("early", &PatchParams::default(), &Patch::Merge(larger)).await.unwrap();
    assert_eq!(
        told(&cluster, "early", "ExternalExpanding").await,
        "Warning volume_expand: waiting for an external controller to expand this PVC"
    );
    claims.delete("early", &DeleteParams::default()).await.unwrap();
    volume_is(&cluster, "made", "Released").await;
}

#[tokio::test]
async fn a_pod_waits_for_its_claims_and_says_where_they_are_to_be() {
    let cluster = Cluster::start().await;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = cluster.all();
    let node = json!({ "metadata": { "name": "n", "labels": { "kubernetes.io/hostname": "n" } } });
    nodes.create(&PostParams::default(), &object(node)).await.unwrap();
    let ready = json!({ "status": {
        "allocatable": { "cpu": "4", "memory": "4Gi", "pods": "110" },
        "conditions": [{ "type": "Ready", "status": "True" }],
    } });
    nodes.patch_status("n", &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
    let pods: Api<Pod> = cluster.in_default();
    let pod = |name: &str, claim: &str| {
        let volumes = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": claim } }]);
        object::<Pod>(json!({
            "metadata": { "name": name },
            "spec": { "containers": [{ "name": "c", "image": "i" }], "volumes": volumes },
        }))
    };
    let waits = |name: &'static str, why: &'static str| {
        let pods = pods.clone();
        async move {
            eventually(why, || async {
                let conditions = pods.get(name).await.ok()?.status?.conditions?;
                let one = conditions.into_iter().find(|one| one.type_ == "PodScheduled")?;
                (one.message? == format!("0/1 nodes are available: {why}. not found")).then_some(())
            })
            .await;
        }
    };
    let runs = |name: &'static str| {
        let pods = pods.clone();
        async move {
            eventually("it has a node", || async { pods.get(name).await.ok()?.spec?.node_name }).await;
        }
    };
    pods.create(&PostParams::default(), &pod("now", "now")).await.unwrap();
    waits("now", "persistentvolumeclaim \"now\" not found").await;
    claim(&cluster, "now", "1Gi", json!({})).await;
    waits("now", "pod has unbound immediate PersistentVolumeClaims").await;
    volume(&cluster, "now", "1Gi", json!({})).await;
    runs("now").await;

    class(&cluster, "later", "WaitForFirstConsumer", false).await;
    claim(&cluster, "later", "1Gi", json!({ "storageClassName": "later" })).await;
    pods.create(&PostParams::default(), &pod("later", "later")).await.unwrap();
    let claims: Api<PersistentVolumeClaim> = cluster.in_default();
    let selected = eventually("a node was selected", || async {
        let claim = claims.get("later").await.ok()?;
        let node = claim.metadata.annotations?.get("volume.kubernetes.io/selected-node").cloned()?;
        Some((node, claim.metadata.uid?))
    })
    .await;
    assert_eq!(selected.0, "n");
    let of = json!({ "namespace": "default", "name": "later", "uid": selected.1 });
    volume(&cluster, "later", "1Gi", json!({ "claimRef": of, "storageClassName": "later" })).await;
    runs("later").await;

    // A volume that is there is taken before one is made.
    volume(&cluster, "there", "1Gi", json!({ "storageClassName": "later" })).await;
    volume_is(&cluster, "there", "Available").await;
    claim(&cluster, "third", "1Gi", json!({ "storageClassName": "later" })).await;
    pods.create(&PostParams::default(), &pod("third", "third")).await.unwrap();
    runs("third").await;
    claim_is(&cluster, "third", "Bound there 1Gi").await;
}

#[tokio::test]
async fn a_claim_stays_for_a_pod_that_is_not_seen_yet() {
    let cluster = Cluster::start().await;
    volume(&cluster, "v", "1Gi", json!({})).await;
    claim(&cluster, "data", "1Gi", json!({})).await;
    // What binds it knows the pods by now.
    claim_is(&cluster, "data", "Bound v 1Gi").await;
    let controllers = Fault::watch_stale().resource("pods").user("system:kube-controller-manager");
    let order = cluster.drydock.faults().order(controllers);
    let pods: Api<Pod> = cluster.in_default();
    let pod = json!({
        "metadata": { "name": "p" },
        "spec": {
            "nodeName": "n",
            "containers": [{ "name": "c", "image": "i" }],
            "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }],
        },
    });
    pods.create(&PostParams::default(), &object(pod)).await.unwrap();
    order.happened().await;
    let claims: Api<PersistentVolumeClaim> = cluster.in_default();
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    eventually("who has it is asked", || async {
        let requests = cluster.drydock.requests().entries();
        let asks = requests.iter().any(|one| {
            one.verb == Verb::List
                && one.resource == "/pods"
                && one.user.ends_with(":pvc-protection-controller")
        });
        asks.then_some(())
    })
    .await;
    let held = claims.get("data").await.unwrap().metadata;
    assert!(held.deletion_timestamp.is_some() && held.finalizers.is_some(), "{held:?}");
    pods.delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    order.lift();
    eventually("the claim is gone", || async { claims.get_opt("data").await.ok()?.is_none().then_some(()) })
        .await;
}
