//! Claims: directories that are there before a pod and after it.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, NODE, script};

crate::tests![
    what_a_pod_writes_to_its_claim_is_there_for_the_next,
    a_volume_goes_with_its_claim_and_nothing_else_does,
    a_claim_grows_and_never_shrinks,
    volumes_made_by_hand_are_mounted,
    a_group_owns_the_files_and_a_part_of_a_volume_stays_in_it,
    a_volume_of_a_hard_size_is_full_and_can_grow,
    a_claim_that_can_not_be_served_says_why,
    a_claim_that_a_pod_has_for_itself_goes_with_it,
    a_stateful_set_keeps_what_each_of_its_pods_wrote,
    a_released_volume_goes_while_a_new_claim_has_its_name,
    a_volume_for_one_pod_is_had_by_one_at_a_time,
];

fn claims(cluster: &Cluster) -> Api<PersistentVolumeClaim> {
    Api::default_namespaced(cluster.client.clone())
}

fn volumes(cluster: &Cluster) -> Api<PersistentVolume> {
    Api::all(cluster.client.clone())
}

/// A claim with further fields of its specification.
pub(crate) async fn claim(cluster: &Cluster, name: &str, size: &str, more: Value) {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    cluster.create::<PersistentVolumeClaim>(json!({"metadata": {"name": name}, "spec": spec})).await;
}

/// A pod that the scheduler places, with a script and a claim at `/data`.
pub(crate) async fn user(cluster: &Cluster, name: &str, claim: &str, text: &str) -> Pod {
    user_with(cluster, name, claim, text, json!({})).await
}

async fn user_with(cluster: &Cluster, name: &str, claim: &str, text: &str, more: Value) -> Pod {
    let mut spec = script(text);
    spec["restartPolicy"] = json!("Never");
    spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    cluster.create::<Pod>(json!({"metadata": {"name": name}, "spec": spec})).await;
    cluster.until_phase(name, "Succeeded").await
}

async fn until_phase(cluster: &Cluster, name: &str, phase: &str) -> PersistentVolumeClaim {
    let claims = claims(cluster);
    let claims = &claims;
    cluster
        .until(&format!("the claim {name} is {phase}"), || async move {
            let claim = claims.get_opt(name).await.unwrap()?;
            (claim.status.as_ref()?.phase.as_deref() == Some(phase)).then_some(claim)
        })
        .await
}

/// Removes pods and claims, and waits until the node has none of their directories.
pub(crate) async fn clear(cluster: &Cluster) {
    for pod in cluster.pods().list(&ListParams::default()).await.unwrap().items {
        let _gone = cluster
            .pods()
            .delete(&pod.metadata.name.unwrap(), &DeleteParams::default().grace_period(0))
            .await;
    }
    for claim in claims(cluster).list(&ListParams::default()).await.unwrap().items {
        let _gone = claims(cluster).delete(&claim.metadata.name.unwrap(), &DeleteParams::default()).await;
    }
    cluster.until("no directory of a claim", || async { left(cluster).is_empty().then_some(()) }).await;
}

/// A file of a volume, as it is on the node.
fn file_of(cluster: &Cluster, volume: &str, file: &str) -> std::path::PathBuf {
    cluster.directory.join("volumes").join(volume).join(file)
}

