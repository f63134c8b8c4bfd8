//! Being told to stop.

use std::fs;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::failure::{Explain as _, Failure};

/// Signals that come so close together are one: a terminal that goes away is told of by the shell and by the system, and
/// whoever holds a key down means what whoever pressed it once meant.
const MOMENT: Duration = Duration::from_millis(300);

/// Ctrl-C, SIGTERM, and the terminal that goes away. Of these Ctrl-C and the terminal's end are nothing to a process whose
/// starter had it ignore them: `nohup`, or a script that starts it in the background.
pub struct Signals {
    terminate: Signal,
    interrupt: Option<Signal>,
    hang_up: Option<Signal>,
    /// When the last one came.
    last: Option<Instant>,
}

impl Signals {
    /// From here on such signals no longer end the process by themselves.
    ///
    /// # Errors
    /// The system does not let us.
    pub fn listen() -> Result<Self, Failure> {
        let what = "can't listen for signals";
        let status = fs::read_to_string("/proc/self/status").what(what)?;
        let unless_ignored = |kind: SignalKind| {
            (!is_ignored(&status, kind.as_raw_value())).then(|| signal(kind)).transpose().what(what)
        };
        Ok(Signals {
            terminate: signal(SignalKind::terminate()).what(what)?,
            interrupt: unless_ignored(SignalKind::interrupt())?,
            hang_up: unless_ignored(SignalKind::hangup())?,
            last: None,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => {}
                () = received(&mut self.interrupt) => {}
                () = received(&mut self.hang_up) => {}
            }
            let now = Instant::now();
            if self.last.is_none_or(|last| now - last > MOMENT) {
                self.last = Some(now);
                return;
            }
        }
    }

    /// Waits for `work`, unless a signal comes first.
    pub async fn unless<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.next() => None,
        }
    }
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether a process ignores a signal, as the system says of it: a bit for each, from the first.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}
