//! What a probe's answers mean, by its thresholds.

use std::time::Duration;

use k8s_openapi::api::core::v1::Probe;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Startup,
    Liveness,
    Readiness,
}

impl Kind {
    /// As events begin.
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// How often and how long is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    pub delay: Duration,
    pub period: Duration,
    pub timeout: Duration,
}

impl Pace {
    pub fn of(probe: &Probe) -> Self {
        let seconds = |value: Option<i32>, default: u64| {
            Duration::from_secs(
                value.and_then(|value| u64::try_from(value).ok()).filter(|s| *s > 0).unwrap_or(default),
            )
        };
        Self {
            delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
        }
    }
}

/// The answers in a row.
#[derive(Clone, Debug)]
pub(crate) struct Tracker {
    needs: (u32, u32),
    last: Option<bool>,
    run: u32,
    /// What holds by now; none until a threshold was reached.
    verdict: Option<bool>,
}

impl Tracker {
    pub fn of(probe: &Probe) -> Self {
        let number = |value: Option<i32>, default: u32| {
            value.and_then(|value| u32::try_from(value).ok()).filter(|n| *n > 0).unwrap_or(default)
        };
        Self {
            needs: (number(probe.success_threshold, 1), number(probe.failure_threshold, 3)),
            last: None,
            run: 0,
            verdict: None,
        }
    }

    /// Takes an answer; gives what holds from now on, when that is new.
    pub fn answer(&mut self, good: bool) -> Option<bool> {
        self.run = if self.last == Some(good) { self.run + 1 } else { 1 };
        self.last = Some(good);
        let needed = if good { self.needs.0 } else { self.needs.1 };
        if self.run < needed || self.verdict == Some(good) {
            return None;
        }
        self.verdict = Some(good);
        Some(good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(success: i32, failure: i32, answers: &str, expected: &str) {
        let probe = json!({"successThreshold": success, "failureThreshold": failure});
        let mut tracker = Tracker::of(&serde_json::from_value(probe).unwrap());
        let verdicts: String = answers
            .chars()
            .map(|answer| match tracker.answer(answer == '+') {
                Some(true) => 'Y',
                Some(false) => 'N',
                None => '.',
            })
            .collect();
        assert_eq!(verdicts, expected, "{answers}");
    }

    #[test]
    fn a_verdict_needs_as_many_answers_in_a_row_as_the_threshold_says() {
        check(1, 3, "+---+--+---", "Y..NY.....N");
        check(2, 1, "+++-++", ".Y.N.Y");
        check(1, 3, "---", "..N");
    }
}
