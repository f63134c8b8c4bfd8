//! Strategic merge patch: a merge patch that knows which lists are merged, and by which key.
//!
//! Directives in the patch say what a merge can't: `$patch: delete` and `replace`,
//! `$retainKeys`, `$setElementOrder/list`, `$deleteFromPrimitiveList/list`.
//!
//! **Deliberately absent:** custom resources. Kubernetes refuses the patch for them, and so does
//! the caller, who knows what kind it is.

use drydock_schema::Schema;
use serde_json::{Map, Value};

use super::PatchError;
use crate::{node::Node, wording};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";

/// The object with the patch merged in.
///
/// # Errors
///
/// When a directive is not one, a list item lacks its merge key, or an order contradicts the
/// patch.
pub fn strategic(schema: &Schema, live: &Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Object(patch) = patch else {
        return Err(PatchError::BadRequest(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            wording::json_kind(patch)
        )));
    };
    let live = live.as_object().cloned().unwrap_or_default();
    merge_objects(Node::root(schema), live, patch.clone()).map(Value::Object)
}

type Fields = Map<String, Value>;

fn merge_objects(node: Node<'_>, mut live: Fields, mut patch: Fields) -> Result<Fields, PatchError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Fields::new()),
            _ => Err(unknown_directive(directive, &patch)),
        };
    }
    retain_keys(&mut live, &mut patch)?;
    set_element_orders(node, &mut live, &mut patch)?;
    for (name, value) in patch {
        if name.starts_with(DELETE_FROM_PRIMITIVE_LIST) {
            let list = extract_name(&name, DELETE_FROM_PRIMITIVE_LIST)
                .ok_or_else(|| PatchError::BadRequest("invalid patch format of primitive list".to_owned()))?;
            match (live.get_mut(list), value) {
                (_, Value::Null) => {
                    live.remove(list);
                }
                (Some(Value::Array(items)), Value::Array(gone)) => {
                    element_type(items, &gone)?;
                    items.retain(|item| !gone.contains(item));
                }
                _ => {}
            }
            continue;
        }
        if value.is_null() {
            live.remove(&name);
            continue;
        }
        let merged = match (live.remove(&name), value) {
            (Some(Value::Object(live)), Value::Object(patch)) => {
                let child = child(node, &name)?;
                Some(Value::Object(merge_objects(child, live, patch)?))
            }
            (Some(Value::Array(live)), Value::Array(patch)) => {
                let child = child(node, &name)?;
                Some(Value::Array(merge_lists(child, live, patch)?))
            }
            (_, value) => without_directives(value, true),
        };
        if let Some(merged) = merged {
            live.insert(name, merged);
        }
    }
    Ok(live)
}

fn child<'a>(node: Node<'a>, name: &str) -> Result<Node<'a>, PatchError> {
    if let Some(child) = node.field(name) {
        return Ok(child);
    }
    if node.is_struct() {
        return Err(PatchError::Internal(format!(
            "unable to find api field in struct {} for the json field {}",
            node.type_name(),
            wording::quoted(name)
        )));
    }
    Err(PatchError::Internal(
        "merging an object in json but data type is not struct, instead is: map".to_owned(),
    ))
}

/// Drops the live fields that `$retainKeys` does not name.
fn retain_keys(live: &mut Fields, patch: &mut Fields) -> Result<(), PatchError> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad = || PatchError::BadRequest("invalid patch format of retainKeys".to_owned());
    let Value::Array(kept) = directive else { return Err(bad()) };
    let is_kept = |name: &str| kept.iter().any(|key| key.as_str() == Some(name));
    let is_directive =
        |name: &str| name.starts_with(DELETE_FROM_PRIMITIVE_LIST) || name.starts_with(SET_ELEMENT_ORDER);
    if patch.iter().any(|(name, value)| !value.is_null() && !is_directive(name) && !is_kept(name)) {
        return Err(bad());
    }
    live.retain(|name, _| is_kept(name));
    Ok(())
}

