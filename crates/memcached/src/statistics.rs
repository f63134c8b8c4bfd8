//! The servers' numbers, as far as a status can carry them.
//!
//! `stats` changes with every request that a server gets, and a status that followed it would be written without
//! end. So the numbers are coarse, and they are taken over only when one of them changed **and** the last ones are
//! [`KEPT`] old, or when the list of servers changed, which is written anyway. A cache that nobody uses is never
//! written about; the busiest one is once in five minutes. Who needs more asks the servers.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{Statistics, ask::Stats};

/// How long numbers are left alone.
const KEPT: Duration = Duration::from_secs(300);

const MEBIBYTE: u64 = 1 << 20;

/// The numbers to show, given those that are shown and those that were heard. `same_servers` says whether both are
/// of the same servers.
pub(crate) fn statistics(
    old: Option<&Statistics>,
    heard: &[Stats],
    same_servers: bool,
    now: Timestamp,
) -> Option<Statistics> {
    let new = coarse(heard, now)?;
    let Some(old) = old.filter(|_| same_servers) else { return Some(new) };
    let fresh = now.duration_since(old.as_of.0).unsigned_abs() < KEPT;
    let same = Statistics { as_of: old.as_of.clone(), ..new.clone() } == *old;
    Some(if fresh || same { old.clone() } else { new })
}

fn coarse(heard: &[Stats], now: Timestamp) -> Option<Statistics> {
    if heard.is_empty() {
        return None;
    }
    let sum = |of: fn(&Stats) -> u64| heard.iter().map(of).fold(0, u64::saturating_add);
    let (hits, misses) = (sum(|stats| stats.get_hits), sum(|stats| stats.get_misses));
    let mebibytes = |bytes: u64| format!("{}Mi", bytes.div_ceil(MEBIBYTE));
    Some(Statistics {
        as_of: Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
        hit_ratio: percent(hits, hits.saturating_add(misses)),
        evictions: i64::try_from(two_digits(sum(|stats| stats.evictions))).unwrap_or(i64::MAX),
        memory_used: mebibytes(sum(|stats| stats.bytes)),
        memory_limit: mebibytes(sum(|stats| stats.limit_maxbytes)),
    })
}

fn percent(part: u64, whole: u64) -> Option<String> {
    let hundredfold = u128::from(part) * 100;
    Some(format!("{}%", hundredfold.checked_div(u128::from(whole))?))
}

/// The number with its first two digits, rounded down: 1,234,567 is 1,200,000.
fn two_digits(number: u64) -> u64 {
    let mut unit = 1;
    while number / unit >= 100 {
        unit *= 10;
    }
    number / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn stats(hits: u64, evictions: u64) -> Stats {
        Stats {
            get_hits: hits,
            get_misses: 30,
            evictions,
            bytes: 5 * MEBIBYTE + 1,
            limit_maxbytes: 64 * MEBIBYTE,
        }
    }

    #[test]
    fn numbers_are_summed_up_and_coarse() {
        let shown = statistics(None, &[stats(60, 1234), stats(30, 7)], true, at(0)).unwrap();
        assert_eq!(
            (shown.hit_ratio.as_deref(), shown.evictions, &*shown.memory_used, &*shown.memory_limit),
            (Some("60%"), 1200, "11Mi", "128Mi")
        );
        assert_eq!(statistics(None, &[], true, at(0)), None, "nobody said anything");
        let unused = Stats { limit_maxbytes: MEBIBYTE, ..Stats::default() };
        let shown = statistics(None, &[unused], true, at(0)).unwrap();
        assert_eq!((shown.hit_ratio, &*shown.memory_used), (None, "0Mi"));
        let most = Stats { get_hits: u64::MAX, get_misses: u64::MAX, evictions: u64::MAX, ..unused };
        assert_eq!(statistics(None, &[most, most], true, at(0)).unwrap().hit_ratio.as_deref(), Some("100%"));
    }

    #[test]
    fn numbers_stay_for_a_while_and_for_ever_where_they_are_the_same() {
        let old = statistics(None, &[stats(60, 0)], true, at(0));
        let shown = |heard: Stats, same: bool, second| {
            statistics(old.as_ref(), &[heard], same, at(second)).unwrap().as_of.0.as_second()
        };
        assert_eq!(shown(stats(600, 0), true, 299), 0, "too soon");
        assert_eq!(shown(stats(600, 0), true, 300), 300);
        assert_eq!(shown(stats(60, 0), true, 86_400), 0, "nothing happened");
        assert_eq!(shown(stats(60, 0), false, 1), 1, "they are of other servers");
    }
}
