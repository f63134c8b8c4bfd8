//! The built-in controllers on a cluster in memory, with a kubelet that does nothing but say that pods run.

mod daemons;
mod disruption;
mod garbage;
mod jobs;
mod namespaces;
mod nodes;
mod pods;
mod stateful;
mod support;
mod volumes;
mod workloads;
