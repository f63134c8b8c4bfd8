//! Keywords: those that are not supported, those that contradict each other, and rules.

use std::sync::Arc;

use serde_json::Value;

use super::build;
use crate::{
    FieldError, FieldErrorKind, Schema,
    field::html_safe,
    rules::{self, Rule, RuleError},
};

/// Where a node stands.
#[derive(Clone, Copy, Default)]
struct Place {
    is_root: bool,
    /// Inside `metadata` of an object, where some things are not allowed.
    in_metadata: bool,
    /// Why no default may be set here.
    no_default: Option<&'static str>,
}

/// Everything about keywords that Kubernetes refuses, rules that do not compile apart.
pub(super) fn check(definition: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let place = Place { is_root: true, ..Place::default() };
    if definition.get("nullable") == Some(&Value::Bool(true)) {
        let root = format!("{path}.nullable");
        errors.push(FieldError::forbidden(root, "nullable cannot be true at the root"));
    }
    node(definition, path, place, &mut errors);
    errors
}

fn text<'a>(definition: &'a Value, key: &str) -> &'a str {
    definition.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn not_supported(path: String, value: &str, allowed: &[&str]) -> FieldError {
    let quoted: Vec<String> = allowed.iter().map(|text| format!("\"{text}\"")).collect();
    let detail = format!("supported values: {}", quoted.join(", "));
    FieldError::new(FieldErrorKind::NotSupported, path, Some(value.into()), detail)
}

fn node(definition: &Value, path: &str, place: Place, errors: &mut Vec<FieldError>) {
    unsupported(definition, path, place, errors);
    if let Some(additional) = definition.get("additionalProperties") {
        let path = format!("{path}.additionalProperties");
        let has_properties =
            definition.get("properties").and_then(Value::as_object).is_some_and(|p| !p.is_empty());
        if has_properties && additional != &Value::Bool(true) {
            errors.push(FieldError::forbidden(
                path.as_str(),
                "additionalProperties and properties are mutual exclusive",
            ));
        }
        let inside = Place {
            is_root: false,
            no_default: if place.in_metadata {
                Some("inside additionalProperties applying to object metadata")
            } else {
                place.no_default
            },
            ..place
        };
        node(additional, &path, inside, errors);
    }
    let is_object =
        place.is_root || definition.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
    for (name, property) in definition.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let mut below = Place { is_root: false, ..place };
        if is_object && let Some(reason) = top_level(name) {
            below.in_metadata = true;
            if place.is_root {
                below.no_default = Some(reason);
            }
        }
        node(property, &format!("{path}.properties[{name}]"), below, errors);
    }
    let below = Place { is_root: false, ..place };
    if let Some(not) = definition.get("not") {
        node(not, &format!("{path}.not"), below, errors);
    }
    for key in ["allOf", "oneOf", "anyOf"] {
        for (index, alternative) in
            definition.get(key).and_then(Value::as_array).into_iter().flatten().enumerate()
        {
            node(alternative, &format!("{path}.{key}[{index}]"), below, errors);
        }
    }
    if let Some(items) = definition.get("items") {
        node(items, &format!("{path}.items"), below, errors);
    }
    map_type(definition, path, errors);
    list_type(definition, path, errors);
    for (index, rule) in
        definition.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten().enumerate()
    {
        rule_shape(rule, definition, &format!("{path}.x-kubernetes-validations[{index}]"), errors);
    }
}

fn top_level(name: &str) -> Option<&'static str> {
    match name {
        "metadata" => Some("in top-level metadata"),
        "apiVersion" => Some("in top-level apiVersion"),
        "kind" => Some("in top-level kind"),
        _ => None,
    }
}

