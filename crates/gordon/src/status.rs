//! What is said of a Gordon.

use ballast_operator::{Conditions, Plan, Trouble, View, pod};

use crate::{
    Gordon, GordonStatus, Problem, Wanted,
    crew::{Crew, is_outdated},
    desired::{CONTAINER, selector},
    plan::pods,
};

/// The spec can't be understood, and nothing is done about it.
pub(crate) fn wait_for_a_better_spec(plan: &mut Plan, view: &View<Gordon>, problems: &[Problem]) {
    let old = view.resource.status.clone().unwrap_or_default();
    let conditions = view.conditions().invalid_spec(problems).into_list();
    plan.report(view, GordonStatus { conditions, ..old });
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
    plan.report(view, status);
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
    let all = view.conditions();
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
    all.degraded([pod_trouble(wanted, crew), view.last_trouble()].into_iter().flatten())
}

fn pod_trouble(wanted: &Wanted, crew: &Crew) -> Option<Trouble> {
    if let Some(mut trouble) = pod::trouble(&crew.living, CONTAINER) {
        let old = crew.living.iter().find(|living| is_outdated(living, wanted) && pod::is_ready(living));
        if let Some(image) = old.and_then(|old| pod::image(old, CONTAINER)) {
            let way = format!(". Pods of {image} go on running: set spec.gordon.image back to it");
            trouble.message.push_str(&way);
        }
        return Some(trouble);
    }
    let waits = crew.ended.iter().find(|ended| ended.next_attempt() > 1)?;
    let name = waits.pod.metadata.name.as_deref().unwrap_or_default();
    let why =
        waits.pod.status.as_ref().and_then(|status| status.reason.as_deref()).unwrap_or("no reason given");
    Some(Trouble::new("PodsEnd", format!("pods end soon after they are made, last {name}: {why}")))
}
