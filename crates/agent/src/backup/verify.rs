//! Reads a backup from its beginning to its end, and says what is in it.
//!
//! This is what makes a backup complete: the bytes of the file, the dump in it and what the dump holds, each against
//! what was written down when it was taken. That is what a restore begins with, too; where it is known from elsewhere
//! what was written down, the bytes suffice.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ring::digest::{Context, SHA256};

use super::digest::{Contents, Reading};
use super::error::{BackupError, on};
use super::file::{Bytes, manifest_of};
use super::manifest::{Manifest, hex};
use super::pieces::{PIECE, in_order};
use super::stop::Stop;
use crate::process::Signals;

/// How much of a file is looked at to find where a frame ends.
const BUFFER: usize = 2 * PIECE;
/// A manifest of a million tables is smaller.
const LONGEST_MANIFEST: u64 = 256 << 20;

/// What is known of a backup from elsewhere than from beside it.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The SHA-256 of the file.
    pub sha256: Option<String>,
    /// The SHA-256 of the manifest.
    pub manifest_sha256: Option<String>,
}

/// Reads a backup and its manifest, and says what it holds when they and what is known agree.
///
/// # Errors
/// When they do not.
pub fn verify(file: &Path, known: &Known, signals: &Signals) -> Result<Manifest, BackupError> {
    Stop::guard(signals, |stop| whole(file, known, stop))
}

/// The same as a part of something else.
fn whole(file: &Path, known: &Known, stop: &Stop) -> Result<Manifest, BackupError> {
    let (manifest, opened) = open(file, known)?;
    let mut reading = Reading::new();
    let bytes = read(opened, file, stop, |piece| Ok(reading.feed(piece)?))?;
    same(file, &manifest, &bytes.sha256)?;
    match untrue(&manifest, &reading.finish()?) {
        None => Ok(manifest),
        Some(what) => Err(BackupError::Damaged { path: file.to_owned(), what }),
    }
}

/// Says what a backup holds that is about to be used. When nobody can have written another manifest, the file holds
/// what it held when it was complete if it is the same to the byte.
pub(super) fn usable(file: &Path, known: &Known, stop: &Stop) -> Result<Manifest, BackupError> {
    if known.manifest_sha256.is_none() {
        return whole(file, known, stop);
    }
    let (manifest, mut opened) = open(file, known)?;
    let (mut sha256, mut buffer) = (Context::new(&SHA256), vec![0; PIECE]);
    loop {
        stop.check()?;
        match opened.read(&mut buffer).map_err(on("can't read", file))? {
            0 => break,
            length => sha256.update(&buffer[..length]),
        }
    }
    same(file, &manifest, &hex(sha256.finish().as_ref()))?;
    Ok(manifest)
}

/// The manifest of a file, and the file, when it is as long as that says.
fn open(file: &Path, known: &Known) -> Result<(Manifest, File), BackupError> {
    let path = manifest_of(file);
    let mut line = Vec::new();
    File::open(&path)
        .and_then(|manifest| manifest.take(LONGEST_MANIFEST).read_to_end(&mut line))
        .map_err(on("can't read", path.clone()))?;
    let manifest = Manifest::read(&line, known.manifest_sha256.as_deref())
        .map_err(|error| BackupError::Manifest { path, error })?;
    let damaged = |what: String| BackupError::Damaged { path: file.to_owned(), what };
    if let Some(wanted) =
        known.sha256.as_ref().filter(|wanted| !wanted.eq_ignore_ascii_case(&manifest.sha256))
    {
        return Err(damaged(format!("its manifest is that of {}, not of {wanted}", manifest.sha256)));
    }
    let opened = File::open(file).map_err(on("can't read", file))?;
    let length = opened.metadata().map_err(on("can't read", file))?.len();
    if length != manifest.bytes {
        return Err(damaged(format!("it has {length} bytes instead of {}", manifest.bytes)));
    }
    Ok((manifest, opened))
}

fn same(file: &Path, manifest: &Manifest, sha256: &str) -> Result<(), BackupError> {
    if sha256 == manifest.sha256 {
        return Ok(());
    }
    let what = format!("its SHA-256 is {sha256} instead of {}", manifest.sha256);
    Err(BackupError::Damaged { path: file.to_owned(), what })
}

/// What of a manifest is not so.
fn untrue(manifest: &Manifest, found: &Contents) -> Option<String> {
    if manifest.content_bytes != found.bytes {
        return Some(format!("the dump has {} bytes instead of {}", found.bytes, manifest.content_bytes));
    }
    if manifest.events != found.events {
        return Some("the events are others".to_owned());
    }
    if manifest.databases != found.databases {
        return Some("the databases are others".to_owned());
    }
    manifest.difference(found, true)
}

/// Reads a file to its end. The dump in it goes to `take`.
pub(super) fn read(
    file: impl Read + Send,
    path: &Path,
    stop: &Stop,
    mut take: impl FnMut(&[u8]) -> Result<(), BackupError>,
) -> Result<Bytes, BackupError> {
    let damaged = |what: &str| BackupError::Damaged { path: path.to_owned(), what: what.to_owned() };
    let (mut sha256, mut length) = (Context::new(&SHA256), 0);
    let mut frames = Frames { file, buffer: Vec::new(), done: 0, ended: false };
    let next = || {
        stop.check()?;
        let frame = frames.next().map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => damaged("it holds something that is no Zstandard frame"),
            _ => on("can't read", path)(error),
        })?;
        if let Some(frame) = &frame {
            sha256.update(frame);
            length += frame.len() as u64;
        }
        Ok(frame)
    };
    let decompress = |frame: Vec<u8>| {
        // No frame of ours holds more; nobody else's is let in.
        zstd::bulk::decompress(&frame, PIECE)
            .map_err(|_| damaged("a part of it can't be decompressed, or does not match its checksum"))
    };
    in_order(next, || decompress, |piece| take(&piece))?;
    Ok(Bytes { length, sha256: hex(sha256.finish().as_ref()) })
}

/// The frames of a file, one after the other.
struct Frames<F> {
    file: F,
    buffer: Vec<u8>,
    /// How much of the buffer is done with.
    done: usize,
    ended: bool,
}

impl<F: Read> Frames<F> {
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let rest = self.buffer.get(self.done..).unwrap_or_default();
            let length = zstd::zstd_safe::find_frame_compressed_size(rest).ok();
            if let Some(frame) = length.filter(|length| *length > 0).and_then(|length| rest.get(..length)) {
                self.done += frame.len();
                return Ok(Some(frame.to_vec()));
            }
            if rest.len() >= BUFFER || self.ended && !rest.is_empty() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if self.ended {
                return Ok(None);
            }
            self.buffer.drain(..self.done);
            self.done = 0;
            let wanted = BUFFER - self.buffer.len();
            self.ended = self.file.by_ref().take(wanted as u64).read_to_end(&mut self.buffer)? == 0;
        }
    }
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
