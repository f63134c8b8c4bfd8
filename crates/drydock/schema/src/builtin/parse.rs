//! From a published OpenAPI v2 definition to a [`Schema`].

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use serde_json::Value;

use super::table::{Entry, TABLE};
use crate::{ListKind, MapKind, PatchStrategy, Schema, Type};

/// What is read of a definition; descriptions are skipped over.
#[derive(Deserialize)]
struct Node<'a> {
    #[serde(rename = "$ref", borrow)]
    reference: Option<Cow<'a, str>>,
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    format: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    properties: BTreeMap<Cow<'a, str>, Node<'a>>,
    #[serde(rename = "additionalProperties", borrow)]
    additional: Option<Box<Node<'a>>>,
    #[serde(borrow)]
    items: Option<Box<Node<'a>>>,
    #[serde(default)]
    required: Vec<String>,
    default: Option<Value>,
    #[serde(rename = "x-kubernetes-list-type", borrow)]
    list: Option<Cow<'a, str>>,
    #[serde(rename = "x-kubernetes-list-map-keys", default)]
    keys: Vec<String>,
    #[serde(rename = "x-kubernetes-map-type", borrow)]
    map: Option<Cow<'a, str>>,
    #[serde(rename = "x-kubernetes-patch-strategy", borrow)]
    strategy: Option<Cow<'a, str>>,
    #[serde(rename = "x-kubernetes-patch-merge-key", borrow)]
    merge_key: Option<Cow<'a, str>>,
}

/// The schema of an entry, parsed on first use.
pub(super) fn schema(entry: &'static Entry) -> Option<Arc<Schema>> {
    // No definition refers back to itself (the one that does is special below), so that this
    // never waits for itself.
    entry
        .schema
        .get_or_init(|| {
            if let Some(special) = special(entry.name) {
                return Some(Arc::new(Schema { name: Some(entry.name.into()), ..special }));
            }
            let node: Node<'_> = serde_json::from_str(entry.openapi).ok()?;
            Some(Arc::new(Schema { name: Some(entry.name.into()), ..convert(&node) }))
        })
        .clone()
}

/// Types whose JSON is not what their definition says.
fn special(name: &str) -> Option<Schema> {
    let anything = Schema { preserve_unknown_fields: true, ..Schema::default() };
    let scalar = |kind, format: &str| Schema { kind, format: Some(format.into()), ..Schema::default() };
    let local = name.rsplit('.').next()?;
    if name.starts_with("io.k8s.apiextensions-apiserver.") {
        // JSONSchemaProps refers to itself; what is inside is read by `Schema::from_openapi`.
        return local.starts_with("JSON").then_some(anything);
    }
    match name {
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => Some(scalar(Type::IntOrString, "quantity")),
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => Some(scalar(Type::IntOrString, "int-or-string")),
        "io.k8s.apimachinery.pkg.apis.meta.v1.Time" => Some(scalar(Type::String, "date-time")),
        "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime" => Some(scalar(Type::String, "date-time")),
        "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1" | "io.k8s.apimachinery.pkg.apis.meta.v1.Patch" => {
            Some(anything)
        }
        "io.k8s.apimachinery.pkg.runtime.RawExtension" => Some(Schema { map: MapKind::Atomic, ..anything }),
        _ => None,
    }
}

fn convert(node: &Node<'_>) -> Schema {
    let mut schema = Schema {
        kind: Type::named(node.kind.as_deref().unwrap_or_default()),
        properties: node.properties.iter().map(|(name, node)| (name.to_string(), child(node))).collect(),
        additional: node.additional.as_deref().map(child),
        items: node.items.as_deref().map(child),
        required: node.required.clone(),
        format: node.format.as_deref().map(Into::into),
        ..Schema::default()
    };
    annotate(&mut schema, node);
    schema
}

fn child(node: &Node<'_>) -> Arc<Schema> {
    let Some(reference) = node.reference.as_deref() else {
        return Arc::new(convert(node));
    };
    let target = reference
        .strip_prefix("#/definitions/")
        .and_then(|name| TABLE.get(name))
        .and_then(schema)
        .unwrap_or_else(|| Arc::new(Schema { preserve_unknown_fields: true, ..Schema::default() }));
    if node.strategy.is_none() && node.map.is_none() && node.list.is_none() && node.default.is_none() {
        return target;
    }
    let mut own = Schema::clone(&target);
    annotate(&mut own, node);
    Arc::new(own)
}

/// What may be written beside a reference too.
fn annotate(schema: &mut Schema, node: &Node<'_>) {
    if let Some(strategy) = node.strategy.as_deref() {
        schema.patch = PatchStrategy {
            merge_key: node.merge_key.as_deref().map(str::to_owned),
            merge: strategy.split(',').any(|part| part == "merge"),
            retain_keys: strategy.split(',').any(|part| part == "retainKeys"),
        };
    }
    if schema.kind == Type::Array {
        schema.list = match (node.list.as_deref(), &schema.patch) {
            (Some("map"), _) => ListKind::Map(node.keys.clone()),
            (Some("set"), _) => ListKind::Set,
            (Some(_), _) => ListKind::Atomic,
            (None, PatchStrategy { merge: true, merge_key: Some(key), .. }) => {
                ListKind::Map(vec![key.clone()])
            }
            (None, PatchStrategy { merge: true, merge_key: None, .. }) => ListKind::Set,
            (None, _) => ListKind::Atomic,
        };
    }
    match node.map.as_deref() {
        Some("atomic") => schema.map = MapKind::Atomic,
        // Beside a reference it may take back what the definition says.
        Some("granular") => schema.map = MapKind::Granular,
        _ => {}
    }
    if let Some(default) = &node.default {
        schema.default = Some(default.clone());
    }
}
