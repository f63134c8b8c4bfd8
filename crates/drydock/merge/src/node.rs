//! A schema read the way field management reads it.
//!
//! A [`Node`] is a place in the schema tree with what the bare [`Schema`] can't know: whether it
//! is the root of an object (whose `metadata` is always an ObjectMeta, whatever a custom
//! resource's schema says), and whether an ancestor keeps unknown fields.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use drydock_schema::{ListKind, MapKind, PatchStrategy, Schema, Type};
use serde_json::Value;

use crate::fields::PathElement;

/// What a value is handled as at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Scalar,
    List,
    Map,
}

/// The type of a scalar, as far as field management tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    Numeric,
    String,
    Boolean,
    Any,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    RootMeta,
    Inner,
}

/// A place in a schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node<'a> {
    schema: &'a Schema,
    place: Place,
    open: bool,
}

impl<'a> Node<'a> {
    /// The root of an object of this schema.
    pub(crate) fn root(schema: &'a Schema) -> Self {
        Self { schema, place: Place::Root, open: schema.preserve_unknown_fields }
    }

    /// A value of which nothing is known.
    pub(crate) fn anything() -> Self {
        Self { schema: &ANYTHING, place: Place::Inner, open: true }
    }

    fn inner(self, schema: &'a Schema) -> Self {
        Self { schema, place: Place::Inner, open: self.open || schema.preserve_unknown_fields }
    }

    /// What `value` is handled as here.
    pub(crate) fn form(self, value: &Value) -> Form {
        match self.schema.kind {
            Type::Object => Form::Map,
            Type::Array => Form::List,
            Type::Any => match value {
                Value::Array(_) => Form::List,
                Value::Object(_) | Value::Null => Form::Map,
                _ => Form::Scalar,
            },
            _ => Form::Scalar,
        }
    }

    /// What scalars are accepted here.
    pub(crate) fn scalar(self) -> Scalar {
        match self.schema.kind {
            // A string of a certain format (a time, a quantity) is often written as a number.
            Type::String if self.schema.format.as_deref().is_none_or(|f| f == "byte") => Scalar::String,
            Type::Integer | Type::Number => Scalar::Numeric,
            Type::Boolean => Scalar::Boolean,
            _ => Scalar::Any,
        }
    }

    /// The list is one value.
    pub(crate) fn atomic_list(self) -> bool {
        self.schema.list == ListKind::Atomic
    }

    /// The object is one value.
    pub(crate) fn atomic_map(self) -> bool {
        self.schema.map == MapKind::Atomic
    }

    /// The value may be anything, so its form is only known from the value.
    pub(crate) fn untyped(self) -> bool {
        self.schema.kind == Type::Any
    }

    /// The value can only be an object.
    pub(crate) fn is_object(self) -> bool {
        self.schema.kind == Type::Object
    }

    /// The value can only be a list.
    pub(crate) fn is_array(self) -> bool {
        self.schema.kind == Type::Array
    }

