use drydock_access::{Identity, RbacWrite};
use serde_json::{Value, json};

use crate::world::policy;

const GROUP: &str = "rbac.authorization.k8s.io";

fn bound(name: &str, user: &str, rules: Value) -> [Value; 2] {
    [
        json!({"kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}),
        json!({
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "User", "name": user}],
        }),
    ]
}

/// What a cluster with a few users answers to a write; "ok" or the message.
fn check(user: &Identity, resource: &str, object: &Value, old: Option<&Value>, expected: &str) {
    let dangling = json!({
        "kind": "RoleBinding",
        "metadata": {"name": "dangling", "namespace": "probe"},
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "nope"},
        "subjects": [{"kind": "User", "name": "mallory"}],
    });
    let pods = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let objects = [
        bound("writer", "mallory", pods).as_slice(),
        &bound("escalator", "eve", json!([{"apiGroups": [GROUP], "resources": ["clusterroles"], "verbs": ["escalate"]}])),
        &bound(
            "binder",
            "bob",
            json!([{"apiGroups": [GROUP], "resources": ["clusterroles"], "verbs": ["bind"], "resourceNames": ["view"]}]),
        ),
        &[dangling],
    ]
    .concat();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("");
    let path_name = old.map_or("", |old| old["metadata"]["name"].as_str().unwrap());
    let write = RbacWrite { identity: user, resource, namespace, path_name, object, old };
    let answer =
        policy(&objects).guard(&write).map_or_else(|refusal| refusal.to_string(), |()| "ok".to_owned());
    assert_eq!(answer, expected);
}

fn mallory() -> Identity {
    Identity::user("mallory", Vec::<String>::new())
}

#[test]
fn a_role_needs_every_permission_in_it() {
    let role = |namespace: Option<&str>, rules: Value| json!({"metadata": {"name": "r", "namespace": namespace}, "rules": rules});
    let verbs = json!(["get", "list", "delete"]);
    check(
        &Identity::user("mallory", ["dev"]),
        "roles",
        &role(
            Some("probe"),
            json!([
                {"verbs": verbs, "apiGroups": [""], "resources": ["pods", "pods/log"]},
                {"verbs": verbs, "apiGroups": ["apps"], "resources": ["deployments"]},
            ]),
        ),
        None,
        r#"roles.rbac.authorization.k8s.io "r" is forbidden: user "mallory" (groups=["dev" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["pods"], Verbs:["list" "delete"]}
{APIGroups:[""], Resources:["pods/log"], Verbs:["get" "list" "delete"]}
{APIGroups:["apps"], Resources:["deployments"], Verbs:["get" "list" "delete"]}; resolution errors: [roles.rbac.authorization.k8s.io "nope" not found]"#,
    );
    check(
        &mallory(),
        "clusterroles",
        &role(None, json!([{"verbs": ["get"], "nonResourceURLs": ["/metrics", "/foo"]}])),
        None,
        r#"clusterroles.rbac.authorization.k8s.io "r" is forbidden: user "mallory" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:
{NonResourceURLs:["/foo"], Verbs:["get"]}
{NonResourceURLs:["/metrics"], Verbs:["get"]}"#,
    );
    let secrets =
        json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"]}]);
    check(
        &mallory(),
        "clusterroles",
        &role(None, secrets.clone()),
        None,
        r#"clusterroles.rbac.authorization.k8s.io "r" is forbidden: user "mallory" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["get"]}
{APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get"]}"#,
    );
    let pods = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}]);
    check(&mallory(), "clusterroles", &role(None, pods), None, "ok");
    check(&Identity::admin("root"), "clusterroles", &role(None, secrets.clone()), None, "ok");
    check(&Identity::user("eve", ["dev"]), "clusterroles", &role(None, secrets), None, "ok");
}

#[test]
fn an_aggregation_rule_needs_everything() {
    let role = json!({
        "metadata": {"name": "r"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
        "rules": null,
    });
    check(
        &mallory(),
        "clusterroles",
        &role,
        None,
        r#"clusterroles.rbac.authorization.k8s.io "r" is forbidden: must have cluster-admin privileges to use the aggregationRule"#,
    );
}

#[test]
fn ownership_of_a_role_may_change_without_holding_it() {
    let old = json!({
        "metadata": {"name": "r", "finalizers": ["x"]},
        "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    });
    let mut new = old.clone();
    new["metadata"]["finalizers"] = json!([]);
    new["metadata"]["ownerReferences"] = json!([{"name": "o"}]);
    check(&mallory(), "clusterroles", &new, Some(&old), "ok");
}

#[test]
fn a_binding_needs_the_role_or_the_right_to_bind_it() {
    let binding = |kind: &str, role: &str, namespace: Option<&str>| {
        json!({
            "metadata": {"name": "b", "namespace": namespace},
            "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        })
    };
    check(&mallory(), "clusterrolebindings", &binding("ClusterRole", "writer", None), None, "ok");
    check(
        &mallory(),
        "clusterrolebindings",
        &binding("ClusterRole", "system:kube-dns", None),
        None,
        r#"clusterrolebindings.rbac.authorization.k8s.io "b" is forbidden: user "mallory" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["endpoints"], Verbs:["list" "watch"]}
{APIGroups:[""], Resources:["services"], Verbs:["list" "watch"]}"#,
    );
    let bob = Identity::user("bob", ["dev"]);
    check(&bob, "clusterrolebindings", &binding("ClusterRole", "view", None), None, "ok");
    check(&bob, "rolebindings", &binding("ClusterRole", "view", Some("probe")), None, "ok");
    check(
        &mallory(),
        "clusterrolebindings",
        &binding("ClusterRole", "nope", None),
        None,
        r#"clusterrolebindings.rbac.authorization.k8s.io "nope" not found"#,
    );
    check(
        &mallory(),
        "rolebindings",
        &binding("Role", "nope", Some("probe")),
        None,
        r#"rolebindings.rbac.authorization.k8s.io "nope" not found"#,
    );
}
