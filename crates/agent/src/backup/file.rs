//! A backup's file while it comes to be.
//!
//! ```text
//! DIRECTORY/
//!   backup-20260131-235959.sql.zst           a backup; there only when it was read back and is what was dumped
//!   backup-20260131-235959.sql.zst.json      its manifest, which is there before it
//!   backup-20260131-235959.sql.zst.partial   one that is being written, and is locked; unlocked, it is left over
//! ```
//!
//! The file is a row of Zstandard frames, each of which can be read by itself, so that several threads write and read
//! it; `zstd -d` makes one stream of them. At level 1 a dump is compressed twice as fast as by gzip's level 1, to less
//! than gzip's level 6 leaves, and read back three times as fast; nothing slower keeps up with a server.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ring::digest::{Context, SHA256};
use rustix::fs::Advice;
use twox_hash::XxHash3_128;

use super::digest::{Contents, Reading};
use super::error::{BackupError, on};
use super::manifest::{Manifest, hex};
use super::pieces::{PIECE, fill, in_order};
use super::stop::Stop;
use super::verify::read;

const ENDING: &str = ".sql.zst";
const BEFORE: &str = "backup-";
const PARTIAL: &str = ".partial";
const MANIFEST: &str = ".json";
/// Zstandard's quickest but for those that hardly compress.
const LEVEL: i32 = 1;
/// How much is written before the disk is told to keep it and it is read back, so that the end has little left to wait
/// for.
const SYNC: u64 = 32 << 20;

/// A backup that is being written. It goes with this unless it is kept.
pub(super) struct Partial {
    directory: PathBuf,
    /// The name that the file is to have.
    name: String,
    file: File,
    kept: bool,
}

/// A backup's file as it was written, or read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) length: u64,
    pub(super) sha256: String,
}

/// What was written.
pub(super) struct Written {
    pub(super) bytes: Bytes,
    pub(super) contents: Contents,
    /// The hash of the dump: of one and the same process, to know it again when it is read back.
    pub(super) hash: u128,
}

/// What was read back.
pub(super) struct Back {
    bytes: Bytes,
    hash: u128,
}

impl Back {
    pub(super) fn read(from: impl Read + Send, path: &Path, stop: &Stop) -> Result<Back, BackupError> {
        let mut hash = XxHash3_128::new();
        let bytes = read(from, path, stop, |piece| {
            hash.write(piece);
            Ok(())
        });
        match bytes {
            Ok(bytes) => Ok(Back { bytes, hash: hash.finish_128() }),
            Err(BackupError::Damaged { what, .. }) => Err(BackupError::ReadBack(what)),
            Err(other) => Err(other),
        }
    }

    /// When it is the same to the byte, it holds what was seen to go by.
    pub(super) fn proves(&self, written: &Written) -> Result<(), BackupError> {
        if self.bytes == written.bytes && self.hash == written.hash {
            return Ok(());
        }
        Err(BackupError::ReadBack("its checksum is another".to_owned()))
    }
}

/// A file as far as it is kept on disk. Reading waits for more.
struct Kept {
    file: File,
    read: u64,
    whole: u64,
    kept: Receiver<u64>,
}

impl Read for Kept {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.whole {
            match self.kept.recv() {
                Ok(whole) => self.whole = whole,
                Err(_) => return Ok(0),
            }
        }
        let length = (&self.file).take(self.whole - self.read).read(buffer)?;
        self.read += length as u64;
        Ok(length)
    }
}

/// What a backup of this moment is called.
pub(super) fn name_at(now: Timestamp) -> String {
    format!("{BEFORE}{}{ENDING}", now.to_zoned(TimeZone::UTC).strftime("%Y%m%d-%H%M%S"))
}

/// Whether a file can be a backup by its name.
pub(super) fn is_name(name: &str) -> bool {
    name.starts_with(BEFORE) && name.ends_with(ENDING) && !name.contains('/')
}

/// Where the manifest of a file is.
pub(super) fn manifest_of(file: &Path) -> PathBuf {
    with(file, MANIFEST)
}

