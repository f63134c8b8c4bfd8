//! The types that Kubernetes itself defines.
//!
//! Read from a table made by `examples/import.rs` out of Kubernetes 1.34's published OpenAPI
//! definitions and protobuf files (see `table` for its format; `cargo run -p drydock-schema
//! --example import` says how to make it anew).
//!
//! **Always holds:** nothing is parsed before it is asked for, each definition is parsed once, and
//! definitions that refer to the same one share it.

pub(crate) mod fields;
mod normal;
mod parse;
pub(crate) mod table;

use std::sync::Arc;

use crate::Schema;
pub use normal::normalise;
use table::TABLE;

/// The shape of a definition, e.g. `io.k8s.api.apps.v1.Deployment`.
#[must_use]
pub fn definition(name: &str) -> Option<Arc<Schema>> {
    parse::schema(TABLE.get(name)?)
}

/// The shape of a kind, e.g. `("apps", "v1", "Deployment")`; the core group is `""`.
///
/// Kinds that every group has (`DeleteOptions`, `WatchEvent`) are found in any of them.
#[must_use]
pub fn definition_for(group: &str, version: &str, kind: &str) -> Option<Arc<Schema>> {
    parse::schema(TABLE.of_kind(group, version, kind)?)
}

/// The name of the definition of a kind.
#[must_use]
pub fn name_for(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    Some(TABLE.of_kind(group, version, kind)?.name)
}

/// A definition as published: OpenAPI v2 JSON with descriptions; references are `#/definitions/…`.
#[must_use]
pub fn raw(name: &str) -> Option<&'static str> {
    Some(TABLE.get(name)?.openapi).filter(|text| !text.is_empty())
}

/// The names of all definitions that have a shape, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLE.entries.iter().filter(|entry| !entry.openapi.is_empty()).map(|entry| entry.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ListKind, MapKind, Type};

    /// Follows a path of fields, `[]` for a list's items and `{}` for a map's values.
    fn at(root: &str, path: &str) -> Arc<Schema> {
        let mut node = definition(root).unwrap_or_else(|| panic!("no {root}"));
        for step in path.split('.').filter(|step| !step.is_empty()) {
            let next = match step {
                "[]" => node.items.clone(),
                "{}" => node.additional.clone(),
                name => node.properties.get(name).cloned(),
            };
            node = next.unwrap_or_else(|| panic!("no {step} of {path}"));
        }
        node
    }

    #[test]
    fn every_definition_parses() {
        for name in names() {
            assert!(definition(name).is_some(), "{name}");
            assert!(raw(name).is_some(), "{name}");
        }
        assert!(names().count() > 500);
    }

    #[test]
    fn kinds_are_found_by_group_and_version() {
        for (group, version, kind, name) in [
            ("apps", "v1", "Deployment", "io.k8s.api.apps.v1.Deployment"),
            ("", "v1", "Pod", "io.k8s.api.core.v1.Pod"),
            (
                "autoscaling",
                "v2",
                "HorizontalPodAutoscaler",
                "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
            ),
            ("batch", "v1", "DeleteOptions", "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"),
            (
                "anything.example.com",
                "v1",
                "DeleteOptions",
                "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
            ),
            ("", "v1", "Status", "io.k8s.apimachinery.pkg.apis.meta.v1.Status"),
            ("rbac.authorization.k8s.io", "v1", "Role", "io.k8s.api.rbac.v1.Role"),
        ] {
            assert_eq!(name_for(group, version, kind), Some(name));
        }
        assert_eq!(name_for("apps", "v1", "Memcached"), None);
    }

    #[test]
    fn lists_know_their_keys() {
        let pod = "io.k8s.api.core.v1.PodSpec";
        let keys = |names: &[&str]| ListKind::Map(names.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(at(pod, "containers").list, keys(&["name"]));
        assert_eq!(at(pod, "containers.[].ports").list, keys(&["containerPort", "protocol"]));
        assert_eq!(at(pod, "containers.[].ports.[].protocol").default, Some("TCP".into()));
        assert_eq!(at(pod, "containers.[].args").list, ListKind::Atomic);
        assert_eq!(at(pod, "tolerations").list, ListKind::Atomic);
        assert_eq!(at("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "finalizers").list, ListKind::Set);
        assert_eq!(
            at("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "ownerReferences").list,
            keys(&["uid"])
        );
    }

    #[test]
    fn patch_strategies_are_kept_beside_a_reference() {
        let strategy = at("io.k8s.api.apps.v1.DeploymentSpec", "strategy");
        assert!(strategy.patch.retain_keys);
        assert!(strategy.properties.contains_key("rollingUpdate"));
        let volumes = at("io.k8s.api.core.v1.PodSpec", "volumes");
        assert!(volumes.patch.merge && volumes.patch.retain_keys);
        assert_eq!(volumes.patch.merge_key.as_deref(), Some("name"));
        assert_eq!(at("io.k8s.api.core.v1.PodSpec", "nodeSelector").map, MapKind::Atomic);
        assert_eq!(at("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector", "").map, MapKind::Atomic);
    }

    #[test]
    fn special_types_have_their_own_shape() {
        let check = |root: &str, path: &str, kind: Type, format: Option<&str>, free: bool| {
            let node = at(root, path);
            assert_eq!(
                (node.kind, node.format.as_deref(), node.preserve_unknown_fields),
                (kind, format, free),
                "{path}"
            );
        };
        let pod = "io.k8s.api.core.v1.PodSpec";
        check(pod, "containers.[].resources.limits.{}", Type::IntOrString, Some("quantity"), false);
        check(
            "io.k8s.api.core.v1.ServicePort",
            "targetPort",
            Type::IntOrString,
            Some("int-or-string"),
            false,
        );
        check(
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
            "creationTimestamp",
            Type::String,
            Some("date-time"),
            false,
        );
        check("io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry", "fieldsV1", Type::Any, None, true);
        check("io.k8s.api.apps.v1.ControllerRevision", "data", Type::Any, None, true);
        check("io.k8s.api.core.v1.Secret", "data.{}", Type::String, Some("byte"), false);
        let crd = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec";
        check(crd, "versions.[].schema.openAPIV3Schema", Type::Any, None, true);
    }

    #[test]
    fn definitions_are_shared() {
        let one = at("io.k8s.api.apps.v1.DeploymentSpec", "template");
        let other = at("io.k8s.api.apps.v1.ReplicaSetSpec", "template");
        assert!(Arc::ptr_eq(&one, &other));
    }
}
