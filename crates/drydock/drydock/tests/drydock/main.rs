//! A whole cluster in memory, from the outside.
#![expect(clippy::unwrap_used, clippy::panic, reason = "in a test a failure is the answer")]

mod cluster;
mod controllers;
mod nodes;
mod scheduling;
