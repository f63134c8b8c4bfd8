//! From a custom resource definition's `openAPIV3Schema` to a [`Schema`].
//!
//! Kubernetes accepts structural schemas only: every field is declared once, outside of `anyOf`
//! and its like, with a type. What is not structural is refused here with Kubernetes' messages
//! (`invariants`, `keywords`); what passes is built (`build`), its defaults are checked
//! against it, and its rules are compiled.

mod build;
mod invariants;
mod keywords;

use std::sync::Arc;

use serde_json::Value;

use crate::{FieldError, Schema, unknown, validate};

impl Schema {
    /// Reads the `openAPIV3Schema` of a custom resource definition's version.
    ///
    /// The root knows `apiVersion`, `kind` and `metadata` whether or not the schema names them.
    /// Errors name paths that begin with `openAPIV3Schema`.
    ///
    /// # Errors
    ///
    /// Everything that Kubernetes would refuse the definition for.
    pub fn from_openapi(definition: &Value) -> Result<Arc<Self>, Vec<FieldError>> {
        Self::from_openapi_at("openAPIV3Schema", definition)
    }

    /// The same, with errors that name paths below `path`, such as
    /// `spec.versions[0].schema.openAPIV3Schema`.
    ///
    /// # Errors
    ///
    /// Everything that Kubernetes would refuse the definition for.
    pub fn from_openapi_at(path: &str, definition: &Value) -> Result<Arc<Self>, Vec<FieldError>> {
        let mut errors = invariants::check(definition, path);
        let mut schema = build::root(definition);
        if errors.is_empty() {
            default_errors(definition, &schema, path, &mut errors);
        }
        errors.extend(keywords::check(definition, path));
        if errors.is_empty() {
            let (compiled, rule_errors) = keywords::compile(definition, schema, path);
            schema = compiled;
            errors.extend(rule_errors);
            if errors.is_empty() && schema.has_rules {
                default_errors(definition, &schema, path, &mut errors);
            }
        }
        if errors.is_empty() { Ok(Arc::new(schema)) } else { Err(errors) }
    }
}

/// A default must be a value that could have been given.
fn default_errors(definition: &Value, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(default) = definition.get("default").filter(|default| !default.is_null()) {
        let path = format!("{path}.default");
        let mut pruned = default.clone();
        if !unknown::prune(schema, &mut pruned, unknown::Root::Fragment).is_empty() {
            errors.push(FieldError::invalid(path.as_str(), default.clone(), "must not have unknown fields"));
        }
        errors.extend(validate::default(schema, default, &path));
    }
    if let (Some(items), Some(known)) = (definition.get("items"), &schema.items) {
        default_errors(items, known, &format!("{path}.items"), errors);
    }
    for (name, property) in definition.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if let Some(known) = schema.properties.get(name) {
            default_errors(property, known, &format!("{path}.properties[{name}]"), errors);
        }
    }
}
