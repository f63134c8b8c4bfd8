//! What a commit expects, and the thread that makes batches of them durable.
//!
//! Commits are judged one after the other, each against what the one before it left. In memory that is all. On
//! disk one thread does it for everyone who is waiting at the moment, writes what came of it with one flush, and
//! only then publishes and answers: what can be seen is durable, and a hundred writers share one flush.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::Shared;
use crate::log::{Log, LogError};
use crate::object::{Event, EventKind, Facets, Key, Revision, Stored};

/// At most that many commits wait for one flush, and at most that many bytes (the last may go over it): enough
/// that the flush no longer counts, little enough that the first does not wait long for the last.
const BATCH_COMMITS: usize = 512;
const BATCH_BYTES: usize = 8 << 20;

/// An object that is to be written: the bytes around the place where the commit's own revision is written in
/// decimal, which are `head`, the revision, `tail`.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// What stands before the revision.
    pub head: Vec<u8>,
    /// What stands after the revision.
    pub tail: Vec<u8>,
    /// What selectors look at.
    pub facets: Facets,
}

/// What the object has to be for the commit to go ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// Not there.
    Absent,
    /// Last changed by this commit.
    At(Revision),
    /// Whatever it is. A deletion still needs something to delete.
    Any,
}

/// What is to become of the object.
#[derive(Clone, Debug)]
pub enum Change {
    /// It is to be this.
    Put(Draft),
    /// It is to be gone; this is the last state, which watches are sent.
    Delete(Draft),
}

