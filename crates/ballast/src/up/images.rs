//! Images for the node, made here: this process reaches package archives, the node does not.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use drydock_images::{Progress, Pull, Store};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::node::images::{Answer, Question};
use crate::terminal::say;

/// How often, in milliseconds, a person who waits is told how far it is.
const SAID: u64 = 1000;

/// Who makes images: each once at a time, however many wait for it.
struct Maker {
    make: Arc<dyn Fn(&Question) -> Answer + Send + Sync>,
    busy: Mutex<HashMap<Question, Shared<BoxFuture<'static, Answer>>>>,
}

impl Maker {
    async fn make(self: Arc<Self>, question: Question) -> Answer {
        let making =
            self.busy.lock().entry(question.clone()).or_insert_with(|| self.begin(&question)).clone();
        let answer = making.clone().await;
        let mut busy = self.busy.lock();
        if busy.get(&question).is_some_and(|newer| newer.ptr_eq(&making)) {
            busy.remove(&question);
        }
        answer
    }

    fn begin(&self, question: &Question) -> Shared<BoxFuture<'static, Answer>> {
        let (make, question) = (Arc::clone(&self.make), question.clone());
        let work = tokio::task::spawn_blocking(move || make(&question));
        let answer = async {
            work.await.unwrap_or_else(|error| Answer::Failed {
                reason: "ErrImagePull".to_owned(),
                message: error.to_string(),
            })
        };
        answer.boxed().shared()
    }
}

/// Makes what is asked for until it is dropped.
pub async fn serve(listener: UnixListener, store: Store) {
    let maker = Maker { make: Arc::new(move |question| make(&store, question)), busy: Mutex::default() };
    let maker = Arc::new(maker);
    let mut callers = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let maker = Arc::clone(&maker);
                    callers.spawn(async move {
                        if let Err(error) = answer(stream, maker).await {
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

async fn answer(mut stream: UnixStream, maker: Arc<Maker>) -> io::Result<()> {
    let (input, mut output) = stream.split();
    let mut line = String::new();
    BufReader::new(input).read_line(&mut line).await?;
    let made = maker.make(serde_json::from_str(&line)?).await;
    output.write_all(format!("{}\n", serde_json::to_string(&made)?).as_bytes()).await
}

fn make(store: &Store, question: &Question) -> Answer {
    let image = question.image.trim_start_matches("docker.io/").trim_start_matches("library/");
    let pull = if question.again { Pull::Always } else { Pull::IfNotPresent };
    let began = Instant::now();
    let (last, works) = (AtomicU64::new(0), AtomicBool::new(false));
    let said = |progress: &Progress| {
        works.fetch_or(*progress != Progress::Waiting, Ordering::Relaxed);
        let now = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let before = last.load(Ordering::Relaxed);
        if before == 0 || now - before >= SAID {
            last.store(now, Ordering::Relaxed);
            say(format_args!("image {image}: {progress}"));
        }
    };
    match store.resolve_image(&question.image, pull, &said) {
        Ok(resolved) => {
            if works.load(Ordering::Relaxed) {
                let seconds = began.elapsed().as_secs_f64();
                say(format_args!("image {image}: made in {seconds:.1} s, {} MB", resolved.bytes / 1_000_000));
            }
            Answer::Made
        }
        Err(error) => Answer::Failed { reason: error.reason().to_owned(), message: error.message() },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn an_image_is_made_once_for_all_who_wait_for_it() {
        let (go, wait) = mpsc::channel();
        let (times, wait) = (Arc::new(AtomicU32::new(0)), Mutex::new(wait));
        let counted = Arc::clone(&times);
        let make = move |_: &Question| {
            counted.fetch_add(1, Ordering::Relaxed);
            wait.lock().recv().unwrap();
            Answer::Made
        };
        let maker = Arc::new(Maker { make: Arc::new(make), busy: Mutex::default() });
        let question = Question { image: "busybox".to_owned(), again: false };
        let asked = (0..3).map(|_| Arc::clone(&maker).make(question.clone()));
        let waiting = tokio::spawn(futures::future::join_all(asked));
        while maker.busy.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        go.send(()).unwrap();
        assert_eq!(waiting.await.unwrap().len(), 3);
        assert_eq!(times.load(Ordering::Relaxed), 1);
        go.send(()).unwrap();
        Arc::clone(&maker).make(question).await;
        assert_eq!(times.load(Ordering::Relaxed), 2, "what was made once is asked for anew");
    }
}
