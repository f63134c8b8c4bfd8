//! What is wrong with a pod, or a template of one.

use drydock_schema::FieldError;
use serde_json::Value;

use super::{container, network, placement, security, volume};
use crate::{
    json, meta,
    names::{self, out_of_range},
    path::Path,
    rules::{not_supported, resources},
};

/// What is wrong with a new pod.
pub(super) fn pod(pod: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
    spec_of_pod(&pod["spec"], &path, errors);
    let spec = &pod["spec"];
    if !json::list(spec, "ephemeralContainers").is_empty() {
        errors.push(FieldError::forbidden(path.field("ephemeralContainers"), "cannot be set on create"));
    }
    if !json::text(spec, "nodeName").is_empty() && !json::list(spec, "schedulingGates").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden(path.field("nodeName"), detail));
    }
}

/// What is wrong with the specification of a pod, new or changed.
pub(super) fn spec_of_pod(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    self::spec(spec, false, path, errors);
    for field in ["containers", "initContainers"] {
        let list = path.field(field);
        for (index, container) in json::list(spec, field).iter().enumerate() {
            container::image_without_blanks(container, &list.index(index), errors);
        }
    }
}

/// What is wrong with a template at `path`.
pub(crate) fn template(template: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    meta::validate_labels(json::map(&template["metadata"], "labels"), &path.field("labels"), errors);
    meta::validate_annotations(&template["metadata"], &path.field("annotations"), errors);
    let at = path.field("spec");
    spec(&template["spec"], true, &at, errors);
    if !json::list(&template["spec"], "ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.push(FieldError::forbidden(at.field("ephemeralContainers"), detail));
    }
}

/// What is wrong with a specification at `path`, of a pod or in a template.
fn spec(spec: &Value, template: bool, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let volumes = volume::validate(json::list(spec, "volumes"), &path.field("volumes"), errors);
    container::validate(json::list(spec, "containers"), &volumes, &path.field("containers"), errors);
    container::validate_init(spec, &volumes, path, errors);
    container::validate_ephemeral(spec, &volumes, path, errors);
    resources::validate(&spec["resources"], resources::Owner::Pod, &path.field("resources"), errors);
    network::host_network(spec, template, path, errors);
    one_of(spec, path, "restartPolicy", &["Always", "OnFailure", "Never"], errors);
    one_of(spec, path, "dnsPolicy", &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"], errors);
    meta::validate_labels(json::map(spec, "nodeSelector"), &path.field("nodeSelector"), errors);
    security::validate_pod(spec, &path.field("securityContext"), errors);
    placement::affinity(&spec["affinity"], &path.field("affinity"), errors);
    network::dns(spec, &path.field("dnsConfig"), errors);
    readiness_gates(json::list(spec, "readinessGates"), &path.field("readinessGates"), errors);
    placement::gates(json::list(spec, "schedulingGates"), &path.field("schedulingGates"), errors);
    placement::spread(
        json::list(spec, "topologySpreadConstraints"),
        &path.field("topologySpreadConstraints"),
        errors,
    );
    named(spec, path, "serviceAccountName", names::dns_subdomain, errors);
    named(spec, path, "nodeName", names::dns_subdomain, errors);
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64()
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let at = path.field("activeDeadlineSeconds");
        errors.push(FieldError::invalid(at, seconds, out_of_range(1, i64::from(i32::MAX))));
    }
    named(spec, path, "hostname", names::dns_label, errors);
    named(spec, path, "subdomain", names::dns_label, errors);
    placement::tolerations(json::list(spec, "tolerations"), &path.field("tolerations"), errors);
    network::aliases(json::list(spec, "hostAliases"), &path.field("hostAliases"), errors);
    named(spec, path, "priorityClassName", names::dns_subdomain, errors);
    named(spec, path, "runtimeClassName", names::dns_subdomain, errors);
    let policies = ["Never", "PreemptLowerPriority"];
    if let Some(policy) = spec["preemptionPolicy"].as_str().filter(|policy| !policies.contains(policy)) {
        errors.push(not_supported(path.field("preemptionPolicy"), policy, &policies));
    }
    if spec["overhead"].is_object() {
        let overhead = serde_json::json!({"limits": spec["overhead"]});
        resources::validate(&overhead, resources::Owner::Container, &path.field("overhead"), errors);
    }
    if spec["os"].is_object() {
        match json::text(&spec["os"], "name") {
            "" => errors.push(FieldError::required(path.field("os").field("name"), "")),
            "linux" | "windows" => {}
            other => errors.push(not_supported(path.field("os"), other, &["linux", "windows"])),
        }
    }
}

fn readiness_gates(gates: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (index, gate) in gates.iter().enumerate() {
        let kind = json::text(gate, "conditionType");
        for message in names::qualified_name(kind) {
            errors.push(FieldError::invalid(path.index(index).field("conditionType"), kind, message));
        }
    }
}

fn one_of(spec: &Value, path: &Path<'_>, field: &str, supported: &[&str], errors: &mut Vec<FieldError>) {
    let value = json::text(spec, field);
    if value.is_empty() {
        errors.push(FieldError::required(path.field(field), ""));
    } else if !supported.contains(&value) {
        errors.push(not_supported(path.field(field), value, supported));
    }
}

fn named(
    spec: &Value,
    path: &Path<'_>,
    field: &str,
    rule: fn(&str) -> Vec<String>,
    errors: &mut Vec<FieldError>,
) {
    let value = json::text(spec, field);
    if value.is_empty() {
        return;
    }
    errors.extend(
        rule(value).into_iter().map(|message| FieldError::invalid(path.field(field), value, message)),
    );
}
