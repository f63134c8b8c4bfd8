//! How long a node that fails a set's pods is left alone before it gets another. Pure.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::objects::daemon::DaemonSet;

/// The first pause and the longest: Kubernetes' numbers.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// Whose pods fail where: the set's uid, the generation it was last seen at, and the node. Another template begins anew.
type Mark = (Box<str>, i64, Box<str>);

/// The pauses of nodes that failed pods.
#[derive(Default)]
pub struct Backoff(HashMap<Mark, Pause>);

/// How long a node is left alone, and since when.
struct Pause {
    since: Timestamp,
    length: Duration,
}

impl Pause {
    fn passed(&self, now: Timestamp) -> Duration {
        Duration::try_from(now.duration_since(self.since)).unwrap_or_default()
    }

    /// Whether nothing has failed for so long that it is forgotten.
    fn is_over(&self, now: Timestamp) -> bool {
        self.passed(now) > LONGEST * 2
    }
}

impl Backoff {
    /// How long this node is still left alone by this set.
    pub fn left(&self, set: &DaemonSet, node: &str, now: Timestamp) -> Duration {
        let pause = self.0.get(&mark(set, node));
        pause.map_or(Duration::ZERO, |pause| pause.length.saturating_sub(pause.passed(now)))
    }

    /// Takes in that a pod failed there and is replaced now: the next one that fails waits twice as long.
    pub fn failed(&mut self, set: &DaemonSet, node: &str, now: Timestamp) {
        self.0.retain(|_, pause| !pause.is_over(now));
        let pause = self.0.entry(mark(set, node));
        let twice =
            |pause: &mut Pause| *pause = Pause { since: now, length: (pause.length * 2).min(LONGEST) };
        pause.and_modify(twice).or_insert(Pause { since: now, length: FIRST });
    }
}

fn mark(set: &DaemonSet, node: &str) -> Mark {
    (set.metadata.uid.clone(), set.status.observed_generation, node.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_doubles_the_pause_of_its_node_and_its_template() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let (set, mut other) = (DaemonSet::default(), DaemonSet::default());
        other.status.observed_generation = 2;
        let mut backoff = Backoff::default();
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..12 {
            backoff.failed(&set, "a", at(now));
            let left = backoff.left(&set, "a", at(now)).as_secs();
            pauses.push(left);
            assert_eq!(backoff.left(&set, "a", at(now + left)), Duration::ZERO);
            now += left;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
        assert_eq!(backoff.left(&set, "b", at(now - 1)), Duration::ZERO);
        assert_eq!(backoff.left(&other, "a", at(now - 1)), Duration::ZERO);
        // What is long past is forgotten.
        backoff.failed(&set, "a", at(now + 1801));
        assert_eq!(backoff.left(&set, "a", at(now + 1801)).as_secs(), 1);
    }
}
