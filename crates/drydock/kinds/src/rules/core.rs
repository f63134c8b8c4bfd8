//! Namespaces, nodes and leases.

use drydock_schema::{FieldError, FieldErrorKind};
use serde_json::{Value, json};

use super::{
    PLAIN, Rules, address, deprecated_annotations, in_order, is_annotated, not_supported, resources, showing,
};
use crate::{json, names, path::Path};

/// The label by which a namespace can be selected.
const NAME: &str = "kubernetes.io/metadata.name";

pub(crate) const NAMESPACE: Rules = Rules {
    default: default_namespace,
    create: create_namespace,
    update: |new, old| {
        // What holds a namespace is let go only through its own path.
        let finalizers = old["spec"].get("finalizers").cloned();
        if let (Some(finalizers), Some(spec)) = (finalizers, json::object_at(new, "spec")) {
            json::set(spec, "finalizers", finalizers);
        }
    },
    validate: |object, errors| {
        for finalizer in json::list(&object["spec"], "finalizers").iter().filter_map(Value::as_str) {
            let mut wrong = names::qualified_name(finalizer);
            if wrong.is_empty() && !finalizer.contains('/') && finalizer != "kubernetes" {
                wrong.push("name is neither a standard finalizer name nor is it fully qualified".to_owned());
            }
            errors.extend(wrong.into_iter().map(|m| FieldError::invalid("spec.finalizers", finalizer, m)));
        }
    },
    validate_status: |new, _, errors| {
        let phase = json::text(&new["status"], "phase");
        let deleted = new["metadata"].get("deletionTimestamp").is_some();
        if !deleted && phase != "Active" {
            let detail = "may only be 'Active' if `deletionTimestamp` is empty";
            errors.push(FieldError::invalid("status.Phase", phase, detail));
        } else if deleted && phase != "Terminating" {
            let detail = "may only be 'Terminating' if `deletionTimestamp` is not empty";
            errors.push(FieldError::invalid("status.Phase", phase, detail));
        }
    },
    ..PLAIN
};

fn default_namespace(object: &mut Value) {
    json::default(object, "spec", json!({}));
    if let Some(status) = json::object_at(object, "status") {
        json::default_text(status, "phase", "Active");
    }
    let name = json::text(&object["metadata"], "name").to_owned();
    if name.is_empty() {
        return;
    }
    if let Some(labels) =
        json::object_at(object, "metadata").and_then(|metadata| json::object_at(metadata, "labels"))
    {
        json::set(labels, NAME, name);
    }
}

/// Each namespace is held until it has been emptied.
fn create_namespace(object: &mut Value) {
    json::set(object, "status", json!({"phase": "Active"}));
    default_namespace(object);
    let Some(spec) = json::object_at(object, "spec") else { return };
    let mut finalizers = json::list(spec, "finalizers").to_vec();
    if !finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
        finalizers.push("kubernetes".into());
    }
    json::set(spec, "finalizers", finalizers);
}

/// What a node says about itself, or leaves empty.
const NODE_INFO: &[&str] = &[
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
];

