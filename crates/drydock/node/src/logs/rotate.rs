//! Logs that would fill the disk are moved aside.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drydock_sandbox::remove_all;

use crate::Shared;

/// How large a log may become; what a kubelet takes.
const LARGEST: u64 = 10 << 20;
/// How often they are looked at.
const LOOKED_AT: Duration = Duration::from_secs(10);

/// The file that a log is moved to when it is full. There is one: what was there before is gone.
pub(crate) fn moved(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// Removes a log, and what was moved aside of it.
pub(crate) fn remove(log: &Path) {
    for path in [log.to_owned(), moved(log)] {
        if let Err(error) = remove_all(&path) {
            tracing::debug!(%error, log = %path.display(), "a log stays");
        }
    }
}

/// Keeps every running container's log small, until it is dropped.
pub(crate) async fn keep_small(shared: &Shared) {
    loop {
        tokio::time::sleep(LOOKED_AT).await;
        let running: Vec<_> = shared
            .pods
            .lock()
            .values()
            .flat_map(|handle| handle.live.lock().containers.values().cloned().collect::<Vec<_>>())
            .collect();
        for container in running {
            let Some(log) = container.config().ok().and_then(|config| config.log) else { continue };
            if let Err(error) = look_at(&log, || container.reopen_log()).await {
                tracing::debug!(%error, container = container.id(), "a full log goes on where it was");
            }
        }
    }
}

/// Moves a log aside that is full, and has whoever writes it go on in a new one. Where there is none, a round before came
/// no further than the move.
async fn look_at<E>(log: &Path, reopen: impl AsyncFnOnce() -> Result<(), E>) -> Result<(), E> {
    let is_moved = match std::fs::metadata(log) {
        Ok(found) => found.len() >= LARGEST && std::fs::rename(log, moved(log)).is_ok(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    if is_moved { reopen().await } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    /// One round, in which the log can be opened again or not; whether that was tried.
    async fn round(log: &Path, opens: bool) -> bool {
        let mut tried = false;
        let said = look_at(log, async || {
            tried = true;
            if opens { File::create(log).map(drop) } else { Err(io::ErrorKind::StorageFull.into()) }
        });
        assert_eq!(said.await.is_ok(), opens || !tried);
        tried
    }

    #[tokio::test]
    async fn a_log_that_was_moved_aside_is_opened_again_however_often_that_fails() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("0.log");
        fs::write(&log, "little").unwrap();
        assert!(!round(&log, true).await);
        File::create(&log).unwrap().set_len(LARGEST).unwrap();
        for opens in [false, false, true] {
            assert!(round(&log, opens).await);
            assert_eq!(fs::metadata(moved(&log)).unwrap().len(), LARGEST);
            assert_eq!(log.exists(), opens);
        }
        assert!(!round(&log, true).await);
    }
}
