//! A log as a stream of bytes, which may go on for as long as the container runs.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::mpsc;

use super::lines::{Shown, Wish};
use super::rotate::moved;

/// How often a log that is followed is looked at.
const LOOKED_AT: Duration = Duration::from_millis(50);

/// Sends what is shown of a log, until it ends or nobody listens. `is_written` says whether the container that
/// writes it still runs.
pub(crate) async fn send(
    path: PathBuf,
    wish: Wish,
    is_written: impl Fn() -> bool + Send,
    to: mpsc::Sender<io::Result<Bytes>>,
) {
    let follow = wish.follow;
    let mut shown = Shown::new(wish);
    let mut file = None;
    for path in [&moved(&path), &path] {
        // Where the last is not there yet, what is written goes on in the one that was moved aside.
        let Ok(mut open) = File::open(path).await else { continue };
        if !drain(&mut open, &mut shown, &to).await {
            return;
        }
        file = Some(open);
    }
    let last = shown.end();
    if !give(last, &to).await || !follow {
        return;
    }
    loop {
        // Asked before the file is read: what was written before the end is read then.
        let ended = !is_written();
        match &mut file {
            Some(open) => {
                if !drain(open, &mut shown, &to).await {
                    return;
                }
                if is_moved(open, &path).await {
                    file = File::open(&path).await.ok();
                    continue;
                }
            }
            None => file = File::open(&path).await.ok(),
        }
        if ended || to.is_closed() {
            return;
        }
        tokio::time::sleep(LOOKED_AT).await;
    }
}

/// Sends the rest of a file; false when nothing more is wanted.
async fn drain(file: &mut File, shown: &mut Shown, to: &mpsc::Sender<io::Result<Bytes>>) -> bool {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer).await {
            Ok(0) => return true,
            Ok(count) => {
                let out = shown.take(&buffer[..count]);
                if !give(out, to).await || shown.is_full() {
                    return false;
                }
            }
            Err(error) => {
                let _gone = to.send(Err(error)).await;
                return false;
            }
        }
    }
}

async fn give(bytes: Vec<u8>, to: &mpsc::Sender<io::Result<Bytes>>) -> bool {
    bytes.is_empty() || to.send(Ok(bytes.into())).await.is_ok()
}

/// Whether the log goes on in another file of the same name.
async fn is_moved(open: &mut File, path: &std::path::Path) -> bool {
    let (Ok(own), Ok(named)) = (open.metadata().await, tokio::fs::metadata(path).await) else { return false };
    let at = open.stream_position().await.unwrap_or(0);
    own.ino() != named.ino() && at >= own.len()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;
    use std::path::Path;

    use super::*;

    fn write(path: &Path, text: &str) {
        let line = format!("2024-01-01T00:00:00.000000000Z stdout F {text}\n");
        let log = OpenOptions::new().create(true).append(true).open(path);
        log.unwrap().write_all(line.as_bytes()).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_follows_a_log_that_was_moved_aside_sees_what_comes_before_it_is_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        write(&moved(&path), "one");
        let (to, mut from) = mpsc::channel(1);
        let wish = Wish { follow: true, ..Wish::default() };
        let sending = tokio::spawn(send(path.clone(), wish, || true, to));
        let mut next = async || {
            let said = tokio::time::timeout(Duration::from_secs(60), from.recv()).await;
            said.expect("nothing is said").unwrap().unwrap()
        };
        assert_eq!(next().await, "one\n");
        write(&moved(&path), "two");
        assert_eq!(next().await, "two\n");
        write(&path, "three");
        assert_eq!(next().await, "three\n");
        // And on in the next.
        fs::rename(&path, moved(&path)).unwrap();
        write(&path, "four");
        assert_eq!(next().await, "four\n");
        sending.abort();
    }
}
