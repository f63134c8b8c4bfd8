//! The file: its format, its replay, its compaction.
//!
//! ```text
//! directory   lock   held by the process that has the store open
//!             log    the whole store; log.new is one in the making
//! log         header, then frames
//! header      "DRYDOCK\n", version u32, salt u32, snapshot revision u64, snapshot objects u64, CRC32 of these
//! frame       length u32, CRC32 of the content u32, CRC32 of these eight bytes, content
//! content     entries: kind u8, revision u64, resource, namespace, name, labels, fields, value
//! ```
//!
//! Numbers are little-endian. A log begins with a snapshot, as frames of objects, and goes on with a frame per
//! batch of commits. It is compacted by writing a new one beside it and renaming that, so there is never more
//! than one file to agree with.
//!
//! **Invariant.** A frame is acknowledged only after it and everything before it were flushed. So what is
//! unreadable at the very end was never acknowledged and is dropped, and what is unreadable with something
//! readable behind it is damage, and refused. The checksums are seeded with the file's own random salt, lest an
//! object that holds a piece of a log passes for one.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::object::{Event, EventKind, Facets, Key, Pairs, Revision, Stored};
use crate::state::{Snapshot, State};

const MAGIC: &[u8; 8] = b"DRYDOCK\n";
const VERSION: u32 = 1;
const HEADER: usize = 36;
const FRAME_HEADER: usize = 12;
/// Objects of a snapshot are put into frames of about that size.
const SNAPSHOT_FRAME: usize = 1 << 20;
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
    /// Written by something newer, or not a log at all.
    #[error("{}: format version {found}, and only {VERSION} is known", path.display())]
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
pub(crate) enum LogError {
    /// The log is as it was before.
    Refused(io::Error),
    /// What is on disk is not known any more.
    Broken(io::Error),
}

/// The open log. Dropping it lets the directory go.
pub(crate) struct Log {
    dir: PathBuf,
    file: File,
    salt: u32,
    length: u64,
    snapshot_length: u64,
    buffer: Vec<u8>,
    /// Held, not read.
    _lock: File,
}

impl Log {
    /// Locks `dir` and brings `state` to what its log says.
    pub(crate) fn open(dir: &Path, state: &mut State) -> Result<Log, OpenError> {
        let failed = |path: &Path, doing| {
            let path = path.to_owned();
            move |source| OpenError::Io { path, doing, source }
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(failed(dir, "make the directory"))?;
        let lock_path = dir.join("lock");
        let lock = private(&lock_path, false).map_err(failed(&lock_path, "make it"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(dir.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(&lock_path, "lock it")(error)),
        }
        let path = dir.join("log");
        if !path.try_exists().map_err(failed(&path, "look at it"))? {
            let (file, salt, length) = create(dir, &state.present()).map_err(failed(&path, "make it"))?;
            let buffer = Vec::new();
            return Ok(Log {
                dir: dir.to_owned(),
                file,
                salt,
                length,
                snapshot_length: length,
                buffer,
                _lock: lock,
            });
        }
        let file =
            OpenOptions::new().read(true).append(true).open(&path).map_err(failed(&path, "open it"))?;
        let replayed = Replay::of(&path, &file, state)?;
        state.restored_fully();
        if replayed.torn {
            let cut = file.set_len(replayed.length).and_then(|()| file.sync_all());
            cut.map_err(failed(&path, "cut off its unfinished end"))?;
        }
        let mut log = Log {
            dir: dir.to_owned(),
            file,
            salt: replayed.salt,
            length: replayed.length,
            snapshot_length: replayed.snapshot_length,
            buffer: Vec::new(),
            _lock: lock,
        };
        if log.is_overgrown() {
            log.compact(&state.present()).map_err(failed(&path, "compact it"))?;
        }
        Ok(log)
    }

    /// Writes one frame and flushes it.
    pub(crate) fn append<'a>(&mut self, events: impl Iterator<Item = &'a Event>) -> Result<(), LogError> {
        self.buffer.clear();
        self.buffer.resize(FRAME_HEADER, 0);
        for event in events {
            encode(&mut self.buffer, event.kind == EventKind::Deleted, &event.object);
        }
        if self.buffer.len() == FRAME_HEADER {
            return Ok(());
        }
        seal(&mut self.buffer, self.salt).map_err(LogError::Refused)?;
        if let Err(error) = self.file.write_all(&self.buffer) {
            // A full disk, most likely: what did get written is taken back, and the next may fit again.
            return Err(match self.file.set_len(self.length) {
                Ok(()) => LogError::Refused(error),
                Err(_) => LogError::Broken(error),
            });
        }
        // After a failed flush the kernel may have dropped what it couldn't write: trying again proves nothing.
        self.file.sync_data().map_err(LogError::Broken)?;
        self.length += self.buffer.len() as u64;
        // One large batch shall not be held on to for ever.
        self.buffer.shrink_to(SNAPSHOT_FRAME);
        Ok(())
    }

    pub(crate) fn is_overgrown(&self) -> bool {
        self.length - self.snapshot_length > OVERGROWN_MINIMUM.max(OVERGROWN_FACTOR * self.snapshot_length)
    }

    /// Replaces the log by one that begins with `snapshot`, which has to be the present.
    pub(crate) fn compact(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let before = self.length;
        (self.file, self.salt, self.length) = create(&self.dir, snapshot)?;
        self.snapshot_length = self.length;
        tracing::debug!(before, after = self.length, "compacted the log");
        Ok(())
    }
}

/// A file only its owner can read.
fn private(path: &Path, new: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600);
    if new { options.create_new(true) } else { options.create(true) }.open(path)
}

