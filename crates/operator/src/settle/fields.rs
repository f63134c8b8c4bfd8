//! What a field manager owns on a live object, held against what is wanted.
//!
//! `fieldsV1` is a tree. A key `f:name` is a field, `k:{…}` the item of a list that has these keys, `v:…` the
//! item of a set, `i:n` an item by place, `.` the thing itself. A node without children is owned whole. The three
//! trees (what is owned, what is live, what is wanted) are walked together.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::{Difference, differences::identity, same};

/// Someone else whose value an apply by force would replace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rival {
    /// The field manager: `kubectl-edit`.
    pub manager: String,
    /// The field: `.spec.replicas`.
    pub path: String,
}

/// Compares what `manager` owns on `live` through apply with what it wants. `None` when both are the same set of
/// fields with the same values; otherwise the fields that would be different, of which there may be none when
/// only ownership would change.
pub fn compare(
    live: &Value,
    want: &Value,
    manager: &str,
    subresource: Option<&str>,
) -> Option<Vec<Difference>> {
    let want = comparable(want);
    let owned = entries(live)
        .find(|entry| entry.manager == manager && entry.applies && entry.subresource == subresource)
        .map(|entry| entry.fields);
    let mut walk = Walk { differences: Vec::new() };
    match owned {
        Some(fields) => walk.node(fields, Some(live), Some(&want), &mut Path::default()),
        // Nothing is ours yet: everything wanted is to be taken.
        None => walk.take(live, &want, &mut Path::default()),
    }
    walk.differences.sort_by(|a, b| a.path.cmp(&b.path));
    if walk.differences.is_empty() { None } else { Some(walk.differences) }
}

/// Who else wrote fields of `live` that `manager` would replace with what it wants. Also through a subresource:
/// `kubectl scale` and autoscalers write `.spec.replicas` through `scale`.
pub fn rivals(live: &Value, want: &Value, manager: &str) -> Vec<Rival> {
    let want = comparable(want);
    let mut rivals: Vec<Rival> = entries(live)
        .filter(|entry| entry.manager != manager)
        .flat_map(|entry| {
            let mut contested = Vec::new();
            contested_leaves(entry.fields, Some(live), Some(&want), &mut Path::default(), &mut contested);
            contested.into_iter().map(move |path| Rival { manager: entry.manager.to_owned(), path })
        })
        .collect();
    rivals.sort();
    rivals.dedup();
    rivals
}

/// What is wanted, without what no manager owns: the object's identity and what the server writes itself.
pub(super) fn comparable(want: &Value) -> Value {
    let mut want = without_nulls(want);
    if let Value::Object(map) = &mut want {
        map.remove("apiVersion");
        map.remove("kind");
        let emptied = map.get_mut("metadata").and_then(Value::as_object_mut).is_some_and(|metadata| {
            for name in [
                "name",
                "namespace",
                "uid",
                "resourceVersion",
                "generation",
                "creationTimestamp",
                "selfLink",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "managedFields",
            ] {
                metadata.remove(name);
            }
            metadata.is_empty()
        });
        if emptied {
            map.remove("metadata");
        }
    }
    want
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), without_nulls(v))).collect(),
        ),
        Value::Array(list) => Value::Array(list.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

struct Entry<'v> {
    manager: &'v str,
    applies: bool,
    subresource: Option<&'v str>,
    fields: &'v Map<String, Value>,
}

fn entries(live: &Value) -> impl Iterator<Item = Entry<'_>> {
    live.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten().filter_map(
        |entry| {
            Some(Entry {
                manager: entry.get("manager")?.as_str()?,
                applies: entry.get("operation")?.as_str()? == "Apply",
                subresource: entry.get("subresource").and_then(Value::as_str).filter(|name| !name.is_empty()),
                fields: entry.get("fieldsV1")?.as_object()?,
            })
        },
    )
}

/// A path as Kubernetes prints it in conflicts.
#[derive(Default)]
pub(super) struct Path(Vec<String>);

impl Path {
    pub(super) fn push(&mut self, part: String) {
        self.0.push(part);
    }

    pub(super) fn pop(&mut self) {
        self.0.pop();
    }

    pub(super) fn text(&self) -> String {
        self.0.concat()
    }

    /// The name of the field that the path ends in, for what depends on it.
    fn field(&self) -> &str {
        self.0.iter().rev().find_map(|part| part.strip_prefix('.')).unwrap_or_default()
    }

    /// The name of the field around that one.
    fn parent(&self) -> &str {
        self.0.iter().rev().filter_map(|part| part.strip_prefix('.')).nth(1).unwrap_or_default()
    }

    /// What `same` needs to know of the place: `limits` for `.resources.limits.cpu`.
    fn place(&self) -> String {
        format!("{}.{}", self.parent(), self.field())
    }
}

struct Walk {
    differences: Vec<Difference>,
}

impl Walk {
    fn note(&mut self, path: &Path, is: Option<&Value>, becomes: Option<&Value>) {
        self.differences.push(Difference { path: path.text(), is: is.cloned(), becomes: becomes.cloned() });
    }

    fn node(
        &mut self,
        fields: &Map<String, Value>,
        live: Option<&Value>,
        want: Option<&Value>,
        path: &mut Path,
    ) {
        let Some(want) = want else {
            // Owned and no longer wanted: it would go, if it is still there.
            return self.note(path, live, None);
        };
        if fields.keys().all(|key| key == ".") {
            // Owned whole. An item that is only there (`.`) and one that is atomic look alike, and both have to
            // equal what is wanted.
            if live.is_none_or(|live| !same::values(&path.place(), live, want)) {
                self.note(path, live, Some(want));
            }
            return;
        }
        match want {
            Value::Object(map) => self.map(fields, live, map, path),
            Value::Array(list) => self.list(fields, live, list, path),
            scalar => self.note(path, live, Some(scalar)),
        }
    }

