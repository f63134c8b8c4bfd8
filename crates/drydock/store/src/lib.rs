//! What the cluster remembers: objects under keys, each change with a revision of its own.
//!
//! **Guarantees.** Every commit raises the revision by exactly one, and its event is seen by each watch of its
//! range once, in order. A reader sees a prefix of the commits, never a mixture; a commit that is visible is
//! durable where the store was [opened](Store::open) on a directory. A commit that could not be written is told so
//! and never seen; once it is not known what is on disk none is [taken](Store::broken) any more. Any revision from [`Store::oldest`] on can
//! be listed, snapshotted and watched from; an older one is refused with [`Compacted`], never answered wrongly.
//!
//! **What it does not do.** It knows nothing of JSON or of Kubernetes: a value is bytes, and what selectors look
//! at are the [`Facets`] that the writer puts beside them.
//!
//! | file | idea |
//! | --- | --- |
//! | `object` | keys, revisions, stored objects, events: the vocabulary |
//! | `state` | the maps, the history, and how an older revision is had from them |
//! | `watch` | a cursor into the history that wakes when its range changes |
//! | `commit` | what a commit expects, and the thread that makes batches of them durable |
//! | `log` | the file: its format, its replay, its compaction |

mod commit;
mod log;
mod object;
mod state;
mod watch;

use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch as told;

use commit::Committer;
use state::State;

pub use commit::{Change, CommitError, Draft, Expect};
pub use log::OpenError;
pub use object::{Event, EventKind, Facets, Key, Listing, Page, Range, Revision, Stored};
pub use state::{Compacted, Snapshot};
pub use watch::{Lagged, Watch};

/// How a store is to behave.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many events are kept for watches to resume from and older revisions to be listed at. `usize::MAX`
    /// keeps all of them.
    pub history: usize,
    /// How many bytes of values are kept that are values no more: of objects as they were before a change, and
    /// of deleted ones. The oldest events go first, whatever their number.
    pub history_bytes: usize,
}

impl Options {
    /// Nothing is ever forgotten, unless it is [asked for](Store::compact).
    #[must_use]
    pub fn unlimited() -> Self {
        Options { history: usize::MAX, history_bytes: usize::MAX }
    }
}

impl Default for Options {
    /// Some minutes of a busy small cluster: a client that was away for longer lists anew. The largest objects
    /// are some megabytes, so that the history of a few of them changing all the time stays within bounds.
    fn default() -> Self {
        Options { history: 8192, history_bytes: 64 << 20 }
    }
}

/// A handle to one store; clones share it.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    committer: Option<Committer>,
}

/// What watches and the committing thread need; they don't keep the store itself open.
pub(crate) struct Shared {
    pub(crate) state: RwLock<State>,
    /// Held from looking at the expectation to publishing, where there is no committing thread to do that.
    pub(crate) writing: Mutex<()>,
    /// Why the log is no longer written, once it isn't.
    broken: told::Sender<Option<Arc<std::io::Error>>>,
}

impl Shared {
    /// It is not known any more what is on disk.
    pub(crate) fn breaks(&self, error: std::io::Error) -> Arc<std::io::Error> {
        tracing::error!(%error, "the log can no longer be written");
        let error = Arc::new(error);
        self.broken.send_replace(Some(Arc::clone(&error)));
        error
    }

    pub(crate) fn broken(&self) -> Option<Arc<std::io::Error>> {
        self.broken.borrow().clone()
    }
}

impl Store {
    /// An empty store that is gone with its last handle.
    pub fn in_memory(options: Options) -> Store {
        Store::over(State::new(&options), None)
    }

    /// The store kept in `dir`, which is made when it isn't there. One process at a time.
    ///
    /// # Errors
    /// The directory is in use, can't be read or written, or holds something other than an intact log. An
    /// unfinished last write is no error: it was never acknowledged, and is dropped with a warning.
    pub fn open(dir: &Path, options: Options) -> Result<Store, OpenError> {
        let mut state = State::new(&options);
        let log = log::Log::open(dir, &mut state)?;
        Ok(Store::over(state, Some(log)))
    }

    /// A store in memory that begins as `snapshot` was: same objects, same revision, no history before it.
    pub fn from_snapshot(snapshot: Snapshot, options: Options) -> Store {
        Store::over(State::restored(snapshot, &options), None)
    }

    fn over(state: State, log: Option<log::Log>) -> Store {
        let broken = told::Sender::new(None);
        let shared = Arc::new(Shared { state: RwLock::new(state), writing: Mutex::new(()), broken });
        let committer = log.map(|log| Committer::start(Arc::clone(&shared), log));
        Store { inner: Arc::new(Inner { shared, committer }) }
    }

