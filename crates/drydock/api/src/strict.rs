//! JSON into a `Value` in one pass that also notices keys given twice.
//!
//! The last value of a key wins, as everywhere in Kubernetes; the path of a repeated one is kept so
//! that strict field validation can name it.

use std::{cell::RefCell, fmt};

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads `bytes`; gives the value and the paths of repeated keys, in order.
///
/// # Errors
/// When it is no JSON, or too deep.
pub fn parse(bytes: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    let found = RefCell::new(Vec::new());
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Node { path: &Path::Root, found: &found }.deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, found.into_inner()))
}

/// Where the reader is; written out only when something is found.
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

struct Node<'a> {
    path: &'a Path<'a>,
    found: &'a RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    /// A whole number is one however it is written.
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        #[expect(clippy::cast_possible_truncation, reason = "a whole number in this range is exact")]
        if value.fract() == 0.0 && value.abs() < 9.0e15 {
            return Ok(Value::Number((value as i64).into()));
        }
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = Path::Index(self.path, list.len());
            match items.next_element_seed(Node { path: &path, found: self.found })? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = Path::Field(self.path, &key);
            let value = entries.next_value_seed(Node { path: &path, found: self.found })?;
            if map.contains_key(&key) {
                self.found.borrow_mut().push(path.to_string());
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_given_twice_is_named_and_its_last_value_wins() {
        let (value, found) = parse(br#"{"a":1,"b":[{"c":1,"c":2}],"a":{"x":1}}"#).unwrap();
        assert_eq!(value.to_string(), r#"{"a":{"x":1},"b":[{"c":2}]}"#);
        assert_eq!(found, ["b[0].c", "a"]);
    }

    #[test]
    fn what_follows_the_value_is_an_error() {
        assert!(parse(b"{} x").is_err());
        assert!(parse(&[b'['; 1000]).is_err());
    }
}
