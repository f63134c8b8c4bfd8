//! Objects as values: reading their metadata, and writing them for the store.
//!
//! **Always holds:** what is stored is the JSON that clients are sent, with the revision of the
//! commit as its `resourceVersion`; a read of an unconverted object copies bytes and parses nothing.

use std::sync::Arc;

use drydock_kinds::Kind;
use drydock_store::{Draft, Facets, Key, Stored};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::failure::{Failure, GroupResource};

/// A text field of the metadata; empty when it is not there.
#[must_use]
pub fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The metadata, made if it is not there.
pub fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = Value::Object(Map::new());
    }
    match &mut object["metadata"] {
        Value::Object(map) => map,
        _ => unreachable!("the metadata was made an object"),
    }
}

/// The finalizers.
#[must_use]
pub fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Writes the finalizers; none at all when there are none.
pub fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    let metadata = meta_mut(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), finalizers.into());
    }
}

/// Puts a condition in the place of the one of its type, or at the end.
pub fn set_condition(object: &mut Value, condition: Value) {
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    match object["status"]["conditions"].as_array_mut() {
        None => object["status"]["conditions"] = json!([condition]),
        Some(conditions) => match conditions.iter_mut().find(|own| own["type"] == condition["type"]) {
            Some(own) => *own = condition,
            None => conditions.push(condition),
        },
    }
}

/// Somebody asked for the object's deletion.
#[must_use]
pub fn is_terminating(object: &Value) -> bool {
    !meta(object, "deletionTimestamp").is_empty()
}

/// A time as Kubernetes writes it: whole seconds, UTC.
#[must_use]
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Reads a time that Kubernetes wrote.
#[must_use]
pub fn parse_time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// How messages name the resource.
#[must_use]
pub fn resource_of(kind: &Kind) -> GroupResource {
    GroupResource::new(&*kind.group, &*kind.plural)
}

/// How messages name the kind.
#[must_use]
pub fn kind_of(kind: &Kind) -> GroupResource {
    GroupResource::new(&*kind.group, &*kind.kind)
}

/// The key an object is stored under.
#[must_use]
pub fn key(kind: &Kind, namespace: Option<&str>, name: &str) -> Key {
    Key {
        resource: kind.resource_key(),
        namespace: Arc::from(if kind.namespaced { namespace.unwrap_or_default() } else { "" }),
        name: Arc::from(name),
    }
}

/// Reads a stored object in the form it is stored in.
///
/// # Errors
/// Never, unless the store holds something that this crate did not write.
pub fn read_stored(stored: &Stored) -> Result<Value, Failure> {
    serde_json::from_slice(&stored.value)
        .map_err(|error| Failure::Internal(format!("{} can't be read: {error}", stored.key)))
}

/// Reads a stored object in the form of `kind`.
///
/// # Errors
/// As [`read_stored`].
pub fn read(kind: &Kind, stored: &Stored) -> Result<Value, Failure> {
    let mut object = read_stored(stored)?;
    if !kind.stored_as_is() {
        kind.from_storage(&mut object);
    }
    Ok(object)
}

/// Writes an object of `kind` for the store, with a gap for the revision.
///
/// # Errors
/// Never, unless JSON can't be written.
pub fn draft(kind: &Kind, mut object: Value) -> Result<Draft, Failure> {
    if !kind.stored_as_is() {
        kind.to_storage(&mut object);
    }
    let facets = facets(kind, &object);
    let mut head = Vec::with_capacity(1024);
    let mut gap = 0;
    write_object(&mut head, &mut object, &mut gap).map_err(|error| Failure::Internal(error.to_string()))?;
    let tail = head.split_off(gap);
    Ok(Draft { head, tail, facets })
}

/// What selectors will look at.
fn facets(kind: &Kind, object: &Value) -> Facets {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    let labels = labels.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()));
    Facets::new(labels, kind.selectable_fields(object))
}

fn write_object(out: &mut Vec<u8>, object: &mut Value, gap: &mut usize) -> serde_json::Result<()> {
    meta_mut(object).insert("resourceVersion".into(), Value::Null);
    out.push(b'{');
    let mut first = true;
    for (key, value) in object.as_object().into_iter().flatten() {
        write_key(out, key, &mut first)?;
        match value {
            Value::Object(metadata) if key == "metadata" => write_metadata(out, metadata, gap)?,
            other => serde_json::to_writer(&mut *out, other)?,
        }
    }
    out.push(b'}');
    Ok(())
}

fn write_metadata(
    out: &mut Vec<u8>,
    metadata: &Map<String, Value>,
    gap: &mut usize,
) -> serde_json::Result<()> {
    out.push(b'{');
    let mut first = true;
    for (key, value) in metadata {
        write_key(out, key, &mut first)?;
        if key == "resourceVersion" {
            out.push(b'"');
            *gap = out.len();
            out.push(b'"');
        } else {
            serde_json::to_writer(&mut *out, value)?;
        }
    }
    out.push(b'}');
    Ok(())
}

fn write_key(out: &mut Vec<u8>, key: &str, first: &mut bool) -> serde_json::Result<()> {
    if !std::mem::take(first) {
        out.push(b',');
    }
    serde_json::to_writer(&mut *out, key)?;
    out.push(b':');
    Ok(())
}
