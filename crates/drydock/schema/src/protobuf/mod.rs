//! Request bodies in protobuf, as kubectl and client-go send them for built-in kinds.
//!
//! [`decode`] takes the envelope (four magic bytes, then `runtime.Unknown` with the type and the
//! bytes of the object) and gives the JSON that the same client would have sent as JSON. Go writes
//! every field that is not a pointer, also when it is empty; what its JSON encoder would have left
//! out is left out here too.
//!
//! **Deliberately absent:** encoding. Answers are JSON, which every client accepts.

mod wire;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::builtin::{
    fields::{Field, Kind},
    table::{Entry, TABLE},
};
use wire::{Fields, Wire};

/// The first bytes of a protobuf body.
pub const MAGIC: &[u8] = b"k8s\0";

/// How deep messages may nest; the deepest built-in kind (a CRD's schema apart) needs some 15.
const MAX_DEPTH: usize = 100;

/// Why bytes are not an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The magic bytes are missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NotProtobuf,
    /// The bytes end within a field.
    #[error("unexpected EOF")]
    Truncated,
    /// A varint of more than ten bytes.
    #[error("proto: integer overflow")]
    Varint,
    /// A wire type that proto2 does not have.
    #[error("proto: illegal wireType {0}")]
    WireType(u64),
    /// A field whose bytes are not of its type.
    #[error("proto: wrong wireType for field {0}")]
    FieldType(String),
    /// A string that is not UTF-8.
    #[error("proto: field {0} contains invalid UTF-8")]
    Utf8(String),
    /// Raw JSON that is none.
    #[error("proto: field {0} contains invalid JSON")]
    Json(String),
    /// A time that no calendar has.
    #[error("proto: field {0} is out of range")]
    Time(String),
    /// Messages nest too deep.
    #[error("proto: exceeded maximum depth of {MAX_DEPTH}")]
    Depth,
    /// The kind is not a built-in one.
    #[error("no kind \"{kind}\" is registered for version \"{api_version}\"")]
    UnknownKind {
        /// `apiVersion` as sent.
        api_version: String,
        /// `kind` as sent.
        kind: String,
    },
}

/// What a body says it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypeMeta {
    /// `apps/v1`.
    pub api_version: String,
    /// `Deployment`.
    pub kind: String,
}

/// The JSON of a protobuf body.
///
/// # Errors
///
/// When the bytes are not an envelope, are not well formed, or are of a kind that is not built in.
pub fn decode(content: &[u8]) -> Result<Value, DecodeError> {
    envelope(content, 0)
}

/// What a protobuf body says it is, without looking at the object.
///
/// # Errors
///
/// When the bytes are not an envelope.
pub fn type_meta(content: &[u8]) -> Result<TypeMeta, DecodeError> {
    Ok(unknown(content)?.0)
}