fn unsupported(definition: &Value, path: &str, place: Place, errors: &mut Vec<FieldError>) {
    const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
    let kind = text(definition, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(not_supported(format!("{path}.type"), kind, TYPES));
    }
    let mut forbid =
        |key: &str, detail: &str| errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
    if let Some(reason) = place.no_default
        && definition.get("default").is_some_and(|default| !default.is_null())
    {
        forbid("default", &format!("must not be set {reason}"));
    }
    for key in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if definition.get(key).is_some_and(|value| !value.is_null()) {
            forbid(key, &format!("{key} is not supported"));
        }
    }
    if kind == "null" {
        forbid("type", "type cannot be set to null, use nullable as an alternative");
    }
    if definition.get("items").is_some_and(Value::is_array) {
        forbid("items", "items must be a schema object and not an array");
    }
    if place.in_metadata && definition.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
        forbid("x-kubernetes-embedded-resource", "must not be used inside of resource meta");
    }
    if definition.get("uniqueItems") == Some(&Value::Bool(true)) {
        forbid(
            "uniqueItems",
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        );
    }
    if definition.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let path = format!("{path}.x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(path, false, "must be true or undefined"));
    }
}

/// A keyword that needs a type.
fn needs_type(kind: &str, wanted: &str, keyword: &str, path: &str) -> Option<FieldError> {
    let (path, detail) = (format!("{path}.type"), format!("must be {wanted} if {keyword} is specified"));
    match kind {
        kind if kind == wanted => None,
        "" => Some(FieldError::required(path, detail)),
        kind => Some(FieldError::invalid(path, kind, detail)),
    }
}

fn map_type(definition: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(map) = definition.get("x-kubernetes-map-type").and_then(Value::as_str) else { return };
    errors.extend(needs_type(text(definition, "type"), "object", "x-kubernetes-map-type", path));
    if !["atomic", "granular"].contains(&map) {
        errors.push(not_supported(format!("{path}.x-kubernetes-map-type"), map, &["atomic", "granular"]));
    }
}

fn list_type(definition: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let keys_path = format!("{path}.x-kubernetes-list-map-keys");
    let list_path = format!("{path}.x-kubernetes-list-type");
    let keys: Vec<&str> = definition
        .get("x-kubernetes-list-map-keys")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let Some(list) = definition.get("x-kubernetes-list-type").and_then(Value::as_str) else {
        if !keys.is_empty() {
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            errors.push(FieldError::required(list_path, detail));
        }
        return;
    };
    errors.extend(needs_type(text(definition, "type"), "array", "x-kubernetes-list-type", path));
    let items = definition.get("items").filter(|items| items.is_object());
    if list == "set"
        && let Some(items) = items
    {
        set_items(items, path, errors);
    }
    if !["atomic", "set", "map"].contains(&list) {
        errors.push(not_supported(list_path.clone(), list, &["atomic", "set", "map"]));
    }
    if !keys.is_empty() && list != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(FieldError::invalid(list_path, list, detail));
    }
    if list == "map" {
        map_items(&keys, &keys_path, items, path, errors);
    }
    if let Some(items) = items.filter(|_| list == "set" || list == "map") {
        if items.get("nullable") == Some(&Value::Bool(true)) {
            let detail = format!("cannot be nullable when x-kubernetes-list-type is {list}");
            errors.push(FieldError::forbidden(format!("{path}.items.nullable"), detail));
        }
        if list == "map" {
            key_properties(&keys, items, path, errors);
        }
    }
}

fn set_items(items: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list = items.get("x-kubernetes-list-type").and_then(Value::as_str);
    match text(items, "type") {
        "array" if list.is_some_and(|list| list != "atomic") => {
            errors.push(FieldError::invalid(format!("{path}.items.x-kubernetes-list-type"), list, detail));
        }
        "object" if text(items, "x-kubernetes-map-type") != "atomic" => {
            errors.push(FieldError::invalid(format!("{path}.items.x-kubernetes-map-type"), list, detail));
        }
        _ => {}
    }
}

