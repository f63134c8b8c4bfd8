//! RBAC, compiled.
//!
//! A binding is resolved once, when the policy is compiled, and filed under each of its subjects:
//! answering a request looks at the caller's own bindings and those of their groups, in the
//! request's namespace and cluster-wide, and at nothing else. A policy is immutable; when a role or
//! binding changes, a new one is compiled.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::{Attributes, Identity, PolicyRule, RBAC_GROUP};
use drydock_schema::words::{joined, quoted};

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Go ahead.
    Allowed {
        /// Which binding allows it; empty for `system:masters`.
        reason: Arc<str>,
    },
    /// No rule allows it.
    Denied {
        /// Bindings of the caller that refer to a role that does not exist; most often empty.
        reason: String,
    },
}

impl Decision {
    /// Whether the request may go ahead.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed { .. })
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Allowed { reason } => reason,
            Self::Denied { reason } => reason,
        }
    }
}

/// The compiled form of all roles and bindings.
#[derive(Debug, Default)]
pub struct Policy {
    /// By username; ServiceAccounts are here too.
    users: HashMap<String, Subject>,
    groups: HashMap<String, Subject>,
    /// By namespace and name.
    roles: HashMap<(String, String), Arc<[PolicyRule]>>,
    cluster_roles: HashMap<String, Arc<[PolicyRule]>>,
}

/// What one user or group is bound to.
#[derive(Debug, Default)]
struct Subject {
    everywhere: Vec<Grant>,
    by_namespace: HashMap<String, Vec<Grant>>,
}

/// One binding, from one subject's point of view.
#[derive(Debug, Clone)]
struct Grant {
    /// Position of the binding, so that listings come in a stable order and each binding once.
    position: usize,
    reason: Arc<str>,
    rules: Result<Arc<[PolicyRule]>, MissingRole>,
}

/// The role that a binding refers to and that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingRole {
    kind: String,
    pub(crate) name: String,
}

/// A binding's `roleRef`.
pub(crate) struct RoleRef<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
}

