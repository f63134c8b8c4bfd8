//! Whether JSON fits the Go types of a built-in kind, in the words of Go's decoder.
//!
//! Kubernetes reads built-in kinds into structs before it looks at them any further; what does not
//! fit is a bad request, not an invalid object. Custom resources are checked by their schema
//! instead, all but their metadata, for which there is [`metadata`].
//!
//! `null` fits everywhere, as it does in Go. Named string types (`v1.Protocol`) are called
//! `string`, because the published definitions do not name them.

use serde_json::Value;

use crate::{Schema, Type, builtin, words};

/// The first thing that does not fit. `Display` is what follows `cannot be handled as a …: `.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{decoding}")]
pub struct Mismatch {
    decoding: String,
    conversion: Option<String>,
}

impl Mismatch {
    fn new(decoding: impl Into<String>) -> Self {
        Self { decoding: decoding.into(), conversion: None }
    }

    /// What Kubernetes says of it where it does not decode JSON but converts what it has decoded, as it
    /// does with an object that was patched strategically.
    #[must_use]
    pub fn in_conversion(&self) -> &str {
        self.conversion.as_deref().unwrap_or(&self.decoding)
    }
}

const QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Checks a value of a built-in type.
///
/// # Errors
///
/// With the first field that does not fit.
pub fn check(schema: &Schema, value: &Value) -> Result<(), Mismatch> {
    Walk::default().value(schema, value)
}

/// Checks the `metadata` of a custom resource.
///
/// # Errors
///
/// With the first field that does not fit.
pub fn metadata(value: &Value) -> Result<(), Mismatch> {
    match builtin::definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta") {
        Some(schema) => check(&schema, value),
        None => Ok(()),
    }
}

/// The fields that lead here, without the indices of lists and the keys of maps.
#[derive(Default)]
struct Walk {
    path: Vec<String>,
    structs: Vec<String>,
}

impl Walk {
    fn value(&mut self, schema: &Schema, value: &Value) -> Result<(), Mismatch> {
        match (schema.kind, value) {
            (_, Value::Null) | (Type::Any, _) => Ok(()),
            (Type::Object, Value::Object(fields)) => {
                let is_struct = schema.additional.is_none();
                if is_struct {
                    self.structs.push(short_name(schema).to_owned());
                }
                for (name, field) in fields {
                    let Some(known) = schema.field(name) else { continue };
                    if is_struct {
                        self.path.push(name.clone());
                    }
                    self.value(known, field)?;
                    if is_struct {
                        self.path.pop();
                    }
                }
                if is_struct {
                    self.structs.pop();
                }
                Ok(())
            }
            (Type::Array, Value::Array(items)) => match &schema.items {
                Some(known) => items.iter().try_for_each(|item| self.value(known, item)),
                None => Ok(()),
            },
            (Type::IntOrString, _) if schema.format.as_deref() == Some("quantity") => quantity(value),
            (Type::IntOrString | Type::String, Value::String(text)) => formatted(schema, text),
            (Type::Integer | Type::IntOrString, Value::Number(number)) => {
                let narrow = schema.kind == Type::IntOrString || schema.format.as_deref() == Some("int32");
                match number.as_i64() {
                    Some(integer) if !narrow || i32::try_from(integer).is_ok() => Ok(()),
                    _ => {
                        // As people write it: without a sign before a positive exponent.
                        let number = number.to_string().replace("e+", "e");
                        Err(self.mismatch(schema, value, &format!("number {number}")))
                    }
                }
            }
            (Type::Number, Value::Number(_)) | (Type::Boolean, Value::Bool(_)) => Ok(()),
            (_, other) => Err(self.mismatch(schema, other, words::json_kind(other))),
        }
    }

    fn mismatch(&self, schema: &Schema, value: &Value, found: &str) -> Mismatch {
        let wanted = go_type(schema);
        let decoding = match self.structs.last() {
            Some(name) => format!(
                "json: cannot unmarshal {found} into Go struct field {name}.{} of type {wanted}",
                self.path.join(".")
            ),
            None => format!("json: cannot unmarshal {found} into Go value of type {wanted}"),
        };
        Mismatch { decoding, conversion: conversion(schema, value) }
    }
}

/// What a value that is not of a type is not converted to it for; none where the type reads JSON itself.
fn conversion(schema: &Schema, value: &Value) -> Option<String> {
    let found = match value {
        Value::Null => return None,
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    };
    Some(match schema.kind {
        Type::Object if schema.additional.is_some() => format!("cannot restore map from {found}"),
        Type::Object => format!("cannot restore struct from: {found}"),
        Type::Array => format!("cannot restore slice from {found}"),
        Type::String if schema.format.as_deref() == Some("date-time") => return None,
        Type::String if schema.format.as_deref() == Some("byte") => {
            format!("cannot restore slice from {found}")
        }
        // Go can make a text of a number, and JSON must not.
        Type::String if found == "int64" => "cannot convert int64 to string".to_owned(),
        Type::Integer if found == "float64" => format!("cannot convert float64 to {}", go_type(schema)),
        Type::Integer if found == "int64" => return None,
        Type::String | Type::Boolean | Type::Integer | Type::Number => {
            format!("unrecognized type: {}", go_type(schema))
        }
        Type::Any | Type::IntOrString => return None,
    })
}

