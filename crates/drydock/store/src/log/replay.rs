//! Reading a log through.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::OpenError;
use super::format::{Decoder, FRAME_HEADER, HEADER, MAGIC, VERSION, checksum, frame_length, holds_frame};
use crate::object::{Event, EventKind, Revision, Stored};
use crate::state::State;

/// What reading a log through has shown.
pub(super) struct Replay {
    pub(super) salt: u32,
    /// Up to where it is good.
    pub(super) length: u64,
    pub(super) snapshot_length: u64,
    pub(super) torn: bool,
}

impl Replay {
    /// Brings `state` to what the log says.
    pub(super) fn of(path: &Path, file: &File, state: &mut State) -> Result<Replay, OpenError> {
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
                let Some((deleted, object)) = entries.entry(|key| state.share(key)) else {
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
