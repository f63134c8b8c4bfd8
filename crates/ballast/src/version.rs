//! What this binary is.

use std::fmt;

use serde::Serialize;

/// What this binary is, and what it was made with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// Ballast's version.
    pub version: &'static str,
    /// The commit it was made from, where the build said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<&'static str>,
    /// The Kubernetes whose API it speaks and serves.
    pub kubernetes: &'static str,
    /// The compiler.
    pub rust: &'static str,
}

impl Version {
    /// Of the binary that is running.
    pub fn current() -> Self {
        Version {
            version: env!("CARGO_PKG_VERSION"),
            git: option_env!("BALLAST_GIT_DESCRIBE").filter(|text| !text.is_empty()),
            kubernetes: drydock::VERSION,
            rust: env!("BALLAST_RUST_VERSION"),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ballast {}", self.version)?;
        if let Some(git) = self.git {
            write!(f, " ({git})")?;
        }
        write!(f, ", Kubernetes API {}, Rust {}", self.kubernetes, self.rust)
    }
}
