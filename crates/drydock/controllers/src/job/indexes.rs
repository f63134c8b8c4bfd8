//! Sets of indexes as Jobs write them: `1,3-5,7`. Pure.

use std::collections::BTreeSet;
use std::fmt;

/// A set of indexes, as ranges that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// Reads a set, of indexes below `completions`. What can't be read is left out.
    pub fn parse(text: &str, completions: i32) -> Self {
        let ranges = text.split(',').filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some((first.parse().ok()?, last.parse().ok()?))
        });
        let known = ranges.filter(|(first, _)| *first < completions);
        Self::default().with(known.map(|(first, last): (i32, i32)| (first, last.min(completions - 1))))
    }

    /// This and those.
    pub fn with(&self, ranges: impl IntoIterator<Item = (i32, i32)>) -> Self {
        let mut all: Vec<(i32, i32)> = self.0.iter().copied().chain(ranges).collect();
        all.sort_unstable();
        let mut joined: Vec<(i32, i32)> = Vec::new();
        for (first, last) in all {
            match joined.last_mut() {
                Some((_, end)) if first <= *end + 1 => *end = last.max(*end),
                _ => joined.push((first, last)),
            }
        }
        Self(joined)
    }

    /// This and these indexes.
    pub fn and(&self, indexes: impl IntoIterator<Item = i32>) -> Self {
        self.with(indexes.into_iter().map(|index| (index, index)))
    }

    /// This and that.
    pub fn merged(&self, other: &Self) -> Self {
        self.with(other.0.iter().copied())
    }

    /// How many there are.
    pub fn total(&self) -> i32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Whether it is one of them.
    pub fn has(&self, index: i32) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&index))
    }

    /// How many of `wanted` are here.
    pub fn shared(&self, wanted: &Self) -> i32 {
        let each = wanted.0.iter().flat_map(|(first, last)| {
            self.0.iter().map(move |(own, end)| ((*last).min(*end) - (*first).max(*own) + 1).max(0))
        });
        each.sum()
    }

    /// The first `count` indexes below `completions` that are not here.
    pub fn first_missing(&self, count: usize, completions: i32) -> Vec<i32> {
        let taken: BTreeSet<(i32, i32)> = self.0.iter().copied().collect();
        let mut missing = Vec::new();
        let mut candidate = 0;
        for (first, last) in taken.into_iter().chain([(completions, completions)]) {
            while candidate < first.min(completions) && missing.len() < count {
                missing.push(candidate);
                candidate += 1;
            }
            candidate = candidate.max(last.saturating_add(1));
        }
        missing
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match last - first {
                0 => write!(out, "{comma}{first}")?,
                1 => write!(out, "{comma}{first},{last}")?,
                _ => write!(out, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, more: &[i32], expected: &str) {
        assert_eq!(Indexes::parse(text, 100).and(more.iter().copied()).to_string(), expected);
    }

    #[test]
    fn indexes_are_written_as_ranges() {
        check("", &[], "");
        check("", &[0], "0");
        check("0", &[1], "0,1");
        check("0,1", &[2], "0-2");
        check("0-2,5", &[4, 3, 9], "0-5,9");
        check("x,3,y-4", &[], "3");
        check("98-120", &[], "98,99");
    }

    #[test]
    fn the_first_that_are_missing_come_first() {
        let some = Indexes::parse("0,2-4", 7);
        assert_eq!(some.first_missing(2, 7), [1, 5]);
        assert_eq!(some.first_missing(9, 7), [1, 5, 6]);
        assert_eq!(Indexes::default().first_missing(2, 7), [0, 1]);
        assert_eq!((some.total(), some.has(3), some.has(5)), (4, true, false));
        assert_eq!(some.shared(&Indexes::parse("3-6", 7)), 2);
    }
}
