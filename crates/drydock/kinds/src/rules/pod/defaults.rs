//! What a pod, or a template of one, has when nothing was said.

use serde_json::{Value, json};

use crate::{json, rules::resources};

/// The defaults of a pod, beyond those of its specification.
pub(super) fn pod(pod: &mut Value) {
    let Some(spec) = json::object_at(pod, "spec") else { return };
    pod_spec(spec);
    for field in ["containers", "initContainers"] {
        for container in json::list_mut(spec, field) {
            resources::requests_from_limits(container);
        }
    }
    json::default(spec, "enableServiceLinks", true);
    // A template keeps what it says; no pod can be waited for that long.
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        json::set(spec, "terminationGracePeriodSeconds", 1);
    }
    if spec["hostNetwork"].as_bool() == Some(true) {
        for field in ["containers", "initContainers"] {
            json::list_mut(spec, field).iter_mut().for_each(host_ports);
        }
    }
}

/// The defaults of a `PodSpec`, in pods and in templates.
pub(crate) fn pod_spec(spec: &mut Value) {
    json::default_text(spec, "dnsPolicy", "ClusterFirst");
    json::default_text(spec, "restartPolicy", "Always");
    json::default(spec, "securityContext", json!({}));
    json::default(spec, "terminationGracePeriodSeconds", 30);
    json::default_text(spec, "schedulerName", "default-scheduler");
    same_service_account(spec);
    if let Some(overhead) = spec.get_mut("overhead") {
        resources::canonical(overhead);
    }
    for volume in json::list_mut(spec, "volumes") {
        default_volume(volume);
    }
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        for container in json::list_mut(spec, field) {
            default_container(container);
        }
    }
}

/// The defaults of a template, whose specification may be missing.
pub(crate) fn template(template: &mut Value) {
    if let Some(spec) = json::object_at(template, "spec") {
        pod_spec(spec);
    }
}

/// The old name of the field is kept beside the new one.
fn same_service_account(spec: &mut Value) {
    let name = json::text(spec, "serviceAccountName").to_owned();
    let old = json::text(spec, "serviceAccount").to_owned();
    match (name.is_empty(), old.is_empty()) {
        (false, _) => json::set(spec, "serviceAccount", name),
        (true, false) => json::set(spec, "serviceAccountName", old),
        (true, true) => {}
    }
}

fn host_ports(container: &mut Value) {
    for port in json::list_mut(container, "ports") {
        if let Some(number) = port.get("containerPort").and_then(Value::as_i64) {
            json::default_number(port, "hostPort", number);
        }
    }
}

fn default_container(container: &mut Value) {
    let policy = pull_policy(json::text(container, "image"));
    json::default_text(container, "imagePullPolicy", policy);
    json::default_text(container, "terminationMessagePath", "/dev/termination-log");
    json::default_text(container, "terminationMessagePolicy", "File");
    json::default(container, "resources", json!({}));
    if let Some(resources) = container.get_mut("resources") {
        resources::canonical_requirements(resources);
    }
    for port in json::list_mut(container, "ports") {
        json::default_text(port, "protocol", "TCP");
    }
    for variable in json::list_mut(container, "env") {
        if let Some(source) = variable.get_mut("valueFrom") {
            default_reference(source);
        }
    }
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(field) {
            default_probe(probe);
        }
    }
    if let Some(lifecycle) = container.get_mut("lifecycle") {
        for field in ["postStart", "preStop"] {
            if let Some(handler) = lifecycle.get_mut(field) {
                default_http_get(handler);
            }
        }
    }
}

/// A moving tag is looked for each time, a fixed one is not.
fn pull_policy(image: &str) -> &'static str {
    let (reference, digest) =
        image.split_once('@').map_or((image, false), |(reference, _)| (reference, true));
    let last = reference.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, "latest")) => "Always",
        None if !digest => "Always",
        _ => "IfNotPresent",
    }
}

fn default_probe(probe: &mut Value) {
    for (field, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        json::default_number(probe, field, value);
    }
    default_http_get(probe);
    if let Some(grpc) = probe.get_mut("grpc") {
        json::default(grpc, "service", "");
    }
}

fn default_http_get(handler: &mut Value) {
    if let Some(get) = handler.get_mut("httpGet") {
        json::default_text(get, "path", "/");
        json::default_text(get, "scheme", "HTTP");
    }
}

/// A field of the pod, or an amount of a container, that is read from the outside.
fn default_reference(source: &mut Value) {
    if let Some(field) = source.get_mut("fieldRef") {
        json::default_text(field, "apiVersion", "v1");
    }
    if let Some(resource) = source.get_mut("resourceFieldRef") {
        json::default(resource, "divisor", "0");
    }
}

fn default_volume(volume: &mut Value) {
    if volume.as_object().is_some_and(|fields| fields.keys().all(|name| name == "name")) {
        json::set(volume, "emptyDir", json!({}));
    }
    for field in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(field) {
            json::default(source, "defaultMode", 0o644);
        }
    }
    if let Some(source) = volume.get_mut("hostPath") {
        json::default(source, "type", "");
    }
    if let Some(source) = volume.get_mut("downwardAPI") {
        json::list_mut(source, "items").iter_mut().for_each(default_reference);
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in json::list_mut(projected, "sources") {
            if let Some(token) = source.get_mut("serviceAccountToken") {
                json::default(token, "expirationSeconds", 3600);
            }
            if let Some(downward) = source.get_mut("downwardAPI") {
                json::list_mut(downward, "items").iter_mut().for_each(default_reference);
            }
        }
    }
    let claim = volume.get_mut("ephemeral").and_then(|source| source.get_mut("volumeClaimTemplate"));
    if let Some(claim) = claim {
        json::default(claim, "metadata", json!({}));
        if let Some(spec) = claim.get_mut("spec") {
            crate::rules::storage::default_claim_spec(spec);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moving_tag_is_pulled_each_time() {
        for (image, expected) in [
            ("memcached", "Always"),
            ("memcached:latest", "Always"),
            ("memcached:1.6", "IfNotPresent"),
            ("localhost:5000/memcached", "Always"),
            ("localhost:5000/memcached:1.6", "IfNotPresent"),
            ("memcached@sha256:abc", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), expected, "{image}");
        }
    }
}
