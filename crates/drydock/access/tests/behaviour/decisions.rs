use drydock_access::{Attributes, Decision, Identity, Policy, bootstrap};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world::policy;

/// A request as the table and the tests write it: verb, `group/resource[/sub]` or path, namespace, name.
fn request<'a>(
    identity: &'a Identity,
    verb: &'a str,
    what: &'a str,
    namespace: &'a str,
    name: &'a str,
) -> Attributes<'a> {
    let given = |text: &'a str| if text == "-" { "" } else { text };
    if what.starts_with('/') {
        return Attributes::path(identity, verb, what);
    }
    let mut parts = what.splitn(3, '/');
    let group = parts.next().map_or("", |group| if group == "core" { "" } else { group });
    let resource = parts.next().unwrap();
    Attributes::resource(identity, verb, group, resource)
        .subresource(parts.next().unwrap_or(""))
        .within(given(namespace))
        .named(given(name))
}

#[test]
fn decisions_are_those_of_a_real_kubernetes() {
    let objects: Vec<Value> = serde_json::from_str(include_str!("measured/objects.json")).unwrap();
    let policy = policy(&objects);
    let mut columns: Vec<(&str, Identity)> = Vec::new();
    let mut compared = 0;
    let mut different = Vec::new();
    for line in include_str!("measured/decisions.txt").lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["who", column, username, groups] = words[..] {
            let groups = groups.split(',').map(str::to_owned).collect();
            columns.push((column, Identity { username: username.to_owned(), groups, ..Identity::default() }));
            continue;
        }
        let [verb, what, namespace, name, expected] = words[..] else { panic!("{line}") };
        assert_eq!(expected.len(), columns.len(), "{line}");
        for ((column, identity), expected) in columns.iter().zip(expected.chars()) {
            let allowed = policy.authorize(&request(identity, verb, what, namespace, name)).is_allowed();
            compared += 1;
            if allowed != (expected == 'y') {
                different.push(format!("{column} {verb} {what} {namespace} {name}: {allowed}"));
            }
        }
    }
    assert!(compared > 2000, "only {compared} compared");
    assert_eq!(different, Vec::<String>::new());
}

#[test]
fn a_node_has_what_a_kubelet_needs_and_no_more() {
    let policy = policy(&[]);
    let node = Identity::user("system:node:one", ["system:nodes"]);
    for (verb, what, expected) in [
        ("create", "core/nodes", true),
        ("patch", "core/nodes/status", true),
        ("watch", "core/pods", true),
        ("patch", "core/pods/status", true),
        ("create", "core/pods/eviction", true),
        ("delete", "core/pods", true),
        ("get", "core/secrets", true),
        ("create", "core/serviceaccounts/token", true),
        ("update", "coordination.k8s.io/leases", true),
        ("create", "core/secrets", false),
        ("delete", "core/namespaces", false),
        ("create", "apps/deployments", false),
    ] {
        assert_eq!(
            policy.authorize(&request(&node, verb, what, "default", "x")).is_allowed(),
            expected,
            "{verb} {what}"
        );
    }
}

#[test]
fn the_reason_names_the_binding_or_the_role_that_is_missing() {
    let binding = |kind: &str, name: &str, namespace: Option<&str>, role: &str, subject: Value| {
        json!({
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        })
    };
    let policy = policy(&[
        binding(
            "RoleBinding",
            "viewers",
            Some("default"),
            "view",
            json!({"kind": "ServiceAccount", "name": "robot"}),
        ),
        binding("ClusterRoleBinding", "gone", None, "no-such-role", json!({"kind": "Group", "name": "dev"})),
        binding(
            "ClusterRoleBinding",
            "adrift",
            None,
            "cluster-admin",
            json!({"kind": "ServiceAccount", "name": "robot"}),
        ),
    ]);
    let check = |identity: &Identity, what: &str, expected: Decision| {
        assert_eq!(policy.authorize(&request(identity, "list", what, "default", "-")), expected);
    };
    check(
        &Identity::service_account("default", "robot", ""),
        "core/pods",
        Decision::Allowed {
            reason: r#"RBAC: allowed by RoleBinding "viewers/default" of ClusterRole "view" to ServiceAccount "robot/default""#.into(),
        },
    );
    check(
        &Identity::user("x", ["dev"]),
        "core/pods",
        Decision::Denied {
            reason: r#"RBAC: clusterrole.rbac.authorization.k8s.io "no-such-role" not found"#.to_owned(),
        },
    );
    check(&Identity::user("x", ["other"]), "core/pods", Decision::Denied { reason: String::new() });
    check(&Identity::admin("root"), "core/pods", Decision::Allowed { reason: "".into() });
    check(
        &Identity::service_account("default", "robot", ""),
        "core/secrets",
        Decision::Denied { reason: String::new() },
    );
}

#[test]
fn each_binding_is_listed_once_however_often_it_names_the_user() {
    let policy = policy(&[json!({
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "twice"},
        "roleRef": {"kind": "ClusterRole", "name": "system:node-bootstrapper"},
        "subjects": [
            {"kind": "User", "name": "x"}, {"kind": "Group", "name": "dev"}, {"kind": "Group", "name": "ops"},
        ],
    })]);
    let x =
        Identity { groups: vec!["dev".into(), "ops".into()], username: "x".into(), ..Identity::default() };
    assert_eq!(policy.rules_for(&x, "default").len(), 1);
}

