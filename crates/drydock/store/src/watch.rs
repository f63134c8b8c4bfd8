//! A cursor into the history that wakes when its range changes.
//!
//! A watch has no queue that a writer would have to fill: it reads the history of its resource from where it
//! was. Many watches therefore cost a writer only the waking of those whose namespace it wrote to, and share the
//! events. The price is that a watch which sleeps through as much history as is kept has to say [`Lagged`].

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use futures::Stream;

use crate::Shared;
use crate::object::{Event, Range, Revision};
use crate::state::{Compacted, Shelf};

/// How many events a watch takes at once: few enough that the lock is held for microseconds.
const BATCH: usize = 64;

/// Events that the watch had yet to deliver are forgotten. It has ended; whoever reads it lists anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the watch was at revision {at}, and events up to {forgotten} have been compacted")]
pub struct Lagged {
    /// Up to where the watch had come.
    pub at: Revision,
    /// Up to where events are gone.
    pub forgotten: Revision,
}

/// The watches of one resource: those that sleep, and what those of a namespace missed.
#[derive(Default)]
pub(crate) struct Waiting {
    everywhere: HashMap<u64, Waker>,
    /// A namespace is here for as long as somebody watches it.
    namespaces: HashMap<Arc<str>, Watched>,
}

/// A namespace that is watched.
#[derive(Default)]
struct Watched {
    watches: usize,
    /// The newest event of it that was forgotten since. What was before is refused where a watch begins.
    forgotten: Revision,
    asleep: HashMap<u64, Waker>,
}

impl Waiting {
    /// Those to wake when something in `namespace` changed.
    pub(crate) fn take_for(&mut self, namespace: &str) -> Vec<Waker> {
        if self.everywhere.is_empty() && self.namespaces.is_empty() {
            return Vec::new();
        }
        let everywhere = std::mem::take(&mut self.everywhere);
        let here = self.namespaces.get_mut(namespace).map(|here| std::mem::take(&mut here.asleep));
        everywhere.into_values().chain(here.into_iter().flat_map(HashMap::into_values)).collect()
    }

    pub(crate) fn take_all(&mut self) -> Vec<Waker> {
        let here = self.namespaces.values_mut().flat_map(|here| std::mem::take(&mut here.asleep));
        std::mem::take(&mut self.everywhere).into_iter().chain(here).map(|(_, waker)| waker).collect()
    }

    /// An event of `namespace` is forgotten.
    pub(crate) fn forget(&mut self, namespace: &str, revision: Revision) {
        if let Some(here) = self.namespaces.get_mut(namespace) {
            here.forgotten = revision;
        }
    }

    fn forgotten(&self, namespace: &str) -> Revision {
        self.namespaces.get(namespace).map_or(Revision(0), |here| here.forgotten)
    }

    fn begin(&mut self, namespace: Option<&Arc<str>>) {
        if let Some(namespace) = namespace {
            self.namespaces.entry(Arc::clone(namespace)).or_default().watches += 1;
        }
    }

    fn sleep(&mut self, namespace: Option<&str>, id: u64, waker: Waker) -> Option<Waker> {
        let asleep = match namespace {
            None => &mut self.everywhere,
            Some(namespace) => &mut self.namespaces.get_mut(namespace)?.asleep,
        };
        asleep.insert(id, waker)
    }

    fn end(&mut self, namespace: Option<&str>, id: u64) -> Option<Waker> {
        let Some(namespace) = namespace else { return self.everywhere.remove(&id) };
        let here = self.namespaces.get_mut(namespace)?;
        let waker = here.asleep.remove(&id);
        here.watches -= 1;
        if here.watches == 0 {
            self.namespaces.remove(namespace);
        }
        waker
    }
}

/// The events of a range, as a stream that ends when the store is closed, when the watches of the resource
/// [are ended](crate::Store::end_watches), or after [`Lagged`].
pub struct Watch {
    shared: Arc<Shared>,
    range: Range,
    id: u64,
    /// Every event of the range up to here has been delivered or is in `ready`.
    cursor: Revision,
    ready: VecDeque<Arc<Event>>,
    /// The last revision that there is anything to deliver of, once there is one.
    end: Arc<OnceLock<Revision>>,
    ended: bool,
}

