//! A version of a custom resource definition as a kind.

use std::sync::Arc;

use drydock_schema::{FieldError, Schema, unknown, validate};
use serde_json::Value;

use crate::{
    Kind, ScalePaths, Subresources, json,
    kind::{CUSTOM_VERBS, Source},
};

/// What is special about a custom kind.
#[derive(Debug)]
pub(crate) struct Custom {
    pub schema: Arc<Schema>,
    /// The schema as it was written, for OpenAPI.
    pub raw_schema: Value,
    pub columns: Vec<Value>,
    /// Paths without the leading dot.
    pub selectable_fields: Vec<String>,
    pub storage_version: Arc<str>,
    pub deprecation_warning: Option<String>,
}

impl Custom {
    /// Removes fields that the schema does not know.
    pub(crate) fn prune(&self, object: &mut Value) {
        unknown::prune(&self.schema, object, unknown::Root::Resource);
    }

    /// What the schema says, then what the scale subresource says, then what the rules of the schema
    /// say: nothing, where `errors` holds too much already.
    pub(crate) fn validate(
        &self,
        new: &Value,
        old: Option<&Value>,
        scale: Option<&ScalePaths>,
        status_only: bool,
        errors: &mut Vec<FieldError>,
    ) {
        errors.extend(validate::shape(&self.schema, new, old));
        if let Some(scale) = scale {
            super::scale::validate(scale, new, status_only, errors);
        }
        validate::rules(&self.schema, new, old, errors);
    }
}

/// The kinds of all served versions. None of a definition that is not established, and none of a
/// version whose schema can't be read.
#[must_use]
pub fn kinds_of(crd: &Value) -> Vec<Kind> {
    if !super::is_established(crd) {
        return Vec::new();
    }
    let spec = &crd["spec"];
    let names = &crd["status"]["acceptedNames"];
    let versions = json::list(spec, "versions");
    let storage: Arc<str> = versions
        .iter()
        .find(|version| version["storage"].as_bool() == Some(true))
        .map_or("", |version| json::text(version, "name"))
        .into();
    versions
        .iter()
        .filter(|version| version["served"].as_bool() == Some(true))
        .filter_map(|version| kind_of(spec, names, version, &storage))
        .collect()
}

fn kind_of(spec: &Value, names: &Value, version: &Value, storage: &Arc<str>) -> Option<Kind> {
    let raw_schema = version["schema"]["openAPIV3Schema"].clone();
    let mut schema = Schema::from_openapi(&raw_schema).ok()?;
    if spec["preserveUnknownFields"].as_bool() == Some(true) {
        let mut open = (*schema).clone();
        open.preserve_unknown_fields = true;
        schema = Arc::new(open);
    }
    let group = json::text(spec, "group");
    let plural = json::text(names, "plural");
    let strings =
        |field: &str| json::list(names, field).iter().filter_map(Value::as_str).map(Arc::from).collect();
    let subresources = &version["subresources"];
    let scale = subresources.get("scale").map(|scale| ScalePaths {
        spec: json::text(scale, "specReplicasPath").to_owned(),
        status: json::text(scale, "statusReplicasPath").to_owned(),
        selector: scale["labelSelectorPath"].as_str().filter(|path| !path.is_empty()).map(str::to_owned),
    });
    let name = json::text(version, "name");
    let deprecated = version["deprecated"].as_bool() == Some(true);
    let deprecation_warning = deprecated.then(|| match version["deprecationWarning"].as_str() {
        Some(warning) => warning.to_owned(),
        None => format!("{group}/{name} {} is deprecated", json::text(names, "kind")),
    });
    let selectable_fields = json::list(version, "selectableFields")
        .iter()
        .map(|field| json::text(field, "jsonPath").trim_start_matches('.').to_owned())
        .collect();
    Some(Kind {
        group: group.into(),
        version: name.into(),
        kind: json::text(names, "kind").into(),
        list_kind: json::text(names, "listKind").into(),
        plural: plural.into(),
        singular: json::text(names, "singular").into(),
        short_names: strings("shortNames"),
        categories: strings("categories"),
        namespaced: json::text(spec, "scope") == "Namespaced",
        verbs: CUSTOM_VERBS,
        subresources: Subresources {
            status: subresources.get("status").is_some_and(Value::is_object),
            scale,
            other: Vec::new(),
        },
        key: format!("{group}/{plural}").into(),
        source: Source::Custom(Arc::new(Custom {
            schema,
            raw_schema,
            columns: json::list(version, "additionalPrinterColumns").to_vec(),
            selectable_fields,
            storage_version: storage.clone(),
            deprecation_warning,
        })),
    })
}

/// Where a version stands among others: stable before beta before alpha, then by number; anything
/// else comes last.
#[must_use]
pub fn version_priority(version: &str) -> (u8, u64, u64) {
    parse_version(version).unwrap_or((0, 0, 0))
}

fn parse_version(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (major, rest) = rest.split_at(digits(rest));
    let major = major.parse().ok()?;
    if rest.is_empty() {
        return Some((3, major, 0));
    }
    let (stage, minor) = if let Some(minor) = rest.strip_prefix("beta") {
        (2, minor)
    } else {
        (1, rest.strip_prefix("alpha")?)
    };
    Some((stage, major, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_sorted_as_people_expect() {
        let mut versions = vec!["foo1", "v1alpha1", "v10", "v2", "v1", "v3beta1", "v12alpha1", "v11beta2"];
        versions.sort_by(|a, b| version_priority(b).cmp(&version_priority(a)).then(a.cmp(b)));
        assert_eq!(versions, ["v10", "v2", "v1", "v11beta2", "v3beta1", "v12alpha1", "v1alpha1", "foo1"]);
    }
}
