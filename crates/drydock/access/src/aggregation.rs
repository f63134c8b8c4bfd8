//! Cluster roles that are made of others.
//!
//! A role with an `aggregationRule` has the rules of all roles that its selectors match, so that
//! the author of a custom resource can extend `admin`, `edit` and `view` with a label.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::PolicyRule;
use crate::policy::meta;

/// The cluster roles whose rules are not what their `aggregationRule` says, with the rules they
/// should have. Roles that gather from roles that gather are followed to the end.
pub fn aggregate<'a>(cluster_roles: impl IntoIterator<Item = &'a Value>) -> Vec<Value> {
    let roles: BTreeMap<&str, &Value> =
        cluster_roles.into_iter().map(|role| (meta(role, "name"), role)).collect();
    let mut rules: BTreeMap<&str, Vec<PolicyRule>> =
        roles.iter().map(|(name, role)| (*name, PolicyRule::of_role(role))).collect();

    // Each pass moves rules one role further, and a rule can go through each role once at most.
    for _ in 0..=roles.len() {
        let mut settled = true;
        for (name, role) in &roles {
            let Some(selectors) = selectors(role) else { continue };
            let gathered = gather(name, selectors, &roles, &rules);
            if rules.get(name) != Some(&gathered) {
                rules.insert(name, gathered);
                settled = false;
            }
        }
        if settled {
            break;
        }
    }

    let changed = |(name, role): (&&str, &&Value)| {
        let wanted = rules.get(name)?;
        (*wanted != PolicyRule::of_role(role)).then(|| {
            let mut role = (*role).clone();
            role["rules"] = wanted.iter().map(PolicyRule::to_value).collect();
            role
        })
    };
    roles.iter().filter_map(changed).collect()
}

fn selectors(role: &Value) -> Option<&Vec<Value>> {
    let rule = role.get("aggregationRule").filter(|rule| !rule.is_null())?;
    rule.get("clusterRoleSelectors").and_then(Value::as_array)
}

fn gather(
    name: &str,
    selectors: &[Value],
    roles: &BTreeMap<&str, &Value>,
    rules: &BTreeMap<&str, Vec<PolicyRule>>,
) -> Vec<PolicyRule> {
    let mut gathered: Vec<PolicyRule> = Vec::new();
    for selector in selectors {
        for (other, role) in roles {
            if *other == name || !selects(selector, role) {
                continue;
            }
            for rule in rules.get(other).into_iter().flatten() {
                if !gathered.contains(rule) {
                    gathered.push(rule.clone());
                }
            }
        }
    }
    gathered
}

/// A `LabelSelector`; one that can't be understood selects nothing.
fn selects(selector: &Value, role: &Value) -> bool {
    let labels = role.pointer("/metadata/labels");
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let exact = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .is_none_or(|wanted| wanted.iter().all(|(key, value)| label(key) == value.as_str()));
    let none = json!([]);
    let expressions = selector.get("matchExpressions").filter(|list| !list.is_null()).unwrap_or(&none);
    exact
        && expressions.as_array().is_some_and(|list| {
            list.iter().all(|expression| {
                let key = expression.get("key").and_then(Value::as_str).unwrap_or("");
                let own = label(key);
                let listed = || {
                    let values = expression.get("values").and_then(Value::as_array);
                    values.into_iter().flatten().any(|value| value.as_str() == own)
                };
                match expression.get("operator").and_then(Value::as_str) {
                    Some("In") => own.is_some() && listed(),
                    Some("NotIn") => own.is_none() || !listed(),
                    Some("Exists") => own.is_some(),
                    Some("DoesNotExist") => own.is_none(),
                    _ => false,
                }
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, labels: Value, verbs: &[&str], selector: Option<Value>) -> Value {
        let mut role = json!({
            "metadata": {"name": name, "labels": labels},
            "rules": verbs.iter().map(|verb| json!({"verbs": [verb]})).collect::<Vec<_>>(),
        });
        if let Some(selector) = selector {
            role["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
        }
        role
    }

    fn check(roles: &[Value], expected: &[(&str, &[&str])]) {
        let changed: Vec<(String, Vec<String>)> = aggregate(roles)
            .iter()
            .map(|role| {
                let verbs = PolicyRule::of_role(role).into_iter().flat_map(|rule| rule.verbs).collect();
                (meta(role, "name").to_owned(), verbs)
            })
            .collect();
        let expected: Vec<(String, Vec<String>)> = expected
            .iter()
            .map(|(name, verbs)| ((*name).to_owned(), verbs.iter().map(|verb| (*verb).to_owned()).collect()))
            .collect();
        assert_eq!(changed, expected);
    }

    #[test]
    fn a_role_has_the_rules_of_all_that_are_labelled_for_it() {
        let view = Some(json!({"matchLabels": {"to-view": "true"}}));
        check(
            &[
                role("view", json!({}), &["stale"], view),
                role("b", json!({"to-view": "true"}), &["get", "list"], None),
                role("a", json!({"to-view": "true"}), &["watch", "get"], None),
                role("c", json!({"to-view": "false"}), &["delete"], None),
            ],
            &[("view", &["watch", "get", "list"])],
        );
    }

    #[test]
    fn roles_that_gather_from_gathered_roles_are_followed_to_the_end() {
        check(
            &[
                role("admin", json!({}), &[], Some(json!({"matchLabels": {"to-admin": "true"}}))),
                role(
                    "edit",
                    json!({"to-admin": "true"}),
                    &[],
                    Some(json!({"matchLabels": {"to-edit": "true"}})),
                ),
                role(
                    "view",
                    json!({"to-edit": "true"}),
                    &[],
                    Some(json!({"matchLabels": {"to-view": "true"}})),
                ),
                role("part", json!({"to-view": "true"}), &["get"], None),
            ],
            &[("admin", &["get"]), ("edit", &["get"]), ("view", &["get"])],
        );
    }

    #[test]
    fn a_settled_role_is_not_changed_and_a_circle_ends() {
        let mutual = |other: &str| Some(json!({"matchLabels": {other: "true"}}));
        check(
            &[
                role("a", json!({"a": "true"}), &["get"], mutual("b")),
                role("b", json!({"b": "true"}), &["get"], mutual("a")),
            ],
            &[],
        );
    }

    #[test]
    fn expressions_select_as_labels_do() {
        let expression = |operator: &str, values: Value| {
            Some(json!({"matchExpressions": [{"key": "to", "operator": operator, "values": values}]}))
        };
        let part = role("part", json!({"to": "x"}), &["get"], None);
        for (operator, values, selected) in [
            ("In", json!(["x", "y"]), true),
            ("In", json!(["y"]), false),
            ("NotIn", json!(["y"]), true),
            ("Exists", json!(null), true),
            ("DoesNotExist", json!(null), false),
            ("Unknown", json!(null), false),
        ] {
            // Its own rules must not count, though its selector would match itself.
            let whole = role("whole", json!({"to": "x"}), &[], expression(operator, values));
            let expected: &[(&str, &[&str])] = if selected { &[("whole", &["get"])] } else { &[] };
            check(&[whole, part.clone()], expected);
        }
    }
}
