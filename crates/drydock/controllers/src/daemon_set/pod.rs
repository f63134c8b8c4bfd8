//! The pod of one node.

use serde_json::{Value, json};

use crate::machinery::cache::Kind;
use crate::objects::daemon::{DaemonSet, REVISION};
use crate::objects::meta::OwnerReference;
use crate::objects::pod::Pod;

/// The annotation of a set that counts its templates, and the label of pods that says the same.
const GENERATION: [&str; 2] = ["deprecated.daemonset.template.generation", "pod-template-generation"];

/// What does not keep such a pod from a node: taint and effect.
const TOLERATED: [[&str; 2]; 6] = [
    ["node.kubernetes.io/not-ready", "NoExecute"],
    ["node.kubernetes.io/unreachable", "NoExecute"],
    ["node.kubernetes.io/disk-pressure", "NoSchedule"],
    ["node.kubernetes.io/memory-pressure", "NoSchedule"],
    ["node.kubernetes.io/pid-pressure", "NoSchedule"],
    ["node.kubernetes.io/unschedulable", "NoSchedule"],
];

/// What does not keep one that is in its node's own network.
const IN_THE_HOSTS_NETWORK: [&str; 2] = ["node.kubernetes.io/network-unavailable", "NoSchedule"];

/// What each pod of a set is: what the template says, with the tolerations that such pods have. One of its own about the
/// same taint gives way, with the time that it may have.
pub fn spec(set: &DaemonSet) -> Value {
    let mut spec = set.spec.template.value()["spec"].take();
    let mut all = spec["tolerations"].as_array().cloned().unwrap_or_default();
    let in_the_hosts = (spec["hostNetwork"] == true).then_some(IN_THE_HOSTS_NETWORK);
    for [key, effect] in TOLERATED.into_iter().chain(in_the_hosts) {
        let toleration = json!({ "key": key, "operator": "Exists", "effect": effect });
        let about = |one: &Value| {
            ["key", "operator", "value", "effect"].map(|it| one[it].as_str().unwrap_or("").to_owned())
        };
        let same: Vec<_> = all.iter_mut().filter(|one| about(one) == about(&toleration)).collect();
        if same.is_empty() {
            all.push(toleration);
        } else {
            same.into_iter().for_each(|one| *one = toleration.clone());
        }
    }
    spec["tolerations"] = all.into();
    spec
}

/// The node that a pod is for: where it is, or the one that it waits for; empty if it says none.
pub fn target(pod: &Pod) -> &str {
    if !pod.spec.node_name.is_empty() {
        return &pod.spec.node_name;
    }
    let placement = pod.spec.placement.as_ref();
    let required = placement.and_then(|placement| placement.affinity.node_affinity.required.as_ref());
    let terms = required.into_iter().flat_map(|required| &required.node_selector_terms);
    let mut fields = terms.flat_map(|term| &term.match_fields);
    let field = fields.find(|field| &*field.key == "metadata.name");
    field.and_then(|field| field.values.first()).map_or("", |name| name)
}

/// The pod of a node, as JSON: the template with a name to be made, bound to the node by its affinity.
pub fn body(set: &DaemonSet, node: &str) -> Value {
    let template = set.spec.template.value();
    let mut metadata = json!({
        "generateName": format!("{}-", set.metadata.name),
        "ownerReferences": [OwnerReference::to_controller(DaemonSet::resource(), &set.metadata)],
    });
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(field).filter(|value| !value.is_null()) {
            metadata[field] = value.clone();
        }
    }
    metadata["labels"][REVISION] = set.hash().into();
    if let Some(generation) = set.metadata.annotations.get(GENERATION[0]) {
        metadata["labels"][GENERATION[1]] = generation.into();
    }
    let mut spec = spec(set);
    let field = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
    spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({ "nodeSelectorTerms": [{ "matchFields": [field] }] });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec })
}
