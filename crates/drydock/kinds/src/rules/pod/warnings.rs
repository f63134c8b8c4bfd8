//! What is not wrong with a pod, or a template of one, and yet worth saying.
//!
//! **Always holds:** the sentences and their order are Kubernetes' own; what it finds in a map comes in the order of
//! the keys. A pod that is changed is told nothing, as its template was when it was written.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{overlaps, ports};
use crate::{
    json, names,
    path::Path,
    rules::{address, is_annotated, node_labels, resources, storage},
};

/// Annotations that something once acted on.
const ANNOTATIONS: &[(&str, &str)] = &[
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        r#"non-functional in v1.16+; use the "priorityClassName" field instead"#,
    ),
    ("security.alpha.kubernetes.io/sysctls", r#"non-functional in v1.11+; use the "sysctls" field instead"#),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        r#"non-functional in v1.11+; use the "sysctls" field instead"#,
    ),
];
const POD_SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
const CONTAINER_SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";
const CONTAINER_APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Volumes of kinds that nothing mounts any more.
const VOLUMES: &[(&str, &str)] = &[
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Where a pod's containers are, in the order in which they are looked at.
pub(super) const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// What is worth saying about a pod that is new, and nothing about one that is changed.
pub(super) fn pod(pod: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    if old.is_some() {
        return warnings;
    }
    let (spec, metadata) = (Path::new("spec"), Path::new("metadata"));
    each_container(&pod["spec"], &spec, |container, _| {
        app_armor(pod, container, &metadata.field("annotations"), &mut warnings);
    });
    let wrong = names::dns_label(json::text(&pod["metadata"], "name"));
    if !wrong.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label \
             is recommended: [{}]",
            wrong.join(" ")
        ));
    }
    let place = Place { spec, metadata, is_template: false };
    of_pod_or_template(pod, &place, &mut warnings);
    warnings
}

/// What is worth saying about the addresses in a pod's status.
pub(super) fn status(pod: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let status = Path::new("status");
    for field in ["podIPs", "hostIPs"] {
        let list = status.field(field);
        for (index, address) in json::list(&pod["status"], field).iter().enumerate() {
            let at = list.index(index);
            address::warnings(json::text(address, "ip"), &at.field("ip"), &mut warnings);
        }
    }
    warnings
}

/// What is worth saying about a template at `path`.
pub(crate) fn template(template: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    let place = Place { spec: path.field("spec"), metadata: path.field("metadata"), is_template: true };
    of_pod_or_template(template, &place, warnings);
}

/// Where the parts of a pod or template are.
struct Place<'a> {
    spec: Path<'a>,
    metadata: Path<'a>,
    is_template: bool,
}

fn of_pod_or_template(pod: &Value, place: &Place<'_>, warnings: &mut Vec<String>) {
    let (spec, path) = (&pod["spec"], &place.spec);
    let annotations = place.metadata.field("annotations");
    node_labels_of(spec, path, warnings);
    for (name, message) in ANNOTATIONS.iter().filter(|(name, _)| is_annotated(pod, name)) {
        warnings.push(format!("{}: {message}", annotations.key(name)));
    }
    volumes(json::list(spec, "volumes"), &path.field("volumes"), warnings);
    overlaps::warnings(json::list(spec, "volumes"), warnings);
    repeated(spec, path, "hostAliases", "ip", warnings);
    repeated(spec, path, "imagePullSecrets", "name", warnings);
    empty_names(json::list(spec, "imagePullSecrets"), &path.field("imagePullSecrets"), warnings);
    for name in ["memory", "ephemeral-storage"] {
        resources::warn_of_fraction(&spec["overhead"], name, &path.field("overhead"), warnings);
    }
    if spec["securityContext"]["seccompProfile"].is_null() {
        warn_of_seccomp(pod, POD_SECCOMP, &annotations, warnings);
    }
    each_container(spec, path, |container, at| {
        self::container(pod, container, place, &annotations, at, warnings);
    });
    ports::warnings(spec, path, warnings);
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        let at = path.field("terminationGracePeriodSeconds");
        warnings.push(format!("{at}: must be >= 0; negative values are invalid and will be treated as 1"));
    }
    pod_affinity(&spec["affinity"], &path.field("affinity"), warnings);
    addresses(spec, path, warnings);
}

