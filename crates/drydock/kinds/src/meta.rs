//! The metadata that every object has.

use drydock_schema::{FieldError, FieldErrorKind};
use serde_json::Value;

use crate::{
    json,
    names::{self, Rule},
    path::Path,
    rules::{in_order, showing},
};

/// The most that all annotations of an object may hold together, keys and values.
const ANNOTATIONS: usize = 256 * 1024;

/// Finalizers that need not say whose they are.
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

/// The labels of an object, as `key -> value`.
pub fn labels(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    let labels = object.get("metadata").and_then(|metadata| json::map(metadata, "labels"));
    labels.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

/// Checks the metadata of a new object.
pub fn validate(
    metadata: &Value,
    namespaced: bool,
    rule: Rule,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    validate_names(metadata, namespaced, rule, path, errors);
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64)
        && generation < 0
    {
        errors.push(FieldError::invalid(
            path.field("generation"),
            generation,
            "must be greater than or equal to 0",
        ));
    }
    validate_labels(json::map(metadata, "labels"), &path.field("labels"), errors);
    validate_annotations(metadata, &path.field("annotations"), errors);
    validate_owners(json::list(metadata, "ownerReferences"), &path.field("ownerReferences"), errors);
    validate_finalizers(metadata, &path.field("finalizers"), errors);
}

fn validate_names(
    metadata: &Value,
    namespaced: bool,
    rule: Rule,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let prefix = json::text(metadata, "generateName");
    if !prefix.is_empty() {
        let wrong = rule(prefix, true);
        errors.extend(wrong.into_iter().map(|m| FieldError::invalid(path.field("generateName"), prefix, m)));
    }
    let name = json::text(metadata, "name");
    if name.is_empty() {
        errors.push(FieldError::required(path.field("name"), "name or generateName is required"));
    } else {
        let wrong = rule(name, false);
        errors.extend(wrong.into_iter().map(|m| FieldError::invalid(path.field("name"), name, m)));
    }
    let namespace = json::text(metadata, "namespace");
    let at = path.field("namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.push(FieldError::required(at, "")),
        (true, false) => {
            let wrong = names::dns_label(namespace);
            errors.extend(wrong.into_iter().map(|m| FieldError::invalid(at, namespace, m)));
        }
        (false, false) => errors.push(FieldError::forbidden(at, "not allowed on this type")),
        (false, true) => {}
    }
}

/// Checks labels, also those of selectors.
pub(crate) fn validate_labels(
    labels: Option<&serde_json::Map<String, Value>>,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    for (key, value) in labels.into_iter().flatten() {
        for message in names::qualified_name(key) {
            errors.push(FieldError::invalid(path, key.as_str(), message));
        }
        let value = value.as_str().unwrap_or_default();
        for message in names::label_value(value) {
            errors.push(FieldError::invalid(path, value, message));
        }
    }
}

pub(crate) fn validate_annotations(metadata: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in json::map(metadata, "annotations").into_iter().flatten() {
        for message in names::qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid(path, key.as_str(), message));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS {
        let detail = format!("may not be more than {ANNOTATIONS} bytes");
        errors.push(FieldError::new(FieldErrorKind::TooLong, path, None, detail));
    }
}

fn validate_owners(owners: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut controller: Option<String> = None;
    for owner in owners {
        let api_version = json::text(owner, "apiVersion");
        if api_version.rsplit('/').next().unwrap_or_default().is_empty() {
            errors.push(FieldError::invalid(
                path.field("apiVersion"),
                api_version,
                "version must not be empty",
            ));
        }
        for field in ["kind", "name", "uid"] {
            if json::text(owner, field).is_empty() {
                errors.push(FieldError::invalid(path.field(field), "", "must not be empty"));
            }
        }
        if api_version == "v1" && json::text(owner, "kind") == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(path, owner.clone(), detail));
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            let this = format!("{}/{}", json::text(owner, "kind"), json::text(owner, "name"));
            if let Some(first) = &controller {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                );
                errors.push(showing(FieldError::invalid(path, owners.to_vec(), detail), shown(owners)));
            } else {
                controller = Some(this);
            }
        }
    }
}

fn shown(owners: &[Value]) -> String {
    const ORDER: &[&str] = &["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let owners = owners.iter().map(|owner| {
        let fields: Vec<_> = ORDER.iter().filter_map(|field| Some((*field, owner.get(field)?))).collect();
        in_order(&fields)
    });
    format!("[{}]", owners.collect::<Vec<_>>().join(","))
}

fn validate_finalizers(metadata: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let finalizers: Vec<_> = json::list(metadata, "finalizers").iter().filter_map(Value::as_str).collect();
    for finalizer in &finalizers {
        for message in names::qualified_name(finalizer) {
            errors.push(FieldError::invalid(path, *finalizer, message));
        }
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, finalizers, detail));
    }
}

