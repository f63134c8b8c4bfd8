//! Pods of one kind are spread over nodes and zones.

use std::collections::HashMap;

use super::cluster::{Cluster, Place, placement};
use super::decide::{Rejection, suits, tolerated};
use crate::objects::placement::SpreadConstraint;
use crate::objects::pod::Pod;

/// Where pods of a controller are spread when they do not say how: as Kubernetes does, less by zone than by node.
const DEFAULT_KEYS: [(&str, i64); 2] = [("kubernetes.io/hostname", 3), ("topology.kubernetes.io/zone", 5)];

/// How pods like the one to be placed are spread now.
pub struct Spread<'a> {
    hard: Vec<Counted<'a>>,
    soft: Vec<Counted<'a>>,
}

struct Counted<'a> {
    key: &'a str,
    max_skew: i64,
    /// Whether the pod itself will be counted.
    own: i64,
    /// Pods by value of the label.
    counts: HashMap<&'a str, i64>,
    least: i64,
}

impl<'a> Spread<'a> {
    /// Counts.
    pub fn of(pod: &'a Pod, cluster: &'a Cluster) -> Self {
        let constraints = &placement(pod).topology_spread_constraints;
        let (hard, soft): (Vec<_>, Vec<_>) =
            constraints.iter().partition(|one| &*one.when_unsatisfiable != "ScheduleAnyway");
        let count = |all: Vec<&'a SpreadConstraint>| -> Vec<Counted<'a>> {
            all.into_iter().map(|one| counted(one, pod, cluster)).collect()
        };
        let soft = if constraints.is_empty() { siblings(pod, cluster) } else { count(soft) };
        Self { hard: count(hard), soft }
    }

    /// Whether the pod may be at this place.
    pub fn check(&self, place: &Place) -> Result<(), Rejection> {
        for one in &self.hard {
            let Some(value) = place.label(one.key) else {
                return Err(Rejection::hopeless(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                ));
            };
            let here = one.counts.get(value).copied().unwrap_or(0) + one.own;
            if here - one.least > one.max_skew {
                return Err(Rejection::for_now("node(s) didn't match pod topology spread constraints"));
            }
        }
        Ok(())
    }

    /// How many like it are at this place already, over all constraints; `None` where the labels to tell
    /// are missing.
    pub fn crowd(&self, place: &Place) -> Option<f64> {
        let mut sum = 0.0;
        for one in &self.soft {
            let here = one.counts.get(place.label(one.key)?).copied().unwrap_or(0);
            // A place that is one of many counts for more, as in Kubernetes.
            #[expect(clippy::cast_precision_loss, reason = "counts are small")]
            let (here, places, skew) = (here as f64, one.counts.len() as f64, one.max_skew as f64);
            sum += here * (places + 2.0).ln() + (skew - 1.0);
        }
        Some(sum)
    }

    /// Whether there is anything to be spread by.
    pub fn is_soft(&self) -> bool {
        !self.soft.is_empty()
    }
}

fn counted<'a>(constraint: &'a SpreadConstraint, pod: &Pod, cluster: &'a Cluster) -> Counted<'a> {
    let alike = |other: &Pod| {
        let selector = constraint.label_selector.as_ref();
        let labels = &other.metadata.labels;
        other.metadata.namespace == pod.metadata.namespace
            && selector.is_some_and(|selector| selector.matches(labels))
            && constraint.match_label_keys.iter().all(|key| match pod.metadata.labels.get(key) {
                Some(value) => labels.get(key) == Some(value),
                None => true,
            })
    };
    let mut counts: HashMap<&str, i64> = HashMap::new();
    for place in &cluster.places {
        let left_out = (&*constraint.node_affinity_policy != "Ignore" && !suits(pod, place))
            || (&*constraint.node_taints_policy == "Honor" && !tolerated(pod, place));
        if let (false, Some(value)) = (left_out, place.label(&constraint.topology_key)) {
            let here = place.pods.iter().filter(|other| !other.metadata.deleting() && alike(other)).count();
            *counts.entry(value).or_default() += i64::try_from(here).unwrap_or(i64::MAX);
        }
    }
    let few = constraint.min_domains.is_some_and(|least| i64::try_from(counts.len()).unwrap_or(0) < least);
    let least = if few { 0 } else { counts.values().min().copied().unwrap_or(0) };
    Counted {
        key: &constraint.topology_key,
        max_skew: constraint.max_skew.max(1),
        own: i64::from(alike(pod)),
        counts,
        least,
    }
}

/// The pods of the same controller, for a pod that says nothing.
fn siblings<'a>(pod: &Pod, cluster: &'a Cluster) -> Vec<Counted<'a>> {
    let Some(owner) = pod.metadata.controller() else { return Vec::new() };
    let sibling = |other: &Pod| other.metadata.controller().is_some_and(|theirs| theirs.uid == owner.uid);
    let count = |(key, max_skew): (&'a str, i64)| {
        let mut counts: HashMap<&str, i64> = HashMap::new();
        for place in &cluster.places {
            let value = place.label(key)?;
            let here = place.pods.iter().filter(|other| sibling(other)).count();
            *counts.entry(value).or_default() += i64::try_from(here).unwrap_or(i64::MAX);
        }
        Some(Counted { key, max_skew, own: 1, counts, least: 0 })
    };
    DEFAULT_KEYS.into_iter().filter_map(count).collect()
}