/// Writes a log that holds `snapshot` and puts it in the place of the one before.
fn create(dir: &Path, snapshot: &Snapshot) -> io::Result<(File, u32, u64)> {
    let path = dir.join("log.new");
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = private(&path, true)?;
    let salt = RandomState::new().hash_one(snapshot.revision()) as u32;
    let mut header = Vec::with_capacity(HEADER);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&salt.to_le_bytes());
    header.extend_from_slice(&snapshot.revision().0.to_le_bytes());
    header.extend_from_slice(&(snapshot.len() as u64).to_le_bytes());
    header.extend_from_slice(&checksum(0, &header).to_le_bytes());
    file.write_all(&header)?;
    let mut length = header.len() as u64;
    let mut objects = snapshot.iter().peekable();
    let mut frame = Vec::new();
    while objects.peek().is_some() {
        frame.clear();
        frame.resize(FRAME_HEADER, 0);
        while frame.len() < SNAPSHOT_FRAME
            && let Some(object) = objects.next()
        {
            encode(&mut frame, false, object);
        }
        seal(&mut frame, salt)?;
        file.write_all(&frame)?;
        length += frame.len() as u64;
    }
    file.sync_all()?;
    std::fs::rename(&path, dir.join("log"))?;
    File::open(dir)?.sync_all()?;
    Ok((file, salt, length))
}

fn checksum(salt: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(salt);
    hasher.update(bytes);
    hasher.finalize()
}

/// Fills in the frame header for which room was left.
fn seal(frame: &mut [u8], salt: u32) -> io::Result<()> {
    let Some((header, content)) = frame.split_at_mut_checked(FRAME_HEADER) else { return Ok(()) };
    let length = u32::try_from(content.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    let mut sealed = Vec::with_capacity(FRAME_HEADER);
    sealed.extend_from_slice(&length.to_le_bytes());
    sealed.extend_from_slice(&checksum(salt, content).to_le_bytes());
    sealed.extend_from_slice(&checksum(salt, &sealed).to_le_bytes());
    header.copy_from_slice(&sealed);
    Ok(())
}

fn encode(out: &mut Vec<u8>, deleted: bool, object: &Stored) {
    fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
        // What is longer than 4 GiB does not fit into a frame, and `seal` says so.
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
    }
    out.push(u8::from(deleted));
    out.extend_from_slice(&object.revision.0.to_le_bytes());
    for part in [&object.key.resource, &object.key.namespace, &object.key.name] {
        bytes(out, part.as_bytes());
    }
    for pairs in [&object.facets.labels, &object.facets.fields] {
        out.extend_from_slice(&(pairs.len() as u32).to_le_bytes());
        for (name, value) in pairs {
            bytes(out, name.as_bytes());
            bytes(out, value.as_bytes());
        }
    }
    bytes(out, &object.value);
}

/// Reads what `encode` wrote; `None` is what it can't have written.
struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    fn pairs(&mut self) -> Option<Pairs> {
        (0..self.u32()?).map(|_| Some((self.text()?.into(), self.text()?.into()))).collect()
    }

    fn entry(&mut self) -> Option<(bool, Arc<Stored>)> {
        let deleted = match self.take(1)? {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        let revision = Revision(self.u64()?);
        let key = Key::new(self.text()?, self.text()?, self.text()?);
        let facets = Facets { labels: self.pairs()?, fields: self.pairs()? };
        let value = Bytes::copy_from_slice(self.bytes()?);
        Some((deleted, Arc::new(Stored { key, revision, value, facets })))
    }
}

/// What reading a log through has shown.
struct Replay {
    salt: u32,
    /// Up to where it is good.
    length: u64,
    snapshot_length: u64,
    torn: bool,
}

