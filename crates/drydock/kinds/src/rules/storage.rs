//! Claims, volumes and storage classes.

use drydock_schema::{FieldError, FieldErrorKind};
use serde_json::{Value, json};

use super::{
    PLAIN, Rules, deprecated_annotations, immutable, in_order, node_labels, not_supported, pod, resources,
    selector, showing,
};
use crate::{json, names, path::Path, quantity::Quantity};

pub(crate) const CLAIM: Rules = Rules {
    default: default_claim,
    create: |object| {
        json::set(object, "status", json!({"phase": "Pending"}));
        if let Some(spec) = object.get_mut("spec") {
            same_data_sources(spec);
        }
    },
    update: |new, _| {
        if let Some(spec) = new.get_mut("spec") {
            same_data_sources(spec);
        }
    },
    validate: |object, errors| validate_claim_spec(&object["spec"], &Path::new("spec"), errors),
    validate_update: update_claim,
    validate_status: |new, _, errors| {
        let path = Path::new("status");
        let at = path.field("capacity");
        for (name, amount) in json::map(&new["status"], "capacity").into_iter().flatten() {
            basic(amount, &at.key(name), errors);
        }
    },
    warnings: |object, _| {
        let mut warnings = Vec::new();
        deprecated_annotations(object, &[CLASS_ANNOTATION], &mut warnings);
        claim_warnings(&object["spec"], &Path::new("spec"), &mut warnings);
        warnings
    },
    ..PLAIN
};

pub(crate) const VOLUME: Rules = Rules {
    default: |object| {
        if let Some(status) = json::object_at(object, "status") {
            json::default_text(status, "phase", "Pending");
        }
        if let Some(spec) = json::object_at(object, "spec") {
            json::default_text(spec, "persistentVolumeReclaimPolicy", "Retain");
            json::default(spec, "volumeMode", "Filesystem");
            if let Some(capacity) = spec.get_mut("capacity") {
                resources::canonical(capacity);
            }
            if let Some(source) = spec.get_mut("hostPath") {
                json::default(source, "type", "");
            }
        }
    },
    create: |object| json::set(object, "status", json!({"phase": "Pending"})),
    validate: validate_volume,
    validate_update: update_volume,
    warnings: |object, _| volume_warnings(object),
    ..PLAIN
};

pub(crate) const CLASS: Rules = Rules {
    default: |object| {
        json::default(object, "reclaimPolicy", "Delete");
        json::default(object, "volumeBindingMode", "Immediate");
    },
    validate: |object, errors| {
        let provisioner = json::text(object, "provisioner");
        if provisioner.is_empty() {
            errors.push(FieldError::required("provisioner", ""));
        } else {
            let lower = provisioner.to_lowercase();
            let wrong = names::qualified_name(&lower);
            errors.extend(wrong.into_iter().map(|m| FieldError::invalid("provisioner", lower.as_str(), m)));
        }
        for (name, _) in json::map(object, "parameters").into_iter().flatten() {
            if name.is_empty() {
                errors.push(FieldError::invalid("parameters", "", "field can not be empty."));
            }
        }
        one_of(object, "reclaimPolicy", &["Delete", "Retain"], errors);
        one_of(object, "volumeBindingMode", &["Immediate", "WaitForFirstConsumer"], errors);
    },
    validate_update: |new, old, errors| {
        for (field, detail) in [
            ("parameters", "updates to parameters are forbidden."),
            ("provisioner", "updates to provisioner are forbidden."),
            ("reclaimPolicy", "updates to reclaimPolicy are forbidden."),
        ] {
            if !json::same(&new[field], &old[field]) {
                errors.push(FieldError::forbidden(field, detail));
            }
        }
        immutable(new, old, "/volumeBindingMode", "volumeBindingMode", errors);
    },
    warnings: |object, _| class_warnings(object),
    ..PLAIN
};

/// Where the class of a claim or volume was once said.
const CLASS_ANNOTATION: (&str, &str) = (
    "volume.beta.kubernetes.io/storage-class",
    r#"deprecated since v1.8; use "storageClassName" attribute instead"#,
);
const OPTIONS_ANNOTATION: (&str, &str) = (
    "volume.beta.kubernetes.io/mount-options",
    r#"deprecated since v1.31; use "mountOptions" attribute instead"#,
);

