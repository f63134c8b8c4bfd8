//! From JSON to CEL values, as the schema types them.

use std::{collections::HashMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::{DateTime, NaiveDate, TimeDelta};
use kube_cel::cel::{
    Value as Cel,
    objects::{Key, Map},
};
use serde_json::Value;

use crate::{Schema, Type, formats};

/// Words that CEL keeps for itself; a property of that name is written `__word__`.
const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// A whole object: of its metadata only the names are seen by rules.
pub(super) fn root(schema: &Schema, value: &Value) -> Cel {
    let Value::Object(fields) = value else { return convert(schema, value) };
    let mut object = HashMap::new();
    for (name, field) in fields {
        let field = match name.as_str() {
            "metadata" => names_only(field),
            _ => match schema.field(name) {
                Some(known) => convert(known, field),
                None if schema.preserve_unknown_fields => continue,
                None => plain(field),
            },
        };
        object.insert(key(schema, name), field);
    }
    Cel::Map(Map { map: Arc::new(object) })
}

fn names_only(metadata: &Value) -> Cel {
    let pick = |name: &str| metadata.get(name).map(|value| (Key::from(name.to_owned()), plain(value)));
    Cel::Map(Map { map: Arc::new(["name", "generateName"].into_iter().filter_map(pick).collect()) })
}

/// A value of the type its schema gives it.
pub(super) fn convert(schema: &Schema, value: &Value) -> Cel {
    match (value, schema.kind) {
        (Value::Object(_), _) if schema.embedded_resource => {
            root(&Schema { embedded_resource: false, ..schema.clone() }, value)
        }
        (Value::Object(fields), _) => {
            let mut object = HashMap::with_capacity(fields.len());
            for (name, field) in fields {
                let field = match schema.field(name) {
                    Some(known) => convert(known, field),
                    None => plain(field),
                };
                object.insert(key(schema, name), field);
            }
            Cel::Map(Map { map: Arc::new(object) })
        }
        (Value::Array(items), _) => {
            let convert =
                |item| schema.items.as_deref().map_or_else(|| plain(item), |known| convert(known, item));
            Cel::List(Arc::new(items.iter().map(convert).collect()))
        }
        (Value::Number(number), Type::Number) => number.as_f64().map_or(Cel::Null, Cel::Float),
        (Value::Number(number), Type::Integer) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Cel::Int(integer),
            #[expect(clippy::cast_possible_truncation, reason = "a whole number within the range of i64")]
            (None, Some(float)) if float.fract() == 0.0 && float.abs() < 9.2e18 => Cel::Int(float as i64),
            (None, float) => float.map_or(Cel::Null, Cel::Float),
        },
        (Value::String(text), Type::String) => formatted(schema, text).unwrap_or_else(|| plain(value)),
        _ => plain(value),
    }
}

/// Keys of a map are data; names of properties must be CEL identifiers.
fn key(schema: &Schema, name: &str) -> Key {
    if schema.additional.is_some() {
        return Key::from(name.to_owned());
    }
    Key::from(escape(name))
}

fn plain(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => Cel::Int(integer),
            None => number.as_f64().map_or(Cel::Null, Cel::Float),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(plain).collect())),
        Value::Object(fields) => Cel::Map(Map {
            map: Arc::new(
                fields.iter().map(|(name, value)| (Key::from(name.clone()), plain(value))).collect(),
            ),
        }),
    }
}

/// Strings whose format is a type of CEL.
fn formatted(schema: &Schema, text: &str) -> Option<Cel> {
    match schema.format.as_deref()? {
        "byte" => STANDARD.decode(text).ok().map(|bytes| Cel::Bytes(Arc::new(bytes))),
        "date" => {
            let midnight = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0)?;
            Some(Cel::Timestamp(midnight.and_utc().fixed_offset()))
        }
        "date-time" | "datetime" => DateTime::parse_from_rfc3339(text).ok().map(Cel::Timestamp),
        "duration" => formats::duration(text).map(TimeDelta::nanoseconds).map(Cel::Duration),
        _ => None,
    }
}

/// A property's name as it is written in a rule.
pub(super) fn escape(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains(['.', '-', '/']) && !name.contains("__") {
        return name.to_owned();
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}
