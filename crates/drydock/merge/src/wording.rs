//! Values as Kubernetes prints them in its messages, which is how Go prints them.

use std::fmt::Write;

use serde_json::{Number, Value};

/// The plain form: `map[a:1 b:[x y]]`.
pub(crate) fn plain(value: &Value) -> String {
    let mut out = String::new();
    write_plain(&mut out, value);
    out
}

fn write_plain(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => out.push_str(&number(n)),
        Value::String(s) => out.push_str(s),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                write_plain(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push_str("map[");
            for (i, (key, value)) in fields.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                write_plain(out, value);
            }
            out.push(']');
        }
    }
}

/// The form with types: `map[string]interface {}{"a":1}`.
pub(crate) fn detailed(value: &Value) -> String {
    let mut out = String::new();
    write_detailed(&mut out, value);
    out
}

fn write_detailed(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("interface {}(nil)"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => out.push_str(&number(n)),
        Value::String(s) => out.push_str(&quoted(s)),
        Value::Array(items) => {
            out.push_str("[]interface {}{");
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_detailed(out, item);
            }
            out.push('}');
        }
        Value::Object(fields) => {
            out.push_str("map[string]interface {}{");
            for (i, (key, value)) in fields.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                out.push_str(&quoted(key));
                out.push(':');
                write_detailed(out, value);
            }
            out.push('}');
        }
    }
}

/// The name of the type that Go's JSON decoder gives a value.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// The name of a JSON value in the messages of Go's decoder.
pub(crate) fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A scalar as it stands in a path: strings quoted, the rest plain.
pub(crate) fn in_path(value: &Value) -> String {
    match value {
        Value::String(s) => quoted(s),
        Value::Null => "null".to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(in_path).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => fields.iter().map(|(k, v)| format!("{k}={}", in_path(v))).collect(),
        other => plain(other),
    }
}

/// A string in double quotes, with the escapes Go uses.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if c.is_control() && u32::from(c) < 0x100 => {
                // Writing to a String can't fail.
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A number with Go's shortest float form: an exponent from 21 digits on.
fn number(number: &Number) -> String {
    if let Some(i) = number.as_i64() {
        return i.to_string();
    }
    if let Some(u) = number.as_u64() {
        return u.to_string();
    }
    let f = number.as_f64().unwrap_or_default();
    let magnitude = f.abs();
    if magnitude != 0.0 && !(1e-4..1e21).contains(&magnitude) {
        let text = format!("{f:e}");
        return match text.split_once('e') {
            Some((mantissa, exponent)) => {
                let (sign, digits) = exponent.strip_prefix('-').map_or(("+", exponent), |d| ("-", d));
                format!("{mantissa}e{sign}{digits:0>2}")
            }
            None => text,
        };
    }
    format!("{f}")
}
