//! The types of an OpenAPI document.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use drydock_schema::builtin;
use serde_json::{Map, Value, json};

use crate::{Kind, json, kind::Source};

/// The version of OpenAPI that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    V2,
    V3,
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
pub(crate) const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// What every group needs beside its own types.
const SHARED: &[&str] = &[
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
];

impl Dialect {
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        }
    }

    pub(crate) fn reference(self, name: &str) -> Value {
        json!({"$ref": format!("{}{name}", self.prefix())})
    }
}

/// The name of the type of a kind: that of its definition, or one made from a custom group as
/// Kubernetes makes it (`com.example.cache.v1alpha1.Memcached`).
pub(crate) fn name_of(kind: &Kind) -> String {
    match kind.definition() {
        Some(name) => name.to_owned(),
        None => custom_name(kind, &kind.kind),
    }
}

/// The name of the type of a kind's lists.
pub(crate) fn list_name_of(kind: &Kind) -> String {
    match kind.definition() {
        Some(name) => format!("{name}List"),
        None => custom_name(kind, &kind.list_kind),
    }
}

fn custom_name(kind: &Kind, name: &str) -> String {
    let reversed: Vec<_> = kind.group.split('.').rev().collect();
    format!("{}.{}.{name}", reversed.join("."), kind.version)
}

/// The schema of a custom kind as it was written.
pub(crate) fn custom_schema(kind: &Kind) -> Option<&Value> {
    match &kind.source {
        Source::Builtin(_) => None,
        Source::Custom(custom) => Some(&custom.raw_schema),
    }
}

/// The types of `kinds` and everything they refer to.
pub(crate) fn of(kinds: &[Arc<Kind>], dialect: Dialect) -> Map<String, Value> {
    let mut definitions = BTreeMap::new();
    let mut wanted: Vec<String> = SHARED.iter().map(|name| (*name).to_owned()).collect();
    for kind in kinds {
        if kind.is_custom() {
            definitions.insert(name_of(kind), custom(kind, dialect));
            definitions.insert(list_name_of(kind), custom_list(kind, dialect));
            wanted.extend([OBJECT_META.to_owned(), LIST_META.to_owned()]);
        } else {
            wanted.push(name_of(kind));
            if !kind.is_virtual() {
                wanted.push(list_name_of(kind));
            }
        }
        if kind.subresources.scale.is_some() {
            wanted.push(SCALE.to_owned());
        }
        for sub in &kind.subresources.other {
            wanted.extend(super::paths::subresource_definition(kind, sub));
        }
    }
    let mut seen = BTreeSet::new();
    while let Some(name) = wanted.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let Some(mut definition) = builtin::raw(&name).and_then(|raw| serde_json::from_str(raw).ok()) else {
            continue;
        };
        super::enums::add(&name, &mut definition);
        if dialect == Dialect::V3 {
            to_v3(&mut definition);
            special(&name, &mut definition);
            zeros_are_defaults(&name, &mut definition);
        }
        references(&definition, dialect, &mut wanted);
        definitions.insert(name, definition);
    }
    definitions.into_iter().collect()
}

fn references(value: &Value, dialect: Dialect, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str().and_then(|text| text.strip_prefix(dialect.prefix())) {
                    Some(target) if name == "$ref" => found.push(target.to_owned()),
                    _ => references(value, dialect, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, dialect, found)),
        _ => {}
    }
}

/// References move to their new place; one that has company stands in an `allOf`, because the
/// third version reads nothing beside a reference.
fn to_v3(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(to_v3);
            let Some(Value::String(target)) = fields.get_mut("$ref") else { return };
            *target = target.replace(Dialect::V2.prefix(), Dialect::V3.prefix());
            if fields.len() > 1
                && let Some(target) = fields.remove("$ref")
            {
                fields.insert("allOf".to_owned(), json!([{"$ref": target}]));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(to_v3),
        _ => {}
    }
}

