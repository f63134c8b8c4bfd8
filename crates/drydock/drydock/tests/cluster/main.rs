//! A cluster from the outside: what kube-rs' own machinery, faults, TLS and restarts make of it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "in a test a failure is the answer")]

mod clients;
mod faults;
mod restarts;
mod serving;
mod support;
