//! Where time and randomness come from. Both are arguments, so that tests can say what they are.
//!
//! The clock here is the one that people read: it goes into views, conditions and events. Waiting is measured by
//! tokio's clock, which a test can pause.

use jiff::Timestamp;

/// What time it is.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// There is no randomness to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system has no randomness to give")]
pub struct NoRandomness;

/// Bytes that nobody can guess.
pub trait Random: Send + Sync + 'static {
    /// Fills all of `bytes`.
    ///
    /// # Errors
    /// When there is none. What is in `bytes` then must not be used for anything secret.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), NoRandomness>;
}

/// The operating system's randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), NoRandomness> {
        getrandom::fill(bytes).map_err(|_| NoRandomness)
    }
}

/// A number between 0 and 1, for jitter. Without randomness it is a half: late is better than never.
pub(crate) fn fraction(random: &dyn Random) -> f64 {
    let mut bytes = [0; 4];
    match random.fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX),
        Err(NoRandomness) => 0.5,
    }
}

/// A name for one round that no other round has: it stands on every line that the round logs. Written like a UUID,
/// because that is what tools that read logs expect.
pub(crate) fn round_id(random: &dyn Random) -> String {
    let mut bytes = [0; 16];
    // Without randomness all rounds have one name: a pity for the reader of the log, and no reason not to work.
    let _ = random.fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (place, byte) in bytes.iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 0x0f] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Always(u8);

    impl Random for Always {
        fn fill(&self, bytes: &mut [u8]) -> Result<(), NoRandomness> {
            bytes.fill(self.0);
            Ok(())
        }
    }

    #[test]
    fn a_round_is_named_like_a_uuid() {
        assert_eq!(round_id(&Always(0xff)), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }

    #[test]
    fn a_fraction_is_between_nothing_and_all() {
        assert_eq!(fraction(&Always(0)), 0.0);
        assert_eq!(fraction(&Always(0xff)), 1.0);
    }
}
