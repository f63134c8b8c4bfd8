//! The parsed form of a schema.

use std::{collections::BTreeMap, sync::Arc};

use regex::Regex;
use serde_json::Value;

use crate::rules::Rule;

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
    /// The definition this node is, e.g. `io.k8s.api.core.v1.PodSpec`; built-in types only.
    pub name: Option<Arc<str>>,
    /// `format`, where it means something: `date-time`, `byte`, `int32`, `quantity`, …
    pub format: Option<Box<str>>,
    /// What a value must fulfil beyond its type.
    pub checks: Checks,
    /// CEL rules (`x-kubernetes-validations`), compiled.
    pub rules: Vec<Arc<Rule>>,
    /// There is a rule here or somewhere below.
    pub has_rules: bool,
}

/// What a value must fulfil beyond its type; each keyword applies to the values it can apply to.
#[derive(Debug, Clone, Default)]
pub struct Checks {
    /// `enum`; nothing is ruled out when empty.
    pub allowed: Vec<Value>,
    /// `minimum`.
    pub minimum: Option<f64>,
    /// The minimum itself is not allowed.
    pub exclusive_minimum: bool,
    /// `maximum`.
    pub maximum: Option<f64>,
    /// The maximum itself is not allowed.
    pub exclusive_maximum: bool,
    /// `multipleOf`.
    pub multiple_of: Option<f64>,
    /// `minLength`, in characters.
    pub min_length: Option<u64>,
    /// `maxLength`, in characters.
    pub max_length: Option<u64>,
    /// `pattern`.
    pub pattern: Option<Regex>,
    /// `minItems`.
    pub min_items: Option<u64>,
    /// `maxItems`.
    pub max_items: Option<u64>,
    /// `minProperties`.
    pub min_properties: Option<u64>,
    /// `maxProperties`.
    pub max_properties: Option<u64>,
    /// `additionalProperties: false`.
    pub closed: bool,
    /// Every one of these holds.
    pub all_of: Vec<Arc<Schema>>,
    /// At least one of these holds.
    pub any_of: Vec<Arc<Schema>>,
    /// Exactly one of these holds.
    pub one_of: Vec<Arc<Schema>>,
    /// This does not hold.
    pub not: Option<Arc<Schema>>,
}

impl Type {
    /// The type of this name in OpenAPI; any where there is none of it.
    pub(crate) fn named(name: &str) -> Self {
        let all = [Self::Object, Self::Array, Self::String, Self::Integer, Self::Number, Self::Boolean];
        all.into_iter().find(|kind| kind.as_str() == name).unwrap_or_default()
    }

    /// The name in OpenAPI; empty where none is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Any | Self::IntOrString => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

impl Schema {
    /// The schema of a field: a property, or a value of the map.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Arc<Schema>> {
        self.properties.get(name).or(self.additional.as_ref())
    }
}
