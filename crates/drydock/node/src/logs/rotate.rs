//! Logs that would fill the disk are moved aside.

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
            if std::fs::metadata(&log).is_ok_and(|found| found.len() < LARGEST) {
                continue;
            }
            let renamed = std::fs::rename(&log, moved(&log));
            if renamed.is_ok()
                && let Err(error) = container.reopen_log().await
            {
                tracing::debug!(%error, container = container.id(), "a full log goes on where it was");
            }
        }
    }
}