fn map_items(
    keys: &[&str],
    keys_path: &str,
    items: Option<&Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if keys.is_empty() {
        errors.push(FieldError::required(keys_path, "must not be empty if x-kubernetes-list-type is map"));
    }
    let Some(items) = items else {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.items"), detail));
        return;
    };
    let kind = text(items, "type");
    if kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(format!("{path}.items.type"), kind, detail));
        return;
    }
    for (index, key) in keys.iter().enumerate() {
        match items.get("properties").and_then(|properties| properties.get(key)) {
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(keys_path, Value::from(keys), detail));
            }
            Some(property) if ["array", "object"].contains(&text(property, "type")) => {
                let path = format!("{path}.items.properties[{key}].type");
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.push(FieldError::invalid(path, kind, detail));
            }
            Some(_) => {}
        }
        if keys.iter().take(index).any(|earlier| earlier == key) {
            errors.push(FieldError::invalid(
                keys_path,
                Value::from(keys),
                "must not contain duplicate entries",
            ));
        }
    }
}

/// Every item must have its keys.
fn key_properties(keys: &[&str], items: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let required = items.get("required").and_then(Value::as_array);
    for key in keys {
        let Some(property) = items.get("properties").and_then(|properties| properties.get(key)) else {
            continue;
        };
        let is_required = required.is_some_and(|required| required.iter().any(|name| name == key));
        let path = format!("{path}.items.properties[{key}]");
        if !is_required && property.get("default").is_none() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(format!("{path}.default"), detail));
        }
        if property.get("nullable") == Some(&Value::Bool(true)) {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(format!("{path}.nullable"), detail));
        }
    }
}

/// What can be said of a rule without compiling it.
fn rule_shape(definition: &Value, around: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const REASONS: &[&str] =
        &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let (rule, message) = (text(definition, "rule"), text(definition, "message"));
    let has_newlines = |text: &str| text.contains(['\n', '\r']);
    if rule.trim().is_empty() {
        errors.push(FieldError::required(format!("{path}.rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(
            format!("{path}.message"),
            message,
            "must be non-empty if specified",
        ));
    } else if has_newlines(message.trim()) {
        errors.push(FieldError::invalid(format!("{path}.message"), message, "must not contain line breaks"));
    } else if has_newlines(rule.trim()) && message.trim().is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(format!("{path}.message"), detail));
    }
    let expression = text(definition, "messageExpression");
    if !expression.is_empty() && expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(format!("{path}.messageExpression"), detail));
    }
    if let Some(reason) = definition.get("reason").and_then(Value::as_str).filter(|r| !REASONS.contains(r)) {
        errors.push(not_supported(format!("{path}.reason"), reason, REASONS));
    }
    let field_path = text(definition, "fieldPath");
    if !field_path.is_empty() && field_path.trim().is_empty() {
        errors.push(FieldError::invalid(
            format!("{path}.fieldPath"),
            field_path,
            "must be non-empty if specified",
        ));
    }
    if has_newlines(field_path) {
        errors.push(FieldError::invalid(
            format!("{path}.fieldPath"),
            field_path,
            "must not contain line breaks",
        ));
    }
    if !field_path.is_empty() && rules::field_path(field_path, &build::node(around)).is_none() {
        errors.push(FieldError::invalid(format!("{path}.fieldPath"), field_path, "must be a valid path"));
    }
}

/// Compiles the rules of every node into the schema.
pub(super) fn compile(definition: &Value, schema: Schema, path: &str) -> (Schema, Vec<FieldError>) {
    let mut compiler = Compiler { errors: Vec::new() };
    let schema = compiler.node(definition, schema, path, true, None);
    (schema, compiler.errors)
}

struct Compiler {
    errors: Vec<FieldError>,
}

