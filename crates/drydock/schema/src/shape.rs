//! The parsed form of a schema.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

/// What a value is at a node of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Type {
    /// Anything at all, e.g. `x-kubernetes-preserve-unknown-fields` with no type, or a RawExtension.
    #[default]
    Any,
    /// A JSON object: `properties`, or a map when `additional` is set.
    Object,
    /// A JSON array of `items`.
    Array,
    /// A string.
    String,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// `x-kubernetes-int-or-string`.
    IntOrString,
}

/// How the items of a list are told apart when two versions of it are merged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListKind {
    /// The list is one value.
    #[default]
    Atomic,
    /// Items are scalars and each occurs once.
    Set,
    /// Items are objects, told apart by these keys.
    Map(Vec<String>),
}

/// How the fields of an object are owned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MapKind {
    /// Each field has its own owner.
    #[default]
    Granular,
    /// The object is one value.
    Atomic,
}

/// What a strategic merge patch does at a node (`x-kubernetes-patch-*`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PatchStrategy {
    /// Items of the list are merged by this key.
    pub merge_key: Option<String>,
    /// The list is merged rather than replaced.
    pub merge: bool,
    /// Only the keys named in the patch are kept (`retainKeys`).
    pub retain_keys: bool,
}

/// One node of a structural schema.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    /// What the value is.
    pub kind: Type,
    /// The known fields of an object.
    pub properties: BTreeMap<String, Arc<Schema>>,
    /// The schema of a map's values (`additionalProperties`).
    pub additional: Option<Arc<Schema>>,
    /// The schema of a list's items.
    pub items: Option<Arc<Schema>>,
    /// Fields that must be there.
    pub required: Vec<String>,
    /// `null` is a value here.
    pub nullable: bool,
    /// What is set where nothing was given.
    pub default: Option<Value>,
    /// Fields that are not in `properties` are kept.
    pub preserve_unknown_fields: bool,
    /// The value is a whole Kubernetes object (`x-kubernetes-embedded-resource`).
    pub embedded_resource: bool,
    /// How a list's items are told apart.
    pub list: ListKind,
    /// How an object's fields are owned.
    pub map: MapKind,
    /// What a strategic merge patch does here.
    pub patch: PatchStrategy,
}
