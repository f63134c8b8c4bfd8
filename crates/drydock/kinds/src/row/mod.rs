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

/// What a change of an object with a status is.
enum Changed {
    /// More than its status.
    Object,
    /// Its status alone.
    Status,
    /// Nothing that anybody said.
    Nothing,
}

impl Changed {
    fn between(new: &Value, old: &Value) -> Self {
        /// What the server itself writes beside what is said.
        const BOOKS: &[&str] = &["managedFields", "resourceVersion"];
        if differ(new, old, &["metadata", "status"]) || differ(&new["metadata"], &old["metadata"], BOOKS) {
            Self::Object
        } else if json::same(&new["status"], &old["status"]) {
            Self::Nothing
        } else {
            Self::Status
        }
    }
}

/// Whether two objects differ in fields other than `aside`.
fn differ(new: &Value, old: &Value, aside: &[&str]) -> bool {
    let fields = [new, old].into_iter().filter_map(Value::as_object).flat_map(|object| object.keys());
    let mut looked_at = fields.map(String::as_str).filter(|name| !aside.contains(name));
    looked_at.any(|name| !json::same(&new[name], &old[name]))
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

    /// What is worth saying about an object. Which path a change came by is told by what it is: only the one to
    /// the status changes that alone, and who changes nothing at all is told nothing.
    pub(crate) fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let changed = old.filter(|_| self.status).map(|old| Changed::between(new, old));
        match changed {
            None | Some(Changed::Object) => (self.rules.warnings)(new, old),
            Some(Changed::Status) => (self.rules.status_warnings)(new),
            Some(Changed::Nothing) => Vec::new(),
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
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(kind: &str, new: Value, old: Option<Value>, expected: &[&str]) {
        let row = table::ROWS.iter().find(|row| row.kind == kind).unwrap();
        assert_eq!(row.warnings(&new, old.as_ref()), expected, "{new} after {old:?}");
    }

    #[test]
    fn a_status_is_told_about_itself_alone_and_what_changes_nothing_is_told_nothing() {
        let service = |revision: &str, address: &str, selector: &str| {
            json!({
                "metadata": {"name": "s", "resourceVersion": revision},
                "spec": {"type": "ClusterIP", "externalName": "a", "selector": {"a": selector}},
                "status": {"loadBalancer": {"ingress": [{"ip": address}]}},
            })
        };
        let ignored = r#"spec.externalName is ignored when spec.type is not "ExternalName""#;
        let address = r#"status.loadBalancer.ingress[0]: IPv6 address "FD00::1" should be in RFC 5952 canonical format ("fd00::1")"#;
        let old = || Some(service("1", "fd00::1", "a"));
        check("Service", service("1", "fd00::1", "a"), None, &[ignored]);
        check("Service", service("1", "fd00::1", "b"), old(), &[ignored]);
        check("Service", service("1", "FD00::1", "a"), old(), &[address]);
        check("Service", service("2", "fd00::1", "a"), old(), &[]);
    }

    #[test]
    fn a_schedule_with_a_time_zone_is_told_of_when_it_was_there_before() {
        let job = |name: &str| {
            json!({
                "metadata": {"name": "c", "labels": {"a": name}},
                "spec": {"schedule": "TZ=UTC 0 0 * * *"},
            })
        };
        let warning = "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
                       https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details";
        check("CronJob", job("a"), None, &[]);
        check("CronJob", job("a"), Some(job("b")), &[warning]);
    }

    #[test]
    fn endpoints_are_looked_at_unless_their_controller_wrote_them() {
        let endpoints = |by: &str| {
            json!({
                "metadata": {"name": "e", "labels": {"endpoints.kubernetes.io/managed-by": by}},
                "subsets": [{"addresses": [{"ip": "FD00::1"}]}],
            })
        };
        let address = r#"subsets[0].addresses[0].ip: IPv6 address "FD00::1" should be in RFC 5952 canonical format ("fd00::1")"#;
        check("Endpoints", endpoints("me"), None, &[address]);
        check("Endpoints", endpoints("endpoint-controller"), None, &[]);
    }

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