/// `PodSpec` of `io.k8s.api.core.v1.PodSpec`.
fn short_name(schema: &Schema) -> &str {
    schema.name.as_deref().and_then(|name| name.rsplit('.').next()).unwrap_or_default()
}

fn go_type(schema: &Schema) -> String {
    match schema.kind {
        Type::String if schema.format.as_deref() == Some("byte") => "[]uint8".to_owned(),
        Type::String => "string".to_owned(),
        Type::Boolean => "bool".to_owned(),
        Type::Number => "float64".to_owned(),
        Type::IntOrString => "int32".to_owned(),
        Type::Integer => schema.format.as_deref().unwrap_or("int64").to_owned(),
        Type::Array => format!("[]{}", schema.items.as_deref().map(go_type).unwrap_or_default()),
        Type::Object | Type::Any => match (&schema.name, &schema.additional) {
            (Some(name), _) => {
                let mut parts = name.rsplit('.');
                let (local, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                format!("{package}.{local}")
            }
            (None, Some(values)) if values.format.as_deref() == Some("quantity") => {
                "v1.ResourceList".to_owned()
            }
            (None, Some(values)) => format!("map[string]{}", go_type(values)),
            (None, None) => "map[string]interface {}".to_owned(),
        },
    }
}

fn quantity(value: &Value) -> Result<(), Mismatch> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let digits = text.trim_start_matches(['+', '-']);
    let signs = text.len() - digits.len();
    let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(end);
    let letters = suffix.trim_end_matches(|c: char| c.is_ascii_digit());
    let letters = letters.strip_suffix(['+', '-']).unwrap_or(letters);
    if signs > 1 || number.is_empty() || !letters.chars().all(|c| "eEinumkKMGTP".contains(c)) {
        return Err(Mismatch::new(QUANTITY.to_owned()));
    }
    if number.matches('.').count() > 1 || number == "." {
        return Err(Mismatch::new("unable to parse numeric part of quantity".to_owned()));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).is_some_and(|rest| rest.parse::<i32>().is_ok());
    let known = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if exponent || known.contains(&suffix) {
        return Ok(());
    }
    Err(Mismatch::new("unable to parse quantity's suffix".to_owned()))
}

fn formatted(schema: &Schema, text: &str) -> Result<(), Mismatch> {
    match schema.format.as_deref() {
        Some("byte") => base64(text),
        Some("date-time") => time(text, short_name(schema) == "MicroTime"),
        _ => Ok(()),
    }
}

fn base64(text: &str) -> Result<(), Mismatch> {
    use base64::{DecodeError, Engine as _, engine::general_purpose::STANDARD};
    // Go's decoder passes over line breaks.
    let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    match STANDARD.decode(&text) {
        Ok(_) => Ok(()),
        Err(error) => {
            let at = match error {
                DecodeError::InvalidByte(at, _) => at,
                DecodeError::InvalidLastSymbol { offset, .. } => offset,
                _ => text.len(),
            };
            Err(Mismatch::new(format!("illegal base64 data at input byte {at}")))
        }
    }
}