/// Checks what an update may not do to metadata.
pub fn validate_update(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if old.get("deletionTimestamp").is_some_and(|time| !time.is_null()) {
        let known = json::list(old, "finalizers");
        let mut added: Vec<_> = json::list(new, "finalizers")
            .iter()
            .filter(|name| !known.contains(name))
            .map(Value::to_string)
            .collect();
        added.sort();
        added.dedup();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.push(FieldError::forbidden(path.field("finalizers"), detail));
        }
    }
    if json::text(new, "resourceVersion").is_empty() {
        errors.push(FieldError::invalid(
            path.field("resourceVersion"),
            "",
            "must be specified for an update",
        ));
    }
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        if new.get(field) != old.get(field) {
            let shown = new.get(field).cloned().unwrap_or_else(|| absent(field));
            errors.push(FieldError::invalid(path.field(field), shown, "field is immutable"));
        }
    }
    validate_labels(json::map(new, "labels"), &path.field("labels"), errors);
    validate_annotations(new, &path.field("annotations"), errors);
    validate_owners(json::list(new, "ownerReferences"), &path.field("ownerReferences"), errors);
}

/// Kubernetes' own kinds are held only by names that say whose they are.
pub(crate) fn validate_own_finalizers(metadata: &Value, errors: &mut Vec<FieldError>) {
    for (index, finalizer) in json::list(metadata, "finalizers").iter().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(format!("metadata.finalizers[{index}]"), name, detail));
        }
    }
}

/// What is worth saying about finalizers that other kinds would not be allowed.
pub(crate) fn finalizer_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let known = old.map(|old| json::list(old, "finalizers")).unwrap_or_default();
    let added = json::list(new, "finalizers").iter().filter(|name| !known.contains(name));
    let mut added: Vec<_> = added.filter_map(Value::as_str).collect();
    added.sort_unstable();
    added.dedup();
    let mut warnings = Vec::new();
    for name in added {
        for message in names::qualified_name(name) {
            warnings.push(format!("metadata.finalizers: {name:?}: {message}"));
        }
        if name.contains('/') || STANDARD_FINALIZERS.contains(&name) {
            continue;
        }
        let path = if name.contains('.') { " including a path (/)" } else { "" };
        warnings.push(format!(
            "metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts \
             with other finalizer writers"
        ));
    }
    warnings
}

fn absent(field: &str) -> Value {
    if matches!(field, "name" | "namespace" | "uid") { Value::from("") } else { Value::Null }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(metadata: Value, expected: &[&str]) {
        let mut errors = Vec::new();
        validate(&metadata, true, names::dns_subdomain_rule, &Path::new("metadata"), &mut errors);
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected);
    }

    #[test]
    fn a_name_and_a_namespace_are_required() {
        check(
            json!({}),
            &[
                "metadata.name: Required value: name or generateName is required",
                "metadata.namespace: Required value",
            ],
        );
    }

    #[test]
    fn a_finalizer_is_a_qualified_name() {
        check(
            json!({"name": "a", "namespace": "b", "finalizers": ["orphan", "foregroundDeletion"]}),
            &[
                "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and \
               foregroundDeletion cannot be both set",
            ],
        );
    }

    #[test]
    fn an_owner_is_complete() {
        check(
            json!({"name": "a", "namespace": "b", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod"}]}),
            &[
                "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
                "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
            ],
        );
    }

    #[test]
    fn annotations_have_a_limit_together() {
        check(
            json!({"name": "a", "namespace": "b", "annotations": {"a": "x".repeat(262_144)}}),
            &["metadata.annotations: Too long: may not be more than 262144 bytes"],
        );
    }

    #[test]
    fn nothing_new_holds_an_object_that_is_going() {
        let mut errors = Vec::new();
        validate_update(
            &json!({"name": "a", "resourceVersion": "1", "deletionTimestamp": "t", "finalizers": ["x/y", "x/z"]}),
            &json!({"name": "a", "resourceVersion": "1", "deletionTimestamp": "t", "finalizers": ["x/y"]}),
            &Path::new("metadata"),
            &mut errors,
        );
        assert_eq!(
            errors[0].to_string(),
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new \
             finalizers []string{\"x/z\"}"
        );
    }

    #[test]
    fn a_finalizer_of_a_built_in_kind_says_whose_it_is() {
        let registry = crate::Registry::builtin();
        let check = |plural: &str, group: &str, expected: &[&str]| {
            let kind = registry.find(group, "v1", plural).unwrap();
            let old = json!({"metadata": {"name": "a", "namespace": "b", "resourceVersion": "1"}});
            let mut new = old.clone();
            new["metadata"]["finalizers"] = json!(["x/y", "orphan", "hold"]);
            let errors: Vec<_> =
                kind.validate_update(&new, &old, None).iter().map(ToString::to_string).collect();
            let errors: Vec<_> = errors.iter().filter(|error| error.starts_with("metadata.fin")).collect();
            assert_eq!(errors, expected, "{plural}");
        };
        let refused = "metadata.finalizers[2]: Invalid value: \"hold\": name is neither a standard finalizer name nor is \
                       it fully qualified";
        check("configmaps", "", &[refused]);
        check("deployments", "apps", &[refused]);
        check("leases", "coordination.k8s.io", &[]);
    }
}
