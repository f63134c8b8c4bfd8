//! What is said of a Gordon: its status, and the events that go with what changed in it.

use ballast_operator::{Class, ConditionStatus, Conditions, Effect, EventType, Failed, Plan, View, pod};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Condition};
use serde_json::Value;

use crate::{
    Gordon, GordonStatus, Problem, Wanted,
    crew::{Crew, is_outdated},
    desired::{CONTAINER, selector},
    plan::pods,
};

/// After so many rounds in a row, what may pass by itself has not.
const LASTING: u32 = 3;

/// The spec can't be understood, and nothing is done about it.
pub(crate) fn wait_for_a_better_spec(plan: &mut Plan, view: &View<Gordon>, problems: &[Problem]) {
    let message = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let old = view.resource.status.clone().unwrap_or_default();
    let conditions = conditions_of(view)
        .set("Ready", ConditionStatus::Unknown, "InvalidSpec", "the spec can't be understood")
        .set("Progressing", false, "InvalidSpec", "nothing is changed until the spec is")
        .set("Degraded", true, "InvalidSpec", message);
    finish(plan, view, GordonStatus { conditions: conditions.into_list(), ..old });
}

/// What the view shows.
pub(crate) fn report(plan: &mut Plan, view: &View<Gordon>, wanted: &Wanted, crew: &Crew) {
    let selected: Vec<String> =
        selector(wanted).iter().map(|(name, value)| format!("{name}={value}")).collect();
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let mut names: Vec<String> = crew.living.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
    names.sort();
    let status = GordonStatus {
        pods: names,
        observed_generation: view.generation(),
        replicas: count(crew.living.len()),
        ready_replicas: count(crew.ready()),
        selector: Some(selected.join(",")),
        conditions: conditions(view, wanted, crew).into_list(),
    };
    finish(plan, view, status);
}

fn conditions(view: &View<Gordon>, wanted: &Wanted, crew: &Crew) -> Conditions {
    let outdated = crew.living.iter().filter(|living| is_outdated(living, wanted)).count();
    let settled = crew.living.len() == wanted.replicas && crew.ready() == wanted.replicas && outdated == 0;
    let mut ready = format!("{} of {} ready", crew.ready(), pods(wanted.replicas));
    if let Some(why) = crew.living.iter().find_map(pod::unschedulable) {
        ready = format!("{ready}; pods wait for a machine: {why}");
    }
    if outdated > 0 {
        ready = format!("{ready}, {outdated} of another image than {}", wanted.image);
    }
    let all = conditions_of(view);
    let all = if settled {
        all.set("Ready", true, "AllPodsReady", ready).set(
            "Progressing",
            false,
            "Settled",
            "nothing is being changed",
        )
    } else {
        let reason = if outdated > 0 { "Updating" } else { "PodsNotReady" };
        all.set("Ready", false, reason, ready).set(
            "Progressing",
            true,
            reason,
            "pods are started or replaced",
        )
    };
    match last_round(view).or_else(|| pod_trouble(wanted, crew)) {
        Some((reason, message)) => all.set("Degraded", true, reason, message),
        None => all.set("Degraded", false, "AsExpected", "nothing is known to be wrong"),
    }
}

/// The first pod that fails stands for all.
fn pod_trouble(wanted: &Wanted, crew: &Crew) -> Option<(&'static str, String)> {
    let failing: Vec<(&Pod, (&'static str, String))> =
        crew.living.iter().filter_map(|living| Some((living, pod::trouble(living, CONTAINER)?))).collect();
    if let Some((_, (reason, first))) = failing.first() {
        let mut message = format!("{} of {} fail: {first}", failing.len(), pods(crew.living.len()));
        let old = crew.living.iter().find(|living| is_outdated(living, wanted) && pod::is_ready(living));
        if let Some(image) = old.and_then(|old| pod::image(old, CONTAINER)) {
            message = format!("{message}. Pods of {image} go on running: set spec.gordon.image back to it");
        }
        return Some((reason, message));
    }
    let waits = crew.ended.iter().find(|ended| ended.next_attempt() > 1)?;
    let name = waits.pod.metadata.name.as_deref().unwrap_or_default();
    let why =
        waits.pod.status.as_ref().and_then(|status| status.reason.as_deref()).unwrap_or("no reason given");
    Some(("PodsEnd", format!("pods end soon after they are made, last {name}: {why}")))
}

/// What came of the steps of the last round, where that is worth a person's attention.
///
/// A failure that asks only for another try is given a few: a server that is busy for a second is daily fare.
fn last_round(view: &View<Gordon>) -> Option<(&'static str, String)> {
    let lasting = |failed: &&Failed| failed.failure.class != Class::Retry || failed.times >= LASTING;
    let failed = view.last_outcome.as_ref()?.failed.as_ref().filter(lasting)?;
    Some(("StepFailed", format!("{}: {}", failed.step, failed.failure.message)))
}

fn conditions_of(view: &View<Gordon>) -> Conditions {
    Conditions::from(old_conditions(view), view.generation(), view.now)
}

fn old_conditions(view: &View<Gordon>) -> &[Condition] {
    view.resource.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
}

/// The status, and the events that go with what changed in it.
fn finish(plan: &mut Plan, view: &View<Gordon>, status: GordonStatus) {
    for new in &status.conditions {
        let old = old_conditions(view).iter().find(|old| old.type_ == new.type_);
        announce(plan, old, new);
    }
    let value = serde_json::to_value(status).unwrap_or(Value::Null);
    plan.then(Effect::Status(value), "what people and programs read of it");
}

fn announce(plan: &mut Plan, old: Option<&Condition>, new: &Condition) {
    let was = old.map_or("", |old| old.status.as_str());
    let because = format!("{} was {}", new.type_, if was.is_empty() { "not known" } else { was });
    match (new.type_.as_str(), was, new.status.as_str()) {
        ("Ready", "False" | "Unknown" | "", "True") => {
            plan.event(EventType::Normal, "Ready", "Reconcile", new.message.clone(), because);
        }
        ("Degraded", was, "True") if was != "True" || old.is_some_and(|old| old.reason != new.reason) => {
            plan.event(EventType::Warning, new.reason.clone(), "Reconcile", new.message.clone(), because);
        }
        ("Degraded", "True", "False") => {
            plan.event(EventType::Normal, "Recovered", "Reconcile", new.message.clone(), because);
        }
        _ => {}
    }
}
