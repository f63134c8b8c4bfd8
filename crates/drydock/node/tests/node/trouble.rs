//! What is wrong is said in Kubernetes' words, and the node lives on.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::{Value, json};

use crate::cluster::{Cluster, script, state};

crate::tests![
    what_can_not_start_says_why,
    a_missing_volume_is_waited_for,
    a_container_that_eats_its_limit_is_ended,
    a_port_is_each_pods_own_and_taken_once_within_one,
    a_container_that_forks_without_end_is_stopped_and_others_are_not,
    a_path_that_is_not_what_it_should_be_is_not_mounted,
    a_pod_that_writes_more_than_it_may_is_evicted,
];

async fn check(cluster: &Cluster, name: &str, container: Value, expected: &str, part: &str) {
    let mut container = container;
    container["name"] = json!("main");
    cluster.pod(name, json!({"containers": [container]})).await;
    let pod =
        cluster.until_pod(name, expected, |pod| state(pod, "main") == format!("waiting {expected}")).await;
    let message = message(&pod);
    assert!(message.contains(part), "{name}: {message}");
    cluster.until_event(name, "Failed", "Error").await;
}

fn message(pod: &Pod) -> String {
    let list = pod.status.clone().unwrap().container_statuses.unwrap();
    list[0].state.clone().unwrap().waiting.unwrap().message.unwrap_or_default()
}

async fn what_can_not_start_says_why(cluster: Arc<Cluster>) {
    let cluster = &cluster;
    check(
        cluster,
        "no-command",
        json!({"image": "busybox", "command": ["/nope"]}),
        "CrashLoopBackOff",
        "restarting failed container=main",
    )
    .await;
    let never = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox", "command": ["/nope"]}]});
    cluster.pod("never-run", never).await;
    let pod = cluster.until_phase("never-run", "Failed").await;
    let ended = pod.status.clone().unwrap().container_statuses.unwrap()[0].state.clone().unwrap().terminated;
    let ended = ended.unwrap();
    assert_eq!((ended.exit_code, ended.reason.as_deref()), (128, Some("StartError")));
    assert!(ended.message.unwrap().contains("no such file or directory"));
    check(
        cluster,
        "no-image",
        json!({"image": "nobody/knows:this"}),
        "ErrImagePull",
        "not found; there are: memcached",
    )
    .await;
    check(
        cluster,
        "no-name",
        json!({"image": "Not A Name"}),
        "InvalidImageName",
        "couldn't parse image name",
    )
    .await;
    let never = json!({"image": "busybox:1.0.0", "imagePullPolicy": "Never"});
    check(cluster, "never", never, "ErrImageNeverPull", "is not present with pull policy of Never").await;
    let missing = json!({"image": "busybox", "envFrom": [{"configMapRef": {"name": "absent"}}]});
    check(cluster, "no-map", missing, "CreateContainerConfigError", "configmap \"absent\" not found").await;
    let root = json!({"image": "busybox", "securityContext": {"runAsNonRoot": true}});
    check(
        cluster,
        "root",
        root,
        "CreateContainerConfigError",
        "container has runAsNonRoot and image will run as root",
    )
    .await;
    cluster.until_pod("no-image", "it waits", |pod| state(pod, "main") == "waiting ImagePullBackOff").await;
}

async fn a_missing_volume_is_waited_for(cluster: Arc<Cluster>) {
    let mut spec = script("cat /config/a; sleep 1000");
    spec["containers"][0]["volumeMounts"] = json!([{"name": "config", "mountPath": "/config"}]);
    spec["volumes"] = json!([{"name": "config", "configMap": {"name": "later"}}]);
    cluster.pod("patient", spec).await;
    let text = "MountVolume.SetUp failed for volume \"config\" : configmap \"later\" not found";
    cluster.until_event("patient", "FailedMount", text).await;
    let pod = cluster.pods().get("patient").await.unwrap();
    assert_eq!(state(&pod, "main"), "waiting ContainerCreating");
    cluster.create::<ConfigMap>(json!({"metadata": {"name": "later"}, "data": {"a": "here\n"}})).await;
    cluster.until_ready("patient").await;
}

async fn a_container_that_eats_its_limit_is_ended(cluster: Arc<Cluster>) {
    if !cluster.host.abilities().memory_limits.is_yes() {
        println!("this machine grants no memory limits: {:?}", cluster.host.abilities().memory_limits);
        return;
    }
    let mut spec = script("exec dd if=/dev/zero of=/dev/null bs=512M count=1");
    spec["restartPolicy"] = json!("Never");
    spec["containers"][0]["resources"] = json!({"limits": {"memory": "16Mi"}});
    cluster.pod("greedy", spec).await;
    let pod = cluster.until_phase("greedy", "Failed").await;
    assert_eq!(state(&pod, "main"), "terminated OOMKilled 137");
}