/// RFC 3339, with the complaint of Go's parser about the first part that is not there.
fn time(text: &str, micro: bool) -> Result<(), Mismatch> {
    if text.parse::<jiff::Timestamp>().is_ok() {
        return Ok(());
    }
    let layout = if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    let mut rest = text;
    for part in ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"] {
        let fits = match rest.get(..part.len()) {
            Some(head) if part.starts_with(|c: char| c.is_ascii_digit()) => {
                head.bytes().all(|b| b.is_ascii_digit())
            }
            head => head == Some(part),
        };
        if !fits {
            return Err(Mismatch::new(format!(
                "parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {part:?}"
            )));
        }
        rest = rest.get(part.len()..).unwrap_or_default();
    }
    Err(Mismatch::new(format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as \"Z07:00\"")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn complaint(result: Result<(), Mismatch>) -> String {
        result.err().map(|mismatch| mismatch.to_string()).unwrap_or_default()
    }

    /// A Deployment with one value set; the expected text is what Kubernetes 1.34 answers.
    fn check_deployment(pointer: &str, value: Value, expected: &str) {
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "strategy": {"rollingUpdate": {"maxSurge": "25%"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                    "terminationGracePeriodSeconds": 30, "volumes": [],
                    "containers": [{"name": "a", "image": "b", "ports": [], "resources": {"limits": {"cpu": 0.5}}, "args": [], "stdin": true,
                        "livenessProbe": {"httpGet": {"port": "http"}}}],
                }},
            },
        });
        let schema = builtin::definition("io.k8s.api.apps.v1.Deployment").expect("built in");
        assert_eq!(complaint(check(&schema, &object)), "");
        let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
        object.pointer_mut(parent).expect("a parent")[name] = value;
        assert_eq!(complaint(check(&schema, &object)), expected);
    }

    #[test]
    fn what_does_not_fit_is_named_as_go_names_it() {
        let field = |found: &str, field: &str, wanted: &str| {
            format!("json: cannot unmarshal {found} into Go struct field {field} of type {wanted}")
        };
        let container = "/spec/template/spec/containers/0";
        for (pointer, value, found, name, wanted) in [
            ("/spec/replicas", json!("three"), "string", "DeploymentSpec.spec.replicas", "int32"),
            ("/spec/replicas", json!(1.5), "number 1.5", "DeploymentSpec.spec.replicas", "int32"),
            (
                "/spec/replicas",
                json!(1_000_000_000_000_u64),
                "number 1000000000000",
                "DeploymentSpec.spec.replicas",
                "int32",
            ),
            ("/spec/replicas", json!(true), "bool", "DeploymentSpec.spec.replicas", "int32"),
            (
                "/spec/template/spec/containers",
                json!("x"),
                "string",
                "PodSpec.spec.template.spec.containers",
                "[]v1.Container",
            ),
            ("/spec", json!([]), "array", "Deployment.spec", "v1.DeploymentSpec"),
            ("/metadata", json!("x"), "string", "Deployment.metadata", "v1.ObjectMeta"),
            ("/metadata/labels", json!(5), "number", "ObjectMeta.metadata.labels", "map[string]string"),
            ("/metadata/labels", json!({"a": 5}), "number", "ObjectMeta.metadata.labels", "string"),
            (
                "/metadata/creationTimestamp",
                json!(5),
                "number",
                "ObjectMeta.metadata.creationTimestamp",
                "string",
            ),
            (
                "/metadata/ownerReferences",
                json!([{"controller": "x"}]),
                "string",
                "OwnerReference.metadata.ownerReferences.controller",
                "bool",
            ),
            (
                "/spec/template/spec/volumes",
                json!([5]),
                "number",
                "PodSpec.spec.template.spec.volumes",
                "v1.Volume",
            ),
            (
                "/spec/template/spec/volumes",
                json!([{"emptyDir": 5}]),
                "number",
                "Volume.spec.template.spec.volumes.emptyDir",
                "v1.EmptyDirVolumeSource",
            ),
            (
                "/spec/strategy/rollingUpdate",
                json!({"maxSurge": {}}),
                "object",
                "RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge",
                "int32",
            ),
            (
                "/spec/template/spec/terminationGracePeriodSeconds",
                json!("1"),
                "string",
                "PodSpec.spec.template.spec.terminationGracePeriodSeconds",
                "int64",
            ),
            (
                &format!("{container}/ports"),
                json!([{"containerPort": "a"}]),
                "string",
                "ContainerPort.spec.template.spec.containers.ports.containerPort",
                "int32",
            ),
            (
                &format!("{container}/args"),
                json!([1]),
                "number",
                "Container.spec.template.spec.containers.args",
                "string",
            ),
            (
                &format!("{container}/livenessProbe/httpGet"),
                json!({"port": 1.5}),
                "number 1.5",
                "HTTPGetAction.spec.template.spec.containers.livenessProbe.httpGet.port",
                "int32",
            ),
        ] {
            check_deployment(pointer, value, &field(found, name, wanted));
        }
        check_deployment(
            "/metadata/creationTimestamp",
            json!("x"),
            r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#,
        );
        check_deployment("/metadata/managedFields", json!([{"fieldsV1": "x"}]), "");
        for bad in [json!("zzz"), json!(true), json!("")] {
            check_deployment(&format!("{container}/resources/limits"), json!({"cpu": bad}), QUANTITY);
        }
    }

    #[test]
    fn quantities_are_known_by_their_suffix() {
        for text in ["1", "0.5", "100m", "64Mi", "1e3", "1E", "-2Gi", "+.5", "5."] {
            assert_eq!(complaint(quantity(&text.into())), "", "{text}");
        }
        assert_eq!(complaint(quantity(&"1kM".into())), "unable to parse quantity's suffix");
    }

    #[test]
    fn data_is_base64() {
        let secret = builtin::definition("io.k8s.api.core.v1.Secret").expect("built in");
        let check = |data: Value| complaint(check(&secret, &json!({"data": data})));
        assert_eq!(check(json!({"a": "aGk="})), "");
        assert_eq!(check(json!({"a": "???"})), "illegal base64 data at input byte 0");
        assert_eq!(
            check(json!({"a": 5})),
            "json: cannot unmarshal number into Go struct field Secret.data of type []uint8"
        );
    }

    #[test]
    fn the_metadata_of_a_custom_resource_stands_alone() {
        assert_eq!(
            complaint(metadata(&json!({"name": 5}))),
            "json: cannot unmarshal number into Go struct field ObjectMeta.name of type string"
        );
        assert_eq!(
            complaint(metadata(&json!([]))),
            "json: cannot unmarshal array into Go value of type v1.ObjectMeta"
        );
        assert_eq!(complaint(metadata(&Value::Null)), "");
    }
}
