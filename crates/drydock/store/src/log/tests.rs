//! Disks that fail, as none on a developer's machine does.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;

use super::format::HEADER;
use super::{Disk, Disks, Log, OpenError, Written};
use crate::{
    Change, CommitError, Draft, Event, EventKind, Expect, Facets, Key, Options, Page, Range, Revision,
    Snapshot, State, Store, Stored,
};

/// What a disk holds, and how it is to behave.
#[derive(Default)]
struct Plates {
    bytes: Vec<u8>,
    /// So many fit.
    room: usize,
    flush_fails: bool,
    cut_fails: bool,
    flushes: usize,
    /// The next flush takes until there is word from here.
    held: Option<mpsc::Receiver<()>>,
}

#[derive(Clone)]
struct Failing(Arc<Mutex<Plates>>);

impl Disk for Failing {
    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut plates = self.0.lock();
        let fitting = bytes.len().min(plates.room.saturating_sub(plates.bytes.len()));
        plates.bytes.extend_from_slice(&bytes[..fitting]);
        if fitting < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        let held = self.0.lock().held.take();
        held.map(|held| held.recv());
        self.0.lock().flushes += 1;
        if self.0.lock().flush_fails { Err(io::Error::other("the disk is gone")) } else { Ok(()) }
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        let mut plates = self.0.lock();
        if plates.cut_fails {
            return Err(io::Error::other("the disk is gone"));
        }
        plates.bytes.truncate(length as usize);
        Ok(())
    }
}

/// A store on a disk with so much room.
fn store(room: usize) -> (Store, Failing) {
    let header = super::format::header(7, Revision(1), 0);
    let length = header.len() as u64;
    let disks: Disks = Arc::new(|file| Box::new(file));
    let disk = Failing(Arc::new(Mutex::new(Plates { bytes: header, room, ..Plates::default() })));
    let written = Written { file: Box::new(disk.clone()), salt: 7, length };
    let log = Log::over(Path::new("/nonexistent"), disks, written, None, None);
    (Store::over(State::new(&Options::default()), Some(log)), disk)
}

/// A file whose flushes fail.
struct Unflushed(File);

impl Disk for Unflushed {
    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.add(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(io::Error::other("the disk is gone"))
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.0.cut(length)
    }
}

fn key(name: &str) -> Key {
    Key::new("/pods", "default", name)
}

async fn put(store: &Store, name: &str, size: usize) -> Result<Revision, CommitError> {
    let draft = Draft { tail: vec![b'x'; size], ..Draft::default() };
    let put = store.commit(key(name), Expect::Any, Change::Put(draft)).await;
    put.map(|stored| stored.revision)
}

fn names(store: &Store) -> Vec<String> {
    let range = Range { resource: "/pods".into(), namespace: None };
    let listing = store.list(&range, Page::default()).unwrap();
    listing.items.iter().map(|item| item.key.name.to_string()).collect()
}

/// The names that a store has which finds these bytes as its log.
fn reopened(disk: &Failing) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("log"), &disk.0.lock().bytes).unwrap();
    names(&Store::open(directory.path(), Options::default()).unwrap())
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_takes_them_again_once_there_is_room() {
    let (store, disk) = store(1000);
    assert_eq!(put(&store, "a", 100).await.unwrap(), Revision(2));
    for name in ["b", "c"] {
        let error = put(&store, name, 2000).await.unwrap_err();
        assert!(
            matches!(&error, CommitError::Io(error) if error.kind() == io::ErrorKind::StorageFull),
            "{error}"
        );
    }
    assert_eq!((names(&store), store.revision()), (vec!["a".into()], Revision(2)), "nothing was seen of it");
    assert_eq!(put(&store, "small", 100).await.unwrap(), Revision(3), "what fits is taken");
    disk.0.lock().room = 10_000;
    assert_eq!(put(&store, "b", 2000).await.unwrap(), Revision(4));
    assert_eq!(names(&store), ["a", "b", "small"]);
    assert_eq!(reopened(&disk), ["a", "b", "small"]);
}

