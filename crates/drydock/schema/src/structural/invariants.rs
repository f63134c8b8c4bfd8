//! What makes a schema structural.

use regex::Regex;
use serde_json::{Map, Value, json};

use crate::FieldError;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Everything that is not structural, sorted.
pub(super) fn check(definition: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    node(definition, Level::Root, path, &mut errors);
    completeness(definition, Some(definition), path, path, &mut errors);
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

fn text<'a>(definition: &'a Value, key: &str) -> &'a str {
    definition.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn is_set(definition: &Value, key: &str) -> bool {
    definition.get(key) == Some(&Value::Bool(true))
}

fn fields<'a>(definition: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    definition.get(key).and_then(Value::as_object).into_iter().flatten()
}

fn several<'a>(definition: &'a Value, key: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    definition.get(key).and_then(Value::as_array).into_iter().flatten().enumerate()
}

fn node(definition: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let kind = text(definition, "type");
    let embedded = is_set(definition, "x-kubernetes-embedded-resource");
    let preserve = is_set(definition, "x-kubernetes-preserve-unknown-fields");
    let int_or_string = is_set(definition, "x-kubernetes-int-or-string");
    match definition.get("items") {
        Some(items) => node(items, Level::Item, &format!("{path}.items"), errors),
        None if kind == "array" => {
            errors.push(FieldError::required(format!("{path}.items"), "must be specified"))
        }
        None => {}
    }
    for (name, property) in fields(definition, "properties") {
        node(property, Level::Field, &format!("{path}.properties[{name}]"), errors);
    }
    if let Some(additional) = definition.get("additionalProperties") {
        let path = format!("{path}.additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(path.as_str(), "must not be used at the root"));
        }
        if embedded {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            errors.push(FieldError::forbidden(path.as_str(), detail));
        }
        if additional.is_object() {
            node(additional, Level::Field, &path, errors);
        }
    }
    if int_or_string && preserve {
        let detail = "must be false if x-kubernetes-int-or-string is true";
        errors.push(FieldError::invalid(
            format!("{path}.x-kubernetes-preserve-unknown-fields"),
            true,
            detail,
        ));
    }
    if int_or_string && embedded {
        let detail = "must be false if x-kubernetes-int-or-string is true";
        errors.push(FieldError::invalid(format!("{path}.x-kubernetes-embedded-resource"), true, detail));
    }
    values(
        definition,
        is_int_or_string_pattern(definition),
        first_is_int_or_string(definition),
        path,
        errors,
    );

    let kind_path = format!("{path}.type");
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() {
            FieldError::required(kind_path.as_str(), detail)
        } else {
            FieldError::invalid(kind_path.as_str(), kind, detail)
        });
    } else if kind.is_empty() && !int_or_string && !preserve && definition.get("$ref").is_none() {
        let place = match level {
            Level::Root => "at the root",
            Level::Item => "for specified array items",
            Level::Field => "for specified object fields",
        };
        errors.push(FieldError::required(kind_path.as_str(), format!("must not be empty {place}")));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(kind_path, kind, "must be object at the root"));
    }
    meta(definition, level, embedded, path, errors);
    if embedded && !preserve && fields(definition, "properties").next().is_none() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{path}.properties"), detail));
    }
}

/// `apiVersion` and `kind` are strings, and of metadata only the names may be restricted.
fn meta(definition: &Value, level: Level, embedded: bool, path: &str, errors: &mut Vec<FieldError>) {
    let is_object = level == Level::Root || embedded;
    let Some(properties) = definition.get("properties") else { return };
    for name in ["kind", "apiVersion"] {
        if let Some(property) = properties.get(name).filter(|_| is_object)
            && text(property, "type") != "string"
        {
            let path = format!("{path}.properties[{name}].type");
            errors.push(FieldError::invalid(path, text(property, "type"), "must be string"));
        }
    }
    let Some(metadata) = properties.get("metadata") else { return };
    let path = format!("{path}.properties[metadata]");
    if is_object && text(metadata, "type") != "object" {
        errors.push(FieldError::invalid(format!("{path}.type"), text(metadata, "type"), "must be object"));
    }
    if level == Level::Root && !restricts_names_only(metadata) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(path, detail));
    }
}

fn restricts_names_only(metadata: &Value) -> bool {
    let names_only = fields(metadata, "properties").all(|(name, _)| name == "name" || name == "generateName");
    let quiet = ["type", "properties", "default"];
    names_only
        && metadata.as_object().is_none_or(|object| object.keys().all(|key| quiet.contains(&key.as_str())))
}