/// The directories of volumes.
fn left(cluster: &Cluster) -> Vec<String> {
    let entries = std::fs::read_dir(cluster.directory.join("volumes")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

async fn what_a_pod_writes_to_its_claim_is_there_for_the_next(cluster: Arc<Cluster>) {
    claim(&cluster, "data", "1Mi", json!({})).await;
    cluster.until_event("data", "WaitForFirstConsumer", "waiting for first consumer").await;
    user(&cluster, "first", "data", "echo one > /data/file").await;
    let bound = until_phase(&cluster, "data", "Bound").await;
    cluster.until_event("data", "ExternalProvisioning", "'drydock.local/directory'").await;
    let name = bound.spec.as_ref().unwrap().volume_name.clone().unwrap();
    cluster.until_event("data", "ProvisioningSucceeded", &name).await;
    assert_eq!(bound.status.unwrap().capacity.unwrap()["storage"], Quantity("1Mi".to_owned()));
    let volume = volumes(&cluster).get(&name).await.unwrap();
    assert_eq!(volume.status.unwrap().phase.as_deref(), Some("Bound"));
    cluster.delete("first", Some(0)).await;
    cluster.until_gone("first").await;
    let second = user(&cluster, "second", "data", "cat /data/file; stat -c %a /data").await;
    assert_eq!(cluster.log(&second, "main", 0), "one\n777\n");
    let read_only = json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": true}}]});
    let third =
        user_with(&cluster, "third", "data", "touch /data/x 2>&1 | grep -c Read-only", read_only).await;
    assert_eq!(cluster.log(&third, "main", 0), "1\n");
    clear(&cluster).await;
}

async fn a_volume_goes_with_its_claim_and_nothing_else_does(cluster: Arc<Cluster>) {
    let outside = cluster.directory.parent().unwrap().join("outside");
    std::fs::write(&outside, "kept").unwrap();
    claim(&cluster, "data", "1Mi", json!({})).await;
    let mut spec = script("trap 'exit 0' TERM; mkdir -p /data/a/b; while true; do sleep 0.05; done");
    spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    cluster.create::<Pod>(json!({"metadata": {"name": "user"}, "spec": spec})).await;
    cluster.until_ready("user").await;
    let name = until_phase(&cluster, "data", "Bound").await.spec.unwrap().volume_name.unwrap();
    let made = file_of(&cluster, &name, "a/b");
    cluster.until("it has begun", || async { made.is_dir().then_some(()) }).await;
    symlink(&outside, file_of(&cluster, &name, "link")).unwrap();
    claims(&cluster).delete("data", &DeleteParams::default()).await.unwrap();
    // Pods in use hold it.
    let held = claims(&cluster).get("data").await.unwrap();
    assert!(held.metadata.deletion_timestamp.is_some());
    assert_eq!(left(&cluster).join(" "), name);
    cluster.delete("user", None).await;
    cluster
        .until("the volume is gone", || async {
            (volumes(&cluster).get_opt(&name).await.unwrap().is_none() && left(&cluster).is_empty())
                .then_some(())
        })
        .await;
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "kept");

    // A volume that is to be kept stays, with what is in it.
    let class = json!({
        "metadata": {"name": "kept"}, "provisioner": drydock_node::PROVISIONER, "reclaimPolicy": "Retain",
    });
    let classes: Api<k8s_openapi::api::storage::v1::StorageClass> = Api::all(cluster.client.clone());
    classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    claim(&cluster, "kept", "1Mi", json!({"storageClassName": "kept"})).await;
    let name = until_phase(&cluster, "kept", "Bound").await.spec.unwrap().volume_name.unwrap();
    user(&cluster, "writer", "kept", "echo 1 > /data/file").await;
    cluster.delete("writer", Some(0)).await;
    claims(&cluster).delete("kept", &DeleteParams::default()).await.unwrap();
    cluster
        .until("the volume is released", || async {
            let volume = volumes(&cluster).get(&name).await.unwrap();
            (volume.status?.phase? == "Released").then_some(())
        })
        .await;
    let file = file_of(&cluster, &name, "file");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "1\n");
    volumes(&cluster).delete(&name, &DeleteParams::default()).await.unwrap();
    cluster
        .until("it is gone from the API", || async {
            volumes(&cluster).get_opt(&name).await.unwrap().is_none().then_some(())
        })
        .await;
    assert!(file.exists());
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
    classes.delete("kept", &DeleteParams::default()).await.unwrap();
}

async fn a_claim_grows_and_never_shrinks(cluster: Arc<Cluster>) {
    claim(&cluster, "data", "1Mi", json!({})).await;
    user(&cluster, "user", "data", "true").await;
    let name = until_phase(&cluster, "data", "Bound").await.spec.unwrap().volume_name.unwrap();
    let size = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let parameters = PatchParams::default();
    claims(&cluster).patch("data", &parameters, &Patch::Merge(size("3Mi"))).await.unwrap();
    cluster
        .until("the claim is larger", || async {
            let claim = claims(&cluster).get("data").await.unwrap();
            (claim.status?.capacity?["storage"].0 == "3Mi").then_some(())
        })
        .await;
    let volume = volumes(&cluster).get(&name).await.unwrap();
    assert_eq!(volume.spec.unwrap().capacity.unwrap()["storage"].0, "3Mi");
    cluster.until_event("data", "VolumeResizeSuccessful", "Resize volume succeeded").await;
    let refused = claims(&cluster).patch("data", &parameters, &Patch::Merge(size("1Mi"))).await.unwrap_err();
    assert!(refused.to_string().contains("field can not be less than status.capacity"), "{refused}");
    clear(&cluster).await;
}

