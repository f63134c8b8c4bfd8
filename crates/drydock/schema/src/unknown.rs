//! Fields that a schema does not know.
//!
//! **Always holds:** at most [`MAX_FINDINGS`] paths are written out, however much there is to find, so that the work is
//! no more than the object is long.

use std::{borrow::Cow, cell::RefCell, collections::BTreeMap, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::{
    Schema,
    json::{MAX_FINDINGS, Path},
};

/// What the pruned value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// A whole object: `apiVersion`, `kind` and `metadata` are always known.
    Resource,
    /// A part of one.
    Fragment,
}

const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes what `schema` does not know and returns the paths of what was removed, as kubectl shows
/// them: `spec.foo`, `spec.containers[0].imagee`. Sorted, with the object's own metadata first; no more than
/// [`MAX_FINDINGS`], though all of it is removed.
///
/// Fields under `x-kubernetes-preserve-unknown-fields` stay, those that the schema names inside
/// are pruned again. Pruning twice changes nothing.
pub fn prune(schema: &Schema, value: &mut Value, root: Root) -> Vec<String> {
    let mut pruning = Pruning { path: Vec::new(), removed: Vec::new() };
    pruning.value(schema, value, root == Root::Resource);
    pruning.removed.sort_by_cached_key(|path| (!path.starts_with("metadata."), path.clone()));
    pruning.removed
}

/// What a strict reader has to say of a field. `Display` is how Kubernetes says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The schema does not know it.
    Unknown(String),
    /// It is there twice.
    Duplicate(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(path) => write!(f, "unknown field {path:?}"),
            Self::Duplicate(path) => write!(f, "duplicate field {path:?}"),
        }
    }
}

/// What a strict reader of JSON has to say, in the order of the text: the first [`MAX_FINDINGS`]. What is in a field
/// that the schema does not know is not read.
#[must_use]
pub fn findings(schema: &Schema, text: &[u8], root: Root) -> Vec<Finding> {
    let found = RefCell::default();
    let known = Some((schema, root == Root::Resource));
    let reader = Reader { path: &Path::Root, known, found: &found };
    // It was read before: that it breaks off now only means that enough was found.
    let _ = reader.deserialize(&mut serde_json::Deserializer::from_slice(text));
    let mut once = Vec::new();
    for finding in found.into_inner() {
        // Of two objects of one name, both may have it.
        if !once.contains(&finding) {
            once.push(finding);
        }
    }
    once
}

/// What becomes of a field.
enum Fate<'s> {
    /// The schema knows it.
    Known(&'s Schema),
    /// It stays, with all that is in it.
    Kept,
    /// It goes.
    Unknown,
}

fn fate<'s>(schema: &'s Schema, name: &str, resource: bool) -> Fate<'s> {
    match schema.field(name) {
        Some(known) => Fate::Known(known),
        None if schema.preserve_unknown_fields || (resource && META.contains(&name)) => Fate::Kept,
        None => Fate::Unknown,
    }
}

/// The schema of a list's items. A list that the schema says nothing about keeps its items only where unknown fields
/// are kept.
fn items(schema: &Schema) -> Cow<'_, Schema> {
    let preserve_unknown_fields = schema.preserve_unknown_fields;
    match schema.items.as_deref() {
        None => Cow::Owned(Schema { preserve_unknown_fields, ..Schema::default() }),
        Some(known) if preserve_unknown_fields && !known.preserve_unknown_fields => {
            Cow::Owned(Schema { preserve_unknown_fields, ..known.clone() })
        }
        Some(known) => Cow::Borrowed(known),
    }
}

enum Step {
    Field(String),
    Index(usize),
}

struct Pruning {
    path: Vec<Step>,
    removed: Vec<String>,
}

