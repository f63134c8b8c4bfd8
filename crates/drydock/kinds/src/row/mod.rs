//! What a row of the table of built-in kinds says.

mod table;

use std::sync::Arc;

use drydock_schema::{FieldError, Schema, builtin};
use serde_json::Value;

use crate::{
    Kind, ScalePaths, Subresource, Subresources, json,
    kind::Source,
    meta,
    names::Rule,
    rules::{self, Rules},
    table::Printer,
};

/// One built-in kind.
#[derive(Debug)]
pub(crate) struct Row {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub namespaced: bool,
    pub verbs: &'static [&'static str],
    /// The name of the OpenAPI definition.
    pub definition: &'static str,
    pub status: bool,
    /// Has the scale subresource, with the usual paths.
    pub scale: bool,
    pub other: &'static [Subresource],
    /// `metadata.generation` counts changes of the specification.
    pub generation: bool,
    /// Fields of the metadata whose changes count too.
    pub counts: &'static [&'static str],
    pub name: Rule,
    pub rules: Rules,
    /// Fields that can be selected, beyond name and namespace.
    pub fields: &'static [&'static str],
    pub printer: Printer,
    /// An object may come with a status of its own.
    pub keeps_status: bool,
    /// An update may leave out the revision it is based on.
    pub unconditional_update: bool,
    /// An update may make an object that is not there.
    pub create_on_update: bool,
    /// A deletion is answered with the object rather than with a status.
    pub returns_deleted: bool,
    /// What people should read when they use this version.
    pub deprecation: Option<&'static str>,
}

/// The built-in kinds, ready to be served.
pub(crate) fn kinds() -> impl Iterator<Item = Kind> {
    table::ROWS.iter().map(Row::to_kind)
}

impl Row {
    fn to_kind(&'static self) -> Kind {
        let scale = self.scale.then(|| ScalePaths {
            spec: ".spec.replicas".to_owned(),
            status: ".status.replicas".to_owned(),
            selector: Some(".spec.selector".to_owned()),
        });
        let group = if self.shares_core_events() { "" } else { self.group };
        Kind {
            group: self.group.into(),
            version: self.version.into(),
            kind: self.kind.into(),
            list_kind: format!("{}List", self.kind).into(),
            plural: self.plural.into(),
            singular: self.singular.into(),
            short_names: self.short_names.iter().map(|name| Arc::from(*name)).collect(),
            categories: self.categories.iter().map(|name| Arc::from(*name)).collect(),
            namespaced: self.namespaced,
            verbs: self.verbs,
            subresources: Subresources { status: self.status, scale, other: self.other.to_vec() },
            key: format!("{group}/{}", self.plural).into(),
            source: Source::Builtin(self),
        }
    }

    /// The shape of objects. A definition that is missing from the table of types accepts anything,
    /// which a test rules out.
    pub(crate) fn schema(&self) -> Arc<Schema> {
        builtin::definition(self.definition).unwrap_or_default()
    }

    /// Objects are stored as core events.
    pub(crate) fn shares_core_events(&self) -> bool {
        self.group == table::EVENTS
    }

    /// Whose finalizers an object has must be said by their names, also of those that it had before. Of the built-in
    /// kinds two are as free as custom ones.
    pub(crate) fn validate_finalizers(&self, object: &Value, errors: &mut Vec<FieldError>) {
        if !matches!(self.kind, "CustomResourceDefinition" | "Lease") {
            meta::validate_own_finalizers(&object["metadata"], errors);
        }
    }

    /// The value of a selectable field.
    pub(crate) fn field(&self, field: &str, object: &Value) -> String {
        match (self.kind, field) {
            ("Event", _) => rules::event::field(field, object),
            ("Node", "spec.unschedulable") => {
                let value = object["spec"]["unschedulable"].as_bool().unwrap_or_default();
                value.to_string()
            }
            ("ReplicaSet", "status.replicas") => {
                object["status"]["replicas"].as_i64().unwrap_or_default().to_string()
            }
            ("Job", "status.successful") => {
                object["status"]["succeeded"].as_i64().unwrap_or_default().to_string()
            }
            ("Pod", _) => rules::pod::field(field, object),
            _ => json::text_at(object, field),
        }
    }

    /// The name under which a field of a selector is known.
    pub(crate) fn field_label(&self, label: &str) -> Option<String> {
        if self.kind == "Event" {
            return rules::event::field_label(self.shares_core_events(), label);
        }
        let label = if self.kind == "Pod" && label == "spec.host" { "spec.nodeName" } else { label };
        self.fields.contains(&label).then(|| label.to_owned())
    }

    /// How Kubernetes refuses a field that can't be selected: kinds without selectable fields of
    /// their own say which two there are.
    pub(crate) fn unknown_field(&self, label: &str) -> String {
        if self.fields.is_empty() {
            format!("{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        } else {
            format!("field label not supported: {label}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_definition() {
        let missing: Vec<_> = table::ROWS
            .iter()
            .filter(|row| builtin::definition(row.definition).is_none())
            .map(|row| row.kind)
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
