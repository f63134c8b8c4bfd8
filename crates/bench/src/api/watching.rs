//! One write, seen by many.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use memchr::{memchr, memmem};
use serde_json::json;

use super::{
    MAPS,
    connection::Server,
    load::{Load, alone, together},
};

pub const WHAT: &str = "a write to 100 watchers, from being sent to being seen";
pub const GOAL: &str = "p99 under 10 ms at 1000 writes/s";

const WATCHERS: usize = 100;
/// Each writes one object, again and again.
const WRITERS: u32 = 16;
const WRITES_PER_SECOND: u32 = 1000;
const WRITES: usize = 5000;
/// A server that has not told all by then does not keep up.
const PATIENCE: Duration = Duration::from_secs(60);
/// What stands before the moment of a write in an event.
const MARK: &[u8] = b"\"at\":\"";

/// How long each write took to each watcher, at how many writes per second; and how long that was done, in seconds.
pub fn measure(server: &Server) -> Result<(String, f64)> {
    let began = Instant::now();
    alone(write(server, began, WRITERS as usize, Duration::ZERO))?;
    std::thread::scope(|threads| {
        let (ready, begin) = std::sync::mpsc::channel();
        let watching = threads.spawn(move || {
            alone(async {
                let path = format!("{MAPS}?watch=true&labelSelector=for%3Dwatchers");
                let request = server.request("GET", &path, "");
                let mut watches = together((0..WATCHERS).map(|_| watch(server, &request))).await?;
                ready.send(())?;
                let seen = watches.iter_mut().map(|watch| watch.seen(began));
                let seen = tokio::time::timeout(PATIENCE, together(seen)).await;
                seen.context("the server does not keep up")?
            })
        });
        begin.recv().context("no watch")?;
        let pause = Duration::from_secs(1) / WRITES_PER_SECOND;
        let first = Instant::now();
        let rate = alone(write(server, began, WRITES, pause))?;
        let times = watching.join().map_err(|_| anyhow::anyhow!("the watchers panicked"))??;
        let seconds = first.elapsed().as_secs_f64();
        let seen = Load::of(times.concat(), 1.0);
        let [most, half] = [0.01, 0.5].map(|share| seen.all_but(share));
        Ok((format!("p99 {most:.1} ms, median {half:.1} ms, at {rate:.0} writes/s"), seconds))
    })
}

/// Writes so many times, and gives how many that were per second.
async fn write(server: &Server, began: Instant, count: usize, pause: Duration) -> Result<f64> {
    let first = Instant::now();
    let writers = (0..WRITERS).map(|writer| async move {
        let mut connection = server.connect().await?;
        for number in 0..count / WRITERS as usize {
            let turn = pause * (number as u32 * WRITERS + writer);
            tokio::time::sleep_until((first + turn).into()).await;
            let name = format!("watched-{writer}");
            let data = json!({"at": began.elapsed().as_nanos().to_string()});
            let metadata = json!({"name": name, "labels": {"for": "watchers"}});
            let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
            let (method, path) = match pause.is_zero() {
                true => ("POST", MAPS.to_owned()),
                false => ("PUT", format!("{MAPS}/{name}")),
            };
            connection.ask(&server.request(method, &path, &body.to_string())).await?;
        }
        Ok(())
    });
    together(writers).await?;
    Ok(count as f64 / first.elapsed().as_secs_f64())
}

/// A watcher costs as little as it can: it has the machine in common with the server.
struct Watcher {
    connection: super::connection::Connection,
    text: Vec<u8>,
    /// Up to where it was read.
    at: usize,
}

/// A watch that has told what there was.
async fn watch(server: &Server, request: &[u8]) -> Result<Watcher> {
    let mut watch = Watcher { connection: server.connect().await?, text: Vec::new(), at: 0 };
    watch.connection.follow(request).await?;
    for _ in 0..WRITERS {
        watch.moment().await?;
    }
    Ok(watch)
}

impl Watcher {
    /// The moment of the next event's write.
    async fn moment(&mut self) -> Result<Duration> {
        loop {
            let unread = &self.text[self.at..];
            if let Some(end) = memchr(b'\n', unread) {
                let mark = memmem::find(&unread[..end], MARK).context("no moment")?;
                let digits = unread[mark + MARK.len()..].iter().take_while(|byte| byte.is_ascii_digit());
                let nanoseconds = digits.fold(0, |sum: u64, byte| sum * 10 + u64::from(byte - b'0'));
                self.at += end + 1;
                return Ok(Duration::from_nanos(nanoseconds));
            }
            self.text.drain(..self.at);
            self.at = 0;
            ensure!(self.connection.piece(&mut self.text).await?, "the watch ended");
        }
    }

    async fn seen(&mut self, began: Instant) -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(WRITES);
        while times.len() < WRITES / WRITERS as usize * WRITERS as usize {
            let moment = self.moment().await?;
            times.push((began.elapsed() - moment).as_secs_f64() * 1e3);
        }
        Ok(times)
    }
}