/// Volumes of kinds that nothing mounts any more.
const DEPRECATED: &[(&str, &str)] = &[
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// What is worth saying about the specification of a claim at `path`.
pub(crate) fn claim_warnings(spec: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    let at = path.field("resources");
    for list in ["requests", "limits"] {
        resources::warn_of_fraction(&spec["resources"][list], "storage", &at.field(list), warnings);
    }
}

fn volume_warnings(volume: &Value) -> Vec<String> {
    let (spec, path) = (&volume["spec"], Path::new("spec"));
    let mut warnings = Vec::new();
    deprecated_annotations(volume, &[CLASS_ANNOTATION, OPTIONS_ANNOTATION], &mut warnings);
    if json::text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        warnings.push(format!(
            "{}: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic \
             provisioning.",
            path.field("persistentVolumeReclaimPolicy")
        ));
    }
    let terms = json::list(&spec["nodeAffinity"]["required"], "nodeSelectorTerms");
    let at = path.field("nodeAffinity");
    node_labels::required_terms(terms, &at.field("required").field("nodeSelectorTerms"), &mut warnings);
    deprecated_sources(spec, DEPRECATED, &path, &mut warnings);
    warnings
}

/// What is said of the kind of a volume at `path`, if it is one of the `known`. Kubernetes spells one otherwise than
/// its field.
pub(crate) fn deprecated_sources(
    volume: &Value,
    known: &[(&str, &str)],
    path: &Path<'_>,
    warnings: &mut Vec<String>,
) {
    for (source, message) in known.iter().filter(|(source, _)| !volume[*source].is_null()) {
        let shown = if *source == "storageos" { "storageOS" } else { source };
        warnings.push(format!("{}: {message}", path.field(shown)));
    }
}

fn class_warnings(class: &Value) -> Vec<String> {
    let (topologies, mut warnings) = (Path::new("allowedTopologies"), Vec::new());
    for (index, topology) in json::list(class, "allowedTopologies").iter().enumerate() {
        let at = topologies.index(index);
        let list = at.field("matchLabelExpressions");
        for (index, expression) in json::list(topology, "matchLabelExpressions").iter().enumerate() {
            if let Some(message) = node_labels::deprecation(json::text(expression, "key")) {
                warnings.push(format!("{}: {message}", list.index(index).field("key")));
            }
        }
    }
    warnings
}

/// What can be mounted how.
const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const ALONE: &str = "ReadWriteOncePod";

/// What a volume can be, in the order in which Kubernetes looks: the first counts, every further one is refused.
const SOURCES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

fn one_of(object: &Value, field: &str, supported: &[&str], errors: &mut Vec<FieldError>) {
    let value = json::text(object, field);
    if !supported.contains(&value) {
        errors.push(not_supported(field, value, supported));
    }
}

/// The defaults of a claim, also inside a stateful set.
pub(crate) fn default_claim(claim: &mut Value) {
    if let Some(status) = json::object_at(claim, "status") {
        json::default_text(status, "phase", "Pending");
    }
    if let Some(spec) = json::object_at(claim, "spec") {
        default_claim_spec(spec);
    }
}

/// The defaults of a claim's specification, also inside a pod.
pub(crate) fn default_claim_spec(spec: &mut Value) {
    json::default(spec, "volumeMode", "Filesystem");
    json::default(spec, "resources", json!({}));
    if let Some(resources) = spec.get_mut("resources") {
        resources::canonical_requirements(resources);
    }
}

/// A source of data is said twice, by its old name and its new one. Through the old one only claims and snapshots
/// can be named; anything else there is dropped.
fn same_data_sources(spec: &mut Value) {
    let group = |source: &Value| json::text(source, "apiGroup").to_owned();
    if let Some(source) = spec.get("dataSource").filter(|source| !source.is_null()) {
        let known = matches!(
            (group(source).as_str(), json::text(source, "kind")),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        );
        let whole = spec.get("dataSourceRef").is_none();
        if !known && whole {
            json::remove(spec, "dataSource");
        } else if whole {
            let source = source.clone();
            json::set(spec, "dataSourceRef", source);
        }
    } else if let Some(reference) = spec.get("dataSourceRef").filter(|one| !one.is_null()).cloned()
        && json::text(&reference, "namespace").is_empty()
    {
        json::set(spec, "dataSource", reference);
    }
}

