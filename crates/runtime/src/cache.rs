//! What the watches have shown of one kind.
//!
//! An object is kept as compact JSON with what is needed to find it beside it: parsed JSON takes ten times the
//! memory, and is needed only for the moment of a decision.
//!
//! **What always holds.** A reader sees whole objects. Each stream is a sequence in the server's order, so when one
//! has shown revision *n*, everything up to *n* that it is about has been shown: that is how a reader knows whether
//! its own write is in here. Listeners hear of a change after readers can see it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use ballast_operator::{KindRef, NotAnObject, Object, label};
use parking_lot::RwLock;
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::key::Key;

/// Who controls an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) api_version: Box<str>,
    pub(crate) kind: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
}

impl Owner {
    /// The group of its kind. Which version an owner is named in does not matter.
    pub(crate) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// An object as it was last shown.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) uid: Box<str>,
    pub(crate) version: Box<str>,
    pub(crate) controller: Option<Owner>,
    /// The values of the labels that [`Policy::labels`] names, in that order.
    pub(crate) labels: Box<[Option<Box<str>>]>,
    json: Box<[u8]>,
}

impl Entry {
    /// The object.
    pub(crate) fn object(&self, kind: &KindRef) -> Result<Object, Unusable> {
        let value = serde_json::from_slice(&self.json).map_err(|error| Unusable::Json(error.to_string()))?;
        Ok(Object::of_kind(kind, value)?)
    }

    pub(crate) fn json(&self) -> &[u8] {
        &self.json
    }
}

/// What the server sent is no object.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("not JSON: {0}")]
    Json(String),
    #[error(transparent)]
    Shape(#[from] NotAnObject),
}

/// What of a kind's objects is worth keeping. The union of what all operators in the process want.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    /// The kind is an operator's own resource: everything is kept.
    pub(crate) primary: bool,
    /// Resources that control such objects, by group and kind.
    pub(crate) owners: BTreeSet<(String, String)>,
    /// Labels by which such objects are found.
    pub(crate) labels: Vec<String>,
    /// Objects are applied, so what is owned on them matters; and whoever stands under a claimed name must be seen.
    pub(crate) applied: bool,
    /// What objects that matter to somebody match, each as far as its relation says. [`None`] is everything.
    pub(crate) selectors: BTreeSet<Option<String>>,
    /// They are Secrets: that a value is there is kept, and not the value.
    pub(crate) secret: bool,
}

/// How much of an object is kept.
enum Keep {
    All,
    /// Enough to see that the name is taken, and by whom.
    Outline,
    Nothing,
}

impl Policy {
    /// What every object worth keeping matches, to narrow the watch by.
    pub(crate) fn selector(&self) -> Option<&str> {
        let mut selectors = self.selectors.iter();
        match (selectors.next(), selectors.next()) {
            (Some(Some(selector)), None) if !self.primary => Some(selector),
            _ => None,
        }
    }

    /// Whether a watch shows such an object at all.
    pub(crate) fn shows(&self, object: &Object) -> bool {
        self.selector().is_none_or(|selector| match selector.split_once('=') {
            Some((label, value)) => object.label(label) == Some(value),
            None => object.label(selector).is_some(),
        })
    }

    fn keep(&self, entry: &Entry) -> Keep {
        let owned = entry.controller.as_ref().is_some_and(|owner| {
            self.owners.iter().any(|(group, kind)| *kind == *owner.kind && group == owner.group())
        });
        if self.primary || owned || entry.labels.iter().any(Option::is_some) {
            Keep::All
        } else if self.applied {
            Keep::Outline
        } else {
            Keep::Nothing
        }
    }

    /// What is kept of an object, if anything.
    fn entry(&self, mut value: Value) -> Option<Entry> {
        let mut entry = Entry {
            uid: text(&value, "/metadata/uid"),
            version: text(&value, "/metadata/resourceVersion"),
            controller: controller(&value),
            labels: self.labels.iter().map(|name| label(&value, name).map(Into::into)).collect(),
            json: Box::default(),
        };
        match self.keep(&entry) {
            Keep::Nothing => return None,
            Keep::Outline => outline(&mut value),
            Keep::All if !self.applied && !self.primary => {
                if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("managedFields");
                }
            }
            Keep::All => {}
        }
        if self.secret
            && let Some(data) = value.get_mut("data").and_then(Value::as_object_mut)
        {
            data.values_mut().for_each(|secret| *secret = Value::from(""));
        }
        entry.json = serde_json::to_vec(&value).ok()?.into_boxed_slice();
        Some(entry)
    }
}

fn text(value: &Value, pointer: &str) -> Box<str> {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().into()
}

