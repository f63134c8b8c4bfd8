//! Values as Kubernetes prints them in its messages, which is how Go prints them.

pub(crate) use drydock_schema::words::{json_kind, quoted};
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