async fn volumes_made_by_hand_are_mounted(cluster: Arc<Cluster>) {
    let directory = cluster.directory.parent().unwrap().join("by-hand");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("file"), "mine\n").unwrap();
    let path = directory.to_str().unwrap();
    let affinity = |node: &str| json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}});
    let mut made = Vec::new();
    for (name, mut source) in [
        ("local", json!({"local": {"path": path}, "nodeAffinity": affinity(NODE)})),
        ("path", json!({"hostPath": {"path": path}})),
        ("missing", json!({"local": {"path": "/there/is/none"}, "nodeAffinity": affinity(NODE)})),
        ("elsewhere", json!({"local": {"path": path}, "nodeAffinity": affinity("there")})),
    ] {
        source["capacity"] = json!({"storage": "1Gi"});
        source["accessModes"] = json!(["ReadWriteOnce"]);
        let volume = json!({"metadata": {"name": name}, "spec": source});
        volumes(&cluster)
            .create(&PostParams::default(), &serde_json::from_value(volume).unwrap())
            .await
            .unwrap();
        claim(&cluster, name, "1Mi", json!({"storageClassName": "", "volumeName": name})).await;
        until_phase(&cluster, name, "Bound").await;
        made.push(name);
    }
    for name in ["local", "path"] {
        let pod = user(&cluster, name, name, "cat /data/file").await;
        assert_eq!(cluster.log(&pod, "main", 0), "mine\n");
    }
    for name in ["missing", "elsewhere"] {
        let mut spec = script("true");
        spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
        cluster.create::<Pod>(json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    cluster.until_event("missing", "FailedMount", "path \"/there/is/none\" does not exist").await;
    let elsewhere = "1 node(s) didn't match PersistentVolume's node affinity";
    cluster.until_event("elsewhere", "FailedScheduling", elsewhere).await;
    clear(&cluster).await;
    for name in made {
        volumes(&cluster).delete(name, &DeleteParams::default()).await.unwrap();
    }
    assert_eq!(std::fs::read_to_string(directory.join("file")).unwrap(), "mine\n");
}

async fn a_group_owns_the_files_and_a_part_of_a_volume_stays_in_it(cluster: Arc<Cluster>) {
    claim(&cluster, "data", "1Mi", json!({})).await;
    user(
        &cluster,
        "first",
        "data",
        "mkdir -p /data/part; echo 1 > /data/part/file; chmod 600 /data/part/file",
    )
    .await;
    let several = cluster.host.abilities().users != drydock_sandbox::Users::One;
    let mut spec = json!({"securityContext": {"fsGroup": 1234}});
    let pod =
        user_with(&cluster, "second", "data", "stat -c %g:%a /data/part/file /data/part", spec.clone()).await;
    if several {
        assert_eq!(cluster.log(&pod, "main", 0), "1234:660\n1234:2775\n");
    }
    let text = "cat /part/file; ls -A /new/p; echo $?; cat /new/p/below/file";
    spec = script(text);
    spec["restartPolicy"] = json!("Never");
    spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    spec["containers"][0]["env"] =
        json!([{"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    spec["containers"][0]["volumeMounts"] = json!([
        {"name": "data", "mountPath": "/part", "subPath": "part"},
        // What is below another is seen, though it is named first.
        {"name": "data", "mountPath": "/new/p/below", "subPath": "part"},
        {"name": "data", "mountPath": "/new/p", "subPathExpr": "by/$(WHO)"},
    ]);
    cluster.create::<Pod>(json!({"metadata": {"name": "third"}, "spec": spec})).await;
    let pod = cluster.until_phase("third", "Succeeded").await;
    assert_eq!(cluster.log(&pod, "main", 0), "1\nbelow\n0\n1\n");
    // What a pod left there can't lead the next one out of the volume.
    user(&cluster, "hostile", "data", "ln -s /etc /data/out; ln -s part /data/in").await;
    let mut spec = script("cat /in/file; sleep 1000");
    spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/in", "subPath": "in"}]);
    cluster.create::<Pod>(json!({"metadata": {"name": "inside"}, "spec": spec.clone()})).await;
    let pod = cluster.until_ready("inside").await;
    cluster.until("it reads", || async { (cluster.log(&pod, "main", 0) == "1\n").then_some(()) }).await;
    spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/out", "subPath": "out"}]);
    cluster.create::<Pod>(json!({"metadata": {"name": "outside"}, "spec": spec})).await;
    cluster
        .until_event("outside", "Failed", "failed to prepare subPath for volumeMount \"data\" of container")
        .await;
    clear(&cluster).await;
}

async fn a_volume_of_a_hard_size_is_full_and_can_grow(cluster: Arc<Cluster>) {
    claim(&cluster, "data", "1Mi", json!({"storageClassName": drydock_node::HARD_CLASS})).await;
    let fill = "dd if=/dev/zero of=/data/fill bs=64k count=1000 2>&1 | grep -o 'No space left.*'; stat -c %s /data/fill";
    let pod = user(&cluster, "first", "data", &format!("echo 1 > /data/file; {fill}")).await;
    cluster.until_event("data", "HeldInMemory", "it does not outlive the machine").await;
    let said = cluster.log(&pod, "main", 0);
    let size = said.strip_prefix("No space left on device\n").unwrap_or_else(|| panic!("{said}"));
    assert!(size.trim().parse::<u64>().unwrap() <= 1 << 20, "{said}");
    let size = json!({"spec": {"resources": {"requests": {"storage": "3Mi"}}}});
    claims(&cluster).patch("data", &PatchParams::default(), &Patch::Merge(size)).await.unwrap();
    cluster.until_event("data", "VolumeResizeSuccessful", "Resize volume succeeded").await;
    let pod = user(
        &cluster,
        "second",
        "data",
        &format!("cat /data/file; {fill}; df -k /data | tail -1 | cut -c1-50"),
    )
    .await;
    let said = cluster.log(&pod, "main", 0);
    let mut lines = said.lines();
    assert_eq!((lines.next(), lines.next()), (Some("1"), Some("No space left on device")), "{said}");
    assert!((2 << 20..=3 << 20).contains(&lines.next().unwrap().parse::<u64>().unwrap()), "{said}");
    clear(&cluster).await;
}

async fn a_claim_that_can_not_be_served_says_why(cluster: Arc<Cluster>) {
    let now = json!({
        "metadata": {"name": "now"}, "provisioner": drydock_node::PROVISIONER, "volumeBindingMode": "Immediate",
    });
    let classes: Api<k8s_openapi::api::storage::v1::StorageClass> = Api::all(cluster.client.clone());
    classes.create(&PostParams::default(), &serde_json::from_value(now).unwrap()).await.unwrap();
    claim(&cluster, "large", "1Ei", json!({"storageClassName": "now"})).await;
    let why =
        "failed to provision volume with StorageClass \"now\": 1152921504606846976 bytes are more than ";
    cluster.until_event("large", "ProvisioningFailed", why).await;
    claim(&cluster, "unknown", "1Mi", json!({"storageClassName": "none"})).await;
    let why = "storageclass.storage.k8s.io \"none\" not found";
    cluster.until_event("unknown", "ProvisioningFailed", why).await;
    claim(&cluster, "block", "1Mi", json!({"storageClassName": "now", "volumeMode": "Block"})).await;
    cluster.until_event("block", "ProvisioningFailed", "block volumes are not supported").await;
    let wait = async |pod: &str, claim: &str| {
        let mut spec = script("true");
        spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
        cluster.create::<Pod>(json!({"metadata": {"name": pod}, "spec": spec})).await;
    };
    wait("waiting", "large").await;
    let why = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
    cluster.until_event("waiting", "FailedScheduling", why).await;
    // The two that are there from the start wait for a pod first.
    for (class, than) in [
        (drydock_node::STANDARD_CLASS, "the size of the node's disk"),
        (drydock_node::HARD_CLASS, "half of the node's memory"),
    ] {
        let (claim_name, pod) = (format!("large-{class}"), format!("waits-{class}"));
        claim(&cluster, &claim_name, "1Ei", json!({"storageClassName": class})).await;
        let first = "waiting for first consumer to be created before binding";
        cluster.until_event(&claim_name, "WaitForFirstConsumer", first).await;
        wait(&pod, &claim_name).await;
        let why = format!(
            "failed to provision volume with StorageClass \"{class}\": 1152921504606846976 bytes are more than "
        );
        let said = cluster.until_event(&claim_name, "ProvisioningFailed", &why).await;
        assert!(said.contains(than), "{said}");
        let claim = until_phase(&cluster, &claim_name, "Pending").await;
        assert_eq!(claim.spec.unwrap().volume_name, None);
        let waits = cluster.pods().get(&pod).await.unwrap();
        assert_eq!(waits.spec.unwrap().node_name, None, "it is nowhere while its claim is not bound");
    }
    clear(&cluster).await;
    classes.delete("now", &DeleteParams::default()).await.unwrap();
}

async fn a_claim_that_a_pod_has_for_itself_goes_with_it(cluster: Arc<Cluster>) {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}});
    let own = json!([{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}]);
    let pod = user_with(&cluster, "alone", "", "touch /data/x; ls /data", json!({"volumes": own})).await;
    assert_eq!(cluster.log(&pod, "main", 0), "x\n");
    until_phase(&cluster, "alone-data", "Bound").await;
    assert_eq!(left(&cluster).len(), 1);
    cluster.delete("alone", Some(0)).await;
    cluster
        .until("its claim and directory are gone", || async { left(&cluster).is_empty().then_some(()) })
        .await;
}

