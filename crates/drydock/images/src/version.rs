//! Which of the versions at hand is meant by a tag.
//!
//! A tag is a version, or the beginning of one, and perhaps a variant behind a hyphen: `1.6.9-alpine`, `1.6`,
//! `v1.0`, `bookworm`, `latest`. What Debian has is a handful of versions, one in each suite. The rule:
//!
//! 1. No version (`latest`, no tag, a suite's name alone): the suite that is named, or else the first in the
//!    recipe's order.
//! 2. A version that begins as the tag does (`1.6` is satisfied by `1.6.38`) satisfies it exactly. Of several,
//!    the one from the suite that the tag names, then the first in the recipe's order.
//! 3. Otherwise the nearest: of the same major and minor version the closest that is newer, else the closest
//!    that is older; failing that the same within the major version, and failing that among all.
//!
//! Whatever is not exactly what the tag says is said in a note. A variant (`alpine`) that nothing here can be is
//! such a difference too.

use std::cmp::Reverse;
use std::fmt;

/// The numbers of an upstream version: `1.6.18`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(Vec<u64>);

impl Version {
    /// Reads numbers between dots, and stops at the first other letter: `3.0.20~rc1` is 3.0.20. Nothing when it
    /// does not begin with a number.
    pub fn parse(text: &str) -> Option<Version> {
        let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let numbers: Vec<u64> = text
            .get(..end)?
            .trim_end_matches('.')
            .split('.')
            .map(str::parse)
            .collect::<Result<_, _>>()
            .ok()?;
        Some(Version(numbers))
    }

    /// The upstream part of a Debian version: without epoch and revision.
    pub fn of_debian(version: &str) -> Option<Version> {
        let upstream = version.split_once(':').map_or(version, |(_, rest)| rest);
        Version::parse(upstream.rsplit_once('-').map_or(upstream, |(before, _)| before))
    }

    /// The first number.
    pub fn major(&self) -> u64 {
        self.number(0)
    }

    fn begins(&self, other: &Version) -> bool {
        other.0.starts_with(&self.0)
    }

    fn number(&self, place: usize) -> u64 {
        self.0.get(place).copied().unwrap_or(0)
    }

    fn same(&self, other: &Version, places: usize) -> bool {
        (0..places).all(|place| self.number(place) == other.number(place))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}

/// One version that can be had, in the recipe's order of preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The Debian suite that has it.
    pub suite: String,
    /// What it is upstream.
    pub version: Version,
    /// What Debian calls it.
    pub debian: String,
}

/// A tag, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The version it begins with.
    pub version: Option<Version>,
    /// What stands behind it, or all of it where it is no version.
    pub variants: Vec<String>,
}

impl Wish {
    /// Takes a tag apart.
    pub fn of_tag(tag: &str) -> Wish {
        let bare = tag
            .strip_prefix('v')
            .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            .unwrap_or(tag);
        let (head, rest) = bare.split_once('-').map_or((bare, ""), |(head, rest)| (head, rest));
        let whole = head.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let (version, variants) = match Version::parse(head).filter(|_| whole) {
            Some(version) => (Some(version), rest),
            None if tag == "latest" || tag == "stable" => (None, ""),
            None => (None, tag),
        };
        let variants = variants.split('-').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        Wish { version, variants }
    }
}

/// What was chosen, and how it differs from what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice<'a> {
    /// The version that is taken.
    pub candidate: &'a Candidate,
    /// Set when the tag is not satisfied to the letter: what is missing, as the part of a sentence.
    pub difference: Option<String>,
}

