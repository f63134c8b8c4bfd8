//! What the process knows of one kind: the objects as last seen, in one place for all controllers.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::machinery::index::{By, Index};
use crate::objects::meta::{Meta, Pairs};
use crate::objects::resource::{Key, Resource};
use crate::objects::selector::includes;

/// An object that is cached.
pub trait Object: DeserializeOwned + Send + Sync + 'static {
    /// What objects are looked up by.
    const BY: By = By::Key;

    /// The object's metadata.
    fn meta(&self) -> &Meta;

    /// The labels that everything it selects carries; none when it selects nothing.
    fn selection(&self) -> Option<&Pairs> {
        None
    }
}

/// A kind known when this was written.
pub trait Kind: Object {
    /// Where it lives in the API.
    fn resource() -> &'static Resource;
}

/// How far a cache has followed the server.
pub trait Progress: Send + Sync {
    /// The resource version up to which every change of this kind has been taken in.
    fn seen(&self) -> u64;
}

/// One change: what was known before, and what is known now. `None` is absence.
pub struct Change<'a, T> {
    /// Before.
    pub before: Option<&'a Arc<T>>,
    /// After.
    pub after: Option<&'a Arc<T>>,
}

impl<'a, T> Change<'a, T> {
    /// The latest state there is.
    pub fn latest(&self) -> Option<&'a Arc<T>> {
        self.after.or(self.before)
    }

    /// Both states, the earlier first.
    pub fn both(&self) -> impl Iterator<Item = &'a Arc<T>> {
        self.before.into_iter().chain(self.after)
    }
}

/// All objects of one kind, as last seen.
///
/// # Guarantees
/// - Only the one task that follows the server writes, so a reader never sees an object go back in time.
/// - When [`Progress::seen`] says N, every change up to N is in.
pub struct Cache<T> {
    inner: RwLock<Inner<T>>,
    synced: watch::Sender<bool>,
}

struct Inner<T> {
    objects: BTreeMap<Key, Arc<T>>,
    index: Index,
    seen: u64,
}

impl<T: Object> Default for Cache<T> {
    fn default() -> Self {
        let inner = Inner { objects: BTreeMap::new(), index: Index::default(), seen: 0 };
        Self { inner: RwLock::new(inner), synced: watch::Sender::new(false) }
    }
}

