//! The images of one machine, from outside.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failure in a test is the answer")]

mod archives;
mod debian;
mod hostile;
mod resolving;
mod support;