impl Compiler {
    /// `uncorrelated` is the nearest node above whose parts can't be told from their old selves.
    fn node(
        &mut self,
        definition: &Value,
        mut schema: Schema,
        path: &str,
        root: bool,
        uncorrelated: Option<&str>,
    ) -> Schema {
        let rules = definition.get("x-kubernetes-validations").and_then(Value::as_array);
        for (index, rule) in rules.into_iter().flatten().enumerate() {
            let path = format!("{path}.x-kubernetes-validations[{index}]");
            if let Some(rule) = self.rule(rule, &schema, &path, root, uncorrelated) {
                schema.rules.push(Arc::new(rule));
            }
        }
        let fields_apart = if definition.get("x-kubernetes-map-type") == Some(&"atomic".into()) {
            uncorrelated.or(Some(path))
        } else {
            uncorrelated
        };
        let items_apart = if definition.get("x-kubernetes-list-type") == Some(&"map".into()) {
            uncorrelated
        } else {
            uncorrelated.or(Some(path))
        };
        for (name, property) in &mut schema.properties {
            if let Some(definition) = definition.get("properties").and_then(|properties| properties.get(name))
            {
                self.child(definition, property, &format!("{path}.properties[{name}]"), fields_apart);
            }
        }
        if let (Some(values), Some(definition)) =
            (&mut schema.additional, definition.get("additionalProperties"))
        {
            self.child(definition, values, &format!("{path}.additionalProperties"), uncorrelated);
        }
        if let (Some(items), Some(definition)) = (&mut schema.items, definition.get("items")) {
            self.child(definition, items, &format!("{path}.items"), items_apart);
        }
        schema.has_rules = !schema.rules.is_empty()
            || schema.properties.values().any(|property| property.has_rules)
            || schema.additional.as_ref().is_some_and(|values| values.has_rules)
            || schema.items.as_ref().is_some_and(|items| items.has_rules);
        schema
    }

    fn child(
        &mut self,
        definition: &Value,
        schema: &mut Arc<Schema>,
        path: &str,
        uncorrelated: Option<&str>,
    ) {
        let own = std::mem::take(Arc::make_mut(schema));
        *Arc::make_mut(schema) = self.node(definition, own, path, false, uncorrelated);
    }

    fn rule(
        &mut self,
        definition: &Value,
        schema: &Schema,
        path: &str,
        root: bool,
        uncorrelated: Option<&str>,
    ) -> Option<Rule> {
        if text(definition, "rule").trim().is_empty() {
            return None;
        }
        let rule = match Rule::compile(definition, schema, root) {
            Ok(rule) => rule,
            Err(RuleError::Rule(detail)) => {
                self.errors.push(rule_error(format!("{path}.rule"), definition, detail));
                return None;
            }
            Err(RuleError::MessageExpression(detail)) => {
                self.errors.push(rule_error(format!("{path}.messageExpression"), definition, detail));
                return None;
            }
        };
        if rule.uses_old_self {
            if let Some(place) = uncorrelated {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {place}"
                );
                self.errors.push(FieldError::invalid(format!("{path}.rule"), rule.rule.as_str(), detail));
            }
        } else if let Some(optional) = definition.get("optionalOldSelf").and_then(Value::as_bool) {
            let detail = "may not be set if oldSelf is not used in rule";
            self.errors.push(FieldError::invalid(format!("{path}.optionalOldSelf"), optional, detail));
        }
        Some(rule)
    }
}

/// An error that shows the whole rule, in the order and with the names of Kubernetes' own type.
fn rule_error(path: String, definition: &Value, detail: String) -> FieldError {
    let json = |key: &str| html_safe(&definition.get(key).cloned().unwrap_or_default().to_string());
    let text = |key: &str| html_safe(&Value::from(text(definition, key)).to_string());
    let shown = format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        text("rule"),
        text("message"),
        text("messageExpression"),
        json("reason"),
        text("fieldPath"),
        json("optionalOldSelf"),
    );
    FieldError { shown: Some(shown.into()), ..FieldError::invalid(path, definition.clone(), detail) }
}
