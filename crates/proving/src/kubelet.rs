//! What a node does for pods, as far as an operator can see it, without running anything.
//!
//! There is one node, with room for everything. A pod that is given to it is soon ready, or ends after a second where
//! it is never to be restarted, and is gone once it is told to go; a [`Service`] may have something else come of it.
//! Only where an image's tag is [`NO_SUCH_TAG`] it never starts, as with a version that does not exist.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod, Secret, Volume};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::ObjectMeta,
    runtime::watcher,
};
use serde_json::{Value, json};

use crate::{Course, Mounted, Service, clock::VirtualClock};

/// The tag of images that can't be pulled.
pub const NO_SUCH_TAG: &str = "no-such-version";

/// The node that all pods are on.
const NODE: &str = "stand-in";
const MANAGER: &str = "kubelet";
/// How long a pod that is to end takes: long enough that others see it run.
const TAKES: Duration = Duration::from_secs(1);

/// Registers the node, and says that it is ready.
pub(crate) async fn register(client: &Client, now: &str) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let metadata = ObjectMeta { name: Some(NODE.into()), ..ObjectMeta::default() };
    nodes.create(&PostParams::default(), &Node { metadata, ..Node::default() }).await?;
    let room = json!({"cpu": "1000", "memory": "1000Gi", "pods": "1000", "ephemeral-storage": "1000Gi"});
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
        "lastHeartbeatTime": now, "lastTransitionTime": now
    });
    let status = json!({"status": {"capacity": room, "allocatable": room, "conditions": [ready]}});
    nodes.patch_status(NODE, &PatchParams::default(), &Patch::Strategic(status)).await?;
    // A new node is not ready, and is told so by a taint.
    let untainted = Patch::Merge(json!({"spec": {"taints": null}}));
    nodes.patch(NODE, &PatchParams::default(), &untainted).await.map(drop)
}

/// What does for pods what a node does.
#[derive(Clone)]
pub(crate) struct Kubelet {
    pub(crate) client: Client,
    pub(crate) clock: VirtualClock,
    pub(crate) service: Arc<dyn Service>,
}

impl Kubelet {
    /// For ever.
    pub(crate) async fn run(self) {
        let pods = watcher(Api::<Pod>::all(self.client.clone()), watcher::Config::default());
        pin_mut!(pods);
        // Those whose end is under way.
        let mut ending = BTreeSet::new();
        while let Some(event) = pods.next().await {
            let (watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) = (match event {
                Ok(event) => event,
                Err(_) => continue,
            }) else {
                continue;
            };
            // A pod that changed or went meanwhile comes by the watch once more.
            let _ = self.attend(&pod).await;
            if runs(&pod) && is_to_end(&pod) && ending.insert(pod.metadata.uid.clone()) {
                let node = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(TAKES).await;
                    let _ = node.end(&pod).await;
                });
            }
        }
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default())
    }

    async fn attend(&self, pod: &Pod) -> Result<(), kube::Error> {
        let assigned = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        if pod.metadata.deletion_timestamp.is_some() {
            let uid = pod.metadata.uid.clone();
            let how = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions: Some(Preconditions { uid, resource_version: None }),
                ..DeleteParams::default()
            };
            self.pods(pod).delete(name(pod), &how).await?;
        } else if assigned && pod.status.as_ref().is_none_or(|status| status.start_time.is_none()) {
            let course = if is_to_end(pod) {
                Course::Struggles
            } else {
                self.service.run(pod, &self.mounted(pod).await?)
            };
            self.say(pod, &course).await?;
        }
        Ok(())
    }

    async fn end(&self, pod: &Pod) -> Result<(), kube::Error> {
        let course = match self.service.run(pod, &self.mounted(pod).await?) {
            Course::Goes => Course::Ends { code: 0, message: String::new() },
            other => other,
        };
        self.say(pod, &course).await
    }

    async fn say(&self, pod: &Pod, course: &Course) -> Result<(), kube::Error> {
        let how = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        let status = status(pod, &self.clock.timestamp().to_string(), course);
        self.pods(pod).patch_status(name(pod), &how, &Patch::Strategic(status)).await.map(drop)
    }

    /// What is in a pod's volumes.
    async fn mounted(&self, pod: &Pod) -> Result<Mounted, kube::Error> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut mounted = Mounted::default();
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            self.mount(namespace, volume, &mut mounted).await?;
        }
        Ok(mounted)
    }

    async fn mount(&self, namespace: &str, volume: &Volume, into: &mut Mounted) -> Result<(), kube::Error> {
        let client = || self.client.clone();
        if let Some(source) = &volume.persistent_volume_claim {
            let claims: Api<PersistentVolumeClaim> = Api::namespaced(client(), namespace);
            let uid = claims.get(&source.claim_name).await?.metadata.uid.unwrap_or_default();
            into.claims.insert(source.claim_name.clone(), uid);
        }
        if let Some(name) = volume.secret.as_ref().and_then(|source| source.secret_name.as_deref()) {
            let secrets: Api<Secret> = Api::namespaced(client(), namespace);
            let data = secrets.get(name).await?.data.unwrap_or_default();
            into.files.extend(data.into_iter().map(|(key, value)| (key, value.0)));
        }
        if let Some(source) = &volume.config_map {
            let maps: Api<ConfigMap> = Api::namespaced(client(), namespace);
            let data = maps.get(&source.name).await?.data.unwrap_or_default();
            into.files.extend(data.into_iter().map(|(key, value)| (key, value.into_bytes())));
        }
        Ok(())
    }
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// Whether it ends by itself.
fn is_to_end(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.restart_policy.as_deref() == Some("Never"))
}

