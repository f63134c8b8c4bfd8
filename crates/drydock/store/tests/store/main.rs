//! The store from the outside.
#![expect(clippy::unwrap_used, clippy::panic, reason = "in a test a failure is the answer")]

mod behaviour;
mod durability;
mod support;
