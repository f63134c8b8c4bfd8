//! How objects are shown: as they are, as rows of a table, or by their metadata alone.
//!
//! **Always holds:** an object that is shown as it is stored is never parsed; a list of such objects
//! is their bytes, one after the other.

use std::sync::Arc;

use bytes::Bytes;
use drydock_kinds::{Kind, table};
use drydock_store::{Revision, Stored};
use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::{
    accept::{Accept, Shape},
    failure::Failure,
    object,
    request::Options,
    response::{self, Answer},
};

/// What the presentation of an object depends on.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The kind, in the version that was asked for.
    pub kind: &'a Kind,
    /// The form that was asked for.
    pub accept: &'a Accept,
    /// What table rows carry of their object.
    pub include: table::Include,
    /// Ages are told from here.
    pub now: Timestamp,
    /// Custom objects that were written later than this are what the present definition makes of them.
    pub fresh: Option<Revision>,
}

impl<'a> View<'a> {
    /// The view that a request asks for.
    ///
    /// # Errors
    /// When `includeObject` is none of the known words.
    pub fn new(
        kind: &'a Kind,
        accept: &'a Accept,
        options: &Options,
        now: Timestamp,
        fresh: Option<Revision>,
    ) -> Result<Self, Failure> {
        let word = options.include_object.as_deref().unwrap_or_default();
        let include = table::Include::parse(word)
            .ok_or_else(|| Failure::BadRequest(format!("unrecognized includeObject value: {word:?}")))?;
        Ok(Self { kind, accept, include, now, fresh })
    }

    /// The answer that shows one stored object.
    ///
    /// # Errors
    /// When the stored object can't be read.
    pub fn stored(&self, code: StatusCode, stored: &Stored) -> Result<Answer, Failure> {
        Ok(response::written(code, self.bytes(stored)?, self.accept))
    }

    /// The answer that shows one object that is not stored.
    #[must_use]
    pub fn value(&self, code: StatusCode, object: &Value) -> Answer {
        match self.accept.shape {
            Shape::Table => response::value(code, &self.table(&[object], &json!({})), self.accept),
            Shape::Metadata => response::value(code, &self.metadata_of(&object["metadata"]), self.accept),
            Shape::Whole | Shape::Discovery => response::value(code, object, self.accept),
        }
    }

    /// One stored object as JSON, in the shape asked for.
    ///
    /// # Errors
    /// When the stored object can't be read.
    pub fn bytes(&self, stored: &Stored) -> Result<Bytes, Failure> {
        match self.accept.shape {
            Shape::Table => {
                let object = object::read(self.kind, stored)?;
                let version = stored.revision.to_string();
                Ok(written(&self.table(&[&object], &json!({"resourceVersion": version}))))
            }
            Shape::Metadata => Ok(self.metadata_bytes(stored)?.into()),
            Shape::Whole | Shape::Discovery => self.whole(stored),
        }
    }

    /// One stored object in the version asked for.
    fn whole(&self, stored: &Stored) -> Result<Bytes, Failure> {
        let fresh = || self.kind.is_storage_version() && self.fresh.is_some_and(|at| stored.revision > at);
        // A request that began before the storage version moved still holds the old one for it.
        if self.kind.stored_as_is() || (fresh() && is_of(self.kind, &stored.value)) {
            return Ok(stored.value.clone());
        }
        Ok(written(&object::read(self.kind, stored)?))
    }

    /// Many stored objects as a list.
    ///
    /// # Errors
    /// When a stored object can't be read.
    pub fn list(&self, items: &[Arc<Stored>], metadata: &Value) -> Result<Answer, Failure> {
        let bytes = match self.accept.shape {
            Shape::Table => {
                let objects: Vec<Value> =
                    items.iter().map(|item| object::read(self.kind, item)).collect::<Result<_, _>>()?;
                written(&self.table(&objects.iter().collect::<Vec<_>>(), metadata))
            }
            Shape::Metadata => {
                let version = format!("meta.k8s.io/{}", self.accept.version);
                joined("PartialObjectMetadataList", &version, metadata, items, |out, item| {
                    out.extend_from_slice(&self.metadata_bytes(item)?);
                    Ok(())
                })?
            }
            Shape::Whole | Shape::Discovery => {
                let typed = !self.kind.is_custom();
                joined(&self.kind.list_kind, &self.kind.api_version(), metadata, items, |out, item| {
                    let whole = self.whole(item)?;
                    match untyped(&whole).filter(|_| typed) {
                        None => out.extend_from_slice(&whole),
                        Some((fields, rest)) => {
                            out.push(b'{');
                            out.extend_from_slice(fields);
                            out.extend_from_slice(rest);
                        }
                    }
                    Ok(())
                })?
            }
        };
        Ok(response::written(StatusCode::OK, bytes, self.accept))
    }

    fn table(&self, objects: &[&Value], metadata: &Value) -> Value {
        let mut table = table::render(self.kind, objects, metadata.clone(), self.now, self.include);
        table["apiVersion"] = format!("meta.k8s.io/{}", self.accept.version).into();
        table
    }

