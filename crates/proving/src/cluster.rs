//! One cluster with one process of operators, in virtual time.
//!
//! Everything runs on one thread whose clock is paused, and everybody talks through memory. Such a clock moves only
//! when nobody has anything left to do but wait. So when it has moved by the length of a window and nothing was
//! written, then every queue was empty, every watch had delivered, and nothing that was put off for less than the
//! window was still to come. No guess about how fast the machine is goes into that.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use ballast_runtime::{Manager, Options, Recorder};
use drydock::{Drydock, Revision, Snapshot, StartError};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    State,
    clock::VirtualClock,
    kubelet::Kubelet,
    member::Member,
    service::{ActionOrder, Service, Tapped},
    tap::{Tap, Who},
};

/// How long nothing may be written for everything to be at rest. Longer than what a runtime waits between two tries
/// when others contest its fields (a minute), shorter than the life of a watch (five).
const WINDOW: Duration = Duration::from_secs(90);
/// After how many windows without rest there will be none.
const WINDOWS: usize = 12;
/// How long that may take by the clock on the wall: for those who are busy without ever writing.
const WALL: Duration = Duration::from_secs(60);
/// In what steps that is counted: a process that is stopped for an hour, or a machine that sleeps, is one step older.
const STEP: Duration = Duration::from_millis(100);

/// How many rounds of an object are shown with a finding.
const ROUNDS: usize = 3;

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
    /// What is to go wrong with the service's actions.
    pub(crate) action_faults: ActionOrder,
    recorder: Mutex<Option<Arc<Recorder>>>,
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
        let kubelet = Kubelet { client: tap.client(Who::Node), clock, service: Arc::clone(&service) };
        tokio::spawn(kubelet.run());
        let (person, action_faults) = (tap.client(Who::Person), ActionOrder::default());
        Ok(Cluster { person, drydock, tap, clock, service, action_faults, recorder: Mutex::default() })
    }

    /// Starts operators as one process would. It ends with the tokio runtime, as in a crash.
    pub(crate) fn operate(&self, members: &[Box<dyn Member>]) {
        let options = Options { clock: Arc::new(self.clock), ..Options::default() };
        let mut manager = Manager::new(self.tap.client(Who::Operator), options);
        for member in members {
            let (service, faults) = (Arc::clone(&self.service), self.action_faults.clone());
            manager = member.register(manager, Tapped { service, tap: self.tap.clone(), faults });
        }
        *self.recorder.lock() = Some(manager.recorder());
        tokio::spawn(manager.run(CancellationToken::new()));
    }

    /// What the operator saw, planned and did last, of everything.
    pub(crate) fn last_rounds(&self) -> String {
        let Some(recorder) = self.recorder.lock().clone() else { return String::new() };
        let mut text = String::new();
        for object in recorder.objects() {
            for round in recorder.rounds(&object).iter().rev().take(ROUNDS).rev() {
                let lines = [round.view.as_str(), &round.plan, &round.outcome].concat();
                let _ = writeln!(text, "{object}, {}\n{}", round.at, lines.trim_end());
            }
        }
        text
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

/// Rings after a time on the wall in which this process could run, whatever the paused clock says.
struct Alarm {
    rung: tokio::sync::watch::Receiver<bool>,
    _off: std::sync::mpsc::Sender<()>,
}

impl Alarm {
    fn set(after: Duration) -> Self {
        let (ring, rung) = tokio::sync::watch::channel(false);
        let (off, waits) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            let mut steps = after.as_millis() / STEP.as_millis();
            while steps > 0 && waits.recv_timeout(STEP) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                steps -= 1;
            }
            let _ = ring.send(steps == 0);
        });
        Alarm { rung, _off: off }
    }

    async fn rung(&self) {
        if self.rung.clone().wait_for(|rung| *rung).await.is_err() {
            std::future::pending().await
        }
    }
}