    /// A declared field.
    pub(crate) fn field(self, name: &str) -> Option<Node<'a>> {
        let declared = self.schema.properties.get(name);
        if self.place == Place::Root || self.schema.embedded_resource {
            match name {
                "metadata" => {
                    let schema = match declared {
                        Some(schema) if !schema.properties.is_empty() => schema.as_ref(),
                        _ => &OBJECT_META,
                    };
                    let place = if self.place == Place::Root { Place::RootMeta } else { Place::Inner };
                    return Some(Node { schema, place, open: false });
                }
                "apiVersion" | "kind" if declared.is_none() => return Some(self.inner(&STRING)),
                _ => {}
            }
        }
        declared.map(|schema| self.inner(schema))
    }

    /// What fields that are not declared are: a map's values, anything where unknown fields are
    /// kept, and nothing where they are not.
    pub(crate) fn undeclared(self) -> Option<Node<'a>> {
        match &self.schema.additional {
            Some(schema) => Some(self.inner(schema)),
            None if self.schema.checks.closed => None,
            None if self.open || self.schema.properties.is_empty() => Some(Node::anything()),
            None => None,
        }
    }

    /// The node of a field, whether it is declared or not.
    pub(crate) fn child(self, name: &str) -> Node<'a> {
        self.field(name).or_else(|| self.undeclared()).unwrap_or_else(Node::anything)
    }

    /// The node of a list's items.
    pub(crate) fn item(self) -> Node<'a> {
        self.schema.items.as_deref().map_or_else(Node::anything, |schema| self.inner(schema))
    }

    /// What a strategic merge patch does here.
    pub(crate) fn patch(self) -> &'a PatchStrategy {
        &self.schema.patch
    }

    /// Whether a strategic merge patch can look up fields below: a map has no field of its own.
    pub(crate) fn is_struct(self) -> bool {
        self.schema.additional.is_none()
    }

    /// The name of the type, without its package.
    pub(crate) fn type_name(self) -> &'a str {
        self.schema.name.as_deref().and_then(|name| name.rsplit('.').next()).unwrap_or_default()
    }

    /// Fields that are no part of what is merged and owned: `metadata.managedFields` itself.
    pub(crate) fn skips(self, name: &str) -> bool {
        self.place == Place::RootMeta && name == "managedFields"
    }

    /// How an item of this list is told apart from the others, or why it can't be.
    pub(crate) fn element<'v>(self, item: &'v Value) -> Result<PathElement<'v>, String>
    where
        'a: 'v,
    {
        match &self.schema.list {
            ListKind::Atomic => Err("invalid indexing of non-associative list".to_owned()),
            ListKind::Set => match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".to_owned())
                }
                scalar => Ok(PathElement::Value(Cow::Borrowed(scalar))),
            },
            ListKind::Map(keys) => self.keyed_element(keys, item),
        }
    }

    fn keyed_element<'v>(self, keys: &'a [String], item: &'v Value) -> Result<PathElement<'v>, String>
    where
        'a: 'v,
    {
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => {
                return Err("associative list with keys may not have a null element".to_owned());
            }
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let mut found: Vec<(Cow<'v, str>, Cow<'v, Value>)> = Vec::with_capacity(keys.len());
        for key in keys {
            let value = fields.get(key).or_else(|| self.key_default(key));
            if let Some(value) = value {
                found.push((Cow::Borrowed(key), Cow::Borrowed(value)));
            }
        }
        if found.is_empty() {
            let keys: Vec<String> = keys.iter().map(|k| crate::wording::quoted(k)).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                keys.join(" ")
            ));
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(PathElement::Key(found))
    }

    /// What a key is that an item leaves out. Of a built-in type, a required key that is not
    /// there is the zero value; validation refuses it in its own words.
    fn key_default(self, key: &str) -> Option<&'a Value> {
        let item = self.schema.items.as_deref()?;
        let schema = item.properties.get(key)?;
        match &schema.default {
            Some(Value::Null) => None,
            Some(default) => Some(default),
            None if item.name.is_none() || !item.required.iter().any(|name| name == key) => None,
            None => match schema.kind {
                Type::String => Some(&EMPTY),
                Type::Integer => Some(&ZERO),
                _ => None,
            },
        }
    }
}

static EMPTY: Value = Value::String(String::new());
static ZERO: LazyLock<Value> = LazyLock::new(|| Value::from(0));

static ANYTHING: LazyLock<Schema> = LazyLock::new(Schema::default);

static STRING: LazyLock<Schema> = LazyLock::new(|| Schema { kind: Type::String, ..Schema::default() });

/// The metadata of every object, for schemas that leave it open.
static OBJECT_META: LazyLock<Schema> = LazyLock::new(|| {
    let string = || Arc::new(Schema { kind: Type::String, ..Schema::default() });
    let integer = || Arc::new(Schema { kind: Type::Integer, ..Schema::default() });
    let boolean = || Arc::new(Schema { kind: Type::Boolean, ..Schema::default() });
    let object = |fields: Vec<(&str, Arc<Schema>)>| Schema {
        kind: Type::Object,
        properties: fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect(),
        ..Schema::default()
    };
    let strings = || Arc::new(Schema { kind: Type::Object, additional: Some(string()), ..Schema::default() });
    let owner = Schema {
        map: MapKind::Atomic,
        ..object(vec![
            ("apiVersion", string()),
            ("blockOwnerDeletion", boolean()),
            ("controller", boolean()),
            ("kind", string()),
            ("name", string()),
            ("uid", string()),
        ])
    };
    let owners = Schema {
        kind: Type::Array,
        items: Some(Arc::new(owner)),
        list: ListKind::Map(vec!["uid".to_owned()]),
        patch: PatchStrategy { merge_key: Some("uid".to_owned()), merge: true, retain_keys: false },
        ..Schema::default()
    };
    let finalizers = Schema {
        kind: Type::Array,
        items: Some(string()),
        list: ListKind::Set,
        patch: PatchStrategy { merge_key: None, merge: true, retain_keys: false },
        ..Schema::default()
    };
    let entries = Schema {
        kind: Type::Array,
        items: Some(Arc::new(Schema {
            kind: Type::Object,
            properties: BTreeMap::new(),
            preserve_unknown_fields: true,
            ..Schema::default()
        })),
        ..Schema::default()
    };
    object(vec![
        ("annotations", strings()),
        ("creationTimestamp", string()),
        ("deletionGracePeriodSeconds", integer()),
        ("deletionTimestamp", string()),
        ("finalizers", Arc::new(finalizers)),
        ("generateName", string()),
        ("generation", integer()),
        ("labels", strings()),
        ("managedFields", Arc::new(entries)),
        ("name", string()),
        ("namespace", string()),
        ("ownerReferences", Arc::new(owners)),
        ("resourceVersion", string()),
        ("selfLink", string()),
        ("uid", string()),
    ])
});
