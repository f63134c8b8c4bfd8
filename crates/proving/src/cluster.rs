//! One cluster with one operator, in virtual time.
//!
//! Everything runs on one thread whose clock is paused, and everybody talks through memory. Such a clock moves only
//! when nobody has anything left to do but wait. So when it has moved by the length of a window and nothing was
//! written, then every queue was empty, every watch had delivered, and nothing that was put off for less than the
//! window was still to come. No guess about how fast the machine is goes into that.

use std::{sync::Arc, time::Duration};

use ballast_operator::Operator;
use ballast_runtime::{Manager, Options};
use drydock::{Drydock, Revision, Snapshot, StartError};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::{
    State,
    clock::VirtualClock,
    kubelet,
    service::{Service, Tapped},
    tap::{Tap, Who},
};

/// How long nothing may be written for everything to be at rest. Longer than what a runtime waits between two tries
/// when others contest its fields (a minute), shorter than the life of a watch (five).
const WINDOW: Duration = Duration::from_secs(90);
/// After how many windows without rest there will be none.
const WINDOWS: usize = 12;
/// How long that may take by the clock on the wall: for those who are busy without ever writing.
const WALL: Duration = Duration::from_secs(60);

/// It did not come to rest.
#[derive(Debug, thiserror::Error)]
#[error("{why}; it wrote last:\n{}", .last.join("\n"))]
pub(crate) struct Restless {
    why: &'static str,
    last: Vec<String>,
}

/// A cluster, the person who uses it, and maybe an operator.
pub(crate) struct Cluster {
    pub(crate) drydock: Arc<Drydock>,
    pub(crate) tap: Tap,
    pub(crate) clock: VirtualClock,
    pub(crate) service: Arc<dyn Service>,
    pub(crate) person: kube::Client,
}

impl Cluster {
    /// A cluster that begins at `at` as `snapshot` was, or empty.
    pub(crate) async fn start(
        snapshot: Option<Snapshot>,
        at: Timestamp,
        service: Arc<dyn Service>,
    ) -> Result<Self, StartError> {
        let clock = VirtualClock::starting(at);
        let builder = Drydock::builder().history(usize::MAX).clock(move || clock.timestamp());
        let builder = match snapshot {
            Some(snapshot) => builder.from_snapshot(snapshot),
            None => builder,
        };
        let drydock = Arc::new(builder.start().await?);
        let tap = Tap::new(Arc::clone(&drydock), clock, Arc::clone(&service));
        tokio::spawn(kubelet::run(drydock.client(), clock));
        Ok(Cluster { person: tap.client(Who::Person), drydock, tap, clock, service })
    }

    /// Starts an operator as a process of its own would be. It ends with the tokio runtime, as in a crash.
    pub(crate) fn operate<O: Operator>(&self, operator: O) {
        let options = Options { clock: Arc::new(self.clock), ..Options::default() };
        let engine = Tapped { service: Arc::clone(&self.service), tap: self.tap.clone() };
        let manager = Manager::new(self.tap.client(Who::Operator), options).register(operator, engine);
        tokio::spawn(manager.run(CancellationToken::new()));
    }

    /// Waits until nobody has anything to do any more.
    pub(crate) async fn rest(&self) -> Result<(), Restless> {
        let alarm = Alarm::set(WALL);
        for _ in 0..WINDOWS {
            let before = self.drydock.revision();
            tokio::select! {
                () = tokio::time::sleep(WINDOW) => {}
                () = alarm.rung() => return Err(self.restless("it is busy without end and never waits")),
            }
            if self.tap.is_stopped() {
                return Err(self.restless("it writes without end and never waits"));
            }
            if self.drydock.revision() == before {
                return Ok(());
            }
        }
        Err(self.restless("there is always something written"))
    }

    fn restless(&self, why: &'static str) -> Restless {
        Restless { why, last: self.tap.latest(6) }
    }

    /// What there is now that is newer than `since`.
    pub(crate) fn state(&self, since: Revision) -> State {
        self.state_at(self.drydock.revision(), since)
    }

    /// What there was at a revision that is newer than `since`.
    pub(crate) fn state_at(&self, at: Revision, since: Revision) -> State {
        // The history is kept whole, so that there is no revision that can't be had.
        self.drydock.snapshot(at).map(|snapshot| State::new(&snapshot, since)).unwrap_or_default()
    }
}

/// Rings after a time on the wall, whatever the paused clock says.
struct Alarm {
    rung: tokio::sync::watch::Receiver<bool>,
    _off: std::sync::mpsc::Sender<()>,
}

impl Alarm {
    fn set(after: Duration) -> Self {
        let (ring, rung) = tokio::sync::watch::channel(false);
        let (off, waits) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            if waits.recv_timeout(after) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                let _ = ring.send(true);
            }
        });
        Alarm { rung, _off: off }
    }

    async fn rung(&self) {
        if self.rung.clone().wait_for(|rung| *rung).await.is_err() {
            std::future::pending().await
        }
    }
}