fn access_modes(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let modes: Vec<_> = json::list(spec, "accessModes").iter().filter_map(Value::as_str).collect();
    let at = path.field("accessModes");
    for mode in modes.iter().filter(|mode| !MODES.contains(mode)) {
        errors.push(not_supported(at, mode, MODES));
    }
    if modes.contains(&ALONE) && modes.iter().any(|mode| *mode != ALONE && MODES.contains(mode)) {
        errors.push(FieldError::forbidden(at, "may not use ReadWriteOncePod with other access modes"));
    }
}

fn class_and_mode(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let class = json::text(spec, "storageClassName");
    if !class.is_empty() {
        let wrong = names::dns_subdomain(class);
        errors
            .extend(wrong.into_iter().map(|m| FieldError::invalid(path.field("storageClassName"), class, m)));
    }
    if let Some(mode) = spec["volumeMode"].as_str().filter(|mode| !["Block", "Filesystem"].contains(mode)) {
        errors.push(not_supported(path.field("volumeMode"), mode, &["Block", "Filesystem"]));
    }
}

/// `must be greater than zero`.
fn positive(amount: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some(Ok(quantity)) = amount.as_str().map(Quantity::parse)
        && quantity.units() <= 0
    {
        errors.push(FieldError::invalid(path, quantity.to_string(), "must be greater than zero"));
    }
}

/// `must be a valid resource quantity`, for less than nothing.
fn basic(amount: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some(Ok(quantity)) = amount.as_str().map(Quantity::parse)
        && quantity.is_negative()
    {
        let units = i64::try_from(quantity.units()).unwrap_or(i64::MIN);
        errors.push(FieldError::invalid(path, units, "must be a valid resource quantity"));
    }
}

/// What is wrong with the specification of a claim, also inside a stateful set.
pub(crate) fn validate_claim_spec(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if json::list(spec, "accessModes").is_empty() {
        let detail = "at least 1 access mode is required";
        errors.push(FieldError::required(path.field("accessModes"), detail));
    }
    if spec["selector"].is_object() {
        selector::validate(&spec["selector"], &path.field("selector"), errors);
    }
    access_modes(spec, path, errors);
    let at = path.field("resources");
    match spec["resources"]["requests"].get("storage") {
        None => errors.push(FieldError::required(at.key("storage"), "")),
        Some(amount) => positive(amount, &at.key("storage"), errors),
    }
    class_and_mode(spec, path, errors);
    for field in ["dataSource", "dataSourceRef"] {
        data_source(&spec[field], &path.field(field), errors);
    }
}

fn data_source(source: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if !source.is_object() {
        return;
    }
    for field in ["name", "kind"] {
        if json::text(source, field).is_empty() {
            errors.push(FieldError::required(path.field(field), ""));
        }
    }
    let (group, kind) = (json::text(source, "apiGroup"), json::text(source, "kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(FieldError::invalid(path, kind, detail));
    }
    if !group.is_empty() {
        let wrong = names::dns_subdomain(group);
        errors.extend(wrong.into_iter().map(|m| FieldError::invalid(path.field("apiGroup"), group, m)));
    }
}

fn update_claim(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    validate_claim_spec(&new["spec"], &Path::new("spec"), errors);
    let bound = new["status"]["phase"] == "Bound";
    let mut same = new["spec"].clone();
    let keep = |same: &mut Value, field: &str| match old["spec"].get(field) {
        Some(value) => json::set(same, field, value.clone()),
        None => {
            json::remove(same, field);
        }
    };
    // The binder fills in a volume where there was none, and whoever finds a class later that.
    for field in ["volumeName", "storageClassName"] {
        if old["spec"]
            .get(field)
            .is_none_or(|value| value.is_null() || (field == "volumeName" && value == ""))
        {
            keep(&mut same, field);
        }
    }
    if bound {
        keep(&mut same, "volumeAttributesClassName");
        if let Some(requests) = same["resources"].get_mut("requests") {
            json::set(requests, "storage", old["spec"]["resources"]["requests"]["storage"].clone());
        }
    }
    if !json::same(&same, &old["spec"]) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                      bound claims";
        errors.push(FieldError::forbidden("spec", detail));
    }
    let storage = |claim: &Value| resources::get(&claim["spec"]["resources"]["requests"], "storage");
    if storage(new) < storage(old) && storage(new) <= resources::get(&old["status"]["capacity"], "storage") {
        let at = "spec.resources.requests.storage";
        errors.push(FieldError::forbidden(at, "field can not be less than status.capacity"));
    }
    immutable(new, old, "/spec/volumeMode", "volumeMode", errors);
}