/// Merges the lists whose order the patch gives, and puts them in that order.
fn set_element_orders(node: Node<'_>, live: &mut Fields, patch: &mut Fields) -> Result<(), PatchError> {
    let directives: Vec<String> =
        patch.keys().filter(|name| name.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let Some(order) = patch.remove(&directive) else { continue };
        let Value::Array(order) = order else { return Err(expected_list(&order)) };
        let name = extract_name(&directive, SET_ELEMENT_ORDER).ok_or_else(bad_order)?;
        let child = child(node, name)?;
        let key = child.patch().merge_key.as_deref();
        let before = match live.get(name) {
            None => None,
            Some(Value::Array(items)) => Some(items.clone()),
            Some(other) => return Err(expected_list(other)),
        };
        let changes = match patch.get(name) {
            None => None,
            Some(Value::Array(items)) => Some(items.clone()),
            Some(other) => return Err(expected_list(other)),
        };
        check_order(changes.as_deref().unwrap_or_default(), &order, key)?;
        let server_order = before.clone().unwrap_or_default();
        element_type(&server_order, changes.as_deref().unwrap_or_default())?;
        let merged = match (before, changes) {
            (Some(before), None) => before,
            (None, Some(changes)) => match without_directives(Value::Array(changes), false) {
                Some(Value::Array(items)) => items,
                _ => continue,
            },
            (Some(before), Some(changes)) => merge_lists(child, before, changes)?,
            (None, None) => continue,
        };
        let ordered = put_in_order(merged, &order, &server_order, key)?;
        live.insert(name.to_owned(), Value::Array(ordered));
        patch.remove(name);
    }
    Ok(())
}

/// The items of the patch have to be in the order that it gives itself.
fn check_order(changes: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if changes.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in changes.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let wanted = identity(item, key)?;
        loop {
            let Some(next) = rest.next() else {
                return Err(PatchError::Internal(format!(
                    "The order in patch list:\n{}\n doesn't match {SET_ELEMENT_ORDER} list:\n{}\n",
                    wording::plain(&Value::Array(changes.to_vec())),
                    wording::plain(&Value::Array(order.to_vec()))
                )));
            };
            if identity(next, key)? == wanted {
                break;
            }
        }
    }
    Ok(())
}

fn merge_lists(node: Node<'_>, mut live: Vec<Value>, patch: Vec<Value>) -> Result<Vec<Value>, PatchError> {
    let strategy = node.patch();
    if !strategy.merge {
        return Ok(patch);
    }
    if live.is_empty() && patch.is_empty() {
        return Ok(live);
    }
    if !element_type(&live, &patch)? {
        let server_order = live.clone();
        for item in &patch {
            if !live.contains(item) {
                live.push(item.clone());
            }
        }
        return put_in_order(live, &patch, &server_order, None);
    }
    let Some(key) = strategy.merge_key.as_deref() else {
        return Err(PatchError::Internal("cannot merge lists without merge key for struct".to_owned()));
    };
    let (mut live, patch) = list_directives(live, patch, key)?;
    let server_order = live.clone();
    let child = node.item();
    for change in &patch {
        let wanted = identity(change, Some(key))?;
        let Value::Object(fields) = change else { return Err(expected_map(change)) };
        match live.iter_mut().find(|item| item.get(key) == Some(wanted)) {
            Some(item) => {
                let before = item.as_object_mut().map(std::mem::take).unwrap_or_default();
                *item = Value::Object(merge_objects(child, before, fields.clone())?);
            }
            None => live.extend(without_nulls(change.clone())),
        }
    }
    put_in_order(live, &patch, &server_order, Some(key))
}

/// Carries out the `$patch` items of a list; what is left is to be merged.
fn list_directives(
    mut live: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut replace = false;
    let mut rest = Vec::with_capacity(patch.len());
    for item in patch {
        let Value::Object(fields) = &item else { return Err(expected_map(&item)) };
        match fields.get(DIRECTIVE) {
            None => rest.push(item),
            Some(directive) => match directive.as_str() {
                Some("delete") => {
                    let gone = identity(&item, Some(key))?;
                    live.retain(|item| item.get(key) != Some(gone));
                }
                Some("replace") => replace = true,
                Some("merge") => {
                    return Err(PatchError::Internal(
                        "merging lists cannot yet be specified in the patch".to_owned(),
                    ));
                }
                _ => return Err(unknown_directive(directive, fields)),
            },
        }
    }
    Ok(if replace { (rest, Vec::new()) } else { (live, rest) })
}

