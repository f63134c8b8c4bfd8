//! What a node does for pods, as far as an operator can see it, without running anything.
//!
//! There is one node, with room for everything. A pod that is given to it is soon ready, and is gone once it is told
//! to go. Only where an image's tag is [`NO_SUCH_TAG`] it never starts, as with a version that does not exist.

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::ObjectMeta,
    runtime::watcher,
};
use serde_json::{Value, json};

use crate::clock::VirtualClock;

/// The tag of images that can't be pulled.
pub const NO_SUCH_TAG: &str = "no-such-version";

/// The node that all pods are on.
const NODE: &str = "stand-in";
const MANAGER: &str = "kubelet";

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

/// Does what a node does, for ever.
pub(crate) async fn run(client: Client, clock: VirtualClock) {
    let pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default());
    pin_mut!(pods);
    while let Some(event) = pods.next().await {
        if let Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) = event {
            // A pod that changed or went meanwhile comes by the watch once more.
            let _ = attend(&client, &clock, &pod).await;
        }
    }
}

async fn attend(client: &Client, clock: &VirtualClock, pod: &Pod) -> Result<(), kube::Error> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let api: Api<Pod> =
        Api::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default());
    let assigned = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    if pod.metadata.deletion_timestamp.is_some() {
        let uid = pod.metadata.uid.clone();
        let how = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid, resource_version: None }),
            ..DeleteParams::default()
        };
        api.delete(name, &how).await?;
    } else if assigned && pod.status.as_ref().is_none_or(|status| status.start_time.is_none()) {
        let how = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        api.patch_status(name, &how, &Patch::Strategic(status(pod, &clock.timestamp().to_string()))).await?;
    }
    Ok(())
}

/// The status of a pod that was just started.
fn status(pod: &Pod, now: &str) -> Value {
    let containers: Vec<Value> = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .map(|container| {
            let image = container.image.clone().unwrap_or_default();
            let up = !image.ends_with(&format!(":{NO_SUCH_TAG}"));
            let state = if up {
                json!({"running": {"startedAt": now}})
            } else {
                json!({"waiting": {"reason": "ImagePullBackOff", "message": "there is no such image"}})
            };
            json!({
                "name": container.name, "image": image, "imageID": image, "ready": up, "started": up,
                "restartCount": 0, "state": state
            })
        })
        .collect();
    let up = containers.iter().all(|container| container["ready"] == true);
    let condition = |type_: &str, met: bool| json!({"type": type_, "status": if met { "True" } else { "False" }, "lastTransitionTime": now});
    let address = address(pod.metadata.uid.as_deref().unwrap_or_default());
    json!({"status": {
        "phase": if up { "Running" } else { "Pending" },
        "startTime": now,
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
