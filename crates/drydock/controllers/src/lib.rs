//! What kube-controller-manager and kube-scheduler do, as ordinary clients: garbage collection, namespace deletion,
//! Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs, Endpoints and EndpointSlices, default accounts, the
//! cluster's certificate, disruption budgets, aggregated roles; claims are bound to volumes, and both are kept while
//! they are in use; nodes are listened for, pods are given to them, and those that lost theirs, or may not stay there,
//! are taken away.
//!
//! Each controller is one module, and in it one decision: a pure function from objects to what shall happen,
//! with its tests beside it. What drives them is in the module `machinery`, once for all: a kind is watched once for
//! the whole process, and nothing is asked while nothing changes.
//!
//! # Guarantees
//! - A controller acts under its own identity, and needs no more rights than Kubernetes gives it.
//! - Objects are kept slim: only what a decision looks at.
//!
//! What is not here: what makes volumes.

mod claim;
mod cluster_roles;
mod cron_job;
mod daemon_set;
mod deployment;
mod disruption;
mod endpoint_slices;
mod endpoints;
mod ephemeral;
mod garbage;
mod job;
mod machinery;
mod namespaces;
mod node_lifecycle;
mod objects;
mod own;
mod pod_garbage;
mod protection;
mod replica_set;
mod revisions;
mod root_ca;
mod scheduler;
mod service_accounts;
mod service_pods;
mod start;
mod stateful_set;
mod taint_eviction;
mod volumes;

use std::sync::Arc;

use jiff::Timestamp;

pub use start::run;

/// Where the time is taken from.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The name under which everything is watched and discovered. Its identity is the user
/// `system:kube-controller-manager`.
pub const WATCHER: &str = "kube-controller-manager";

/// The name of the scheduler, whose identity is the user `system:kube-scheduler`.
pub const SCHEDULER: &str = "kube-scheduler";

/// How the controllers are to run.
#[derive(Clone)]
pub struct Options {
    /// The certificate, in PEM, that pods know the API server by; without one it is not published.
    pub root_ca: Option<String>,
    /// Whether pods are given to nodes.
    pub scheduler: bool,
    /// Where the time is taken from.
    pub clock: Clock,
    /// How many objects each of the busy controllers works on at a time. They wait for the server most of
    /// the time, so this is more than there are cores.
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { root_ca: None, scheduler: true, clock: Arc::new(Timestamp::now), workers: 16 }
    }
}