fn validate_volume(object: &Value, errors: &mut Vec<FieldError>) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    if json::list(spec, "accessModes").is_empty() {
        errors.push(FieldError::required(path.field("accessModes"), ""));
    }
    access_modes(spec, &path, errors);
    capacity(spec, &path.field("capacity"), errors);
    let policy = json::text(spec, "persistentVolumeReclaimPolicy");
    let policies = ["Delete", "Recycle", "Retain"];
    if !policies.contains(&policy) {
        errors.push(not_supported(path.field("persistentVolumeReclaimPolicy"), policy, &policies));
    }
    let affinity = &spec["nodeAffinity"];
    let at = path.field("nodeAffinity");
    match affinity.is_object() {
        true if affinity["required"].is_object() => {
            pod::validate_node_selector(&affinity["required"], &at.field("required"), errors);
        }
        true => {
            errors.push(FieldError::required(at.field("required"), "must specify required node constraints"))
        }
        false => {}
    }
    source(spec, &path, errors);
    if json::text(&spec["hostPath"], "path") == "/" && policy == "Recycle" {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        errors.push(FieldError::forbidden(path.field("persistentVolumeReclaimPolicy"), detail));
    }
    class_and_mode(spec, &path, errors);
}

fn capacity(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let amounts = json::map(spec, "capacity");
    let count = amounts.map_or(0, serde_json::Map::len);
    if count == 0 {
        errors.push(FieldError::required(path, ""));
    }
    if count > 1 || amounts.is_none_or(|amounts| !amounts.contains_key("storage")) {
        let detail = "supported values: \"storage\"";
        let given = amounts.map_or(Value::Null, |amounts| Value::Object(amounts.clone()));
        let error = FieldError::new(FieldErrorKind::NotSupported, path, Some(given), detail);
        let shown = amounts.map_or("null".to_owned(), |amounts| {
            in_order(&amounts.iter().map(|(name, value)| (name.as_str(), value)).collect::<Vec<_>>())
        });
        errors.push(showing(error, shown));
    }
    for (name, amount) in amounts.into_iter().flatten() {
        basic(amount, &path.key(name), errors);
        positive(amount, &path.key(name), errors);
    }
}

fn source(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut given = SOURCES.iter().filter(|source| spec.get(**source).is_some_and(Value::is_object));
    let Some(first) = given.next() else {
        errors.push(FieldError::required(path, "must specify a volume type"));
        return;
    };
    for more in given {
        errors.push(FieldError::forbidden(path.field(more), "may not specify more than 1 volume type"));
    }
    let at = path.field(first);
    if ["hostPath", "local"].contains(first) {
        pod::validate_host_path(&spec[*first], &at, errors);
    }
    if *first == "local" && !spec["nodeAffinity"]["required"].is_object() {
        errors.push(FieldError::required(path.field("nodeAffinity"), "Local volume requires node affinity"));
    }
}

fn update_volume(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    validate_volume(new, errors);
    let of = |object: &Value, source: &str| object["spec"].get(source).cloned().unwrap_or_default();
    if SOURCES.iter().any(|source| !json::same(&of(new, source), &of(old, source))) {
        let detail = "spec.persistentvolumesource is immutable after creation";
        errors.push(FieldError::forbidden("spec.persistentvolumesource", detail));
    }
    immutable(new, old, "/spec/volumeMode", "volumeMode", errors);
    if old["spec"]["nodeAffinity"].is_object() {
        immutable(new, old, "/spec/nodeAffinity", "nodeAffinity", errors);
    }
}
