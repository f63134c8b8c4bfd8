//! What a pod says about its containers, as they see it.

use std::sync::Arc;

use drydock_sandbox::Users;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::cluster::{Cluster, script, state};

crate::tests![
    the_environment_comes_from_everywhere,
    volumes_hold_what_the_api_says,
    what_the_api_says_later_comes_to_running_pods,
    a_volume_whose_source_is_gone_holds_up_no_other,
    users_and_permissions_are_as_the_pod_says,
    memory_is_what_it_is_to_be_from_its_mount_on,
    a_service_account_can_ask_the_api,
];

async fn the_environment_comes_from_everywhere(cluster: Arc<Cluster>) {
    cluster.create::<ConfigMap>(json!({"metadata": {"name": "env"}, "data": {"color": "blue"}})).await;
    cluster.create::<Secret>(json!({"metadata": {"name": "env"}, "stringData": {"password": "hush"}})).await;
    let mut spec = script("echo $color $PASS $WHO $MEM $ARG; pwd; hostname");
    spec["restartPolicy"] = json!("Never");
    spec["hostname"] = json!("inside");
    let container = &mut spec["containers"][0];
    container["workingDir"] = json!("/tmp");
    container["resources"] = json!({"limits": {"memory": "64Mi"}});
    container["envFrom"] = json!([{"configMapRef": {"name": "env"}}]);
    container["env"] = json!([
        {"name": "PASS", "valueFrom": {"secretKeyRef": {"name": "env", "key": "password"}}},
        {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
        {"name": "ARG", "value": "$(WHO)-$(PASS)"},
    ]);
    cluster.pod("env", spec).await;
    let pod = cluster.until_phase("env", "Succeeded").await;
    assert_eq!(cluster.log(&pod, "main", 0), "blue hush env 64 env-hush\n/tmp\ninside\n");
}

async fn volumes_hold_what_the_api_says(cluster: Arc<Cluster>) {
    cluster
        .create::<ConfigMap>(json!({"metadata": {"name": "files"}, "data": {"a": "1\n", "b": "2\n"}}))
        .await;
    cluster.create::<Secret>(json!({"metadata": {"name": "files"}, "stringData": {"key": "hush\n"}})).await;
    let mut spec = script(
        "cat /config/x /config/b-not 2>/dev/null; cat /secret/key; stat -c %a /secret/..data/key; cat /down/labels; echo; \
         mount | grep -c ' /scratch type tmpfs'; touch /config/new 2>&1 | grep -c Read-only; cat /one; \
         cd /all; cat b key who; echo; ls",
    );
    spec["restartPolicy"] = json!("Never");
    spec["containers"][0]["volumeMounts"] = json!([
        {"name": "config", "mountPath": "/config", "readOnly": true},
        {"name": "config", "mountPath": "/one", "subPath": "x"},
        {"name": "secret", "mountPath": "/secret"},
        {"name": "down", "mountPath": "/down"},
        {"name": "scratch", "mountPath": "/scratch"},
        {"name": "all", "mountPath": "/all"},
    ]);
    spec["volumes"] = json!([
        {"name": "config", "configMap": {"name": "files", "items": [{"key": "a", "path": "x"}]}},
        {"name": "secret", "secret": {"secretName": "files", "defaultMode": 0o400}},
        {"name": "down", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"name": "scratch", "emptyDir": {"medium": "Memory"}},
        {"name": "all", "projected": {"sources": [
            {"configMap": {"name": "files", "items": [{"key": "b", "path": "b"}]}},
            {"secret": {"name": "files"}},
            {"downwardAPI": {"items": [{"path": "who", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        ]}},
    ]);
    cluster.pod("files", spec).await;
    let pod = cluster.until_phase("files", "Succeeded").await;
    assert_eq!(
        cluster.log(&pod, "main", 0),
        "1\nhush\n400\napp=\"files\"\n1\n1\n1\n2\nhush\nfiles\nb\nkey\nwho\n"
    );
}

async fn what_the_api_says_later_comes_to_running_pods(cluster: Arc<Cluster>) {
    cluster.create::<ConfigMap>(json!({"metadata": {"name": "live"}, "data": {"a": "1", "b": "1"}})).await;
    cluster.create::<Secret>(json!({"metadata": {"name": "live"}, "stringData": {"key": "1"}})).await;
    let mut spec = script(
        "while true; do now=$(cat /map/a /map/b /secret/key /part); [ \"$now\" = \"$last\" ] || echo $now; last=$now; sleep 0.02; done",
    );
    spec["containers"][0]["volumeMounts"] = json!([
        {"name": "map", "mountPath": "/map"},
        {"name": "map", "mountPath": "/part", "subPath": "a"},
        {"name": "secret", "mountPath": "/secret"},
    ]);
    spec["volumes"] = json!([
        {"name": "map", "configMap": {"name": "live"}},
        {"name": "secret", "secret": {"secretName": "live"}},
    ]);
    cluster.pod("live", spec).await;
    let pod = cluster.until_ready("live").await;
    cluster.until("the first", || async { (cluster.log(&pod, "main", 0) == "1111\n").then_some(()) }).await;
    let maps: kube::Api<ConfigMap> = kube::Api::default_namespaced(cluster.client.clone());
    let change = json!({"data": {"a": "2", "b": "2"}});
    maps.patch("live", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    // A part of a volume stays as it was, as it does elsewhere.
    cluster
        .until("the map's change", || async {
            cluster.log(&pod, "main", 0).ends_with("2211\n").then_some(())
        })
        .await;
    let secrets: kube::Api<Secret> = kube::Api::default_namespaced(cluster.client.clone());
    let change = json!({"stringData": {"key": "2"}});
    secrets.patch("live", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    cluster
        .until("the secret's", || async { cluster.log(&pod, "main", 0).ends_with("2221\n").then_some(()) })
        .await;
}

async fn a_volume_whose_source_is_gone_holds_up_no_other(cluster: Arc<Cluster>) {
    for name in ["going", "staying"] {
        cluster.create::<ConfigMap>(json!({"metadata": {"name": name}, "data": {"a": "1"}})).await;
    }
    let mut spec = script(
        "while true; do now=$(cat /going/a /staying/a); [ \"$now\" = \"$last\" ] || echo $now; last=$now; sleep 0.02; done",
    );
    spec["containers"][0]["volumeMounts"] =
        json!([{"name": "going", "mountPath": "/going"}, {"name": "staying", "mountPath": "/staying"}]);
    spec["volumes"] = json!([
        {"name": "going", "configMap": {"name": "going"}},
        {"name": "staying", "configMap": {"name": "staying"}},
    ]);
    cluster.pod("losing", spec).await;
    let pod = cluster.until_ready("losing").await;
    let maps: kube::Api<ConfigMap> = kube::Api::default_namespaced(cluster.client.clone());
    maps.delete("going", &DeleteParams::default()).await.unwrap();
    let gone = "MountVolume.SetUp failed for volume \"going\" : configmap \"going\" not found";
    assert_eq!(cluster.until_event("losing", "FailedMount", "").await, gone);
    let change = Patch::Merge(json!({"data": {"a": "2"}}));
    maps.patch("staying", &PatchParams::default(), &change).await.unwrap();
    cluster
        .until("the change", || async { cluster.log(&pod, "main", 0).ends_with("12\n").then_some(()) })
        .await;
    assert_eq!(state(&cluster.until_ready("losing").await, "main"), "running");
}

async fn users_and_permissions_are_as_the_pod_says(cluster: Arc<Cluster>) {
    let mut spec = script(
        "id -u; id -g; id -G; touch /nope 2>&1; grep CapEff /proc/self/status; grep NoNewPrivs /proc/self/status; stat -c %g /data",
    );
    spec["restartPolicy"] = json!("Never");
    spec["securityContext"] = json!({"fsGroup": 4000, "supplementalGroups": [5000]});
    spec["containers"][0]["securityContext"] = json!({
        "runAsUser": 1000, "runAsGroup": 2000, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
    });
    spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    cluster.pod("who", spec).await;
    let pod = cluster.until_phase("who", "Succeeded").await;
    // Where the node has one user only, so has a container: further groups are none.
    let (groups, group) = match cluster.host.abilities().users {
        Users::One => ("2000", "2000"),
        Users::All | Users::Below(_) => ("2000 4000 5000", "4000"),
    };
    let expected = format!(
        "1000\n2000\n{groups}\ntouch: /nope: Read-only file system\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n{group}\n"
    );
    assert_eq!(cluster.log(&pod, "main", 0), expected);
}

async fn memory_is_what_it_is_to_be_from_its_mount_on(cluster: Arc<Cluster>) {
    let mut spec = script("stat -c %a:%g /data; grep ' /data ' /proc/mounts");
    spec["restartPolicy"] = json!("Never");
    spec["securityContext"] = json!({"fsGroup": 4000});
    spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    spec["volumes"] = json!([{"name": "data", "emptyDir": {"medium": "Memory"}}]);
    cluster.pod("memory", spec).await;
    let pod = cluster.until_phase("memory", "Succeeded").await;
    let log = cluster.log(&pod, "main", 0);
    let group = if cluster.host.abilities().users == Users::One { "0" } else { "4000" };
    assert!(log.starts_with(&format!("3777:{group}\n")), "{log}");
    // Nobody who is killed after it leaves it otherwise.
    assert!(log.contains(",mode=3777"), "{log}");
}

async fn a_service_account_can_ask_the_api(cluster: Arc<Cluster>) {
    let mut spec = script(
        "cd /var/run/secrets/kubernetes.io/serviceaccount; cat namespace; echo; wc -c < token; head -1 ca.crt",
    );
    spec["restartPolicy"] = json!("Never");
    cluster.pod("token", spec).await;
    let pod = cluster.until_phase("token", "Succeeded").await;
    let log = cluster.log(&pod, "main", 0);
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!((lines[0], lines[2]), ("default", "-----BEGIN CERTIFICATE-----"), "{log}");
    assert!(lines[1].trim().parse::<usize>().unwrap() > 200, "{log}");
    let labels = Patch::Merge(json!({"metadata": {"labels": {"seen": "yes"}}}));
    cluster.pods().patch("token", &PatchParams::default(), &labels).await.unwrap();
}
