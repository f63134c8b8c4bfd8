//! The engines and their dialers, with peers of every kind at the other end.
#![expect(clippy::unwrap_used, reason = "in a test a failure is the answer")]

mod agents;
mod conversations;
mod forward;
mod processes;
