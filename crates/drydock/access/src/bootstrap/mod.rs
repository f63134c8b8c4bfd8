//! The roles and bindings that every cluster begins with, those of Kubernetes 1.34.
//!
//! They are rows, not manifests: verbs, API groups (`core` for the one without a name), resources.
//! Every object bears the label and the annotation by which Kubernetes' own ones are known.
//!
//! One difference: Kubernetes leaves the binding `system:node` without subjects, because its Node
//! authorizer does that work. drydock has no such authorizer and binds the group `system:nodes`.

mod components;
mod controllers;
mod people;

use serde_json::{Value, json};

use crate::{RBAC_GROUP, aggregate};

const READ: &str = "get list watch";
const WRITE: &str = "create delete deletecollection patch update";
/// Whoever acts tells about it, in either group that events have.
const EVENTS: Grant = allow("create patch update", "core events.k8s.io", "events");

const CONTROLLER: &str = "system:controller:";
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// A role: its name, what it allows.
struct Row(&'static str, &'static [Grant]);

/// A rule, each list in one string with spaces between.
struct Grant {
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
    names: &'static str,
    urls: &'static str,
}

const fn row(name: &'static str, rules: &'static [Grant]) -> Row {
    Row(name, rules)
}

const fn allow(verbs: &'static str, groups: &'static str, resources: &'static str) -> Grant {
    Grant { verbs, groups, resources, names: "", urls: "" }
}

const fn visit(verbs: &'static str, urls: &'static str) -> Grant {
    Grant { verbs, groups: "", resources: "", names: "", urls }
}

impl Grant {
    const fn named(self, names: &'static str) -> Self {
        Self { names, ..self }
    }

    fn value(&self) -> Value {
        let mut rule = json!({});
        for (field, list) in [
            ("verbs", self.verbs),
            ("apiGroups", self.groups),
            ("resources", self.resources),
            ("resourceNames", self.names),
            ("nonResourceURLs", self.urls),
        ] {
            let items: Vec<&str> =
                list.split_whitespace().map(|item| if item == "core" { "" } else { item }).collect();
            if !items.is_empty() {
                rule[field] = json!(items);
            }
        }
        rule
    }
}

/// Roles that are made of what is labelled for them, and what they are labelled for themselves.
const AGGREGATED: &[(&str, Option<&str>)] =
    &[("admin", None), ("edit", Some("admin")), ("view", Some("edit"))];

/// Kind and name of each.
type Subjects = &'static [(&'static str, &'static str)];

/// Role and subjects of each binding that is not a controller's.
const CLUSTER_BINDINGS: &[(&str, Subjects)] = &[
    ("cluster-admin", &[("Group", "system:masters")]),
    ("system:basic-user", &[("Group", "system:authenticated")]),
    ("system:discovery", &[("Group", "system:authenticated")]),
    ("system:kube-controller-manager", &[("User", "system:kube-controller-manager")]),
    ("system:kube-dns", &[("ServiceAccount", "kube-dns")]),
    ("system:kube-scheduler", &[("User", "system:kube-scheduler")]),
    ("system:monitoring", &[("Group", "system:monitoring")]),
    ("system:node", &[("Group", "system:nodes")]),
    ("system:node-proxier", &[("User", "system:kube-proxy")]),
    ("system:public-info-viewer", &[("Group", "system:authenticated"), ("Group", "system:unauthenticated")]),
    ("system:service-account-issuer-discovery", &[("Group", "system:serviceaccounts")]),
    ("system:volume-scheduler", &[("User", "system:kube-scheduler")]),
];

/// Namespace and role.
const NAMESPACED: &[(&str, Row)] = &[
    (
        "kube-public",
        row(
            "system:controller:bootstrap-signer",
            &[
                allow(READ, "core", "configmaps"),
                allow("update", "core", "configmaps").named("cluster-info"),
                EVENTS,
            ],
        ),
    ),
    (
        "kube-system",
        row(
            "extension-apiserver-authentication-reader",
            &[allow(READ, "core", "configmaps").named("extension-apiserver-authentication")],
        ),
    ),
    (
        "kube-system",
        row(
            "system::leader-locking-kube-controller-manager",
            &[
                allow("watch", "core", "configmaps"),
                allow("get update", "core", "configmaps").named("kube-controller-manager"),
                allow("create get list update watch", "coordination.k8s.io", "leases"),
                allow("create get list update watch", "coordination.k8s.io", "leasecandidates"),
            ],
        ),
    ),
    (
        "kube-system",
        row(
            "system::leader-locking-kube-scheduler",
            &[
                allow("watch", "core", "configmaps"),
                allow("get update", "core", "configmaps").named("kube-scheduler"),
                allow("create get list update watch", "coordination.k8s.io", "leases"),
                allow("create get list update watch", "coordination.k8s.io", "leasecandidates"),
            ],
        ),
    ),
    ("kube-system", row("system:controller:bootstrap-signer", &[allow(READ, "core", "secrets")])),
    (
        "kube-system",
        row("system:controller:cloud-provider", &[allow("create get list watch", "core", "configmaps")]),
    ),
    (
        "kube-system",
        row("system:controller:token-cleaner", &[allow("delete get list watch", "core", "secrets"), EVENTS]),
    ),
];

