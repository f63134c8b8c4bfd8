//! Takes a backup, and proves it.
//!
//! It is complete when the tool said that it was done, the dump ended as dumps end, and all of it was read back from
//! the disk and is what was dumped. Until then it has no name that anybody takes for a backup's.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::ChildStdout;
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use twox_hash::XxHash3_128;

use super::error::{BackupError, on};
use super::file::{Partial, Written, name_at};
use super::manifest::{Manifest, Taken};
use super::stop::Stop;
use super::tools::{Connection, Tools};
use super::verify::read;
use crate::process::Signals;

/// How many may begin in the same second.
const CROWD: i64 = 60;

/// A backup to be taken.
#[derive(Debug)]
pub struct Dump {
    /// Of which server.
    pub server: Connection,
    /// Which databases; all that are not the server's own where none is named.
    pub databases: Vec<String>,
    /// The directory that it is put into.
    pub directory: PathBuf,
    /// The moment that gives it its name.
    pub now: Timestamp,
    /// Whether nobody but superusers may write from here on, until the server is started anew: what a client was told
    /// is written is in the backup then.
    pub stop_writes: bool,
}

/// Takes a backup.
///
/// # Errors
/// There is no backup, nor anything that looks like one, and why.
pub fn dump(dump: &Dump, signals: &Signals) -> Result<Manifest, BackupError> {
    Stop::guard(signals, |stop| take(dump, stop))
}

fn take(dump: &Dump, stop: &Stop) -> Result<Manifest, BackupError> {
    let began = Instant::now();
    let tools = Tools::new(&dump.server, stop)?;
    let version = tools.server()?;
    let (partial, file) = begin(dump)?;
    if dump.stop_writes {
        // Commits that are under way are waited for.
        tools.rows("SET GLOBAL read_only = ON;\n")?;
        tracing::info!("lets nobody write to the server any more");
    }
    let written = stream(&tools, &dump.databases, |stdout| partial.write(stdout, tools.dump_broken()))?;
    prove(&partial, &written, stop)?;
    let manifest = Manifest::new(
        Taken {
            file,
            bytes: written.bytes.length,
            sha256: written.bytes.sha256,
            began: dump.now,
            milliseconds: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            flavour: dump.server.flavour,
            version,
        },
        written.contents,
    );
    partial.keep(&manifest)?;
    Ok(manifest)
}

/// A file under the name of this moment, or of the next that nobody has taken.
fn begin(dump: &Dump) -> Result<(Partial, String), BackupError> {
    let mut later = 0;
    loop {
        let name = name_at(dump.now + SignedDuration::from_secs(later));
        match Partial::begin(&dump.directory, &name) {
            Err(BackupError::Disk { error, .. })
                if error.kind() == io::ErrorKind::AlreadyExists && later < CROWD =>
            {
                later += 1;
            }
            begun => return begun.map(|partial| (partial, name)),
        }
    }
}

/// Dumps databases, all that are not the server's own where none is named, into whatever takes the stream.
pub(super) fn stream<T: Send>(
    tools: &Tools<'_>,
    named: &[String],
    take: impl FnOnce(ChildStdout) -> Result<T, BackupError>,
) -> Result<T, BackupError> {
    let databases = if named.is_empty() { tools.databases()? } else { named.to_vec() };
    if databases.is_empty() {
        return Err(BackupError::Refused("the server has no databases but its own".to_owned()));
    }
    tools.dump(&databases, tools.untransactional()?, take)
}

/// Reads back what was written. When it is the same to the byte, it holds what was seen to go by.
fn prove(partial: &Partial, written: &Written, stop: &Stop) -> Result<(), BackupError> {
    let (path, mut hash) = (partial.path(), XxHash3_128::new());
    let file = File::open(&path).map_err(on("can't read", path.clone()))?;
    let bytes = read(file, &path, stop, |piece| {
        hash.write(piece);
        Ok(())
    });
    match bytes {
        Ok(bytes) if bytes == written.bytes && hash.finish_128() == written.hash => Ok(()),
        Ok(_) => Err(BackupError::ReadBack("its checksum is another".to_owned())),
        Err(BackupError::Damaged { what, .. }) => Err(BackupError::ReadBack(what)),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_the_disk_gives_back_otherwise_is_no_backup() {
        let directory = tempfile::tempdir().unwrap();
        let broken = |error| BackupError::Stream { program: "mariadb-dump", error };
        for damage in [
            |bytes: &mut Vec<u8>| bytes[20] ^= 1,
            |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 1),
            |bytes: &mut Vec<u8>| bytes.clear(),
            |bytes: &mut Vec<u8>| bytes.extend_from_within(..),
            // A disk that gives back zeroes.
            |bytes: &mut Vec<u8>| bytes.fill(0),
        ] {
            let partial = Partial::begin(directory.path(), "backup-20260101-000000.sql.zst").unwrap();
            let dump = "CREATE TABLE `t` (\n);\nINSERT INTO `t` VALUES (1);\n-- Dump completed\n";
            let written = partial.write(dump.as_bytes(), broken).unwrap();
            prove(&partial, &written, &Stop::default()).unwrap();
            let mut bytes = fs::read(partial.path()).unwrap();
            damage(&mut bytes);
            fs::write(partial.path(), bytes).unwrap();
            let error = prove(&partial, &written, &Stop::default()).unwrap_err();
            assert_eq!(error.reason(), "ReadBackDiffers", "{error}");
            drop(partial);
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        }
    }
}
