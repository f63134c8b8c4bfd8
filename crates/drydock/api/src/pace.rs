//! How often a watch is sent something.
//!
//! An event that comes alone is sent at once. Where changes go on and on, sending each by itself costs the server, the
//! client and the kernel between them more than the change did, for every watch there is; so a watch that has been sent
//! many pieces lately rests a moment before it looks again, and what came in that moment goes together. All that rest
//! do so until the same moment: the machine wakes once for a hundred of them, and not a hundred times.
//!
//! **Always holds:** nothing waits longer than [`PAUSE`], and nothing at all where fewer than [`AT_ONCE`] pieces were
//! sent in as many pauses.

use std::{sync::OnceLock, time::Duration};

use tokio::time::Instant;

/// Between two pieces of a watch that is sent one after the other: less than anybody notices, and at a thousand changes
/// a second four of them travel together.
pub const PAUSE: Duration = Duration::from_millis(4);

/// So many pieces may follow each other without a pause: what one change by a person sets off is over by then.
pub const AT_ONCE: u32 = 16;

/// The pace of one watch.
#[derive(Debug, Default)]
pub struct Pace {
    /// When all that was sent would have been, one piece in each pause.
    due: Option<Instant>,
}

impl Pace {
    /// A piece is sent.
    pub fn sent(&mut self, now: Instant) {
        let due = self.due.unwrap_or(now).max(now) + PAUSE;
        self.due = Some(due.min(now + PAUSE * (AT_ONCE + 1)));
    }

    /// Until when to rest before the next one; none for not at all.
    pub fn rest(&self, now: Instant) -> Option<Instant> {
        let ahead = self.due?.checked_duration_since(now)?;
        (ahead > PAUSE * AT_ONCE).then(|| step_after(now))
    }
}

/// The first moment after this one at which watches that rest go on.
fn step_after(now: Instant) -> Instant {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let since = now.saturating_duration_since(*FIRST.get_or_init(|| now));
    let into = since.as_nanos() % PAUSE.as_nanos();
    now + PAUSE.saturating_sub(Duration::from_nanos(u64::try_from(into).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long each piece waits, in milliseconds, when the next is there that long after the one before was sent.
    fn waits(between: u64, count: usize) -> Vec<u128> {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..count {
            let from = pace.rest(now).unwrap_or(now);
            waits.push((from - now).as_millis());
            pace.sent(from);
            now = from + Duration::from_millis(between);
        }
        waits
    }

    #[test]
    fn what_comes_alone_is_sent_at_once() {
        assert_eq!(waits(5, 1000), vec![0; 1000]);
    }

    #[test]
    fn a_short_burst_is_sent_at_once_and_a_long_one_in_step() {
        let waits = waits(0, 40);
        let (burst, rest) = waits.split_at(AT_ONCE as usize + 1);
        assert_eq!(burst, vec![0; burst.len()]);
        // The first goes to where the others are.
        assert_eq!(rest[1..], vec![PAUSE.as_millis(); rest.len() - 1]);
    }

    #[test]
    fn no_piece_waits_longer_than_a_pause_and_quiet_makes_good() {
        let (mut pace, mut at) = (Pace::default(), Instant::now());
        for _ in 0..100 {
            let from = pace.rest(at).unwrap_or(at);
            assert!(from - at <= PAUSE);
            pace.sent(from);
            at = from;
        }
        assert!(pace.rest(at).is_some());
        assert_eq!(pace.rest(at + PAUSE), None);
    }

    #[test]
    fn all_rest_until_the_same_moment() {
        let now = Instant::now();
        let tired = |from: Instant| {
            let mut pace = Pace::default();
            (0..=AT_ONCE).for_each(|_| pace.sent(from));
            pace
        };
        let first = tired(now).rest(now).unwrap();
        let later = now + (first - now) / 2;
        assert_eq!(tired(later).rest(later), Some(first));
        assert_eq!(tired(first).rest(first), Some(first + PAUSE));
    }
}
