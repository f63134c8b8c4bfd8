//! What the server does to an object between reading it and checking it.

use serde_json::Value;

use crate::{Kind, json, kind::Source};

/// A new object: no status of the client's making, the first generation.
pub(crate) fn create(kind: &Kind, object: &mut Value) {
    if kind.is_virtual() {
        return;
    }
    let keeps_status = matches!(&kind.source, Source::Builtin(row) if row.keeps_status);
    if kind.subresources.status && !keeps_status {
        json::remove(object, "status");
    }
    if let Some(metadata) = json::object_at(object, "metadata") {
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            json::remove(metadata, field);
        }
        if kind.has_generation() {
            json::set(metadata, "generation", 1);
        } else {
            json::remove(metadata, "generation");
        }
    }
    if let Source::Builtin(row) = &kind.source {
        (row.rules.create)(object);
    }
}

/// A changed object: what the path it came by may not change is as it was.
pub(crate) fn update(kind: &Kind, new: &mut Value, old: &Value, subresource: Option<&str>) {
    match (&kind.source, subresource) {
        (_, None) => {
            if kind.subresources.status {
                keep(new, old, "status");
            }
        }
        (Source::Custom(_), Some("status")) => status_of_custom(new, old),
        (Source::Builtin(row), Some("status")) => {
            status_of_builtin(new, old);
            (row.rules.status)(new, old);
        }
        (_, Some("finalize")) => keep(new, old, "status"),
        (_, Some("ephemeralcontainers")) => ephemeral_containers(new, old),
        (_, Some(_)) => {}
    }
    if let (Source::Builtin(row), None) = (&kind.source, subresource) {
        (row.rules.update)(new, old);
    }
    keep_system_fields(new, old);
    count_generation(kind, new, old, subresource);
}

fn keep(new: &mut Value, old: &Value, field: &str) {
    match old.get(field) {
        Some(value) => json::set(new, field, value.clone()),
        None => {
            json::remove(new, field);
        }
    }
}

/// Only the status comes from the client, and with it who manages it.
fn status_of_custom(new: &mut Value, old: &Value) {
    let status = json::remove(new, "status");
    let managed = new.get_mut("metadata").and_then(|metadata| json::remove(metadata, "managedFields"));
    let version = new.get_mut("metadata").and_then(|metadata| json::remove(metadata, "resourceVersion"));
    let mut result = old.clone();
    if let Some(api_version) = json::remove(new, "apiVersion") {
        json::set(&mut result, "apiVersion", api_version);
    }
    json::remove(&mut result, "status");
    if let Some(status) = status {
        json::set(&mut result, "status", status);
    }
    if let Some(metadata) = result.get_mut("metadata") {
        json::remove(metadata, "managedFields");
        for (field, value) in [("managedFields", managed), ("resourceVersion", version)] {
            if let Some(value) = value {
                json::set(metadata, field, value);
            }
        }
    }
    *new = result;
}

/// Only these containers come from the client, and with them who manages them.
fn ephemeral_containers(new: &mut Value, old: &Value) {
    let mut given = std::mem::replace(new, old.clone());
    if let (Some(spec), Some(given)) = (new.get_mut("spec"), given.get_mut("spec")) {
        take(spec, given, "ephemeralContainers");
    }
    if let (Some(metadata), Some(given)) = (new.get_mut("metadata"), given.get_mut("metadata")) {
        take(metadata, given, "managedFields");
        take(metadata, given, "resourceVersion");
    }
}

fn take(new: &mut Value, given: &mut Value, field: &str) {
    json::remove(new, field);
    if let Some(value) = json::remove(given, field) {
        json::set(new, field, value);
    }
}

/// Everything but metadata and status is as it was.
fn status_of_builtin(new: &mut Value, old: &Value) {
    if let Some(fields) = new.as_object_mut() {
        fields.retain(|name, _| matches!(name.as_str(), "metadata" | "status" | "apiVersion" | "kind"));
    }
    for (name, value) in old.as_object().into_iter().flatten() {
        if !matches!(name.as_str(), "metadata" | "status" | "apiVersion" | "kind") {
            json::set(new, name, value.clone());
        }
    }
}

