//! The columns of nodes.

use serde_json::Value;

use super::{
    AGE,
    About::{Field, Said},
    NAME, Printer, age,
    core::or_none,
    name, text, wide,
};
use crate::{json, meta};

pub(crate) const NODE: Printer = Printer {
    columns: &[
        NAME,
        text("Status", Said("The status of the node")),
        text("Roles", Said("The roles of the node")),
        AGE,
        text("Version", Field("io.k8s.api.core.v1.NodeSystemInfo", "kubeletVersion")),
        wide(text("Internal-IP", Field("io.k8s.api.core.v1.NodeStatus", "addresses"))),
        wide(text("External-IP", Field("io.k8s.api.core.v1.NodeStatus", "addresses"))),
        wide(text("OS-Image", Field("io.k8s.api.core.v1.NodeSystemInfo", "osImage"))),
        wide(text("Kernel-Version", Field("io.k8s.api.core.v1.NodeSystemInfo", "kernelVersion"))),
        wide(text(
            "Container-Runtime",
            Field("io.k8s.api.core.v1.NodeSystemInfo", "containerRuntimeVersion"),
        )),
    ],
    cells: |node, now| {
        let info = &node["status"]["nodeInfo"];
        let known = |field: &str| match json::text(info, field) {
            "" => "<unknown>",
            value => value,
        };
        vec![
            name(node),
            status(node).into(),
            or_none(roles(node)).into(),
            age(node, now),
            json::text(info, "kubeletVersion").into(),
            or_none(address(node, "InternalIP")).into(),
            or_none(address(node, "ExternalIP")).into(),
            known("osImage").into(),
            known("kernelVersion").into(),
            known("containerRuntimeVersion").into(),
        ]
    },
};

fn status(node: &Value) -> String {
    let ready = json::list(&node["status"], "conditions").iter().find(|c| json::text(c, "type") == "Ready");
    let mut status = match ready.map(|condition| json::text(condition, "status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node["spec"]["unschedulable"].as_bool() == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn roles(node: &Value) -> String {
    let mut roles: Vec<_> = meta::labels(node)
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => Some(role),
            _ => (key == "kubernetes.io/role" && !value.is_empty()).then_some(value),
        })
        .collect();
    roles.sort_unstable();
    roles.dedup();
    roles.join(",")
}

fn address(node: &Value, kind: &str) -> String {
    json::list(&node["status"], "addresses")
        .iter()
        .find(|address| json::text(address, "type") == kind)
        .map(|address| json::text(address, "address").to_owned())
        .unwrap_or_default()
}