/// Splits `runtime.Unknown`: the type, the object's bytes, their content type.
fn unknown(content: &[u8]) -> Result<(TypeMeta, &[u8], &str), DecodeError> {
    let body = content.strip_prefix(MAGIC).ok_or(DecodeError::NotProtobuf)?;
    let (mut meta, mut raw, mut content_type) = (TypeMeta::default(), &[][..], "");
    for field in Fields::new(body) {
        match field? {
            (1, Wire::Bytes(bytes)) => {
                for field in Fields::new(bytes) {
                    match field? {
                        (1, Wire::Bytes(text)) => meta.api_version = string(text, "apiVersion")?,
                        (2, Wire::Bytes(text)) => meta.kind = string(text, "kind")?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            (4, Wire::Bytes(bytes)) => content_type = std::str::from_utf8(bytes).unwrap_or_default(),
            _ => {}
        }
    }
    Ok((meta, raw, content_type))
}

fn envelope(content: &[u8], depth: usize) -> Result<Value, DecodeError> {
    let (meta, raw, content_type) = unknown(content)?;
    if content_type == "application/json" {
        return serde_json::from_slice(raw).map_err(|_| DecodeError::Json("raw".into()));
    }
    let (group, version) = meta.api_version.split_once('/').unwrap_or(("", &meta.api_version));
    let entry =
        TABLE.of_kind(group, version, &meta.kind).filter(|entry| !entry.fields.is_empty()).ok_or_else(
            || DecodeError::UnknownKind { api_version: meta.api_version.clone(), kind: meta.kind.clone() },
        )?;
    let mut value = message(entry, raw, depth)?;
    if let Value::Object(object) = &mut value {
        object.insert("apiVersion".into(), meta.api_version.into());
        object.insert("kind".into(), meta.kind.into());
    }
    Ok(value)
}

fn message(entry: &'static Entry, bytes: &[u8], depth: usize) -> Result<Value, DecodeError> {
    if depth > MAX_DEPTH {
        return Err(DecodeError::Depth);
    }
    if let Some(value) = special(entry, bytes, depth)? {
        return Ok(value);
    }
    let message = entry.message();
    let mut object = Map::new();
    for item in Fields::new(bytes) {
        let (number, wire) = item?;
        let Ok(index) = message.fields.binary_search_by_key(&number, |field| field.number) else { continue };
        let Some(field) = message.fields.get(index) else { continue };
        if field.map {
            let (key, value) = map_entry(field, wire, depth)?;
            if let Value::Object(map) =
                object.entry(field.name.as_str()).or_insert_with(|| Value::Object(Map::new()))
            {
                map.insert(key, value);
            }
        } else if field.repeated {
            let values = repeated(field, wire, depth)?;
            if let Value::Array(list) =
                object.entry(field.name.as_str()).or_insert_with(|| Value::Array(Vec::new()))
            {
                list.extend(values);
            }
        } else {
            let value = single(field, wire, depth)?;
            if field.inline {
                if let Value::Object(inner) = value {
                    object.extend(inner);
                }
            } else if field.pointer || !(field.omit_empty || field.omit_zero) || !is_empty(&value) {
                object.insert(field.name.clone(), value);
            }
        }
    }
    if message.is_list {
        return Ok(object.remove("").unwrap_or_else(|| Value::Array(Vec::new())));
    }
    Ok(Value::Object(object))
}

/// Whether Go's JSON encoder, or the server on reading, would take the value for nothing.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Array(_) => false,
    }
}

fn map_entry(field: &Field, wire: Wire<'_>, depth: usize) -> Result<(String, Value), DecodeError> {
    let Wire::Bytes(bytes) = wire else { return Err(DecodeError::FieldType(field.name.clone())) };
    let (mut key, mut value) = (String::new(), None);
    for item in Fields::new(bytes) {
        match item? {
            (1, Wire::Bytes(text)) => key = string(text, &field.name)?,
            (2, wire) => value = Some(single(field, wire, depth)?),
            _ => {}
        }
    }
    let value = match value {
        Some(value) => value,
        None => single(field, Wire::Bytes(&[]), depth).unwrap_or_default(),
    };
    Ok((key, value))
}

/// One item, or several numbers packed into one field.
fn repeated(field: &Field, wire: Wire<'_>, depth: usize) -> Result<Vec<Value>, DecodeError> {
    if let (Kind::Integer | Kind::Bool, Wire::Bytes(mut packed)) = (field.kind, wire) {
        let mut values = Vec::new();
        while !packed.is_empty() {
            values.push(single(field, Wire::Varint(wire::varint(&mut packed)?), depth)?);
        }
        return Ok(values);
    }
    Ok(vec![single(field, wire, depth)?])
}

fn single(field: &Field, wire: Wire<'_>, depth: usize) -> Result<Value, DecodeError> {
    Ok(match (field.kind, wire) {
        (Kind::String, Wire::Bytes(bytes)) => string(bytes, &field.name)?.into(),
        (Kind::Bytes, Wire::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        (Kind::Bool, Wire::Varint(value)) => (value != 0).into(),
        (Kind::Integer, Wire::Varint(value)) => value.cast_signed().into(),
        (Kind::Double, Wire::Fixed64(bits)) => f64::from_bits(bits).into(),
        (Kind::Message(name), Wire::Bytes(bytes)) => {
            let entry = TABLE.get(name).ok_or_else(|| DecodeError::FieldType(field.name.clone()))?;
            message(entry, bytes, depth + 1)?
        }
        _ => return Err(DecodeError::FieldType(field.name.clone())),
    })
}

fn string(bytes: &[u8], name: &str) -> Result<String, DecodeError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| DecodeError::Utf8(name.to_owned()))
}

