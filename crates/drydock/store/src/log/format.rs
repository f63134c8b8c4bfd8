//! The bytes: headers, frames, entries.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::object::{Facets, Key, Pairs, Revision, Stored};

pub(super) const MAGIC: &[u8; 8] = b"DRYDOCK\n";
pub(super) const VERSION: u32 = 1;
pub(super) const HEADER: usize = 36;
pub(super) const FRAME_HEADER: usize = 12;

/// The header of a log that begins with so many objects as of a revision.
pub(super) fn header(salt: u32, revision: Revision, objects: usize) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&salt.to_le_bytes());
    header.extend_from_slice(&revision.0.to_le_bytes());
    header.extend_from_slice(&(objects as u64).to_le_bytes());
    header.extend_from_slice(&checksum(0, &header).to_le_bytes());
    header
}

pub(super) fn checksum(salt: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(salt);
    hasher.update(bytes);
    hasher.finalize()
}

/// Empties a buffer, but for the room that a frame's header takes.
pub(super) fn begin(frame: &mut Vec<u8>) {
    frame.clear();
    frame.resize(FRAME_HEADER, 0);
}

/// Fills in the frame header for which room was left.
pub(super) fn seal(frame: &mut [u8], salt: u32) -> io::Result<()> {
    let Some((header, content)) = frame.split_at_mut_checked(FRAME_HEADER) else { return Ok(()) };
    let length = u32::try_from(content.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    let mut sealed = Vec::with_capacity(FRAME_HEADER);
    sealed.extend_from_slice(&length.to_le_bytes());
    sealed.extend_from_slice(&checksum(salt, content).to_le_bytes());
    sealed.extend_from_slice(&checksum(salt, &sealed).to_le_bytes());
    header.copy_from_slice(&sealed);
    Ok(())
}

/// Seals frames that were sealed for another log anew.
pub(super) fn reseal(mut frames: &mut [u8], salt: u32) -> io::Result<()> {
    while let Some(length) = Decoder(frames).u32() {
        let (frame, rest) = frames
            .split_at_mut_checked(FRAME_HEADER + length as usize)
            .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        seal(frame, salt)?;
        frames = rest;
    }
    Ok(())
}

/// Length and checksum of the content, when these bytes begin with the header of a frame.
pub(super) fn frame_length(bytes: &[u8], salt: u32) -> Option<(usize, u32)> {
    let mut fields = Decoder(bytes);
    let (length, content, header) = (fields.u32()?, fields.u32()?, fields.u32()?);
    (checksum(salt, bytes.get(..8)?) == header).then_some((length as usize, content))
}

/// Whether there is a whole frame anywhere in these bytes.
pub(super) fn holds_frame(bytes: &[u8], salt: u32) -> bool {
    (0..bytes.len()).any(|start| {
        let bytes = bytes.get(start..).unwrap_or_default();
        frame_length(bytes, salt).is_some_and(|(length, expected)| {
            let content = bytes.get(FRAME_HEADER..).and_then(|rest| rest.get(..length));
            content.is_some_and(|content| checksum(salt, content) == expected)
        })
    })
}

pub(super) fn encode(out: &mut Vec<u8>, deleted: bool, object: &Stored) {
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
pub(super) struct Decoder<'a>(pub(super) &'a [u8]);

impl<'a> Decoder<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
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

    /// An entry; its key as `share` gives it.
    pub(super) fn entry(&mut self, share: impl FnOnce(Key) -> Key) -> Option<(bool, Arc<Stored>)> {
        let deleted = match self.take(1)? {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        let revision = Revision(self.u64()?);
        let key = share(Key::new(self.text()?, self.text()?, self.text()?));
        let facets = Facets { labels: self.pairs()?, fields: self.pairs()? };
        let value = Bytes::copy_from_slice(self.bytes()?);
        Some((deleted, Arc::new(Stored { key, revision, value, facets })))
    }
}
