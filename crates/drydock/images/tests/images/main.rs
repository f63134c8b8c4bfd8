//! The images of one machine, from outside.
#![expect(clippy::unwrap_used, reason = "a failure in a test is the answer")]

mod archives;
mod debian;
mod hostile;
mod resolving;
mod support;
