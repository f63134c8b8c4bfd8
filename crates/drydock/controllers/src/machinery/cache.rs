//! What the process knows of one kind: the objects as last seen, in one place for all controllers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::objects::meta::Meta;
use crate::objects::resource::{Key, Resource};

/// An object that is cached.
pub trait Object: DeserializeOwned + Send + Sync + 'static {
    /// Whether objects are looked up by the controller that manages them.
    const BY_CONTROLLER: bool = false;

    /// The object's metadata.
    fn meta(&self) -> &Meta;
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
    /// Keys by the uid of the controller; those without one by `/namespace`.
    by_controller: HashMap<Box<str>, BTreeSet<Key>>,
    seen: u64,
}

impl<T: Object> Default for Cache<T> {
    fn default() -> Self {
        let inner = Inner { objects: BTreeMap::new(), by_controller: HashMap::new(), seen: 0 };
        Self { inner: RwLock::new(inner), synced: watch::Sender::new(false) }
    }
}

fn index_of(meta: &Meta) -> Box<str> {
    match meta.controller() {
        Some(owner) => owner.uid.clone(),
        None => orphans_of(&meta.namespace),
    }
}

fn orphans_of(namespace: &str) -> Box<str> {
    format!("/{namespace}").into()
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
        inner.indexed(uid).collect()
    }

    /// The objects of a namespace that no controller manages.
    pub fn orphans(&self, namespace: &str) -> Vec<Arc<T>> {
        let inner = self.inner.read();
        inner.indexed(&orphans_of(namespace)).collect()
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
        let index = T::BY_CONTROLLER.then(|| index_of(object.meta()));
        let before = inner.objects.insert(key.clone(), object);
        if let Some(index) = index {
            if let Some(before) = &before {
                inner.unindex(&index_of(before.meta()), &key);
            }
            inner.by_controller.entry(index).or_default().insert(key);
        }
        inner.seen = inner.seen.max(version);
        before
    }

    /// Takes in that an object is gone as of `version`, and returns what was there before.
    pub fn remove(&self, key: &Key, version: u64) -> Option<Arc<T>> {
        let mut inner = self.inner.write();
        inner.seen = inner.seen.max(version);
        let before = inner.objects.remove(key)?;
        if T::BY_CONTROLLER {
            inner.unindex(&index_of(before.meta()), key);
        }
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
    fn indexed(&self, index: &str) -> impl Iterator<Item = Arc<T>> {
        self.by_controller.get(index).into_iter().flatten().filter_map(|key| self.objects.get(key).cloned())
    }

    fn unindex(&mut self, index: &str, key: &Key) {
        if let Some(keys) = self.by_controller.get_mut(index) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_controller.remove(index);
            }
        }
    }
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
