//! What is wrong with what a pod or a container may do.
//!
//! Privileged containers are allowed: whether they should be is a cluster's policy, and there is none.

use drydock_schema::FieldError;
use serde_json::Value;

use crate::{
    json,
    names::out_of_range,
    path::Path,
    rules::{not_supported, showing},
};

/// A field's name in Kubernetes' own type, and in JSON.
type Name = (&'static str, &'static str);

/// Kubernetes' own names of the fields of a container's security context, in its order, each with the
/// fields of what it holds. Errors show the context in this form.
const PRINTED: &[(&str, &str, &[Name])] = &[
    ("Capabilities", "capabilities", &[("Add", "add"), ("Drop", "drop")]),
    ("Privileged", "privileged", &[]),
    (
        "SELinuxOptions",
        "seLinuxOptions",
        &[("User", "user"), ("Role", "role"), ("Type", "type"), ("Level", "level")],
    ),
    (
        "WindowsOptions",
        "windowsOptions",
        &[
            ("GMSACredentialSpecName", "gmsaCredentialSpecName"),
            ("GMSACredentialSpec", "gmsaCredentialSpec"),
            ("RunAsUserName", "runAsUserName"),
            ("HostProcess", "hostProcess"),
        ],
    ),
    ("RunAsUser", "runAsUser", &[]),
    ("RunAsGroup", "runAsGroup", &[]),
    ("RunAsNonRoot", "runAsNonRoot", &[]),
    ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem", &[]),
    ("AllowPrivilegeEscalation", "allowPrivilegeEscalation", &[]),
    ("ProcMount", "procMount", &[]),
    ("SeccompProfile", "seccompProfile", &[("Type", "type"), ("LocalhostProfile", "localhostProfile")]),
    ("AppArmorProfile", "appArmorProfile", &[("Type", "type"), ("LocalhostProfile", "localhostProfile")]),
];

/// What is wrong with a container's security context.
pub(super) fn validate(context: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for field in ["runAsUser", "runAsGroup"] {
        identity(&context[field], &path.field(field), errors);
    }
    let mount = json::text(context, "procMount");
    if context["procMount"].is_string() && !["Default", "Unmasked"].contains(&mount) {
        errors.push(not_supported(path.field("procMount"), mount, &["Default", "Unmasked"]));
    }
    seccomp(&context["seccompProfile"], &path.field("seccompProfile"), errors);
    if context["allowPrivilegeEscalation"].as_bool() == Some(false) {
        let refuse = |what: &str| {
            let detail = format!("cannot set `allowPrivilegeEscalation` to false and {what}");
            showing(FieldError::invalid(path, context.clone(), detail), printed(context))
        };
        if context["privileged"].as_bool() == Some(true) {
            errors.push(refuse("`privileged` to true"));
        }
        if json::list(&context["capabilities"], "add").iter().any(|added| added == "CAP_SYS_ADMIN") {
            errors.push(refuse("`capabilities.Add` CAP_SYS_ADMIN"));
        }
    }
    app_armor(&context["appArmorProfile"], &path.field("appArmorProfile"), errors);
}

/// What is wrong with a pod's security context.
pub(super) fn validate_pod(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let context = &spec["securityContext"];
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        identity(&context[field], &path.field(field), errors);
    }
    let groups = path.field("supplementalGroups");
    for (index, group) in json::list(context, "supplementalGroups").iter().enumerate() {
        identity(group, &groups.index(index), errors);
    }
    if spec["shareProcessNamespace"].as_bool() == Some(true) && spec["hostPID"].as_bool() == Some(true) {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(FieldError::invalid(path.field("shareProcessNamespace"), true, detail));
    }
    for (field, known) in [
        ("fsGroupChangePolicy", ["Always", "OnRootMismatch"]),
        ("supplementalGroupsPolicy", ["Merge", "Strict"]),
        ("seLinuxChangePolicy", ["MountOption", "Recursive"]),
    ] {
        if let Some(policy) = context[field].as_str().filter(|policy| !known.contains(policy)) {
            errors.push(not_supported(path.field(field), policy, &known));
        }
    }
    seccomp(&context["seccompProfile"], &path.field("seccompProfile"), errors);
    app_armor(&context["appArmorProfile"], &path.field("appArmorProfile"), errors);
}

/// A user or a group.
fn identity(id: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let most = i64::from(i32::MAX);
    if let Some(id) = id.as_i64().filter(|id| !(0..=most).contains(id)) {
        errors.push(FieldError::invalid(path, id, out_of_range(0, most)));
    }
}

fn seccomp(profile: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    const TYPES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];
    if !profile.is_object() {
        return;
    }
    let kind = json::text(profile, "type");
    let own = path.field("localhostProfile");
    if kind.is_empty() {
        errors.push(FieldError::required(path.field("type"), "type is required when seccompProfile is set"));
    } else if !TYPES.contains(&kind) {
        errors.push(not_supported(path.field("type"), kind, TYPES));
    }
    match (kind, profile["localhostProfile"].as_str()) {
        ("Localhost", None) => {
            errors.push(FieldError::required(own, "must be set when seccomp type is Localhost"));
        }
        ("Localhost", Some(place)) => {
            if place.starts_with('/') {
                errors.push(FieldError::invalid(own, place, "must be a relative path"));
            }
            if place.split('/').any(|part| part == "..") {
                errors.push(FieldError::invalid(own, place, "must not contain '..'"));
            }
        }
        (_, Some(_)) => {
            let fields = &[("Type", "type"), ("LocalhostProfile", "localhostProfile")];
            let detail = "can only be set when seccomp type is Localhost";
            let error = FieldError::invalid(own, profile.clone(), detail);
            errors.push(showing(error, nested(profile, fields)));
        }
        (_, None) => {}
    }
}

fn app_armor(profile: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    const TYPES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];
    if !profile.is_object() {
        return;
    }
    let own = path.field("localhostProfile");
    match (json::text(profile, "type"), profile["localhostProfile"].as_str()) {
        ("Localhost", None | Some("")) => {
            errors.push(FieldError::required(own, "must be set when AppArmor type is Localhost"));
        }
        ("Localhost", Some(name)) if name.trim() != name => {
            errors.push(FieldError::invalid(own, name, "must not be padded with whitespace"));
        }
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            let detail = "can only be set when AppArmor type is Localhost";
            errors.push(FieldError::invalid(own, name, detail));
        }
        ("Localhost" | "RuntimeDefault" | "Unconfined", _) => {}
        ("", _) => {
            let detail = "type is required when appArmorProfile is set";
            errors.push(FieldError::required(path.field("type"), detail));
        }
        (other, _) => errors.push(not_supported(path.field("type"), other, TYPES)),
    }
}

fn printed(context: &Value) -> String {
    let fields: Vec<_> = PRINTED
        .iter()
        .map(|(name, field, inner)| {
            let value = &context[*field];
            let shown = if value.is_object() { nested(value, inner) } else { value.to_string() };
            format!("\"{name}\":{shown}")
        })
        .collect();
    format!("{{{}}}", fields.join(","))
}

fn nested(value: &Value, fields: &[(&str, &str)]) -> String {
    let fields: Vec<_> = fields.iter().map(|(name, field)| format!("\"{name}\":{}", value[*field])).collect();
    format!("{{{}}}", fields.join(","))
}