/// Why nothing has changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// It was expected to be absent.
    #[error("{} exists", .0.key)]
    Exists(Arc<Stored>),
    /// It was expected to be there.
    #[error("there is no such object")]
    Missing,
    /// It was changed by another commit than expected.
    #[error("{} was changed at revision {}", .0.key, .0.revision)]
    Conflict(Arc<Stored>),
    /// The store takes no more commits.
    #[error("the store is closed")]
    Closed,
    /// It couldn't be written. The next may be: a full disk is emptied.
    #[error("the log can't be written")]
    Io(#[source] Arc<std::io::Error>),
    /// It is not known what is on disk. Nothing is committed any more until the store is opened anew.
    #[error("the log is no longer written, since it could not be flushed")]
    Broken(#[source] Arc<std::io::Error>),
}

/// Judges one commit against the object as it is and gives the event that it would be.
fn judge(
    current: Option<&Arc<Stored>>,
    key: Key,
    expect: Expect,
    change: Change,
    revision: Revision,
) -> Result<Arc<Event>, CommitError> {
    match (expect, current) {
        (Expect::Absent, Some(current)) => return Err(CommitError::Exists(Arc::clone(current))),
        (Expect::At(_), None) => return Err(CommitError::Missing),
        (Expect::At(seen), Some(current)) if seen != current.revision => {
            return Err(CommitError::Conflict(Arc::clone(current)));
        }
        _ => {}
    }
    let (kind, draft) = match (change, current) {
        (Change::Put(draft), None) => (EventKind::Added, draft),
        (Change::Put(draft), Some(_)) => (EventKind::Modified, draft),
        (Change::Delete(draft), Some(_)) => (EventKind::Deleted, draft),
        (Change::Delete(_), None) => return Err(CommitError::Missing),
    };
    let digits = revision.to_string();
    let mut value = Vec::with_capacity(draft.head.len() + digits.len() + draft.tail.len());
    value.extend_from_slice(&draft.head);
    value.extend_from_slice(digits.as_bytes());
    value.extend_from_slice(&draft.tail);
    let object = Arc::new(Stored { key, revision, value: Bytes::from(value), facets: draft.facets });
    Ok(Arc::new(Event { revision, kind, object, previous: current.cloned() }))
}

/// Commits in memory.
pub(crate) fn now(
    shared: &Shared,
    key: Key,
    expect: Expect,
    change: Change,
) -> Result<Arc<Stored>, CommitError> {
    let writing = shared.writing.lock();
    let (current, revision, key) = {
        let state = shared.state.read();
        if state.is_closed() {
            return Err(CommitError::Closed);
        }
        (state.get(&key).cloned(), state.revision().next(), state.share(key))
    };
    let event = judge(current.as_ref(), key, expect, change, revision)?;
    let object = Arc::clone(&event.object);
    let wakers = shared.state.write().publish(event);
    drop(writing);
    wakers.into_iter().for_each(std::task::Waker::wake);
    Ok(object)
}

type Answer = Result<Arc<Stored>, CommitError>;

enum Work {
    Commit(Box<Pending>),
    Close,
}

struct Pending {
    key: Key,
    expect: Expect,
    change: Change,
    answer: oneshot::Sender<Answer>,
}

/// The one who writes the log.
pub(crate) struct Committer {
    shared: Arc<Shared>,
    work: mpsc::Sender<Work>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Committer {
    pub(crate) fn start(shared: Arc<Shared>, log: Log) -> Committer {
        let (work, queue) = mpsc::channel();
        let theirs = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("store".into()).spawn(move || write(&theirs, log, &queue));
        // Without a thread the queue has no reader, and every commit is answered with `Closed`.
        let thread = thread.inspect_err(|error| tracing::error!(%error, "no thread for the store")).ok();
        Committer { shared, work, thread: Mutex::new(thread) }
    }

    pub(crate) async fn commit(&self, key: Key, expect: Expect, change: Change) -> Answer {
        let (answer, answered) = oneshot::channel();
        let pending = Box::new(Pending { key, expect, change, answer });
        let ended = || match self.shared.broken() {
            Some(error) => CommitError::Broken(error),
            None => CommitError::Closed,
        };
        self.work.send(Work::Commit(pending)).map_err(|_| ended())?;
        answered.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Lets what is queued be written, then ends the thread and with it the hold on the directory.
    pub(crate) fn close(&self) {
        // A queue without a reader is closed already.
        let _ = self.work.send(Work::Close);
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the store's thread panicked");
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.close();
    }
}

fn write(shared: &Shared, mut log: Log, queue: &mpsc::Receiver<Work>) {
    let (mut closing, mut trusted) = (false, true);
    while !closing
        && trusted
        && let Ok(first) = queue.recv()
    {
        let mut batch = Batch::new(shared);
        let mut next = Some(first);
        while let Some(work) = next.take() {
            match work {
                Work::Close => closing = true,
                Work::Commit(pending) => {
                    batch.take(*pending);
                    next = if batch.is_full() { None } else { queue.try_recv().ok() };
                }
            }
        }
        trusted = batch.finish(&mut log) && tidy(shared, &mut log);
    }
    if trusted {
        log.end();
    }
    let wakers = shared.state.write().close();
    wakers.into_iter().for_each(std::task::Waker::wake);
}

/// Sees to the length of the log. False when it can no longer be trusted.
fn tidy(shared: &Shared, log: &mut Log) -> bool {
    match log.tidy(|| shared.state.read().present()) {
        Ok(()) | Err(LogError::Refused(_)) => true,
        Err(LogError::Broken(error)) => {
            shared.breaks(error);
            false
        }
    }
}

/// A commit that comes to nothing.
struct Refused {
    error: CommitError,
    /// It was judged by what a commit of the same batch makes of the object.
    rests_on_batch: bool,
    answer: oneshot::Sender<Answer>,
}

/// Commits that share one flush, judged but not yet seen by anyone.
struct Batch<'a> {
    shared: &'a Shared,
    revision: Revision,
    events: Vec<(Arc<Event>, oneshot::Sender<Answer>)>,
    refused: Vec<Refused>,
    /// What the batch itself has made of objects.
    touched: HashMap<Key, Option<Arc<Stored>>>,
    bytes: usize,
}

impl<'a> Batch<'a> {
    fn new(shared: &'a Shared) -> Batch<'a> {
        let revision = shared.state.read().revision();
        Batch { shared, revision, events: vec![], refused: vec![], touched: HashMap::new(), bytes: 0 }
    }

    fn is_full(&self) -> bool {
        self.events.len() >= BATCH_COMMITS || self.bytes >= BATCH_BYTES
    }

    fn take(&mut self, pending: Pending) {
        let Pending { key, expect, change, answer } = pending;
        let touched = self.touched.get(&key);
        let rests_on_batch = touched.is_some();
        let (current, key) = match touched {
            Some(touched) => (touched.clone(), key),
            None => {
                let state = self.shared.state.read();
                (state.get(&key).cloned(), state.share(key))
            }
        };
        match judge(current.as_ref(), key, expect, change, self.revision.next()) {
            Ok(event) => {
                self.revision = event.revision;
                self.bytes += event.object.value.len();
                let left = (event.kind != EventKind::Deleted).then(|| Arc::clone(&event.object));
                self.touched.insert(event.object.key.clone(), left);
                self.events.push((event, answer));
            }
            Err(error) => self.refused.push(Refused { error, rests_on_batch, answer }),
        }
    }

    /// Writes, publishes, answers, in this order. False when the log can no longer be trusted.
    fn finish(self, log: &mut Log) -> bool {
        let written = log.append(self.events.iter().map(|(event, _)| &**event));
        let (trusted, lost) = match written {
            Ok(()) => {
                let mut wakers = Vec::new();
                {
                    let mut state = self.shared.state.write();
                    for (event, _) in &self.events {
                        wakers.append(&mut state.publish(Arc::clone(event)));
                    }
                }
                wakers.into_iter().for_each(std::task::Waker::wake);
                for (event, answer) in self.events {
                    // Whoever no longer waits does not take the commit back.
                    let _ = answer.send(Ok(Arc::clone(&event.object)));
                }
                (true, None)
            }
            Err(LogError::Refused(error)) => {
                tracing::error!(%error, "the log can't be written");
                let lost = CommitError::Io(Arc::new(error));
                for (_, answer) in self.events {
                    let _ = answer.send(Err(lost.clone()));
                }
                (true, Some(lost))
            }
            // Those who wait are told by whoever finds that there is no one to answer.
            Err(LogError::Broken(error)) => (false, Some(CommitError::Broken(self.shared.breaks(error)))),
        };
        // What a refusal rests on may be of this very batch: it is said after that can be seen, and where that never will
        // be it is as lost.
        for Refused { error, rests_on_batch, answer } in self.refused {
            let error = lost.clone().filter(|_| rests_on_batch).unwrap_or(error);
            let _ = answer.send(Err(error));
        }
        trusted
    }
}
