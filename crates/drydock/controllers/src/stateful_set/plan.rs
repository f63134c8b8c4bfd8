//! The decision about a StatefulSet: from it, its pods and their claims to the next steps and what to say. Pure:
//! the same view gives the same plan, and where everything is as asked for it has no steps.
//!
//! Pods come in the order of their numbers and go in the opposite order. Unless the set is parallel, a pod that is
//! not available holds up everything after it: the plan ends there.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::pod::{self, Owners};
use crate::objects::meta::OwnerReference;
use crate::objects::pod::{Phase, Pod};
use crate::objects::stateful::{ClaimTemplate, StatefulSet, StatefulSetStatus};
use crate::objects::storage::Claim;

/// What is known when a StatefulSet is decided on.
pub struct View<'a> {
    /// The set.
    pub set: &'a StatefulSet,
    /// Its pods, by their numbers.
    pub pods: &'a BTreeMap<i32, Arc<Pod>>,
    /// The claims of its pods, by name.
    pub claims: &'a HashMap<String, Arc<Claim>>,
    /// The name of the revision that was last rolled out completely.
    pub current: &'a str,
    /// The name of the revision of the template.
    pub update: &'a str,
    /// How many hashes were found taken.
    pub collisions: i32,
    /// The time.
    pub now: Timestamp,
}

/// One of the two revisions a set is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one that was last rolled out completely.
    Current,
    /// That of the template.
    Update,
}

