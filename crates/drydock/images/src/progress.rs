//! What is being done, for someone who waits.

use std::fmt;

/// One step of making or importing an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Someone else is making the same image, or using the same package index.
    Waiting,
    /// The list of a suite's packages is brought up to date.
    Index {
        /// Debian's name of the suite.
        suite: String,
    },
    /// Packages are downloaded.
    Download {
        /// Which file, counted from 1.
        number: usize,
        /// How many there are.
        of: usize,
    },
    /// A package is unpacked.
    Unpack {
        /// Which package, counted from 1.
        number: usize,
        /// How many there are.
        of: usize,
        /// Its name and version.
        package: String,
    },
    /// A layer of an archive is unpacked.
    Layer {
        /// Which layer, counted from 1.
        number: usize,
        /// How many there are.
        of: usize,
    },
    /// The tree is there; what it needs to run is looked for, and its digest taken.
    Check,
}

/// Who is told.
pub type Report<'a> = &'a (dyn Fn(&Progress) + Sync);

/// Tells nobody.
pub fn silently(_: &Progress) {}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Progress::Waiting => write!(f, "waiting for another one who makes it"),
            Progress::Index { suite } => write!(f, "looking at what Debian {suite} has"),
            Progress::Download { number, of } => write!(f, "downloading package {number} of {of}"),
            Progress::Unpack { number, of, package } => write!(f, "unpacking {package} ({number} of {of})"),
            Progress::Layer { number, of } => write!(f, "unpacking layer {number} of {of}"),
            Progress::Check => write!(f, "checking that it can run"),
        }
    }
}
