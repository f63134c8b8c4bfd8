//! What is wrong with a pod, or a template of one.

use drydock_schema::FieldError;
use serde_json::Value;

use super::{container, volume};
use crate::{
    json, meta,
    names::{self, out_of_range},
    path::Path,
    rules::{not_supported, selector},
};

/// What is wrong with a new pod.
pub(super) fn pod(pod: &Value, errors: &mut Vec<FieldError>) {
    spec(&pod["spec"], &Path::new("spec"), errors);
}

/// What is wrong with a template at `path`.
pub(crate) fn template(template: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let metadata = path.field("metadata");
    meta::validate_labels(json::map(&template["metadata"], "labels"), &metadata.field("labels"), errors);
    meta::validate_annotations(&template["metadata"], &metadata.field("annotations"), errors);
    spec(&template["spec"], &path.field("spec"), errors);
}

/// What is wrong with a specification at `path`.
pub(super) fn spec(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let volumes = volume::validate(json::list(spec, "volumes"), &path.field("volumes"), errors);
    container::validate(json::list(spec, "containers"), &volumes, &path.field("containers"), errors);
    container::validate_init(spec, &volumes, path, errors);
    one_of(spec, path, "restartPolicy", &["Always", "OnFailure", "Never"], errors);
    one_of(spec, path, "dnsPolicy", &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"], errors);
    meta::validate_labels(json::map(spec, "nodeSelector"), &path.field("nodeSelector"), errors);
    for (index, secret) in json::list(spec, "imagePullSecrets").iter().enumerate() {
        if json::text(secret, "name").is_empty() {
            let list = path.field("imagePullSecrets");
            errors.push(FieldError::required(list.index(index).field("name"), ""));
        }
    }
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
    tolerations(json::list(spec, "tolerations"), &path.field("tolerations"), errors);
    named(spec, path, "priorityClassName", names::dns_subdomain, errors);
    named(spec, path, "runtimeClassName", names::dns_subdomain, errors);
    affinity(&spec["affinity"], &path.field("affinity"), errors);
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

fn tolerations(tolerations: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let at = path.index(index);
        let (key, operator) = (json::text(toleration, "key"), json::text(toleration, "operator"));
        let effect = json::text(toleration, "effect");
        if !key.is_empty() {
            let wrong = names::qualified_name(key);
            errors
                .extend(wrong.into_iter().map(|message| FieldError::invalid(at.field("key"), key, message)));
        }
        if key.is_empty() && operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(at.field("operator"), operator, detail));
        }
        if toleration["tolerationSeconds"].is_i64() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(at.field("effect"), effect, detail));
        }
        match operator {
            "Equal" | "" => {
                let value = json::text(toleration, "value");
                let wrong = names::label_value(value);
                if !wrong.is_empty() {
                    errors.push(FieldError::invalid(at.field("operator"), value, wrong.join(";")));
                }
            }
            "Exists" => {
                let value = json::text(toleration, "value");
                if !value.is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    errors.push(FieldError::invalid(at.field("operator"), value, detail));
                }
            }
            other => errors.push(not_supported(at.field("operator"), other, &["Equal", "Exists"])),
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if !effect.is_empty() && !effects.contains(&effect) {
            errors.push(not_supported(at.field("effect"), effect, &effects));
        }
    }
}

/// The terms that choose other pods: what people write to keep replicas apart.
fn affinity(affinity: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let at = path.field(kind);
        let required = at.field("requiredDuringSchedulingIgnoredDuringExecution");
        for (index, term) in
            json::list(&affinity[kind], "requiredDuringSchedulingIgnoredDuringExecution").iter().enumerate()
        {
            affinity_term(term, &required.index(index), errors);
        }
        let preferred = at.field("preferredDuringSchedulingIgnoredDuringExecution");
        for (index, term) in
            json::list(&affinity[kind], "preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate()
        {
            let item = preferred.index(index);
            let weight = term["weight"].as_i64().unwrap_or_default();
            if !(1..=100).contains(&weight) {
                errors.push(FieldError::invalid(item.field("weight"), weight, "must be in the range 1-100"));
            }
            affinity_term(&term["podAffinityTerm"], &item.field("podAffinityTerm"), errors);
        }
    }
}

fn affinity_term(term: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    selector::validate(&term["labelSelector"], &path.field("labelSelector"), errors);
    let key = json::text(term, "topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(path.field("topologyKey"), "can not be empty"));
    }
    for message in names::qualified_name(key) {
        errors.push(FieldError::invalid(path.field("topologyKey"), key, message));
    }
}
