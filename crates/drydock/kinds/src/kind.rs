//! One kind, whether built in or defined by a custom resource definition.

use std::sync::Arc;

use drydock_schema::{FieldError, Schema, builtin};
use serde_json::Value;

use crate::{crd::Custom, event, json, meta, names, path::Path, prepare, row::Row};

/// The verbs of a resource that can be stored.
pub(crate) const STORED_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The same verbs, in the order in which custom resources have them.
pub(crate) const CUSTOM_VERBS: &[&str] =
    &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// Where the scale subresource finds its numbers; paths as `.spec.replicas`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// The desired number of replicas.
    pub spec: String,
    /// The observed number of replicas.
    pub status: String,
    /// The label selector: a string in custom resources, a `LabelSelector` in built-in kinds.
    pub selector: Option<String>,
}

/// A subresource other than `status` and `scale`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subresource {
    /// The last part of the path, e.g. `eviction`.
    pub name: &'static str,
    /// The group of what is sent to it; empty for the core group or the parent's own.
    pub group: &'static str,
    /// The version of what is sent to it; empty where it is the parent's own.
    pub version: &'static str,
    /// The kind of what is sent to it.
    pub kind: &'static str,
    /// What can be done with it.
    pub verbs: &'static [&'static str],
}

/// The parts of an object that have a path of their own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subresources {
    /// `/status` exists: the main resource ignores changes of status and the other way round.
    pub status: bool,
    /// `/scale` exists.
    pub scale: Option<ScalePaths>,
    /// All others.
    pub other: Vec<Subresource>,
}

/// One group, version and resource.
#[derive(Debug, Clone)]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The version within the group.
    pub version: Arc<str>,
    /// The name of the type, e.g. `Deployment`.
    pub kind: Arc<str>,
    /// The name of the type of lists.
    pub list_kind: Arc<str>,
    /// The name in paths, e.g. `deployments`.
    pub plural: Arc<str>,
    /// The singular name, e.g. `deployment`.
    pub singular: Arc<str>,
    /// Names that people type.
    pub short_names: Vec<Arc<str>>,
    /// Groups of kinds that people ask for together, e.g. `all`.
    pub categories: Vec<Arc<str>>,
    /// Objects live in namespaces.
    pub namespaced: bool,
    /// What can be done with it.
    pub verbs: &'static [&'static str],
    /// The parts that have a path of their own.
    pub subresources: Subresources,
    pub(crate) key: Arc<str>,
    pub(crate) source: Source,
}

/// Where a kind's behaviour comes from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// A row of the table.
    Builtin(&'static Row),
    /// A version of a custom resource definition.
    Custom(Arc<Custom>),
}

impl Kind {
    /// `apps/v1`, or `v1` for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// `deployments.apps`, or `pods` for the core group: how errors name the resource.
    #[must_use]
    pub fn qualified_plural(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_string()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// The store's name of the resource: `apps/deployments`, `/pods`. Both groups of events share one.
    #[must_use]
    pub fn resource_key(&self) -> Arc<str> {
        self.key.clone()
    }

    /// The kind comes from a custom resource definition.
    #[must_use]
    pub fn is_custom(&self) -> bool {
        matches!(self.source, Source::Custom(_))
    }

    /// The kind is answered, never stored: access reviews and the like.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        !self.verbs.contains(&"get")
    }

    /// What people should read when they use this version, if it is deprecated.
    #[must_use]
    pub fn deprecation_warning(&self) -> Option<&str> {
        match &self.source {
            Source::Builtin(row) => row.deprecation,
            Source::Custom(custom) => custom.deprecation_warning.as_deref(),
        }
    }

    /// What objects look like.
    #[must_use]
    pub fn schema(&self) -> Arc<Schema> {
        match &self.source {
            Source::Builtin(row) => row.schema(),
            Source::Custom(custom) => custom.schema.clone(),
        }
    }

