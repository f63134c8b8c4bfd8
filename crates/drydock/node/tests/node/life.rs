//! From its binding to its end.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use kube::Api;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::cluster::{Cluster, NODE, condition, script, state};

crate::tests![
    the_node_registers_and_says_how_it_is,
    a_memcached_runs_answers_and_is_gone,
    a_pod_that_ends_well_succeeded,
    a_pod_that_ends_badly_failed_and_says_why,
    names_that_are_alike_are_two_names,
    init_containers_run_one_after_the_other,
    a_container_that_ends_is_started_again_with_patience,
    a_pod_whose_init_is_killed_gets_another_and_others_are_untouched,
    a_pod_is_asked_to_end_before_it_is_killed,
    a_hook_runs_before_the_signal,
    a_container_counts_when_its_hook_is_done_and_goes_when_it_fails,
    a_hook_that_asks_for_a_page_takes_any_answer,
    a_hook_that_sleeps_takes_its_time,
    a_deadline_ends_the_pod,
];

async fn the_node_registers_and_says_how_it_is(cluster: Arc<Cluster>) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let nodes = &nodes;
    let status = cluster
        .until("the node's status", || async move {
            nodes.get_opt(NODE).await.unwrap()?.status.filter(|s| s.conditions.is_some())
        })
        .await;
    let conditions = status.conditions.unwrap();
    assert!(conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"));
    assert!(status.capacity.unwrap().contains_key("memory"));
    let limits = conditions.iter().find(|condition| condition.type_ == "LimitsNotEnforced").unwrap();
    let abilities = cluster.host.abilities();
    let granted = [&abilities.memory_limits, &abilities.cpu_limits, &abilities.pid_limits];
    let enforced = granted.iter().all(|ability| ability.is_yes());
    assert_eq!(limits.status, if enforced { "False" } else { "True" }, "{limits:?}");
    for ability in granted {
        if let drydock_sandbox::Ability::No(why) = ability {
            assert!(limits.message.as_ref().unwrap().contains(why), "{limits:?}");
        }
    }
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
        Api::namespaced(cluster.client.clone(), "kube-node-lease");
    let leases = &leases;
    cluster.until("the lease", || async move { leases.get_opt(NODE).await.unwrap() }).await;
}

