//! The maps, the history, and how an older revision is had from them.
//!
//! There is one persistent map per resource, so a reader takes a copy in constant time and leaves. The history
//! is kept per resource too; an older revision is the present map with the later events undone. No map is kept
//! per revision: that would cost some kilobytes for each event, and hardly any revision is ever asked for again.
//!
//! Beside the maps there is a table of all objects by key. One object among many is found in it with few looks at
//! memory, where the way through a map takes more of them the larger the map is.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use imbl::OrdMap;
use parking_lot::Mutex;

use crate::Options;
use crate::object::{Event, EventKind, Key, Listing, Page, Range, Revision, Stored};
use crate::watch::Waiting;

/// The objects of one resource by namespace and name.
pub(crate) type Objects = OrdMap<(Arc<str>, Arc<str>), Arc<Stored>>;

/// The revision asked for is no longer known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("revision {requested} has been compacted; the oldest that is known is {oldest}")]
pub struct Compacted {
    /// What was asked for.
    pub requested: Revision,
    /// What can be had.
    pub oldest: Revision,
}

/// Everything that was stored at one revision.
#[derive(Clone, Debug)]
pub struct Snapshot {
    revision: Revision,
    shelves: BTreeMap<Arc<str>, Objects>,
}

impl Snapshot {
    /// As of when.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The objects by resource, namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Stored>> {
        self.shelves.values().flat_map(|objects| objects.values())
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.shelves.values().map(OrdMap::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.shelves.values().all(OrdMap::is_empty)
    }
}

/// One resource: its objects and its part of the history.
#[derive(Default)]
pub(crate) struct Shelf {
    objects: Objects,
    /// The last change of any of them.
    changed: Revision,
    pub(crate) events: VecDeque<Arc<Event>>,
    /// The newest event that `events` no longer has.
    pub(crate) forgotten: Revision,
    /// Behind its own lock, because watches go to sleep while they hold the state for reading only.
    pub(crate) waiting: Mutex<Waiting>,
    /// Where the watches end that begin now, once they are to.
    pub(crate) end: Arc<OnceLock<Revision>>,
}

/// An object that is found by its key.
struct Held(Arc<Stored>);

impl Borrow<Key> for Held {
    fn borrow(&self) -> &Key {
        &self.0.key
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for Held {}

impl Hash for Held {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.key.hash(hasher);
    }
}

pub(crate) struct State {
    revision: Revision,
    oldest: Revision,
    shelves: HashMap<Arc<str>, Shelf>,
    /// What is on all shelves.
    table: HashSet<Held>,
    /// The namespaces that there ever were, so that their objects share the name.
    namespaces: HashSet<Arc<str>>,
    /// The resources of the events that are kept, oldest first: in this order they are forgotten.
    order: VecDeque<Arc<str>>,
    history: usize,
    history_bytes: usize,
    /// What the kept events hold of values that are values no more.
    held: usize,
    /// Commits are counted from here.
    started: Revision,
    closed: bool,
}

impl State {
    pub(crate) fn new(options: &Options) -> State {
        State {
            revision: Revision(1),
            oldest: Revision(1),
            shelves: HashMap::new(),
            table: HashSet::new(),
            namespaces: HashSet::new(),
            order: VecDeque::new(),
            // An event has to be kept at least until its watchers, who are woken after it, had a look.
            history: options.history.max(1),
            history_bytes: options.history_bytes,
            held: 0,
            started: Revision(1),
            closed: false,
        }
    }

    pub(crate) fn restored(snapshot: Snapshot, options: &Options) -> State {
        let mut state = State::new(options);
        state.start_at(snapshot.revision);
        for (resource, objects) in snapshot.shelves {
            let changed = objects.values().map(|object| object.revision).max().unwrap_or_default();
            let forgotten = snapshot.revision;
            state.table.extend(objects.values().map(|object| Held(Arc::clone(object))));
            state.shelves.insert(resource, Shelf { objects, changed, forgotten, ..Shelf::default() });
        }
        state
    }

    /// Of a state that is being restored: there is nothing known before this revision.
    pub(crate) fn start_at(&mut self, revision: Revision) {
        self.revision = revision;
        self.oldest = revision;
        self.started = revision;
    }