    /// The name of the OpenAPI definition of a built-in kind, e.g. `io.k8s.api.apps.v1.Deployment`.
    #[must_use]
    pub fn definition(&self) -> Option<&'static str> {
        match &self.source {
            Source::Builtin(row) => Some(row.definition),
            Source::Custom(_) => None,
        }
    }

    /// `metadata.generation` counts changes of the specification.
    #[must_use]
    pub fn has_generation(&self) -> bool {
        match &self.source {
            Source::Builtin(row) => row.generation,
            Source::Custom(_) => true,
        }
    }

    /// The form in which objects are stored, from the form of this version.
    pub fn to_storage(&self, object: &mut Value) {
        match &self.source {
            Source::Builtin(row) if row.shares_core_events() => event::to_core(object),
            Source::Builtin(_) => {}
            Source::Custom(custom) => {
                json::set(object, "apiVersion", api_version(&self.group, &custom.storage_version));
            }
        }
    }

    /// The form of this version, from the form in which objects are stored.
    pub fn from_storage(&self, object: &mut Value) {
        match &self.source {
            Source::Builtin(row) if row.shares_core_events() => event::from_core(object),
            Source::Builtin(_) => {}
            Source::Custom(custom) => {
                json::set(object, "apiVersion", self.api_version());
                // Neither are fields shown that only another version knows, nor those that this one knew once.
                custom.prune(object);
                drydock_schema::defaults::apply(&custom.schema, object);
            }
        }
    }

    /// [`Self::from_storage`] would change nothing, whatever is stored. A definition may have changed since an
    /// object of it was.
    #[must_use]
    pub fn stored_as_is(&self) -> bool {
        matches!(&self.source, Source::Builtin(row) if !row.shares_core_events())
    }

    /// Objects are stored in the form of this version: those that were written since the definition is what it is.
    #[must_use]
    pub fn is_storage_version(&self) -> bool {
        match &self.source {
            Source::Builtin(row) => !row.shares_core_events(),
            Source::Custom(custom) => self.version == custom.storage_version,
        }
    }

    /// An update may leave out the revision it is based on, and then overwrites what it finds.
    #[must_use]
    pub fn allow_unconditional_update(&self) -> bool {
        matches!(&self.source, Source::Builtin(row) if row.unconditional_update)
    }

    /// An update may make an object that is not there.
    #[must_use]
    pub fn allow_create_on_update(&self) -> bool {
        matches!(&self.source, Source::Builtin(row) if row.create_on_update)
    }

    /// A deletion that takes effect at once is answered with the object rather than with a status.
    #[must_use]
    pub fn returns_deleted_object(&self) -> bool {
        matches!(&self.source, Source::Builtin(row) if row.returns_deleted)
    }

    /// Sets what was not given. Idempotent.
    pub fn default(&self, object: &mut Value) {
        match &self.source {
            Source::Builtin(row) => {
                builtin::normalise(row.definition, object);
                json::canonical(&row.schema(), object);
                (row.rules.default)(object);
            }
            Source::Custom(custom) => drydock_schema::defaults::apply(&custom.schema, object),
        }
    }

    /// Removes what a client may not set at creation, and sets what the server says at creation.
    pub fn prepare_create(&self, object: &mut Value) {
        prepare::create(self, object);
    }

    /// Keeps of `old` what an update of the object, or of one subresource of it, may not change, and
    /// counts the generation.
    pub fn prepare_update(&self, new: &mut Value, old: &Value, subresource: Option<&str>) {
        prepare::update(self, new, old, subresource);
    }

    /// What is wrong with an object that is to be created.
    #[must_use]
    pub fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        meta::validate(
            &object["metadata"],
            self.namespaced,
            self.name_rule(),
            &Path::new("metadata"),
            &mut errors,
        );
        match &self.source {
            Source::Builtin(row) => {
                row.validate_finalizers(object, &mut errors);
                (row.rules.validate)(object, &mut errors);
            }
            Source::Custom(custom) => {
                custom.validate(object, None, self.subresources.scale.as_ref(), false, &mut errors);
            }
        }
        errors
    }

    /// What is wrong with an update of an object, or of one subresource of it.
    #[must_use]
    pub fn validate_update(&self, new: &Value, old: &Value, subresource: Option<&str>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        meta::validate_update(&new["metadata"], &old["metadata"], &Path::new("metadata"), &mut errors);
        match &self.source {
            Source::Builtin(row) => {
                row.validate_finalizers(new, &mut errors);
                if subresource.is_none() {
                    (row.rules.validate_update)(new, old, &mut errors);
                } else if subresource == Some("status") {
                    (row.rules.validate_status)(new, old, &mut errors);
                } else if subresource == Some("ephemeralcontainers") {
                    crate::rules::pod::validate_ephemeral(new, old, &mut errors);
                }
            }
            Source::Custom(custom) => {
                let status_only = subresource == Some("status");
                custom.validate(new, Some(old), self.subresources.scale.as_ref(), status_only, &mut errors);
            }
        }
        errors
    }

    /// What is not wrong with a new or changed object, and yet worth saying: of one of a built-in kind, by
    /// [what it changes](Row::warnings).
    #[must_use]
    pub fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        match &self.source {
            Source::Builtin(row) => row.warnings(new, old),
            Source::Custom(_) => meta::finalizer_warnings(&new["metadata"], old.map(|old| &old["metadata"])),
        }
    }

    /// The fields that field selectors may name, with their values, in the names of the stored form.
    #[must_use]
    pub fn selectable_fields(&self, object: &Value) -> Vec<(String, String)> {
        let mut fields = vec![(
            "metadata.name".to_owned(),
            object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        )];
        if self.namespaced {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            fields.push(("metadata.namespace".to_owned(), namespace.to_owned()));
        }
        match &self.source {
            Source::Builtin(row) => {
                fields.extend(row.fields.iter().map(|field| (field.to_string(), row.field(field, object))));
            }
            Source::Custom(custom) => {
                fields.extend(
                    custom.selectable_fields.iter().map(|path| (path.clone(), json::text_at(object, path))),
                );
            }
        }
        fields.sort();
        fields
    }

    /// The name under which [`Self::selectable_fields`] has the field that a selector calls `label`.
    ///
    /// # Errors
    /// The message of Kubernetes for a field that can't be selected.
    pub fn field_label(&self, label: &str) -> Result<String, String> {
        if label == "metadata.name" || (label == "metadata.namespace" && self.namespaced) {
            return Ok(label.to_owned());
        }
        let known = match &self.source {
            Source::Builtin(row) => row.field_label(label),
            Source::Custom(custom) => custom.selectable_fields.iter().find(|field| *field == label).cloned(),
        };
        known.ok_or_else(|| match &self.source {
            Source::Custom(_) => format!("field label not supported: {label}"),
            Source::Builtin(row) => row.unknown_field(label),
        })
    }

    /// How long a deleted object of this kind lives on, given for how long it was asked to: only pods that were
    /// given to a node have such a time.
    #[must_use]
    pub fn grace(&self, object: &Value, wanted: Option<i64>) -> Option<i64> {
        match &self.source {
            Source::Builtin(row) => (row.rules.grace)(object, wanted),
            Source::Custom(_) => None,
        }
    }

    pub(crate) fn name_rule(&self) -> names::Rule {
        match &self.source {
            Source::Builtin(row) => row.name,
            Source::Custom(_) => names::dns_subdomain_rule,
        }
    }
}

pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
