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
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ring::digest::{Context, SHA256};
use rustix::fs::Advice;
use zstd::bulk::{Compressor, Decompressor};

use super::digest::{Contents, Reading};
use super::error::{BackupError, on};
use super::manifest::{Manifest, hex};
use super::pieces::{PIECE, fill, in_order};
use super::stop::Stop;

const ENDING: &str = ".sql.zst";
const BEFORE: &str = "backup-";
const PARTIAL: &str = ".partial";
const MANIFEST: &str = ".json";
/// Zstandard's quickest but for those that hardly compress.
const LEVEL: i32 = 1;
/// How much is written before the disk is told to keep it and it is read back, so that the end has little left to wait
/// for.
const SYNC: usize = 32 << 20;

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
}

/// The bytes of a file as far as they went by.
struct Passing {
    length: u64,
    sha256: Context,
}

impl Passing {
    fn new() -> Passing {
        Passing { length: 0, sha256: Context::new(&SHA256) }
    }

    fn pass(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        self.sha256.update(bytes);
    }

    fn end(self) -> Bytes {
        Bytes { length: self.length, sha256: hex(self.sha256.finish().as_ref()) }
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

    /// Writes a dump into it, to the end of the stream, and reads back from the disk what was written. It holds what
    /// was seen to go by: each frame was decompressed to what it was made of, and is the same to the byte on the disk.
    pub(super) fn write(
        &self,
        mut dump: impl Read + Send,
        broken: impl Fn(io::Error) -> BackupError + Sync,
        stop: &Stop,
    ) -> Result<Written, BackupError> {
        let failed = |error| on("can't write", self.path())(error);
        let (mut reading, mut written) = (Reading::new(), Passing::new());
        // Pieces come back when they were packed, to be filled anew.
        let (done, used) = channel();
        let (seen, broken) = (&mut reading, &broken);
        let next = move || {
            let mut piece = used.try_recv().unwrap_or_else(|_| vec![0; PIECE]);
            let filled = fill(&mut dump, &mut piece).map_err(broken)?;
            piece.truncate(filled);
            seen.feed(&piece)?;
            Ok(Some(piece).filter(|piece| !piece.is_empty()))
        };
        let hire = || {
            let (mut packer, done) = (Packer::new(), done.clone());
            move |piece: Vec<u8>| {
                let packer = packer.as_mut().map_err(|error| failed(error.kind().into()))?;
                let frame = packer.pack(&piece)?;
                let _ended = done.send(piece);
                Ok(frame)
            }
        };
        let back = thread::scope(|scope| {
            let (tell, told) = channel();
            let keeping = scope.spawn(move || self.keep_on_disk(&told, stop));
            let mut waiting = 0;
            let ended = in_order(next, hire, |frame: Vec<u8>| {
                (&self.file).write_all(&frame).map_err(failed)?;
                written.pass(&frame);
                waiting += frame.len();
                if waiting >= SYNC {
                    // Who does not listen any more has failed, and says so at the end.
                    (waiting, _) = (0, tell.send(written.length));
                }
                Ok(())
            });
            let _failed = tell.send(written.length);
            drop(tell);
            let died = || failed(io::ErrorKind::Other.into());
            let back = keeping.join().unwrap_or_else(|_| Err(died()));
            ended.and(back)
        })?;
        let bytes = written.end();
        if back != bytes {
            return Err(BackupError::ReadBack("its checksum is another".to_owned()));
        }
        Ok(Written { bytes, contents: reading.finish()? })
    }

    /// Has what was written kept on disk as far as it is told to, and reads it back from there.
    fn keep_on_disk(&self, told: &Receiver<u64>, stop: &Stop) -> Result<Bytes, BackupError> {
        let failed = |error| on("can't write", self.path())(error);
        let unread = |error| on("can't read", self.path())(error);
        let (mut back, mut buffer) = (Passing::new(), vec![0; PIECE]);
        for length in told {
            self.file.sync_data().map_err(failed)?;
            let range = NonZeroU64::new(length - back.length);
            let _advice = range
                .map(|range| rustix::fs::fadvise(&self.file, back.length, Some(range), Advice::DontNeed));
            while back.length < length {
                stop.check()?;
                let most = buffer.len().min(usize::try_from(length - back.length).unwrap_or(usize::MAX));
                match self.file.read_at(&mut buffer[..most], back.length).map_err(unread)? {
                    0 => return Err(BackupError::ReadBack("some of it is gone".to_owned())),
                    read => back.pass(&buffer[..read]),
                }
            }
        }
        self.file.sync_all().map_err(failed)?;
        if self.file.metadata().map_err(unread)?.len() > back.length {
            return Err(BackupError::ReadBack("there is more in it".to_owned()));
        }
        Ok(back.end())
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

/// Makes frames, and sees that each can be read.
struct Packer {
    compressor: Compressor<'static>,
    decompressor: Decompressor<'static>,
    /// What a frame was decompressed to.
    seen: Vec<u8>,
}

impl Packer {
    fn new() -> io::Result<Packer> {
        let mut compressor = Compressor::new(LEVEL)?;
        compressor.include_checksum(true)?;
        Ok(Packer { compressor, decompressor: Decompressor::new()?, seen: Vec::with_capacity(PIECE) })
    }

    fn pack(&mut self, piece: &[u8]) -> Result<Vec<u8>, BackupError> {
        let unusable = |error: io::Error| BackupError::ReadBack(format!("it can't be compressed: {error}"));
        let frame = self.compressor.compress(piece).map_err(unusable)?;
        self.seen.clear();
        self.decompressor.decompress_to_buffer(&frame, &mut self.seen).map_err(unusable)?;
        if self.seen != piece {
            return Err(BackupError::ReadBack("what was compressed is something else".to_owned()));
        }
        Ok(frame)
    }
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
    use super::*;

    const NAME: &str = "backup-20260101-000000.sql.zst";

    #[test]
    fn a_backup_is_called_by_its_moment_in_utc() {
        let moment: Timestamp = "2026-02-01T01:59:58.999+02:00".parse().unwrap();
        assert_eq!(name_at(moment), "backup-20260131-235958.sql.zst");
        assert!(is_name(&name_at(moment)));
    }

    fn broken(error: io::Error) -> BackupError {
        BackupError::Stream { program: "mariadb-dump", error }
    }

    /// How long the dump below is, and how much of it has gone by when it spoils: more than all threads hold, and less
    /// than is kept on disk at a time, compressed to two thirds.
    const LONG: u64 = 2 * SYNC as u64;
    const SPOILS: u64 = 40 << 20;

    /// What a disk may do to a file.
    type Damage = fn(&File) -> io::Result<()>;

    /// A dump that hardly compresses, and damages what was made of its beginning.
    struct Spoiler<'a> {
        path: &'a Path,
        left: u64,
        damage: Option<Damage>,
    }

    impl Read for Spoiler<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if LONG - self.left >= SPOILS
                && let Some(damage) = self.damage.take()
            {
                damage(&File::options().read(true).write(true).open(self.path)?)?;
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

    fn write(directory: &Path, damage: Option<Damage>) -> Result<Written, BackupError> {
        let partial = Partial::begin(directory, NAME)?;
        let path = partial.path();
        let insert = &b"CREATE TABLE `t` (\n);\nINSERT INTO `t` VALUES ('"[..];
        let end = &b"');\n-- Dump completed\n"[..];
        let dump = insert.chain(Letters(Spoiler { path: &path, left: LONG, damage })).chain(end);
        partial.write(dump, broken, &Stop::default())
    }

    #[test]
    fn what_the_disk_gives_back_otherwise_is_no_backup() {
        let directory = tempfile::tempdir().unwrap();
        let whole = write(directory.path(), None).unwrap();
        assert!(whole.bytes.length > SYNC as u64, "{}", whole.bytes.length);
        let damages: [Damage; 4] = [
            |file| {
                let mut byte = [0];
                file.read_exact_at(&mut byte, 1000)?;
                file.write_all_at(&[byte[0] ^ 1], 1000)
            },
            |file| file.write_all_at(&[0; 4096], 8192),
            |file| file.set_len(0),
            |file| file.write_all_at(b"more", 1 << 30),
        ];
        for damage in damages {
            let error = write(directory.path(), Some(damage)).err().unwrap();
            assert_eq!(error.reason(), "ReadBackDiffers", "{error}");
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
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
