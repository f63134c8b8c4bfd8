//! Images for the node, made here: this process reaches package archives, the node does not.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use drydock_images::{Progress, Pull, Store};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::node::images::{Answer, Question};
use crate::terminal::say;

/// How often, in milliseconds, a person who waits is told how far it is.
const SAID: u64 = 1000;

/// Makes what is asked for until it is dropped.
pub async fn serve(listener: UnixListener, store: Store) {
    let mut callers = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let store = store.clone();
                    callers.spawn(async move {
                        if let Err(error) = answer(stream, store).await {
                            tracing::debug!(%error, "the node asked for an image and went away");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "can't accept a connection");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            },
            Some(_) = callers.join_next() => {}
        }
    }
}

async fn answer(mut stream: UnixStream, store: Store) -> io::Result<()> {
    let (input, mut output) = stream.split();
    let mut line = String::new();
    BufReader::new(input).read_line(&mut line).await?;
    let question: Question = serde_json::from_str(&line)?;
    let made = tokio::task::spawn_blocking(move || make(&store, &question)).await?;
    output.write_all(format!("{}\n", serde_json::to_string(&made)?).as_bytes()).await
}

fn make(store: &Store, question: &Question) -> Answer {
    let image = question.image.trim_start_matches("docker.io/").trim_start_matches("library/");
    let pull = if question.again { Pull::Always } else { Pull::IfNotPresent };
    let began = Instant::now();
    let last = AtomicU64::new(0);
    let said = |progress: &Progress| {
        let now = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let before = last.load(Ordering::Relaxed);
        if before == 0 || now - before >= SAID {
            last.store(now, Ordering::Relaxed);
            say(format_args!("image {image}: {progress}"));
        }
    };
    match store.resolve_image(&question.image, pull, &said) {
        Ok(resolved) => {
            if last.load(Ordering::Relaxed) > 0 {
                let seconds = began.elapsed().as_secs_f64();
                say(format_args!("image {image}: made in {seconds:.1} s, {} MB", resolved.bytes / 1_000_000));
            }
            Answer::Made
        }
        Err(error) => Answer::Failed { reason: error.reason().to_owned(), message: error.message() },
    }
}
