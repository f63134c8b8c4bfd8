//! A cluster in memory with one node.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use drydock::{Drydock, Identity};
use drydock_images::Store;
use drydock_node::{Node, Options, Server};
use drydock_sandbox::Host;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long anything may take. Nothing takes nearly as long where all is well.
const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const NODE: &str = "here";
/// Few, so that one who runs away is soon at its end.
const PROCESSES: u64 = 64;
/// Often, so that a change is soon seen.
const REFRESH: Duration = Duration::from_secs(1);
pub(crate) const TOKEN: &str = "the-servers-own";

pub(crate) struct Cluster {
    drydock: Drydock,
    pub client: Client,
    pub host: Host,
    pub directory: PathBuf,
    stop: CancellationToken,
    node: JoinHandle<()>,
}

impl Cluster {
    pub async fn start(host: Host, images: Store, directory: PathBuf) -> Self {
        Self::start_on(Drydock::builder().start().await.unwrap(), host, images, directory).await
    }

    /// A node on a cluster that may have had one before.
    pub async fn start_on(drydock: Drydock, host: Host, images: Store, directory: PathBuf) -> Self {
        let client = drydock.client();
        let node = Identity::user(format!("system:node:{NODE}"), ["system:nodes"]);
        // What kubeadm clusters leave to the node authorizer.
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "nodes"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
        });
        let bindings: Api<k8s_openapi::api::rbac::v1::ClusterRoleBinding> = Api::all(client.clone());
        let made = bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await;
        assert!(!made.is_err_and(|error| !error.to_string().contains("already exists")));
        for object in drydock_node::permissions("system:nodes").into_iter().chain(drydock_node::classes()) {
            apply(&client, object).await;
        }
        std::fs::create_dir_all(&directory).unwrap();
        let options = Options {
            server: Some(Server { socket: directory.join("node.sock"), token: Some(TOKEN.to_owned()) }),
            max_processes: PROCESSES,
            refresh: REFRESH,
            ..Options::new(NODE, drydock.client_as(node), host.clone(), Arc::new(images), &directory)
        };
        let stop = CancellationToken::new();
        let node = tokio::spawn(Node::start(options).unwrap().run(stop.clone()));
        let cluster = Self { drydock, client, host, directory, stop, node };
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::default_namespaced(cluster.client.clone());
        cluster
            .until("the default ServiceAccount", || async { accounts.get_opt("default").await.unwrap() })
            .await;
        cluster
    }

    pub async fn stop(self) {
        self.stop.cancel();
        self.node.await.unwrap();
        self.drydock.shutdown().await;
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    /// Waits until something is there.
    pub async fn until<T, F: Future<Output = Option<T>>>(&self, what: &str, look: impl Fn() -> F) -> T {
        let waiting = async {
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(found) => found,
            Err(_) => panic!("waited in vain: {what}"),
        }
    }

    /// Makes any object.
    pub async fn create<K>(&self, object: Value) -> K
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned
            + serde::Serialize,
    {
        let api: Api<K> = Api::default_namespaced(self.client.clone());
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }

    /// Makes a pod that is bound to the node.
    pub async fn pod(&self, name: &str, spec: Value) -> Pod {
        let mut spec = spec;
        spec["nodeName"] = json!(NODE);
        let metadata = json!({"name": name, "labels": {"app": name}});
        self.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})).await
    }

    /// Waits until a pod is as a test wants it.
    pub async fn until_pod(&self, name: &str, what: &str, holds: impl Fn(&Pod) -> bool) -> Pod {
        let pods = self.pods();
        let (pods, holds) = (&pods, &holds);
        self.until(what, || async move { pods.get_opt(name).await.unwrap().filter(|pod| holds(pod)) }).await
    }

    pub async fn until_ready(&self, name: &str) -> Pod {
        self.until_pod(name, &format!("{name} is ready"), |pod| condition(pod, "Ready") == "True").await
    }

    pub async fn until_phase(&self, name: &str, phase: &str) -> Pod {
        let is = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase);
        self.until_pod(name, &format!("{name} is {phase}"), is).await
    }

    /// Waits until the node itself knows a pod: what the API shows may be from before.
    pub async fn until_live(&self, name: &str) {
        let path = format!("/containerLogs/default/{name}/main");
        let path = &path;
        self.until("the node knows the pod", || async move {
            (crate::remote::get(self, path, TOKEN).await.0 == 200).then_some(())
        })
        .await;
    }

    /// The messages of events about a pod that have a reason.
    pub async fn events(&self, pod: &str, reason: &str) -> Vec<String> {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let list = events.list(&ListParams::default()).await.unwrap().items.into_iter();
        list.filter(|event| {
            event.involved_object.name.as_deref() == Some(pod) && event.reason.as_deref() == Some(reason)
        })
        .map(|event| event.message.unwrap_or_default())
        .collect()
    }

    /// Waits for an event about a pod, and gives its message.
    pub async fn until_event(&self, pod: &str, reason: &str, part: &str) -> String {
        self.until(&format!("the event {reason} of {pod} with {part:?}"), || async move {
            self.events(pod, reason).await.into_iter().find(|message| message.contains(part))
        })
        .await
    }

    /// Kills the process that all others of a pod depend on.
    pub fn kill_init(&self, pod: &Pod) {
        let uid = pod.metadata.uid.as_ref().unwrap();
        let path = self.directory.with_file_name("state").join("pods").join(uid).join("init.json");
        let record: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let init: drydock_sandbox::Process = serde_json::from_value(record["process"].clone()).unwrap();
        assert!(init.kill(PATIENCE));
    }

    pub async fn delete(&self, name: &str, grace: Option<u32>) {
        let parameters = DeleteParams { grace_period_seconds: grace, ..DeleteParams::default() };
        self.pods().delete(name, &parameters).await.unwrap();
    }

    pub async fn until_gone(&self, name: &str) {
        let pods = self.pods();
        let pods = &pods;
        self.until(&format!("{name} is gone"), || async move {
            pods.get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
    }

    /// Removes all pods, and waits until nothing of them is left.
    pub async fn sweep(&self) {
        for pod in self.pods().list(&ListParams::default()).await.unwrap().items {
            let name = pod.metadata.name.unwrap();
            let _gone = self.pods().delete(&name, &DeleteParams::default().grace_period(0)).await;
        }
        self.until("nothing is left", || async { self.host.adopt().unwrap().is_empty().then_some(()) }).await;
        let left = || {
            ["pods", "logs", "memory"]
                .map(|part| std::fs::read_dir(self.directory.join(part)).unwrap().count())
        };
        self.until("no file is left", || async { (left() == [0, 0, 0]).then_some(()) }).await;
    }

    /// Prints what there is, for whoever reads a failure.
    pub async fn describe(&self) {
        for pod in self.pods().list(&ListParams::default()).await.unwrap().items {
            println!("{}", serde_json::to_string_pretty(&pod.status).unwrap());
        }
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        for event in events.list(&ListParams::default()).await.unwrap().items {
            println!(
                "{:?} {:?} {:?}",
                event.involved_object.name.unwrap_or_default(),
                event.reason.unwrap_or_default(),
                event.message.unwrap_or_default()
            );
        }
    }

    /// The log of a container, without times.
    pub fn log(&self, pod: &Pod, container: &str, restart: i32) -> String {
        let meta = &pod.metadata;
        let directory = format!("default_{}_{}", meta.name.as_ref().unwrap(), meta.uid.as_ref().unwrap());
        let path = self.directory.join("logs").join(directory).join(container).join(format!("{restart}.log"));
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        text.lines().map(|line| format!("{}\n", line.splitn(4, ' ').nth(3).unwrap())).collect()
    }
}

/// The status of a condition, empty when it is not there.
pub(crate) fn condition(pod: &Pod, kind: &str) -> String {
    let list = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    list.iter()
        .find(|condition| condition.type_ == kind)
        .map(|condition| condition.status.clone())
        .unwrap_or_default()
}

/// A container's state as text: `running`, `waiting CrashLoopBackOff`, `terminated Error 1`.
pub(crate) fn state(pod: &Pod, container: &str) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let all = status.container_statuses.into_iter().flatten();
    let mut all = all.chain(status.init_container_statuses.into_iter().flatten());
    let Some(state) = all.find(|status| status.name == container).and_then(|status| status.state) else {
        return String::new();
    };
    if let Some(waiting) = state.waiting {
        return format!("waiting {}", waiting.reason.unwrap_or_default());
    }
    if let Some(ended) = state.terminated {
        return format!("terminated {} {}", ended.reason.unwrap_or_default(), ended.exit_code);
    }
    "running".to_owned()
}

/// A pod of one busybox container with a script.
pub(crate) fn script(text: &str) -> Value {
    json!({"containers": [{"name": "main", "image": "busybox", "command": ["sh", "-c", text]}]})
}

/// Makes any object what it is to be.
async fn apply(client: &Client, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let kind = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let name = object.metadata.name.clone().unwrap();
    api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await.unwrap();
}
