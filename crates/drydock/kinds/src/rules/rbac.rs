//! Roles and their bindings.

use drydock_schema::FieldError;
use serde_json::Value;

use super::{PLAIN, Rules, in_order, not_supported, selector, showing};
use crate::{json, names, path::Path};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(crate) const ROLE: Rules = Rules {
    default: default_role,
    validate: |object, errors| validate_rules(object, true, errors),
    validate_update: |new, _, errors| validate_rules(new, true, errors),
    ..PLAIN
};

pub(crate) const CLUSTER_ROLE: Rules = Rules {
    default: default_role,
    validate: validate_cluster_role,
    validate_update: |new, _, errors| validate_cluster_role(new, errors),
    ..PLAIN
};

pub(crate) const ROLE_BINDING: Rules = Rules {
    default: default_binding,
    validate: |object, errors| validate_binding(object, true, errors),
    validate_update: |new, old, errors| {
        validate_binding(new, true, errors);
        same_role(new, old, errors);
    },
    ..PLAIN
};

pub(crate) const CLUSTER_ROLE_BINDING: Rules = Rules {
    default: default_binding,
    validate: |object, errors| validate_binding(object, false, errors),
    validate_update: |new, old, errors| {
        validate_binding(new, false, errors);
        same_role(new, old, errors);
    },
    ..PLAIN
};

/// A role without rules says so.
fn default_role(object: &mut Value) {
    json::default(object, "rules", Value::Null);
}

fn default_binding(object: &mut Value) {
    if let Some(role) = json::object_at(object, "roleRef") {
        json::default_text(role, "apiGroup", GROUP);
    }
    for subject in json::list_mut(object, "subjects") {
        if ["User", "Group"].contains(&json::text(subject, "kind")) {
            json::default_text(subject, "apiGroup", GROUP);
        }
    }
}

fn validate_cluster_role(object: &Value, errors: &mut Vec<FieldError>) {
    validate_rules(object, false, errors);
    let Some(aggregation) = object.get("aggregationRule").filter(|rule| rule.is_object()) else { return };
    let selectors = json::list(aggregation, "clusterRoleSelectors");
    let root = Path::new("aggregationRule");
    let path = root.field("clusterRoleSelectors");
    if selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required(path, detail));
    }
    for (index, given) in selectors.iter().enumerate() {
        selector::validate(given, &path.index(index), errors);
    }
}

fn validate_rules(object: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    let path = Path::new("rules");
    for (index, rule) in json::list(object, "rules").iter().enumerate() {
        let at = path.index(index);
        if json::list(rule, "verbs").is_empty() {
            errors.push(FieldError::required(at.field("verbs"), "verbs must contain at least one value"));
        }
        let urls = json::list(rule, "nonResourceURLs");
        if !urls.is_empty() {
            let mut refuse = |detail: &str| {
                errors.push(FieldError::invalid(at.field("nonResourceURLs"), urls.to_vec(), detail));
            };
            if namespaced {
                refuse("namespaced rules cannot apply to non-resource URLs");
            }
            if ["apiGroups", "resources", "resourceNames"]
                .iter()
                .any(|field| !json::list(rule, field).is_empty())
            {
                refuse("rules cannot apply to both regular resources and non-resource URLs");
            }
            continue;
        }
        if json::list(rule, "apiGroups").is_empty() {
            let detail = "resource rules must supply at least one api group";
            errors.push(FieldError::required(at.field("apiGroups"), detail));
        }
        if json::list(rule, "resources").is_empty() {
            let detail = "resource rules must supply at least one resource";
            errors.push(FieldError::required(at.field("resources"), detail));
        }
    }
}

fn validate_binding(object: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    let (role, path) = (&object["roleRef"], Path::new("roleRef"));
    let group = json::text(role, "apiGroup");
    if group != GROUP {
        errors.push(not_supported(path.field("apiGroup"), group, &[GROUP]));
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    let kind = json::text(role, "kind");
    if !kinds.contains(&kind) {
        errors.push(not_supported(path.field("kind"), kind, kinds));
    }
    let name = json::text(role, "name");
    if name.is_empty() {
        errors.push(FieldError::required(path.field("name"), ""));
    }
    for message in names::path_segment(name, false) {
        errors.push(FieldError::invalid(path.field("name"), name, message));
    }
    let path = Path::new("subjects");
    for (index, subject) in json::list(object, "subjects").iter().enumerate() {
        validate_subject(subject, namespaced, &path.index(index), errors);
    }
}

fn validate_subject(subject: &Value, namespaced: bool, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let (name, group) = (json::text(subject, "name"), json::text(subject, "apiGroup"));
    if name.is_empty() {
        errors.push(FieldError::required(path.field("name"), ""));
    }
    match json::text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                let wrong = names::dns_subdomain(name);
                errors.extend(wrong.into_iter().map(|m| FieldError::invalid(path.field("name"), name, m)));
            }
            if !group.is_empty() {
                errors.push(not_supported(path.field("apiGroup"), group, &[""]));
            }
            if !namespaced && json::text(subject, "namespace").is_empty() {
                errors.push(FieldError::required(path.field("namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.push(not_supported(path.field("apiGroup"), group, &[GROUP]));
            }
        }
        other => errors.push(not_supported(path.field("kind"), other, &["ServiceAccount", "User", "Group"])),
    }
}

fn same_role(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (new, old) = (&new["roleRef"], &old["roleRef"]);
    if new != old {
        let shown =
            in_order(&[("APIGroup", &new["apiGroup"]), ("Kind", &new["kind"]), ("Name", &new["name"])]);
        errors.push(showing(FieldError::invalid("roleRef", new.clone(), "cannot change roleRef"), shown));
    }
}