/// What Go's types are when nothing is said: a field that holds a struct, not a pointer to one, is an
/// empty object, a field that is required is a zero, and so are the items of lists and maps.
fn zeros_are_defaults(name: &str, definition: &mut Value) {
    let mut empty = json!({});
    builtin::normalise(name, &mut empty);
    let required = json::list(definition, "required").to_vec();
    let Some(Value::Object(properties)) = definition.get_mut("properties") else { return };
    for (field, property) in properties {
        if empty.get(field).is_some_and(Value::is_object) && property.get("allOf").is_some() {
            json::set(property, "default", json!({}));
        }
        if required.iter().any(|name| name == field) {
            zero_is_default(property);
        }
        for part in ["items", "additionalProperties"] {
            let Some(child) = property.get_mut(part) else { continue };
            match child.get("$ref").and_then(Value::as_str) {
                Some(target) if !is_scalar(target) => {
                    *child = json!({"default": {}, "allOf": [{"$ref": target}]});
                }
                Some(_) => {}
                None => zero_is_default(child),
            }
        }
    }
}

fn zero_is_default(schema: &mut Value) {
    let zero = match json::text(schema, "type") {
        "string" if json::text(schema, "format") != "byte" => json!(""),
        "integer" | "number" => json!(0),
        "boolean" => json!(false),
        _ => return,
    };
    json::default(schema, "default", zero);
}

/// The target of a reference is no object in JSON, or need not be one.
fn is_scalar(reference: &str) -> bool {
    const LOCAL: &[&str] =
        &["Quantity", "IntOrString", "JSON", "JSONSchemaPropsOrStringArray", "Time", "MicroTime"];
    LOCAL.contains(&reference.rsplit('.').next().unwrap_or_default())
}

/// Two types are unions, which only the third version can say.
fn special(name: &str, definition: &mut Value) {
    let union = match name {
        INT_OR_STRING => json!([{"type": "integer"}, {"type": "string"}]),
        QUANTITY => json!([{"type": "string"}, {"type": "number"}]),
        _ => return,
    };
    json::remove(definition, "type");
    json::set(definition, "oneOf", union);
}

fn custom(kind: &Kind, dialect: Dialect) -> Value {
    let mut schema = custom_schema(kind).cloned().unwrap_or_else(|| json!({"type": "object"}));
    if dialect == Dialect::V2 {
        to_v2(&mut schema);
    }
    let properties = json::object_at(&mut schema, "properties");
    if let Some(properties) = properties {
        let mut metadata = dialect.reference(OBJECT_META);
        if dialect == Dialect::V3 {
            metadata = json!({"allOf": [metadata]});
        }
        json::set(&mut metadata, "description", "The name, labels and other data that every object has.");
        json::set(properties, "metadata", metadata);
        type_fields(properties);
    }
    identify(&mut schema, kind, &kind.kind);
    schema
}

fn custom_list(kind: &Kind, dialect: Dialect) -> Value {
    let mut properties = json!({
        "metadata": dialect.reference(LIST_META),
        "items": {
            "type": "array",
            "description": format!("The {} of the list.", kind.plural),
            "items": dialect.reference(&name_of(kind)),
        },
    });
    type_fields(&mut properties);
    let mut schema = json!({
        "type": "object",
        "description": format!("{} is a list of {}", kind.list_kind, kind.kind),
        "required": ["items"],
        "properties": properties,
    });
    identify(&mut schema, kind, &kind.list_kind);
    schema
}

fn type_fields(properties: &mut Value) {
    json::set(
        properties,
        "apiVersion",
        json!({"type": "string", "description": "The group and version of the type of this object."}),
    );
    json::set(
        properties,
        "kind",
        json!({"type": "string", "description": "The name of the type of this object."}),
    );
}

fn identify(schema: &mut Value, kind: &Kind, name: &str) {
    let this = json!([{"group": kind.group, "version": kind.version, "kind": name}]);
    json::set(schema, "x-kubernetes-group-version-kind", this);
}

/// The second version knows less: unions, `nullable` and defaults are left out, and what is left
/// without a type accepts anything.
fn to_v2(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    for field in ["oneOf", "anyOf", "allOf", "not", "nullable", "default", "x-kubernetes-validations"] {
        fields.remove(field);
    }
    if fields.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(true)) {
        for field in ["items", "properties"] {
            fields.remove(field);
        }
    }
    if fields.get("x-kubernetes-int-or-string") == Some(&json!(true)) {
        fields.remove("type");
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(to_v2);
    }
    for field in ["items", "additionalProperties"] {
        if let Some(child) = fields.get_mut(field) {
            to_v2(child);
        }
    }
}
