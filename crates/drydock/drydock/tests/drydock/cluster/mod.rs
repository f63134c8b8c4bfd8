//! A cluster from the outside: what kube-rs' own machinery, faults, TLS and restarts make of it.

mod clients;
mod faults;
mod restarts;
mod serving;
mod support;