fn keep_system_fields(new: &mut Value, old: &Value) {
    let old = &old["metadata"];
    let Some(metadata) = json::object_at(new, "metadata") else { return };
    if json::text(metadata, "uid").is_empty() {
        keep(metadata, old, "uid");
    }
    for field in ["creationTimestamp", "deletionTimestamp", "selfLink", "generation"] {
        keep(metadata, old, field);
    }
    if metadata.get("deletionGracePeriodSeconds").is_none() {
        keep(metadata, old, "deletionGracePeriodSeconds");
    }
}

fn count_generation(kind: &Kind, new: &mut Value, old: &Value, subresource: Option<&str>) {
    if !kind.has_generation() || subresource == Some("status") {
        return;
    }
    let counted = match &kind.source {
        Source::Builtin(row) => row.counts,
        Source::Custom(_) => &[],
    };
    let changed = specification_changed(new, old)
        || counted.iter().any(|field| !json::same(&new["metadata"][*field], &old["metadata"][*field]));
    if changed {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or_default() + 1;
        if let Some(metadata) = new.get_mut("metadata") {
            json::set(metadata, "generation", generation);
        }
    }
}

/// Anything but metadata differs. The status never does here where it is a subresource: it has been
/// put back before.
fn specification_changed(new: &Value, old: &Value) -> bool {
    const ASIDE: &[&str] = &["metadata", "apiVersion", "kind"];
    let names =
        |object: &Value| object.as_object().into_iter().flat_map(|fields| fields.keys().cloned()).collect();
    let mut all: Vec<String> = names(new);
    all.extend(names(old));
    all.iter()
        .filter(|name| !ASIDE.contains(&name.as_str()))
        .any(|name| !json::same(&new[name.as_str()], &old[name.as_str()]))
}

#[cfg(test)]
mod tests {
    use crate::Registry;
    use serde_json::json;

    use super::*;

    fn deployments() -> std::sync::Arc<Kind> {
        Registry::builtin().find("apps", "v1", "deployments").expect("a known kind")
    }

    #[track_caller]
    fn check(mut new: Value, old: Value, subresource: Option<&str>, expected: Value) {
        deployments().prepare_update(&mut new, &old, subresource);
        assert_eq!(new, expected);
    }

    #[test]
    fn a_new_object_has_no_status_and_the_first_generation() {
        let mut object = json!({"metadata": {"name": "a", "generation": 7}, "status": {"replicas": 3}});
        deployments().prepare_create(&mut object);
        assert_eq!(object, json!({"metadata": {"name": "a", "generation": 1}, "status": {}}));
    }

    #[test]
    fn an_update_of_the_specification_counts_and_leaves_the_status() {
        check(
            json!({"metadata": {"name": "a"}, "spec": {"replicas": 2}, "status": {"replicas": 9}}),
            json!({"metadata": {"name": "a", "uid": "u", "generation": 1}, "spec": {"replicas": 1}, "status": {"replicas": 1}}),
            None,
            json!({"metadata": {"name": "a", "uid": "u", "generation": 2}, "spec": {"replicas": 2}, "status": {"replicas": 1}}),
        );
    }

    #[test]
    fn an_update_of_the_status_counts_nothing_and_leaves_the_rest() {
        check(
            json!({"metadata": {"name": "a"}, "spec": {"replicas": 2}, "status": {"replicas": 9}}),
            json!({"metadata": {"name": "a", "generation": 1}, "spec": {"replicas": 1}}),
            Some("status"),
            json!({"metadata": {"name": "a", "generation": 1}, "spec": {"replicas": 1}, "status": {"replicas": 9}}),
        );
    }

    #[test]
    fn annotations_of_a_deployment_count_because_they_are_copied_to_replica_sets() {
        check(
            json!({"metadata": {"name": "a", "annotations": {"x": "y"}}, "spec": {}}),
            json!({"metadata": {"name": "a", "generation": 1}, "spec": {}}),
            None,
            json!({"metadata": {"name": "a", "annotations": {"x": "y"}, "generation": 2}, "spec": {}}),
        );
    }
}