fn controller(value: &Value) -> Option<Owner> {
    let owners = value.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner.get("controller") == Some(&Value::Bool(true)))?;
    Some(Owner {
        api_version: text(owner, "/apiVersion"),
        kind: text(owner, "/kind"),
        name: text(owner, "/name"),
        uid: text(owner, "/uid"),
    })
}

fn outline(value: &mut Value) {
    let mut kept = Map::new();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| {
            let kept = [
                "name",
                "namespace",
                "uid",
                "resourceVersion",
                "labels",
                "ownerReferences",
                "deletionTimestamp",
            ];
            kept.contains(&name.as_str())
        });
        kept.insert("metadata".to_owned(), Value::Object(std::mem::take(metadata)));
    }
    *value = Value::Object(kept);
}

/// A revision as a number. Servers have always counted so, and since 1.35 Kubernetes promises it. What is no number
/// is taken for the oldest, so that nothing is believed too early.
pub(crate) fn revision(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}

/// One object that changed.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) key: Key,
    pub(crate) old: Option<Arc<Entry>>,
    pub(crate) new: Option<Arc<Entry>>,
    /// The revision of the change, as the server wrote it. Empty when it may be several changes.
    pub(crate) version: Box<str>,
}

/// Who is told of changes.
pub(crate) type Listener = Box<dyn Fn(&KindRef, &Change) + Send + Sync>;

/// An object as it came from the server.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) key: Key,
    pub(crate) value: Value,
}

/// What the watches have shown of one kind.
pub(crate) struct Cache {
    pub(crate) kind: KindRef,
    pub(crate) policy: Policy,
    state: RwLock<State>,
    listeners: Vec<Listener>,
    /// Counts what happened, for those who wait.
    moved: watch::Sender<u64>,
    /// Counts who found it behind.
    behind: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    objects: HashMap<Key, Arc<Entry>>,
    found_by: HashMap<Index, BTreeSet<Key>>,
    streams: Vec<Stream>,
}

/// One watch: of all namespaces, or of one.
struct Stream {
    namespace: Option<Arc<str>>,
    synced: bool,
    /// The newest revision that it has shown.
    revision: u64,
}

impl Cache {
    /// An empty cache with one stream for each of `namespaces`, or a single one for all.
    pub(crate) fn new(
        kind: KindRef,
        policy: Policy,
        namespaces: &[Arc<str>],
        listeners: Vec<Listener>,
    ) -> Self {
        let scopes: Vec<Option<Arc<str>>> = if namespaces.is_empty() || !kind.namespaced {
            vec![None]
        } else {
            namespaces.iter().cloned().map(Some).collect()
        };
        let streams =
            scopes.into_iter().map(|namespace| Stream { namespace, synced: false, revision: 0 }).collect();
        let state = RwLock::new(State { streams, ..State::default() });
        let (moved, behind) = (watch::Sender::new(0), watch::Sender::new(0));
        Cache { kind, policy, state, listeners, moved, behind }
    }

    /// The namespaces of the streams, by their numbers.
    pub(crate) fn scopes(&self) -> Vec<Option<Arc<str>>> {
        self.state.read().streams.iter().map(|stream| stream.namespace.clone()).collect()
    }

    /// Whether every stream has shown all there was when it began.
    pub(crate) fn synced(&self) -> bool {
        self.state.read().streams.iter().all(|stream| stream.synced)
    }

    /// Waits until it is.
    pub(crate) async fn wait_synced(&self) {
        let mut moved = self.moved.subscribe();
        while !self.synced() {
            if moved.changed().await.is_err() {
                return;
            }
        }
    }