async fn a_memcached_runs_answers_and_is_gone(cluster: Arc<Cluster>) {
    let spec = json!({
        "containers": [{
            "name": "memcached",
            "image": "memcached:1.6",
            "command": ["memcached", "-m", "64", "-o", "modern", "-v"],
            "ports": [{"containerPort": 11211, "name": "memcached"}],
            "readinessProbe": {"tcpSocket": {"port": "memcached"}},
        }],
    });
    cluster.pod("cache", spec).await;
    let pod = cluster.until_ready("cache").await;
    let status = pod.status.clone().unwrap();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
    for kind in ["PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"] {
        assert_eq!(condition(&pod, kind), "True", "{kind}");
    }
    let container = &status.container_statuses.unwrap()[0];
    assert!(container.ready && container.started == Some(true) && container.restart_count == 0);
    assert!(!container.image_id.is_empty(), "{container:?}");
    assert!(container.container_id.as_ref().unwrap().starts_with("drydock://"));
    let address: std::net::Ipv4Addr = status.pod_ip.unwrap().parse().unwrap();
    let mut stream = tokio::net::TcpStream::connect((address, 11211)).await.unwrap();
    stream.write_all(b"set a 0 0 1\r\n7\r\nget a\r\nquit\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "STORED\r\nVALUE a 0 1\r\n7\r\nEND\r\n");
    cluster.until_event("cache", "Started", "Started container memcached").await;
    cluster.delete("cache", None).await;
    cluster.until_gone("cache").await;
    // Nobody answers for an address that is nobody's, also not that there is nobody.
    let again = tokio::net::TcpStream::connect((address, 11211));
    assert!(!matches!(tokio::time::timeout(std::time::Duration::from_millis(300), again).await, Ok(Ok(_))));
}

async fn a_pod_that_ends_well_succeeded(cluster: Arc<Cluster>) {
    let mut spec = script("echo done");
    spec["restartPolicy"] = json!("Never");
    cluster.pod("well", spec).await;
    let pod = cluster.until_phase("well", "Succeeded").await;
    assert_eq!(state(&pod, "main"), "terminated Completed 0");
    assert_eq!(condition(&pod, "Ready"), "False");
    assert_eq!(cluster.log(&pod, "main", 0), "done\n");
}

async fn a_pod_that_ends_badly_failed_and_says_why(cluster: Arc<Cluster>) {
    let mut spec = script("echo the last words > /dev/termination-log; exit 3");
    spec["restartPolicy"] = json!("Never");
    cluster.pod("badly", spec).await;
    let pod = cluster.until_phase("badly", "Failed").await;
    assert_eq!(state(&pod, "main"), "terminated Error 3");
    let ended = pod.status.unwrap().container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap();
    assert_eq!(ended.message.as_deref(), Some("the last words\n"));
    let mut spec = script(
        "{ echo begin; head -c 5000 /dev/zero | tr '\\0' x; echo end; } > /dev/termination-log; exit 3",
    );
    spec["restartPolicy"] = json!("Never");
    cluster.pod("wordy", spec).await;
    let pod = cluster.until_phase("wordy", "Failed").await;
    let ended = pod.status.unwrap().container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap();
    assert_eq!(ended.message.unwrap(), "x".repeat(4092) + "end\n");
    let mut spec = script("echo from the log; exit 4");
    spec["restartPolicy"] = json!("Never");
    spec["containers"][0]["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    cluster.pod("logs", spec).await;
    let pod = cluster.until_phase("logs", "Failed").await;
    let ended = pod.status.unwrap().container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap();
    assert_eq!(ended.message.as_deref(), Some("from the log\n"));
}

async fn names_that_are_alike_are_two_names(cluster: Arc<Cluster>) {
    let alike = "x".repeat(62);
    let main = |end: &str| json!({"name": format!("{alike}{end}"), "image": "busybox", "command": ["sleep", "1000"]});
    cluster
        .pod("alike", json!({"containers": [main("a"), main("b")], "terminationGracePeriodSeconds": 0}))
        .await;
    let pod = cluster.until_ready("alike").await;
    let list = pod.status.unwrap().container_statuses.unwrap();
    assert_eq!(list.iter().map(|one| one.restart_count).collect::<Vec<_>>(), [0, 0]);
    let uid = pod.metadata.uid.unwrap();
    for (one, end) in list.iter().zip(["a", "b"]) {
        assert_eq!(one.container_id.as_deref().unwrap(), format!("drydock://{uid}/{alike}{end}.0"));
    }
}

async fn init_containers_run_one_after_the_other(cluster: Arc<Cluster>) {
    let volume = json!([{"name": "shared", "mountPath": "/shared"}]);
    let init = |name: &str, text: &str| json!({"name": name, "image": "busybox", "command": ["sh", "-c", text], "volumeMounts": volume});
    let spec = json!({
        "initContainers": [init("one", "sleep 0.2; echo one >> /shared/log"), init("two", "echo two >> /shared/log")],
        "containers": [init("main", "cat /shared/log; sleep 1000")],
        "volumes": [{"name": "shared", "emptyDir": {}}],
    });
    cluster.pod("inits", spec).await;
    let pod = cluster.until_ready("inits").await;
    assert_eq!(state(&pod, "one"), "terminated Completed 0");
    let cluster = &cluster;
    let pod = &pod;
    cluster
        .until("the log", || async move { (cluster.log(pod, "main", 0) == "one\ntwo\n").then_some(()) })
        .await;
    cluster.delete("inits", Some(0)).await;
}

async fn a_container_that_ends_is_started_again_with_patience(cluster: Arc<Cluster>) {
    cluster.pod("crash", script("exit 5")).await;
    let pod =
        cluster.until_pod("crash", "it waits", |pod| state(pod, "main") == "waiting CrashLoopBackOff").await;
    let status = pod.status.clone().unwrap();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    let container = &status.container_statuses.unwrap()[0];
    assert_eq!(container.restart_count, 1);
    assert_eq!(container.last_state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code, 5);
    let message = container.state.as_ref().unwrap().waiting.as_ref().unwrap().message.clone().unwrap();
    assert!(
        message.starts_with("back-off 10s restarting failed container=main pod=crash_default("),
        "{message}"
    );
    cluster
        .until_event("crash", "BackOff", "Back-off restarting failed container main in pod crash_default(")
        .await;
    // Its init is killed while there is nothing to run: the next attempt finds another.
    cluster.kill_init(&pod);
    let again = |pod: &Pod| {
        pod.status
            .as_ref()
            .unwrap()
            .container_statuses
            .as_ref()
            .is_some_and(|list| list[0].restart_count == 2)
    };
    cluster.until_pod("crash", "the next attempt", again).await;
    cluster.until_event("crash", "SandboxChanged", "Pod sandbox changed").await;
    assert!(
        cluster.events("crash", "Failed").await.is_empty(),
        "a new sandbox is no failure of the container's"
    );
}

async fn a_pod_whose_init_is_killed_gets_another_and_others_are_untouched(cluster: Arc<Cluster>) {
    let names = ["main", "two", "three", "four"];
    let once = |name: &str, text: &str| {
        let mounts = json!([{"name": "shared", "mountPath": "/shared"}]);
        json!({"name": name, "image": "busybox", "command": ["sh", "-c", text], "volumeMounts": mounts})
    };
    let spec = json!({
        "initContainers": [once("first", "echo again >> /shared/log")],
        "containers": names.map(|name| once(name, "exec sleep 1000")),
        "volumes": [{"name": "shared", "emptyDir": {}}],
    });
    let mut never = script("exec sleep 1000");
    never["restartPolicy"] = json!("Never");
    cluster.pod("struck", spec).await;
    cluster.pod("never", never).await;
    cluster.pod("calm", script("exec sleep 1000")).await;
    let struck = cluster.until_ready("struck").await;
    let (never, calm) = (cluster.until_ready("never").await, cluster.until_ready("calm").await);
    cluster.kill_init(&struck);
    cluster.kill_init(&never);

    let all_again = |pod: &Pod| {
        let list = pod.status.as_ref().and_then(|status| status.container_statuses.clone());
        list.is_some_and(|list| list.iter().all(|one| one.restart_count == 1 && one.ready))
    };
    let pod = cluster.until_pod("struck", "all its containers run anew", all_again).await;
    assert_eq!(condition(&pod, "Ready"), "True");
    let status = pod.status.clone().unwrap();
    let addresses = |status: &PodStatus| {
        let all = status.pod_ips.iter().flatten().map(|address| address.ip.clone());
        (status.pod_ip.clone().unwrap(), all.collect::<Vec<_>>())
    };
    let (before, (address, all)) = (addresses(&struck.status.unwrap()), addresses(&status));
    assert_ne!(before.0, address, "the new sandbox has an address of its own");
    assert_eq!(all, [address], "one that is no longer the pod's is not told");
    for container in status.container_statuses.clone().unwrap() {
        let ended = container.last_state.unwrap().terminated.unwrap();
        assert_eq!((ended.exit_code, ended.reason.as_deref()), (137, Some("Error")), "{}", container.name);
    }
    let changed = cluster.until_event("struck", "SandboxChanged", "Pod sandbox changed").await;
    assert_eq!(changed, "Pod sandbox changed, it will be killed and re-created.");
    let (_, text) = crate::remote::exec(&cluster, "struck", "cat%20/shared/log").await;
    assert_eq!(text, "again\nagain\n", "the volume is the same, and what comes first came first again");

    let pod = cluster.until_phase("never", "Failed").await;
    assert_eq!(state(&pod, "main"), "terminated Error 137");
    assert_eq!(cluster.pods().get("calm").await.unwrap().status, calm.status);
    // Each pod is made once: had the last of its containers been taken for one of the new sandbox, there were two.
    assert_eq!(cluster.pods().get("struck").await.unwrap().status, Some(status));
}

async fn a_pod_is_asked_to_end_before_it_is_killed(cluster: Arc<Cluster>) {
    // Who has not said what to do about a signal does not hear it.
    let mut polite = script("trap 'exit 0' TERM; touch /hears; while true; do sleep 0.05; done");
    polite["containers"][0]["readinessProbe"] = json!({"exec": {"command": ["cat", "/hears"]}});
    cluster.pod("polite", polite).await;
    cluster.pod("deaf", script("trap '' TERM; while true; do sleep 1; done")).await;
    cluster.until_ready("polite").await;
    cluster.until_ready("deaf").await;
    let began = std::time::Instant::now();
    cluster.delete("polite", Some(20)).await;
    cluster.until_gone("polite").await;
    assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    let began = std::time::Instant::now();
    cluster.delete("deaf", Some(3)).await;
    cluster.until_gone("deaf").await;
    assert!((3..6).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

async fn a_hook_runs_before_the_signal(cluster: Arc<Cluster>) {
    let mut spec = script(
        "trap 'cat /tmp/hook > /dev/termination-log; exit 7' TERM; touch /hears; while true; do sleep 0.05; done",
    );
    spec["containers"][0]["readinessProbe"] = json!({"exec": {"command": ["cat", "/hears"]}});
    spec["containers"][0]["lifecycle"] = json!({
        "postStart": {"exec": {"command": ["sh", "-c", "echo started > /tmp/hook"]}},
        "preStop": {"exec": {"command": ["sh", "-c", "echo stopping >> /tmp/hook"]}},
    });
    // Someone else's finalizer keeps the pod in sight.
    cluster.pod("hooked", spec).await;
    cluster.until_ready("hooked").await;
    let pods = cluster.pods();
    let hold = json!({"metadata": {"finalizers": ["test.example/hold"]}});
    let patch = kube::api::Patch::Merge(hold);
    pods.patch("hooked", &kube::api::PatchParams::default(), &patch).await.unwrap();
    cluster.delete("hooked", Some(10)).await;
    let pod = cluster.until_pod("hooked", "it ended", |pod| state(pod, "main") == "terminated Error 7").await;
    let ended = pod.status.unwrap().container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap();
    assert_eq!(ended.message.as_deref(), Some("started\nstopping\n"));
    let release = kube::api::Patch::Merge(json!({"metadata": {"finalizers": null}}));
    pods.patch("hooked", &kube::api::PatchParams::default(), &release).await.unwrap();
    cluster.until_gone("hooked").await;
}

async fn a_container_counts_when_its_hook_is_done_and_goes_when_it_fails(cluster: Arc<Cluster>) {
    let mut spec = script("while true; do sleep 0.05; done");
    spec["terminationGracePeriodSeconds"] = json!(0);
    let hooked = |spec: &serde_json::Value, text: &str| {
        let mut spec = spec.clone();
        spec["containers"][0]["lifecycle"] = json!({"postStart": {"exec": {"command": ["sh", "-c", text]}}});
        spec
    };
    cluster.pod("slow", hooked(&spec, "until test -e /tmp/go; do sleep 0.05; done")).await;
    cluster.until_event("slow", "Started", "Started container main").await;
    // The event may be there before the status is.
    let waits = |pod: &Pod| state(pod, "main") == "waiting ContainerCreating";
    cluster.until_pod("slow", "it waits for its hook", waits).await;
    let (status, text) = crate::remote::exec(&cluster, "slow", "touch%20/tmp/go").await;
    assert!(status.contains("Success"), "{status} {text}");
    cluster.until_ready("slow").await;

    // One that is not done by then ends with its pod.
    cluster.pod("endless", hooked(&spec, "exec sleep 1000")).await;
    cluster.until_pod("endless", "it waits for its hook", waits).await;
    cluster.delete("endless", None).await;
    cluster.until_gone("endless").await;

    cluster.pod("failing", hooked(&spec, "echo a secret; exit 1")).await;
    assert_eq!(
        cluster.until_event("failing", "FailedPostStartHook", "PostStartHook failed").await,
        "PostStartHook failed"
    );
    cluster.until_event("failing", "Killing", "FailedPostStartHook").await;
    let again = |pod: &Pod| {
        let list = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        list.is_some_and(|list| list[0].restart_count >= 1)
    };
    cluster.until_pod("failing", "it is started again", again).await;

    // The API takes a hook that connects, and no kubelet carries it out.
    spec["containers"][0]["lifecycle"] = json!({"postStart": {"tcpSocket": {"port": 80}}});
    cluster.pod("connecting", spec).await;
    cluster.until_event("connecting", "FailedPostStartHook", "PostStartHook failed").await;
    cluster.until_event("connecting", "Killing", "FailedPostStartHook").await;
}

async fn a_hook_that_asks_for_a_page_takes_any_answer(cluster: Arc<Cluster>) {
    let listener = TcpListener::bind((cluster.host.address(), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, mut asked) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let length = stream.read(&mut request).await.unwrap();
            let _ended = tell.send(String::from_utf8_lossy(&request[..length]).into_owned());
            stream.write_all(b"HTTP/1.0 500 Internal Server Error\r\n\r\n").await.unwrap();
            let _gone = stream.shutdown().await;
        }
    });
    let ask = |path: &str, scheme: &str| {
        let headers = json!([{"name": "Authorization", "value": "a secret"}]);
        json!({"httpGet": {
            "host": address.ip(), "port": address.port(), "path": path, "scheme": scheme, "httpHeaders": headers,
        }})
    };
    let mut next = async || loop {
        // What is no request is what TLS begins with.
        let request: String = asked.recv().await.unwrap();
        if request.starts_with("GET ") {
            return request.to_lowercase();
        }
    };
    let mut spec = script("trap 'exit 0' TERM; touch /hears; while true; do sleep 0.05; done");
    spec["containers"][0]["readinessProbe"] = json!({"exec": {"command": ["cat", "/hears"]}});
    spec["containers"][0]["lifecycle"] =
        json!({"postStart": ask("/begin", "HTTP"), "preStop": ask("/end", "HTTPS")});
    cluster.pod("asking", spec.clone()).await;
    cluster.until_ready("asking").await;
    let request = next().await;
    assert!(request.starts_with("get /begin http/1.1\r\n"), "{request}");
    assert!(request.contains("\r\nuser-agent: kube-lifecycle/1.34\r\n"), "{request}");
    assert!(request.contains("\r\nauthorization: a secret\r\n"), "{request}");
    cluster.delete("asking", Some(20)).await;
    let clear =
        format!("request to HTTPS lifecycle hook {address} got HTTP response, retry with HTTP succeeded");
    assert_eq!(cluster.until_event("asking", "LifecycleHTTPFallback", "").await, clear);
    let request = next().await;
    assert!(request.starts_with("get /end http/1.1\r\n"), "{request}");
    assert!(!request.contains("authorization"), "it is said in the clear: {request}");
    cluster.until_gone("asking").await;
    for hook in ["FailedPostStartHook", "FailedPreStopHook"] {
        assert_eq!(cluster.events("asking", hook).await, [""; 0]);
    }

    // Nobody there is no answer.
    let nobody = TcpListener::bind((cluster.host.address(), 0)).await.unwrap().local_addr().unwrap();
    let action = json!({"host": nobody.ip(), "port": nobody.port()});
    spec["terminationGracePeriodSeconds"] = json!(0);
    spec["containers"][0]["lifecycle"] = json!({"postStart": {"httpGet": action}});
    cluster.pod("unheard", spec).await;
    cluster.until_event("unheard", "FailedPostStartHook", "PostStartHook failed").await;
}

async fn a_hook_that_sleeps_takes_its_time(cluster: Arc<Cluster>) {
    let second = std::time::Duration::from_secs(1);
    let mut spec = script("trap 'exit 0' TERM; while true; do sleep 0.05; done");
    let sleep = json!({"sleep": {"seconds": 1}});
    spec["containers"][0]["lifecycle"] = json!({"postStart": sleep, "preStop": sleep});
    let began = std::time::Instant::now();
    cluster.pod("sleepy", spec).await;
    cluster.until_ready("sleepy").await;
    assert!(began.elapsed() >= second, "{:?}", began.elapsed());
    let began = std::time::Instant::now();
    cluster.delete("sleepy", Some(20)).await;
    cluster.until_gone("sleepy").await;
    assert!((second..second * 10).contains(&began.elapsed()), "{:?}", began.elapsed());
    for hook in ["FailedPostStartHook", "FailedPreStopHook"] {
        assert_eq!(cluster.events("sleepy", hook).await, [""; 0]);
    }
}

async fn a_deadline_ends_the_pod(cluster: Arc<Cluster>) {
    let mut spec = script("sleep 1000");
    spec["activeDeadlineSeconds"] = json!(1);
    spec["terminationGracePeriodSeconds"] = json!(0);
    cluster.pod("late", spec).await;
    let pod = cluster.until_phase("late", "Failed").await;
    let status = pod.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    assert_eq!(
        status.message.as_deref(),
        Some("Pod was active on the node longer than the specified deadline")
    );
}
