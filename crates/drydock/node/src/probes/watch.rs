//! Asking again and again.

use std::time::Duration;

use k8s_openapi::api::core::v1::Probe;
use tokio::sync::{mpsc, watch};

use super::ask::{Bad, Target, ask};
use super::tracker::{Kind, Pace, Tracker};

/// The first question comes at once, and the next ones at distances that grow from this, until the container
/// answered or a period is over: a program that is up in a moment is ready in a moment. What these questions find
/// bad does not count, and nobody hears of it.
const EAGER: Duration = Duration::from_millis(10);

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub container: String,
    /// Which start of the container.
    pub id: String,
    pub kind: Kind,
    pub what: What,
}

/// See [`Found`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// One bad answer, or none.
    Bad(Bad),
    /// From now on it is so.
    Verdict(bool),
}

/// Asks until the container ends; whoever spawned this ends it then. Liveness and readiness wait until the
/// container counts as started.
pub(crate) async fn run(
    kind: Kind,
    probe: Probe,
    target: Target,
    mut started: watch::Receiver<bool>,
    tell: mpsc::UnboundedSender<Found>,
) {
    let pace = Pace::of(&probe);
    let mut tracker = Tracker::of(&probe);
    if kind != Kind::Startup && started.wait_for(|started| *started).await.is_err() {
        return;
    }
    tokio::time::sleep(pace.delay).await;
    let found = |what| Found {
        container: target.spec.name.clone(),
        id: target.container.id().to_owned(),
        kind,
        what,
    };
    if eagerly(kind, &probe, &target, pace).await {
        // As good as the answer at the end of the pause.
        if let Some(verdict) = tracker.answer(true)
            && tell.send(found(What::Verdict(verdict))).is_err()
        {
            return;
        }
        if kind == Kind::Startup && tracker.holds() == Some(true) {
            return;
        }
        tokio::time::sleep(pace.period).await;
    }
    loop {
        let began = tokio::time::Instant::now();
        let answer = ask(&target, &probe, pace.timeout).await;
        let verdict = match &answer {
            Ok(()) => tracker.answer(true),
            Err(Bad::Failed(_)) => tracker.answer(false),
            // As with a kubelet, what could not be asked does not count.
            Err(Bad::Unasked(_)) => None,
        };
        if let Err(bad) = answer
            && tell.send(found(What::Bad(bad))).is_err()
        {
            return;
        }
        if let Some(verdict) = verdict {
            if tell.send(found(What::Verdict(verdict))).is_err() {
                return;
            }
            if kind == Kind::Startup {
                return;
            }
        }
        tokio::time::sleep_until(began + pace.period).await;
    }
}

/// Asks at growing distances during the first period; true as soon as the answer is good. Nobody waits for a
/// container's being alive, so that is asked once.
async fn eagerly(kind: Kind, probe: &Probe, target: &Target, pace: Pace) -> bool {
    let end = tokio::time::Instant::now() + pace.period;
    let mut pause = EAGER;
    loop {
        if ask(target, probe, pace.timeout).await.is_ok() {
            return true;
        }
        let next = tokio::time::Instant::now() + pause;
        if next >= end || kind == Kind::Liveness {
            tokio::time::sleep_until(end).await;
            return false;
        }
        tokio::time::sleep_until(next).await;
        pause = pause * 3 / 2;
    }
}