async fn a_port_is_each_pods_own_and_taken_once_within_one(cluster: Arc<Cluster>) {
    for name in ["left", "right"] {
        let mut spec = script("exec httpd -f -p 80");
        spec["terminationGracePeriodSeconds"] = json!(0);
        spec["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"port": 80}});
        cluster.pod(name, spec).await;
    }
    cluster.until_ready("left").await;
    cluster.until_ready("right").await;

    let mut spec = script("exec httpd -f -p 80");
    let mut second = spec["containers"][0].clone();
    second["name"] = json!("second");
    second["command"] = json!(["sh", "-c", "sleep 0.3; exec httpd -f -p 80 2>&1"]);
    second["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    spec["terminationGracePeriodSeconds"] = json!(0);
    spec["containers"].as_array_mut().unwrap().push(second);
    cluster.pod("both", spec).await;
    let pod = cluster
        .until_pod("both", "the second waits", |pod| state(pod, "second") == "waiting CrashLoopBackOff")
        .await;
    assert_eq!(state(&pod, "main"), "running");
    let list = pod.status.unwrap().container_statuses.unwrap();
    let ended = list[1].last_state.clone().unwrap().terminated.unwrap();
    assert_eq!(ended.message.as_deref(), Some("httpd: bind: Address already in use\n"));
    assert_eq!((list[0].restart_count, list[1].restart_count), (0, 1));
}

async fn a_container_that_forks_without_end_is_stopped_and_others_are_not(cluster: Arc<Cluster>) {
    if !cluster.host.abilities().pid_limits.is_yes() {
        println!("this machine grants no limits of processes: {:?}", cluster.host.abilities().pid_limits);
        return;
    }
    cluster.pod("calm", script("sleep 1000")).await;
    let calm = cluster.until_ready("calm").await;
    let mut spec = script("while true; do sleep 1000 & done 2>&1");
    spec["containers"][0]["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    spec["terminationGracePeriodSeconds"] = json!(0);
    cluster.pod("bomb", spec).await;
    let pod = cluster
        .until_pod("bomb", "it is at its end", |pod| state(pod, "main") == "waiting CrashLoopBackOff")
        .await;
    let list = pod.status.unwrap().container_statuses.unwrap();
    let words = list[0].last_state.clone().unwrap().terminated.unwrap().message.unwrap_or_default();
    assert!(words.contains("can't fork: Resource temporarily unavailable"), "{words}");
    let (status, out) = crate::remote::exec(&cluster, "calm", "echo%20well").await;
    assert_eq!(out, "well\n", "{status}");
    assert_eq!(cluster.pods().get("calm").await.unwrap().status, calm.status);
}

async fn a_path_that_is_not_what_it_should_be_is_not_mounted(cluster: Arc<Cluster>) {
    let missing = cluster.directory.join("missing");
    let missing = missing.to_str().unwrap();
    let socket = cluster.directory.join("node.sock");
    let spec = |path: &str, kind: &str| {
        let mut spec = script("ls -l /path; exec sleep 1000");
        spec["terminationGracePeriodSeconds"] = json!(0);
        spec["containers"][0]["volumeMounts"] = json!([{"name": "path", "mountPath": "/path"}]);
        spec["volumes"] = json!([{"name": "path", "hostPath": {"path": path, "type": kind}}]);
        spec
    };
    for (path, kind, what) in [
        ("/etc/passwd", "Directory", "a directory"),
        ("/etc/passwd", "DirectoryOrCreate", "a directory"),
        ("/etc", "FileOrCreate", "a file"),
        ("/etc/passwd", "Socket", "a socket file"),
        ("/etc/passwd", "CharDevice", "a character device"),
        ("/dev/null", "BlockDevice", "a block device"),
        (missing, "Directory", "a directory"),
        (missing, "File", "a file"),
        (missing, "Socket", "a socket file"),
        (missing, "CharDevice", "a character device"),
        (missing, "BlockDevice", "a block device"),
    ] {
        cluster.pod("wrong", spec(path, kind)).await;
        let text = format!(
            "MountVolume.SetUp failed for volume \"path\" : hostPath type check failed: {path} is not {what}"
        );
        assert_eq!(cluster.until_event("wrong", "FailedMount", &text).await, text);
        // The event may be there before the status is.
        let waits = |pod: &Pod| state(pod, "main") == "waiting ContainerCreating";
        cluster.until_pod("wrong", "it waits", waits).await;
        cluster.delete("wrong", Some(0)).await;
        cluster.until_gone("wrong").await;
    }
    assert!(!std::path::Path::new(missing).exists(), "nothing is made where nothing was asked for");
    for (name, path, kind) in
        [("socket", socket.to_str().unwrap(), "Socket"), ("null", "/dev/null", "CharDevice")]
    {
        cluster.pod(name, spec(path, kind)).await;
        cluster.until_ready(name).await;
    }
}

async fn a_pod_that_writes_more_than_it_may_is_evicted(cluster: Arc<Cluster>) {
    cluster.pod("calm", script("sleep 1000")).await;
    let calm = cluster.until_ready("calm").await;
    let mut spec = script("dd if=/dev/zero of=/data/much bs=64k count=32; sleep 1000");
    spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    spec["volumes"] = json!([{"name": "data", "emptyDir": {"sizeLimit": "1Mi"}}]);
    cluster.pod("full", spec).await;
    let pod = cluster.until_phase("full", "Failed").await;
    let words = "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". ";
    let status = pod.status.unwrap();
    assert_eq!((status.reason.as_deref(), status.message.as_deref()), (Some("Evicted"), Some(words)));
    // Nobody but itself is to blame, so that a Job counts it.
    assert!(status.conditions.unwrap().iter().all(|one| one.type_ != "DisruptionTarget"));
    cluster.until_event("full", "Evicted", words.trim_end()).await;
    assert_eq!(cluster.pods().get("calm").await.unwrap().status, calm.status);
}