/// Messages that are something else than an object in JSON.
fn special(entry: &'static Entry, bytes: &[u8], depth: usize) -> Result<Option<Value>, DecodeError> {
    let Some((_, local)) = entry.name.rsplit_once('.') else { return Ok(None) };
    Ok(Some(match local {
        "Quantity" => match first(bytes, 1)? {
            Some(Wire::Bytes(text)) => string(text, local)?.into(),
            _ => "0".into(),
        },
        "IntOrString" => match first(bytes, 1)? {
            Some(Wire::Varint(1)) => match first(bytes, 3)? {
                Some(Wire::Bytes(text)) => string(text, local)?.into(),
                _ => "".into(),
            },
            _ => integer(first(bytes, 2)?).into(),
        },
        "Time" | "MicroTime" => {
            let (seconds, nanoseconds) = (integer(first(bytes, 1)?), integer(first(bytes, 2)?));
            time(seconds, nanoseconds, local)?
        }
        "RawExtension" | "FieldsV1" | "JSON" => match first(bytes, 1)? {
            Some(Wire::Bytes(raw)) if raw.starts_with(MAGIC) => envelope(raw, depth + 1)?,
            Some(Wire::Bytes(raw)) if !raw.is_empty() => {
                serde_json::from_slice(raw).map_err(|_| DecodeError::Json(local.to_owned()))?
            }
            _ => Value::Null,
        },
        "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray" => {
            either(entry, local, bytes, depth)?
        }
        _ => return Ok(None),
    }))
}

/// `JSONSchemaPropsOr…`: a schema, or the other thing.
fn either(entry: &'static Entry, local: &str, bytes: &[u8], depth: usize) -> Result<Value, DecodeError> {
    let fields = entry.message();
    let mut list = Vec::new();
    let mut allows = false;
    for item in Fields::new(bytes) {
        let (number, wire) = item?;
        let Some(field) = fields.fields.iter().find(|field| field.number == number) else { continue };
        match field.name.to_ascii_lowercase().as_str() {
            "schema" => return single(field, wire, depth),
            "allows" => allows = single(field, wire, depth)? == Value::Bool(true),
            _ => list.push(single(field, wire, depth)?),
        }
    }
    Ok(if local == "JSONSchemaPropsOrBool" { allows.into() } else { list.into() })
}

fn first(bytes: &[u8], number: u64) -> Result<Option<Wire<'_>>, DecodeError> {
    let mut found = None;
    for item in Fields::new(bytes) {
        let (this, wire) = item?;
        if this == number {
            found = Some(wire);
        }
    }
    Ok(found)
}

fn integer(wire: Option<Wire<'_>>) -> i64 {
    match wire {
        Some(Wire::Varint(value)) => value.cast_signed(),
        _ => 0,
    }
}

/// Both zero is Go's zero time, which is no time at all.
fn time(seconds: i64, nanoseconds: i64, name: &str) -> Result<Value, DecodeError> {
    if seconds == 0 && nanoseconds == 0 {
        return Ok(Value::Null);
    }
    let failed = || DecodeError::Time(name.to_owned());
    let nanoseconds = i32::try_from(nanoseconds).map_err(|_| failed())?;
    let at = Timestamp::new(seconds, nanoseconds).map_err(|_| failed())?;
    let format = if name == "MicroTime" { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Ok(at.strftime(format).to_string().into())
}
