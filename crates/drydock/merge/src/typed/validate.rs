//! Whether a value has the types that its schema declares.

use std::{borrow::Cow, collections::BTreeSet, fmt};

use serde_json::{Map, Value};

use crate::{
    fields::{PathElement, Trail},
    node::{Form, Node, Scalar},
    wording,
};

/// What is wrong with a value's types. `Display` lists them as Kubernetes does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TypeErrors(Vec<String>);

impl TypeErrors {
    pub(crate) fn at(trail: &Trail<'_>, message: impl fmt::Display) -> Self {
        let mut errors = Self::default();
        errors.push(trail, message);
        errors
    }

    pub(crate) fn push(&mut self, trail: &Trail<'_>, message: impl fmt::Display) {
        let path = trail.to_string();
        self.0.push(if path.is_empty() { message.to_string() } else { format!("{path}: {message}") });
    }
}

impl fmt::Display for TypeErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => f.write_str(one),
            many => {
                f.write_str("errors:")?;
                many.iter().try_for_each(|error| write!(f, "\n  {error}"))
            }
        }
    }
}

/// Checks what was applied: types, declared fields, keys of list items, no item twice.
pub(crate) fn validate(node: Node<'_>, value: &Value) -> Result<(), TypeErrors> {
    let mut errors = TypeErrors::default();
    check(node, value, &Trail::ROOT, &mut errors);
    if errors.0.is_empty() { Ok(()) } else { Err(errors) }
}

fn check(node: Node<'_>, value: &Value, trail: &Trail<'_>, errors: &mut TypeErrors) {
    if value.is_null() {
        return;
    }
    match (node.form(value), value) {
        (Form::Map, Value::Object(fields)) => check_fields(node, fields, trail, errors),
        (Form::List, Value::Array(items)) => check_items(node, items, trail, errors),
        (Form::Map, other) => errors.push(trail, format_args!("expected map, got {}", pointed(other))),
        (Form::List, other) => errors.push(trail, format_args!("expected list, got {}", pointed(other))),
        (Form::Scalar, scalar) => check_scalar(node.scalar(), scalar, trail, errors),
    }
}

fn check_scalar(expected: Scalar, value: &Value, trail: &Trail<'_>, errors: &mut TypeErrors) {
    match expected {
        Scalar::Numeric if !value.is_number() => errors
            .push(trail, format_args!("expected numeric (int or float), got {}", wording::type_name(value))),
        Scalar::String if !value.is_string() => errors.push(
            trail,
            format_args!(
                "expected string, got &value.valueUnstructured{{Value:{}}}",
                wording::detailed(value)
            ),
        ),
        Scalar::Boolean if !value.is_boolean() => {
            errors.push(trail, format_args!("expected boolean, got {}", pointed(value)));
        }
        Scalar::Any if value.is_array() || value.is_object() => {
            errors.push(trail, format_args!("expected any scalar, got {}", pointed(value)));
        }
        _ => {}
    }
}

fn check_items(node: Node<'_>, items: &[Value], trail: &Trail<'_>, errors: &mut TypeErrors) {
    let child = node.item();
    if node.atomic_list() {
        for (i, item) in items.iter().enumerate() {
            let element = PathElement::Index(i64::try_from(i).unwrap_or(i64::MAX));
            check(child, item, &trail.to(&element), errors);
        }
        return;
    }
    let mut seen = BTreeSet::new();
    for (i, item) in items.iter().enumerate() {
        let element = match node.element(item) {
            Ok(element) => element,
            Err(message) => {
                errors.push(trail, format_args!("element {i}: {message}"));
                return;
            }
        };
        check(child, item, &trail.to(&element), errors);
        if let Some(again) = seen.replace(element) {
            errors.push(trail, format_args!("duplicate entries for key {again}"));
        }
    }
}

fn check_fields(node: Node<'_>, fields: &Map<String, Value>, trail: &Trail<'_>, errors: &mut TypeErrors) {
    for (name, value) in fields {
        let element = PathElement::Field(Cow::Borrowed(name));
        let trail = trail.to(&element);
        match node.field(name).or_else(|| node.undeclared()) {
            Some(child) => check(child, value, &trail, errors),
            None => {
                errors.push(&trail, "field not declared in schema");
                return;
            }
        }
    }
}

fn pointed(value: &Value) -> String {
    format!("&{{{}}}", wording::plain(value))
}
