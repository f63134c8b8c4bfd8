//! How often a watch is sent something.
//!
//! An event that comes alone is sent at once. Where changes go on and on, sending each by itself costs the server, the
//! client and the kernel between them more than the change did, for every watch there is; so a watch that has been sent
//! many pieces lately waits a moment, and what comes in that moment goes with it.
//!
//! **Always holds:** nothing waits longer than [`PAUSE`], and nothing at all where fewer than [`AT_ONCE`] pieces were
//! sent in as many pauses.

use std::time::Duration;

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
    /// When the next piece may be sent, which is then taken for sent; none for at once.
    pub fn next(&mut self, now: Instant) -> Option<Instant> {
        let due = self.due.unwrap_or(now).max(now);
        self.due = Some(due + PAUSE);
        due.checked_sub(PAUSE * AT_ONCE).filter(|from| *from > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long each piece waits, in milliseconds, when the next is there that long after the one before was sent.
    fn waits(between: u64, count: usize) -> Vec<u128> {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..count {
            let from = pace.next(now).unwrap_or(now);
            waits.push((from - now).as_millis());
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
        assert_eq!(rest, vec![PAUSE.as_millis(); rest.len()]);
    }

    #[test]
    fn no_piece_waits_longer_than_a_pause_and_quiet_makes_good() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let mut at = now;
        for _ in 0..100 {
            let from = pace.next(at).unwrap_or(at);
            assert!(from - at <= PAUSE);
            at = from;
        }
        assert_eq!(pace.next(at + PAUSE * (AT_ONCE + 1)), None);
    }
}