    /// To be told that something moved.
    pub(crate) fn moved(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    /// What it shows is behind: the streams are to begin anew.
    pub(crate) fn list_anew(&self) {
        self.behind.send_modify(|count| *count += 1);
    }

    /// To be told that it is behind.
    pub(crate) fn behind(&self) -> watch::Receiver<u64> {
        self.behind.subscribe()
    }

    /// Whether everything up to `revision` that concerns `namespace` has been shown.
    pub(crate) fn has_shown(&self, namespace: Option<&str>, revision: u64) -> bool {
        let state = self.state.read();
        let mut streams = state.streams.iter();
        streams
            .find(|stream| stream.namespace.is_none() || stream.namespace.as_deref() == namespace)
            .is_none_or(|stream| stream.revision >= revision)
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.state.read().objects.get(key).cloned()
    }

    /// The objects that the resource with this uid controls.
    pub(crate) fn controlled_by(&self, uid: &str) -> Vec<(Key, Arc<Entry>)> {
        let state = self.state.read();
        state.entries(&Index::Controller(uid.into()))
    }

    /// The objects that carry a label with a value.
    pub(crate) fn labelled(&self, label: &str, value: &str) -> Vec<(Key, Arc<Entry>)> {
        let Some(place) = self.policy.labels.iter().position(|known| known == label) else {
            return Vec::new();
        };
        let state = self.state.read();
        state.entries(&Index::Label(place, value.into()))
    }

    /// A stream showed an object.
    pub(crate) fn show(&self, stream: usize, shown: Shown) {
        let version = text(&shown.value, "/metadata/resourceVersion");
        let new = self.policy.entry(shown.value).map(Arc::new);
        let mut state = self.state.write();
        state.passed(stream, revision(&version));
        let old = state.put(&shown.key, new.clone());
        drop(state);
        self.tell([Change { key: shown.key, old, new, version }]);
    }

    /// A stream showed that an object went.
    pub(crate) fn lose(&self, stream: usize, shown: Shown) {
        let version = text(&shown.value, "/metadata/resourceVersion");
        let mut state = self.state.write();
        state.passed(stream, revision(&version));
        let old = state.put(&shown.key, None);
        drop(state);
        self.tell([Change { key: shown.key, old, new: None, version }]);
    }

    /// A stream showed everything there is.
    pub(crate) fn replace(&self, stream: usize, all: Vec<Shown>) {
        let mut changes = Vec::new();
        let mut state = self.state.write();
        let scope = state.streams.get(stream).and_then(|stream| stream.namespace.clone());
        let mut gone: BTreeSet<Key> =
            state.objects.keys().filter(|key| scope.is_none() || key.namespace == scope).cloned().collect();
        for shown in all {
            gone.remove(&shown.key);
            let version = text(&shown.value, "/metadata/resourceVersion");
            let new = self.policy.entry(shown.value).map(Arc::new);
            state.passed(stream, revision(&version));
            let old = state.put(&shown.key, new.clone());
            // A list shows where an object has come to and not how: it may be more than its last change.
            changes.push(Change { key: shown.key, old, new, version: Box::default() });
        }
        for key in gone {
            let old = state.put(&key, None);
            changes.push(Change { key, old, new: None, version: Box::default() });
        }
        if let Some(stream) = state.streams.get_mut(stream) {
            stream.synced = true;
        }
        drop(state);
        self.tell(changes);
    }

    fn tell(&self, changes: impl IntoIterator<Item = Change>) {
        for change in changes {
            let same = match (&change.old, &change.new) {
                (Some(old), Some(new)) => old.version == new.version && old.uid == new.uid,
                (None, None) => true,
                _ => false,
            };
            if !same {
                self.listeners.iter().for_each(|listener| listener(&self.kind, &change));
            }
        }
        self.moved.send_modify(|count| *count = count.wrapping_add(1));
    }
}

impl State {
    fn passed(&mut self, stream: usize, revision: u64) {
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.revision = stream.revision.max(revision);
        }
    }

    fn entries(&self, index: &Index) -> Vec<(Key, Arc<Entry>)> {
        let keys = self.found_by.get(index);
        let found = |key: &Key| Some((key.clone(), Arc::clone(self.objects.get(key)?)));
        keys.into_iter().flatten().filter_map(found).collect()
    }

    /// Puts an entry in the place of whatever is there, and gives that.
    fn put(&mut self, key: &Key, new: Option<Arc<Entry>>) -> Option<Arc<Entry>> {
        let old = match &new {
            Some(new) => self.objects.insert(key.clone(), Arc::clone(new)),
            None => self.objects.remove(key),
        };
        if let Some(old) = &old {
            for index in indices(old) {
                if let Some(keys) = self.found_by.get_mut(&index) {
                    keys.remove(key);
                    if keys.is_empty() {
                        self.found_by.remove(&index);
                    }
                }
            }
        }
        if let Some(new) = &new {
            for index in indices(new) {
                self.found_by.entry(index).or_default().insert(key.clone());
            }
        }
        old
    }
}

/// Something an entry is found by.
#[derive(PartialEq, Eq, Hash)]
enum Index {
    Controller(Box<str>),
    Label(usize, Box<str>),
}

fn indices(entry: &Entry) -> impl Iterator<Item = Index> {
    let controller = entry.controller.iter().map(|owner| Index::Controller(owner.uid.clone()));
    let labels = entry.labels.iter().enumerate();
    controller.chain(labels.filter_map(|(place, value)| Some(Index::Label(place, value.clone()?))))
}

#[cfg(test)]
mod tests;
