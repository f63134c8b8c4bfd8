//! The runtime against a Kubernetes API in memory, with operators that are made for these tests.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "in a test a failure is the answer")]

mod converging;
mod faults;
mod finalizers;
mod healing;
mod isolation;
mod leading;
mod log;
mod looking;
mod memcached;
mod notebook;
mod outside;
mod permissions;
mod secrets;
mod stale;
mod support;
mod telling;
