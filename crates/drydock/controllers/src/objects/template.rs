//! A pod template: kept as the text it came as, compared by what it means.

use std::fmt;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::meta::Pairs;

/// The label by which the pods of one revision of a Deployment are told from those of another.
pub const HASH_LABEL: &str = "pod-template-hash";

/// What a template in a ControllerRevision says beside itself: that it replaces another as a whole.
pub const REPLACES: &str = "$patch";

/// A pod template.
#[derive(Clone)]
pub struct Template {
    raw: Box<RawValue>,
    labels: OnceLock<Pairs>,
    meaning: OnceLock<u128>,
}

impl Template {
    /// The template as JSON.
    pub fn raw(&self) -> &RawValue {
        &self.raw
    }

    /// The template as a value that can be changed.
    pub fn value(&self) -> Value {
        serde_json::from_str(self.raw.get()).unwrap_or_default()
    }

    /// The labels of its pods.
    pub fn labels(&self) -> &Pairs {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Metadata {
            #[serde(deserialize_with = "super::meta::nullable")]
            labels: Pairs,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Shell {
            metadata: Metadata,
        }
        self.labels.get_or_init(|| {
            serde_json::from_str::<Shell>(self.raw.get())
                .map(|shell| shell.metadata.labels)
                .unwrap_or_default()
        })
    }

    /// A number that two templates share exactly when they mean the same, their hash label aside. 128 bits
    /// wide, so that a Deployment's few revisions do not meet by chance.
    pub fn meaning(&self) -> u128 {
        *self.meaning.get_or_init(|| {
            let mut value = self.value();
            if let Some(fields) = value.as_object_mut() {
                fields.remove(REPLACES);
            }
            if let Some(labels) = value.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
                labels.remove(HASH_LABEL);
            }
            normalize(&mut value);
            fnv128(value.to_string().as_bytes())
        })
    }

    /// The hash that names a ReplicaSet of this template; another one for each collision.
    pub fn hash(&self, collisions: Option<i32>) -> String {
        let mut hash: u32 = 0x811c_9dc5;
        let counted = collisions.map(i32::to_le_bytes);
        for byte in self.meaning().to_le_bytes().iter().chain(counted.iter().flatten()) {
            hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
        // Letters and digits that spell no words and are not mistaken for one another.
        const SAFE: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
        hash.to_string().bytes().map(|digit| char::from(SAFE[usize::from(digit) % SAFE.len()])).collect()
    }
}

/// Leaves out what Kubernetes does not tell apart: null and empty lists everywhere, and empty objects where
/// the field is a map or a struct that is always there. `emptyDir: {}` is not the same as no `emptyDir`.
fn normalize(value: &mut Value) {
    const EMPTY_MEANS_ABSENT: [&str; 9] = [
        "metadata",
        "labels",
        "annotations",
        "nodeSelector",
        "resources",
        "limits",
        "requests",
        "overhead",
        "securityContext",
    ];
    match value {
        Value::Object(fields) => {
            fields.retain(|name, field| {
                normalize(field);
                match field {
                    Value::Null => false,
                    Value::Array(items) => !items.is_empty(),
                    Value::Object(fields) => {
                        !fields.is_empty() || !EMPTY_MEANS_ABSENT.contains(&name.as_str())
                    }
                    _ => true,
                }
            });
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        _ => {}
    }
}

fn fnv128(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

impl fmt::Debug for Template {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.raw.get())
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.raw.get() == other.raw.get() || self.meaning() == other.meaning()
    }
}

impl Default for Template {
    fn default() -> Self {
        Self { raw: RawValue::NULL.to_owned(), labels: OnceLock::new(), meaning: OnceLock::new() }
    }
}

impl Serialize for Template {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.raw.serialize(out)
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Ok(Self {
            raw: Box::<RawValue>::deserialize(input)?,
            labels: OnceLock::new(),
            meaning: OnceLock::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Template {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn templates_are_compared_by_meaning_without_their_hash_label() {
        let plain = template(
            r#"{"metadata":{"labels":{"a":"1"},"creationTimestamp":null},"spec":{"containers":[{"name":"c","resources":{}}]}}"#,
        );
        let hashed = template(
            r#"{"spec":{"containers":[{"name":"c"}],"tolerations":[]},"metadata":{"labels":{"a":"1","pod-template-hash":"x"}}}"#,
        );
        let other = template(r#"{"metadata":{"labels":{"a":"1"}},"spec":{"containers":[{"name":"d"}]}}"#);
        assert_eq!(plain, hashed);
        assert_ne!(plain, other);
        assert_eq!(plain.labels().get("a"), Some("1"));
    }

    #[test]
    fn an_empty_volume_source_is_not_the_same_as_none() {
        let one = template(r#"{"spec":{"volumes":[{"name":"v","emptyDir":{}}]}}"#);
        let other = template(r#"{"spec":{"volumes":[{"name":"v"}]}}"#);
        assert_ne!(one, other);
    }

    #[test]
    fn the_hash_changes_with_collisions_and_is_safe_in_a_name() {
        let template = template(r#"{"metadata":{"labels":{"a":"1"}}}"#);
        let first = template.hash(None);
        assert_ne!(first, template.hash(Some(1)));
        assert!(!first.is_empty() && first.len() <= 10);
        assert!(first.chars().all(|letter| "bcdfghjklmnpqrstvwxz2456789".contains(letter)));
    }
}
