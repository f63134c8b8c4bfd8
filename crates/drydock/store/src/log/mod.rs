//! The file: its format, its replay, its compaction.
//!
//! ```text
//! directory   lock   held by the process that has the store open
//!             log    the whole store; log.new is one in the making
//!             doubt  there where a flush of the log failed; the next to open it writes the log anew
//! log         header, then frames
//! header      "DRYDOCK\n", version u32, salt u32, snapshot revision u64, snapshot objects u64, CRC32 of these
//! frame       length u32, CRC32 of the content u32, CRC32 of these eight bytes, content
//! content     entries: kind u8, revision u64, resource, namespace, name, labels, fields, value
//! ```
//!
//! Numbers are little-endian. A log begins with a snapshot, as frames of objects, and goes on with a frame per
//! batch of commits. An empty frame ends it where it was closed in order. It is compacted by writing a new one beside
//! it and renaming that, so there is never more than one file to agree with.
//!
//! **Invariants.** A frame is acknowledged only after it and everything before it were flushed. So what is
//! unreadable at the very end was never acknowledged and is dropped, and what is unreadable with something
//! readable behind it, were it the empty frame, is damage, and refused. The checksums are seeded with the file's own
//! random salt, lest an object that holds a piece of a log passes for one. After a failed flush nothing is
//! acknowledged any more: the kernel may have dropped what it couldn't write, and trying again would prove nothing.
//! What is read of the file may then be nowhere but in the kernel's memory, so nothing is added to it any more. The
//! word of that need last no longer than this memory does, and is not flushed. Who wrote the end of a log may have been
//! killed before it was flushed: a log that is opened is flushed before anybody sees what it says.

mod compaction;
mod format;
mod replay;

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use compaction::{Compaction, Written, create};
use format::{FRAME_HEADER, VERSION, begin, encode, seal};
use replay::Replay;

use crate::object::{Event, EventKind};
use crate::state::{Snapshot, State};

/// A batch may make the buffer larger than this, but not for ever.
const BUFFER: usize = 1 << 20;
/// A log is compacted when what follows its snapshot is this many times as long as the snapshot, and no shorter
/// than the minimum: each byte is then rewritten a bounded number of times, and small logs not at all.
const OVERGROWN_FACTOR: u64 = 3;
const OVERGROWN_MINIMUM: u64 = 8 << 20;

/// Why a directory can't be opened as a store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another store of this one, has it.
    #[error("{} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The system said no.
    #[error("{}: can't {doing}", path.display())]
    Io {
        /// Of which file.
        path: PathBuf,
        /// Doing what.
        doing: &'static str,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// Written by something newer.
    #[error("{}: written in format version {found}, and this program reads no later one than {VERSION}", path.display())]
    Version {
        /// Of which file.
        path: PathBuf,
        /// The version it says it has.
        found: u32,
    },
    /// The file is damaged where it was once whole.
    #[error("{}: damaged at offset {offset}: {what}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
}

/// Why a batch was not written.
#[derive(Debug)]
pub(crate) enum LogError {
    /// The log is as it was before.
    Refused(io::Error),
    /// What is on disk is not known any more.
    Broken(io::Error),
}