impl Policy {
    /// Compiles the four RBAC kinds. What is malformed grants nothing.
    pub fn compile<'a>(
        roles: impl IntoIterator<Item = &'a Value>,
        role_bindings: impl IntoIterator<Item = &'a Value>,
        cluster_roles: impl IntoIterator<Item = &'a Value>,
        cluster_role_bindings: impl IntoIterator<Item = &'a Value>,
    ) -> Self {
        let mut policy = Self::default();
        for role in cluster_roles {
            policy.cluster_roles.insert(meta(role, "name").to_owned(), PolicyRule::of_role(role).into());
        }
        for role in roles {
            let key = (meta(role, "namespace").to_owned(), meta(role, "name").to_owned());
            policy.roles.insert(key, PolicyRule::of_role(role).into());
        }
        let mut position = 0;
        for binding in cluster_role_bindings {
            policy.bind(position, binding, "");
            position += 1;
        }
        for binding in role_bindings {
            policy.bind(position, binding, meta(binding, "namespace"));
            position += 1;
        }
        policy
    }

    fn bind(&mut self, position: usize, binding: &Value, namespace: &str) {
        let role = RoleRef::of(binding);
        let rules = self.resolve(&role, namespace);
        let binding_name = match namespace {
            "" => format!("ClusterRoleBinding {}", quoted(meta(binding, "name"))),
            _ => format!("RoleBinding {}", quoted(&format!("{}/{namespace}", meta(binding, "name")))),
        };
        let subjects =
            binding.get("subjects").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for subject in subjects {
            let kind = text(subject, "kind");
            let name = text(subject, "name");
            let (index, key, shown) = match kind {
                "User" => (&mut self.users, name.to_owned(), name.to_owned()),
                "Group" => (&mut self.groups, name.to_owned(), name.to_owned()),
                "ServiceAccount" => {
                    let own = match text(subject, "namespace") {
                        "" => namespace,
                        own => own,
                    };
                    if own.is_empty() {
                        continue;
                    }
                    (&mut self.users, Identity::service_account_username(own, name), format!("{name}/{own}"))
                }
                _ => continue,
            };
            let reason = format!(
                "RBAC: allowed by {binding_name} of {} {} to {kind} {}",
                role.kind,
                quoted(role.name),
                quoted(&shown)
            );
            let grant = Grant { position, reason: reason.into(), rules: rules.clone() };
            let subject = index.entry(key).or_default();
            match namespace {
                "" => subject.everywhere.push(grant),
                _ => subject.by_namespace.entry(namespace.to_owned()).or_default().push(grant),
            }
        }
    }

    /// The rules of the role that a binding in `namespace` refers to.
    pub(crate) fn resolve(
        &self,
        role: &RoleRef<'_>,
        namespace: &str,
    ) -> Result<Arc<[PolicyRule]>, MissingRole> {
        let found = match role.kind {
            "ClusterRole" => self.cluster_roles.get(role.name),
            "Role" => self.roles.get(&(namespace.to_owned(), role.name.to_owned())),
            _ => None,
        };
        found
            .cloned()
            .ok_or_else(|| MissingRole { kind: role.kind.to_lowercase(), name: role.name.to_owned() })
    }

    /// Everything that the user is bound to in the namespace and cluster-wide.
    fn grants<'p, 'i>(
        &'p self,
        identity: &'i Identity,
        namespace: &'i str,
    ) -> impl Iterator<Item = &'p Grant> {
        let groups = identity.groups.iter().filter_map(|group| self.groups.get(group));
        self.users.get(&identity.username).into_iter().chain(groups).flat_map(move |subject| {
            let local = subject.by_namespace.get(namespace).map(Vec::as_slice).unwrap_or_default();
            subject.everywhere.iter().chain(local)
        })
    }

    /// May they?
    #[must_use]
    pub fn authorize(&self, request: &Attributes<'_>) -> Decision {
        if request.identity.is_in(Identity::MASTERS) {
            return Decision::Allowed { reason: Arc::from("") };
        }
        let mut missing = Vec::new();
        for grant in self.grants(request.identity, request.namespace) {
            match &grant.rules {
                Ok(rules) if rules.iter().any(|rule| rule.allows(request)) => {
                    return Decision::Allowed { reason: grant.reason.clone() };
                }
                Ok(_) => {}
                Err(role) => missing.push((grant.position, role)),
            }
        }
        if missing.is_empty() {
            return Decision::Denied { reason: String::new() };
        }
        missing.sort_by_key(|(position, _)| *position);
        let errors = joined(missing.into_iter().map(|(_, role)| role.not_found(&role.kind)));
        Decision::Denied { reason: format!("RBAC: {errors}") }
    }

    /// Every rule that applies to the user in the namespace, in the order of the bindings.
    #[must_use]
    pub fn rules_for(&self, identity: &Identity, namespace: &str) -> Vec<&PolicyRule> {
        self.held(identity, namespace).0
    }

    /// The rules that apply, and the roles that could not be found.
    pub(crate) fn held(&self, identity: &Identity, namespace: &str) -> (Vec<&PolicyRule>, Vec<&MissingRole>) {
        let mut grants: Vec<&Grant> = self.grants(identity, namespace).collect();
        grants.sort_by_key(|grant| grant.position);
        grants.dedup_by_key(|grant| grant.position);
        let mut rules = Vec::new();
        let mut missing = Vec::new();
        for grant in grants {
            match &grant.rules {
                Ok(own) => rules.extend(own.iter()),
                Err(role) => missing.push(role),
            }
        }
        (rules, missing)
    }
}

impl MissingRole {
    /// Kubernetes names the kind in some messages and the requested resource in others.
    pub(crate) fn not_found(&self, resource: &str) -> String {
        match resource {
            "clusterrole" | "role" | "clusterroles" | "roles" | "clusterrolebindings" | "rolebindings" => {
                format!("{resource}.{RBAC_GROUP} {} not found", quoted(&self.name))
            }
            _ => format!("unsupported role reference kind: {}", quoted(&self.kind)),
        }
    }

    /// As [`MissingRole::not_found`] names it when only the kind is known.
    pub(crate) fn message(&self) -> String {
        self.not_found(&self.kind)
    }
}

impl<'a> RoleRef<'a> {
    pub(crate) fn of(binding: &'a Value) -> Self {
        let field = |name| binding.get("roleRef").map_or("", |reference| text(reference, name));
        Self { group: field("apiGroup"), kind: field("kind"), name: field("name") }
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or("")
}

pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").map_or("", |metadata| text(metadata, field))
}
