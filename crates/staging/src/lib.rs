//! What the tests of operators are written with.
//!
//! A [`Stage`] is where a decision is tried: YAML in, plan out as text. [`schema`] holds a definition's schema against
//! what the operator's own code makes of a spec. With both, a new operator's tests are what is particular to it.
//!
//! **What it is not.** The stage is no API server: it does not default or validate, and it knows the keys of lists
//! from a short table. What must hold against a server is shown against one. Nothing that is shipped depends on this
//! crate.

#![expect(clippy::panic, reason = "this crate is for tests: a failure here is the answer")]

mod applied;
pub mod schema;
mod stage;
mod text;

pub use stage::{NOON, Stage, check};
pub use text::{documents, same_text, yaml};
