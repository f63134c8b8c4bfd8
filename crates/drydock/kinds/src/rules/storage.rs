//! Claims, volumes and storage classes.

use drydock_schema::FieldError;
use serde_json::{Value, json};

use super::{PLAIN, Rules, immutable, not_supported, resources};
use crate::{json, path::Path, quantity::Quantity};

pub(crate) const CLAIM: Rules = Rules {
    default: default_claim,
    create: |object| json::set(object, "status", json!({"phase": "Pending"})),
    validate: validate_claim,
    validate_update: update_claim,
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
        }
    },
    create: |object| json::set(object, "status", json!({"phase": "Pending"})),
    validate: |object, errors| {
        let (spec, path) = (&object["spec"], Path::new("spec"));
        if json::list(spec, "accessModes").is_empty() {
            errors.push(FieldError::required(path.field("accessModes"), ""));
        }
        if spec["capacity"].get("storage").is_none() {
            errors.push(FieldError::required(path.field("capacity"), ""));
        }
    },
    ..PLAIN
};

pub(crate) const CLASS: Rules = Rules {
    default: |object| {
        json::default(object, "reclaimPolicy", "Delete");
        json::default(object, "volumeBindingMode", "Immediate");
    },
    validate: |object, errors| {
        if json::text(object, "provisioner").is_empty() {
            errors.push(FieldError::required("provisioner", ""));
        }
        let policy = json::text(object, "reclaimPolicy");
        if !["Delete", "Retain"].contains(&policy) {
            errors.push(not_supported("reclaimPolicy", policy, &["Delete", "Retain"]));
        }
    },
    validate_update: |new, old, errors| {
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            if new.get(field) != old.get(field) {
                let detail = match field {
                    "parameters" => "updates to parameters are forbidden.",
                    "provisioner" => "updates to provisioner are forbidden.",
                    "reclaimPolicy" => "updates to reclaimPolicy are forbidden.",
                    _ => "field is immutable",
                };
                errors.push(FieldError::forbidden(field, detail));
            }
        }
    },
    ..PLAIN
};

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

fn validate_claim(object: &Value, errors: &mut Vec<FieldError>) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let modes = json::list(spec, "accessModes");
    if modes.is_empty() {
        let detail = "at least 1 access mode is required";
        errors.push(FieldError::required(path.field("accessModes"), detail));
    }
    let known = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    for mode in modes.iter().filter_map(Value::as_str) {
        if !known.contains(&mode) {
            errors.push(not_supported(path.field("accessModes"), mode, &known));
        }
    }
    let at = path.field("resources");
    match spec["resources"]["requests"].get("storage") {
        None => errors.push(FieldError::required(at.key("storage"), "")),
        Some(amount) => {
            let text = amount.as_str().unwrap_or_default();
            match Quantity::parse(text) {
                Ok(amount) if amount.units() > 0 => {}
                Ok(_) => {
                    errors.push(FieldError::invalid(at.key("storage"), text, "must be greater than zero"))
                }
                Err(error) => errors.push(FieldError::invalid(at.key("storage"), text, error.to_string())),
            }
        }
    }
}

fn update_claim(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    validate_claim(new, errors);
    let storage = |claim: &Value| resources::get(&claim["spec"]["resources"]["requests"], "storage");
    if storage(new) < storage(old) && old["status"]["phase"] == "Bound" {
        let at = "spec.resources.requests.storage";
        errors.push(FieldError::forbidden(at, "field can not be less than status.capacity"));
    }
    let mut same = new["spec"].clone();
    for field in ["resources", "volumeAttributesClassName"] {
        match old["spec"].get(field) {
            Some(value) => json::set(&mut same, field, value.clone()),
            None => {
                json::remove(&mut same, field);
            }
        }
    }
    // The binder fills in a volume where there was none.
    if old["spec"].get("volumeName").is_none() {
        json::remove(&mut same, "volumeName");
    }
    if !json::same(&same, &old["spec"]) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                      bound claims";
        errors.push(FieldError::forbidden("spec", detail));
    }
    immutable(new, old, "/spec/volumeMode", "spec.volumeMode", errors);
}
