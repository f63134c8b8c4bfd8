//! OpenAPI v2 in protobuf: the only form in which kubectl reads it, e.g. to check a `List`.
//!
//! The messages are those of gnostic's `openapi.v2`. Written is what clients look at: every definition
//! whole, and of the paths the patch operations with their parameters and kinds.

use serde_json::{Map, Value};

/// The media type, as the real server names it.
pub const MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Writes an OpenAPI v2 document.
#[must_use]
pub fn encode(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, document["swagger"].as_str().unwrap_or("2.0"));
    out.message(2, |info| {
        info.text(1, document["info"]["title"].as_str().unwrap_or_default());
        info.text(2, document["info"]["version"].as_str().unwrap_or_default());
    });
    out.message(8, |paths| {
        for (name, item) in document["paths"].as_object().into_iter().flatten() {
            if let Some(patch) = item.get("patch") {
                paths.message(2, |named| {
                    named.text(1, name);
                    named.message(2, |item| item.message(8, |out| operation(out, patch)));
                });
            }
        }
    });
    out.message(9, |definitions| named_schemas(definitions, document["definitions"].as_object()));
    out.0
}

/// The bytes of a message that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        loop {
            let low = u8::try_from(value & 0x7f).unwrap_or_default();
            value >>= 7;
            self.0.push(if value == 0 { low } else { low | 0x80 });
            if value == 0 {
                return;
            }
        }
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, field: u64, text: &str) {
        if !text.is_empty() {
            self.bytes(field, text.as_bytes());
        }
    }

    fn flag(&mut self, field: u64, value: &Value) {
        if value.as_bool() == Some(true) {
            self.varint(field << 3);
            self.varint(1);
        }
    }

    fn double(&mut self, field: u64, value: &Value) {
        if let Some(number) = value.as_f64() {
            self.varint(field << 3 | 1);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn count(&mut self, field: u64, value: &Value) {
        if let Some(number) = value.as_u64() {
            self.varint(field << 3);
            self.varint(number);
        }
    }

    fn message(&mut self, field: u64, write: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    /// A value of any type, as YAML, of which JSON is a part.
    fn any(&mut self, field: u64, value: &Value) {
        self.message(field, |any| any.text(2, &format!("{value}\n")));
    }

    fn extensions(&mut self, field: u64, object: &Map<String, Value>) {
        for (name, value) in object.iter().filter(|(name, _)| name.starts_with("x-")) {
            self.message(field, |named| {
                named.text(1, name);
                named.any(2, value);
            });
        }
    }
}

fn named_schemas(out: &mut Message, schemas: Option<&Map<String, Value>>) {
    for (name, value) in schemas.into_iter().flatten() {
        out.message(1, |named| {
            named.text(1, name);
            named.message(2, |out| schema(out, value));
        });
    }
}

fn schema(out: &mut Message, schema: &Value) {
    let Some(object) = schema.as_object() else { return };
    let text = |name: &str| schema[name].as_str().unwrap_or_default();
    out.text(1, text("$ref"));
    out.text(2, text("format"));
    out.text(3, text("title"));
    out.text(4, text("description"));
    if let Some(default) = object.get("default") {
        out.any(5, default);
    }
    out.double(6, &schema["multipleOf"]);
    out.double(7, &schema["maximum"]);
    out.flag(8, &schema["exclusiveMaximum"]);
    out.double(9, &schema["minimum"]);
    out.flag(10, &schema["exclusiveMinimum"]);
    out.count(11, &schema["maxLength"]);
    out.count(12, &schema["minLength"]);
    out.text(13, text("pattern"));
    out.count(14, &schema["maxItems"]);
    out.count(15, &schema["minItems"]);
    out.flag(16, &schema["uniqueItems"]);
    out.count(17, &schema["maxProperties"]);
    out.count(18, &schema["minProperties"]);
    for name in schema["required"].as_array().into_iter().flatten() {
        out.text(19, name.as_str().unwrap_or_default());
    }
    for value in schema["enum"].as_array().into_iter().flatten() {
        out.any(20, value);
    }
    match object.get("additionalProperties") {
        None => {}
        Some(Value::Bool(any)) => out.message(21, |item| item.flag(2, &Value::Bool(*any))),
        Some(values) => out.message(21, |item| item.message(1, |out| self::schema(out, values))),
    }
    match object.get("type") {
        Some(Value::String(one)) => out.message(22, |types| types.text(1, one)),
        Some(Value::Array(many)) => out.message(22, |types| {
            many.iter().filter_map(Value::as_str).for_each(|one| types.text(1, one));
        }),
        _ => {}
    }
    if let Some(items) = object.get("items") {
        out.message(23, |item| item.message(1, |out| self::schema(out, items)));
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        out.message(24, |out| self::schema(out, part));
    }
    if let Some(properties) = schema["properties"].as_object() {
        out.message(25, |out| named_schemas(out, Some(properties)));
    }
    out.extensions(31, object);
}

fn operation(out: &mut Message, operation: &Value) {
    let text = |name: &str| operation[name].as_str().unwrap_or_default();
    out.text(3, text("description"));
    out.text(5, text("operationId"));
    for kind in operation["consumes"].as_array().into_iter().flatten() {
        out.text(7, kind.as_str().unwrap_or_default());
    }
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    for parameter in parameters.filter(|parameter| parameter["in"] == "query") {
        let text = |name: &str| parameter[name].as_str().unwrap_or_default();
        out.message(8, |item| {
            item.message(1, |parameter| {
                parameter.message(2, |other| {
                    other.message(3, |query| {
                        query.text(2, "query");
                        query.text(3, text("description"));
                        query.text(4, text("name"));
                        query.text(6, text("type"));
                    });
                });
            });
        });
    }
    if let Some(object) = operation.as_object() {
        out.extensions(13, object);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_is_written_field_by_field() {
        let document = json!({"swagger": "2.0", "definitions": {"A": {"type": "object", "properties": {"b": {"$ref": "#/c"}}}}});
        let bytes = encode(&document);
        let expected: &[u8] = b"\x0a\x032.0\x12\x00\x42\x00\x4a\x1e\x0a\x1c\x0a\x01A\x12\x17\xb2\x01\x08\x0a\x06object\xca\x01\x09\x0a\x07\x0a\x01b\x12\x02\x0a\x00";
        // The reference is three bytes longer than the empty one above.
        assert_eq!(bytes.len(), expected.len() + 3, "{bytes:?}");
        assert_eq!(&bytes[..9], &expected[..9]);
        assert!(bytes.ends_with(b"\x0a\x03#/c"), "{bytes:?}");
    }
}