impl Watch {
    pub(crate) fn start(shared: Arc<Shared>, range: Range, from: Revision) -> Result<Watch, Compacted> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let end = {
            let mut state = shared.state.write();
            state.known(from)?;
            let shelf = state.ensure_shelf(&range.resource);
            shelf.waiting.get_mut().begin(range.namespace.as_ref());
            Arc::clone(&shelf.end)
        };
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Watch { shared, range, id, cursor: from, ready: VecDeque::new(), end, ended: false })
    }

    /// A revision up to which every event of the range has been delivered: what a bookmark may say. It moves on
    /// with changes elsewhere, too.
    pub fn progress(&self) -> Revision {
        if let Some(next) = self.ready.front() {
            return Revision(next.revision.0 - 1);
        }
        let state = self.shared.state.read();
        let Some(shelf) = state.shelf(&self.range.resource) else { return self.cursor };
        if self.ended || self.missed(shelf).is_some() {
            return self.cursor;
        }
        match self.unseen(shelf).next() {
            Some(next) => Revision(next.revision.0 - 1),
            None => state.revision().max(self.cursor),
        }
    }

    /// The revision of the next event, where there is one and it has not been taken from the history yet.
    pub fn next_revision(&self) -> Option<Revision> {
        let state = self.shared.state.read();
        let shelf = state.shelf(&self.range.resource)?;
        let is_behind = self.ready.is_empty() && !self.ended && self.missed(shelf).is_none();
        self.unseen(shelf).next().filter(|_| is_behind).map(|next| next.revision)
    }

    /// Up to where events were taken from the history, where all of them have been delivered.
    pub fn position(&self) -> Option<Revision> {
        self.ready.is_empty().then_some(self.cursor)
    }

    /// Goes on after this revision: whoever reads has the events up to there from elsewhere.
    pub fn skip_to(&mut self, revision: Revision) {
        self.ready.retain(|event| event.revision > revision);
        self.cursor = self.cursor.max(revision);
    }

    fn unseen<'a>(&'a self, shelf: &'a Shelf) -> impl Iterator<Item = &'a Arc<Event>> {
        shelf.events.range(shelf.after(self.cursor)..).filter(|event| self.range.contains(&event.object.key))
    }

    /// Up to where events are forgotten, where some of the range are that were not taken yet. A watch of one namespace is
    /// not woken by others, so that it may have slept through what is forgotten of those.
    fn missed(&self, shelf: &Shelf) -> Option<Revision> {
        if shelf.forgotten <= self.cursor {
            return None;
        }
        let forgotten = match &self.range.namespace {
            None => shelf.forgotten,
            Some(namespace) => shelf.waiting.lock().forgotten(namespace),
        };
        (forgotten > self.cursor).then_some(forgotten)
    }

    /// Takes what there is, or goes to sleep. Both under the lock, so that no event falls in between.
    fn refill(&mut self, context: &Context<'_>) -> Result<Refill, Lagged> {
        // A waker may hold the last of a task, and with it another watch: it is dropped after the lock.
        let _replaced;
        let shared = Arc::clone(&self.shared);
        let state = shared.state.read();
        let Some(shelf) = state.shelf(&self.range.resource) else { return Ok(Refill::Closed) };
        let end = self.end.get().copied();
        if end.is_some_and(|end| end <= self.cursor) {
            return Ok(Refill::Closed);
        }
        if let Some(forgotten) = self.missed(shelf) {
            return Err(Lagged { at: self.cursor, forgotten });
        }
        let to = end.unwrap_or(state.revision());
        let due = self.unseen(shelf).take_while(|event| event.revision <= to);
        let batch: Vec<_> = due.take(BATCH).cloned().collect();
        self.cursor = match batch.last() {
            Some(last) if batch.len() == BATCH => last.revision,
            _ => to.max(self.cursor),
        };
        self.ready.extend(batch);
        if !self.ready.is_empty() {
            Ok(Refill::Ready)
        } else if state.is_closed() || end.is_some() {
            Ok(Refill::Closed)
        } else {
            let (namespace, waker) = (self.range.namespace.as_deref(), context.waker().clone());
            _replaced = shelf.waiting.lock().sleep(namespace, self.id, waker);
            Ok(Refill::Asleep)
        }
    }
}

enum Refill {
    Ready,
    Asleep,
    Closed,
}

impl Stream for Watch {
    type Item = Result<Arc<Event>, Lagged>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ready.is_empty() && !self.ended {
            match self.refill(context) {
                Ok(Refill::Ready) => {}
                Ok(Refill::Asleep) => return Poll::Pending,
                Ok(Refill::Closed) => self.ended = true,
                Err(lagged) => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(lagged)));
                }
            }
        }
        Poll::Ready(self.ready.pop_front().map(Ok))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // As above, the waker goes after the lock.
        let _waker = {
            let state = self.shared.state.read();
            state
                .shelf(&self.range.resource)
                .and_then(|shelf| shelf.waiting.lock().end(self.range.namespace.as_deref(), self.id))
        };
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("range", &self.range)
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Options, Range, Store};

    #[test]
    fn a_namespace_is_remembered_for_as_long_as_it_is_watched() {
        let store = Store::in_memory(Options::default());
        let watched = || {
            let state = store.inner.shared.state.read();
            state.shelf("/pods").map_or(0, |shelf| shelf.waiting.lock().namespaces.len())
        };
        let watch = |namespace: &str| {
            let range = Range { resource: "/pods".into(), namespace: Some(namespace.into()) };
            store.watch(range, store.revision()).unwrap()
        };
        let (first, second, other) = (watch("a"), watch("a"), watch("b"));
        assert_eq!(watched(), 2);
        drop((first, other));
        assert_eq!(watched(), 1);
        drop(second);
        assert_eq!(watched(), 0);
    }
}
