//! From what is seen to what is done. Reads like the runbook it replaces.

use ballast_operator::{Effect, EventType, KindRef, Object, Plan, Removal, Target, View};
use k8s_openapi::api::core::v1::Pod;

use crate::{Gordon, Wanted, crew::Crew, desired, status};

pub(crate) fn plan(view: &View<Gordon>) -> Plan {
    if view.is_being_deleted() {
        // The garbage collector takes the pods; there is nothing to hold on to.
        return Plan::empty();
    }
    let mut plan = Plan::empty();
    match Wanted::try_from(&view.resource) {
        // The schema lets no such spec in, but a CRD can be older than the operator.
        Err(problems) => status::wait_for_a_better_spec(&mut plan, view, &problems),
        Ok(wanted) => {
            let crew = Crew::look(view);
            if crew.living.len() < wanted.replicas {
                fill_up(&mut plan, view, &wanted, &crew);
            } else {
                clear_away(&mut plan, view, &wanted, &crew);
            }
            status::report(&mut plan, view, &wanted, &crew);
        }
    }
    plan
}

/// Makes what is missing. One that ended keeps its place until its successor's time has come.
fn fill_up(plan: &mut Plan, view: &View<Gordon>, wanted: &Wanted, crew: &Crew) {
    let missing = wanted.replicas - crew.living.len();
    let (due, waiting): (Vec<_>, Vec<_>) =
        crew.ended.iter().partition(|ended| ended.wait(view.now).is_zero());
    let mut attempts = due.iter().map(|ended| ended.next_attempt());
    let names = crew.names(missing.saturating_sub(waiting.len()));
    for name in &names {
        let attempt = attempts.next().unwrap_or(0);
        let because = match attempt {
            0 => format!("{} of {} are there", crew.living.len(), pods(wanted.replicas)),
            _ => "it succeeds one that ended".to_owned(),
        };
        plan.apply(Object::of(&desired::pod(view, wanted, name.clone(), attempt)), because);
    }
    if !names.is_empty() {
        let note = format!("made {}", names.join(", "));
        plan.event(EventType::Normal, "PodsCreated", "Create", note, "people see it with kubectl describe");
    }
    // Where names ran out, the rest waits for pods that are on their way out.
    for ended in due.iter().take(names.len()) {
        remove(plan, view, &ended.pod, "it ended, and its successor is made");
    }
    if let Some(wait) = waiting.iter().map(|ended| ended.wait(view.now)).min() {
        plan.then(Effect::LookAgain(wait), "pods that end again and again are replaced more and more rarely");
    }
}

/// Removes what ended, what is too many, and what is of another image when its turn has come.
fn clear_away(plan: &mut Plan, view: &View<Gordon>, wanted: &Wanted, crew: &Crew) {
    for ended in &crew.ended {
        remove(plan, view, &ended.pod, "it ended, and there are enough without it");
    }
    let surplus = crew.surplus(wanted);
    for pod in &surplus {
        let because = format!("{} are there, and {} wanted", pods(crew.living.len()), wanted.replicas);
        remove(plan, view, pod, &because);
    }
    let turn = if surplus.is_empty() { crew.turn(wanted) } else { Vec::new() };
    for pod in &turn {
        remove(plan, view, pod, &format!("it is replaced by one of {}", wanted.image));
    }
    let gone: Vec<&str> =
        surplus.iter().chain(&turn).filter_map(|pod| pod.metadata.name.as_deref()).collect();
    if !gone.is_empty() {
        let note = format!("removed {}", gone.join(", "));
        plan.event(EventType::Normal, "PodsRemoved", "Remove", note, "people see it with kubectl describe");
    }
}

fn remove(plan: &mut Plan, view: &View<Gordon>, pod: &Pod, because: &str) {
    let kind = KindRef::of::<Pod>();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    if let Some(seen) = view.children.object(&kind, name) {
        plan.then(Effect::Remove { target: Target::of(&kind, seen), right: Removal::Child }, because);
    }
}

pub(crate) fn pods(count: usize) -> String {
    if count == 1 { "1 pod".to_owned() } else { format!("{count} pods") }
}
