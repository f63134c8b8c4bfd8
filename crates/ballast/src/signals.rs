//! Being told to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Explain as _, Failure};

/// Ctrl-C, SIGTERM, and the terminal that goes away.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    /// From here on such signals no longer end the process by themselves.
    ///
    /// # Errors
    /// The system does not let us.
    pub fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).what("can't listen for signals");
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
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