/// Chooses by the rule above. `variants` are those that every candidate is. Nothing when there are no candidates.
pub fn choose<'a>(wish: &Wish, candidates: &'a [Candidate], variants: &[String]) -> Option<Choice<'a>> {
    let suite = wish.variants.iter().find(|word| candidates.iter().any(|c| &c.suite == *word));
    let elsewhere = |c: &Candidate| suite.is_some_and(|suite| &c.suite != suite);
    let candidate = match &wish.version {
        None => candidates.iter().min_by_key(|c| elsewhere(c))?,
        Some(version) => candidates.iter().min_by_key(|c| (distance(version, &c.version), elsewhere(c)))?,
    };
    let missing_version = wish
        .version
        .as_ref()
        .filter(|version| !version.begins(&candidate.version))
        .map(|v| format!("version {v}"));
    let missing_variants = wish
        .variants
        .iter()
        .filter(|word| **word != candidate.suite && !variants.contains(word))
        .map(|word| format!("variant {word:?}"));
    let missing: Vec<String> = missing_version.into_iter().chain(missing_variants).collect();
    let difference = (!missing.is_empty()).then(|| missing.join(" and "));
    Some(Choice { candidate, difference })
}

/// Less is nearer: first by the kind of difference, then by how far away in that direction.
fn distance(wanted: &Version, have: &Version) -> (usize, Version, Reverse<Version>) {
    let none = || Version(Vec::new());
    if wanted.begins(have) {
        return (0, none(), Reverse(none()));
    }
    let kin = [2, 1, 0].iter().position(|places| wanted.same(have, *places)).unwrap_or(2);
    if have > wanted {
        (1 + 2 * kin, have.clone(), Reverse(none()))
    } else {
        (2 + 2 * kin, none(), Reverse(have.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(of: &[(&str, &str)]) -> Vec<Candidate> {
        of.iter()
            .map(|(suite, debian)| Candidate {
                suite: (*suite).to_owned(),
                version: Version::of_debian(debian).unwrap(),
                debian: (*debian).to_owned(),
            })
            .collect()
    }

    #[test]
    fn a_tag_is_satisfied_by_the_nearest_version_at_hand() {
        let memcached = candidates(&[("trixie", "1.6.38-1"), ("bookworm", "1.6.18-1"), ("sid", "1.6.45-1")]);
        for (tag, taken, difference) in [
            ("latest", "trixie", None),
            ("bookworm", "bookworm", None),
            ("1", "trixie", None),
            ("1.6", "trixie", None),
            ("1.6-bookworm", "bookworm", None),
            ("1.6.18", "bookworm", None),
            ("1.6.45", "sid", None),
            ("v1.6.38", "trixie", None),
            ("1.6.38-slim", "trixie", None),
            ("1.6.9", "bookworm", Some("version 1.6.9")),
            ("1.6.9-alpine", "bookworm", Some("version 1.6.9 and variant \"alpine\"")),
            ("1.6.20", "trixie", Some("version 1.6.20")),
            ("1.6.99", "sid", Some("version 1.6.99")),
            ("1.6.18-trixie", "bookworm", Some("variant \"trixie\"")),
            ("1.4.36", "bookworm", Some("version 1.4.36")),
            ("1.9", "sid", Some("version 1.9")),
            ("2.0", "sid", Some("version 2.0")),
            ("0.9", "bookworm", Some("version 0.9")),
            ("alpine", "trixie", Some("variant \"alpine\"")),
            ("1.6.38rc1", "trixie", Some("variant \"1.6.38rc1\"")),
        ] {
            let choice = choose(&Wish::of_tag(tag), &memcached, &["slim".to_owned()]).unwrap();
            assert_eq!(
                (choice.candidate.suite.as_str(), choice.difference.as_deref()),
                (taken, difference),
                "{tag}"
            );
        }
    }

    #[test]
    fn a_debian_version_tells_the_upstream_one() {
        for (debian, upstream) in [
            ("1.6.18-1", "1.6.18"),
            ("1:1.35.0-4+deb12u1+b1", "1.35.0"),
            ("1:10.11.14-0+deb12u2", "10.11.14"),
            ("3.0.20-1~deb12u2", "3.0.20"),
            ("5.3.28+dfsg2-1", "5.3.28"),
            ("9", "9"),
        ] {
            assert_eq!(Version::of_debian(debian).unwrap().to_string(), upstream);
        }
        assert_eq!(Version::of_debian("r1"), None);
    }

    #[test]
    fn nothing_is_chosen_from_nothing() {
        assert_eq!(choose(&Wish::of_tag("latest"), &[], &[]), None);
    }
}