impl Pruning {
    fn value(&mut self, schema: &Schema, value: &mut Value, resource: bool) {
        match value {
            Value::Object(fields) => {
                let resource = resource || schema.embedded_resource;
                fields.retain(|name, field| match fate(schema, name, resource) {
                    Fate::Known(known) => {
                        self.path.push(Step::Field(name.clone()));
                        self.value(known, field, false);
                        self.path.pop();
                        true
                    }
                    Fate::Kept => true,
                    Fate::Unknown => {
                        if self.removed.len() < MAX_FINDINGS {
                            let path = self.render(name);
                            self.removed.push(path);
                        }
                        false
                    }
                });
            }
            Value::Array(list) => {
                let known = items(schema);
                for (index, item) in list.iter_mut().enumerate() {
                    self.path.push(Step::Index(index));
                    self.value(&known, item, false);
                    self.path.pop();
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn render(&self, name: &str) -> String {
        let mut text = String::new();
        for step in &self.path {
            match step {
                Step::Field(field) => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(field);
                }
                Step::Index(index) => {
                    text.push_str(&format!("[{index}]"));
                }
            }
        }
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(name);
        text
    }
}

/// Reads a value for what there is to say of its fields, and keeps nothing else of it.
struct Reader<'a> {
    path: &'a Path<'a>,
    /// What is known of it, and whether it is a whole object; none of what is kept as it is.
    known: Option<(&'a Schema, bool)>,
    found: &'a RefCell<Vec<Finding>>,
}

impl Reader<'_> {
    /// Takes note; an error when that was enough.
    fn note<E: Error>(&self, finding: Finding) -> Result<(), E> {
        let mut found = self.found.borrow_mut();
        found.push(finding);
        if found.len() < MAX_FINDINGS { Ok(()) } else { Err(E::custom("enough was found")) }
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let known = self.known.map(|(schema, _)| items(schema));
        let mut index = 0;
        loop {
            let path = Path::Index(self.path, index);
            let known = known.as_deref().map(|schema| (schema, false));
            match list.next_element_seed(Reader { path: &path, known, found: self.found })? {
                Some(()) => index += 1,
                None => return Ok(()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let known = self.known.map(|(schema, resource)| (schema, resource || schema.embedded_resource));
        // How often each name came: what there is to say of it is said once.
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = Path::Field(self.path, &name);
            let before = names.get(&name).copied().unwrap_or(0);
            let fate = known.map_or(Fate::Kept, |(schema, resource)| fate(schema, &name, resource));
            let unknown = matches!(fate, Fate::Unknown);
            match before {
                0 if unknown => self.note::<A::Error>(Finding::Unknown(path.to_string()))?,
                1 if !unknown => self.note::<A::Error>(Finding::Duplicate(path.to_string()))?,
                _ => {}
            }
            if unknown {
                fields.next_value::<IgnoredAny>()?;
            } else {
                let known = if let Fate::Known(schema) = fate { Some((schema, false)) } else { None };
                fields.next_value_seed(Reader { path: &path, known, found: self.found })?;
            }
            names.insert(name, before + 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;

    fn found(text: &str) -> Vec<String> {
        let schema = builtin::definition("io.k8s.api.core.v1.Pod").expect("built in");
        findings(&schema, text.as_bytes(), Root::Resource).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn findings_are_in_the_order_of_the_text_and_each_is_said_once() {
        let containers = r#"[{"name":"c"},{"zz":1,"name":"d","aa":2}]"#;
        let labels = r#"{"a":"x","a":"y","a":"z"}"#;
        let text = format!(
            r#"{{"zoo":{{"a":1,"a":2}},"spec":{{"containers":{containers},"ant":1}},"zoo":1,
                "metadata":{{"labels":{labels}}},"spec":{{"ant":2}}}}"#
        );
        let expected = [
            r#"unknown field "zoo""#,
            r#"unknown field "spec.containers[1].zz""#,
            r#"unknown field "spec.containers[1].aa""#,
            r#"unknown field "spec.ant""#,
            r#"duplicate field "metadata.labels.a""#,
            r#"duplicate field "spec""#,
        ];
        assert_eq!(found(&text), expected);
    }

    #[test]
    fn no_more_is_found_than_a_strict_reader_keeps_and_all_of_it_is_removed() {
        let fields: Vec<String> = (0..1_000).rev().map(|n| format!(r#""f{n:03}":1"#)).collect();
        let text = format!(r#"{{"spec":{{{}}}}}"#, fields.join(","));
        let first = found(&text);
        let last = first.last().map(String::as_str);
        assert_eq!((first.len(), last), (MAX_FINDINGS, Some(r#"unknown field "spec.f900""#)));
        let schema = builtin::definition("io.k8s.api.core.v1.Pod").expect("built in");
        let mut object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(prune(&schema, &mut object, Root::Resource).len(), MAX_FINDINGS);
        assert_eq!(object, serde_json::json!({"spec": {}}));
    }

    /// Were each path here written out, they would be a hundred gigabytes.
    #[test]
    fn what_there_is_to_find_below_a_long_name_takes_no_longer_than_the_text() {
        let fields: Vec<String> = (0..100_000).map(|n| format!(r#""{n}":1,"{n}":2"#)).collect();
        let text = format!(r#"{{"{}":{{{}}}}}"#, "x".repeat(1 << 20), fields.join(","));
        let kept = Schema { preserve_unknown_fields: true, ..Schema::default() };
        assert_eq!(findings(&kept, text.as_bytes(), Root::Fragment).len(), MAX_FINDINGS);
        let parsed = crate::json::parse(text.as_bytes()).unwrap();
        assert_eq!(parsed.duplicates.len(), MAX_FINDINGS);
        let below = Schema { additional: Some(Schema::default().into()), ..Schema::default() };
        assert_eq!(prune(&below, &mut parsed.value.clone(), Root::Fragment).len(), MAX_FINDINGS);
        assert_eq!(findings(&below, text.as_bytes(), Root::Fragment).len(), MAX_FINDINGS);
    }
}
