//! A node that is killed, and the one that comes after it.
//!
//! Each is a process of its own: the first brings a pod about and is killed without warning, the second finds the
//! pod as it was and goes on with it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

use drydock::Drydock;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::claims::{claim, user};
use crate::cluster::{Cluster, TOKEN, script, state};
use crate::user::User;
use crate::{SIGNALLED, open, store};

/// Runs both, one after the other; true when all is well.
pub(crate) fn drive() -> bool {
    let directory = tempfile::tempdir_in(User::is_me().home()).unwrap();
    let mut first = spawn("first", directory.path());
    let mut line = String::new();
    BufReader::new(first.stdout.take().unwrap()).read_line(&mut line).unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(line.starts_with("drydock://"), "the first node said {line:?}");
    let second = spawn("second", directory.path()).wait_with_output().unwrap();
    let said = String::from_utf8(second.stdout).unwrap();
    second.status.success() && said == line
}

fn spawn(part: &str, directory: &Path) -> Child {
    let program = std::env::current_exe().unwrap();
    Command::new(program).arg(part).arg(directory).stdout(Stdio::piped()).spawn().unwrap()
}

fn run<F: Future<Output = ()>>(
    directory: &Path,
    resume: bool,
    part: impl FnOnce(Arc<Cluster>) -> F,
) -> ExitCode {
    let (runtime, host) = open(&directory.join("state"), resume, true);
    runtime.block_on(async {
        let host = host();
        let drydock = Drydock::builder().data_dir(directory.join("api")).start().await.unwrap();
        let cluster =
            Arc::new(Cluster::start_on(drydock, host.clone(), store(), directory.join("node")).await);
        part(Arc::clone(&cluster)).await;
        Arc::into_inner(cluster).unwrap().stop().await;
        host.close().await.unwrap();
    });
    ExitCode::SUCCESS
}

fn container_id(pod: &k8s_openapi::api::core::v1::Pod) -> String {
    let status = &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0];
    assert_eq!(status.restart_count, 0);
    status.container_id.clone().unwrap()
}

/// Brings a pod about, says so, and waits to be killed.
pub(crate) fn first(directory: &Path) -> ExitCode {
    run(directory, false, |cluster| async move {
        // What is in a volume of a hard size is in memory, and stays there.
        claim(&cluster, "data", "1Mi", json!({"storageClassName": drydock_node::HARD_CLASS})).await;
        user(&cluster, "writer", "data", "echo kept > /data/file").await;
        // Its image says what it is to be asked to end by, and only that is heard.
        let mut kept = script("trap 'exit 5' 37; trap '' TERM; echo begun; while true; do sleep 0.05; done");
        kept["containers"][0]["image"] = json!(SIGNALLED);
        let socket = directory.join("socket");
        std::os::unix::net::UnixListener::bind(&socket).unwrap();
        kept["volumes"] = json!([{"name": "socket", "hostPath": {"path": socket, "type": "Socket"}}]);
        cluster.pod("kept", kept).await;
        let mut again = script("test -e /data/ran && echo again && exit 0; touch /data/ran; exit 1");
        let stays = json!({"name": "stays", "image": "busybox", "command": ["sleep", "1000"]});
        again["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        again["containers"].as_array_mut().unwrap().push(stays);
        again["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
        again["restartPolicy"] = json!("OnFailure");
        cluster.pod("again", again).await;
        cluster.until_pod("again", "it ended", |pod| state(pod, "main") == "terminated Completed 0").await;
        println!("{}", container_id(&cluster.until_ready("kept").await));
        std::future::pending().await
    })
}

/// Finds it, looks whether it is the same, and ends it.
pub(crate) fn second(directory: &Path) -> ExitCode {
    // Who listened there is gone, which is for the pod to see.
    std::fs::remove_file(directory.join("socket")).unwrap();
    run(directory, true, |cluster| async move {
        cluster.until_live("kept").await;
        let pod = cluster.until_ready("kept").await;
        println!("{}", container_id(&pod));
        assert_eq!(cluster.log(&pod, "main", 0), "begun\n");
        let reader = user(&cluster, "reader", "data", "cat /data/file").await;
        assert_eq!(cluster.log(&reader, "main", 0), "kept\n");
        cluster.until_live("again").await;
        let log = crate::remote::get(&cluster, "/containerLogs/default/again/main", TOKEN).await;
        assert_eq!(log, (200, "again\n".to_owned()), "how often it was started is known");
        // Someone else's finalizer keeps the pod in sight.
        let finalizers = async |list: Value| {
            let patch = Patch::Merge(json!({"metadata": {"finalizers": list}}));
            cluster.pods().patch("kept", &PatchParams::default(), &patch).await.unwrap();
        };
        finalizers(json!(["test.example/hold"])).await;
        cluster.delete("kept", Some(3)).await;
        cluster.until_pod("kept", "it heard", |pod| state(pod, "main") == "terminated Error 5").await;
        assert_eq!(cluster.events("kept", "FailedMount").await, [""; 0]);
        finalizers(json!(null)).await;
        cluster.until_gone("kept").await;
        cluster.sweep().await;
    })
}
