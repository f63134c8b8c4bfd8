//! How long a container that ends again and again waits.
//!
//! The first end is followed by a start at once; from then on it waits 10 s, doubling up to 5 min. Ten minutes
//! without an end, and it begins anew.

use jiff::{SignedDuration, Timestamp};

const FIRST: SignedDuration = SignedDuration::from_secs(10);
const LONGEST: SignedDuration = SignedDuration::from_secs(300);
const FORGOTTEN: SignedDuration = SignedDuration::from_secs(600);

/// What is remembered between two attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backoff {
    entry: Option<(SignedDuration, Timestamp)>,
}

impl Backoff {
    /// Until when an attempt has to wait after what happened at `event`, and how long that is in all; none when it
    /// need not.
    pub fn waits(&self, event: Timestamp, now: Timestamp) -> Option<(Timestamp, SignedDuration)> {
        let (delay, updated) = self.entry?;
        let until = event + delay;
        (event.duration_since(updated) <= FORGOTTEN && now < until).then_some((until, delay))
    }

    /// An attempt is made after what happened at `event`.
    pub fn attempt(&mut self, event: Timestamp, now: Timestamp) {
        let delay = match self.entry {
            Some((delay, updated)) if event.duration_since(updated) <= FORGOTTEN => (delay * 2).min(LONGEST),
            _ => FIRST,
        };
        self.entry = Some((delay, now));
    }
}

/// A duration as Go prints whole seconds: `10s`, `1m20s`, `5m0s`.
pub(crate) fn seconds(duration: SignedDuration) -> String {
    let all = duration.as_secs();
    if all < 60 { format!("{all}s") } else { format!("{}m{}s", all / 60, all % 60) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends at once after each start; the waits that come of it.
    fn check(ends: usize, expected: &[i64]) {
        let mut now: Timestamp = "2024-01-01T00:00:00Z".parse().unwrap();
        let mut backoff = Backoff::default();
        let mut waits = Vec::new();
        for _ in 0..ends {
            let event = now;
            if let Some((until, _)) = backoff.waits(event, now) {
                waits.push(until.duration_since(now).as_secs());
                now = until;
                assert_eq!(backoff.waits(event, now), None);
            } else {
                waits.push(0);
            }
            backoff.attempt(event, now);
        }
        assert_eq!(waits, expected);
    }

    #[test]
    fn the_first_restart_is_at_once_and_the_others_wait_longer_and_longer() {
        check(8, &[0, 10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn ten_quiet_minutes_are_forgiven() {
        let now: Timestamp = "2024-01-01T00:00:00Z".parse().unwrap();
        let mut backoff = Backoff::default();
        backoff.attempt(now, now);
        let later = now + SignedDuration::from_secs(601);
        assert_eq!(backoff.waits(later, later), None);
        backoff.attempt(later, later);
        assert_eq!(backoff.waits(later, later).unwrap().1, FIRST);
    }

    #[test]
    fn durations_read_as_go_writes_them() {
        let texts = [10, 60, 160, 300].map(|all| seconds(SignedDuration::from_secs(all)));
        assert_eq!(texts, ["10s", "1m0s", "2m40s", "5m0s"]);
    }
}
