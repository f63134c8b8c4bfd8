//! What two versions of an object differ in.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::{Map, Value};

use super::TypeErrors;
use crate::{
    fields::{FieldSet, PathElement, Trail},
    node::{Form, Node},
    value,
};

/// The fields that one version has and the other has not, or has with another value. No field is
/// in two of the sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) removed: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) added: FieldSet,
}

impl Changes {
    pub(crate) fn without(mut self, ignore: &FieldSet) -> Self {
        self.removed.subtract_trees(ignore);
        self.modified.subtract_trees(ignore);
        self.added.subtract_trees(ignore);
        self
    }
}

/// Compares two versions of an object. Items of a list that occur twice are compared as one
/// value.
///
/// # Errors
///
/// When an item of a list map or set can't be told apart from the others.
pub(crate) fn compare(node: Node<'_>, old: &Value, new: &Value) -> Result<Changes, TypeErrors> {
    let mut changes = Changes::default();
    walk(node, Some(old), Some(new), &Trail::ROOT, &mut changes)?;
    Ok(changes)
}

fn walk(
    node: Node<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
    trail: &Trail<'_>,
    changes: &mut Changes,
) -> Result<(), TypeErrors> {
    let leaf = match (old, new) {
        (None, None) => return Ok(()),
        (Some(value), None) | (None, Some(value)) => {
            handle(node, node.form(value), old, new, trail, changes)?
        }
        (Some(old_value), Some(new_value)) => {
            let (old_form, new_form) = (node.form(old_value), node.form(new_value));
            if old_form != new_form {
                handle(node, old_form, old, new, trail, changes)?;
            }
            handle(node, new_form, old, new, trail, changes)?
        }
    };
    if !leaf {
        match (old, new) {
            (None, _) => changes.added.insert(trail.steps()),
            (_, None) => changes.removed.insert(trail.steps()),
            _ => {}
        }
    }
    Ok(())
}

/// Compares values as `form`; says whether they were one value.
fn handle(
    node: Node<'_>,
    form: Form,
    old: Option<&Value>,
    new: Option<&Value>,
    trail: &Trail<'_>,
    changes: &mut Changes,
) -> Result<bool, TypeErrors> {
    match form {
        Form::Scalar => {}
        Form::List => {
            let old_items = old.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let new_items = new.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let both_empty = old_items.is_empty() && new_items.is_empty();
            if !node.atomic_list() && !both_empty {
                return items(node, old_items, new_items, trail, changes).map(|()| false);
            }
        }
        Form::Map => {
            let old_fields = old.and_then(Value::as_object).filter(|fields| !fields.is_empty());
            let new_fields = new.and_then(Value::as_object).filter(|fields| !fields.is_empty());
            if !node.atomic_map() && (old_fields.is_some() || new_fields.is_some()) {
                return fields(node, old_fields, new_fields, trail, changes).map(|()| false);
            }
        }
    }
    match (old, new) {
        (None, _) => changes.added.insert(trail.steps()),
        (_, None) => changes.removed.insert(trail.steps()),
        (Some(old), Some(new)) if !value::equal(old, new) => changes.modified.insert(trail.steps()),
        _ => {}
    }
    Ok(true)
}

fn fields(
    node: Node<'_>,
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    trail: &Trail<'_>,
    changes: &mut Changes,
) -> Result<(), TypeErrors> {
    let mut visit = |name: &str, old: Option<&Value>, new: Option<&Value>| {
        if node.skips(name) {
            return Ok(());
        }
        let element = PathElement::Field(Cow::Borrowed(name));
        walk(node.child(name), old, new, &trail.to(&element), changes)
    };
    for (name, old_value) in old.into_iter().flatten() {
        visit(name, Some(old_value), new.and_then(|new| new.get(name)))?;
    }
    for (name, new_value) in new.into_iter().flatten() {
        if old.is_none_or(|old| !old.contains_key(name)) {
            visit(name, None, Some(new_value))?;
        }
    }
    Ok(())
}

fn items(
    node: Node<'_>,
    old: &[Value],
    new: &[Value],
    trail: &Trail<'_>,
    changes: &mut Changes,
) -> Result<(), TypeErrors> {
    let mut sides: BTreeMap<PathElement<'_>, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    let element = |i: usize, item| {
        node.element(item).map_err(|message| TypeErrors::at(trail, format_args!("element {i}: {message}")))
    };
    for (i, item) in old.iter().enumerate() {
        sides.entry(element(i, item)?).or_default().0.push(item);
    }
    for (i, item) in new.iter().enumerate() {
        sides.entry(element(i, item)?).or_default().1.push(item);
    }
    let child = node.item();
    for (element, (old, new)) in &sides {
        let trail = trail.to(element);
        match (old.as_slice(), new.as_slice()) {
            ([] | [_], [] | [_]) => {
                walk(child, old.first().copied(), new.first().copied(), &trail, changes)?;
            }
            ([_, _, ..], [_, _, ..]) => {
                let same = old.len() == new.len() && old.iter().zip(new).all(|(o, n)| value::equal(o, n));
                if !same {
                    changes.modified.insert(trail.steps());
                }
            }
            // What occurred twice and no longer does is new, field by field; and the reverse.
            ([_, _, ..], _) => {
                walk(child, None, new.first().copied(), &trail, changes)?;
                changes.removed.insert(trail.steps());
            }
            (_, _) => {
                walk(child, old.first().copied(), None, &trail, changes)?;
                changes.added.insert(trail.steps());
            }
        }
    }
    Ok(())
}