/// Items of the patch in its order, the others in the order they had; the two are interleaved
/// as the live list had them, as far as that is possible.
fn put_in_order(
    items: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    for item in items.iter().chain(patch_order).chain(server_order) {
        identity(item, key)?;
    }
    let same = |a: &Value, b: &Value| match key {
        Some(key) => a.get(key) == b.get(key),
        None => a == b,
    };
    let place = |order: &[Value], item: &Value| order.iter().position(|other| same(other, item));
    let (mut patched, mut others): (Vec<Value>, Vec<Value>) =
        items.into_iter().partition(|item| place(patch_order, item).is_some());
    patched.sort_by_key(|item| place(patch_order, item));
    others.sort_by_key(|item| place(server_order, item));

    let mut out = Vec::with_capacity(patched.len() + others.len());
    let mut patched = patched.into_iter().peekable();
    for other in others {
        let at = place(server_order, &other);
        while let Some(next) = patched.peek() {
            let first = match (at, place(server_order, next)) {
                (Some(other), Some(next)) => other < next,
                _ => false,
            };
            if first {
                break;
            }
            out.extend(patched.next());
        }
        out.push(other);
    }
    out.extend(patched);
    Ok(out)
}

/// Whether the items of the lists are objects; all have to be of one type.
fn element_type(left: &[Value], right: &[Value]) -> Result<bool, PatchError> {
    let mut items = left.iter().chain(right);
    let Some(first) = items.next() else { return Ok(false) };
    if first.is_array() {
        return Err(PatchError::Unprocessable("lists of lists are not supported".to_owned()));
    }
    if items.any(|item| wording::type_name(item) != wording::type_name(first)) {
        let lists = Value::Array(vec![Value::Array(left.to_vec()), Value::Array(right.to_vec())]);
        return Err(PatchError::Internal(format!(
            "list element types are not identical: {}",
            wording::plain(&lists)
        )));
    }
    Ok(first.is_object())
}

/// What tells an item from the others: the value of its merge key, or itself.
fn identity<'v>(item: &'v Value, key: Option<&str>) -> Result<&'v Value, PatchError> {
    let Some(key) = key else { return Ok(item) };
    let Value::Object(fields) = item else { return Err(expected_map(item)) };
    fields.get(key).ok_or_else(|| {
        PatchError::Internal(format!(
            "map: {} does not contain declared merge key: {key}",
            wording::plain(item)
        ))
    })
}

/// A value that is new to the object. An object with a directive is no value.
fn without_directives(value: Value, drop_nulls: bool) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => Some(Value::Object(
            fields
                .into_iter()
                .filter(|(_, value)| !(drop_nulls && value.is_null()))
                .filter_map(|(name, value)| Some((name, without_directives(value, drop_nulls)?)))
                .collect(),
        )),
        Value::Array(items) => Some(Value::Array(
            items.into_iter().filter_map(|item| without_directives(item, drop_nulls)).collect(),
        )),
        scalar => Some(scalar),
    }
}

/// A list item that is new: its nulls mean nothing.
fn without_nulls(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) => Some(Value::Object(
            fields
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .filter_map(|(name, value)| Some((name, without_nulls(value)?)))
                .collect(),
        )),
        other => Some(other),
    }
}

fn extract_name<'n>(directive: &'n str, prefix: &str) -> Option<&'n str> {
    directive.split_once('/').filter(|(before, _)| *before == prefix).map(|(_, name)| name)
}

fn bad_order() -> PatchError {
    PatchError::BadRequest("invalid patch format of setElementOrder list".to_owned())
}

fn unknown_directive(directive: &Value, fields: &Fields) -> PatchError {
    let fields = wording::plain(&Value::Object(fields.clone()));
    PatchError::Internal(format!("unknown patch type: {} in map: {fields}", wording::plain(directive)))
}

fn expected_list(value: &Value) -> PatchError {
    PatchError::Internal(format!("expected a []interface {{}}, but received a {}", wording::type_name(value)))
}

fn expected_map(value: &Value) -> PatchError {
    PatchError::Internal(format!(
        "expected a map[string]interface {{}}, but received a {}",
        wording::type_name(value)
    ))
}
