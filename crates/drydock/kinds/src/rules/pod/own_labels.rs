//! Other pods that a pod wants near or far by labels of its own: `matchLabelKeys` and `mismatchLabelKeys`.
//!
//! The values are written into the selectors when the pod is made, so that who reads a selector needs nothing else.
//! A term without a selector chooses no pod, and stays so. Templates are left as they are: their pods have labels that
//! they have not.

use serde_json::{Value, json};

use super::placement::{PREFERRED, REQUIRED};
use crate::json;

/// Writes the values of a new pod's labels into the selectors that ask for them.
pub(super) fn apply(pod: &mut Value) {
    let labels = pod["metadata"]["labels"].clone();
    let Some(spec) = pod.get_mut("spec") else { return };
    if let Some(affinity) = spec.get_mut("affinity") {
        for kind in ["podAffinity", "podAntiAffinity"] {
            let Some(terms) = affinity.get_mut(kind) else { continue };
            for preferred in json::list_mut(terms, PREFERRED) {
                if let Some(term) = preferred.get_mut("podAffinityTerm") {
                    merge(term, &labels);
                }
            }
            json::list_mut(terms, REQUIRED).iter_mut().for_each(|term| merge(term, &labels));
        }
    }
    json::list_mut(spec, "topologySpreadConstraints").iter_mut().for_each(|term| merge(term, &labels));
}

fn merge(term: &mut Value, labels: &Value) {
    let mut added = Vec::new();
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in json::list(term, field).iter().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                added.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    let Some(selector) = term.get_mut("labelSelector").filter(|selector| selector.is_object()) else {
        return;
    };
    if !added.is_empty() {
        let mut all = json::list(selector, "matchExpressions").to_vec();
        all.append(&mut added);
        json::set(selector, "matchExpressions", all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The selectors of a new pod with these keys in each term.
    fn made(keys: &Value, selector: &Value) -> (Value, Vec<String>) {
        let kind = crate::Registry::builtin().find("", "v1", "pods").unwrap();
        let mut term = json!({"topologyKey": "zone"});
        for (field, value) in keys.as_object().unwrap() {
            term[field] = value.clone();
        }
        if !selector.is_null() {
            term["labelSelector"] = selector.clone();
        }
        let both = json!({REQUIRED: [term], PREFERRED: [{"weight": 1, "podAffinityTerm": term}]});
        let mut spread = term.clone();
        spread.as_object_mut().unwrap().remove("mismatchLabelKeys");
        spread["maxSkew"] = 1.into();
        spread["whenUnsatisfiable"] = "DoNotSchedule".into();
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "n", "labels": {"a": "1", "b": "2"}},
            "spec": {"containers": [{"name": "c", "image": "i"}],
                "affinity": {"podAffinity": both, "podAntiAffinity": both},
                "topologySpreadConstraints": [spread]}});
        kind.default(&mut pod);
        kind.prepare_create(&mut pod);
        kind.default(&mut pod);
        let errors = kind.validate(&pod).iter().map(ToString::to_string).collect();
        (pod["spec"].take(), errors)
    }

    #[test]
    fn the_values_of_a_pods_own_labels_are_written_into_its_selectors() {
        let held = json!({"key": "x", "operator": "Exists"});
        let keys = json!({"matchLabelKeys": ["a", "none"], "mismatchLabelKeys": ["b", "nor"]});
        let (spec, errors) = made(&keys, &json!({"matchExpressions": [held]}));
        assert_eq!(errors, [""; 0]);
        let same = json!({"key": "a", "operator": "In", "values": ["1"]});
        let other = json!({"key": "b", "operator": "NotIn", "values": ["2"]});
        let expected = json!({"matchExpressions": [held, same, other]});
        for kind in ["podAffinity", "podAntiAffinity"] {
            let terms = &spec["affinity"][kind];
            assert_eq!(terms[REQUIRED][0]["labelSelector"], expected, "{kind}");
            assert_eq!(terms[PREFERRED][0]["podAffinityTerm"]["labelSelector"], expected, "{kind}");
        }
        let spread = &spec["topologySpreadConstraints"][0]["labelSelector"];
        assert_eq!(*spread, json!({"matchExpressions": [held, same]}));
    }

    #[test]
    fn a_selector_that_asks_for_nothing_of_the_pods_own_stays_as_it_is() {
        let selector = json!({"matchLabels": {"x": "y"}});
        let (spec, errors) = made(&json!({"matchLabelKeys": ["none"]}), &selector);
        assert_eq!(errors, [""; 0]);
        assert_eq!(spec["affinity"]["podAffinity"][REQUIRED][0]["labelSelector"], selector);
        let (spec, errors) = made(&json!({"matchLabelKeys": ["a"]}), &Value::Null);
        assert!(spec["affinity"]["podAffinity"][REQUIRED][0].get("labelSelector").is_none());
        assert_eq!(errors.len(), 5, "{errors:#?}");
        assert!(errors[0].ends_with("Forbidden: must not be specified when labelSelector is not set"));
    }

    #[test]
    fn a_key_that_the_selector_has_already_is_refused() {
        let (_, errors) = made(&json!({"matchLabelKeys": ["b", "a"]}), &json!({"matchLabels": {"a": "1"}}));
        let at = |path: String| {
            format!("spec.{path}[1]: Invalid value: \"a\": exists in both matchLabelKeys and labelSelector")
        };
        let affinity = |kind: &str, term: &str| at(format!("affinity.{kind}.{term}"));
        let (required, preferred) = (format!("{REQUIRED}[0]"), format!("{PREFERRED}[0].podAffinityTerm"));
        assert_eq!(
            errors,
            [
                affinity("podAffinity", &required),
                affinity("podAffinity", &preferred),
                affinity("podAntiAffinity", &required),
                affinity("podAntiAffinity", &preferred),
                at("topologySpreadConstraints[0]".to_owned()),
            ]
        );
        let keys = json!({"mismatchLabelKeys": ["a"]});
        let (_, errors) = made(&keys, &json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}));
        assert_eq!(errors, [""; 0], "to leave some of them out makes sense");
    }
}