    fn map(
        &mut self,
        fields: &Map<String, Value>,
        live: Option<&Value>,
        want: &Map<String, Value>,
        path: &mut Path,
    ) {
        for (key, child) in fields {
            let Some(name) = key.strip_prefix("f:") else { continue };
            path.0.push(format!(".{name}"));
            self.node(children(child), live.and_then(|live| live.get(name)), want.get(name), path);
            path.0.pop();
        }
        for (name, wanted) in want.iter().filter(|(name, _)| !fields.contains_key(&format!("f:{name}"))) {
            path.0.push(format!(".{name}"));
            self.take_from(live.and_then(|live| live.get(name)), wanted, path);
            path.0.pop();
        }
    }

    fn list(&mut self, fields: &Map<String, Value>, live: Option<&Value>, want: &[Value], path: &mut Path) {
        let mut met = vec![false; want.len()];
        for (key, child) in fields {
            let Some(item) = Item::parse(key) else { continue };
            let found = item.find(want);
            if let Some(place) = found {
                met[place] = true;
            }
            let live_items = live.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let live_item = item.find(live_items).and_then(|place| live_items.get(place));
            path.0.push(item.text());
            self.node(children(child), live_item, found.and_then(|place| want.get(place)), path);
            path.0.pop();
        }
        for (place, wanted) in want.iter().enumerate().filter(|(place, _)| !met[*place]) {
            path.0.push(format!("[{}]", identity(wanted, place)));
            self.note(path, None, Some(wanted));
            path.0.pop();
        }
    }

    /// Wanted fields that are not ours yet, whatever the live object says there.
    fn take(&mut self, live: &Value, want: &Value, path: &mut Path) {
        let Value::Object(map) = want else { return self.note(path, Some(live), Some(want)) };
        for (name, wanted) in map {
            path.0.push(format!(".{name}"));
            self.take_from(live.get(name), wanted, path);
            path.0.pop();
        }
    }

    fn take_from(&mut self, live: Option<&Value>, want: &Value, path: &mut Path) {
        match live {
            Some(live @ Value::Object(_)) if want.as_object().is_some_and(|map| !map.is_empty()) => {
                self.take(live, want, path);
            }
            _ => self.note(path, live, Some(want)),
        }
    }
}

fn contested_leaves(
    fields: &Map<String, Value>,
    live: Option<&Value>,
    want: Option<&Value>,
    path: &mut Path,
    contested: &mut Vec<String>,
) {
    let Some(want) = want else { return };
    if fields.keys().all(|key| key == ".") {
        let differs = live.is_none_or(|live| !same::values(&path.place(), live, want));
        // Owning that a map or a list is there is no claim on what is in it.
        let only_there = fields.contains_key(".") && (want.is_object() || want.is_array());
        if differs && !only_there {
            contested.push(path.text());
        }
        return;
    }
    for (key, child) in fields {
        let Some((part, live, want)) = enter(key, live, Some(want)) else { continue };
        path.push(part);
        contested_leaves(children(child), live, want, path, contested);
        path.pop();
    }
}

/// Where a key of `fieldsV1` leads: how it reads in a path, and what is there in two values.
pub(super) fn enter<'v>(
    key: &str,
    live: Option<&'v Value>,
    want: Option<&'v Value>,
) -> Option<(String, Option<&'v Value>, Option<&'v Value>)> {
    if let Some(name) = key.strip_prefix("f:") {
        return Some((
            format!(".{name}"),
            live.and_then(|live| live.get(name)),
            want.and_then(|want| want.get(name)),
        ));
    }
    let item = Item::parse(key)?;
    let of = |value: Option<&'v Value>| -> Option<&'v Value> {
        let list = value?.as_array()?;
        list.get(item.find(list)?)
    };
    Some((item.text(), of(live), of(want)))
}

pub(super) fn children(node: &Value) -> &Map<String, Value> {
    static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    node.as_object().unwrap_or(&NONE)
}

/// How an item of a list is known.
pub(super) enum Item {
    Keys(Map<String, Value>),
    Value(Value),
    Place(usize),
}

impl Item {
    pub(super) fn parse(key: &str) -> Option<Self> {
        if let Some(json) = key.strip_prefix("k:") {
            return match serde_json::from_str(json) {
                Ok(Value::Object(keys)) => Some(Item::Keys(keys)),
                _ => None,
            };
        }
        if let Some(json) = key.strip_prefix("v:") {
            return serde_json::from_str(json).ok().map(Item::Value);
        }
        key.strip_prefix("i:")?.parse().ok().map(Item::Place)
    }

    /// Its place in a list. A key that the item does not have was defaulted by the server, as the protocol of a
    /// port is; it counts as met unless another item meets the keys in full.
    fn find(&self, list: &[Value]) -> Option<usize> {
        match self {
            Item::Place(place) => (*place < list.len()).then_some(*place),
            Item::Value(value) => list.iter().position(|item| item == value),
            Item::Keys(keys) => {
                let exact = |item: &Value| keys.iter().all(|(name, value)| item.get(name) == Some(value));
                let close = |item: &Value| {
                    keys.iter().any(|(name, _)| item.get(name).is_some())
                        && keys.iter().all(|(name, value)| item.get(name).is_none_or(|there| there == value))
                };
                list.iter().position(exact).or_else(|| list.iter().position(close))
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Item::Keys(keys) => {
                let parts: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
                format!("[{}]", parts.join(","))
            }
            Item::Value(value) => format!("[={value}]"),
            Item::Place(place) => format!("[{place}]"),
        }
    }
}