#[test]
fn the_default_objects_are_all_there_and_refer_to_each_other() {
    let cluster_roles = bootstrap::cluster_roles();
    let names: Vec<&str> =
        cluster_roles.iter().map(|role| role["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 68);
    for controller in [
        "deployment-controller",
        "replicaset-controller",
        "endpoint-controller",
        "endpointslice-controller",
        "generic-garbage-collector",
        "namespace-controller",
        "service-account-controller",
        "statefulset-controller",
        "job-controller",
        "cronjob-controller",
        "disruption-controller",
        "ttl-after-finished-controller",
        "persistent-volume-binder",
        "pvc-protection-controller",
        "pv-protection-controller",
        "clusterrole-aggregation-controller",
    ] {
        assert!(names.contains(&format!("system:controller:{controller}").as_str()), "{controller}");
    }
    let objects = [
        cluster_roles.clone(),
        bootstrap::cluster_role_bindings(),
        bootstrap::roles(),
        bootstrap::role_bindings(),
    ];
    for object in objects.iter().flatten() {
        assert_eq!(object["metadata"]["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults");
        assert_eq!(object["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"], "true");
        assert_ne!(object.get("rules").is_some(), object.get("roleRef").is_some());
    }
    for binding in bootstrap::cluster_role_bindings() {
        assert!(names.contains(&binding["roleRef"]["name"].as_str().unwrap()), "{binding}");
    }
    for (name, rules) in [("admin", 27), ("edit", 25), ("view", 11)] {
        let role = cluster_roles.iter().find(|role| role["metadata"]["name"] == name).unwrap();
        assert_eq!(role["rules"].as_array().unwrap().len(), rules, "{name}");
    }
    assert!(drydock_access::aggregate(&cluster_roles).is_empty(), "they begin aggregated");
}

const VERBS: [&str; 3] = ["get", "list", "*"];
const RESOURCES: [&str; 4] = ["pods", "pods/log", "*/scale", "*"];
const SCOPES: [&str; 3] = ["", "a", "b"];
const ROLES: [&str; 3] = ["r0", "r1", "gone"];

fn some_role() -> impl Strategy<Value = Value> {
    let rule = (0..VERBS.len(), 0..RESOURCES.len(), prop::option::of(Just("x"))).prop_map(|(verb, resource, name)| {
        json!({"verbs": [VERBS[verb]], "apiGroups": [""], "resources": [RESOURCES[resource]], "resourceNames": name.map(|n| vec![n])})
    });
    prop::collection::vec(rule, 0..3).prop_map(|rules| json!({"rules": rules}))
}

fn some_binding() -> impl Strategy<Value = Value> {
    (0..SCOPES.len(), 0..ROLES.len(), prop::sample::select(vec!["User", "Group", "ServiceAccount"])).prop_map(
        |(scope, role, kind)| {
            json!({
                "metadata": {"name": "b", "namespace": SCOPES[scope]},
                "roleRef": {"kind": "ClusterRole", "name": ROLES[role]},
                "subjects": [{"kind": kind, "name": "s", "namespace": if kind == "ServiceAccount" { "a" } else { "" }}],
            })
        },
    )
}

proptest! {
    #[test]
    fn one_more_binding_never_takes_a_permission_away(
        roles in prop::collection::vec(some_role(), 2),
        bindings in prop::collection::vec(some_binding(), 0..5),
        one_more in some_binding(),
    ) {
        let mut roles = roles;
        for (role, name) in roles.iter_mut().zip(ROLES) {
            role["metadata"] = json!({"name": name});
        }
        let compile = |bindings: &[Value]| {
            let local = |binding: &&Value| binding["metadata"]["namespace"] != "";
            Policy::compile([], bindings.iter().filter(local), &roles, bindings.iter().filter(|b| !local(b)))
        };
        let before = compile(&bindings);
        let after = compile(&[bindings.as_slice(), &[one_more]].concat());
        for identity in [
            Identity::user("s", ["other"]), Identity::user("t", ["s"]), Identity::service_account("a", "s", ""),
        ] {
            for (verb, sub, namespace, name) in requests(&["get", "list", "delete"], &["", "log", "scale"]) {
                let request = Attributes::resource(&identity, verb, "", "pods").subresource(sub).within(namespace).named(name);
                if before.authorize(&request).is_allowed() {
                    prop_assert!(after.authorize(&request).is_allowed(), "{:?}", request);
                }
            }
        }
    }
}

fn requests<'a>(
    verbs: &'a [&'a str],
    subs: &'a [&'a str],
) -> impl Iterator<Item = (&'a str, &'a str, &'a str, &'a str)> {
    verbs.iter().flat_map(move |verb| {
        subs.iter().flat_map(move |sub| {
            SCOPES.iter().flat_map(move |scope| {
                ["", "x", "y"].into_iter().map(move |name| (*verb, *sub, *scope, name))
            })
        })
    })
}
