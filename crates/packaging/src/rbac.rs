//! Who may do what: the operators themselves, and the people who use them.

use std::collections::BTreeMap;

use ballast_operator::KindRef;
use serde_json::{Value, json};

use crate::Part;

/// The namespace that Ballast lives in.
pub const NAMESPACE: &str = "ballast-system";
/// The account that the operators run under.
pub const SERVICE_ACCOUNT: &str = "ballast";

/// What the operators must be able to do, one rule for each group and set of verbs.
#[must_use]
pub fn rules(parts: &[Part]) -> Vec<Value> {
    rules_about(parts, &[Lives::InNamespaces, Lives::Beside])
}

/// Where objects live: what may be done to those in namespaces can be granted in some of these only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lives {
    InNamespaces,
    Beside,
}

/// The part of the rules that is about kinds which live there.
fn rules_about(parts: &[Part], lives: &[Lives]) -> Vec<Value> {
    let mut needs = Needs::default();
    let mut add = |kind: &KindRef, subresource: &str, verbs: &[&str]| {
        let home = if kind.namespaced { Lives::InNamespaces } else { Lives::Beside };
        if lives.contains(&home) {
            needs.add(kind, subresource, verbs);
        }
    };
    for part in parts {
        add(&part.resource, "", &["get", "list", "watch"]);
        if part.finalizer.is_some() {
            // A finalizer is a field of the resource itself. All else in it belongs to the person.
            add(&part.resource, "", &["patch"]);
        }
        add(&part.resource, "/status", &["patch"]);
        // Children name the resource as their owner with blockOwnerDeletion. Where the admission plugin
        // OwnerReferencesPermissionEnforcement is on, as on OpenShift, that takes the right to set the owner's
        // finalizers, whether or not any are set.
        add(&part.resource, "/finalizers", &["update"]);
        for relation in &part.relations {
            add(&relation.kind, "", &relation.verbs());
            if relation.logs {
                add(&relation.kind, "/log", &["get"]);
            }
        }
    }
    if lives.contains(&Lives::InNamespaces) {
        needs.add_named("events.k8s.io", "events", &["create", "patch"]);
    }
    needs.rules()
}

/// The account, its permissions and their bindings.
///
/// Where only some namespaces are looked after, what lives in namespaces may be touched in these alone, and the
/// ClusterRole shrinks to what lives beside them. It keeps its name, so that who applies this over an installation
/// for all namespaces takes those rights away.
#[must_use]
pub fn access(parts: &[Part], watch: &[String]) -> Vec<Value> {
    let everywhere = if watch.is_empty() { rules(parts) } else { rules_about(parts, &[Lives::Beside]) };
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": SERVICE_ACCOUNT, "namespace": NAMESPACE, "labels": labels()},
    })];
    objects.extend(granted("ballast", None, &everywhere));
    for namespace in watch {
        objects.extend(granted("ballast", Some(namespace), &rules_about(parts, &[Lives::InNamespaces])));
    }
    let election = json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "update"]});
    objects.extend(granted("ballast-leader-election", Some(NAMESPACE), &[election]));
    objects
}

/// A role for the account and its binding, in a namespace or everywhere.
fn granted(name: &str, namespace: Option<&str>, rules: &[Value]) -> [Value; 2] {
    let group = "rbac.authorization.k8s.io";
    let role = if namespace.is_some() { "Role" } else { "ClusterRole" };
    let object = |kind: &str| {
        let mut object = json!({
            "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": name, "labels": labels()},
        });
        if let Some(namespace) = namespace {
            object["metadata"]["namespace"] = namespace.into();
        }
        object
    };
    let (mut granted, mut binding) = (object(role), object(&format!("{role}Binding")));
    granted["rules"] = rules.into();
    binding["roleRef"] = json!({"apiGroup": group, "kind": role, "name": name});
    binding["subjects"] =
        json!([{"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": NAMESPACE}]);
    [granted, binding]
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

    #[test]
    fn who_looks_after_some_namespaces_may_do_the_same_there_and_nothing_elsewhere() {
        let parts = crate::parts();
        let objects = access(&parts, &["shop".into(), "blog".into()]);
        let rules_of = |kind: &str, namespace: &Value| {
            let one = objects.iter().find(|object| {
                object["kind"] == kind
                    && object["metadata"]["namespace"] == *namespace
                    && object["metadata"]["name"] == "ballast"
            });
            one.unwrap()["rules"].as_array().unwrap().clone()
        };
        let everywhere = rules_of("ClusterRole", &Value::Null);
        assert_eq!(
            everywhere,
            [json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]})]
        );
        let there = rules_of("Role", &json!("shop"));
        assert_eq!(there, rules_of("Role", &json!("blog")));
        let mut together = [there, everywhere].concat();
        let mut all = rules(&parts);
        together.sort_by_key(Value::to_string);
        all.sort_by_key(Value::to_string);
        assert_eq!(together, all);
        for object in objects.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Binding")) {
            assert_eq!(object["roleRef"]["name"], object["metadata"]["name"]);
            assert_eq!(format!("{}Binding", object["roleRef"]["kind"].as_str().unwrap()), object["kind"]);
        }
    }
}