fn with(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

impl Partial {
    /// Begins one, after what others left unfinished is gone.
    pub(super) fn begin(directory: &Path, name: &str) -> Result<Partial, BackupError> {
        // One at a time begins: another would take for left over what is not locked yet.
        let _begins = File::open(directory)
            .and_then(|begins| begins.lock().map(|()| begins))
            .map_err(on("can't use", directory))?;
        sweep(directory).map_err(on("can't clear", directory))?;
        let (whole, path) = (directory.join(name), directory.join(format!("{name}{PARTIAL}")));
        let taken = || io::Error::from(io::ErrorKind::AlreadyExists);
        if whole.exists() {
            return Err(on("can't write over", whole)(taken()));
        }
        let open = || {
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
            file.try_lock().map_err(|_| taken())?;
            Ok(file)
        };
        let file = open().map_err(on("can't write", path.clone()))?;
        Ok(Partial { directory: directory.to_owned(), name: name.to_owned(), file, kept: false })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.join(format!("{}{PARTIAL}", self.name))
    }

    /// Writes a dump into it, to the end of the stream, and reads back from the disk what was written.
    pub(super) fn write(
        &self,
        mut dump: impl Read + Send,
        broken: impl Fn(io::Error) -> BackupError + Sync,
        stop: &Stop,
    ) -> Result<Written, BackupError> {
        let failed = |error| on("can't write", self.path())(error);
        let (mut reading, mut hash) = (Reading::new(), XxHash3_128::new());
        let (mut sha256, mut length, mut told) = (Context::new(&SHA256), 0, 0);
        let next = || {
            let mut piece = vec![0; PIECE];
            let filled = fill(&mut dump, &mut piece).map_err(&broken)?;
            piece.truncate(filled);
            reading.feed(&piece)?;
            hash.write(&piece);
            Ok(Some(piece).filter(|piece| !piece.is_empty()))
        };
        let path = self.path();
        let file = File::open(&path).map_err(on("can't read", path.clone()))?;
        let back = thread::scope(|scope| {
            let (tell, told_of) = channel();
            let (keep, kept) = channel();
            let keeping = scope.spawn(move || self.keep_on_disk(&told_of, &keep));
            let proving =
                scope.spawn(move || Back::read(Kept { file, read: 0, whole: 0, kept }, &path, stop));
            let written = in_order(
                next,
                |piece| compress(&piece).map_err(failed),
                |frame: Vec<u8>| {
                    (&self.file).write_all(&frame).map_err(failed)?;
                    sha256.update(&frame);
                    length += frame.len() as u64;
                    if length - told >= SYNC {
                        // Who does not listen any more has failed, and says so at the end.
                        (told, _) = (length, tell.send(length));
                    }
                    Ok(())
                },
            );
            let _failed = tell.send(length);
            drop(tell);
            let died = || io::Error::from(io::ErrorKind::Other);
            let kept = keeping.join().unwrap_or_else(|_| Err(died()));
            let back = proving.join().unwrap_or_else(|_| Err(failed(died())));
            written.and(kept.map_err(failed)).and(back)
        })?;
        let bytes = Bytes { length, sha256: hex(sha256.finish().as_ref()) };
        let written = Written { bytes, contents: reading.finish()?, hash: hash.finish_128() };
        back.proves(&written)?;
        Ok(written)
    }

    /// Has what was written kept on disk as far as it is told to, and tells how far it is. What is read back is to
    /// come from there.
    fn keep_on_disk(&self, told: &Receiver<u64>, tell: &Sender<u64>) -> io::Result<()> {
        let mut before = 0;
        for length in told {
            self.file.sync_data()?;
            let range = NonZeroU64::new(length - before);
            let _advice =
                range.map(|range| rustix::fs::fadvise(&self.file, before, Some(range), Advice::DontNeed));
            before = length;
            if tell.send(length).is_err() {
                // Who does not read any more has failed, and says so.
                break;
            }
        }
        self.file.sync_all()
    }

    /// Keeps it under its name, with its manifest: on disk when this returns.
    pub(super) fn keep(mut self, manifest: &Manifest) -> Result<PathBuf, BackupError> {
        let whole = self.directory.join(&self.name);
        let beside = manifest_of(&whole);
        let keep = || -> io::Result<()> {
            let directory = File::open(&self.directory)?;
            let part = with(&beside, PARTIAL);
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
            file.write_all(manifest.line().as_bytes())?;
            file.sync_all()?;
            fs::rename(part, &beside)?;
            directory.sync_all()?;
            fs::rename(self.path(), &whole)?;
            directory.sync_all()
        };
        let kept = keep();
        self.kept = whole.exists() && !self.path().exists();
        kept.map_err(on("can't keep", whole.clone()))?;
        Ok(whole)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.kept {
            let whole = self.directory.join(&self.name);
            for path in [self.path(), with(&manifest_of(&whole), PARTIAL), manifest_of(&whole)] {
                let _absent = fs::remove_file(path);
            }
        }
    }
}

fn compress(piece: &[u8]) -> io::Result<Vec<u8>> {
    let mut compressor = zstd::bulk::Compressor::new(LEVEL)?;
    compressor.include_checksum(true)?;
    compressor.compress(piece)
}

/// Throws away what was not finished and nobody is at.
fn sweep(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (base, unfinished) = match name.strip_suffix(PARTIAL) {
            Some(base) => (base, true),
            None => (&*name, false),
        };
        let (base, manifest) = match base.strip_suffix(MANIFEST) {
            Some(base) => (base, true),
            None => (base, false),
        };
        // A manifest is there before its backup; as long as that is written, what there is of it is locked.
        let left = unfinished || manifest && !directory.join(base).exists();
        if is_name(base) && left && !busy(&directory.join(format!("{base}{PARTIAL}"))) {
            tracing::info!(path = %path.display(), "removes what was not finished");
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Whether somebody has it locked.
fn busy(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock_shared().is_err())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    const NAME: &str = "backup-20260101-000000.sql.zst";

    fn broken(error: io::Error) -> BackupError {
        BackupError::Stream { program: "mariadb-dump", error }
    }

    #[test]
    fn what_the_disk_gives_back_otherwise_is_no_backup() {
        let directory = tempfile::tempdir().unwrap();
        for damage in [
            |bytes: &mut Vec<u8>| bytes[20] ^= 1,
            |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 1),
            |bytes: &mut Vec<u8>| bytes.clear(),
            |bytes: &mut Vec<u8>| bytes.extend_from_within(..),
            // A disk that gives back zeroes.
            |bytes: &mut Vec<u8>| bytes.fill(0),
        ] {
            let partial = Partial::begin(directory.path(), NAME).unwrap();
            let dump = "CREATE TABLE `t` (\n);\nINSERT INTO `t` VALUES (1);\n-- Dump completed\n";
            let written = partial.write(dump.as_bytes(), broken, &Stop::default()).unwrap();
            let mut bytes = fs::read(partial.path()).unwrap();
            damage(&mut bytes);
            let back = Back::read(&bytes[..], &partial.path(), &Stop::default());
            let error = back.and_then(|back| back.proves(&written)).unwrap_err();
            assert_eq!(error.reason(), "ReadBackDiffers", "{error}");
            drop(partial);
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        }
    }

    /// How long the dump below is, and how much of it has gone by when it spoils: more than all threads hold, and less
    /// than is kept on disk at a time, compressed to two thirds.
    const LONG: u64 = 3 * SYNC;
    const SPOILS: u64 = 40 << 20;

    /// A dump that hardly compresses, and writes over what was made of its beginning.
    struct Spoiler<'a> {
        path: &'a Path,
        left: u64,
        spoils: bool,
    }

    impl Read for Spoiler<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.spoils && LONG - self.left >= SPOILS {
                self.spoils = false;
                File::options().write(true).open(self.path)?.write_all_at(&[0; 8], 1000)?;
            }
            let length = self.left.min(buffer.len() as u64) as usize;
            for word in buffer[..length].chunks_mut(8) {
                let number = self.left.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
                word.copy_from_slice(&number.wrapping_mul(number | 1).to_be_bytes()[..word.len()]);
                self.left -= word.len() as u64;
            }
            Ok(length)
        }
    }

    #[test]
    fn what_is_kept_is_read_back_while_the_rest_is_written() {
        let directory = tempfile::tempdir().unwrap();
        for spoils in [false, true] {
            let partial = Partial::begin(directory.path(), NAME).unwrap();
            let path = partial.path();
            let insert = &b"CREATE TABLE `t` (\n);\nINSERT INTO `t` VALUES ('"[..];
            let end = &b"');\n-- Dump completed\n"[..];
            let dump = insert.chain(Letters(Spoiler { path: &path, left: LONG, spoils })).chain(end);
            match partial.write(dump, broken, &Stop::default()) {
                Ok(written) => assert!(!spoils && written.bytes.length > SYNC, "{}", written.bytes.length),
                Err(error) => assert!(spoils && error.reason() == "ReadBackDiffers", "{error}"),
            }
        }
    }

    /// Bytes as letters that end no text.
    struct Letters<R>(R);

    impl<R: Read> Read for Letters<R> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.0.read(buffer)?;
            buffer[..length].iter_mut().for_each(|byte| *byte = b'0' + (*byte & 0x3f) % 43);
            Ok(length)
        }
    }
}
