//! One Kubernetes object of any kind, as JSON.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{KindRef, Scope};

/// The value is no Kubernetes object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a Kubernetes object: {0} is missing")]
pub struct NotAnObject(&'static str);

/// An object that its own type can't read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object} can't be read: {why}")]
pub struct Unreadable {
    /// Which object.
    pub object: String,
    /// What the decoder said.
    pub why: String,
}

/// Which object, by kind and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: KindRef,
    /// Its name, in the namespace of the resource that speaks of it.
    pub name: String,
}

impl ObjectRef {
    /// The object of this type with this name.
    pub fn of<K>(name: impl Into<String>) -> Self
    where
        K: kube_core::Resource<DynamicType = ()>,
        K::Scope: Scope,
    {
        ObjectRef { kind: KindRef::of::<K>(), name: name.into() }
    }
}

/// One Kubernetes object of any kind, as JSON. Always has `apiVersion`, `kind` and `metadata.name`.
///
/// Equality is equality of the JSON. `Debug` hides what a Secret holds.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct Object(Value);

impl Object {
    /// Takes a JSON value that is an object of some kind.
    pub fn new(value: Value) -> Result<Self, NotAnObject> {
        for (pointer, name) in
            [("/apiVersion", "apiVersion"), ("/kind", "kind"), ("/metadata/name", "metadata.name")]
        {
            if value.pointer(pointer).and_then(Value::as_str).is_none_or(str::is_empty) {
                return Err(NotAnObject(name));
            }
        }
        Ok(Object(value))
    }

    /// Takes a JSON value that is known to be of `kind`, and may lack `apiVersion` and `kind` as the items of a
    /// list do.
    pub fn of_kind(kind: &KindRef, mut value: Value) -> Result<Self, NotAnObject> {
        if let Value::Object(map) = &mut value {
            map.insert("apiVersion".into(), kind.api_version().into());
            map.insert("kind".into(), kind.kind.to_string().into());
        }
        Object::new(value)
    }

    /// The object that a typed value stands for.
    pub fn of<K>(typed: &K) -> Self
    where
        K: kube_core::Resource<DynamicType = ()> + Serialize,
    {
        #[expect(
            clippy::expect_used,
            reason = "Kubernetes' types have string keys and finite numbers; one that has not fails its first test"
        )]
        let mut value = serde_json::to_value(typed).expect("a Kubernetes type is JSON");
        if let Value::Object(map) = &mut value {
            map.insert("apiVersion".into(), K::api_version(&()).into_owned().into());
            map.insert("kind".into(), K::kind(&()).into_owned().into());
        }
        Object(value)
    }

    /// The object as its type.
    pub fn read<K: DeserializeOwned>(&self) -> Result<K, Unreadable> {
        K::deserialize(&self.0)
            .map_err(|error| Unreadable { object: self.to_string(), why: error.to_string() })
    }

    /// The JSON.
    pub fn value(&self) -> &Value {
        &self.0
    }

    /// The JSON, given away.
    pub fn into_value(self) -> Value {
        self.0
    }

    fn text(&self, pointer: &str) -> Option<&str> {
        self.0.pointer(pointer).and_then(Value::as_str)
    }

    /// `apps/v1`.
    pub fn api_version(&self) -> &str {
        self.text("/apiVersion").unwrap_or_default()
    }

    /// `Deployment`.
    pub fn kind(&self) -> &str {
        self.text("/kind").unwrap_or_default()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.text("/metadata/name").unwrap_or_default()
    }

    /// Its namespace, unless its kind has none.
    pub fn namespace(&self) -> Option<&str> {
        self.text("/metadata/namespace")
    }

    /// The server's identifier, once the server has it.
    pub fn uid(&self) -> Option<&str> {
        self.text("/metadata/uid")
    }

    /// The revision at which it was seen.
    pub fn resource_version(&self) -> Option<&str> {
        self.text("/metadata/resourceVersion")
    }

    /// The value of a label, or of a field where the name begins with a dot: `.spec.instance`.
    pub fn label(&self, name: &str) -> Option<&str> {
        label(&self.0, name)
    }

    /// Whether it is on its way out.
    pub fn is_being_deleted(&self) -> bool {
        self.text("/metadata/deletionTimestamp").is_some()
    }

    /// Whom it belongs to.
    pub fn owner_references(&self) -> Vec<OwnerReference> {
        self.0
            .pointer("/metadata/ownerReferences")
            .and_then(|list| Vec::<OwnerReference>::deserialize(list).ok())
            .unwrap_or_default()
    }

    /// The one owner that controls it.
    pub fn controller(&self) -> Option<OwnerReference> {
        self.owner_references().into_iter().find(|owner| owner.controller == Some(true))
    }

    pub(crate) fn is_secret(&self) -> bool {
        self.kind() == "Secret" && self.api_version() == "v1"
    }

    /// The same object with what a Secret holds replaced by a word. For everything that is shown.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let mut copy = self.clone();
        if self.is_secret() {
            for part in ["data", "stringData"] {
                if let Some(Value::Object(entries)) = copy.0.get_mut(part) {
                    hide(entries);
                }
            }
        }
        copy
    }
}

/// The value of a label of an object, or of a field of it where the name begins with a dot: `.spec.instance`.
pub fn label<'o>(object: &'o Value, name: &str) -> Option<&'o str> {
    let mut fields = name.split('.');
    let found = match fields.next() {
        Some("") => fields.try_fold(object, |value, field| value.get(field)),
        _ => object.get("metadata")?.get("labels")?.get(name),
    };
    found?.as_str()
}

/// What stands where a secret value would.
pub(crate) const HIDDEN: &str = "(hidden)";

fn hide(entries: &mut Map<String, Value>) {
    for value in entries.values_mut() {
        *value = HIDDEN.into();
    }
}

impl TryFrom<Value> for Object {
    type Error = NotAnObject;

    fn try_from(value: Value) -> Result<Self, NotAnObject> {
        Object::new(value)
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Value {
        object.0
    }
}

impl fmt::Display for Object {
    /// `Deployment default/sample`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind(), self.name()),
            None => write!(f, "{} {}", self.kind(), self.name()),
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.redacted().0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_secret_holds_is_not_shown() {
        let secret = Object::new(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"password": "aHVudGVyMg=="}
        }))
        .unwrap();
        let shown = format!("{secret:?}");
        assert!(!shown.contains("aHVudGVyMg=="), "{shown}");
        assert!(shown.contains("password"), "{shown}");
    }

    #[test]
    fn what_ties_an_object_to_a_resource_is_a_label_or_a_field() {
        let object =
            json!({"metadata": {"labels": {"a.b/c": "x"}}, "spec": {"from": {"name": "y"}, "count": 1}});
        assert_eq!(label(&object, "a.b/c"), Some("x"));
        assert_eq!(label(&object, ".spec.from.name"), Some("y"));
        for none in ["c", ".spec.from", ".spec.count", ".spec.to.name", ".", ""] {
            assert_eq!(label(&object, none), None, "{none:?}");
        }
    }

    #[test]
    fn an_object_without_a_name_is_none() {
        let error = Object::new(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}})).unwrap_err();
        assert_eq!(error.to_string(), "not a Kubernetes object: metadata.name is missing");
    }
}
