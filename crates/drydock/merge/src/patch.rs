//! The three patches that say what to change, rather than who wants what.
//!
//! Their semantics and messages are those of Kubernetes, which follow RFC 6902 and RFC 7386 but
//! for a few habits that clients rely on: `replace` adds a field that is not there, and negative
//! indices count from the end.

mod json;
mod merge;
mod strategic;

pub use json::json;
pub use merge::{merge, require_object};
pub use strategic::strategic;

use thiserror::Error;

/// Why a patch can't be carried out. `Display` is the message Kubernetes gives.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PatchError {
    /// The patch itself is not one (400, reason `BadRequest`).
    #[error("{0}")]
    BadRequest(String),
    /// The patch does not fit the object (422, reason `Invalid`). Kubernetes keeps to itself
    /// what exactly did not fit; it is here for logs.
    #[error("the server rejected our request due to an error in our request")]
    Unprocessable(String),
    /// The patch has too many operations (413, reason `RequestEntityTooLarge`).
    #[error("{0}")]
    TooLarge(String),
    /// The patch does not fit the kind (500, no reason).
    #[error("{0}")]
    Internal(String),
}

impl PatchError {
    /// The status code of the answer.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Self::BadRequest(_) => 400,
            Self::Unprocessable(_) => 422,
            Self::TooLarge(_) => 413,
            Self::Internal(_) => 500,
        }
    }
}
