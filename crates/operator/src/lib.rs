//! The vocabulary of decisions: Operator, View, Question, Plan, Step, Condition.
//!
//! An operator is a function from what was seen to what should be done. What was seen is a [`View`]; what
//! should be done is a [`Plan`]; what must be asked of the running service in between are [`Question`]s.
//! `runtime` makes views and carries plans out; an operator does neither.
//!
//! **What always holds**
//!
//! - Nothing here reaches the network, the clock, files, threads or randomness. `now` arrives in the view.
//! - The same view and answers give the same plan.
//! - [`settle`] decides, from the view alone, which steps of a plan would change anything. The runtime skips
//!   by it, `ballast plan` shows its differences, and tests hold that at the fixpoint there are none.
//! - Secret values are never part of a plan: [`Effect::Mint`] says that one is to be made, not what it is.

// What is disallowed, and why, is in the clippy.toml beside.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

mod conditions;
mod failure;
pub mod image;
mod kind;
mod lint;
mod names;
mod object;
mod plan;
pub mod pod;
mod question;
mod report;
pub mod resources;
mod settle;
mod view;

use std::fmt::Debug;

use serde::{Serialize, de::DeserializeOwned};

pub use conditions::{ConditionStatus, Conditions};
pub use failure::{Class, Failure};
pub use kind::{How, KindRef, MANAGED, Relation, Scope};
pub use lint::{Finding, lint};
pub use names::Taken;
pub use object::{NotAnObject, Object, ObjectRef, Unreadable, label};
pub use plan::{Action, DataReason, Effect, EventType, Material, Occasion, Plan, Removal, Step, Target};
pub use question::{Answer, Answers, Question};
pub use report::{Conditioned, Trouble};
pub use settle::{
    Change, Difference, Obstacles, Rival, Settled, Verdict, compare, differences, obstacles, rivals, settle,
    settle_as,
};
pub use view::{Children, Contest, Failed, Outcome, Standing, View};

/// One kind of service, and everything that is known about running it.
///
/// An implementation is a value without state: whatever it needs to decide is in the [`View`] or in the
/// [`Answers`]. A long operation's stage lives in the cluster, in a child or an annotation.
pub trait Operator: Send + Sync + 'static {
    /// The resource that people write.
    type Resource: kube_core::Resource<DynamicType = (), Scope: Scope>
        + kube_core::CustomResourceExt
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static;

    /// The controller's name in metrics, logs and events: one lower-case word, `memcached`.
    const NAME: &'static str;

    /// The name under which fields are owned on the server: `ballast-memcached`. It must never change, or the
    /// next release fights the last one for its own fields.
    const FIELD_MANAGER: &'static str;

    /// The finalizer that plans take and let go, where they hold the resource back from going. Permission to write the
    /// resource itself follows from it, and is not asked for otherwise.
    const FINALIZER: Option<&'static str> = None;

    /// Every kind that has to do with the resource. Watches, caches and RBAC are made from this one list.
    fn relations(&self) -> Vec<Relation>;

    /// The names that a resource lays claim to among its owned and kept kinds.
    ///
    /// Whatever stands under such a name is in the view, whoever it belongs to, so that a plan sees a stranger
    /// before it treads on it. What the resource already controls, or what carries its label, is in the view
    /// without being claimed.
    fn claims(&self, resource: &Self::Resource) -> Vec<ObjectRef>;

    /// Names that a resource lays claim to because of what is around it, beside [`claims`](Operator::claims): where a
    /// child gives another its name.
    fn further_claims(&self, view: &View<Self::Resource>) -> Vec<ObjectRef> {
        let _ = view;
        Vec::new()
    }

    /// What must be asked of the running service before deciding. Nothing where the view suffices.
    fn questions(&self, view: &View<Self::Resource>) -> Vec<Question> {
        let _ = view;
        Vec::new()
    }

    /// What should be done about what was seen.
    fn plan(&self, view: &View<Self::Resource>, answers: &Answers) -> Plan;
}