#[tokio::test]
async fn what_was_never_written_exists_for_nobody() {
    let (store, disk) = store(500);
    let (go, held) = mpsc::channel();
    disk.0.lock().held = Some(held);
    let create = async |name: &str, size| {
        let draft = Draft { tail: vec![b'x'; size], ..Draft::default() };
        store.commit(key(name), Expect::Absent, Change::Put(draft)).await.map(drop)
    };
    // The first is on its way to the disk while the others come together; of these the second finds the first there.
    let mut first = std::pin::pin!(create("a", 100));
    assert!(first.as_mut().now_or_never().is_none());
    while disk.0.lock().bytes.len() == HEADER {
        std::thread::yield_now();
    }
    let mut others: FuturesUnordered<_> = (0..2).map(|_| create("b", 1000)).collect();
    let mut again = std::pin::pin!(create("a", 100));
    assert!(others.next().now_or_never().is_none() && again.as_mut().now_or_never().is_none());
    go.send(()).unwrap();
    first.await.unwrap();
    while let Some(answer) = others.next().await {
        assert!(matches!(&answer, Err(CommitError::Io(_))), "{answer:?}");
    }
    let answer = again.await;
    assert!(matches!(&answer, Err(CommitError::Exists(_))), "what was there before is: {answer:?}");
    assert_eq!(names(&store), ["a"]);
}

#[tokio::test]
async fn after_a_failed_flush_nothing_is_acknowledged_any_more() {
    let (store, disk) = store(10_000);
    put(&store, "a", 100).await.unwrap();
    disk.0.lock().flush_fails = true;
    let error = put(&store, "b", 100).await.unwrap_err();
    assert!(matches!(error, CommitError::Broken(_)), "{error}");
    disk.0.lock().flush_fails = false;
    let error = put(&store, "c", 100).await.unwrap_err();
    assert!(matches!(error, CommitError::Broken(_)), "a flush that works again proves nothing: {error}");
    assert_eq!(store.broken().await.to_string(), "the disk is gone");
    assert_eq!(names(&store), ["a"], "reading goes on");
    assert!(reopened(&disk).starts_with(&["a".into()]), "what was acknowledged is there");
}

#[tokio::test]
async fn what_was_not_flushed_is_not_built_upon() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let open = || Store::open(path, Options::default()).unwrap();
    put(&open(), "a", 100).await.unwrap();
    let mut state = State::new(&Options::default());
    let mut log = Log::open(path, &mut state).unwrap();
    log.file = Box::new(Unflushed(File::options().append(true).open(path.join("log")).unwrap()));
    put(&Store::over(state, Some(log)), "b", 100).await.unwrap_err();

    // Of what the kernel's memory says of the old file nothing is known to be on the disk: it is left as it is.
    let mut old = File::open(path.join("log")).unwrap();
    let length = old.metadata().unwrap().len();
    let store = open();
    assert!(names(&store).starts_with(&["a".into()]), "what was acknowledged is there");
    put(&store, "c", 100).await.unwrap();
    let mut bytes = Vec::new();
    old.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, length);
    drop(store);
    let file = || fs::metadata(path.join("log")).unwrap().ino();
    let (before, store) = (file(), open());
    assert_eq!((names(&store).last().map(String::as_str), file()), (Some("c"), before), "once is enough");
}

#[tokio::test]
async fn what_a_killed_process_left_is_flushed_before_anybody_sees_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let open = || Store::open(path, Options::default()).unwrap();
    put(&open(), "a", 100).await.unwrap();
    let unflushed: Disks = Arc::new(|file| Box::new(Unflushed(file)));
    let refused = Log::open_on(unflushed, path, &mut State::new(&Options::default())).err().unwrap();
    assert!(matches!(&refused, OpenError::Io { doing: "flush it", .. }), "{refused}");
    // That it can be flushed now proves nothing.
    let file = || fs::metadata(path.join("log")).unwrap().ino();
    let (before, store) = (file(), open());
    assert_eq!(names(&store), ["a"]);
    assert_ne!(file(), before, "it is written anew");
}

