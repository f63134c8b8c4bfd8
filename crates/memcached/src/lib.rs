//! Memcached: a set of cache nodes, as many as `spec.size` says, of the version that `spec.version` says.
//!
//! A `Memcached` owns three objects that carry its name: a Deployment whose pods are the nodes, a headless Service
//! under which clients find every node (they spread keys over the list themselves, so one virtual address would
//! be wrong), and a PodDisruptionBudget that lets one node go at a time. What the nodes hold is a cache: nothing
//! outlives a pod, so there is nothing to keep, no finalizer, and deletion never waits for Ballast.
//!
//! **What always holds**
//!
//! - `Ready` is said only when the Deployment's own, current report shows every node up and of the wanted version,
//!   and each of them answered `version` when it was asked.
//! - An upgrade goes one node at a time, and no further while a new one does not serve. The status says the way back.
//! - A node that hangs is replaced; what counts as evidence for that is in `servers`.
//! - An object under the resource's name that is not the resource's is never touched. The status says so.
//! - The schema and [`validate`](Cache::try_from) give the same answer, and a spec that passed neither is never
//!   acted upon.
//! - Fields that Ballast sets on its children are put back when someone edits them; fields that others add stay.

// What is disallowed, and why, is in the clippy.toml beside.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

mod ask;
mod desired;
mod observe;
mod plan;
mod resource;
mod servers;
mod statistics;
mod validate;

use ballast_operator::{Answers, MANAGED, ObjectRef, Operator, Plan, Question, Relation, View};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Service},
    policy::v1::PodDisruptionBudget,
};
use kube_core::ResourceExt as _;

pub use ask::{Ask, Stats, Told};
pub use resource::{Memcached, MemcachedSpec, MemcachedStatus, SilentServer, Statistics};
pub use validate::{Cache, Problem};

/// The label whose value is the resource's name, on every child and every pod.
pub const LABEL: &str = "memcached_cr";

/// The operator of [`Memcached`] resources.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemcachedOperator;

impl Operator for MemcachedOperator {
    type Resource = Memcached;

    const NAME: &'static str = "memcached";
    const FIELD_MANAGER: &'static str = "ballast-memcached";

    fn relations(&self) -> Vec<Relation> {
        vec![
            Relation::owned::<Deployment>(),
            Relation::owned::<Service>(),
            Relation::owned::<PodDisruptionBudget>(),
            // The Deployment makes another in place of one that is removed.
            Relation::observed::<Pod>(LABEL).removable().within(MANAGED),
        ]
    }

    fn claims(&self, resource: &Memcached) -> Vec<ObjectRef> {
        let name = resource.name_any();
        vec![
            ObjectRef::of::<Deployment>(name.clone()),
            ObjectRef::of::<Service>(name.clone()),
            ObjectRef::of::<PodDisruptionBudget>(name),
        ]
    }

    fn questions(&self, view: &View<Memcached>) -> Vec<Question> {
        if view.is_being_deleted() { Vec::new() } else { servers::questions(view) }
    }

    fn plan(&self, view: &View<Memcached>, answers: &Answers) -> Plan {
        plan::plan(view, answers)
    }
}
