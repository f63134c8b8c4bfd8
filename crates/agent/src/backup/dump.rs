//! Takes a backup, and proves it.
//!
//! It is complete when the tool said that it was done, the dump ended as dumps end, and all of it was read back from
//! the disk, as far as it was there while the rest was still written, and is what was dumped. Until then it has no name
//! that anybody takes for a backup's.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

use super::digest::DigestError;
use super::error::BackupError;
use super::file::{Partial, name_at};
use super::login::Connection;
use super::manifest::{Manifest, Taken, Wording};
use super::stop::Stop;
use super::tools::{self, Tools};
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
    let databases = if dump.databases.is_empty() { tools.databases()? } else { dump.databases.clone() };
    if databases.is_empty() {
        return Err(BackupError::Refused("the server has no databases but its own".to_owned()));
    }
    let (wording, history) = (tools.wording()?, tools.history(&databases)?);
    let definers = tools.definers(&databases)?;
    let written = stream(&tools, &databases, wording, history, |stdout| {
        partial.write(stdout, tools.dump_broken(), stop)
    })?;
    if tools.history(&databases)? && !history {
        return Err(DigestError::History.into());
    }
    let manifest = Manifest::new(
        Taken {
            file,
            bytes: written.bytes.length,
            sha256: written.bytes.sha256,
            began: dump.now,
            milliseconds: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            flavour: dump.server.flavour,
            version,
            wording,
            history,
            definers,
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

/// Dumps databases into whatever takes the stream.
pub(super) fn stream<T: Send>(
    tools: &Tools<'_>,
    databases: &[String],
    wording: Wording,
    history: bool,
    take: impl FnOnce(tools::Dump) -> Result<T, BackupError>,
) -> Result<T, BackupError> {
    let taken = tools.dump(databases, tools.untransactional()?, wording, history, take)?;
    if wording == Wording::AsKept && tools.wording()? != wording {
        return Err(DigestError::Mixed.into());
    }
    Ok(taken)
}