/// A file that is full.
struct Full(File);

impl Disk for Full {
    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.add(&bytes[..bytes.len() / 2])?;
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.0.cut(length)
    }
}

#[test]
fn a_compaction_that_fails_leaves_nothing_and_one_that_succeeds_ends_the_patience() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let full = Arc::new(AtomicBool::new(false));
    let is_full = Arc::clone(&full);
    let disks: Disks = Arc::new(move |file| match is_full.load(Ordering::Relaxed) {
        true => Box::new(Full(file)),
        false => Box::new(file),
    });
    let mut state = State::new(&Options { history: 1, ..Options::default() });
    let mut log = Log::open_on(disks, path, &mut state).unwrap();
    // One object that is written again and again, until a compaction has come to its end.
    let mut grow = |log: &mut Log| {
        while log.compaction.is_none() {
            let (revision, previous) = (state.revision().next(), state.get(&key("a")).cloned());
            let kind = if previous.is_some() { EventKind::Modified } else { EventKind::Added };
            let value = vec![b'x'; 1 << 20].into();
            let object = Arc::new(Stored { key: key("a"), revision, value, facets: Facets::default() });
            let event = Arc::new(Event { revision, kind, object, previous });
            log.append([&*event].into_iter()).unwrap();
            state.publish(event);
            log.tidy(|| state.present()).unwrap();
        }
        let grown = log.length;
        while !log.compaction.as_ref().is_some_and(|compaction| compaction.is_written()) {
            std::thread::yield_now();
        }
        grown
    };
    full.store(true, Ordering::Relaxed);
    let first = grow(&mut log);
    assert!(!path.join("log.new").exists(), "the room is free before anybody writes again");
    full.store(false, Ordering::Relaxed);
    let present = || -> Snapshot { unreachable!("nothing is begun") };
    log.tidy(present).unwrap();
    assert!(log.compaction.is_none() && log.length == first);
    let second = grow(&mut log);
    assert!(second > first + (7 << 20), "it was not tried again at once");
    log.tidy(present).unwrap();
    assert!(log.length < 2 << 20);
    assert!(grow(&mut log) < first + (2 << 20), "as if nothing had happened");
}

#[tokio::test]
async fn what_could_neither_be_written_nor_taken_back_is_the_end() {
    let (store, disk) = store(1000);
    put(&store, "a", 100).await.unwrap();
    disk.0.lock().cut_fails = true;
    let error = put(&store, "b", 2000).await.unwrap_err();
    assert!(matches!(error, CommitError::Broken(_)), "{error}");
    assert!(matches!(put(&store, "c", 1).await, Err(CommitError::Broken(_))));
    assert_eq!(reopened(&disk), ["a"], "the rest is an unfinished end");
}

#[tokio::test]
async fn those_who_wait_for_a_flush_share_the_next_one() {
    let (store, disk) = store(100_000);
    let (go, held) = mpsc::channel();
    disk.0.lock().held = Some(held);
    let mut commits: FuturesUnordered<_> = (0..101)
        .map(|number| {
            let store = &store;
            async move { put(store, &format!("object-{number}"), 10).await }
        })
        .collect();
    // Asked once each, all are queued by now, and the first is on its way to the disk.
    assert!(commits.next().now_or_never().is_none());
    while disk.0.lock().bytes.len() == HEADER {
        std::thread::yield_now();
    }
    go.send(()).unwrap();
    while let Some(done) = commits.next().await {
        done.unwrap();
    }
    let flushes = disk.0.lock().flushes;
    assert!(flushes <= 2, "{flushes} flushes for 101 commits");
    assert_eq!(reopened(&disk).len(), 101);
}