async fn a_stateful_set_keeps_what_each_of_its_pods_wrote(cluster: Arc<Cluster>) {
    let text = "trap 'exit 0' TERM; echo $HOSTNAME >> /data/names; while true; do sleep 0.05; done";
    let mut template = script(text);
    template["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}});
    let set = json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 2, "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": template},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
        },
    });
    let sets: Api<StatefulSet> = Api::default_namespaced(cluster.client.clone());
    sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
    // Who has not said what to do about a signal does not hear it: each is asked to end once it has written.
    let wrote = async |pod: &str, times: usize| {
        let claim = until_phase(&cluster, &format!("data-{pod}"), "Bound").await;
        let volume = claim.spec.unwrap().volume_name.unwrap();
        let (file, expected) = (file_of(&cluster, &volume, "names"), format!("{pod}\n").repeat(times));
        let (file, expected) = (&file, &expected);
        let what = format!("{pod} has written {times} times");
        cluster
            .until(&what, || async move { (std::fs::read_to_string(file).ok()? == *expected).then_some(()) })
            .await;
    };
    for pod in ["db-0", "db-1"] {
        wrote(pod, 1).await;
        cluster.delete(pod, None).await;
        wrote(pod, 2).await;
    }
    sets.delete("db", &DeleteParams::default()).await.unwrap();
    cluster
        .until("its claims and directories are gone", || async { left(&cluster).is_empty().then_some(()) })
        .await;
}