/// Calls `visit` with each container and where it is.
pub(super) fn each_container<'a>(
    spec: &'a Value,
    path: &Path<'_>,
    mut visit: impl FnMut(&'a Value, &Path<'_>),
) {
    for field in CONTAINERS {
        let list = path.field(field);
        for (index, container) in json::list(spec, field).iter().enumerate() {
            visit(container, &list.index(index));
        }
    }
}

fn annotation<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    pod["metadata"]["annotations"].get(name).and_then(Value::as_str)
}

fn node_labels_of(spec: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    let at = path.field("nodeSelector");
    let labels: BTreeSet<_> =
        json::map(spec, "nodeSelector").into_iter().flat_map(|map| map.keys()).collect();
    for label in labels {
        if let Some(message) = node_labels::deprecation(label) {
            warnings.push(format!("{}: {message}", at.key(label)));
        }
    }
    let (affinity, at) = (&spec["affinity"]["nodeAffinity"], path.field("affinity"));
    let at = at.field("nodeAffinity");
    let field = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = json::list(&affinity[field], "nodeSelectorTerms");
    node_labels::required_terms(terms, &at.field(field).field("nodeSelectorTerms"), warnings);
    let field = "preferredDuringSchedulingIgnoredDuringExecution";
    let list = at.field(field);
    for (index, preferred) in json::list(affinity, field).iter().enumerate() {
        let at = list.index(index);
        node_labels::term(&preferred["preference"], true, &at.field("preference"), warnings);
    }
    let list = path.field("topologySpreadConstraints");
    for (index, constraint) in json::list(spec, "topologySpreadConstraints").iter().enumerate() {
        let (at, key) = (list.index(index), json::text(constraint, "topologyKey"));
        if let Some(message) = node_labels::deprecation(key) {
            warnings.push(format!("{}: {key} is {message}", at.field("topologyKey")));
        }
        warn_of_no_selector(constraint, &at, warnings);
    }
}

/// Without a selector nothing is selected, which few expect.
fn warn_of_no_selector(term: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    if term["labelSelector"].is_null() {
        let at = path.field("labelSelector");
        warnings.push(format!("{at}: a null labelSelector results in matching no pod"));
    }
}

fn pod_affinity(affinity: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    for side in ["podAffinity", "podAntiAffinity"] {
        let at = path.field(side);
        let field = "requiredDuringSchedulingIgnoredDuringExecution";
        let list = at.field(field);
        for (index, term) in json::list(&affinity[side], field).iter().enumerate() {
            warn_of_no_selector(term, &list.index(index), warnings);
        }
        let field = "preferredDuringSchedulingIgnoredDuringExecution";
        let list = at.field(field);
        for (index, term) in json::list(&affinity[side], field).iter().enumerate() {
            let at = list.index(index);
            warn_of_no_selector(&term["podAffinityTerm"], &at.field("podAffinityTerm"), warnings);
        }
    }
}

fn volumes(volumes: &[Value], path: &Path<'_>, warnings: &mut Vec<String>) {
    for (index, volume) in volumes.iter().enumerate() {
        let at = path.index(index);
        storage::deprecated_sources(volume, VOLUMES, &at, warnings);
        let claim = &volume["ephemeral"]["volumeClaimTemplate"]["spec"];
        let at = at.field("ephemeral");
        storage::claim_warnings(claim, &at.field("volumeClaimTemplate").field("spec"), warnings);
    }
}

