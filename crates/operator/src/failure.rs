//! Why something went wrong, and what kind of wrong it is.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a failure asks of the one who meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Class {
    /// It may pass: try again, later each time. A conflict, a server that is busy, a cut connection.
    Retry,
    /// It will not pass until somebody changes something: wait for that change. A refused object, a missing
    /// permission, a full quota.
    Terminal,
    /// It cannot happen, and did. Said loudly, tried again slowly.
    Bug,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Retry => "retry",
            Class::Terminal => "terminal",
            Class::Bug => "bug",
        })
    }
}

/// A failure with its class, in words that a person can act on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What it asks of the one who meets it.
    pub class: Class,
    /// What happened. One sentence, no secrets, the server's own words where there are some.
    pub message: String,
}

impl Failure {
    /// A failure of the given class.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Failure { class, message: message.into() }
    }
}
