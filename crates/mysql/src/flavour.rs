//! The two servers, in one table: what they are called, which versions of them are known, how far one step goes.

use std::{fmt, ops::Range};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A server. Neither opens what the other wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Flavour {
    /// MySQL.
    MySQL,
    /// MariaDB, which MySQL is not.
    MariaDB,
}

/// A row of the table.
pub(crate) struct Traits {
    /// As people write it.
    pub(crate) name: &'static str,
    /// As the agent calls it.
    pub(crate) word: &'static str,
    /// The official image, without a tag.
    pub(crate) image: &'static str,
    /// The series that are run, each from one up to another that is not. Older ones lack what backups are made with, and
    /// nobody mends them any more; what others do with old data nobody can say yet.
    pub(crate) known: &'static [Range<Series>],
    /// The series that are kept up for years. From anything before one, an upgrade goes to it and not beyond. Empty
    /// where an upgrade may skip as many as it likes.
    pub(crate) stations: &'static [Series],
    /// The series in which an older version opens what a newer one wrote.
    pub(crate) back_within: fn(Series) -> bool,
}

/// The first two numbers of a version.
pub(crate) type Series = (u32, u32);

/// The year since which MySQL's versions are dates.
const CALENDAR: u32 = 26;

const MYSQL: Traits = Traits {
    name: "MySQL",
    word: "mysql",
    image: "mysql",
    // After 9.7 comes 26.7: from then on the numbers are year and month.
    known: &[(8, 0)..(9, 8), (CALENDAR, 7)..(CALENDAR + 1, 0)],
    stations: &[(5, 7), (8, 0), (8, 4), (9, 7)],
    back_within: |series| [(8, 4), (9, 7)].contains(&series),
};

const MARIADB: Traits = Traits {
    name: "MariaDB",
    word: "mariadb",
    image: "mariadb",
    known: &[(10, 5)..(13, 0)],
    stations: &[],
    back_within: |_| true,
};

impl Flavour {
    pub(crate) fn traits(self) -> &'static Traits {
        match self {
            Flavour::MySQL => &MYSQL,
            Flavour::MariaDB => &MARIADB,
        }
    }

    /// Which one a version is of, where nobody says: the two share no numbers that are in use.
    pub(crate) fn of_version(version: &Version) -> Self {
        if (10..CALENDAR).contains(&version.major) { Flavour::MariaDB } else { Flavour::MySQL }
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.traits().name)
    }
}

/// A version, as far as it is said: `8.0`, or `8.0.40`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second.
    pub minor: u32,
    /// The third, where one is said.
    pub patch: Option<u32>,
}

impl Version {
    /// Reads the numbers that a text begins with: two or three. `10.11.19-MariaDB` is 10.11.19.
    pub fn parse(text: &str) -> Option<Self> {
        let numbers = text.split(|letter: char| !letter.is_ascii_digit() && letter != '.').next()?;
        let mut numbers = numbers.split('.').map(|number| number.parse::<u32>().ok());
        let (major, minor) = (numbers.next()??, numbers.next()??);
        Some(Version { major, minor, patch: numbers.next().flatten() })
    }

    pub(crate) fn series(&self) -> Series {
        (self.major, self.minor)
    }

    /// Whether a server of this version is what was asked for: `8.0` is satisfied by any 8.0.
    pub(crate) fn satisfies(&self, wanted: &Version) -> bool {
        self.series() == wanted.series() && (wanted.patch.is_none() || wanted.patch == self.patch)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        self.patch.map_or(Ok(()), |patch| write!(f, ".{patch}"))
    }
}

/// A flavour and a version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Which one.
    pub flavour: Flavour,
    /// Which version of it.
    pub version: Version,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.flavour, self.version)
    }
}
