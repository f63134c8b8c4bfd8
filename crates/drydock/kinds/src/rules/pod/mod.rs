//! Pods, and the templates of pods in other kinds.

mod container;
mod defaults;
mod network;
mod overlaps;
mod own_labels;
mod placement;
mod ports;
mod security;
mod update;
mod validate;
mod volume;
mod warnings;

use serde_json::{Value, json};

use super::{PLAIN, Rules, resources};
use crate::json;
pub(crate) use defaults::template as default_template;
pub(crate) use placement::node_selector as validate_node_selector;
pub(crate) use update::ephemeral as validate_ephemeral;
pub(crate) use validate::template as validate_template;
pub(crate) use volume::host_path as validate_host_path;
pub(crate) use warnings::template as template_warnings;

/// Fields that pods can be selected by.
pub(crate) const FIELDS: &[&str] = &[
    "spec.hostNetwork",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.nominatedNodeName",
    "status.phase",
    "status.podIP",
    "status.podIPs",
];

pub(crate) const POD: Rules = Rules {
    default: defaults::pod,
    create,
    status,
    validate: validate::pod,
    validate_update: update::validate,
    warnings: warnings::pod,
    status_warnings: warnings::status,
    grace,
    ..PLAIN
};

/// The value of a selectable field.
pub(crate) fn field(field: &str, pod: &Value) -> String {
    match field {
        "spec.hostNetwork" => pod["spec"]["hostNetwork"].as_bool().unwrap_or_default().to_string(),
        "status.podIPs" => json::text(&pod["status"], "podIP").to_owned(),
        _ => json::text_at(pod, field),
    }
}

/// What the server and its admission say about a new pod: its first status, its service account, its
/// priority, and how long it stays on a node that went away.
fn create(pod: &mut Value) {
    let class = quality_of_service(&pod["spec"]);
    json::set(pod, "status", json!({"phase": "Pending", "qosClass": class}));
    let Some(spec) = pod.get_mut("spec") else { return };
    json::default_text(spec, "serviceAccountName", "default");
    let account = json::text(spec, "serviceAccountName").to_owned();
    json::set(spec, "serviceAccount", account);
    json::default(spec, "priority", 0);
    json::default_text(spec, "preemptionPolicy", "PreemptLowerPriority");
    tolerate(spec);
    let gated = !json::list(spec, "schedulingGates").is_empty();
    own_labels::apply(pod);
    if gated {
        let gated = json!([{
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
        json::set(&mut pod["status"], "conditions", gated);
    }
}

/// A pod stays for five minutes on a node that is not ready or can't be reached, unless it says
/// otherwise.
fn tolerate(spec: &mut Value) {
    let mut tolerations = json::list(spec, "tolerations").to_vec();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covered = tolerations.iter().any(|toleration| {
            let effect = json::text(toleration, "effect");
            let named = json::text(toleration, "key");
            (named == key || named.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !covered {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
    json::set(spec, "tolerations", tolerations);
}

/// The status may not change who owns the pod, and its class is kept where it is not said.
fn status(new: &mut Value, old: &Value) {
    let owners = old["metadata"].get("ownerReferences").cloned();
    if let Some(metadata) = new.get_mut("metadata") {
        match owners {
            Some(owners) => json::set(metadata, "ownerReferences", owners),
            None => {
                json::remove(metadata, "ownerReferences");
            }
        }
    }
    let class = json::text(&old["status"], "qosClass").to_owned();
    if let Some(status) = new.get_mut("status")
        && !class.is_empty()
    {
        json::default_text(status, "qosClass", &class);
    }
}

/// Guaranteed when every container asks for exactly what it may have, best effort when none asks.
fn quality_of_service(spec: &Value) -> &'static str {
    let mut any = false;
    let mut guaranteed = true;
    for container in json::list(spec, "containers").iter().chain(json::list(spec, "initContainers")) {
        let resources = &container["resources"];
        for resource in ["cpu", "memory"] {
            let request = resources::get(&resources["requests"], resource);
            let limit = resources::get(&resources["limits"], resource);
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// A pod that no node has taken is gone at once, and so is one that is over.
fn grace(pod: &Value, wanted: Option<i64>) -> Option<i64> {
    let scheduled = !json::text(&pod["spec"], "nodeName").is_empty();
    let over = matches!(json::text(&pod["status"], "phase"), "Succeeded" | "Failed");
    if !scheduled || over {
        return Some(0);
    }
    let own = || pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    let period = wanted.unwrap_or_else(own);
    Some(if period < 0 { 1 } else { period })
}