    /// Of a state that is being restored: the rest is new.
    pub(crate) fn restored_fully(&mut self) {
        self.started = self.revision;
    }

    /// Of a state that is being restored: an object that was there at the start.
    pub(crate) fn place(&mut self, object: Arc<Stored>) {
        let start = self.oldest;
        let shelf = self.shelves.entry(Arc::clone(&object.key.resource)).or_default();
        shelf.changed = shelf.changed.max(object.revision);
        shelf.forgotten = start;
        shelf.objects.insert(place_of(&object.key), Arc::clone(&object));
        self.namespaces.insert(Arc::clone(&object.key.namespace));
        self.table.insert(Held(object));
    }

    /// A key of the same names, in the memory that other keys have them in already.
    pub(crate) fn share(&self, key: Key) -> Key {
        let resource = self.shelves.get_key_value(&key.resource).map(|(resource, _)| Arc::clone(resource));
        let namespace = self.namespaces.get(&key.namespace).cloned();
        Key {
            resource: resource.unwrap_or(key.resource),
            namespace: namespace.unwrap_or(key.namespace),
            name: key.name,
        }
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    pub(crate) fn oldest(&self) -> Revision {
        self.oldest
    }

    pub(crate) fn commits(&self) -> u64 {
        self.revision.0 - self.started.0
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(crate) fn resource_revision(&self, resource: &str) -> Revision {
        self.shelves.get(resource).map_or(Revision(0), |shelf| shelf.changed)
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Stored>> {
        self.table.get(key).map(|held| &held.0)
    }

    pub(crate) fn shelf(&self, resource: &str) -> Option<&Shelf> {
        self.shelves.get(resource)
    }

    /// The shelf, made where there is none yet, so that a watch has something to wait at.
    pub(crate) fn ensure_shelf(&mut self, resource: &Arc<str>) -> &mut Shelf {
        self.shelves.entry(Arc::clone(resource)).or_default()
    }

    /// Makes the next event true and gives whom to tell, once the lock is let go.
    pub(crate) fn publish(&mut self, event: Arc<Event>) -> Vec<Waker> {
        debug_assert_eq!(event.revision, self.revision.next());
        let key = &event.object.key;
        let shelf = self.shelves.entry(Arc::clone(&key.resource)).or_default();
        match event.kind {
            EventKind::Deleted => {
                shelf.objects.remove(&place_of(key));
                self.table.remove(key);
            }
            EventKind::Added | EventKind::Modified => {
                shelf.objects.insert(place_of(key), Arc::clone(&event.object));
                // The first one stays.
                self.namespaces.insert(Arc::clone(&key.namespace));
                self.table.replace(Held(Arc::clone(&event.object)));
            }
        }
        shelf.changed = event.revision;
        let wakers = shelf.waiting.get_mut().take_for(&key.namespace);
        self.order.push_back(Arc::clone(&key.resource));
        self.revision = event.revision;
        self.held = self.held.saturating_add(held_by(&event));
        shelf.events.push_back(event);
        while self.order.len() > self.history || (self.held > self.history_bytes && self.order.len() > 1) {
            self.forget_oldest();
        }
        wakers
    }

    /// Forgets the history up to `floor` and gives the watches to wake: one that missed something must say so.
    pub(crate) fn compact(&mut self, floor: Revision) -> Vec<Waker> {
        while self.oldest < floor.min(self.revision) {
            self.forget_oldest();
        }
        self.shelves.values_mut().flat_map(|shelf| shelf.waiting.get_mut().take_all()).collect()
    }

    pub(crate) fn close(&mut self) -> Vec<Waker> {
        self.closed = true;
        self.shelves.values_mut().flat_map(|shelf| shelf.waiting.get_mut().take_all()).collect()
    }

    /// Has the watches of one resource end with what there is now, and gives whom to tell.
    pub(crate) fn end_watches(&mut self, resource: &str) -> Vec<Waker> {
        let Some(shelf) = self.shelves.get_mut(resource) else { return Vec::new() };
        std::mem::take(&mut shelf.end).get_or_init(|| self.revision);
        shelf.waiting.get_mut().take_all()
    }

    fn forget_oldest(&mut self) {
        let shelf = self.order.pop_front().and_then(|resource| self.shelves.get_mut(&resource));
        if let Some((shelf, event)) =
            shelf.and_then(|shelf| shelf.events.pop_front().map(|event| (shelf, event)))
        {
            shelf.forgotten = event.revision;
            shelf.waiting.get_mut().forget(&event.object.key.namespace, event.revision);
            self.oldest = event.revision;
            self.held = self.held.saturating_sub(held_by(&event));
        }
    }

    /// The objects of one resource as of `at`, and of which revision they really are.
    pub(crate) fn objects_at(
        &self,
        resource: &str,
        at: Option<Revision>,
    ) -> Result<(Revision, Objects), Compacted> {
        let at = self.known(at.unwrap_or(self.revision))?;
        Ok((at, self.shelves.get(resource).map(|shelf| shelf.at(at)).unwrap_or_default()))
    }

    pub(crate) fn snapshot(&self, at: Revision) -> Result<Snapshot, Compacted> {
        Ok(self.as_of(self.known(at)?))
    }

    /// The snapshot that can always be had.
    pub(crate) fn present(&self) -> Snapshot {
        self.as_of(self.revision)
    }

    fn as_of(&self, revision: Revision) -> Snapshot {
        let shelves = self.shelves.iter().map(|(resource, shelf)| (Arc::clone(resource), shelf.at(revision)));
        Snapshot { revision, shelves: shelves.collect() }
    }

    pub(crate) fn known(&self, requested: Revision) -> Result<Revision, Compacted> {
        if requested < self.oldest {
            return Err(Compacted { requested, oldest: self.oldest });
        }
        Ok(requested.min(self.revision))
    }
}

impl Shelf {
    /// Where the events after a revision begin. Most who ask are near the end, so it is looked for from there: a search
    /// of everything looks at a dozen events that no processor has at hand.
    pub(crate) fn after(&self, revision: Revision) -> usize {
        let is_later = |at: usize| self.events[at].revision > revision;
        let (mut step, mut end) = (1, self.events.len());
        while step <= end && is_later(end - step) {
            end -= step;
            step *= 2;
        }
        let mut start = end.saturating_sub(step);
        while start < end {
            let middle = start.midpoint(end);
            if is_later(middle) { end = middle } else { start = middle + 1 }
        }
        start
    }

    fn at(&self, at: Revision) -> Objects {
        let mut objects = self.objects.clone();
        for event in self.events.iter().rev().take_while(|event| event.revision > at) {
            match &event.previous {
                Some(previous) => objects.insert(place_of(&previous.key), Arc::clone(previous)),
                None => objects.remove(&place_of(&event.object.key)),
            };
        }
        objects
    }
}

/// The bytes that go when the event is forgotten: the value that it ended, and a deleted object's last.
fn held_by(event: &Event) -> usize {
    let last = if event.kind == EventKind::Deleted { event.object.value.len() } else { 0 };
    event.previous.as_ref().map_or(0, |previous| previous.value.len()) + last
}

fn place_of(key: &Key) -> (Arc<str>, Arc<str>) {
    (Arc::clone(&key.namespace), Arc::clone(&key.name))
}

/// Takes a page of `objects`.
pub(crate) fn page_of(objects: &Objects, revision: Revision, range: &Range, page: &Page) -> Listing {
    let namespace = range.namespace.as_ref();
    let first = namespace.map(|namespace| (Arc::clone(namespace), Arc::from("")));
    let start = match (&page.after, first) {
        (Some(after), Some(first)) if *after < first => Bound::Included(first),
        (Some(after), _) => Bound::Excluded(after.clone()),
        (None, Some(first)) => Bound::Included(first),
        (None, None) => Bound::Unbounded,
    };
    let mut rest = objects
        .range((start, Bound::Unbounded))
        .map(|(_, object)| object)
        .take_while(|object| namespace.is_none_or(|namespace| *namespace == object.key.namespace));
    let items: Vec<_> = rest.by_ref().take(page.limit.unwrap_or(usize::MAX)).cloned().collect();
    // Without a limit the iterator is spent; asking it again would only start the count over.
    let remaining = if page.limit.is_some_and(|limit| items.len() == limit) { rest.count() } else { 0 };
    Listing { revision, items, more: remaining > 0, remaining }
}