impl Replay {
    fn of(path: &Path, file: &File, state: &mut State) -> Result<Replay, OpenError> {
        let failed = |source| OpenError::Io { path: path.to_owned(), doing: "read it", source };
        let damaged = |offset: u64, what: String| OpenError::Damaged { path: path.to_owned(), offset, what };
        let size = file.metadata().map_err(failed)?.len();
        let mut reader = io::BufReader::with_capacity(1 << 18, file);

        let mut header = [0; HEADER];
        reader.read_exact(&mut header).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                damaged(0, format!("{size} bytes are too few for a log's header"))
            }
            _ => failed(error),
        })?;
        let mut fields = Decoder(&header);
        let (magic, version) = (fields.take(8), fields.u32().unwrap_or_default());
        if magic != Some(MAGIC) {
            return Err(damaged(0, "this is no log".into()));
        }
        if version != VERSION {
            return Err(OpenError::Version { path: path.to_owned(), found: version });
        }
        let salt = fields.u32().unwrap_or_default();
        let start = Revision(fields.u64().unwrap_or_default());
        let mut objects = fields.u64().unwrap_or_default();
        if fields.u32() != Some(checksum(0, &header[..HEADER - 4])) {
            return Err(damaged(0, "the header's checksum is wrong".into()));
        }

        state.start_at(start);
        let mut replay = Replay { salt, length: HEADER as u64, snapshot_length: HEADER as u64, torn: false };
        while replay.length < size {
            let offset = replay.length;
            let in_snapshot = objects > 0;
            let content = match read_frame(&mut reader, size - offset, salt).map_err(failed)? {
                Frame::Good(content) => content,
                Frame::Bad(bytes, _) if !in_snapshot && !holds_frame(&bytes, salt) => {
                    let dropped = size - offset;
                    tracing::warn!(path = %path.display(), offset, dropped, "the last write was never finished, and is dropped");
                    replay.torn = true;
                    return Ok(replay);
                }
                Frame::Bad(_, what) => return Err(damaged(offset, what.into())),
            };
            let mut entries = Decoder(&content);
            while !entries.0.is_empty() {
                let Some((deleted, object)) = entries.entry() else {
                    return Err(damaged(offset, "an entry can't be read".into()));
                };
                if in_snapshot {
                    objects = objects.saturating_sub(1);
                    state.place(object);
                } else {
                    apply(state, deleted, object).map_err(|what| damaged(offset, what))?;
                }
            }
            replay.length += (FRAME_HEADER + content.len()) as u64;
            if in_snapshot {
                replay.snapshot_length = replay.length;
            }
        }
        if objects > 0 {
            return Err(damaged(size, format!("{objects} objects of the snapshot are missing")));
        }
        Ok(replay)
    }
}

/// Does again what was once committed.
fn apply(state: &mut State, deleted: bool, object: Arc<Stored>) -> Result<(), String> {
    let previous = state.get(&object.key).cloned();
    let (revision, expected) = (object.revision, state.revision().next());
    if revision != expected {
        return Err(format!("revision {revision} where {expected} is due"));
    }
    let kind = match (deleted, &previous) {
        (false, None) => EventKind::Added,
        (false, Some(_)) => EventKind::Modified,
        (true, Some(_)) => EventKind::Deleted,
        (true, None) => return Err(format!("{} is deleted and was never there", object.key)),
    };
    state.publish(Arc::new(Event { revision, kind, object, previous }));
    Ok(())
}

enum Frame {
    Good(Vec<u8>),
    /// Everything from the frame's second byte to the end of the file, and what is wrong with the frame.
    Bad(Vec<u8>, &'static str),
}

fn read_frame(reader: &mut impl Read, left: u64, salt: u32) -> io::Result<Frame> {
    let mut bytes = Vec::new();
    reader.by_ref().take(FRAME_HEADER as u64).read_to_end(&mut bytes)?;
    let what = match frame_length(&bytes, salt) {
        None => "the checksum of a frame's header is wrong",
        Some((length, _)) if length as u64 > left.saturating_sub(FRAME_HEADER as u64) => {
            "a frame is cut short"
        }
        Some((length, expected)) => {
            let mut content = Vec::with_capacity(length);
            reader.by_ref().take(length as u64).read_to_end(&mut content)?;
            if checksum(salt, &content) == expected {
                return Ok(Frame::Good(content));
            }
            bytes.append(&mut content);
            "a frame's checksum is wrong"
        }
    };
    bytes.remove(0);
    reader.read_to_end(&mut bytes)?;
    Ok(Frame::Bad(bytes, what))
}

/// Length and checksum of the content, when these bytes begin with the header of a frame.
fn frame_length(bytes: &[u8], salt: u32) -> Option<(usize, u32)> {
    let mut fields = Decoder(bytes);
    let (length, content, header) = (fields.u32()?, fields.u32()?, fields.u32()?);
    (checksum(salt, bytes.get(..8)?) == header).then_some((length as usize, content))
}

/// Whether there is a whole frame anywhere in these bytes.
fn holds_frame(bytes: &[u8], salt: u32) -> bool {
    (0..bytes.len()).any(|start| {
        let bytes = bytes.get(start..).unwrap_or_default();
        frame_length(bytes, salt).is_some_and(|(length, expected)| {
            let content = bytes.get(FRAME_HEADER..).and_then(|rest| rest.get(..length));
            content.is_some_and(|content| checksum(salt, content) == expected)
        })
    })
}