    fn metadata_of(&self, metadata: &Value) -> Value {
        json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": format!("meta.k8s.io/{}", self.accept.version),
            "metadata": metadata,
        })
    }

    fn metadata_bytes(&self, stored: &Stored) -> Result<Vec<u8>, Failure> {
        #[derive(Deserialize)]
        struct Partial<'a> {
            #[serde(borrow)]
            metadata: &'a RawValue,
        }
        let partial: Partial<'_> = serde_json::from_slice(&stored.value)
            .map_err(|error| Failure::Internal(format!("{} can't be read: {error}", stored.key)))?;
        let head = format!(
            r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/{}","metadata":"#,
            self.accept.version
        );
        let mut out = head.into_bytes();
        out.extend_from_slice(partial.metadata.get().as_bytes());
        out.push(b'}');
        Ok(out)
    }

    /// A stored object as the event of a watch shows it; `version` is the event's own where the
    /// object's is another.
    ///
    /// # Errors
    /// When the stored object can't be read.
    pub fn event_object(&self, stored: &Stored, version: Option<u64>) -> Result<Bytes, Failure> {
        let Some(version) = version.filter(|version| *version != stored.revision.0) else {
            return self.bytes(stored);
        };
        let mut object = object::read_stored(stored)?;
        object::meta_mut(&mut object).insert("resourceVersion".into(), version.to_string().into());
        let moved = Stored {
            key: stored.key.clone(),
            revision: Revision(version),
            value: written(&object),
            facets: stored.facets.clone(),
        };
        self.bytes(&moved)
    }
}

/// The stored bytes begin with the version of `kind`, as they do unless a field's name comes before it.
fn is_of(kind: &Kind, object: &[u8]) -> bool {
    let rest =
        object.strip_prefix(br#"{"apiVersion":""#).and_then(|rest| rest.strip_prefix(kind.group.as_bytes()));
    let rest = rest.and_then(|rest| rest.strip_prefix(b"/")?.strip_prefix(kind.version.as_bytes()));
    rest.is_some_and(|rest| rest.starts_with(b"\""))
}

/// A value as JSON.
#[must_use]
pub fn written(value: &Value) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

/// An item of a list of built-in objects: the list says what it is, the item does not repeat it.
/// Gives the bytes between `apiVersion` and `kind`, and those after; `None` when they are not where
/// they are written.
fn untyped(object: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = object.strip_prefix(br#"{"apiVersion":""#)?;
    let version = rest.iter().position(|byte| *byte == b'"')?;
    let rest = rest.get(version..)?.strip_prefix(br#"","#)?;
    let at = kind_at(rest)?;
    let kind = rest.get(at..)?.strip_prefix(br#""kind":""#)?;
    let end = kind.iter().position(|byte| *byte == b'"')?;
    let tail = kind.get(end..)?.strip_prefix(br#"","#)?;
    Some((&rest[..at], tail))
}

/// Where the key `kind` of the object itself begins: not within a text, nor within another object.
fn kind_at(fields: &[u8]) -> Option<usize> {
    let (mut depth, mut text, mut escaped) = (0_u32, false, false);
    for (index, byte) in fields.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if text => escaped = true,
            b'"' if !text => {
                if depth == 0 && fields[index..].starts_with(br#""kind":"#) {
                    return Some(index);
                }
                text = true;
            }
            b'"' => text = false,
            b'{' | b'[' if !text => depth += 1,
            b'}' | b']' if !text => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

/// A list, item after item.
fn joined(
    kind: &str,
    api_version: &str,
    metadata: &Value,
    items: &[Arc<Stored>],
    mut write: impl FnMut(&mut Vec<u8>, &Stored) -> Result<(), Failure>,
) -> Result<Bytes, Failure> {
    let head = format!(
        r#"{{"kind":{},"apiVersion":{},"metadata":{metadata},"items":["#,
        Value::from(kind),
        Value::from(api_version)
    );
    let size = head.len() + 2 + items.iter().map(|item| item.value.len() + 1).sum::<usize>();
    let mut out = Vec::with_capacity(size);
    out.extend_from_slice(head.as_bytes());
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(&mut out, item)?;
    }
    out.extend_from_slice(b"]}");
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_of_a_list_does_not_repeat_its_type() {
        for (object, expected) in [
            (r#"{"apiVersion":"v1","kind":"Pod","metadata":{}}"#, Some(r#"{"metadata":{}}"#)),
            (
                r#"{"apiVersion":"v1","data":{"a":"\"kind\":\"x\\\"","kind":"no"},"kind":"ConfigMap","x":1}"#,
                Some(r#"{"data":{"a":"\"kind\":\"x\\\"","kind":"no"},"x":1}"#),
            ),
            (r#"{"kind":"Pod"}"#, None),
            (r#"{"apiVersion":"v1","metadata":{}}"#, None),
        ] {
            let bytes = untyped(object.as_bytes()).map(|(fields, rest)| {
                format!("{{{}{}", str::from_utf8(fields).unwrap(), str::from_utf8(rest).unwrap())
            });
            assert_eq!(bytes.as_deref(), expected, "{object}");
        }
    }
}
