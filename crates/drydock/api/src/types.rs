//! Values of another type than a built-in kind's field has, refused as the real server's decoder
//! refuses them.
//!
//! Custom resources have their own validation, which says such things by field; built-in kinds fail
//! to decode, and only the first fault is told.

use drydock_schema::{Schema, Type};
use jiff::Timestamp;
use serde_json::Value;

/// What the decoder says about the first value that does not fit, if there is one.
#[must_use]
pub fn mismatch(schema: &Schema, kind: &str, object: &Value) -> Option<String> {
    let root = Place { structure: kind, path: Path::Root };
    check(schema, object, &root)
}

/// Where a value is: the structure it is a field of, and the path from the top.
struct Place<'a> {
    structure: &'a str,
    path: Path<'a>,
}

enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
}

impl std::fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
        }
    }
}

fn check(schema: &Schema, value: &Value, place: &Place<'_>) -> Option<String> {
    match (schema.kind, value) {
        (_, Value::Null) | (Type::Any, _) => None,
        (Type::Object, Value::Object(fields)) => {
            if schema.properties.is_empty() {
                let known = schema.additional.as_deref()?;
                let within = |_: &str| Place { structure: place.structure, path: path_of(&place.path) };
                return fields.iter().find_map(|(name, value)| check(known, value, &within(name)));
            }
            let structure = schema.name.as_deref().map_or(place.structure, short);
            fields.iter().find_map(|(name, value)| {
                let known = schema.field(name)?;
                check(known, value, &Place { structure, path: Path::Field(&place.path, name) })
            })
        }
        (Type::Array, Value::Array(items)) => {
            let known = schema.items.as_deref()?;
            let within = Place { structure: place.structure, path: path_of(&place.path) };
            items.iter().find_map(|item| check(known, item, &within))
        }
        (Type::String, Value::String(text)) => text_fault(schema, text),
        (Type::Boolean, Value::Bool(_)) | (Type::Number, Value::Number(_)) => None,
        (Type::Integer, Value::Number(number)) => {
            let fits = match schema.format.as_deref() {
                Some("int32") => number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
                _ => number.as_i64().is_some() || number.as_u64().is_some(),
            };
            (!fits).then(|| fault(&format!("number {number}"), schema, place))
        }
        (Type::IntOrString, Value::String(text)) => quantity_fault(schema, text),
        (Type::IntOrString, Value::Number(_)) => None,
        (_, other) => Some(fault(word(other), schema, place)),
    }
}

/// Maps and lists add nothing to the path.
fn path_of<'a>(path: &'a Path<'a>) -> Path<'a> {
    match path {
        Path::Root => Path::Root,
        Path::Field(parent, name) => Path::Field(parent, name),
    }
}

fn fault(given: &str, schema: &Schema, place: &Place<'_>) -> String {
    format!(
        "json: cannot unmarshal {given} into Go struct field {}.{} of type {}",
        place.structure,
        place.path,
        go_type(schema)
    )
}

fn word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// `Container` of `io.k8s.api.core.v1.Container`.
fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// What Go calls the type of a field.
fn go_type(schema: &Schema) -> String {
    match schema.kind {
        Type::Object => match (&schema.name, &schema.additional) {
            (Some(name), _) if !schema.properties.is_empty() => {
                let mut parts = name.rsplit('.');
                let (own, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                format!("{package}.{own}")
            }
            (_, Some(values)) => format!("map[string]{}", go_type(values)),
            _ => "map[string]interface {}".to_owned(),
        },
        Type::Array => {
            let items = schema.items.as_deref().map_or_else(|| "interface {}".to_owned(), go_type);
            format!("[]{items}")
        }
        Type::Integer => schema.format.as_deref().unwrap_or("int64").to_owned(),
        Type::Number => "float64".to_owned(),
        Type::Boolean => "bool".to_owned(),
        Type::IntOrString => "int32".to_owned(),
        Type::String | Type::Any => "string".to_owned(),
    }
}

fn text_fault(schema: &Schema, text: &str) -> Option<String> {
    match schema.format.as_deref() {
        Some("byte") => base64_fault(text),
        Some("date-time") if text.parse::<Timestamp>().is_err() => Some(format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
        )),
        _ => None,
    }
}

