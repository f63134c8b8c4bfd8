//! How long to wait before trying again.

use std::time::Duration;

use ballast_operator::Class;

/// Pauses that double with every failure of one object, and differ a little so that many objects that failed
/// together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure that may pass.
    pub first: Duration,
    /// After the first failure that is a bug: it will hardly pass, and is loud.
    pub first_after_bug: Duration,
    /// The longest pause.
    pub longest: Duration,
    /// How long to wait for a change after a failure that will not pass by itself. A permission or a quota changes
    /// without our being told, so it is not for ever.
    pub terminal: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff {
            first: Duration::from_millis(100),
            first_after_bug: Duration::from_secs(5),
            longest: Duration::from_secs(300),
            terminal: Duration::from_secs(1800),
        }
    }
}

impl Backoff {
    /// The pause after the `failures`-th failure in a row. `jitter` is between 0 and 1; the pause is between a half
    /// and the whole of what it would be otherwise.
    pub fn pause(&self, class: Class, failures: u32, jitter: f64) -> Duration {
        let doubled = |first: Duration| {
            let factor = 2u32.saturating_pow(failures.saturating_sub(1).min(30));
            first.saturating_mul(factor).min(self.longest)
        };
        let whole = match class {
            Class::Retry => doubled(self.first),
            Class::Bug => doubled(self.first_after_bug),
            Class::Terminal => self.terminal,
        };
        whole.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(class: Class, failures: u32, jitter: f64, milliseconds: u64) {
        let pause = Backoff::default().pause(class, failures, jitter);
        assert_eq!(pause, Duration::from_millis(milliseconds), "{class} {failures} {jitter}");
    }

    #[test]
    fn pauses_double_up_to_a_longest() {
        check(Class::Retry, 1, 1.0, 100);
        check(Class::Retry, 2, 1.0, 200);
        check(Class::Retry, 5, 1.0, 1600);
        check(Class::Retry, 100, 1.0, 300_000);
        check(Class::Bug, 1, 1.0, 5000);
        check(Class::Bug, 2, 1.0, 10_000);
        check(Class::Terminal, 1, 1.0, 1_800_000);
        check(Class::Terminal, 9, 1.0, 1_800_000);
    }

    #[test]
    fn jitter_takes_away_up_to_a_half() {
        check(Class::Retry, 1, 0.0, 50);
        check(Class::Retry, 1, 0.5, 75);
    }
}