fn int_or_string() -> Value {
    json!([{"type": "integer"}, {"type": "string"}])
}

fn is_int_or_string_pattern(definition: &Value) -> bool {
    definition.get("anyOf") == Some(&int_or_string())
}

fn first_is_int_or_string(definition: &Value) -> bool {
    definition.get("allOf").and_then(|all| all.get(0)).is_some_and(is_int_or_string_pattern)
}

/// Value validation: the combinations below, and the pattern.
fn values(definition: &Value, skip_any: bool, skip_first: bool, path: &str, errors: &mut Vec<FieldError>) {
    for key in ["anyOf", "allOf", "oneOf"] {
        if key == "anyOf" && skip_any {
            continue;
        }
        for (index, alternative) in several(definition, key) {
            let skip = key == "allOf" && skip_first && index == 0;
            nested(alternative, skip, &format!("{path}.{key}[{index}]"), errors);
        }
    }
    if let Some(not) = definition.get("not") {
        nested(not, false, &format!("{path}.not"), errors);
    }
    let pattern = text(definition, "pattern");
    if !pattern.is_empty()
        && let Err(error) = Regex::new(pattern)
    {
        let detail =
            format!("must be a valid regular expression, but isn't: {}", regexp_error(pattern, &error));
        errors.push(FieldError::invalid(format!("{path}.pattern"), pattern, detail));
    }
}

/// What is wrong with a pattern, in Go's words where they are known.
fn regexp_error(pattern: &str, error: &regex::Error) -> String {
    let text = error.to_string();
    let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
    let reason = match reason {
        "unclosed group" => "missing closing )",
        "unopened group" => "unexpected )",
        "unclosed character class" => "missing closing ]",
        "repetition operator missing expression" => "missing argument to repetition operator",
        "look-around, including look-ahead and look-behind, is not supported" => {
            "invalid or unsupported Perl syntax"
        }
        other => other,
    };
    format!("error parsing regexp: {reason}: `{pattern}`")
}

/// Inside of a combination nothing may be declared, only restricted.
fn nested(definition: &Value, skip_any: bool, path: &str, errors: &mut Vec<FieldError>) {
    values(definition, skip_any, false, path, errors);
    if let Some(items) = definition.get("items") {
        nested(items, false, &format!("{path}.items"), errors);
    }
    for (name, property) in fields(definition, "properties") {
        nested(property, false, &format!("{path}.properties[{name}]"), errors);
    }
    let present = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Object(_) => true,
    };
    for (key, detail) in [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        let undefined = detail.contains("undefined");
        if definition.get(key).is_some_and(|value| if undefined { !value.is_null() } else { present(value) })
        {
            errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
        }
    }
    if definition.get("properties").and_then(Value::as_object).is_some_and(has_metadata) {
        let detail = "must not be specified in a nested context";
        errors.push(FieldError::forbidden(format!("{path}.properties[metadata]"), detail));
    }
}

fn has_metadata(properties: &Map<String, Value>) -> bool {
    properties.contains_key("metadata")
}

/// Whatever a combination restricts must be declared outside of it.
fn completeness(
    value: &Value,
    declared: Option<&Value>,
    declared_path: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, alternative) in several(value, key) {
            nested_completeness(
                alternative,
                declared,
                declared_path,
                &format!("{path}.{key}[{index}]"),
                errors,
            );
        }
    }
    if let Some(not) = value.get("not") {
        nested_completeness(not, declared, declared_path, &format!("{path}.not"), errors);
    }
}

fn nested_completeness(
    value: &Value,
    declared: Option<&Value>,
    declared_path: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(schema) = declared else {
        errors.push(FieldError::required(declared_path, format!("because it is defined in {path}")));
        return;
    };
    completeness(value, declared, declared_path, path, errors);
    if let Some(items) = value.get("items") {
        let declared_path = format!("{declared_path}.items");
        nested_completeness(items, schema.get("items"), &declared_path, &format!("{path}.items"), errors);
    }
    for (name, property) in fields(value, "properties") {
        let declared = schema.get("properties").and_then(|properties| properties.get(name));
        let declared_path = format!("{declared_path}.properties[{name}]");
        nested_completeness(
            property,
            declared,
            &declared_path,
            &format!("{path}.properties[{name}]"),
            errors,
        );
    }
}