/// What a log needs of the file that it is.
pub(crate) trait Disk: Send {
    /// Adds bytes at the end. After an error some of them may be there.
    fn add(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes what was added last through a power failure.
    fn flush(&mut self) -> io::Result<()>;
    /// Takes away what is beyond this length.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Disk for File {
    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// How the files of a log are written to.
type Disks = Arc<dyn Fn(File) -> Box<dyn Disk> + Send + Sync>;

/// The open log. Dropping it lets the directory go.
pub(crate) struct Log {
    dir: PathBuf,
    disks: Disks,
    file: Box<dyn Disk>,
    salt: u32,
    length: u64,
    snapshot_length: u64,
    /// Up to this length no compaction is begun: the last one has failed.
    patient_until: u64,
    compaction: Option<Compaction>,
    buffer: Vec<u8>,
    /// Held, not read.
    _lock: Option<File>,
}

impl Log {
    /// Locks `dir` and brings `state` to what its log says.
    pub(crate) fn open(dir: &Path, state: &mut State) -> Result<Log, OpenError> {
        Log::open_on(Arc::new(|file| Box::new(file)), dir, state)
    }

    fn open_on(disks: Disks, dir: &Path, state: &mut State) -> Result<Log, OpenError> {
        let failed = |path: &Path, doing| {
            let path = path.to_owned();
            move |source| OpenError::Io { path, doing, source }
        };
        make_directory(dir).map_err(failed(dir, "make the directory"))?;
        let lock_path = dir.join("lock");
        let lock = private(&lock_path, false).map_err(failed(&lock_path, "make it"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(dir.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(&lock_path, "lock it")(error)),
        }
        let path = dir.join("log");
        if !path.try_exists().map_err(failed(&path, "look at it"))? {
            let written = create(dir, &disks, &state.present()).map_err(failed(&path, "make it"))?;
            return Ok(Log::over(dir, disks, written, None, Some(lock)));
        }
        let file =
            OpenOptions::new().read(true).append(true).open(&path).map_err(failed(&path, "open it"))?;
        let Replay { salt, length, snapshot_length, torn } = Replay::of(&path, &file, state)?;
        state.restored_fully();
        if doubt(dir).try_exists().map_err(failed(dir, "look into it"))? {
            tracing::warn!(path = %path.display(), "the log could not be flushed once, and is written anew");
            let written = create(dir, &disks, &state.present()).map_err(failed(&path, "write it anew"))?;
            fs::remove_file(doubt(dir)).map_err(failed(dir, "take the doubt away"))?;
            return Ok(Log::over(dir, disks, written, None, Some(lock)));
        }
        let mut file = disks(file);
        if torn {
            file.cut(length).map_err(failed(&path, "cut off its unfinished end"))?;
        }
        flushed(dir, file.flush()).map_err(failed(&path, "flush it"))?;
        // A compacted log may have been put in its place and no more.
        flushed(dir, sync_directory(dir)).map_err(failed(dir, "flush it"))?;
        Ok(Log::over(dir, disks, Written { file, salt, length }, Some(snapshot_length), Some(lock)))
    }

    /// A log of which so much is its snapshot, or all.
    fn over(
        dir: &Path,
        disks: Disks,
        Written { file, salt, length }: Written,
        snapshot_length: Option<u64>,
        lock: Option<File>,
    ) -> Log {
        Log {
            dir: dir.to_owned(),
            disks,
            file,
            salt,
            length,
            snapshot_length: snapshot_length.unwrap_or(length),
            patient_until: 0,
            compaction: None,
            buffer: Vec::new(),
            _lock: lock,
        }
    }

    /// Writes one frame of events and flushes it.
    pub(crate) fn append<'a>(&mut self, events: impl Iterator<Item = &'a Event>) -> Result<(), LogError> {
        begin(&mut self.buffer);
        for event in events {
            encode(&mut self.buffer, event.kind == EventKind::Deleted, &event.object);
        }
        if self.buffer.len() == FRAME_HEADER {
            return Ok(());
        }
        self.write()
    }

    /// Says that nothing is missing behind what was written. Nothing is lost where this can't be written.
    pub(crate) fn end(mut self) {
        begin(&mut self.buffer);
        if let Err(LogError::Refused(error) | LogError::Broken(error)) = self.write() {
            tracing::warn!(%error, "the log is closed without its end");
        }
    }

    /// Writes the frame in the buffer, and flushes it.
    fn write(&mut self) -> Result<(), LogError> {
        seal(&mut self.buffer, self.salt).map_err(LogError::Refused)?;
        if let Err(error) = self.file.add(&self.buffer) {
            // A full disk, most likely: what did get written is taken back, and the next may fit again.
            return Err(match self.file.cut(self.length) {
                Ok(()) => LogError::Refused(error),
                Err(_) => LogError::Broken(error),
            });
        }
        flushed(&self.dir, self.file.flush()).map_err(LogError::Broken)?;
        self.length += self.buffer.len() as u64;
        if let Some(compaction) = &mut self.compaction {
            compaction.remember(&self.buffer);
        }
        self.buffer.shrink_to(BUFFER);
        Ok(())
    }

    fn is_overgrown(&self) -> bool {
        let grown = self.length - self.snapshot_length;
        grown > OVERGROWN_MINIMUM.max(OVERGROWN_FACTOR * self.snapshot_length)
            && self.length >= self.patient_until
    }

    /// Begins or ends a compaction where it is time to. What is `present` is what the log says.
    pub(crate) fn tidy(&mut self, present: impl FnOnce() -> Snapshot) -> Result<(), LogError> {
        let done = match self.compaction.take_if(|compaction| compaction.is_written()) {
            Some(compaction) => compaction.finish().map(|(written, snapshot_length)| {
                tracing::debug!(before = self.length, after = written.length, "compacted the log");
                (self.salt, self.length, self.snapshot_length) =
                    (written.salt, written.length, snapshot_length);
                self.file = written.file;
                self.patient_until = 0;
            }),
            None if self.compaction.is_none() && self.is_overgrown() => {
                let started = Compaction::start(&self.dir, &self.disks, present()).map_err(LogError::Refused);
                started.map(|compaction| self.compaction = Some(compaction))
            }
            None => Ok(()),
        };
        match done {
            Err(LogError::Refused(error)) => {
                tracing::warn!(%error, "the log can't be compacted and goes on growing");
                self.patient_until = self.length + OVERGROWN_MINIMUM.max(self.length / 2);
                Ok(())
            }
            other => other,
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Some(compaction) = self.compaction.take() {
            compaction.abandon();
        }
    }
}

/// Leaves word where something could not be flushed.
fn flushed(directory: &Path, result: io::Result<()>) -> io::Result<()> {
    result.inspect_err(|_| {
        if let Err(error) = private(&doubt(directory), false) {
            tracing::warn!(%error, "whoever opens the log next is not told of the failed flush");
        }
    })
}

/// What is there as long as the log may say other than the disk does.
fn doubt(directory: &Path) -> PathBuf {
    directory.join("doubt")
}

/// Makes a directory and those above it, so that it is there after a power failure, too.
fn make_directory(directory: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = directory.ancestors().take_while(|path| !path.exists()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    missing.iter().filter_map(|made| made.parent()).try_for_each(|parent| {
        sync_directory(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
    })
}

/// Makes the names in a directory last through a power failure.
fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// A file only its owner can read.
fn private(path: &Path, new: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600);
    if new { options.create_new(true) } else { options.create(true) }.open(path)
}

#[cfg(test)]
mod tests;
