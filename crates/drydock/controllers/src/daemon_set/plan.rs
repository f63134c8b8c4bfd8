//! What becomes of a DaemonSet's pods. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::backoff::Backoff;
use super::pod::{self, target};
use super::rollout::{Place, Rollout};
use crate::machinery::recorder::Severity;
use crate::objects::daemon::{DaemonSet, DaemonSetStatus, REVISION};
use crate::objects::node::{Effect, Node};
use crate::objects::placement::Placement;
use crate::objects::pod::{Phase, Pod, PodSpec};
use crate::objects::selector::includes;

/// What is known when a DaemonSet is decided on.
pub struct View<'a> {
    /// The set.
    pub set: &'a DaemonSet,
    /// All nodes.
    pub nodes: &'a [Arc<Node>],
    /// Its pods.
    pub pods: &'a [Arc<Pod>],
    /// Which nodes are left alone for a while.
    pub backoff: &'a Backoff,
    /// The time.
    pub now: Timestamp,
}

/// One thing to do.
#[derive(Debug)]
pub enum Step {
    /// Make the pod of this node.
    Create(Arc<str>),
    /// Delete a pod.
    Delete(Arc<Pod>),
    /// Delete a pod that has ended, and say so.
    Replace(Arc<Pod>),
}

/// What to do, what to say, and when to look again: a pod will have been ready long enough, or a node left alone.
pub struct Plan {
    /// What to do.
    pub steps: Vec<Step>,
    /// What to say.
    pub status: DaemonSetStatus,
    /// When to look again.
    pub look_again: Option<Duration>,
}

/// Whether a node shall have a pod: yes, no, or none anew while one that is there may stay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Yes,
    IfThere,
    No,
}

/// Whether a pod that is so belongs on a node: a node that nothing but a taint keeps it from keeps one it has.
fn wanted(spec: &PodSpec, node: &Node) -> Wanted {
    let (name, labels) = (&node.metadata.name, &node.metadata.labels);
    let required = |placement: &Placement| {
        let required = placement.affinity.node_affinity.required.as_ref();
        includes(labels, &placement.node_selector)
            && required
                .is_none_or(|any| any.node_selector_terms.iter().any(|term| term.matches(name, labels)))
    };
    let elsewhere = !spec.node_name.is_empty() && *spec.node_name != **name;
    if elsewhere || !spec.placement.as_deref().is_none_or(required) {
        return Wanted::No;
    }
    let keeps_away: Vec<Effect> = node
        .taints()
        .filter(|taint| taint.effect != Effect::PreferNoSchedule)
        .filter(|taint| !spec.tolerations().iter().any(|one| one.tolerates(taint)))
        .map(|taint| taint.effect)
        .collect();
    match keeps_away.as_slice() {
        [] => Wanted::Yes,
        some if some.contains(&Effect::NoExecute) => Wanted::No,
        _ => Wanted::IfThere,
    }
}

/// A set's pods, judged.
pub(super) struct Judge {
    hash: String,
    min_ready: Duration,
    now: Timestamp,
}

impl Judge {
    fn available_in(&self, pod: &Pod) -> Option<Duration> {
        pod.available_in(self.min_ready, self.now)
    }

    pub(super) fn is_available(&self, pod: &Pod) -> bool {
        self.available_in(pod).is_some_and(|wait| wait.is_zero())
    }

    pub(super) fn is_current(&self, pod: &Pod) -> bool {
        pod.metadata.labels.get(REVISION) == Some(&self.hash)
    }

    /// Counts a node whose first pod, if it has one, is this.
    fn count(&self, wanted: Wanted, first: Option<&Pod>, status: &mut DaemonSetStatus) {
        if wanted != Wanted::Yes {
            status.number_misscheduled += i32::from(first.is_some());
            return;
        }
        status.desired_number_scheduled += 1;
        let Some(first) = first else { return };
        status.current_number_scheduled += 1;
        status.number_ready += i32::from(first.ready());
        status.number_available += i32::from(self.is_available(first));
        status.updated_number_scheduled += i32::from(self.is_current(first));
    }
}

