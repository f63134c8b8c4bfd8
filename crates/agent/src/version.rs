//! Versions of servers, and which may open what another wrote.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The numbers of a version: `17.12`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version(Vec<u64>);

impl Version {
    /// Reads numbers between dots, up to the first other letter: `11.8.6-MariaDB` is 11.8.6.
    pub fn parse(text: &str) -> Option<Version> {
        let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let numbers = text.get(..end)?.trim_end_matches('.').split('.').map(str::parse);
        numbers.collect::<Result<_, _>>().ok().map(Version)
    }

    /// Its first numbers.
    pub fn series(&self, places: usize) -> Version {
        Version(self.0.iter().copied().take(places).collect())
    }

    /// How what runs compares with what wrote the data, by as many numbers as make a series.
    pub fn against(&self, held: &Version, places: usize) -> Ordering {
        self.series(places).cmp(&held.series(places))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}

impl TryFrom<String> for Version {
    type Error = String;

    fn try_from(text: String) -> Result<Version, String> {
        Version::parse(&text)
            .filter(|version| version.to_string() == text)
            .ok_or(format!("{text:?} is no version"))
    }
}

impl From<Version> for String {
    fn from(version: Version) -> String {
        version.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_their_series() {
        let version = |text| Version::parse(text).unwrap();
        assert_eq!(version("17.12").against(&version("17.3"), 1), Ordering::Equal);
        assert_eq!(version("17.1").against(&version("15.20"), 1), Ordering::Greater);
        assert_eq!(version("10.11.19").against(&version("11.8.6"), 2), Ordering::Less);
        assert_eq!(version("11.8.6-MariaDB-0+deb13u1").to_string(), "11.8.6");
        assert_eq!(Version::parse("MariaDB"), None);
        assert!(serde_json::from_str::<Version>("\"17.x\"").is_err());
    }
}
