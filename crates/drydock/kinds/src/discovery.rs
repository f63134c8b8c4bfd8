//! What the server says it serves: `/api`, `/apis` and below, in the old form and in the aggregated
//! one that kubectl asks for first.

use serde_json::{Value, json};

use crate::{GroupInfo, Kind, Registry, hash, kind::Source, kind::api_version};

/// The media type of [`aggregated`].
pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// `/api`. `address` is where clients reach this server, `host:port`.
#[must_use]
pub fn api_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`.
#[must_use]
pub fn api_group_list(registry: &Registry) -> Value {
    let groups = named_groups(registry).iter().map(group_entry).collect::<Vec<_>>();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/{group}`.
#[must_use]
pub fn api_group(registry: &Registry, group: &str) -> Option<Value> {
    let group = named_groups(registry).into_iter().find(|info| info.name == group)?;
    let mut entry = group_entry(&group);
    crate::json::set(&mut entry, "kind", "APIGroup");
    crate::json::set(&mut entry, "apiVersion", "v1");
    Some(entry)
}

/// `/api/v1` and `/apis/{group}/{version}`.
#[must_use]
pub fn api_resource_list(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let kinds = registry.of(group, version);
    if kinds.is_empty() {
        return None;
    }
    let resources: Vec<_> = kinds.iter().flat_map(|kind| resources_of(kind)).collect();
    let mut list = json!({
        "kind": "APIResourceList",
        "groupVersion": api_version(group, version),
        "resources": resources,
    });
    if !group.is_empty() {
        crate::json::set(&mut list, "apiVersion", "v1");
    }
    Some(list)
}

/// `/api` and `/apis` in the aggregated form: the core group for one, all others for the other.
#[must_use]
pub fn aggregated(registry: &Registry, core: bool) -> Value {
    let items: Vec<_> = registry
        .groups()
        .iter()
        .filter(|group| group.name.is_empty() == core)
        .map(|group| aggregated_group(registry, group))
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

/// Groups in the order in which Kubernetes prefers them: its own by weight, then the rest by name.
fn named_groups(registry: &Registry) -> Vec<GroupInfo> {
    const OWN: &[&str] = &[
        "apps",
        "events.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "autoscaling",
        "batch",
        "policy",
        "rbac.authorization.k8s.io",
        "storage.k8s.io",
        "apiextensions.k8s.io",
        "scheduling.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
    ];
    let weight = |name: &str| OWN.iter().position(|own| *own == name).unwrap_or(OWN.len());
    let mut groups: Vec<_> = registry.groups().into_iter().filter(|group| !group.name.is_empty()).collect();
    groups.sort_by(|a, b| weight(&a.name).cmp(&weight(&b.name)).then(a.name.cmp(&b.name)));
    groups
}

fn group_entry(group: &GroupInfo) -> Value {
    let versions: Vec<_> = group
        .versions
        .iter()
        .map(|version| json!({"groupVersion": api_version(&group.name, version), "version": version}))
        .collect();
    json!({"name": group.name, "preferredVersion": versions.first(), "versions": versions})
}

fn resources_of(kind: &Kind) -> Vec<Value> {
    let mut main = json!({
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        crate::json::set(&mut main, "shortNames", names(&kind.short_names));
    }
    if !kind.categories.is_empty() {
        crate::json::set(&mut main, "categories", names(&kind.categories));
    }
    if !kind.is_virtual() {
        crate::json::set(&mut main, "storageVersionHash", storage_version_hash(kind));
    }
    let mut resources = vec![main];
    for sub in subresources(kind) {
        let mut entry = json!({
            "name": format!("{}/{}", kind.plural, sub.name),
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": sub.kind,
            "verbs": sub.verbs,
        });
        if !sub.version.is_empty() {
            crate::json::set(&mut entry, "group", sub.group);
            crate::json::set(&mut entry, "version", sub.version);
        }
        resources.push(entry);
    }
    resources
}

fn aggregated_group(registry: &Registry, group: &GroupInfo) -> Value {
    let versions: Vec<_> = group
        .versions
        .iter()
        .map(|version| {
            let resources: Vec<_> =
                registry.of(&group.name, version).iter().map(|kind| aggregated_resource(kind)).collect();
            json!({"version": version, "freshness": "Current", "resources": resources})
        })
        .collect();
    let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": group.name}) };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(kind: &Kind) -> Value {
    let mut resource = json!({
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        crate::json::set(&mut resource, "shortNames", names(&kind.short_names));
    }
    if !kind.categories.is_empty() {
        crate::json::set(&mut resource, "categories", names(&kind.categories));
    }
    let subresources: Vec<_> = subresources(kind)
        .into_iter()
        .map(|sub| {
            let response = if sub.version.is_empty() {
                json!({"group": kind.group, "version": kind.version, "kind": sub.kind})
            } else {
                json!({"group": sub.group, "version": sub.version, "kind": sub.kind})
            };
            json!({"subresource": sub.name, "responseKind": response, "verbs": sub.verbs})
        })
        .collect();
    if !subresources.is_empty() {
        crate::json::set(&mut resource, "subresources", subresources);
    }
    resource
}

struct Sub {
    name: String,
    group: &'static str,
    version: &'static str,
    kind: String,
    verbs: &'static [&'static str],
}

/// All subresources, by name.
fn subresources(kind: &Kind) -> Vec<Sub> {
    const PART: &[&str] = &["get", "patch", "update"];
    let mut all: Vec<_> = kind
        .subresources
        .other
        .iter()
        .map(|sub| Sub {
            name: sub.name.to_owned(),
            group: sub.group,
            version: sub.version,
            kind: sub.kind.to_owned(),
            verbs: sub.verbs,
        })
        .collect();
    if kind.subresources.status {
        let kind = kind.kind.to_string();
        all.push(Sub { name: "status".to_owned(), group: "", version: "", kind, verbs: PART });
    }
    if kind.subresources.scale.is_some() {
        let kind = "Scale".to_owned();
        all.push(Sub { name: "scale".to_owned(), group: "autoscaling", version: "v1", kind, verbs: PART });
    }
    // Custom resources have their status before their scale.
    if !kind.is_custom() {
        all.sort_by(|a, b| a.name.cmp(&b.name));
    }
    all
}

fn storage_version_hash(kind: &Kind) -> String {
    let (group, version) = match &kind.source {
        Source::Builtin(row) if row.shares_core_events() => ("", "v1"),
        // Kubernetes still stores definitions in their first version.
        Source::Builtin(row) if row.kind == "CustomResourceDefinition" => (row.group, "v1beta1"),
        Source::Builtin(row) => (row.group, row.version),
        Source::Custom(custom) => (kind.group.as_ref(), custom.storage_version.as_ref()),
    };
    hash::storage_version(group, version, &kind.kind)
}

fn names(names: &[std::sync::Arc<str>]) -> Vec<&str> {
    names.iter().map(AsRef::as_ref).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_storage_version_is_the_one_that_clients_know() {
        let list = api_resource_list(&Registry::builtin(), "apps", "v1").expect("a group");
        let hash = |name: &str| {
            let resources = list["resources"].as_array().expect("a list");
            resources.iter().find(|resource| resource["name"] == name).expect("a resource")["storageVersionHash"].clone()
        };
        assert_eq!(hash("deployments"), "8aSe+NMegvE=");
        assert_eq!(hash("replicasets"), "P1RzHs8/mWQ=");
    }
}
