//! Logs that would fill the disk are moved aside.

use std::path::{Path, PathBuf};

/// The file that a log is moved to when it is full. There is one: what was there before is gone.
pub(crate) fn moved(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// Removes a log, and what was moved aside of it.
pub(crate) fn remove(log: &Path) {
    for path in [log.to_owned(), moved(log)] {
        if let Err(error) = crate::volumes::atomic::remove(&path) {
            tracing::debug!(%error, log = %path.display(), "a log stays");
        }
    }
}
