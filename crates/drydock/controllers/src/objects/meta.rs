//! Object metadata: everything that must survive a round trip through the server, except `managedFields`,
//! which the server keeps when they are left out.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::resource::{Key, Resource};

/// `metadata` of an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// The name.
    #[serde(skip_serializing_if = "str::is_empty", serialize_with = "text", deserialize_with = "shared")]
    pub name: Arc<str>,
    /// The prefix of a name the server makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generate_name: Option<Box<str>>,
    /// The namespace; empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "str::is_empty", serialize_with = "text", deserialize_with = "shared")]
    pub namespace: Arc<str>,
    /// The identity that is never used twice.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub uid: Box<str>,
    /// The version of the whole object.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub resource_version: Box<str>,
    /// The version of the spec.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// When it was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Timestamp>,
    /// When it was, or will be, deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Timestamp>,
    /// How long it may take to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    /// Labels.
    #[serde(skip_serializing_if = "Pairs::is_empty", deserialize_with = "nullable")]
    pub labels: Pairs,
    /// Annotations.
    #[serde(skip_serializing_if = "Pairs::is_empty", deserialize_with = "nullable")]
    pub annotations: Pairs,
    /// Who owns it.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub owner_references: Vec<OwnerReference>,
    /// Who still has something to do before it goes.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub finalizers: Vec<Box<str>>,
}

/// Whether a number is one that is not written.
pub fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

fn text<S: Serializer>(text: &Arc<str>, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(text)
}

fn shared<'de, D: Deserializer<'de>>(input: D) -> Result<Arc<str>, D::Error> {
    Ok(std::borrow::Cow::<'de, str>::deserialize(input)?.into())
}

/// `null` where a default would do, as Kubernetes allows everywhere.
pub fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(input: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(input)?.unwrap_or_default())
}

impl Meta {
    /// The object's key.
    pub fn key(&self) -> Key {
        Key { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// The owner that manages it, if one does.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller == Some(true))
    }

    /// Whether its deletion has begun.
    pub fn deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Whether it carries this finalizer.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|own| &**own == finalizer)
    }

    /// The resource version as a number: they are numbers, and grow with every write to a kind.
    pub fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or(0)
    }
}

/// One entry of `ownerReferences`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// Group and version of the owner.
    pub api_version: Box<str>,
    /// Its kind.
    pub kind: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its uid.
    pub uid: Box<str>,
    /// Whether it manages the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether the owner must wait for the object when it is deleted in the foreground.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

impl OwnerReference {
    /// The reference of a controller to an object it manages.
    pub fn to_controller(resource: &Resource, owner: &Meta) -> Self {
        Self {
            api_version: resource.api_version().into(),
            kind: (&*resource.kind).into(),
            name: (&*owner.name).into(),
            uid: owner.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    /// The group of the owner, without the version.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// The version of the owner.
    pub fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(&*self.api_version, |(_, version)| version)
    }
}

/// A map of strings, sorted, in as little memory as it takes: most objects have a handful of labels.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Pairs(Vec<(Box<str>, Box<str>)>);

impl Pairs {
    /// The value under this key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.binary_search_by(|(own, _)| (**own).cmp(key)).ok().map(|at| &*self.0[at].1)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All of them, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Puts a value under a key; says whether that changed anything.
    pub fn set(&mut self, key: &str, value: &str) -> bool {
        match self.0.binary_search_by(|(own, _)| (**own).cmp(key)) {
            Ok(at) if &*self.0[at].1 == value => false,
            Ok(at) => {
                self.0[at].1 = value.into();
                true
            }
            Err(at) => {
                self.0.insert(at, (key.into(), value.into()));
                true
            }
        }
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &str) {
        self.0.retain(|(own, _)| &**own != key);
    }
}

impl fmt::Debug for Pairs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut all: Vec<(Box<str>, Box<str>)> =
            pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        all.sort();
        all.dedup_by(|later, earlier| later.0 == earlier.0);
        Self(all)
    }
}

impl Serialize for Pairs {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(Some(self.0.len()))?;
        for (key, value) in self.iter() {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Pairs;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a map of strings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut input: A) -> Result<Pairs, A::Error> {
                let mut all = Vec::with_capacity(input.size_hint().unwrap_or(0).min(64));
                while let Some(pair) = input.next_entry::<Box<str>, Box<str>>()? {
                    all.push(pair);
                }
                all.shrink_to_fit();
                if !all.is_sorted() {
                    all.sort();
                }
                Ok(Pairs(all))
            }
        }
        input.deserialize_map(Map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_survives_a_round_trip_without_managed_fields() {
        let text = r#"{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","generation":2,
            "creationTimestamp":"2026-01-02T03:04:05Z","labels":{"b":"2","a":"1"},"annotations":null,
            "managedFields":[{"manager":"x"}],"finalizers":["f"],
            "ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","uid":"w","controller":true}]}"#;
        let meta: Meta = serde_json::from_str(text).unwrap();
        assert_eq!(meta.labels.get("a"), Some("1"));
        assert_eq!(meta.version(), 7);
        assert_eq!(meta.controller().map(OwnerReference::group), Some("apps"));
        let back = serde_json::to_string(&meta).unwrap();
        assert_eq!(
            back,
            r#"{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","generation":2,"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"a":"1","b":"2"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","uid":"w","controller":true}],"finalizers":["f"]}"#
        );
    }

    #[test]
    fn pairs_say_whether_they_changed() {
        let mut pairs: Pairs = [("b", "2"), ("a", "1")].into_iter().collect();
        assert!(!pairs.set("a", "1"));
        assert!(pairs.set("a", "3"));
        assert!(pairs.set("c", "4"));
        pairs.remove("b");
        assert_eq!(format!("{pairs:?}"), r#"{"a": "3", "c": "4"}"#);
    }
}
