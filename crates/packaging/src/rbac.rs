//! Who may do what: the operators themselves, and the people who use them.

use std::collections::BTreeMap;

use ballast_operator::KindRef;
use serde_json::{Value, json};

use crate::Part;

/// The namespace that Ballast lives in.
pub const NAMESPACE: &str = "ballast-system";
/// The account that the operators run under.
pub const SERVICE_ACCOUNT: &str = "ballast";

/// What the operators must be able to do anywhere, one rule for each group and set of verbs.
#[must_use]
pub fn rules(parts: &[Part]) -> Vec<Value> {
    let mut needs = Needs::default();
    for part in parts {
        needs.add(&part.resource, "", &["get", "list", "watch"]);
        if part.finalizer.is_some() {
            // A finalizer is a field of the resource itself. All else in it belongs to the person.
            needs.add(&part.resource, "", &["patch"]);
        }
        needs.add(&part.resource, "/status", &["patch"]);
        // Children name the resource as their owner with blockOwnerDeletion. Where the admission plugin
        // OwnerReferencesPermissionEnforcement is on, as on OpenShift, that takes the right to set the owner's
        // finalizers, whether or not any are set.
        needs.add(&part.resource, "/finalizers", &["update"]);
        for relation in &part.relations {
            needs.add(&relation.kind, "", &relation.verbs());
            if relation.logs {
                needs.add(&relation.kind, "/log", &["get"]);
            }
        }
    }
    needs.add_named("events.k8s.io", "events", &["create", "patch"]);
    needs.rules()
}

/// The account, its permissions and their bindings.
#[must_use]
pub fn access(parts: &[Part]) -> Vec<Value> {
    let subject = json!([{"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": NAMESPACE}]);
    vec![
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": SERVICE_ACCOUNT, "namespace": NAMESPACE, "labels": labels()},
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "ballast", "labels": labels()},
            "rules": rules(parts),
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "ballast", "labels": labels()},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "ballast"},
            "subjects": subject,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "ballast-leader-election", "namespace": NAMESPACE, "labels": labels()},
            "rules": [
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "update"]},
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "ballast-leader-election", "namespace": NAMESPACE, "labels": labels()},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "ballast-leader-election"},
            "subjects": subject,
        }),
    ]
}

/// Roles for people, added to Kubernetes' own `view`, `edit` and `admin`.
#[must_use]
pub fn people(parts: &[Part]) -> Vec<Value> {
    let role = |name: &str, verbs: &[&str], into: &[&str]| {
        let mut needs = Needs::default();
        for part in parts {
            needs.add(&part.resource, "", verbs);
            needs.add(&part.resource, "/status", &["get"]);
        }
        let mut labels = labels();
        for role in into {
            labels[format!("rbac.authorization.k8s.io/aggregate-to-{role}")] = "true".into();
        }
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name, "labels": labels},
            "rules": needs.rules(),
        })
    };
    vec![
        role("ballast-view", &["get", "list", "watch"], &["view", "edit", "admin"]),
        role(
            "ballast-edit",
            &["create", "update", "patch", "delete", "deletecollection"],
            &["edit", "admin"],
        ),
    ]
}

/// The labels on everything that Ballast installs.
pub(crate) fn labels() -> Value {
    json!({"app.kubernetes.io/name": "ballast", "app.kubernetes.io/part-of": "ballast"})
}

/// Verbs by group and resource, put together.
#[derive(Default)]
struct Needs(BTreeMap<(String, String), Vec<&'static str>>);

impl Needs {
    fn add(&mut self, kind: &KindRef, subresource: &str, verbs: &[&str]) {
        self.add_named(&kind.group, &format!("{}{subresource}", kind.plural), verbs);
    }

    fn add_named(&mut self, group: &str, resource: &str, verbs: &[&str]) {
        let known = self.0.entry((group.to_owned(), resource.to_owned())).or_default();
        known.extend(VERBS.iter().filter(|verb| verbs.contains(verb)));
        known.sort_unstable();
        known.dedup();
    }

    /// One rule for each group and set of verbs.
    fn rules(self) -> Vec<Value> {
        let mut rules: BTreeMap<(String, Vec<&str>), Vec<String>> = BTreeMap::new();
        for ((group, resource), verbs) in self.0 {
            rules.entry((group, verbs)).or_default().push(resource);
        }
        rules
            .into_iter()
            .map(|((group, verbs), resources)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs}))
            .collect()
    }
}

/// The verbs there are. Anything else, a wildcard above all, is no verb.
const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

#[cfg(test)]
mod tests {
    use super::*;

    /// The verbs on the resource itself.
    fn verbs(part: &Part) -> Vec<String> {
        let rules = rules(std::slice::from_ref(part));
        let of = |rule: &&Value| {
            rule["resources"].as_array().is_some_and(|all| all.contains(&json!(part.resource.plural)))
        };
        let rule = rules.iter().find(of).unwrap();
        serde_json::from_value(rule["verbs"].clone()).unwrap()
    }

    #[test]
    fn only_who_takes_a_finalizer_may_write_the_resource() {
        let mut part = crate::parts().remove(0);
        assert_eq!(part.finalizer, None);
        assert_eq!(verbs(&part), ["get", "list", "watch"]);
        part.finalizer = Some("example.com/finalizer");
        assert_eq!(verbs(&part), ["get", "list", "patch", "watch"]);
    }
}