/// A pod that ends only when it is killed, with a claim at `/data`.
fn stubborn(claim: &str) -> Value {
    let mut spec = script("trap '' TERM; echo $HOSTNAME >> /data/names; while true; do sleep 0.05; done");
    spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    spec
}

/// Whether something of a pod runs on the machine.
fn is_here(cluster: &Cluster, pod: &Pod) -> bool {
    cluster.host.adopt().unwrap().iter().any(|here| Some(here.id()) == pod.metadata.uid.as_deref())
}

async fn a_released_volume_goes_while_a_new_claim_has_its_name(cluster: Arc<Cluster>) {
    let volume_of = async |pod: &str| {
        let pod = cluster.until_ready(pod).await;
        (pod, until_phase(&cluster, "data", "Bound").await.spec.unwrap().volume_name.unwrap())
    };
    claim(&cluster, "data", "1Mi", json!({})).await;
    cluster.create::<Pod>(json!({"metadata": {"name": "db-0"}, "spec": stubborn("data")})).await;
    let (old, volume) = volume_of("db-0").await;
    claims(&cluster).delete("data", &DeleteParams::default()).await.unwrap();
    cluster.delete("db-0", Some(0)).await;
    cluster
        .until("the claim is gone", || async {
            claims(&cluster).get_opt("data").await.unwrap().is_none().then_some(())
        })
        .await;
    claim(&cluster, "data", "1Mi", json!({})).await;
    cluster.create::<Pod>(json!({"metadata": {"name": "db-0"}, "spec": stubborn("data")})).await;
    cluster
        .until("the old volume is gone", || async {
            (!cluster.directory.join("volumes").join(&volume).exists()).then_some(())
        })
        .await;
    assert!(!is_here(&cluster, &old), "the volume of a pod that runs is gone");
    let (_, other) = volume_of("db-0").await;
    // What goes is set aside first, and then emptied.
    let alone = [other];
    cluster.until("only the new volume is there", || async { (left(&cluster) == alone).then_some(()) }).await;
    clear(&cluster).await;
}

async fn a_volume_for_one_pod_is_had_by_one_at_a_time(cluster: Arc<Cluster>) {
    claim(&cluster, "data", "1Mi", json!({"accessModes": ["ReadWriteOncePod"]})).await;
    cluster.create::<Pod>(json!({"metadata": {"name": "holder"}, "spec": stubborn("data")})).await;
    let holder = cluster.until_ready("holder").await;
    // The scheduler is not asked.
    cluster.pod("next", stubborn("data")).await;
    let taken = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";
    let said = cluster.until_event("next", "FailedMount", taken).await;
    assert!(said.starts_with("MountVolume.SetUp failed for volume \"pvc-"), "{said}");
    cluster.delete("holder", Some(0)).await;
    cluster.until_gone("holder").await;
    cluster.until_ready("next").await;
    assert!(!is_here(&cluster, &holder), "two pods have it");
    clear(&cluster).await;
}