pub(crate) const NODE: Rules = Rules {
    default: |object| {
        json::default(object, "spec", json!({}));
        if let Some(status) = json::object_at(object, "status") {
            if let Some(endpoint) = json::object_at(status, "daemonEndpoints")
                .and_then(|endpoints| json::object_at(endpoints, "kubeletEndpoint"))
            {
                json::default(endpoint, "Port", 0);
            }
            if let Some(info) = json::object_at(status, "nodeInfo") {
                for field in NODE_INFO {
                    json::default(info, field, "");
                }
            }
            for field in ["capacity", "allocatable"] {
                if let Some(list) = status.get_mut(field) {
                    resources::canonical(list);
                }
            }
            if let Some(capacity) = status.get("capacity").cloned() {
                json::default(status, "allocatable", capacity);
            }
        }
    },
    validate: taints,
    validate_update: |new, old, errors| {
        taints(new, errors);
        given_once(new, old, errors);
    },
    warnings: |object, _| node_warnings(object),
    ..PLAIN
};

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// What is wrong with a node's taints, which Kubernetes looks for among its metadata.
fn taints(node: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("metadata.taints");
    let mut seen = Vec::new();
    for (index, taint) in json::list(&node["spec"], "taints").iter().enumerate() {
        let at = path.index(index);
        let [key, value, effect] = ["key", "value", "effect"].map(|field| json::text(taint, field));
        errors.extend(
            names::qualified_name(key).into_iter().map(|m| FieldError::invalid(at.field("key"), key, m)),
        );
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            errors.push(FieldError::invalid(at.field("value"), value, wrong.join(";")));
        }
        if effect.is_empty() {
            errors.push(FieldError::required(at.field("effect"), ""));
        } else if !EFFECTS.contains(&effect) {
            errors.push(not_supported(at.field("effect"), effect, EFFECTS));
        }
        if seen.contains(&(key, effect)) {
            let detail = "taints must be unique by key and effect pair";
            let twice = FieldError::new(FieldErrorKind::Duplicate, at, Some(taint.clone()), detail);
            let texts = [key, value, effect].map(Value::from);
            let shown = in_order(&[
                ("Key", &texts[0]),
                ("Value", &texts[1]),
                ("Effect", &texts[2]),
                ("TimeAdded", &taint["timeAdded"]),
            ]);
            errors.push(showing(twice, shown));
        }
        seen.push((key, effect));
    }
}

/// What a node is given once it keeps.
fn given_once(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (new, old) = (&new["spec"], &old["spec"]);
    let (ranges, former) = (json::list(new, "podCIDRs"), json::list(old, "podCIDRs"));
    if !former.is_empty() && ranges != former {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.podCIDRs", detail));
    }
    let (provider, former) = (json::text(new, "providerID"), json::text(old, "providerID"));
    if !former.is_empty() && provider != former {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.providerID", detail));
    }
}

fn node_warnings(object: &Value) -> Vec<String> {
    let (spec, mut warnings) = (&object["spec"], Vec::new());
    if !spec["configSource"].is_null() {
        warnings.push("spec.configSource: the feature is removed".to_owned());
    }
    if !json::text(spec, "externalID").is_empty() {
        warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    let list = Path::new("spec.podCIDRs");
    for (index, range) in json::list(spec, "podCIDRs").iter().filter_map(Value::as_str).enumerate() {
        address::range_warnings(range, &list.index(index), &mut warnings);
    }
    warnings
}

/// The annotation that once kept the pods of an account from the Secrets that it does not list.
const ENFORCE_SECRETS: (&str, &str) = (
    "kubernetes.io/enforce-mountable-secrets",
    "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets",
);

pub(crate) const SERVICE_ACCOUNT: Rules = Rules {
    warnings: |new, old| {
        let mut warnings = Vec::new();
        if !old.is_some_and(|old| is_annotated(old, ENFORCE_SECRETS.0)) {
            deprecated_annotations(new, &[ENFORCE_SECRETS], &mut warnings);
        }
        warnings
    },
    ..PLAIN
};

pub(crate) const LEASE: Rules = Rules {
    default: |object| json::default(object, "spec", json!({})),
    validate: validate_lease,
    validate_update: |new, _, errors| validate_lease(new, errors),
    ..PLAIN
};

fn validate_lease(object: &Value, errors: &mut Vec<FieldError>) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    if let Some(seconds) = spec["leaseDurationSeconds"].as_i64()
        && seconds <= 0
    {
        errors.push(FieldError::invalid(
            path.field("leaseDurationSeconds"),
            seconds,
            "must be greater than 0",
        ));
    }
    super::not_negative(spec, "leaseTransitions", &path, errors);
    if !json::text(spec, "preferredHolder").is_empty() && json::text(spec, "strategy").is_empty() {
        let detail = "may only be specified if `strategy` is defined";
        errors.push(FieldError::forbidden(path.field("preferredHolder"), detail));
    }
}
