//! What stands in the way of an apply that the server refused.
//!
//! An apply merges: what others wrote beside our fields stays. Where both together are no valid object (two ports of one
//! name, two handlers of one probe), the server refuses the whole, and an apply can't take away what was never the
//! applier's. So what is in the way is first made ours, in `managedFields` alone. The apply that follows does not want
//! it, and so takes it away in the same write that puts ours in its place.
//!
//! **What always holds.** In the way is only what somebody else wrote into the `spec` through the object itself, what
//! we do not want, and what lies right beside a field that the server named. An item of a list has besides to bear the
//! name of one of ours: another container, another port is no obstacle.

use serde_json::{Map, Value};

use super::fields::{Item, Path, Rival, children, comparable, enter};

/// What stands in the way of an apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Obstacles {
    /// Whose it is, and where.
    pub rivals: Vec<Rival>,
    /// The live object's `managedFields`, with all of it as ours.
    pub managed_fields: Value,
}

/// What keeps the server from taking what `manager` wants of `live`, where `refused` are the fields that it complained
/// of: `spec.ports[1].name`. `None` where there is nothing.
pub fn obstacles(live: &Value, want: &Value, manager: &str, refused: &[String]) -> Option<Obstacles> {
    let want = comparable(want);
    let mut entries = live.pointer("/metadata/managedFields")?.as_array()?.clone();
    let ours =
        entries.iter().position(|entry| is_by(entry, manager) && text(entry, "operation") == "Apply")?;
    let version = text(&entries[ours], "apiVersion").to_owned();
    let mut search =
        Search { refused: refused.iter().map(|field| names(field)).collect(), found: Vec::new() };
    let mut rivals = Vec::new();
    let mut taken = Vec::new();
    for entry in &mut entries {
        let theirs = text(entry, "manager").to_owned();
        let is_direct = text(entry, "subresource").is_empty() && text(entry, "apiVersion") == version;
        let Some(Value::Object(fields)) =
            entry.get_mut("fieldsV1").filter(|_| is_direct && theirs != manager)
        else {
            continue;
        };
        search.walk(fields, Some(live), &want, &mut Vec::new(), &mut Path::default());
        for (keys, path) in search.found.drain(..) {
            rivals.push(Rival { manager: theirs.clone(), path });
            taken.extend(take(fields, &keys).map(|node| (keys, node)));
        }
    }
    if rivals.is_empty() {
        return None;
    }
    let our_fields = entries.get_mut(ours)?.get_mut("fieldsV1")?.as_object_mut()?;
    for (keys, node) in taken {
        give(our_fields, &keys, node);
    }
    entries.retain(|entry| entry.get("fieldsV1").is_none_or(|fields| !children(fields).is_empty()));
    rivals.sort();
    rivals.dedup();
    Some(Obstacles { rivals, managed_fields: Value::Array(entries) })
}

fn text<'v>(entry: &'v Value, name: &str) -> &'v str {
    entry.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn is_by(entry: &Value, manager: &str) -> bool {
    text(entry, "manager") == manager && text(entry, "subresource").is_empty()
}

/// The names of the fields on the way to one, without the places in lists: `spec`, `ports`, `name`.
fn names(field: &str) -> Vec<String> {
    let outside = field.split('[').map(|part| part.split_once(']').map_or(part, |(_, after)| after));
    let plain: String = outside.collect();
    plain.split('.').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

struct Search {
    /// What the server complained of.
    refused: Vec<Vec<String>>,
    /// What is in the way: its keys in `fieldsV1`, and its path.
    found: Vec<(Vec<String>, String)>,
}

impl Search {
    /// Goes as deep as what somebody wrote is also wanted. Where it is not, it is looked at whole.
    fn walk(
        &mut self,
        fields: &Map<String, Value>,
        live: Option<&Value>,
        want: &Value,
        keys: &mut Vec<String>,
        path: &mut Path,
    ) {
        for (key, child) in fields {
            let Some((part, live, wanted)) = enter(key, live, Some(want)) else { continue };
            keys.push(key.clone());
            path.push(part);
            match wanted {
                Some(wanted) => self.walk(children(child), live, wanted, keys, path),
                None if self.is_in_the_way(keys, live, want) => self.found.push((keys.clone(), path.text())),
                None => {}
            }
            path.pop();
            keys.pop();
        }
    }

    fn is_in_the_way(&self, keys: &[String], live: Option<&Value>, beside: &Value) -> bool {
        let names: Vec<&str> = keys.iter().filter_map(|key| key.strip_prefix("f:")).collect();
        let Some(key) = keys.last().filter(|_| names.first() == Some(&"spec")) else { return false };
        let place = match Item::parse(key) {
            None => names.split_last().map(|(_, place)| place).unwrap_or_default(),
            Some(Item::Keys(known)) if !known.contains_key("name") && is_namesake(live, beside) => {
                names.as_slice()
            }
            Some(_) => return false,
        };
        self.refused.iter().any(|field| {
            let around = field.split_last().map(|(_, around)| around).unwrap_or_default();
            place == field.as_slice() || place == around
        })
    }
}

/// Whether an item bears the name of one that is wanted.
fn is_namesake(item: Option<&Value>, wanted: &Value) -> bool {
    let name = item.and_then(|item| item.get("name"));
    name.is_some() && wanted.as_array().into_iter().flatten().any(|wanted| wanted.get("name") == name)
}

/// Takes a node out of a tree, and what is empty then with it.
fn take(fields: &mut Map<String, Value>, keys: &[String]) -> Option<Value> {
    let (first, rest) = keys.split_first()?;
    if rest.is_empty() {
        return fields.remove(first);
    }
    let child = fields.get_mut(first)?.as_object_mut()?;
    let taken = take(child, rest);
    if child.is_empty() {
        fields.remove(first);
    }
    taken
}

/// Puts a node into a tree.
fn give(fields: &mut Map<String, Value>, keys: &[String], node: Value) {
    let Some((first, rest)) = keys.split_first() else {
        if let Value::Object(node) = node {
            for (key, child) in node {
                give(fields, &[key], child);
            }
        }
        return;
    };
    let child = fields.entry(first.clone()).or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(child) = child {
        give(child, rest, node);
    }
}
