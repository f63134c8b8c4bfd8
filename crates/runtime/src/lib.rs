//! Carries plans out: watches, caches, queue, apply, status, events, lease, metrics.
//!
//! What happens between a change in the cluster and the answer to it, which is also a map of this crate:
//!
//! | file | what happens |
//! | --- | --- |
//! | `watch`, `cache` | one watch per kind fills a cache |
//! | `route`, `queue`, `work` | a change puts the resource it concerns into a queue, and a worker takes it from there |
//! | `reconcile` | one round, from the view to the outcome |
//! | `view`, `memory` | what is seen, never older than what was written |
//! | `engine` | the service is asked |
//! | `carry_out`, `write`, `fence` | the plan is carried out; every write asks whether the lease is held |
//! | `contest`, `events` | others who write the same fields; what people are told |
//! | `backoff`, `failure` | what failed, and when it is tried again |
//! | `lease` | which of several processes works |
//! | `metrics`, `process`, `health`, `http`, `requests`, `recorder`, `telling` | what can be seen of all this from outside |
//! | `manager` | everything together; `once`, a single look without any of it |
//!
//! **What always holds**
//!
//! - This crate decides nothing about a service: it sees views, questions and plans.
//! - No view is older than this process's own last write to anything in it.
//! - Nothing is written without the lease being held at that moment, where there is one.
//! - One object's panic, timeout or failure never touches another.
//! - At the fixpoint there are no requests but the watches and the lease.
//! - Secret values are in no log, event, metric or record.

mod backoff;
mod cache;
mod carry_out;
mod contest;
mod engine;
mod events;
mod exposition;
mod failure;
mod fence;
mod health;
mod http;
mod key;
mod lease;
mod manager;
mod memory;
mod metrics;
mod once;
mod process;
mod queue;
mod reconcile;
mod recorder;
mod requests;
mod route;
mod sources;
mod telling;
mod view;
mod watch;
mod work;
mod write;

pub use self::http::{Bind, CantListen};
pub use backoff::Backoff;
pub use engine::{About, Engine, NoEngine};
pub use health::Health;
pub use key::Key;
pub use lease::LeaderElection;
pub use manager::{Manager, Options, RunError};
pub use metrics::Metrics;
pub use once::{LookError, Looked, look, look_at};
pub use recorder::{Recorder, Round};
pub use sources::{Clock, NoRandomness, Random, SystemClock, SystemRandom};
pub use watch::Namespaces;