impl<T: Object> Cache<T> {
    /// The object of this key.
    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        self.inner.read().objects.get(key).cloned()
    }

    /// Whether there is an object of this key.
    pub fn contains(&self, key: &Key) -> bool {
        self.inner.read().objects.contains_key(key)
    }

    /// All objects that pass the filter.
    pub fn all(&self, mut filter: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        self.inner.read().objects.values().filter(|object| filter(object)).cloned().collect()
    }

    /// The objects of one namespace that pass the filter.
    pub fn in_namespace(&self, namespace: &Arc<str>, mut filter: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        let first = Key { namespace: namespace.clone(), name: "".into() };
        let inner = self.inner.read();
        inner
            .objects
            .range(first..)
            .take_while(|(key, _)| key.namespace == *namespace)
            .map(|(_, object)| object)
            .filter(|object| filter(object))
            .cloned()
            .collect()
    }

    /// The objects managed by the controller with this uid.
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<T>> {
        let inner = self.inner.read();
        inner.found(inner.index.controlled_by(uid)).collect()
    }

    /// The objects of a namespace that no controller manages.
    pub fn orphans(&self, namespace: &str) -> Vec<Arc<T>> {
        let inner = self.inner.read();
        inner.found(inner.index.orphans(namespace)).collect()
    }

    /// The objects of one namespace that carry these labels and pass the filter, by name. For a kind that is looked
    /// up by labels.
    pub fn labelled(
        &self,
        namespace: &Arc<str>,
        wanted: &Pairs,
        mut filter: impl FnMut(&T) -> bool,
    ) -> Vec<Arc<T>> {
        let inner = self.inner.read();
        let Some(found) = inner.index.labelled(namespace, wanted) else {
            drop(inner);
            return self.in_namespace(namespace, filter);
        };
        let found = inner.found(found).filter(|object| includes(&object.meta().labels, wanted));
        found.filter(|object| filter(object)).collect()
    }

    /// The objects of one namespace that pass the filter among those whose selection is among these labels.
    pub fn selecting(
        &self,
        namespace: &Arc<str>,
        labels: &Pairs,
        mut filter: impl FnMut(&T) -> bool,
    ) -> Vec<Arc<T>> {
        let inner = self.inner.read();
        inner.found(inner.index.selecting(namespace, labels)).filter(|object| filter(object)).collect()
    }

    /// Every key there is.
    pub fn keys(&self) -> Vec<Key> {
        self.inner.read().objects.keys().cloned().collect()
    }

    /// Takes in one change, and returns what was there before.
    pub fn set(&self, object: Arc<T>) -> Option<Arc<T>> {
        let version = object.meta().version();
        let key = object.meta().key();
        let mut inner = self.inner.write();
        let before = inner.objects.insert(key, object.clone());
        if !before.as_ref().is_some_and(|before| found_alike(&**before, &*object)) {
            if let Some(before) = &before {
                inner.index.remove(T::BY, before.meta(), before.selection());
            }
            inner.index.insert(T::BY, object.meta(), object.selection());
        }
        inner.seen = inner.seen.max(version);
        before
    }

    /// Takes in that an object is gone as of `version`, and returns what was there before.
    pub fn remove(&self, key: &Key, version: u64) -> Option<Arc<T>> {
        let mut inner = self.inner.write();
        inner.seen = inner.seen.max(version);
        let before = inner.objects.remove(key)?;
        inner.index.remove(T::BY, before.meta(), before.selection());
        Some(before)
    }

    /// Takes in that nothing else has happened up to `version`.
    pub fn advance(&self, version: u64) {
        let mut inner = self.inner.write();
        inner.seen = inner.seen.max(version);
    }

    /// Says that the first list is complete.
    pub fn mark_synced(&self) {
        self.synced.send_replace(true);
    }

    /// Becomes true when the first list is complete.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }
}

impl<T> Inner<T> {
    fn found<'a>(&'a self, keys: impl Iterator<Item = &'a Key>) -> impl Iterator<Item = Arc<T>> {
        keys.filter_map(|key| self.objects.get(key).cloned())
    }
}

/// Whether two states of an object are found by the same.
fn found_alike<T: Object>(before: &T, after: &T) -> bool {
    let (old, new) = (before.meta(), after.meta());
    old.labels == new.labels
        && old.owner_references == new.owner_references
        && before.selection() == after.selection()
}

impl<T: Object> Progress for Cache<T> {
    fn seen(&self) -> u64 {
        self.inner.read().seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::pod::Pod;

    fn pod(name: &str, owner: Option<&str>, version: u64) -> Arc<Pod> {
        let owners = owner.map_or("[]".to_owned(), |uid| format!(r#"[{{"uid":"{uid}","controller":true}}]"#));
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"n","resourceVersion":"{version}","ownerReferences":{owners}}}}}"#
        );
        Arc::new(serde_json::from_str(&text).unwrap())
    }

    fn names(pods: Vec<Arc<Pod>>) -> String {
        pods.iter().map(|pod| &*pod.metadata.name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn objects_are_found_by_controller_and_orphans_by_namespace() {
        let cache = Cache::<Pod>::default();
        for pod in [pod("a", Some("r"), 1), pod("b", Some("r"), 2), pod("c", None, 3)] {
            cache.set(pod);
        }
        assert_eq!(names(cache.controlled_by("r")), "a b");
        assert_eq!(names(cache.orphans("n")), "c");
        cache.set(pod("c", Some("r"), 4));
        cache.remove(&Key::new("n", "a"), 5);
        assert_eq!(names(cache.controlled_by("r")), "b c");
        assert_eq!(names(cache.orphans("n")), "");
        assert_eq!(names(cache.in_namespace(&"n".into(), |_| true)), "b c");
        assert_eq!(cache.seen(), 5);
    }
}
