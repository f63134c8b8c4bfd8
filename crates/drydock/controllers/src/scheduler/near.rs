//! Pods that must be, or would rather be, near to others or far from them.
//!
//! Two nodes are near to each other when they have the same value of the label that a term names; by
//! `kubernetes.io/hostname`, only a node to itself.

use std::collections::{HashMap, HashSet};

use super::cluster::{Cluster, Place, placement};
use super::decide::Rejection;
use crate::objects::pod::Pod;

/// What existing pods mean for one pod that is to be placed.
pub struct Nearness<'a> {
    pod: &'a Pod,
    /// How many pods fulfil all of its affinity terms, by term and label value.
    with: HashMap<(usize, &'a str), usize>,
    /// The label values it must keep away from, by its own terms.
    away: HashSet<(usize, &'a str)>,
    /// The labels of nodes it must keep away from, since a pod there wants it so.
    unwelcome: HashSet<(&'a str, &'a str)>,
    /// How much better a node with this label is.
    better: HashMap<(&'a str, &'a str), i64>,
    first_of_its_kind: bool,
}

impl<'a> Nearness<'a> {
    /// Looks at all pods once.
    pub fn of(pod: &'a Pod, cluster: &'a Cluster) -> Self {
        let own = &placement(pod).affinity;
        let mut near = Nearness {
            pod,
            with: HashMap::new(),
            away: HashSet::new(),
            unwelcome: HashSet::new(),
            better: HashMap::new(),
            first_of_its_kind: false,
        };
        for (other, place) in cluster.pods() {
            let terms = &own.pod_affinity.required;
            if !terms.is_empty() && terms.iter().all(|term| cluster.about(term, pod, other)) {
                for (at, term) in terms.iter().enumerate() {
                    if let Some(value) = place.label(&term.topology_key) {
                        *near.with.entry((at, value)).or_default() += 1;
                    }
                }
            }
            for (at, term) in own.pod_anti_affinity.required.iter().enumerate() {
                if let Some(value) = place.label(&term.topology_key)
                    && cluster.about(term, pod, other)
                {
                    near.away.insert((at, value));
                }
            }
            near.prefer(cluster, other, place);
        }
        let terms = &own.pod_affinity.required;
        near.first_of_its_kind =
            near.with.is_empty() && terms.iter().all(|term| cluster.about(term, pod, pod));
        near
    }

    /// What one existing pod and the new one wish of each other.
    fn prefer(&mut self, cluster: &'a Cluster, other: &'a Pod, place: &'a Place) {
        let (own, theirs) = (&placement(self.pod).affinity, &placement(other).affinity);
        for term in &theirs.pod_anti_affinity.required {
            if let Some(value) = place.label(&term.topology_key)
                && cluster.about(term, other, self.pod)
            {
                self.unwelcome.insert((&term.topology_key, value));
            }
        }
        let wishes = [
            (&own.pod_affinity.preferred, 1, self.pod, other),
            (&own.pod_anti_affinity.preferred, -1, self.pod, other),
            (&theirs.pod_affinity.preferred, 1, other, self.pod),
            (&theirs.pod_anti_affinity.preferred, -1, other, self.pod),
        ];
        for (terms, sign, owner, subject) in wishes {
            for wish in terms {
                let term = &wish.pod_affinity_term;
                if let Some(value) = place.label(&term.topology_key)
                    && cluster.about(term, owner, subject)
                {
                    *self.better.entry((&term.topology_key, value)).or_default() += sign * wish.weight;
                }
            }
        }
        // Pods that must be near to the new one would rather have it here: a weight of one, as in Kubernetes.
        for term in &theirs.pod_affinity.required {
            if let Some(value) = place.label(&term.topology_key)
                && cluster.about(term, other, self.pod)
            {
                *self.better.entry((&term.topology_key, value)).or_default() += 1;
            }
        }
    }

    /// Whether the pod may be at this place.
    pub fn check(&self, place: &Place) -> Result<(), Rejection> {
        let own = &placement(self.pod).affinity;
        let mut fulfilled = true;
        for (at, term) in own.pod_affinity.required.iter().enumerate() {
            match place.label(&term.topology_key) {
                None => return Err(Rejection::hopeless("node(s) didn't match pod affinity rules")),
                Some(value) => fulfilled &= self.with.contains_key(&(at, value)),
            }
        }
        // The first of a group that wants to be together has nobody to be with.
        if !fulfilled && !self.first_of_its_kind {
            return Err(Rejection::hopeless("node(s) didn't match pod affinity rules"));
        }
        for (at, term) in own.pod_anti_affinity.required.iter().enumerate() {
            if place.label(&term.topology_key).is_some_and(|value| self.away.contains(&(at, value))) {
                return Err(Rejection::for_now("node(s) didn't match pod anti-affinity rules"));
            }
        }
        if self.unwelcome.iter().any(|(key, value)| place.label(key) == Some(value)) {
            return Err(Rejection::for_now("node(s) didn't satisfy existing pods anti-affinity rules"));
        }
        Ok(())
    }

    /// How much others make this place better or worse.
    pub fn score(&self, place: &Place) -> i64 {
        let here = self.better.iter().filter(|((key, value), _)| place.label(key) == Some(value));
        here.map(|(_, weight)| *weight).sum()
    }
}
