//! Which node a pod goes to, or why to none. Pure: the same pod and cluster, the same answer.
//!
//! A node is refused for the first thing that speaks against it, in Kubernetes' order and words. Among those
//! that are left the best is chosen, by what Kubernetes weighs, with its weights; where it would throw dice,
//! the node with fewer pods, then the one that comes first by name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::claims::{Claims, Step};
use super::cluster::{Cluster, Place, placement};
use super::near::Nearness;
use super::score;
use super::spread::Spread;
use crate::objects::node::{Effect, Taint};
use crate::objects::pod::Pod;
use crate::objects::selector::includes;

/// What becomes of a pod.
#[derive(Clone, Debug)]
pub enum Decision {
    /// It goes to this node.
    Bind(Arc<str>),
    /// It will go to this node once this is done for its claims.
    Prepare(Arc<str>, Vec<Step>),
    /// It has to wait, for this reason.
    Wait(String),
}

/// Why a node is none for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The reasons.
    pub reasons: Vec<Cow<'static, str>>,
    /// Whether it would be none without the pods that are on it, too.
    pub hopeless: bool,
}

impl Rejection {
    /// As long as other pods are where they are.
    pub fn for_now(reason: &'static str) -> Self {
        Self { reasons: vec![reason.into()], hopeless: false }
    }

    /// Whatever pods there are.
    pub fn hopeless(reason: &'static str) -> Self {
        Self { reasons: vec![reason.into()], hopeless: true }
    }
}

/// Decides.
pub fn decide(pod: &Pod, cluster: &Cluster) -> Decision {
    if cluster.places.is_empty() {
        return Decision::Wait("no nodes available to schedule pods".into());
    }
    let claims = match Claims::of(pod, cluster) {
        Ok(claims) => claims,
        // The end is that of a part of Kubernetes that is asked nothing then, and says so.
        Err(why) => {
            return Decision::Wait(format!(
                "0/{} nodes are available: {why}. not found",
                cluster.places.len()
            ));
        }
    };
    let (near, spread) = (Nearness::of(pod, cluster), Spread::of(pod, cluster));
    let mut fitting = Vec::new();
    let mut rejections = Vec::new();
    for place in &cluster.places {
        match check(pod, place, &claims, &near, &spread) {
            Ok(()) => fitting.push(place),
            Err(rejection) => rejections.push(rejection),
        }
    }
    match score::best(pod, &fitting, &near, &spread) {
        Some(place) => {
            let node = &place.node.metadata;
            match claims.steps(node).unwrap_or_default() {
                steps if steps.is_empty() => Decision::Bind(node.name.clone()),
                steps => Decision::Prepare(node.name.clone(), steps),
            }
        }
        None => Decision::Wait(explain(&rejections)),
    }
}

fn check(
    pod: &Pod,
    place: &Place,
    claims: &Claims<'_>,
    near: &Nearness<'_>,
    spread: &Spread<'_>,
) -> Result<(), Rejection> {
    if place.node.spec.unschedulable && !tolerates_unschedulable(pod) {
        return Err(Rejection::hopeless("node(s) were unschedulable"));
    }
    if !tolerated(pod, place) {
        return Err(Rejection::hopeless("node(s) had untolerated taint(s)"));
    }
    if !suits(pod, place) {
        return Err(Rejection::hopeless("node(s) didn't match Pod's node affinity/selector"));
    }
    if !ports_free(pod, place) {
        return Err(Rejection::for_now("node(s) didn't have free ports for the requested pod ports"));
    }
    enough(pod, place)?;
    claims.check(place)?;
    spread.check(place)?;
    near.check(place)
}

fn tolerates_unschedulable(pod: &Pod) -> bool {
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        value: "".into(),
        effect: Effect::NoSchedule,
    };
    placement(pod).tolerations.iter().any(|one| one.tolerates(&taint))
}

/// Whether no taint keeps the pod away from the node.
pub fn tolerated(pod: &Pod, place: &Place) -> bool {
    let tolerations = &placement(pod).tolerations;
    place
        .node
        .taints()
        .filter(|taint| matches!(taint.effect, Effect::NoSchedule | Effect::NoExecute))
        .all(|taint| tolerations.iter().any(|one| one.tolerates(&taint)))
}

/// Whether the node is one that the pod asks for.
pub fn suits(pod: &Pod, place: &Place) -> bool {
    let (placement, meta) = (placement(pod), &place.node.metadata);
    includes(&meta.labels, &placement.node_selector)
        && placement.affinity.node_affinity.required.as_ref().is_none_or(|selector| {
            selector.node_selector_terms.iter().any(|term| term.matches(&meta.name, &meta.labels))
        })
}

fn ports_free(pod: &Pod, place: &Place) -> bool {
    let anywhere = |address: &str| matches!(address, "" | "0.0.0.0");
    pod.host_ports().all(|wanted| {
        let mut taken = place.pods.iter().flat_map(|other| other.host_ports());
        !taken.any(|taken| {
            taken.host_port == wanted.host_port
                && taken.protocol == wanted.protocol
                && (taken.host_ip == wanted.host_ip || anywhere(&taken.host_ip) || anywhere(&wanted.host_ip))
        })
    })
}

fn enough(pod: &Pod, place: &Place) -> Result<(), Rejection> {
    let there = &place.node.status.allocatable;
    let mut lacking = Rejection { reasons: Vec::new(), hopeless: false };
    let count = i64::try_from(place.pods.len()).unwrap_or(i64::MAX);
    if count.saturating_add(1) > there.get("pods") {
        lacking.reasons.push("Too many pods".into());
    }
    for (name, wanted) in pod.spec.requests.iter().filter(|(_, wanted)| *wanted > 0) {
        if wanted > there.get(name) - place.used.get(name) {
            lacking.reasons.push(format!("Insufficient {name}").into());
            lacking.hopeless |= wanted > there.get(name);
        }
    }
    if lacking.reasons.is_empty() { Ok(()) } else { Err(lacking) }
}

/// Kubernetes' words for a pod that no node takes. Nothing here deallocates or preempts; that it would not
/// help is part of the sentence.
fn explain(rejections: &[Rejection]) -> String {
    let nodes = rejections.len();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in rejections.iter().flat_map(|rejection| &rejection.reasons) {
        *reasons.entry(reason).or_default() += 1;
    }
    let preemption = [
        (
            rejections.iter().filter(|one| !one.hopeless).count(),
            "No preemption victims found for incoming pod",
        ),
        (rejections.iter().filter(|one| one.hopeless).count(), "Preemption is not helpful for scheduling"),
    ];
    let listed = |reasons: &mut dyn Iterator<Item = (usize, &str)>| {
        let mut texts: Vec<String> = reasons.map(|(count, reason)| format!("{count} {reason}")).collect();
        texts.sort();
        format!("0/{nodes} nodes are available: {}.", texts.join(", "))
    };
    let why = listed(&mut reasons.iter().map(|(reason, count)| (*count, *reason)));
    let help = listed(&mut preemption.into_iter().filter(|(count, _)| *count > 0));
    format!("{why} no new claims to deallocate, preemption: {help}")
}
