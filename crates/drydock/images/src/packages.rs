//! Where packages come from: the interface that recipes are carried out against.

use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::progress::Report;

/// A package and its version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version, as Debian writes it.
    pub version: String,
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// A package as a file of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Which one.
    pub package: Package,
    /// The `.deb`.
    pub file: PathBuf,
}

/// Why a package can't be had.
#[derive(Debug, thiserror::Error)]
pub enum PackagesError {
    /// A program that packages are fetched or unpacked with is not on this machine.
    #[error("{program} can't be run on this machine, and making an image needs it")]
    NoProgram {
        /// Its name.
        program: &'static str,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// The machine's own apt does not know where Debian's packages are.
    #[error("apt's configuration on this machine names no Debian mirror")]
    NoMirror,
    /// A program failed.
    #[error("{program} failed for Debian {suite}: {said}")]
    Failed {
        /// Its name.
        program: &'static str,
        /// For which suite.
        suite: String,
        /// What it printed about it.
        said: String,
    },
    /// Something in the state directory can't be read or written.
    #[error("can't use {path:?}")]
    State {
        /// What.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
}

/// A place that packages can be had from. Both methods block.
pub trait Packages: Send + Sync {
    /// The version of a package in a suite; nothing when the suite does not have it.
    ///
    /// # Errors
    /// When the suite can't be looked at.
    fn version(
        &self,
        suite: &str,
        package: &str,
        report: Report<'_>,
    ) -> Result<Option<String>, PackagesError>;

    /// The packages and everything they need to run, but for `without` and what only those need.
    ///
    /// # Errors
    /// When one of them can't be had.
    fn fetch(
        &self,
        suite: &str,
        packages: &[String],
        without: &[String],
        report: Report<'_>,
    ) -> Result<Vec<Fetched>, PackagesError>;
}