/// What to do next.
#[derive(Debug)]
pub enum Step<'a> {
    /// Make the claims that a pod lacks. One that goes is in the way of the pod, not of the other claims.
    Claims {
        /// The number of the pod.
        number: i32,
        /// Whether the pod is there already, and waits.
        waits: bool,
        /// What it lacks.
        lacks: Vec<Lack<'a>>,
    },
    /// Make a pod.
    Create(i32, Which),
    /// Take a pod away.
    Delete(&'a Arc<Pod>),
    /// Give a claim these owners.
    Owners(&'a Arc<Claim>, Vec<OwnerReference>),
    /// Say that somebody else manages a claim.
    Foreign(&'a Arc<Claim>),
    /// Make a pod itself again.
    Amend(&'a Arc<Pod>, i32),
    /// Say that a pod is as it shall be, now that its claims have other owners.
    Amended(&'a Arc<Pod>),
}

/// Why a pod lacks a claim.
#[derive(Debug)]
pub enum Lack<'a> {
    /// There is none of this template.
    Missing(&'a ClaimTemplate),
    /// The one of this name is being deleted.
    Going(String),
}

/// What is decided.
#[derive(Debug)]
pub struct Plan<'a> {
    /// What to do, in this order; the first that fails ends it.
    pub steps: Vec<Step<'a>>,
    /// What to say.
    pub status: StatefulSetStatus,
    /// When to look again because a pod will have been ready long enough.
    pub look_again: Option<Duration>,
}

/// Whether what comes after may be done too.
#[derive(PartialEq, Eq)]
enum Flow {
    On,
    Stop,
}

/// Decides.
pub fn plan<'a>(view: &'a View<'a>) -> Plan<'a> {
    let min_ready = Duration::from_secs(u64::try_from(view.set.spec.min_ready_seconds).unwrap_or(0));
    let waits = view.pods.values().filter_map(|pod| pod.available_in(min_ready, view.now));
    let look_again = waits.filter(|wait| !wait.is_zero()).min();
    let ordered = &*view.set.spec.pod_management_policy != "Parallel";
    let mut stages = Stages { view, min_ready, ordered, steps: Vec::new() };
    let mut status = stages.counted();
    if !view.set.metadata.deleting() && stages.grow() == Flow::On && stages.shrink() == Flow::On {
        status.current_replicas -= stages.roll();
    }
    stages.complete(&mut status);
    Plan { steps: stages.steps, status, look_again }
}

struct Stages<'a> {
    view: &'a View<'a>,
    min_ready: Duration,
    ordered: bool,
    steps: Vec<Step<'a>>,
}

impl<'a> Stages<'a> {
    fn available(&self, pod: &Pod) -> bool {
        pod.available_in(self.min_ready, self.view.now).is_some_and(|wait| wait.is_zero())
    }

    fn unavailable(&self, pod: Option<&Arc<Pod>>) -> bool {
        pod.is_none_or(|pod| !self.available(pod) || pod.metadata.deleting())
    }

    fn numbers(&self) -> std::ops::Range<i32> {
        self.view.set.start()..self.view.set.end()
    }

    /// The pods there shall not be, from the last.
    fn surplus(&self) -> impl DoubleEndedIterator<Item = (i32, &'a Arc<Pod>)> + use<'a> {
        let set = self.view.set;
        self.view
            .pods
            .iter()
            .rev()
            .map(|(number, pod)| (*number, pod))
            .filter(|(number, _)| !set.wants(*number))
    }

    /// Each pod that shall be, from the first.
    fn grow(&mut self) -> Flow {
        for number in self.numbers() {
            if self.one(number) == Flow::Stop && self.ordered {
                return Flow::Stop;
            }
        }
        Flow::On
    }

    fn one(&mut self, number: i32) -> Flow {
        let view = self.view;
        let Some(pod) = view.pods.get(&number) else { return self.create(number) };
        if pod.finished() {
            if !pod.metadata.deleting() {
                self.steps.push(Step::Delete(pod));
            }
            return Flow::Stop;
        }
        if pod.status.phase == Phase::Pending && self.claims(number, Some(pod)) == Flow::Stop {
            return Flow::Stop;
        }
        let running = pod.status.phase == Phase::Running && self.available(pod);
        if self.ordered && (pod.metadata.deleting() || !running) {
            return Flow::Stop;
        }
        let before = self.steps.len();
        self.owners(number, Some(pod));
        if !pod::is_itself(view.set, pod, number) {
            self.steps.push(Step::Amend(pod, number));
        } else if self.steps.len() > before {
            self.steps.push(Step::Amended(pod));
        }
        Flow::On
    }

    fn create(&mut self, number: i32) -> Flow {
        let set = self.view.set;
        let stale = |(name, _): (String, &ClaimTemplate)| {
            self.view.claims.get(&name).is_some_and(|claim| pod::is_stale(set, number, claim))
        };
        if self.named(number).any(stale) || self.claims(number, None) == Flow::Stop {
            return Flow::Stop;
        }
        self.steps.push(Step::Create(number, self.revision_of(number)));
        Flow::Stop
    }

    /// Which revision a new pod is made of.
    fn revision_of(&self, number: i32) -> Which {
        let (set, strategy) = (self.view.set, &self.view.set.spec.update_strategy);
        let kept = match &strategy.rolling_update {
            Some(rolling) => rolling.partition,
            None if &*strategy.r#type == "RollingUpdate" => set.status.current_replicas,
            None => 0,
        };
        if number < set.start().saturating_add(kept) { Which::Current } else { Which::Update }
    }

    fn named(&self, number: i32) -> impl Iterator<Item = (String, &'a ClaimTemplate)> + use<'a> {
        let set = self.view.set;
        let templates = set.spec.volume_claim_templates.iter();
        templates.map(move |template| (pod::claim_name(set, template, number), template))
    }

    /// The claims that a pod needs before it can run.
    fn claims(&mut self, number: i32, pod: Option<&'a Arc<Pod>>) -> Flow {
        let view = self.view;
        let lack = |(name, template)| match view.claims.get(&name) {
            None => Some(Lack::Missing(template)),
            Some(claim) if claim.metadata.deleting() => Some(Lack::Going(name)),
            Some(_) => None,
        };
        let lacks: Vec<Lack<'a>> = self.named(number).filter_map(lack).collect();
        let held_up = lacks.iter().any(|lack| matches!(lack, Lack::Going(_)));
        if !lacks.is_empty() {
            self.steps.push(Step::Claims { number, waits: pod.is_some(), lacks });
        }
        if held_up {
            return Flow::Stop;
        }
        self.owners(number, pod);
        Flow::On
    }

    /// The owners that the policy gives the claims of a pod.
    fn owners(&mut self, number: i32, pod: Option<&'a Arc<Pod>>) {
        let view = self.view;
        for (name, _) in self.named(number) {
            let Some(claim) = view.claims.get(&name) else { continue };
            let again =
                self.steps.iter().any(|step| matches!(step, Step::Owners(own, _) if Arc::ptr_eq(own, claim)));
            match pod::owners(view.set, number, pod.map(|pod| &**pod), claim) {
                Owners::Set(owners) if !again => self.steps.push(Step::Owners(claim, owners)),
                Owners::Foreign(owners) if !again => {
                    self.steps.extend([Step::Foreign(claim), Step::Owners(claim, owners)]);
                }
                Owners::Set(_) | Owners::Foreign(_) | Owners::AsTheyAre => {}
            }
        }
    }

    /// Takes away what there shall not be, the last first; one at a time unless the set is parallel.
    fn shrink(&mut self) -> Flow {
        for (number, pod) in self.surplus() {
            self.owners(number, Some(pod));
        }
        let first_unavailable =
            self.numbers().find(|number| self.unavailable(self.view.pods.get(number))).or_else(|| {
                self.surplus().rev().find(|(_, pod)| self.unavailable(Some(pod))).map(|(number, _)| number)
            });
        for (number, pod) in self.surplus() {
            if pod.metadata.deleting() {
                if self.ordered {
                    return Flow::Stop;
                }
                continue;
            }
            if self.ordered && !self.available(pod) && first_unavailable != Some(number) {
                return Flow::Stop;
            }
            self.steps.push(Step::Delete(pod));
            if self.ordered {
                return Flow::Stop;
            }
        }
        Flow::On
    }

    /// Takes away the last pod that is of another revision, when all after it are available; says how many.
    fn roll(&mut self) -> i32 {
        let (view, strategy) = (self.view, &self.view.set.spec.update_strategy);
        if &*strategy.r#type == "OnDelete" {
            return 0;
        }
        let partition = strategy.rolling_update.as_ref().map_or(0, |rolling| rolling.partition);
        let first = view.set.start().saturating_add(partition);
        for number in (first..view.set.end()).rev() {
            let Some(pod) = view.pods.get(&number) else { return 0 };
            if pod::revision(pod) != view.update && !pod.metadata.deleting() {
                let asked =
                    self.steps.iter().any(|step| matches!(step, Step::Delete(own) if Arc::ptr_eq(own, pod)));
                if !asked {
                    self.steps.push(Step::Delete(pod));
                }
                return i32::from(pod::revision(pod) == view.current);
            }
            if self.unavailable(Some(pod)) {
                return 0;
            }
        }
        0
    }

    /// What is, by what is known of the pods.
    fn counted(&self) -> StatefulSetStatus {
        let view = self.view;
        let count = |counts: &dyn Fn(&Pod) -> bool| {
            i32::try_from(view.pods.values().filter(|pod| counts(pod)).count()).unwrap_or(i32::MAX)
        };
        let ready = |pod: &Pod| pod.status.phase == Phase::Running && pod.ready();
        let of = |pod: &Pod, name: &str| !pod.metadata.deleting() && pod::revision(pod) == name;
        StatefulSetStatus {
            observed_generation: view.set.metadata.generation,
            replicas: count(&|_| true),
            ready_replicas: count(&ready),
            current_replicas: count(&|pod| of(pod, view.current)),
            updated_replicas: count(&|pod| of(pod, view.update)),
            current_revision: view.current.into(),
            update_revision: view.update.into(),
            collision_count: Some(view.collisions),
            available_replicas: count(&|pod| ready(pod) && self.available(pod)),
        }
    }

    /// A revision that all pods are of, and ready, is the current one.
    fn complete(&self, status: &mut StatefulSetStatus) {
        let (spec, wanted) = (&self.view.set.spec, self.view.set.spec.replicas);
        if &*spec.update_strategy.r#type == "RollingUpdate"
            && status.updated_replicas == wanted
            && status.ready_replicas == wanted
            && status.replicas == wanted
        {
            status.current_replicas = status.updated_replicas;
            status.current_revision = status.update_revision.clone();
        }
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
