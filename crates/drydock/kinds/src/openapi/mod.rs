//! OpenAPI documents of what is served.
//!
//! kubectl reads the third version of OpenAPI, one document per group and version, for `explain` and
//! to learn which parameters a server knows; the second version, one document for everything, is for
//! older clients. Both are made from the same definitions: Kubernetes' own for built-in kinds, and the
//! schemas of custom resource definitions.

mod definitions;
mod enums;
mod paths;

use serde_json::{Map, Value, json};

use crate::{Kind, Registry, hash};
use definitions::Dialect;

/// The version of Kubernetes that the built-in kinds are those of.
pub const KUBERNETES: &str = "v1.34.0";

/// `/openapi/v3`: where the document of each group and version is. The hash in a document's address
/// changes with the document, so that a client may keep it for as long as the hash is the same.
#[must_use]
pub fn v3_index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for group in registry.groups() {
        for version in &group.versions {
            let path = path_of(&group.name, version);
            let hash = document_hash(registry, &group.name, version);
            let url = format!("/openapi/v3/{path}?hash={hash}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

/// The `hash` of the document of a group and version, if it is served. What is built in changes with the program.
#[must_use]
pub fn document_hash(registry: &Registry, group: &str, version: &str) -> String {
    let mut content = format!("{KUBERNETES} {} {group}/{version}\n", env!("CARGO_PKG_VERSION"));
    for kind in registry.of(group, version) {
        content.push_str(&kind.kind);
        content.push_str(&format!(" {} {:?}\n", kind.plural, kind.subresources));
        if let Some(schema) = definitions::custom_schema(&kind) {
            content.push_str(&schema.to_string());
        }
    }
    hash::document(content.as_bytes())
}

/// `/openapi/v3/api/v1` or `/openapi/v3/apis/{group}/{version}`.
#[must_use]
pub fn v3_group_version(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let kinds = registry.of(group, version);
    if kinds.is_empty() {
        return None;
    }
    let mut paths = Map::new();
    for kind in &kinds {
        paths::of_kind(kind, Dialect::V3, &mut paths);
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths,
        "components": {
            "schemas": definitions::of(&kinds, Dialect::V3),
            "securitySchemes": {
                "BearerToken": {
                    "type": "apiKey",
                    "description": "Bearer Token authentication",
                    "name": "authorization",
                    "in": "header",
                },
            },
        },
    }))
}

/// `/openapi/v2`.
#[must_use]
pub fn v2(registry: &Registry) -> Value {
    let kinds = registry.all();
    let mut paths = Map::new();
    for kind in &kinds {
        paths::of_kind(kind, Dialect::V2, &mut paths);
    }
    json!({
        "swagger": "2.0",
        "info": info(),
        "paths": paths,
        "definitions": definitions::of(&kinds, Dialect::V2),
    })
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": KUBERNETES})
}

/// `api/v1` or `apis/{group}/{version}`.
fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// `apps`, or `core` for the core group: what operations are named after.
fn group_word(kind: &Kind) -> &str {
    if kind.group.is_empty() { "core" } else { kind.group.split('.').next().unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_leads_to_a_definition() {
        let registry = Registry::builtin();
        for group in registry.groups() {
            for version in &group.versions {
                let document = v3_group_version(&registry, &group.name, version).expect("a document");
                let text = document.to_string();
                for part in text.split("\"#/components/schemas/").skip(1) {
                    let name = part.split('"').next().expect("an end");
                    assert!(
                        document["components"]["schemas"].get(name).is_some(),
                        "{name} in {}/{version}",
                        group.name
                    );
                }
            }
        }
    }

    #[test]
    fn a_document_is_listed_with_a_hash_that_stays() {
        let registry = Registry::builtin();
        assert_eq!(v3_index(&registry), v3_index(&Registry::builtin()));
        let url = &v3_index(&registry)["paths"]["apis/apps/v1"]["serverRelativeURL"];
        assert!(url.as_str().expect("an address").starts_with("/openapi/v3/apis/apps/v1?hash="));
    }
}
