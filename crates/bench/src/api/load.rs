//! Many connections that ask as fast as they are answered, and what came of it.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures::{TryStreamExt, stream::FuturesUnordered};

use super::connection::Server;

/// How long each of many requests took, and all together.
pub struct Load {
    /// In milliseconds, sorted.
    each: Vec<f64>,
    seconds: f64,
}

impl Load {
    pub fn of(mut each: Vec<f64>, seconds: f64) -> Self {
        each.sort_by(f64::total_cmp);
        Self { each, seconds }
    }

    pub fn count(&self) -> usize {
        self.each.len()
    }

    pub fn per_second(&self) -> f64 {
        self.count() as f64 / self.seconds
    }

    /// How long all but this share of them took at most, in milliseconds.
    pub fn all_but(&self, share: f64) -> f64 {
        let place = ((1.0 - share) * self.each.len() as f64) as usize;
        self.each.get(place.min(self.each.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    }
}

/// Lets so many connections ask what `next` says, which is told how many requests there were before and for how
/// long; until it says nothing more. The connections are made before the clock starts.
pub fn load(
    server: &Server,
    connections: usize,
    next: impl Fn(usize, Duration) -> Option<Vec<u8>>,
) -> Result<Load> {
    alone(async {
        let open = together((0..connections).map(|_| server.connect())).await?;
        let (number, next) = (Cell::new(0), &next);
        let began = Instant::now();
        let number = &number;
        let asking = open.into_iter().map(|mut connection| async move {
            let mut times = Vec::new();
            while let Some(request) = next(number.replace(number.get() + 1), began.elapsed()) {
                let sent = Instant::now();
                connection.ask(&request).await?;
                times.push(sent.elapsed().as_secs_f64() * 1e3);
            }
            Ok(times)
        });
        let times = together(asking).await?;
        Ok(Load::of(times.concat(), began.elapsed().as_secs_f64()))
    })
}

/// Runs something on this thread alone.
pub fn alone<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("no runtime")?.block_on(work)
}

/// The same for what listens: whenever there is nothing to do the thread sleeps so long, whatever comes. A thread that is
/// woken for every piece costs the sender more than the piece does.
pub fn listening<T>(rest: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().on_thread_park(move || std::thread::sleep(rest)).build();
    runtime.context("no runtime")?.block_on(work)
}

/// The first of these to fail, or all that they gave.
pub async fn together<T>(work: impl IntoIterator<Item = impl Future<Output = Result<T>>>) -> Result<Vec<T>> {
    work.into_iter().collect::<FuturesUnordered<_>>().try_collect().await
}
