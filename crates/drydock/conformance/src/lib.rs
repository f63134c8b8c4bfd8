//! What a Kubernetes API answers, as recorded dialogues.
//!
//! A case is a text file under `cases/`: requests as they go over the wire, each followed by the
//! answer that a real kube-apiserver gave, with what differs from run to run (uids, revisions,
//! times, generated names) put aside by [`Normaliser`]. The same file is run against drydock in
//! `make test` and against a real cluster in `make test-real`.
//!
//! Cases under `cases/workload/` need a node: what becomes of pods, and what they see, rather than what the API
//! answers. They are played to a `ballast up` and to a real cluster with a kubelet.
//!
//! **Always holds:** an expected answer was said by a real API server: the `conformance` program
//! writes it with `--record`, never a person. A case makes a namespace of its own and cleans up.
//!
//! **Deliberately absent:** knowledge of which of the two it talks to. Where drydock answers
//! otherwise on purpose, the step is named with a reason in `fidelity.txt`, and a row that no longer
//! differs is a failure too.

mod case;
mod clean;
mod fidelity;
pub mod look;
mod normalise;
mod play;
mod streams;

pub use case::{Case, ParseError, Step};
pub use fidelity::{Runs, surprises};
pub use normalise::Normaliser;
pub use play::{Mismatch, PlayError, clean_up, play, record};