/// Decides.
pub fn plan(view: &View<'_>) -> Plan {
    let spec = &view.set.spec;
    let judge = Judge {
        hash: view.set.hash(),
        min_ready: Duration::from_secs(u64::try_from(spec.min_ready_seconds).unwrap_or(0)),
        now: view.now,
    };
    let suited: PodSpec = serde_json::from_value(pod::spec(view.set)).unwrap_or_default();
    let mut on_nodes: BTreeMap<&str, Vec<Arc<Pod>>> = BTreeMap::new();
    // One that is for no node is nobody's business; one that has ended and goes is in nobody's way.
    let goes = |pod: &Pod| pod.finished() && pod.metadata.deleting();
    for pod in view.pods.iter().filter(|pod| !target(pod).is_empty() && !goes(pod)) {
        on_nodes.entry(target(pod)).or_default().push(pod.clone());
    }
    let (mut steps, mut waits, mut rollout) = (Vec::new(), Vec::new(), Rollout::of(view.set));
    let mut status = DaemonSetStatus {
        observed_generation: view.set.metadata.generation,
        conditions: view.set.status.conditions.clone(),
        collision_count: view.set.status.collision_count,
        ..DaemonSetStatus::default()
    };
    for node in view.nodes {
        let mut pods = on_nodes.remove(&*node.metadata.name).unwrap_or_default();
        // Of two of the same second the one of the template before is the older.
        pods.sort_by_key(|pod| {
            let (age, name) = (pod.metadata.creation_timestamp, pod.metadata.name.clone());
            (pod.spec.node_name.is_empty(), age, judge.is_current(pod), name)
        });
        let wanted = wanted(&suited, node);
        judge.count(wanted, pods.first().map(|pod| &**pod), &mut status);
        let (empty, left_alone) =
            (pods.is_empty(), view.backoff.left(view.set, &node.metadata.name, view.now));
        // One that goes keeps its place until it is gone.
        pods.retain(|pod| !pod.metadata.deleting());
        match wanted {
            Wanted::No => steps.extend(pods.into_iter().map(Step::Delete)),
            Wanted::IfThere if empty => {}
            Wanted::Yes | Wanted::IfThere => {
                let wanted = wanted == Wanted::Yes;
                let all = pods.len();
                pods.retain(|pod| left_alone.is_zero() || pod.status.phase != Phase::Failed);
                let held = pods.len() < all;
                waits.extend(held.then_some(left_alone));
                let place = Place { node: &node.metadata.name, wanted, empty, held, pods };
                steps.extend(rollout.tend(&judge, place));
            }
        }
    }
    // Those that wait for nodes that are gone; those that were there are the pod garbage collector's.
    let waiting = |pod: &Arc<Pod>| pod.spec.node_name.is_empty() && !pod.metadata.deleting();
    let lost = on_nodes.into_values().flatten().filter(waiting);
    steps.extend(lost.map(Step::Delete));
    steps.extend(rollout.go_on(status.desired_number_scheduled));
    status.number_unavailable = status.desired_number_scheduled - status.number_available;
    waits.extend(view.pods.iter().filter_map(|pod| judge.available_in(pod)).filter(|wait| !wait.is_zero()));
    Plan { steps, status, look_again: waits.into_iter().min() }
}

/// What is said of a pod that has ended.
pub fn ended(pod: &Pod) -> (Severity, &'static str, String) {
    let (severity, reason, how, verb) = match pod.status.phase {
        Phase::Succeeded => (Severity::Normal, "SucceededDaemonPod", "succeeded", "delete"),
        _ => (Severity::Warning, "FailedDaemonPod", "failed", "kill"),
    };
    let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
    let node = target(pod);
    (
        severity,
        reason,
        format!("Found {how} daemon pod {namespace}/{name} on node {node}, will try to {verb} it"),
    )
}
