//! How another template reaches the nodes. Pure.
//!
//! Without a surge a node has one pod: the old one goes, as many at a time as may be missing, and the new one comes
//! when it is gone. With a surge the new one comes beside the old one, on as many nodes at a time as may have two, and
//! the old one goes when the new one serves.

use std::sync::Arc;

use super::plan::{Judge, Step};
use crate::objects::daemon::DaemonSet;
use crate::objects::pod::Pod;
use crate::objects::workload::IntOrPercent;

/// A node that has pods, or shall have one.
pub(super) struct Place<'a> {
    /// Its name.
    pub node: &'a Arc<str>,
    /// Whether it shall have one; otherwise one that is there may stay.
    pub wanted: bool,
    /// Whether none is there, also none that goes.
    pub empty: bool,
    /// Whether one that has failed keeps its place for a while.
    pub held: bool,
    /// Those that stay, the oldest first.
    pub pods: Vec<Arc<Pod>>,
}

/// How far another template may go now.
pub(super) enum Rollout {
    /// Only somebody's hand brings it about.
    ByHand,
    /// The old pod goes first.
    Gap(Gap),
    /// The new pod comes first.
    Surge(Surge),
}

/// Nodes that lack a pod for a while.
pub(super) struct Gap {
    /// How many may lack one that serves.
    most: Option<IntOrPercent>,
    /// How many do.
    missing: i32,
    /// Pods of another template that serve.
    may_go: Vec<Arc<Pod>>,
}

/// Nodes that have two for a while.
pub(super) struct Surge {
    /// How many may have two.
    most: IntOrPercent,
    /// How many have.
    doubled: i32,
    /// How many have one that serves.
    serving: i32,
    /// Those whose only pod is of another template, and serves.
    may_double: Vec<Arc<str>>,
    /// Pods of another template that serve where none would be made any more.
    astray: Vec<Arc<Pod>>,
}

impl Rollout {
    /// The beginning, by what the set says of updates.
    pub fn of(set: &DaemonSet) -> Self {
        let strategy = &set.spec.update_strategy;
        if &*strategy.r#type == "OnDelete" {
            return Rollout::ByHand;
        }
        let bounds = strategy.rolling_update.clone();
        match bounds.max_surge.filter(|most| most.of(1, true) > 0) {
            Some(most) => Rollout::Surge(Surge {
                most,
                doubled: 0,
                serving: 0,
                may_double: Vec::new(),
                astray: Vec::new(),
            }),
            None => Rollout::Gap(Gap { most: bounds.max_unavailable, missing: 0, may_go: Vec::new() }),
        }
    }

    /// What to do about the pods of a node at once; what else may be done is remembered.
    pub fn tend(&mut self, judge: &Judge, place: Place<'_>) -> Vec<Step> {
        let Place { node, wanted, empty, held, pods } = place;
        let (ended, alive): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| pod.finished());
        let mut steps: Vec<Step> = ended.into_iter().map(Step::Replace).collect();
        if let Rollout::Surge(surge) = self {
            steps.extend(surge.tend(judge, node, (wanted, held), alive));
            return steps;
        }
        if empty {
            steps.push(Step::Create(node.clone()));
        }
        // Two may have been made for one node.
        let mut alive = alive.into_iter();
        let first = alive.next();
        let goes = if let Rollout::Gap(gap) = self { gap.tend(judge, first) } else { None };
        steps.extend(goes.into_iter().chain(alive).map(Step::Delete));
        steps
    }

    /// What may be done when all nodes have been looked at, of which so many shall have a pod.
    pub fn go_on(self, desired: i32) -> Vec<Step> {
        let room = |number: i32| usize::try_from(number).unwrap_or(0);
        match self {
            Rollout::ByHand => Vec::new(),
            Rollout::Gap(Gap { most, missing, may_go }) => {
                let most = most.map_or(1, |most| most.of(desired, true)).max(1);
                may_go.into_iter().take(room(most - missing)).map(Step::Delete).collect()
            }
            Rollout::Surge(Surge { most, doubled, serving, may_double, astray }) => {
                // Whoever asks for a surge wants nothing to be missing: one leaves where it should not be when there are
                // enough elsewhere.
                let gone = astray.into_iter().take(room(serving - desired)).map(Step::Delete);
                let made = may_double.into_iter().take(room(most.of(desired, true) - doubled));
                gone.chain(made.map(Step::Create)).collect()
            }
        }
    }
}

impl Gap {
    /// Whether the pod of a node goes at once.
    fn tend(&mut self, judge: &Judge, pod: Option<Arc<Pod>>) -> Option<Arc<Pod>> {
        let serves = pod.as_ref().is_some_and(|pod| judge.is_available(pod));
        self.missing += i32::from(!serves);
        let old = pod.filter(|pod| !judge.is_current(pod))?;
        if serves {
            self.may_go.push(old);
            return None;
        }
        // Nothing is lost with it.
        Some(old)
    }
}

impl Surge {
    fn tend(
        &mut self,
        judge: &Judge,
        node: &Arc<str>,
        (wanted, held): (bool, bool),
        alive: Vec<Arc<Pod>>,
    ) -> Vec<Step> {
        let (new, old): (Vec<_>, Vec<_>) = alive.into_iter().partition(|pod| judge.is_current(pod));
        let (mut new, mut old) = (new.into_iter(), old.into_iter());
        let (first_new, first_old) = (new.next(), old.next());
        let shown = first_old.as_ref().or(first_new.as_ref());
        self.serving += i32::from(shown.is_some_and(|pod| judge.is_available(pod)));
        let mut steps = Vec::new();
        match (first_new, first_old) {
            // The next one comes when the one that failed is taken away.
            (None, _) if held => {}
            // Others may still be going.
            (None, None) if wanted => steps.push(Step::Create(node.clone())),
            (_, None) => {}
            (None, Some(old)) => match (wanted, judge.is_available(&old)) {
                (true, true) => self.may_double.push(node.clone()),
                (true, false) => steps.push(Step::Create(node.clone())),
                (false, true) => self.astray.push(old),
                (false, false) => steps.push(Step::Delete(old)),
            },
            (Some(new), Some(old)) => match !old.ready() || judge.is_available(&new) {
                true => steps.push(Step::Delete(old)),
                false => self.doubled += 1,
            },
        }
        steps.extend(new.chain(old).map(Step::Delete));
        steps
    }
}
