//! Field sets as `fieldsV1` writes them.
//!
//! Every element is a key: `f:name`, `k:{"name":"x"}`, `v:"x"`, `i:0`. An element that is a
//! member and has children holds an entry `.`; a member without children is `{}`.

use std::borrow::Cow;

use serde_json::{Map, Value};
use thiserror::Error;

use super::{Branch, FieldSet, PathElement};

/// How deep a set may go. An object is refused long before it is nested like this.
const MAX_DEPTH: usize = 512;

/// Why a `fieldsV1` can't be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FieldsV1Error {
    /// A node of the tree is not an object.
    #[error("fields must be objects")]
    NotAnObject,
    /// A key does not begin with a kind and a colon.
    #[error("key must be 2 characters long:")]
    TooShort,
    /// A key has no colon after its kind.
    #[error("missing colon: {0}")]
    MissingColon(String),
    /// What follows the colon can't be read.
    #[error("invalid path element: {0}")]
    BadElement(String),
    /// The tree is nested too deeply.
    #[error("fields are nested too deeply")]
    TooDeep,
}

impl FieldSet {
    /// Reads a `fieldsV1`.
    ///
    /// # Errors
    ///
    /// When a key is no path element. Elements of a kind that is not known are left out.
    pub fn from_fields_v1(fields: &Value) -> Result<FieldSet, FieldsV1Error> {
        Ok(read(fields, 0)?.0)
    }

    /// Writes the set as `fieldsV1`.
    #[must_use]
    pub fn to_fields_v1(&self) -> Value {
        Value::Object(write(self))
    }
}

/// The set below a node, and whether the node itself is a member.
fn read(fields: &Value, depth: usize) -> Result<(FieldSet, bool), FieldsV1Error> {
    if depth > MAX_DEPTH {
        return Err(FieldsV1Error::TooDeep);
    }
    let fields = match fields {
        Value::Object(fields) => fields,
        Value::Null => return Ok((FieldSet::new(), true)),
        _ => return Err(FieldsV1Error::NotAnObject),
    };
    let mut set = FieldSet::new();
    let mut member = false;
    for (key, child) in fields {
        if key == "." {
            member = true;
            continue;
        }
        let Some(element) = read_element(key)? else { continue };
        let (below, child_is_member) = read(child, depth + 1)?;
        let branch = set.branch_mut(element);
        branch.member |= child_is_member;
        branch.below.union(below);
    }
    let member = member || set.is_empty();
    Ok((set, member))
}

fn read_element(key: &str) -> Result<Option<PathElement<'_>>, FieldsV1Error> {
    if key.len() < 2 {
        return Err(FieldsV1Error::TooShort);
    }
    let Some((kind, text)) = key.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
        return Err(FieldsV1Error::MissingColon(key.to_owned()));
    };
    let bad = |_| FieldsV1Error::BadElement(key.to_owned());
    Ok(Some(match kind {
        "f" => PathElement::Field(Cow::Borrowed(text)),
        "v" => PathElement::Value(Cow::Owned(serde_json::from_str(text).map_err(bad)?)),
        "k" => {
            let keys: Map<String, Value> = serde_json::from_str(text).map_err(bad)?;
            PathElement::Key(
                keys.into_iter().map(|(name, value)| (Cow::Owned(name), Cow::Owned(value))).collect(),
            )
        }
        "i" => PathElement::Index(text.parse().map_err(|_| FieldsV1Error::BadElement(key.to_owned()))?),
        _ => return Ok(None),
    }))
}

fn write(set: &FieldSet) -> Map<String, Value> {
    set.branches.iter().map(|branch| (write_element(&branch.element), write_branch(branch))).collect()
}

fn write_branch(branch: &Branch) -> Value {
    let mut fields = write(&branch.below);
    if branch.member && !fields.is_empty() {
        fields.insert(".".to_owned(), Value::Object(Map::new()));
    }
    Value::Object(fields)
}

fn write_element(element: &PathElement<'_>) -> String {
    match element {
        PathElement::Field(name) => format!("f:{name}"),
        PathElement::Key(keys) => {
            let mut out = String::from("k:{");
            for (i, (name, value)) in keys.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(name.as_ref()).to_string());
                out.push(':');
                push_json(&mut out, value);
            }
            out.push('}');
            out
        }
        PathElement::Value(value) => {
            let mut out = String::from("v:");
            push_json(&mut out, value);
            out
        }
        PathElement::Index(index) => format!("i:{index}"),
    }
}

/// JSON with the characters escaped that Go escapes for HTML's sake; without this a key written
/// here and one written by another API server would be two fields.
fn push_json(out: &mut String, value: &Value) {
    for c in value.to_string().chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
}