/// Items of a list that have the `key` of one before them.
fn repeated(spec: &Value, path: &Path<'_>, list: &str, key: &str, warnings: &mut Vec<String>) {
    let at = path.field(list);
    let mut seen = BTreeSet::new();
    for (index, item) in json::list(spec, list).iter().enumerate() {
        let value = json::text(item, key);
        if !seen.insert(value) {
            warnings.push(format!("{}: duplicate {key} {value:?}", at.index(index).field(key)));
        }
    }
}

fn empty_names(secrets: &[Value], path: &Path<'_>, warnings: &mut Vec<String>) {
    for (index, secret) in secrets.iter().enumerate() {
        if json::text(secret, "name").is_empty() {
            warnings.push(format!("{}: invalid empty name \"\"", path.index(index).field("name")));
        }
    }
}

fn container(
    pod: &Value,
    container: &Value,
    place: &Place<'_>,
    annotations: &Path<'_>,
    path: &Path<'_>,
    warnings: &mut Vec<String>,
) {
    if container["securityContext"]["seccompProfile"].is_null() {
        let name = format!("{CONTAINER_SECCOMP}{}", json::text(container, "name"));
        warn_of_seccomp(pod, &name, annotations, warnings);
    }
    // A pod is told first of all.
    if place.is_template {
        app_armor(pod, container, annotations, warnings);
    }
    let at = path.field("resources");
    for name in ["memory", "ephemeral-storage"] {
        for list in ["limits", "requests"] {
            resources::warn_of_fraction(&container["resources"][list], name, &at.field(list), warnings);
        }
    }
    environment(json::list(container, "env"), &path.field("env"), warnings);
}

fn warn_of_seccomp(pod: &Value, name: &str, annotations: &Path<'_>, warnings: &mut Vec<String>) {
    if is_annotated(pod, name) {
        let at = annotations.key(name);
        warnings.push(format!(r#"{at}: non-functional in v1.27+; use the "seccompProfile" field instead"#));
    }
}

/// An annotation that says what the pod says too is as good as none.
fn app_armor(pod: &Value, container: &Value, annotations: &Path<'_>, warnings: &mut Vec<String>) {
    if !container["securityContext"]["appArmorProfile"].is_null() {
        return;
    }
    let name = format!("{CONTAINER_APP_ARMOR}{}", json::text(container, "name"));
    let Some(wanted) = annotation(pod, &name) else { return };
    let profile = &pod["spec"]["securityContext"]["appArmorProfile"];
    let same = match json::text(profile, "type") {
        "Unconfined" => wanted == "unconfined",
        "RuntimeDefault" => wanted == "runtime/default",
        "Localhost" => wanted.strip_prefix("localhost/") == profile["localhostProfile"].as_str(),
        _ => false,
    };
    if !same {
        let at = annotations.key(&name);
        warnings.push(format!(r#"{at}: deprecated since v1.30; use the "appArmorProfile" field instead"#));
    }
}

/// Variables that are there before, and not taken up in the new value.
fn environment(variables: &[Value], path: &Path<'_>, warnings: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, variable) in variables.iter().enumerate() {
        let (name, value) = (json::text(variable, "name"), json::text(variable, "value"));
        if seen.insert(name) {
            continue;
        }
        let reference = format!("$({name})");
        let hides = !variable["valueFrom"].is_null() || value == reference || !value.contains(&reference);
        if hides {
            let at = path.index(index);
            warnings.push(format!(
                "{at}: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}

fn addresses(spec: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    let (at, list) = (path.field("dnsConfig"), json::list(&spec["dnsConfig"], "nameservers"));
    let at = at.field("nameservers");
    for (index, server) in list.iter().filter_map(Value::as_str).enumerate() {
        address::warnings(server, &at.index(index), warnings);
    }
    let list = path.field("hostAliases");
    for (index, alias) in json::list(spec, "hostAliases").iter().enumerate() {
        let at = list.index(index);
        address::warnings(json::text(alias, "ip"), &at.field("ip"), warnings);
    }
}
