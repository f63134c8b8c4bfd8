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
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
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

const ENDING: &str = ".sql.zst";
const BEFORE: &str = "backup-";
const PARTIAL: &str = ".partial";
const MANIFEST: &str = ".json";
/// Zstandard's quickest but for those that hardly compress.
const LEVEL: i32 = 1;
/// How much is written before the disk is told to keep it, so that the end has little left to wait for.
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

    /// Writes a dump into it, to the end of the stream, and keeps it on disk.
    pub(super) fn write(
        &self,
        mut dump: impl Read + Send,
        broken: impl Fn(io::Error) -> BackupError + Sync,
    ) -> Result<Written, BackupError> {
        let failed = |error| on("can't write", self.path())(error);
        let (mut reading, mut hash) = (Reading::new(), XxHash3_128::new());
        let (mut sha256, mut length, mut synced) = (Context::new(&SHA256), 0, 0);
        let next = || {
            let mut piece = vec![0; PIECE];
            let filled = fill(&mut dump, &mut piece).map_err(&broken)?;
            piece.truncate(filled);
            reading.feed(&piece)?;
            hash.write(&piece);
            Ok(Some(piece).filter(|piece| !piece.is_empty()))
        };
        thread::scope(|scope| {
            let (sync, wanted) = channel();
            let syncing = scope.spawn(move || wanted.iter().try_for_each(|()| self.file.sync_data()));
            let written = in_order(
                next,
                |piece| compress(&piece).map_err(failed),
                |frame: Vec<u8>| {
                    (&self.file).write_all(&frame).map_err(failed)?;
                    sha256.update(&frame);
                    length += frame.len() as u64;
                    if length - synced >= SYNC {
                        // Who does not listen any more has failed, and says so at the end.
                        (synced, _) = (length, sync.send(()));
                    }
                    Ok(())
                },
            );
            drop(sync);
            let synced = syncing.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
            written.and(synced.map_err(failed))
        })?;
        self.file.sync_all().map_err(failed)?;
        // What is read back is to come from the disk.
        let _advice = rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed);
        let bytes = Bytes { length, sha256: hex(sha256.finish().as_ref()) };
        Ok(Written { bytes, contents: reading.finish()?, hash: hash.finish_128() })
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
