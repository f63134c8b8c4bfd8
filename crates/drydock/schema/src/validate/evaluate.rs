//! Where CEL rules are evaluated, and which failures count.

use serde_json::Value;

use super::{ROOT, child, old_field, old_item};
use crate::{
    FieldError, FieldErrorKind, Schema,
    rules::{Outcome, Rule, Subject},
};

/// A value with what it was before, where that can be told.
#[derive(Clone, Copy)]
struct Pair<'a> {
    new: &'a Value,
    old: Option<&'a Value>,
    /// The nearest enclosing values, when this one can't be told from its old self.
    around: Option<(&'a Value, &'a Value)>,
    /// Failures of what did not change are let through.
    lenient: bool,
}

/// The rules of a whole object.
pub(super) fn object(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, Pair { new, old, around: None, lenient: true }, "", true, &mut errors);
    errors
}

/// The rules of a default, which must hold both when it is new and when it was there before.
pub(super) fn default(schema: &Schema, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for old in [Some(value), None] {
        if errors.is_empty() {
            walk(schema, Pair { new: value, old, around: None, lenient: false }, "", false, &mut errors);
        }
    }
    errors
}

impl<'a> Pair<'a> {
    fn below(self, new: &'a Value, old: Option<&'a Value>) -> Self {
        let around = self.old.map(|old| (self.new, old)).or(self.around);
        Self { new, old, around, lenient: self.lenient }
    }

    /// A failure of what did not change is not this request's fault.
    fn is_unchanged(self) -> bool {
        match (self.old, self.around) {
            (Some(old), _) => old == self.new,
            (None, Some((new, old))) => new == old,
            (None, None) => false,
        }
    }
}

fn walk(schema: &Schema, pair: Pair<'_>, path: &str, root: bool, errors: &mut Vec<FieldError>) {
    if !schema.has_rules || pair.new.is_null() {
        return;
    }
    if !schema.rules.is_empty() {
        let subject = Subject::new(schema, pair.new, pair.old, root);
        for rule in &schema.rules {
            evaluate(schema, rule, &subject, pair, path, errors);
        }
    }
    match pair.new {
        Value::Object(fields) => {
            for (name, field) in fields {
                if root && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
                    continue;
                }
                let below = pair.below(field, old_field(schema, pair.old, name));
                if let Some(known) = schema.properties.get(name) {
                    walk(known, below, &child(path, name), false, errors);
                } else if let Some(known) = &schema.additional {
                    walk(known, below, &format!("{path}[{name}]"), false, errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(known) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    let below = pair.below(item, old_item(schema, pair.old, item));
                    walk(known, below, &format!("{path}[{index}]"), false, errors);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn evaluate(
    schema: &Schema,
    rule: &Rule,
    subject: &Subject,
    pair: Pair<'_>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if rule.uses_old_self && pair.old.is_none() && !rule.optional_old_self {
        return;
    }
    let kind = schema.kind.as_str();
    let at = |path: String| if path.is_empty() { ROOT.to_owned() } else { path };
    match rule.evaluate(subject) {
        Outcome::Holds => {}
        Outcome::Errs(detail) => errors.push(FieldError::invalid(at(path.to_owned()), kind, detail)),
        Outcome::Fails(_) if !rule.uses_old_self && pair.lenient && pair.is_unchanged() => {}
        Outcome::Fails(message) => {
            let path =
                at(rule.field_path.as_deref().map_or_else(|| path.to_owned(), |field| child(path, field)));
            errors.push(match rule.reason {
                FieldErrorKind::Forbidden => FieldError::forbidden(path, message),
                FieldErrorKind::Required => FieldError::required(path, message),
                FieldErrorKind::Duplicate => {
                    FieldError::new(FieldErrorKind::Duplicate, path, Some(kind.into()), "")
                }
                _ => FieldError::invalid(path, kind, message),
            });
        }
    }
}