fn runs(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
}

/// The status of a pod of which this came.
fn status(pod: &Pod, now: &str, course: &Course) -> Value {
    let began =
        pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0.to_string());
    let began = began.as_deref().unwrap_or(now);
    let images = || {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        containers.map(|container| (&container.name, container.image.clone().unwrap_or_default()))
    };
    let there = images().all(|(_, image)| !image.ends_with(&format!(":{NO_SUCH_TAG}")));
    let up = there && *course == Course::Goes;
    let containers: Vec<Value> = images()
        .map(|(name, image)| {
            let state = match course {
                _ if image.ends_with(&format!(":{NO_SUCH_TAG}")) => {
                    json!({"waiting": {"reason": "ImagePullBackOff", "message": "there is no such image"}})
                }
                Course::Ends { code, message } => json!({"terminated": {
                    "exitCode": code, "message": message, "reason": if *code == 0 { "Completed" } else { "Error" },
                    "startedAt": began, "finishedAt": now,
                }, "running": null}),
                Course::Goes | Course::Struggles => json!({"running": {"startedAt": began}}),
            };
            json!({
                "name": name, "image": image, "imageID": image, "ready": up, "started": up,
                "restartCount": 0, "state": state
            })
        })
        .collect();
    let phase = match course {
        _ if !there => "Pending",
        Course::Ends { code: 0, .. } => "Succeeded",
        Course::Ends { .. } => "Failed",
        Course::Goes | Course::Struggles => "Running",
    };
    let condition = |type_: &str, met: bool| json!({"type": type_, "status": if met { "True" } else { "False" }, "lastTransitionTime": now});
    let address = address(pod.metadata.uid.as_deref().unwrap_or_default());
    json!({"status": {
        "phase": phase,
        "startTime": began,
        "hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}],
        "podIP": address, "podIPs": [{"ip": address}],
        "conditions": [
            condition("Initialized", true), condition("ContainersReady", up), condition("Ready", up)
        ],
        "containerStatuses": containers,
    }})
}

/// An address that no other pod has: it is made of the uid, so that it needs no memory.
fn address(uid: &str) -> String {
    let digits: Vec<u8> =
        uid.bytes().filter_map(|digit| char::from(digit).to_digit(16)).map(|digit| digit as u8).collect();
    let byte = |place: usize| match digits.get(2 * place..2 * place + 2) {
        Some([high, low]) => high << 4 | low,
        _ => 0,
    };
    format!("10.{}.{}.{}", byte(0), byte(1), byte(2).clamp(1, 254))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_an_address_of_its_own() {
        assert_eq!(address("ff10a02b-0000-4000-8000-000000000000"), "10.255.16.160");
        assert_eq!(address("ff10002b-0000-4000-8000-000000000000"), "10.255.16.1");
        assert_eq!(address(""), "10.0.0.1");
    }
}
