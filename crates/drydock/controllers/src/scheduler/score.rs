//! Which of the nodes that would do is the best.
//!
//! Each aspect gives every node up to a hundred points, and counts with Kubernetes' weight.

use super::cluster::{Place, placement};
use super::near::Nearness;
use super::spread::Spread;
use crate::objects::node::Effect;
use crate::objects::pod::Pod;

const FULL: f64 = 100.0;

/// The best of these places for the pod, if there are any.
pub fn best<'a>(
    pod: &Pod,
    places: &[&'a Place],
    near: &Nearness<'_>,
    spread: &Spread<'_>,
) -> Option<&'a Place> {
    if let [only] = places {
        return Some(only);
    }
    let mut totals = vec![0.0; places.len()];
    let mut weigh = |weight: f64, points: Vec<f64>| {
        totals.iter_mut().zip(points).for_each(|(total, points)| *total += weight * points);
    };
    weigh(3.0, lowest(places.iter().map(|place| untolerated(pod, place)).collect()));
    weigh(2.0, of_highest(places.iter().map(|place| preferred(pod, place)).collect()));
    weigh(2.0, between(places.iter().map(|place| float(near.score(place))).collect()));
    if spread.is_soft() {
        weigh(2.0, crowds(places.iter().map(|place| spread.crowd(place)).collect()));
    }
    weigh(1.0, places.iter().map(|place| least_allocated(pod, place)).collect());
    weigh(1.0, places.iter().map(|place| balanced(pod, place)).collect());
    let ranked = places.iter().zip(totals).reduce(|best, next| {
        let better = next.1.total_cmp(&best.1).then(best.0.pods.len().cmp(&next.0.pods.len()));
        if better.is_gt() { next } else { best }
    });
    ranked.map(|(place, _)| *place)
}

#[expect(clippy::cast_precision_loss, reason = "points need no precision")]
fn float(number: i64) -> f64 {
    number as f64
}

/// Taints that would rather not have the pod.
fn untolerated(pod: &Pod, place: &Place) -> f64 {
    let tolerations = &placement(pod).tolerations;
    let soft = place.node.taints().filter(|taint| taint.effect == Effect::PreferNoSchedule);
    let count = soft.filter(|taint| !tolerations.iter().any(|one| one.tolerates(taint))).count();
    float(i64::try_from(count).unwrap_or(i64::MAX))
}

/// How much the pod likes the node.
fn preferred(pod: &Pod, place: &Place) -> f64 {
    let (wishes, meta) = (&placement(pod).affinity.node_affinity.preferred, &place.node.metadata);
    let fulfilled = wishes.iter().filter(|wish| wish.preference.matches(&meta.name, &meta.labels));
    float(fulfilled.map(|wish| wish.weight).sum())
}

/// What would be taken of the node, cpu and memory, as parts of the whole.
fn taken(pod: &Pod, place: &Place) -> [f64; 2] {
    let there = ["cpu", "memory"].map(|name| place.node.status.allocatable.get(name));
    [0, 1].map(|at| {
        let wanted = float(place.likely[at] + pod.spec.likely[at]);
        if there[at] <= 0 { 1.0 } else { (wanted / float(there[at])).min(1.0) }
    })
}

fn least_allocated(pod: &Pod, place: &Place) -> f64 {
    let [cpu, memory] = taken(pod, place);
    ((1.0 - cpu) * FULL + (1.0 - memory) * FULL) / 2.0
}

fn balanced(pod: &Pod, place: &Place) -> f64 {
    let [cpu, memory] = taken(pod, place);
    (1.0 - (cpu - memory).abs() / 2.0) * FULL
}

/// The highest gets a hundred points, the others their part of that.
fn of_highest(values: Vec<f64>) -> Vec<f64> {
    let highest = values.iter().copied().fold(0.0, f64::max);
    values.into_iter().map(|value| if highest > 0.0 { value / highest * FULL } else { 0.0 }).collect()
}

/// The other way round.
fn lowest(values: Vec<f64>) -> Vec<f64> {
    of_highest(values).into_iter().map(|points| FULL - points).collect()
}

/// The lowest gets none, the highest a hundred.
fn between(values: Vec<f64>) -> Vec<f64> {
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let range = highest - lowest;
    values.into_iter().map(|value| if range > 0.0 { (value - lowest) / range * FULL } else { 0.0 }).collect()
}

/// The emptier the better; a place that can't be told gets nothing.
fn crowds(values: Vec<Option<f64>>) -> Vec<f64> {
    let known = values.iter().flatten().copied();
    let (lowest, highest) = (known.clone().fold(f64::INFINITY, f64::min), known.fold(0.0, f64::max));
    let points = |crowd: f64| if highest > 0.0 { (highest + lowest - crowd) / highest * FULL } else { FULL };
    values.into_iter().map(|value| value.map_or(0.0, points)).collect()
}
