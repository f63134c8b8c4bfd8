//! What was applied, put into what is there.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde_json::{Map, Value};

use super::TypeErrors;
use crate::{
    fields::{PathElement, Trail},
    node::{Form, Node},
};

/// The live value with everything from `applied` in it. Nothing is removed; where both have a
/// leaf, the applied one stays. Items of list maps and sets keep the live order, except that
/// applied items keep theirs among each other.
///
/// # Errors
///
/// When an item of a list map or set can't be told apart from the others.
pub(crate) fn merge(node: Node<'_>, live: &Value, applied: &Value) -> Result<Value, TypeErrors> {
    values(node, live, applied, &Trail::ROOT)
}

fn values(node: Node<'_>, live: &Value, applied: &Value, trail: &Trail<'_>) -> Result<Value, TypeErrors> {
    match node.form(applied) {
        Form::Scalar => {}
        Form::List if node.atomic_list() => {}
        Form::Map if node.atomic_map() => {}
        Form::List => match (live, applied) {
            (Value::Array(live), Value::Array(applied)) if !live.is_empty() && !applied.is_empty() => {
                return items(node, live, applied, trail).map(Value::Array);
            }
            (Value::Array(items), Value::Array(_) | Value::Null) if !items.is_empty() => {
                return Ok(live.clone());
            }
            _ => {}
        },
        Form::Map => match (live, applied) {
            (Value::Object(live), Value::Object(applied)) if !live.is_empty() && !applied.is_empty() => {
                return fields(node, live, applied, trail).map(Value::Object);
            }
            (Value::Object(fields), Value::Object(_) | Value::Null) if !fields.is_empty() => {
                return Ok(live.clone());
            }
            _ => {}
        },
    }
    Ok(applied.clone())
}

fn fields(
    node: Node<'_>,
    live: &Map<String, Value>,
    applied: &Map<String, Value>,
    trail: &Trail<'_>,
) -> Result<Map<String, Value>, TypeErrors> {
    let mut out = Map::new();
    for (name, live_value) in live {
        if node.skips(name) {
            continue;
        }
        let merged = match applied.get(name) {
            Some(applied_value) => {
                let element = PathElement::Field(Cow::Borrowed(name));
                values(node.child(name), live_value, applied_value, &trail.to(&element))?
            }
            None => live_value.clone(),
        };
        out.insert(name.clone(), merged);
    }
    for (name, applied_value) in applied {
        if !live.contains_key(name) && !node.skips(name) {
            out.insert(name.clone(), applied_value.clone());
        }
    }
    Ok(out)
}

/// A list with its items' elements, and for each element the item, where it is the only one.
struct Indexed<'v> {
    elements: Vec<PathElement<'v>>,
    items: BTreeMap<PathElement<'v>, Option<&'v Value>>,
}

impl<'v> Indexed<'v> {
    fn of<'a: 'v>(
        node: Node<'a>,
        list: &'v [Value],
        duplicates: bool,
        trail: &Trail<'_>,
    ) -> Result<Self, TypeErrors> {
        let mut elements = Vec::with_capacity(list.len());
        let mut items = BTreeMap::new();
        for (i, item) in list.iter().enumerate() {
            let element = node
                .element(item)
                .map_err(|message| TypeErrors::at(trail, format_args!("element {i}: {message}")))?;
            if let Some(entry) = items.get_mut(&element) {
                if !duplicates {
                    return Err(TypeErrors::at(trail, format_args!("duplicate entries for key {element}")));
                }
                *entry = None;
            } else {
                items.insert(element.clone(), Some(item));
            }
            elements.push(element);
        }
        Ok(Self { elements, items })
    }

    fn has(&self, element: &PathElement<'_>) -> bool {
        self.items.contains_key(element)
    }

    fn item(&self, element: &PathElement<'_>) -> Option<&'v Value> {
        self.items.get(element).copied().flatten()
    }
}

fn items(
    node: Node<'_>,
    live: &[Value],
    applied: &[Value],
    trail: &Trail<'_>,
) -> Result<Vec<Value>, TypeErrors> {
    let ours = Indexed::of(node, applied, false, trail)?;
    let theirs = Indexed::of(node, live, true, trail)?;
    let child = node.item();
    let merged = |element: &PathElement<'_>| -> Result<Value, TypeErrors> {
        match (theirs.item(element), ours.item(element)) {
            (Some(live), Some(applied)) => values(child, live, applied, &trail.to(element)),
            (_, Some(applied)) => Ok(applied.clone()),
            (live, None) => Ok(live.cloned().unwrap_or_default()),
        }
    };

    // The items that both have, in the order that was applied: the next of them is the one that
    // a live item has to wait for.
    let mut shared = ours.elements.iter().filter(|element| theirs.has(element));
    let mut next = shared.next();
    let mut done = BTreeSet::new();
    let mut out = Vec::with_capacity(live.len().max(applied.len()));
    let (mut at, mut ours_at) = (0, 0);
    loop {
        let theirs_now = theirs.elements.get(at);
        let ours_now = ours.elements.get(ours_at);
        if let (Some(their), Some(our)) = (theirs_now, ours_now) {
            if their == our {
                out.push(merged(our)?);
                done.insert(our);
                at += 1;
                ours_at += 1;
                next = shared.next();
                continue;
            }
            if ours.has(their) && next.is_some_and(|next| next != their) {
                at += 1;
                continue;
            }
        }
        if let Some(their) = theirs_now {
            if !ours.has(their) {
                out.extend(live.get(at).cloned());
                at += 1;
                continue;
            }
            if done.contains(their) {
                at += 1;
            }
        }
        match ours_now {
            Some(our) => {
                out.push(merged(our)?);
                done.insert(our);
                ours_at += 1;
                if next == Some(our) {
                    next = shared.next();
                }
            }
            None if theirs_now.is_none() => return Ok(out),
            None => {}
        }
    }
}