/// Namespace and name of the binding, its role there, its subjects.
const NAMESPACED_BINDINGS: &[(&str, &str, &str, Subjects)] = &[
    (
        "kube-public",
        "system:controller:bootstrap-signer",
        "system:controller:bootstrap-signer",
        &[("ServiceAccount", "bootstrap-signer")],
    ),
    (
        "kube-system",
        "system::extension-apiserver-authentication-reader",
        "extension-apiserver-authentication-reader",
        &[("User", "system:kube-controller-manager"), ("User", "system:kube-scheduler")],
    ),
    (
        "kube-system",
        "system::leader-locking-kube-controller-manager",
        "system::leader-locking-kube-controller-manager",
        &[
            ("User", "system:kube-controller-manager"),
            ("ServiceAccount", "kube-controller-manager"),
            ("ServiceAccount", "leader-election-controller"),
        ],
    ),
    (
        "kube-system",
        "system::leader-locking-kube-scheduler",
        "system::leader-locking-kube-scheduler",
        &[("User", "system:kube-scheduler"), ("ServiceAccount", "kube-scheduler")],
    ),
    (
        "kube-system",
        "system:controller:bootstrap-signer",
        "system:controller:bootstrap-signer",
        &[("ServiceAccount", "bootstrap-signer")],
    ),
    (
        "kube-system",
        "system:controller:cloud-provider",
        "system:controller:cloud-provider",
        &[("ServiceAccount", "cloud-provider")],
    ),
    (
        "kube-system",
        "system:controller:token-cleaner",
        "system:controller:token-cleaner",
        &[("ServiceAccount", "token-cleaner")],
    ),
];

/// The default ClusterRoles; the aggregated ones have their rules already.
#[must_use]
pub fn cluster_roles() -> Vec<Value> {
    let mut roles: Vec<Value> = Vec::new();
    for (name, whole) in AGGREGATED {
        let mut role = object("ClusterRole", name, None);
        if let Some(whole) = whole {
            label(&mut role, whole);
        }
        role["aggregationRule"] =
            json!({"clusterRoleSelectors": [{"matchLabels": {format!("{AGGREGATE}{name}"): "true"}}]});
        role["rules"] = json!([]);
        roles.push(role);
    }
    for Row(name, grants) in people::ROLES.iter().chain(components::ROLES) {
        let mut role = object("ClusterRole", name, None);
        if let Some(whole) = name.strip_prefix("system:aggregate-to-") {
            label(&mut role, whole);
        }
        role["rules"] = rules(grants);
        roles.push(role);
    }
    for Row(name, grants) in controllers::ROLES {
        let mut role = object("ClusterRole", &format!("{CONTROLLER}{name}"), None);
        role["rules"] = rules(grants);
        roles.push(role);
    }
    for settled in aggregate(&roles) {
        if let Some(role) =
            roles.iter_mut().find(|role| role["metadata"]["name"] == settled["metadata"]["name"])
        {
            *role = settled;
        }
    }
    roles
}

/// The default ClusterRoleBindings.
#[must_use]
pub fn cluster_role_bindings() -> Vec<Value> {
    let controllers = controllers::ROLES.iter().map(|Row(name, _)| {
        let role = format!("{CONTROLLER}{name}");
        binding("ClusterRoleBinding", &role, None, &role, &[("ServiceAccount", name)])
    });
    let others = CLUSTER_BINDINGS
        .iter()
        .map(|(role, subjects)| binding("ClusterRoleBinding", role, None, role, subjects));
    others.chain(controllers).collect()
}

/// The default Roles, in `kube-system` and `kube-public`.
#[must_use]
pub fn roles() -> Vec<Value> {
    let role = |(namespace, Row(name, grants)): &(&str, Row)| {
        let mut role = object("Role", name, Some(namespace));
        role["rules"] = rules(grants);
        role
    };
    NAMESPACED.iter().map(role).collect()
}

/// The default RoleBindings, in `kube-system` and `kube-public`.
#[must_use]
pub fn role_bindings() -> Vec<Value> {
    NAMESPACED_BINDINGS
        .iter()
        .map(|(namespace, name, role, subjects)| {
            binding("RoleBinding", name, Some(namespace), role, subjects)
        })
        .collect()
}

fn rules(grants: &[Grant]) -> Value {
    grants.iter().map(Grant::value).collect()
}

fn object(kind: &str, name: &str, namespace: Option<&str>) -> Value {
    let mut object = json!({
        "apiVersion": format!("{RBAC_GROUP}/v1"),
        "kind": kind,
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        },
    });
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

fn label(role: &mut Value, whole: &str) {
    role["metadata"]["labels"][format!("{AGGREGATE}{whole}")] = json!("true");
}

fn binding(kind: &str, name: &str, namespace: Option<&str>, role: &str, subjects: &[(&str, &str)]) -> Value {
    let mut binding = object(kind, name, namespace);
    let role_kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
    binding["roleRef"] = json!({"apiGroup": RBAC_GROUP, "kind": role_kind, "name": role});
    binding["subjects"] = subjects
        .iter()
        .map(|(kind, name)| match *kind {
            // All default ServiceAccounts live there, whatever the binding's namespace.
            "ServiceAccount" => json!({"kind": kind, "name": name, "namespace": "kube-system"}),
            _ => json!({"apiGroup": RBAC_GROUP, "kind": kind, "name": name}),
        })
        .collect();
    binding
}
