//! The vocabulary: revisions, keys, what is stored under them, and what happens to it.

use std::sync::Arc;

use bytes::Bytes;

/// A point in the store's one order of commits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Revision(pub u64);

impl Revision {
    pub(crate) fn next(self) -> Revision {
        Revision(self.0 + 1)
    }
}

impl std::fmt::Display for Revision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What an object is stored under.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// Group and plural name: `apps/deployments`; for the core group `/pods`.
    pub resource: Arc<str>,
    /// Empty for what is cluster scoped.
    pub namespace: Arc<str>,
    /// The object's name.
    pub name: Arc<str>,
}

impl Key {
    /// The key of these three.
    pub fn new(
        resource: impl Into<Arc<str>>,
        namespace: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
    ) -> Key {
        Key { resource: resource.into(), namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.resource, self.namespace, self.name)
    }
}

pub(crate) type Pairs = Box<[(Box<str>, Box<str>)]>;

/// What selectors look at, sorted by name, so that no value has to be parsed to be passed over.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facets {
    /// The labels.
    pub labels: Pairs,
    /// The fields that can be selected by.
    pub fields: Pairs,
}

impl Facets {
    /// Sorts what it is given.
    pub fn new<K: Into<Box<str>>, V: Into<Box<str>>>(
        labels: impl IntoIterator<Item = (K, V)>,
        fields: impl IntoIterator<Item = (K, V)>,
    ) -> Facets {
        fn sorted<K: Into<Box<str>>, V: Into<Box<str>>>(pairs: impl IntoIterator<Item = (K, V)>) -> Pairs {
            let mut pairs: Vec<_> = pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
            pairs.sort_unstable();
            pairs.into_boxed_slice()
        }
        Facets { labels: sorted(labels), fields: sorted(fields) }
    }

    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        find(&self.labels, name)
    }

    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        find(&self.fields, name)
    }
}

fn find<'a>(pairs: &'a Pairs, name: &str) -> Option<&'a str> {
    let at = pairs.binary_search_by(|(k, _)| (**k).cmp(name)).ok()?;
    pairs.get(at).map(|(_, value)| &**value)
}

/// An object as one commit left it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored {
    /// What it is stored under.
    pub key: Key,
    /// Of its last change.
    pub revision: Revision,
    /// The object itself.
    pub value: Bytes,
    /// What selectors look at.
    pub facets: Facets,
}

/// What became of the object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// It was not there before.
    Added,
    /// It was there, and is another now.
    Modified,
    /// It is gone.
    Deleted,
}

/// One commit, as watches tell it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The commit's own.
    pub revision: Revision,
    /// What became of the object.
    pub kind: EventKind,
    /// The object after the commit; of a deleted one the last state.
    pub object: Arc<Stored>,
    /// The object before the commit.
    pub previous: Option<Arc<Stored>>,
}

/// Which objects a list or a watch is about.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Range {
    /// As in [`Key::resource`].
    pub resource: Arc<str>,
    /// Only this namespace, or all of them.
    pub namespace: Option<Arc<str>>,
}

impl Range {
    /// Whether an object of this resource and under this key is meant.
    pub fn contains(&self, key: &Key) -> bool {
        self.resource == key.resource
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)
    }
}

/// Which part of a list.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// At most that many.
    pub limit: Option<usize>,
    /// Only what comes after this namespace and name.
    pub after: Option<(Arc<str>, Arc<str>)>,
    /// As of this revision instead of the latest.
    pub at: Option<Revision>,
}

/// A part of a list.
#[derive(Clone, Debug)]
pub struct Listing {
    /// As of when.
    pub revision: Revision,
    /// The objects, ordered by namespace and name.
    pub items: Vec<Arc<Stored>>,
    /// Whether there is more than the page held.
    pub more: bool,
    /// How many more.
    pub remaining: usize,
}
