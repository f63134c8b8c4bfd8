//! Builds the schema; what is malformed is passed over, the checks beside this name it.

use std::sync::Arc;

use regex::Regex;
use serde_json::Value;

use crate::{Checks, ListKind, MapKind, Schema, Type, builtin};

/// The schema of a whole object.
pub(super) fn root(definition: &Value) -> Schema {
    let mut schema = node(definition);
    add_meta(&mut schema);
    schema
}

fn text<'a>(definition: &'a Value, key: &str) -> Option<&'a str> {
    definition.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn flag(definition: &Value, key: &str) -> bool {
    definition.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn strings(definition: &Value, key: &str) -> Vec<String> {
    let list = definition.get(key).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

pub(super) fn node(definition: &Value) -> Schema {
    let additional = definition.get("additionalProperties");
    let mut schema = Schema {
        kind: kind(definition),
        properties: definition
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(name, property)| (name.clone(), Arc::new(node(property))))
            .collect(),
        // `true` and `false` both make a map of values that nothing is known about.
        additional: additional.map(|values| Arc::new(node(values))),
        items: definition.get("items").filter(|items| items.is_object()).map(|items| Arc::new(node(items))),
        required: strings(definition, "required"),
        nullable: flag(definition, "nullable"),
        default: definition.get("default").filter(|default| !default.is_null()).cloned(),
        preserve_unknown_fields: flag(definition, "x-kubernetes-preserve-unknown-fields"),
        embedded_resource: flag(definition, "x-kubernetes-embedded-resource"),
        list: match text(definition, "x-kubernetes-list-type") {
            Some("set") => ListKind::Set,
            Some("map") => ListKind::Map(strings(definition, "x-kubernetes-list-map-keys")),
            _ => ListKind::Atomic,
        },
        map: match text(definition, "x-kubernetes-map-type") {
            Some("atomic") => MapKind::Atomic,
            _ => MapKind::Granular,
        },
        format: text(definition, "format").map(Into::into),
        checks: checks(definition),
        ..Schema::default()
    };
    schema.checks.closed = additional == Some(&Value::Bool(false));
    if schema.embedded_resource {
        add_meta(&mut schema);
    }
    schema
}

fn kind(definition: &Value) -> Type {
    if flag(definition, "x-kubernetes-int-or-string") {
        return Type::IntOrString;
    }
    Type::named(text(definition, "type").unwrap_or_default())
}

fn checks(definition: &Value) -> Checks {
    let number = |key: &str| definition.get(key).and_then(Value::as_f64);
    let count = |key: &str| definition.get(key).and_then(Value::as_u64);
    let several = |key: &str| {
        let list = definition.get(key).and_then(Value::as_array).into_iter().flatten();
        list.map(|alternative| Arc::new(node(alternative))).collect()
    };
    Checks {
        allowed: definition.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
        minimum: number("minimum"),
        exclusive_minimum: flag(definition, "exclusiveMinimum"),
        maximum: number("maximum"),
        exclusive_maximum: flag(definition, "exclusiveMaximum"),
        multiple_of: number("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        pattern: text(definition, "pattern").and_then(|pattern| Regex::new(pattern).ok()),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        closed: false,
        all_of: several("allOf"),
        any_of: several("anyOf"),
        one_of: several("oneOf"),
        not: definition.get("not").filter(|not| not.is_object()).map(|not| Arc::new(node(not))),
    }
}

/// Every object has a type and metadata; a schema may only restrict the names in it.
fn add_meta(schema: &mut Schema) {
    let string = Arc::new(Schema { kind: Type::String, ..Schema::default() });
    for name in ["apiVersion", "kind"] {
        schema.properties.entry(name.into()).or_insert_with(|| Arc::clone(&string));
    }
    let Some(published) = builtin::definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta") else {
        return;
    };
    let metadata = match schema.properties.get("metadata") {
        Some(own) if !own.properties.is_empty() || !own.required.is_empty() => {
            let mut metadata = Schema::clone(&published);
            for (name, property) in &own.properties {
                metadata.properties.insert(name.clone(), Arc::clone(property));
            }
            metadata.required.clone_from(&own.required);
            metadata.checks = own.checks.clone();
            Arc::new(metadata)
        }
        _ => published,
    };
    schema.properties.insert("metadata".into(), metadata);
}
