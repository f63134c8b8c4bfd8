//! Label selectors.

use serde::{Deserialize, Serialize};

use super::meta::{Pairs, nullable};

/// A label selector as objects carry it. One with no requirements selects everything in Kubernetes; a
/// controller that acts on what it selects must ask [`is_empty`](Self::is_empty) first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that must be there with this value.
    #[serde(skip_serializing_if = "Pairs::is_empty", deserialize_with = "nullable")]
    pub match_labels: Pairs,
    /// Requirements of the other forms.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub match_expressions: Vec<Requirement>,
}

/// One entry of `matchExpressions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Requirement {
    /// The label.
    pub key: Box<str>,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: Box<str>,
    /// What is compared with.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub values: Vec<Box<str>>,
}

impl LabelSelector {
    /// Whether it has no requirement at all.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Whether these labels fulfil every requirement. An operator nobody knows is never fulfilled.
    pub fn matches(&self, labels: &Pairs) -> bool {
        includes(labels, &self.match_labels)
            && self.match_expressions.iter().all(|requirement| {
                let value = labels.get(&requirement.key);
                let listed = |value: &str| requirement.values.iter().any(|one| &**one == value);
                match &*requirement.operator {
                    "In" => value.is_some_and(listed),
                    "NotIn" => !value.is_some_and(listed),
                    "Exists" => value.is_some(),
                    "DoesNotExist" => value.is_none(),
                    _ => false,
                }
            })
    }
}

/// Whether all of `wanted` is among `labels`.
pub fn includes(labels: &Pairs, wanted: &Pairs) -> bool {
    wanted.len() <= labels.len() && wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(selector: &str, labels: &str, expected: bool) {
        let selector: LabelSelector = serde_json::from_str(selector).unwrap();
        let labels: Pairs = serde_json::from_str(labels).unwrap();
        assert_eq!(selector.matches(&labels), expected);
    }

    #[test]
    fn every_requirement_must_hold() {
        check(r#"{"matchLabels":{"a":"1"}}"#, r#"{"a":"1","b":"2"}"#, true);
        check(r#"{"matchLabels":{"a":"1","b":"3"}}"#, r#"{"a":"1","b":"2"}"#, false);
        check(
            r#"{"matchExpressions":[{"key":"a","operator":"In","values":["1","2"]}]}"#,
            r#"{"a":"2"}"#,
            true,
        );
        check(r#"{"matchExpressions":[{"key":"a","operator":"NotIn","values":["1"]}]}"#, "{}", true);
        check(r#"{"matchExpressions":[{"key":"a","operator":"Exists"}]}"#, "{}", false);
        check(r#"{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]}"#, r#"{"a":""}"#, false);
        check(r#"{"matchExpressions":[{"key":"a","operator":"Near"}]}"#, r#"{"a":""}"#, false);
    }
}
