//! The pod of one node.

use serde_json::{Value, json};

use crate::machinery::cache::Kind;
use crate::objects::daemon::{DaemonSet, REVISION};
use crate::objects::meta::OwnerReference;
use crate::objects::placement::Toleration;
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

fn tolerated() -> Vec<Value> {
    let one = |[key, effect]: [&str; 2]| json!({ "key": key, "operator": "Exists", "effect": effect });
    TOLERATED.map(one).to_vec()
}

/// The same, as they are decided on.
pub fn tolerations() -> Vec<Toleration> {
    serde_json::from_value(tolerated().into()).unwrap_or_default()
}

/// The node that a pod is for: where it is, or the one that it waits for.
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
    let mut template = set.spec.template.value();
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
    let spec = &mut template["spec"];
    let mut all = spec["tolerations"].as_array().cloned().unwrap_or_default();
    all.extend(tolerated());
    if spec["hostNetwork"] == true {
        let network = "node.kubernetes.io/network-unavailable";
        all.push(json!({ "key": network, "operator": "Exists", "effect": "NoSchedule" }));
    }
    spec["tolerations"] = all.into();
    let field = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
    spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({ "nodeSelectorTerms": [{ "matchFields": [field] }] });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec.take() })
}
