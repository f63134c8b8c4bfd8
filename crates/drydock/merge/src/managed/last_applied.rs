//! Objects on their way from `kubectl apply` to `kubectl apply --server-side`.
//!
//! Client-side apply keeps what it applied in an annotation. Fields that still have the value
//! that the annotation says were kubectl's own, so kubectl may take them without force; and as
//! long as the annotation is there, kubectl's server-side applies keep it up to date, so that
//! the way back works too.

use serde_json::Value;

use crate::{fields::FieldSet, node::Node, typed};

/// The manager that `kubectl apply --server-side` applies as.
pub(super) const KUBECTL: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// How large all annotations of an object may be together.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The fields that client-side apply set and that still are as it set them.
pub(super) fn allowed(node: Node<'_>, live: &Value, api_version: &str) -> Option<FieldSet> {
    let text = annotation(live)?;
    let applied: Value = serde_json::from_str(text).ok()?;
    if applied.get("apiVersion").and_then(Value::as_str) != Some(api_version) {
        return None;
    }
    typed::validate(node, &applied).ok()?;
    let changes = typed::compare(node, &applied, live).ok()?;
    let mut set = typed::field_set(node, &applied);
    set.subtract(&changes.modified);
    set.subtract(&changes.added);
    set.subtract(&changes.removed);
    Some(set)
}

/// Writes what was applied to the annotation, if the object has it.
pub(super) fn refresh(object: &mut Value, applied: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut applied = applied.clone();
    if let Some(annotations) = annotations_mut(&mut applied) {
        annotations.remove(ANNOTATION);
        if annotations.is_empty()
            && let Some(metadata) = applied.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("annotations");
        }
    }
    let mut text = applied.to_string();
    text.push('\n');
    if let Some(annotations) = annotations_mut(object) {
        annotations.insert(ANNOTATION.to_owned(), Value::String(text));
        let size: usize =
            annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
        if size > MAX_ANNOTATIONS {
            annotations.remove(ANNOTATION);
        }
    }
}

fn annotation(object: &Value) -> Option<&str> {
    let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

fn annotations_mut(object: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    object.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()
}
