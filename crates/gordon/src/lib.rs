//! Gordon: as many bare pods as `spec.gordon.replicas` says, kept at that number by the operator itself.
//!
//! There is no Deployment and no ReplicaSet in between: a `Gordon` owns its pods, makes the ones that are missing,
//! removes the ones that are too many, and puts another in the place of one that was deleted or ended. The pods are a
//! web server without anything to keep, so they go when the Gordon does, by their owner references, and deletion
//! never waits for Ballast.
//!
//! **What always holds**
//!
//! - A pod is made only where one is missing, and removed only where it is too many, has ended, or is of another
//!   image than the wanted one.
//! - Names are chosen from the view alone: the same view gives the same names. One that is taken, by whomever and be
//!   it by a pod on its way out, is passed over, so that a successor never waits for its predecessor's end.
//! - A pod that ends again and again is replaced more and more rarely. How often is written on its successor, so that
//!   it is known after a crash too.
//! - A new image reaches the pods one at a time, and goes no further while a new one is not ready.
//! - `state`, a field of the document that Gordon comes from, belongs to whoever writes it. The schema lets it in; the
//!   operator neither reads nor writes it.

// What is disallowed, and why, is in the clippy.toml beside.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

mod crew;
mod desired;
mod plan;
mod resource;
mod status;
mod validate;

use ballast_operator::{Answers, MANAGED, ObjectRef, Operator, Plan, Relation, View};
use k8s_openapi::api::core::v1::Pod;

pub use resource::{Gordon, GordonPods, GordonSpec, GordonStatus, State};
pub use validate::{Problem, Wanted};

/// The label whose value is the resource's name, on every pod.
pub const LABEL: &str = "gordon_cr";

/// The image of pods where a Gordon names none.
pub const IMAGE: &str = "prgcont/gordon:v1.0";

/// The operator of [`Gordon`] resources.
#[derive(Clone, Copy, Debug, Default)]
pub struct GordonOperator;

impl Operator for GordonOperator {
    type Resource = Gordon;

    const NAME: &'static str = "gordon";
    const FIELD_MANAGER: &'static str = "ballast-gordon";

    fn relations(&self) -> Vec<Relation> {
        vec![Relation::owned::<Pod>().removable().within(MANAGED)]
    }

    fn claims(&self, resource: &Gordon) -> Vec<ObjectRef> {
        desired::names(resource).map(ObjectRef::of::<Pod>).collect()
    }

    fn plan(&self, view: &View<Gordon>, _: &Answers) -> Plan {
        plan::plan(view)
    }
}
