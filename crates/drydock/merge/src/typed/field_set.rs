//! The fields that a value names.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::Value;

use crate::{
    fields::{FieldSet, PathElement},
    node::{Form, Node},
};

/// Every leaf, list item and map key of an object. Items that can't be told apart are left out;
/// an item that occurs twice is there without its fields.
pub(crate) fn field_set(node: Node<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::new();
    collect(node, value, &mut set);
    set
}

/// Adds what is below `value` to `set`; says whether `value` itself is a leaf.
fn collect(node: Node<'_>, value: &Value, set: &mut FieldSet) -> bool {
    match (node.form(value), value) {
        (Form::Scalar, _) => true,
        (Form::List, _) if node.atomic_list() => true,
        (Form::Map, _) if node.atomic_map() => true,
        (Form::List, Value::Array(items)) => {
            let mut count: BTreeMap<PathElement<'_>, (usize, &Value)> = BTreeMap::new();
            for item in items {
                if let Ok(element) = node.element(item) {
                    count.entry(element).and_modify(|(n, _)| *n += 1).or_insert((1, item));
                }
            }
            let child = node.item();
            for (element, (n, item)) in count {
                let branch = set.branch_mut(element);
                branch.member = true;
                if n == 1 {
                    collect(child, item, &mut branch.below);
                }
            }
            false
        }
        (Form::Map, Value::Object(fields)) => {
            for (name, value) in fields {
                if node.skips(name) {
                    continue;
                }
                let declared = node.field(name);
                let child = declared.unwrap_or_else(|| node.child(name));
                let mut below = FieldSet::new();
                let leaf = collect(child, value, &mut below);
                let empty = value.is_null() || value.as_object().is_some_and(|v| v.is_empty());
                if leaf || empty || declared.is_none() || !below.is_empty() {
                    let branch = set.branch_mut(PathElement::Field(Cow::Borrowed(name)));
                    branch.member = leaf || empty || declared.is_none();
                    branch.below = below;
                }
            }
            false
        }
        _ => false,
    }
}

/// Brings a set that was written under another schema up to this one: where an object or a list
/// has since become one value, owning a part of it is owning it.
pub(crate) fn reconcile(node: Node<'_>, set: &mut FieldSet) {
    for branch in &mut set.branches {
        let child = match &branch.element {
            PathElement::Field(name) => match node.field(name).or_else(|| node.undeclared()) {
                Some(child) => child,
                None => continue,
            },
            _ => node.item(),
        };
        let atomic = (child.is_array() && child.atomic_list())
            || ((child.is_object() || child.untyped()) && child.atomic_map());
        if atomic {
            if !branch.below.is_empty() {
                branch.member = true;
                branch.below = FieldSet::new();
            }
        } else if !branch.below.is_empty() {
            reconcile(child, &mut branch.below);
        }
    }
}
