//! ClusterRoles that are put together from others: the rules of all roles their selectors find.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::machinery::cache::{Cache, Kind};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::rest::{Error, PatchType, Rest};
use crate::objects::resource::Key;
use crate::objects::service::ClusterRole;

/// The rules an aggregated role shall have, if they are not those it has: selector by selector, the roles
/// by name, each rule once.
pub fn aggregate(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Option<Vec<Value>> {
    let aggregation = role.aggregation_rule.as_ref()?;
    let read = |rule: &RawValue| -> Value { serde_json::from_str(rule.get()).unwrap_or_default() };
    let mut rules: Vec<Value> = Vec::new();
    for selector in &aggregation.cluster_role_selectors {
        let mut found: Vec<_> = all
            .iter()
            .filter(|other| {
                other.metadata.name != role.metadata.name && selector.matches(&other.metadata.labels)
            })
            .collect();
        found.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        for rule in found.iter().flat_map(|other| &other.rules) {
            let rule = read(rule);
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    }
    let held: Vec<Value> = role.rules.iter().map(|rule| read(rule)).collect();
    (held != rules).then_some(rules)
}

/// The controller.
pub struct Controller {
    rest: Rest,
    roles: Arc<Cache<ClusterRole>>,
}

impl Controller {
    /// The controller, listening to this informer.
    pub fn new(rest: Rest, roles: &mut Informer<ClusterRole>, queue: &Arc<Queue<Key>>) -> Self {
        let (keys, known) = (queue.clone(), roles.cache.clone());
        roles.on_change(move |change| {
            let concerned = known.all(|role| {
                role.aggregation_rule.as_ref().is_some_and(|rule| {
                    let selects = |one: &Arc<ClusterRole>| {
                        rule.cluster_role_selectors
                            .iter()
                            .any(|selector| selector.matches(&one.metadata.labels))
                    };
                    change.both().any(|one| one.metadata.name == role.metadata.name || selects(one))
                })
            });
            concerned.iter().for_each(|role| keys.add(role.metadata.key()));
        });
        Self { rest, roles: roles.cache.clone() }
    }

    /// Brings the rules of one role up to date.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(role) = self.roles.get(key) else { return Ok(Next::OnChange) };
        let Some(rules) = aggregate(&role, &self.roles.all(|_| true)) else { return Ok(Next::OnChange) };
        let body = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": { "name": &*key.name },
            "rules": rules,
        });
        self.rest.patch(ClusterRole::resource(), key, PatchType::Apply, &body).await?;
        Ok(Next::OnChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(text: &str) -> Arc<ClusterRole> {
        Arc::new(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn rules_are_gathered_by_name_once_each_and_left_alone_when_right() {
        let all = [
            role(
                r#"{"metadata":{"name":"b","labels":{"to":"edit"}},"rules":[{"verbs":["get"]},{"verbs":["list"]}]}"#,
            ),
            role(r#"{"metadata":{"name":"a","labels":{"to":"edit"}},"rules":[{"verbs":["list"]}]}"#),
            role(r#"{"metadata":{"name":"c","labels":{"to":"view"}},"rules":[{"verbs":["watch"]}]}"#),
        ];
        let edit = |rules: &str| {
            role(&format!(
                r#"{{"metadata":{{"name":"edit","labels":{{"to":"edit"}}}},"rules":{rules},"aggregationRule":{{"clusterRoleSelectors":[{{"matchLabels":{{"to":"edit"}}}}]}}}}"#
            ))
        };
        let rules = aggregate(&edit("[]"), &all).unwrap();
        assert_eq!(Value::from(rules).to_string(), r#"[{"verbs":["list"]},{"verbs":["get"]}]"#);
        assert_eq!(aggregate(&edit(r#"[{"verbs":["list"]},{"verbs":["get"]}]"#), &all), None);
        assert_eq!(aggregate(&all[0], &all), None);
    }
}
