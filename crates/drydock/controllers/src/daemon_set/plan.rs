//! What becomes of a DaemonSet's pods. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::pod::{target, tolerations};
use super::rollout::{Place, Rollout};
use crate::objects::daemon::{DaemonSet, DaemonSetStatus, REVISION};
use crate::objects::node::{Effect, Node};
use crate::objects::placement::Placement;
use crate::objects::pod::{Phase, Pod};
use crate::objects::selector::includes;

/// What is known when a DaemonSet is decided on.
pub struct View<'a> {
    /// The set.
    pub set: &'a DaemonSet,
    /// All nodes.
    pub nodes: &'a [Arc<Node>],
    /// Its pods.
    pub pods: &'a [Arc<Pod>],
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

/// What to do, what to say, and when to look again because a pod will have been ready long enough.
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

/// Whether a pod of the set belongs on a node: a node that nothing but a taint keeps it from keeps one it has.
fn wanted(placement: &Placement, node: &Node) -> Wanted {
    let (name, labels) = (&node.metadata.name, &node.metadata.labels);
    let required = placement.affinity.node_affinity.required.as_ref();
    let suits = includes(labels, &placement.node_selector)
        && required.is_none_or(|any| any.node_selector_terms.iter().any(|term| term.matches(name, labels)));
    if !suits {
        return Wanted::No;
    }
    let own = tolerations();
    let tolerations = || placement.tolerations.iter().chain(&own);
    let keeps_away: Vec<Effect> = node
        .taints()
        .filter(|taint| taint.effect != Effect::PreferNoSchedule)
        .filter(|taint| !tolerations().any(|one| one.tolerates(taint)))
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
    let template: Pod = serde_json::from_str(spec.template.raw().get()).unwrap_or_default();
    let placement = template.spec.placement.unwrap_or_default();
    let mut on_nodes: BTreeMap<&str, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in view.pods {
        on_nodes.entry(target(pod)).or_default().push(pod.clone());
    }
    let (mut steps, mut rollout) = (Vec::new(), Rollout::of(view.set));
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
        let wanted = wanted(&placement, node);
        judge.count(wanted, pods.first().map(|pod| &**pod), &mut status);
        let empty = pods.is_empty();
        // One that goes keeps its place until it is gone.
        pods.retain(|pod| !pod.metadata.deleting());
        match wanted {
            Wanted::No => steps.extend(pods.into_iter().map(Step::Delete)),
            Wanted::IfThere if empty => {}
            Wanted::Yes | Wanted::IfThere => {
                let wanted = wanted == Wanted::Yes;
                let place = Place { node: &node.metadata.name, wanted, empty, pods };
                steps.extend(rollout.tend(&judge, place));
            }
        }
    }
    // Of nodes that are gone.
    let lost = on_nodes.into_values().flatten().filter(|pod| !pod.metadata.deleting());
    steps.extend(lost.map(Step::Delete));
    steps.extend(rollout.go_on(status.desired_number_scheduled));
    status.number_unavailable = status.desired_number_scheduled - status.number_available;
    let waits = view.pods.iter().filter_map(|pod| judge.available_in(pod)).filter(|wait| !wait.is_zero());
    Plan { steps, status, look_again: waits.min() }
}

/// What is said of a pod that has ended.
pub fn ended(pod: &Pod) -> (&'static str, String) {
    let (reason, how) = match pod.status.phase {
        Phase::Succeeded => ("SucceededDaemonPod", "succeeded"),
        _ => ("FailedDaemonPod", "failed"),
    };
    let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
    let verb = if reason == "FailedDaemonPod" { "kill" } else { "delete" };
    (
        reason,
        format!("Found {how} daemon pod {namespace}/{name} on node {}, will try to {verb} it", target(pod)),
    )
}
