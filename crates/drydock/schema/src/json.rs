//! Reading JSON and YAML strictly enough to name a field that is written twice.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// How deep objects and lists may nest.
///
/// serde_json refuses at 128 by itself; this is the same, so that a value that was read can also
/// be written and dropped without a thought for the stack.
pub const MAX_DEPTH: usize = 120;

/// Why text is not a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON or not YAML.
    #[error("{0}")]
    Syntax(String),
    /// Objects or lists nest deeper than [`MAX_DEPTH`].
    #[error("exceeded max depth")]
    Depth,
}

/// A value and what a strict reader complains about.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The value; of a field that is written twice, the last.
    pub value: Value,
    /// The complaints, worded as Kubernetes words them: `duplicate field "spec.size"`.
    pub duplicates: Vec<String>,
}

/// Fields that are written twice in a JSON text: `duplicate field "spec.size"`.
///
/// # Errors
///
/// When the text is not JSON or nests too deep.
pub fn check(text: &[u8]) -> Result<Vec<String>, JsonError> {
    Ok(parse(text)?.duplicates)
}

/// Reads JSON.
///
/// # Errors
///
/// When the text is not JSON or nests too deep.
pub fn parse(text: &[u8]) -> Result<Parsed, JsonError> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let mut duplicates = Vec::new();
    let seed = Node { path: String::new(), depth: 0, duplicates: &mut duplicates };
    let value = seed.deserialize(&mut reader).map_err(|error| failure(&error))?;
    reader.end().map_err(|error| failure(&error))?;
    Ok(Parsed { value, duplicates })
}

/// Reads one YAML document; JSON is YAML too.
///
/// # Errors
///
/// When the text is not YAML or nests too deep.
pub fn parse_yaml(text: &[u8]) -> Result<Parsed, JsonError> {
    if text.trim_ascii_start().starts_with(b"{") {
        let read = parse(text);
        if !matches!(read, Err(JsonError::Syntax(_))) {
            return read;
        }
    }
    let text = std::str::from_utf8(text).map_err(|error| JsonError::Syntax(error.to_string()))?;
    let value: Bounded = serde_saphyr::from_str(text).map_err(|error| {
        let message = error.to_string();
        if message.contains(TOO_DEEP) { JsonError::Depth } else { JsonError::Syntax(message) }
    })?;
    Ok(Parsed { value: value.0, duplicates: Vec::new() })
}

const TOO_DEEP: &str = "exceeded max depth";

fn failure(error: &serde_json::Error) -> JsonError {
    let message = error.to_string();
    if message.contains(TOO_DEEP) || message.contains("recursion limit") {
        return JsonError::Depth;
    }
    JsonError::Syntax(message)
}

/// A value whose depth was counted as it was read.
struct Bounded(Value);

impl<'de> Deserialize<'de> for Bounded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seed = Node { path: String::new(), depth: 0, duplicates: &mut Vec::new() };
        seed.deserialize(deserializer).map(Self)
    }
}

struct Node<'a> {
    path: String,
    depth: usize,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    /// A whole number is one however it is written: Kubernetes reads `1.0` and gives back `1`.
    #[expect(clippy::cast_possible_truncation, reason = "whole and within what a double holds exactly")]
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        if value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0 {
            return Ok((value as i64).into());
        }
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let depth = deeper(self.depth)?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Node {
            path: format!("{}[{}]", self.path, list.len()),
            depth,
            duplicates: &mut *self.duplicates,
        })? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let depth = deeper(self.depth)?;
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = if self.path.is_empty() { name.clone() } else { format!("{}.{name}", self.path) };
            if object.contains_key(&name) {
                self.duplicates.push(format!("duplicate field \"{path}\""));
            }
            let value = fields.next_value_seed(Node { path, depth, duplicates: &mut *self.duplicates })?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

fn deeper<E: serde::de::Error>(depth: usize) -> Result<usize, E> {
    if depth >= MAX_DEPTH {
        return Err(E::custom(TOO_DEEP));
    }
    Ok(depth + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_written_twice_is_named_by_its_path() {
        for (text, expected) in [
            (r#"{"a":1,"b":2}"#, vec![]),
            (r#"{"spec":{"size":1,"size":2}}"#, vec![r#"duplicate field "spec.size""#]),
            (
                r#"{"l":[{"a":1},{"a":1,"a":2}],"kind":"A","kind":"B"}"#,
                vec![r#"duplicate field "l[1].a""#, r#"duplicate field "kind""#],
            ),
        ] {
            assert_eq!(
                check(text.as_bytes()),
                Ok(expected.into_iter().map(str::to_owned).collect()),
                "{text}"
            );
        }
    }

    #[test]
    fn the_last_of_two_wins_and_numbers_stay_what_they_are() {
        let parsed = parse(
            br#"{"a":1,"a":{"big":18446744073709551615,"small":-3,"part":0.5,"whole":1.0,"none":null}}"#,
        );
        let expected =
            serde_json::json!({"a": {"big": u64::MAX, "small": -3, "part": 0.5, "whole": 1, "none": null}});
        assert_eq!(parsed.map(|parsed| parsed.value), Ok(expected));
    }

    #[test]
    fn text_that_nests_too_deep_is_refused() {
        for depth in [MAX_DEPTH + 1, 10_000, 1_000_000] {
            let text = "[".repeat(depth) + &"]".repeat(depth);
            assert_eq!(parse(text.as_bytes()), Err(JsonError::Depth));
        }
        let text = "[".repeat(MAX_DEPTH) + &"]".repeat(MAX_DEPTH);
        assert!(parse(text.as_bytes()).is_ok());
    }

    #[test]
    fn text_that_is_not_json_is_refused() {
        for text in ["", "{", "{\"a\":}", "{} {}", "nope", "\u{0}"] {
            assert!(matches!(parse(text.as_bytes()), Err(JsonError::Syntax(_))), "{text}");
        }
    }

    #[test]
    fn yaml_is_read_too() {
        let parsed = parse_yaml(b"apiVersion: v1\nkind: ConfigMap\ndata:\n  a: \"1\"\n  b: |\n    text\n");
        let expected =
            serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1", "b": "text\n"}});
        assert_eq!(parsed.map(|parsed| parsed.value), Ok(expected));
        assert!(matches!(parse_yaml(b"a: [1, 2"), Err(JsonError::Syntax(_))));
    }
}
