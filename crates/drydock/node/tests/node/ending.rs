//! Nodes that stop, and what they leave to the next.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use drydock_node::{Ender, Node, Options};
use drydock_sandbox::PodConfig;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use rustix::mount::{MountFlags, UnmountFlags};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, script, state};

crate::tests![
    a_node_that_stops_waits_for_those_whose_turn_comes_last,
    a_pod_that_could_not_be_ended_keeps_its_files_until_it_is,
];

/// Another node of the same machine.
struct Other {
    directory: PathBuf,
    ender: Ender,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Other {
    const NAME: &str = "other";

    fn start(cluster: &Cluster) -> Self {
        let directory = cluster.directory.with_file_name(Self::NAME);
        let images = Arc::new(crate::store());
        let options =
            Options::new(Self::NAME, cluster.client.clone(), cluster.host.clone(), images, &directory);
        let node = Node::start(options).unwrap();
        let (ender, stop) = (node.ender(), CancellationToken::new());
        Self { directory, ender, task: tokio::spawn(node.run(stop.clone())), stop }
    }

    /// Stops it, and leaves nothing of it.
    async fn stop(self, cluster: &Cluster, limit: Duration) {
        self.ender.end(limit, false).await.unwrap();
        self.stop.cancel();
        self.task.await.unwrap();
        for pod in cluster.host.adopt().unwrap() {
            pod.stop().await.unwrap();
        }
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(cluster.client.clone());
        nodes.delete(Self::NAME, &DeleteParams::default()).await.unwrap();
        drydock_node::clear(&self.directory).unwrap();
    }
}

async fn a_node_that_stops_waits_for_those_whose_turn_comes_last(cluster: Arc<Cluster>) {
    let other = Other::start(&cluster);
    let mut spec = script("trap '' TERM; while true; do sleep 0.05; done");
    spec["nodeName"] = json!(Other::NAME);
    let text = "trap 'sleep 1.5; exit 9' TERM; touch /hears; while true; do sleep 0.05; done";
    spec["initContainers"] = json!([{
        "name": "serves", "image": "busybox", "restartPolicy": "Always", "command": ["sh", "-c", text],
        "startupProbe": {"exec": {"command": ["cat", "/hears"]}},
    }]);
    cluster.create::<Pod>(json!({"metadata": {"name": "served"}, "spec": spec})).await;
    cluster.until_ready("served").await;
    // The first has all the time there is, and is killed; the other is asked to end only then.
    other.stop(&cluster, Duration::from_secs(2)).await;
    let pod = cluster.pods().get("served").await.unwrap();
    assert_eq!(state(&pod, "serves"), "terminated Error 9");
}

async fn a_pod_that_could_not_be_ended_keeps_its_files_until_it_is(cluster: Arc<Cluster>) {
    let orphan = cluster.host.create_pod(PodConfig::named("orphan")).await.unwrap();
    let files = cluster.directory.with_file_name(Other::NAME).join("pods").join("orphan");
    fs::create_dir_all(&files).unwrap();
    // What is mounted below its files keeps them from being removed.
    let place = cluster.directory.with_file_name("state").join("pods").join("orphan");
    let (held, beside) = (place.join("held"), place.join("beside"));
    fs::create_dir(&held).unwrap();
    rustix::mount::mount("tmpfs", &held, "tmpfs", MountFlags::empty(), None).unwrap();
    fs::write(held.join("file"), "").unwrap();
    fs::write(&beside, "").unwrap();
    let other = Other::start(&cluster);
    cluster.until("it is being removed", || async { (!beside.exists()).then_some(()) }).await;
    assert!(!orphan.is_alive());
    assert!(held.join("file").exists(), "what is mounted there is not the pod's to lose");
    assert!(files.exists(), "its files are gone before it is");
    rustix::mount::unmount(&held, UnmountFlags::DETACH).unwrap();
    cluster.until("nothing of it is left", || async { (!files.exists()).then_some(()) }).await;
    assert!(!held.exists(), "its files are gone before it is");
    other.stop(&cluster, Duration::ZERO).await;
}
