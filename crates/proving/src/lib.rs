//! Crash-at-every-step and fault harness that every operator is run through.
//!
//! A [`Life`] is what people do to a resource, from its creation to its end. It is lived once undisturbed, with the
//! real runtime on a cluster in memory, and what the cluster holds after each act is put down in a form that is the
//! same for all clusters. Then it is lived again and again, and each time something goes wrong:
//!
//! | what goes wrong | how |
//! | --- | --- |
//! | the operator crashes right after one of its writes | a new cluster begins as the old one was at that revision, a new operator is started on it, and people carry on |
//! | one of its writes fails | 409, 429, 500, or the connection is cut before or after it took effect |
//! | one of its actions fails | before the service does it, or after |
//! | one of its watches fails | cut, expired, late, or stale until everything else has come to rest |
//!
//! After every act of every run everything must come to rest, and what is there then is held to every [`Check`]:
//! the same state as in the undisturbed life, nothing orphaned, nothing that lingers, no effects when the operator
//! plans again, no data deleted, everything said so.
//!
//! ```no_run
//! # fn example<O: ballast_operator::Operator + Default>() {
//! use ballast_proving::{Act, Life, Prove};
//!
//! let life = Life::new("short")
//!     .act("create", Act::apply("{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}, spec: {size: 3}}"))
//!     .act("delete", Act::delete("{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}}"));
//! Prove::new(O::default).life(life).run().assert_clean();
//! # }
//! ```
//!
//! **What always holds.** Nobody sleeps and hopes: each run is one thread with a clock that moves only when all
//! others wait (see `cluster`), so that a minute of rest takes no time and a slow machine changes nothing.
//!
//! **What stands in.** There is no node: the harness itself makes pods ready (`kubelet`). A running service, where
//! the operator asks one, is a [`Service`]: a model behind the operator's questions and actions, and behind what comes
//! of pods.

mod canonical;
mod checks;
mod clock;
mod cluster;
mod kubelet;
mod life;
mod member;
mod prove;
mod report;
mod run;
mod service;
mod state;
mod tap;

pub use canonical::canonical;
pub use kubelet::NO_SUCH_TAG;
pub use life::{Act, ActError, Life};
pub use prove::{Invariant, PROVE_ALL, Prove, Release, Sample};
pub use report::{Check, Coverage, Finding, Proven, Report};
pub use service::{Course, Mounted, Service};
pub use state::State;
