//! A log in the making, which is to take the place of the one that has grown too long.
//!
//! It is written beside the present one by a thread of its own, from a snapshot that costs nothing to take, while
//! commits go on. What is committed meanwhile goes to the present log and is remembered; it is added to the new log
//! at the end, so that commits wait for that much and no more.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::format::{begin, encode, header, reseal, seal};
use super::{Disk, Disks, LogError, flushed, private, sync_directory};
use crate::state::Snapshot;

/// Objects of a snapshot are put into frames of about that size.
const SNAPSHOT_FRAME: usize = 1 << 20;
/// So many bytes are flushed at a time: those who commit meanwhile wait for the same disk.
const FLUSHED: u64 = 4 << 20;

/// A log that has been written.
pub(super) struct Written {
    pub(super) file: Box<dyn Disk>,
    pub(super) salt: u32,
    pub(super) length: u64,
}

/// One in the making.
pub(super) struct Compaction {
    directory: PathBuf,
    thread: JoinHandle<io::Result<Written>>,
    /// The frames that were appended to the present log since.
    since: Vec<u8>,
}

impl Compaction {
    /// Begins one with the present, beside the log in `directory`.
    pub(super) fn start(directory: &Path, disks: &Disks, present: Snapshot) -> io::Result<Compaction> {
        let (place, disks) = (directory.to_owned(), Arc::clone(disks));
        // Commits need the room that one has taken which didn't fit, and it may be long until the next.
        let thread = std::thread::Builder::new()
            .name("store-compaction".into())
            .spawn(move || write(&place, &disks, &present).inspect_err(|_| discard(&place)))?;
        Ok(Compaction { directory: directory.to_owned(), thread, since: Vec::new() })
    }

    /// A frame was appended to the present log.
    pub(super) fn remember(&mut self, frame: &[u8]) {
        self.since.extend_from_slice(frame);
    }

    /// Whether nothing but what was remembered is left to be written.
    pub(super) fn is_written(&self) -> bool {
        self.thread.is_finished()
    }

    /// Puts it in the place of the present log, and gives its length without what was remembered. `Refused` leaves
    /// everything as it was.
    pub(super) fn finish(self) -> Result<(Written, u64), LogError> {
        let Compaction { directory, thread, mut since } = self;
        let written = thread.join().unwrap_or_else(|_| Err(io::Error::other("it ended by a panic")));
        let added = written.and_then(|mut written| {
            let snapshot = written.length;
            reseal(&mut since, written.salt)?;
            written.file.add(&since)?;
            written.file.flush()?;
            written.length += since.len() as u64;
            Ok((written, snapshot))
        });
        let placed = added.and_then(|added| place(&directory).map(|()| added));
        let done = placed.map_err(|error| {
            discard(&directory);
            LogError::Refused(error)
        })?;
        // From here on the new log is the log, whether or not a power failure would leave the old one in its place.
        flushed(&directory, sync_directory(&directory)).map_err(LogError::Broken)?;
        Ok(done)
    }

    /// Leaves the present log in its place.
    pub(super) fn abandon(self) {
        // Whatever came of it, it is not wanted.
        let _ = self.thread.join();
        discard(&self.directory);
    }
}

fn path(directory: &Path) -> PathBuf {
    directory.join("log.new")
}

/// What is not finished only takes up room.
fn discard(directory: &Path) {
    if let Err(error) = std::fs::remove_file(path(directory))
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, "an unfinished log can't be removed");
    }
}

/// Makes the log that has been written the log.
fn place(directory: &Path) -> io::Result<()> {
    std::fs::rename(path(directory), directory.join("log"))
}

/// Writes the first log of a directory.
pub(super) fn create(directory: &Path, disks: &Disks, snapshot: &Snapshot) -> io::Result<Written> {
    let made = write(directory, disks, snapshot).and_then(|written| {
        place(directory)?;
        sync_directory(directory)?;
        Ok(written)
    });
    made.inspect_err(|_| discard(directory))
}

/// Writes and flushes a log that holds `snapshot`.
fn write(directory: &Path, disks: &Disks, snapshot: &Snapshot) -> io::Result<Written> {
    let path = path(directory);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = disks(private(&path, true)?);
    let salt = RandomState::new().hash_one(snapshot.revision()) as u32;
    let header = header(salt, snapshot.revision(), snapshot.len());
    file.add(&header)?;
    let mut length = header.len() as u64;
    let mut flushed = 0;
    let mut objects = snapshot.iter().peekable();
    let mut frame = Vec::new();
    while objects.peek().is_some() {
        begin(&mut frame);
        while frame.len() < SNAPSHOT_FRAME
            && let Some(object) = objects.next()
        {
            encode(&mut frame, false, object);
        }
        seal(&mut frame, salt)?;
        file.add(&frame)?;
        length += frame.len() as u64;
        if length - flushed >= FLUSHED {
            file.flush()?;
            flushed = length;
        }
    }
    file.flush()?;
    Ok(Written { file, salt, length })
}