fn base64_fault(text: &str) -> Option<String> {
    use base64::{DecodeError, Engine, engine::general_purpose::STANDARD};
    let clean: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let at = match STANDARD.decode(clean).err()? {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol { offset: at, .. } => at,
        _ => text.len(),
    };
    Some(format!("illegal base64 data at input byte {at}"))
}

/// A quantity that is none. Whether a number out of range is one is for the kind's rules.
fn quantity_fault(schema: &Schema, text: &str) -> Option<String> {
    if schema.format.as_deref() != Some("quantity") {
        return None;
    }
    let digits = text.trim_start_matches(['+', '-']);
    let number: String = digits.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    let suffix = &digits[number.len()..];
    let known = matches!(
        suffix,
        "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei"
    ) || suffix.strip_prefix(['e', 'E']).is_some_and(|exponent| exponent.parse::<i32>().is_ok());
    let fine = known && number.chars().any(|c| c.is_ascii_digit()) && number.matches('.').count() <= 1;
    (!fine).then(|| {
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(spec: Value, expected: &str) {
        let schema = drydock_schema::builtin::definition("io.k8s.api.apps.v1.Deployment").unwrap();
        let object = json!({"metadata": {"name": "d"}, "spec": spec});
        assert_eq!(mismatch(&schema, "Deployment", &object).unwrap_or_default(), expected);
    }

    fn containers(containers: Value) -> Value {
        json!({"template": {"spec": {"containers": containers}}})
    }

    #[test]
    fn the_first_value_of_another_type_is_named_as_go_names_it() {
        check(json!({"replicas": 1, "paused": null}), "");
        for (spec, given, field, kind) in [
            (json!({"replicas": "x"}), "string", "DeploymentSpec.spec.replicas", "int32"),
            (json!({"replicas": 1.5}), "number 1.5", "DeploymentSpec.spec.replicas", "int32"),
            (json!({"replicas": 99999999999_u64}), "number 99999999999", "DeploymentSpec.spec.replicas", "int32"),
            (json!(3), "number", "Deployment.spec", "v1.DeploymentSpec"),
            (json!({"selector": "x"}), "string", "DeploymentSpec.spec.selector", "v1.LabelSelector"),
            (json!({"paused": "true"}), "string", "DeploymentSpec.spec.paused", "bool"),
            (
                json!({"selector": {"matchLabels": {"a": 1}}}),
                "number",
                "LabelSelector.spec.selector.matchLabels",
                "string",
            ),
            (containers(json!({"a": 1})), "object", "PodSpec.spec.template.spec.containers", "[]v1.Container"),
            (
                containers(json!([{"ports": [{"containerPort": "x"}]}])),
                "string",
                "ContainerPort.spec.template.spec.containers.ports.containerPort",
                "int32",
            ),
            (
                containers(json!([{"command": [1]}])),
                "number",
                "Container.spec.template.spec.containers.command",
                "string",
            ),
            (
                json!({"strategy": {"rollingUpdate": {"maxSurge": {}}}}),
                "object",
                "RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge",
                "int32",
            ),
        ] {
            check(spec, &format!("json: cannot unmarshal {given} into Go struct field {field} of type {kind}"));
        }
    }

    #[test]
    fn texts_that_must_have_a_form_are_checked() {
        let limits = |cpu: &str| containers(json!([{"resources": {"limits": {"cpu": cpu}}}]));
        for fine in ["1", "100m", "1.5Gi", "1e3", "-1", "0.5"] {
            check(limits(fine), "");
        }
        let wrong = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        for text in ["x", "", "1Q", "1.2.3"] {
            check(limits(text), wrong);
        }
        assert_eq!(base64_fault("%%").unwrap(), "illegal base64 data at input byte 0");
    }
}
