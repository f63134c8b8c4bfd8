//! An object without some of its fields.

use std::borrow::Cow;

use serde_json::Value;

use crate::{
    fields::{FieldSet, PathElement},
    node::{Form, Node},
};

/// Takes the fields and list items of `set` out of `value`. An object or list that this empties
/// becomes `null`.
pub(crate) fn remove(node: Node<'_>, value: &mut Value, set: &FieldSet) {
    if set.is_empty() {
        return;
    }
    let empty = match (node.form(value), &mut *value) {
        (Form::Scalar, _) => false,
        (Form::List, Value::Array(items)) if !node.atomic_list() => {
            let child = node.item();
            items.retain_mut(|item| {
                let (gone, below) = match node.element(item) {
                    Ok(element) => match set.get(&element) {
                        Some(branch) => (branch.member, Some(&branch.below)),
                        None => (false, None),
                    },
                    Err(_) => (false, None),
                };
                if let (false, Some(below)) = (gone, below) {
                    remove(child, item, below);
                }
                !gone
            });
            items.is_empty()
        }
        (Form::Map, Value::Object(fields)) if !node.atomic_map() => {
            fields.retain(|name, value| {
                let Some(branch) = set.get(&PathElement::Field(Cow::Borrowed(name))) else { return true };
                if branch.member {
                    return false;
                }
                remove(node.child(name), value, &branch.below);
                true
            });
            fields.is_empty()
        }
        _ => true,
    };
    if empty {
        *value = Value::Null;
    }
}
