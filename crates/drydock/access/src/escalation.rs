//! Nobody grants what they do not hold.
//!
//! Writing a role needs every permission in it, or the verb `escalate` on it; writing a binding
//! needs every permission of the role it refers to, or the verb `bind` on that role.

use serde_json::Value;

use crate::policy::{RoleRef, meta};
use crate::rule::missing;
use crate::{Attributes, Identity, Policy, PolicyRule, RBAC_GROUP, Refusal};
use drydock_schema::words::{joined, quoted, quoted_list};

/// A create or update of one of the four RBAC kinds, after admission and defaulting.
#[derive(Debug, Clone, Copy)]
pub struct RbacWrite<'a> {
    /// Who writes.
    pub identity: &'a Identity,
    /// `roles`, `clusterroles`, `rolebindings` or `clusterrolebindings`.
    pub resource: &'a str,
    /// The namespace in the request's path; empty for the cluster kinds.
    pub namespace: &'a str,
    /// The name in the request's path; empty for a create.
    pub path_name: &'a str,
    /// What would be stored.
    pub object: &'a Value,
    /// What is stored now.
    pub old: Option<&'a Value>,
}

impl Policy {
    /// Whether the user may write this role or binding, beyond being allowed the verb itself.
    ///
    /// # Errors
    /// A refusal that names every permission that the user lacks, or the role that is missing.
    pub fn guard(&self, write: &RbacWrite<'_>) -> Result<(), Refusal> {
        if write.identity.is_in(Identity::MASTERS) {
            return Ok(());
        }
        match write.resource {
            "roles" | "clusterroles" => self.guard_role(write),
            "rolebindings" | "clusterrolebindings" => self.guard_binding(write),
            _ => Ok(()),
        }
    }

    /// Whether the user holds every one of `rules` in the namespace.
    ///
    /// # Errors
    /// Kubernetes' message about what is not held.
    pub fn covers(&self, identity: &Identity, namespace: &str, rules: &[PolicyRule]) -> Result<(), String> {
        self.covers_for("roles", identity, namespace, rules)
    }

    fn covers_for(
        &self,
        resource: &str,
        identity: &Identity,
        namespace: &str,
        rules: &[PolicyRule],
    ) -> Result<(), String> {
        let (held, unresolved) = self.held(identity, namespace);
        let lines = missing(&held, rules);
        if lines.is_empty() {
            return Ok(());
        }
        let mut message = format!(
            "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            quoted(&identity.username),
            quoted_list(&identity.groups),
            lines.join("\n")
        );
        if !unresolved.is_empty() {
            let errors = joined(unresolved.iter().map(|role| role.not_found(resource)));
            message = format!("{message}; resolution errors: [{errors}]");
        }
        Err(message)
    }

    fn guard_role(&self, write: &RbacWrite<'_>) -> Result<(), Refusal> {
        let escalate = Attributes::resource(write.identity, "escalate", RBAC_GROUP, write.resource);
        if self.authorize(&escalate.within(write.namespace).named(write.path_name)).is_allowed()
            || write.changes_only_ownership()
        {
            return Ok(());
        }
        self.covers_for(write.resource, write.identity, write.namespace, &PolicyRule::of_role(write.object))
            .map_err(|detail| write.forbidden(detail))?;

        // An aggregation rule can gather anything, so setting, changing or keeping one needs everything.
        let aggregates = write.resource == "clusterroles"
            && (has_aggregation(write.object) || write.old.is_some_and(has_aggregation));
        if aggregates && self.covers(write.identity, write.namespace, &PolicyRule::full_authority()).is_err()
        {
            return Err(
                write.forbidden("must have cluster-admin privileges to use the aggregationRule".to_owned())
            );
        }
        Ok(())
    }

    fn guard_binding(&self, write: &RbacWrite<'_>) -> Result<(), Refusal> {
        let role = RoleRef::of(write.object);
        let roles = match role.kind {
            "ClusterRole" => Some("clusterroles"),
            "Role" => Some("roles"),
            _ => None,
        };
        let may_bind = roles.is_some_and(|roles| {
            let bind = Attributes::resource(write.identity, "bind", role.group, roles);
            self.authorize(&bind.within(write.namespace).named(role.name)).is_allowed()
        });
        if may_bind || write.changes_only_ownership() {
            return Ok(());
        }
        let rules = self.resolve(&role, write.namespace).map_err(|missing| Refusal::NotFound {
            group: RBAC_GROUP,
            // Kubernetes says the binding's resource with the role's name.
            resource: if write.resource == "rolebindings" { "rolebindings" } else { "clusterrolebindings" },
            name: missing.name,
        })?;
        self.covers_for(write.resource, write.identity, write.namespace, &rules)
            .map_err(|detail| write.forbidden(detail))
    }
}

impl RbacWrite<'_> {
    fn forbidden(&self, detail: String) -> Refusal {
        Refusal::Forbidden {
            group: RBAC_GROUP.to_owned(),
            resource: self.resource.to_owned(),
            name: meta(self.object, "name").to_owned(),
            detail,
        }
    }

    /// Finalizers and owner references may be changed by anyone who may update: the garbage
    /// collector has to, and it grants nothing by that.
    fn changes_only_ownership(&self) -> bool {
        self.old.is_some_and(|old| without_ownership(old) == without_ownership(self.object))
    }
}

fn without_ownership(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
            metadata.remove(field);
        }
    }
    object
}

fn has_aggregation(role: &Value) -> bool {
    role.pointer("/aggregationRule/clusterRoleSelectors")
        .and_then(Value::as_array)
        .is_some_and(|s| !s.is_empty())
}