    /// The revision of the latest commit. An empty store is at revision 1, as an empty etcd is, so that no list
    /// ever bears revision 0, which clients read as "any".
    pub fn revision(&self) -> Revision {
        self.inner.shared.state.read().revision()
    }

    /// The oldest revision that can still be listed, snapshotted and watched from.
    pub fn oldest(&self) -> Revision {
        self.inner.shared.state.read().oldest()
    }

    /// The revision of the last change to any object of `resource`, `Revision(0)` when there was none: whoever
    /// keeps something derived from those objects knows by it when to derive anew.
    pub fn resource_revision(&self, resource: &str) -> Revision {
        self.inner.shared.state.read().resource_revision(resource)
    }

    /// How many commits succeeded since this store was made or opened.
    pub fn commits(&self) -> u64 {
        self.inner.shared.state.read().commits()
    }

    /// The object under `key`, as it is now.
    pub fn get(&self, key: &Key) -> Option<Arc<Stored>> {
        self.inner.shared.state.read().get(key).cloned()
    }

    /// The objects of `range` in order of namespace and name, a page of them, now or as of an older revision.
    /// A revision that is yet to come is answered with the latest; [`Listing::revision`] says which it was.
    ///
    /// # Errors
    /// The revision asked for is older than [`Store::oldest`].
    pub fn list(&self, range: &Range, page: Page) -> Result<Listing, Compacted> {
        let (revision, objects) = self.inner.shared.state.read().objects_at(&range.resource, page.at)?;
        Ok(state::page_of(&objects, revision, range, &page))
    }

    /// Carries out `change` if the object is as `expect` says, and gives the object as it now is or, for a
    /// deletion, last was.
    ///
    /// Dropping the future does not take the commit back.
    ///
    /// # Errors
    /// The object is not as expected, or the change couldn't be made durable; then nothing has changed.
    pub async fn commit(&self, key: Key, expect: Expect, change: Change) -> Result<Arc<Stored>, CommitError> {
        match &self.inner.committer {
            None => commit::now(&self.inner.shared, key, expect, change),
            Some(committer) => committer.commit(key, expect, change).await,
        }
    }

    /// Why commits are taken no more, when they aren't though nobody closed the store.
    pub fn failure(&self) -> Option<Arc<std::io::Error>> {
        self.inner.shared.broken()
    }

    /// Waits until it is not known any more what is on disk, which is seldom, and says why. Nothing that was
    /// acknowledged is affected; whoever opens the directory anew has all of it.
    pub async fn broken(&self) -> Arc<std::io::Error> {
        let mut told = self.inner.shared.broken.subscribe();
        loop {
            if let Some(error) = told.borrow_and_update().clone() {
                return error;
            }
            if told.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Every event of `range` with a revision above `from`, in order, as they come.
    ///
    /// # Errors
    /// `from` is older than [`Store::oldest`].
    pub fn watch(&self, range: Range, from: Revision) -> Result<Watch, Compacted> {
        Watch::start(Arc::clone(&self.inner.shared), range, from)
    }

    /// Everything as it was right after the commit with revision `at`, or now when that is yet to come.
    ///
    /// # Errors
    /// `at` is older than [`Store::oldest`].
    pub fn snapshot(&self, at: Revision) -> Result<Snapshot, Compacted> {
        self.inner.shared.state.read().snapshot(at)
    }

    /// Forgets the history up to `floor`; what is stored now stays. A watch that has yet to deliver a forgotten
    /// event ends with [`Lagged`].
    pub fn compact(&self, floor: Revision) {
        let wakers = self.inner.shared.state.write().compact(floor);
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    /// Ends the watches that there are of a resource, once they have delivered what there is of it now: what its
    /// objects mean is about to be something else.
    pub fn end_watches(&self, resource: &str) {
        let wakers = self.inner.shared.state.write().end_watches(resource);
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    /// Whether commits are taken no more.
    pub fn is_closed(&self) -> bool {
        self.inner.shared.state.read().is_closed()
    }

    /// Takes no more commits, ends the watches once they have delivered what there was, and lets the directory
    /// go. Commits already accepted are carried out first. Reading goes on working.
    pub fn close(&self) {
        if let Some(committer) = &self.inner.committer {
            committer.close();
        }
        let wakers = self.inner.shared.state.write().close();
        wakers.into_iter().for_each(std::task::Waker::wake);
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("revision", &self.revision()).finish_non_exhaustive()
    }
}
