//! Asking again and again.

use std::time::Duration;

use k8s_openapi::api::core::v1::Probe;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::ask::{Answer, Bad, Target, ask};
use super::tracker::{Kind, Pace, Tracker};

/// Until a container first answered well it is asked between the periods as well, at distances of this part of the
/// time since the first question: a program that is up in a moment is ready in a moment, and one that takes long is
/// asked little more often than it said. What these questions find bad does not count, and nobody hears of it.
const EAGERNESS: u32 = 32;

/// The shortest distance of two questions, by itself and as so many times what the last one took: a probe that is a
/// program takes more than one that is a connection.
const SHORTEST: Duration = Duration::from_millis(10);
const EASE: u32 = 8;

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
    /// One that is good, and something to be said about it.
    Warning(String),
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
    if kind != Kind::Startup && started.wait_for(|started| *started).await.is_err() {
        return;
    }
    let pace = Pace::of(&probe);
    let found = |what| {
        let (container, id) = (target.spec.name.clone(), target.container.id().to_owned());
        tell.send(Found { container, id, kind, what }).is_ok()
    };
    follow(kind, pace, Tracker::of(&probe), || ask(&target, &probe, pace.timeout), found).await;
}

/// Asks, and tells what is found until nobody listens or there is nothing more to find.
async fn follow<A: Future<Output = Answer>>(
    kind: Kind,
    pace: Pace,
    mut tracker: Tracker,
    ask: impl Fn() -> A,
    tell: impl Fn(What) -> bool,
) {
    tokio::time::sleep(pace.delay).await;
    let first = Instant::now();
    // The first period is the container's own: until it is over only a good answer counts.
    let mut due = first + pace.period;
    // Nobody waits for a container's being alive.
    let mut eager = kind != Kind::Liveness;
    loop {
        let began = Instant::now();
        let counts = began >= due;
        let answer = ask().await;
        if counts || answer.is_ok() {
            due = began + pace.period;
        }
        eager &= answer.is_err();
        let verdict = match &answer {
            Ok(_) => tracker.answer(true),
            Err(Bad::Failed(_)) if counts => tracker.answer(false),
            // As with a kubelet, what could not be asked does not count.
            Err(_) => None,
        };
        let said = match answer {
            Ok(warning) => warning.map(What::Warning),
            Err(bad) => Some(What::Bad(bad)).filter(|_| counts),
        };
        if let Some(said) = said
            && !tell(said)
        {
            return;
        }
        if let Some(verdict) = verdict
            && (!tell(What::Verdict(verdict)) || kind == Kind::Startup)
        {
            return;
        }
        let distance = (first.elapsed() / EAGERNESS).max(began.elapsed() * EASE).max(SHORTEST);
        let next = Instant::now() + distance;
        tokio::time::sleep_until(if eager { due.min(next) } else { due }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::cell::{Cell, RefCell};

    /// What is found in the first `seconds` of a container that answers well from `good` milliseconds on until
    /// `bad`, asked every two seconds: the milliseconds with `+`, `-` or, for one bad answer, `.`; and how often
    /// it was asked.
    async fn found(kind: Kind, good: u64, bad: u64, seconds: u64) -> (String, u32) {
        let probe = serde_json::from_value(json!({"periodSeconds": 2, "failureThreshold": 3})).unwrap();
        let start = Instant::now();
        let now = || u64::try_from(start.elapsed().as_millis()).unwrap();
        let (asked, told) = (Cell::new(0), RefCell::new(Vec::new()));
        let ask = || {
            asked.set(asked.get() + 1);
            let well = (good..bad).contains(&now());
            std::future::ready(if well { Ok(None) } else { Err(Bad::Failed("down".to_owned())) })
        };
        let tell = |what| {
            let mark = match what {
                What::Bad(_) | What::Warning(_) => '.',
                What::Verdict(true) => '+',
                What::Verdict(false) => '-',
            };
            told.borrow_mut().push(format!("{}{mark}", now()));
            true
        };
        let all = follow(kind, Pace::of(&probe), Tracker::of(&probe), ask, tell);
        let _over = tokio::time::timeout(Duration::from_secs(seconds), all).await;
        (told.into_inner().join(" "), asked.get())
    }

    #[tokio::test(start_paused = true)]
    async fn a_container_is_found_ready_soon_after_it_is_however_long_it_took() {
        for good in [0, 30, 700, 1999, 2001, 3500, 5100] {
            let (told, _) = found(Kind::Readiness, good, u64::MAX, 10).await;
            let ready: u64 = told.split(' ').next_back().unwrap().trim_end_matches('+').parse().unwrap();
            assert!((good..=good + good / 32 + 12).contains(&ready), "good at {good}: {told}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_questions_of_the_periods_count_and_the_first_has_none() {
        let never = u64::MAX;
        let (told, asked) = found(Kind::Readiness, never, never, 9).await;
        assert_eq!(told, "2000. 4000. 6000. 6000- 8000.");
        assert!(asked < 150, "{asked}");
        assert_eq!(found(Kind::Startup, never, never, 60).await.0, "2000. 4000. 6000. 6000-");
        assert_eq!(
            found(Kind::Liveness, never, never, 9).await,
            ("2000. 4000. 6000. 6000- 8000.".to_owned(), 5)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_ready_once_is_asked_once_a_period() {
        assert_eq!(
            found(Kind::Readiness, 0, 3000, 13).await,
            ("0+ 4000. 6000. 8000. 8000- 10000. 12000.".to_owned(), 7)
        );
        assert_eq!(found(Kind::Startup, 0, 3000, 13).await, ("0+".to_owned(), 1));
    }
}
