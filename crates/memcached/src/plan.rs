//! From what is seen to what is done. Reads like the runbook it replaces.

use std::time::Duration;

use ballast_operator::{
    Class, ConditionStatus, Conditions, Effect, EventType, Failed, Object, Plan, Standing, Unreadable, View,
};
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Service, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use serde_json::Value;

use crate::{
    Cache, Memcached, MemcachedStatus, Problem,
    desired::{self, selector},
    observe::{Observed, Rollout, Trouble, observe},
};

/// How soon to look again at a name that a stranger holds. Its going is no event of ours.
const STRANGER_CHECK: Duration = Duration::from_secs(30);
/// How soon to look again at what the garbage collector is about to take.
const LEFTOVER_CHECK: Duration = Duration::from_secs(2);

/// Why nothing comes of it, where a step of the plan can't be carried out.
const STEP_FAILED: &str = "StepFailed";

/// After so many rounds in a row, what may pass by itself has not.
const LASTING: u32 = 3;

pub(crate) fn plan(view: &View<Memcached>) -> Plan {
    if view.is_being_deleted() {
        // The garbage collector takes the children; there is nothing to hold on to.
        return Plan::empty();
    }
    match Cache::try_from(&view.resource) {
        Err(problems) => wait_for_a_better_spec(view, &problems),
        Ok(cache) => bring_about(view, &cache),
    }
}

/// The schema lets no such spec in, but a CRD can be older than the operator.
fn wait_for_a_better_spec(view: &View<Memcached>, problems: &[Problem]) -> Plan {
    let message = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let old = view.resource.status.clone().unwrap_or_default();
    let conditions = conditions_of(view)
        .set("Ready", ConditionStatus::Unknown, "InvalidSpec", "the spec can't be understood")
        .set("Progressing", false, "InvalidSpec", "nothing is changed until the spec is")
        .set("Degraded", true, "InvalidSpec", message);
    let mut plan = Plan::empty();
    finish(&mut plan, view, MemcachedStatus { conditions: conditions.into_list(), ..old });
    plan
}

fn bring_about(view: &View<Memcached>, cache: &Cache) -> Plan {
    let mut plan = Plan::empty();
    let deployment = Object::of(&desired::deployment(view, cache));
    let names = Names::look(view, cache);
    if names.deployment.is_free() {
        apply_children(&mut plan, view, cache, &names, &deployment);
    }
    let live = names.deployment.ours();
    let observed = observe(view, cache, live, &deployment);
    announce_changes(&mut plan, cache, &names, live);
    finish(&mut plan, view, status(view, cache, &names, &observed));
    if let Some(after) = names.look_again() {
        plan.then(Effect::LookAgain(after), "whoever holds the name may let it go without our being told");
    }
    plan
}

fn apply_children(
    plan: &mut Plan,
    view: &View<Memcached>,
    cache: &Cache,
    names: &Names,
    deployment: &Object,
) {
    plan.apply(deployment.clone(), format!("{} of {}", nodes(cache.size), cache.image));
    if names.service.is_free() {
        plan.apply(Object::of(&desired::service(view, cache)), "clients find every node under one name");
    }
    if names.budget.is_free() {
        plan.apply(
            Object::of(&desired::disruption_budget(view, cache)),
            "machines are drained one node at a time",
        );
    }
}

fn nodes(count: i32) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}

/// Who holds the names that the cache needs.
struct Names {
    deployment: Name<Deployment>,
    service: Name<Service>,
    budget: Name<PodDisruptionBudget>,
}

/// What stands under a name, and whether it can be read.
struct Name<K>(Result<Standing<K>, Unreadable>);

impl<K> Name<K> {
    /// Nobody's or ours: may be applied.
    fn is_free(&self) -> bool {
        !matches!(self.0, Ok(Standing::Leftover | Standing::Stranger { .. }))
    }

    fn ours(&self) -> Option<&K> {
        match &self.0 {
            Ok(Standing::Ours(ours)) => Some(ours),
            _ => None,
        }
    }

    fn trouble(&self, kind: &str, name: &str) -> Option<Trouble> {
        match &self.0 {
            Ok(Standing::Absent | Standing::Ours(_)) => None,
            Ok(Standing::Leftover) => Some(Trouble::new(
                "NameTaken",
                format!("the {kind} {name} of a deleted Memcached is still there and will be collected"),
            )),
            Ok(Standing::Stranger { controller }) => {
                let whose = match controller {
                    Some(owner) => format!("belongs to {owner}"),
                    None => "was not made by this Memcached".to_owned(),
                };
                Some(Trouble::new(
                    "NameTaken",
                    format!(
                        "the {kind} {name} {whose} and is left alone: delete it, or give this Memcached another name"
                    ),
                ))
            }
            Err(unreadable) => Some(Trouble::new("Unreadable", unreadable.to_string())),
        }
    }
}

impl Names {
    fn look(view: &View<Memcached>, cache: &Cache) -> Self {
        Names {
            deployment: Name(view.standing(&cache.name)),
            service: Name(view.standing(&cache.name)),
            budget: Name(view.standing(&cache.name)),
        }
    }

    fn trouble(&self, cache: &Cache) -> Option<Trouble> {
        let name = &cache.name;
        self.deployment
            .trouble("Deployment", name)
            .or_else(|| self.service.trouble("Service", name))
            .or_else(|| self.budget.trouble("PodDisruptionBudget", name))
    }

    fn look_again(&self) -> Option<Duration> {
        let holders = [held_by(&self.deployment.0), held_by(&self.service.0), held_by(&self.budget.0)];
        holders.into_iter().flatten().min()
    }
}

fn held_by<K>(name: &Result<Standing<K>, Unreadable>) -> Option<Duration> {
    match name {
        Ok(Standing::Leftover) => Some(LEFTOVER_CHECK),
        Ok(Standing::Stranger { .. }) => Some(STRANGER_CHECK),
        _ => None,
    }
}

/// What the nodes are about to go through, said once: when the Deployment does not say it yet.
fn announce_changes(plan: &mut Plan, cache: &Cache, names: &Names, live: Option<&Deployment>) {
    let because = "people see it with kubectl describe";
    let mut say = |reason: &str, action: &str, note: String| {
        plan.event(EventType::Normal, reason, action, note, because);
    };
    let Some(live) = live else {
        if names.deployment.is_free() {
            let note = format!("made the Deployment, the Service and the disruption budget {}", cache.name);
            say("Created", "Create", note);
        }
        return;
    };
    let spec = live.spec.clone().unwrap_or_default();
    let replicas = spec.replicas.unwrap_or(1);
    if replicas != cache.size {
        say("Scaling", "Scale", format!("from {} to {}", nodes(replicas), nodes(cache.size)));
    }
    let containers = spec.template.spec.unwrap_or_default().containers;
    let image =
        containers.into_iter().find(|container| container.name == desired::CONTAINER).and_then(|c| c.image);
    if let Some(image) = image.filter(|image| *image != cache.image) {
        say("Upgrading", "Upgrade", format!("from {image} to {}", cache.image));
    }
}

fn status(view: &View<Memcached>, cache: &Cache, names: &Names, observed: &Observed) -> MemcachedStatus {
    let old = view.resource.status.as_ref();
    let complete = observed.rollout == Rollout::Complete;
    let trouble = names.trouble(cache).or_else(|| last_round(view)).or_else(|| observed.trouble.clone());
    let selected: Vec<String> =
        selector(cache).iter().map(|(name, value)| format!("{name}={value}")).collect();
    MemcachedStatus {
        nodes: observed.nodes.clone(),
        observed_generation: view.generation(),
        replicas: observed.replicas,
        ready_replicas: observed.ready,
        selector: Some(selected.join(",")),
        version: if complete { Some(cache.version.clone()) } else { old.and_then(|old| old.version.clone()) },
        conditions: conditions(view, cache, names, observed, trouble).into_list(),
    }
}

fn conditions(
    view: &View<Memcached>,
    cache: &Cache,
    names: &Names,
    observed: &Observed,
    trouble: Option<Trouble>,
) -> Conditions {
    let blocked = names.deployment.trouble("Deployment", &cache.name);
    let mut count = format!("{} of {} ready", observed.ready, nodes(cache.size));
    if let Some(why) = &observed.unschedulable {
        count = format!("{count}; pods wait for a machine: {why}");
    }
    if observed.ready >= cache.size && observed.rollout != Rollout::Complete {
        count = format!("{count}, not all as wanted yet");
    }
    let all = conditions_of(view);
    let all =
        match (&blocked, &observed.rollout) {
            (Some(blocked), _) if blocked.reason == "Unreadable" => all
                .set("Ready", ConditionStatus::Unknown, blocked.reason, blocked.message.clone())
                .set("Progressing", ConditionStatus::Unknown, blocked.reason, blocked.message.clone()),
            (Some(blocked), _) => all
                .set("Ready", false, blocked.reason, "there are no nodes: the name is taken")
                .set("Progressing", false, blocked.reason, "nothing is made until the name is free"),
            (None, Rollout::Underway) => {
                let before = view.resource.status.as_ref().and_then(|status| status.version.as_ref());
                let reason = if before.is_none() { "Creating" } else { "Updating" };
                all.set("Ready", false, reason, count).set(
                    "Progressing",
                    true,
                    reason,
                    "nodes are started or replaced",
                )
            }
            (None, Rollout::Refused { message }) => all.set("Ready", false, STEP_FAILED, count).set(
                "Progressing",
                false,
                STEP_FAILED,
                format!("nothing is changed: the server refuses the Deployment: {message}"),
            ),
            (None, Rollout::Stuck { message }) => all
                .set("Ready", false, "ProgressDeadlineExceeded", count)
                .set("Progressing", false, "ProgressDeadlineExceeded", message.clone()),
            (None, Rollout::Complete) => all.set("Ready", true, "AllNodesReady", count).set(
                "Progressing",
                false,
                "Settled",
                "nothing is being changed",
            ),
        };
    match trouble {
        Some(trouble) => all.set("Degraded", true, trouble.reason, trouble.message),
        None => all.set("Degraded", false, "AsExpected", "nothing is known to be wrong"),
    }
}

fn conditions_of(view: &View<Memcached>) -> Conditions {
    Conditions::from(old_conditions(view), view.generation(), view.now)
}

fn old_conditions(view: &View<Memcached>) -> &[Condition] {
    view.resource.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
}

/// What came of the steps of the last round, where that is worth a person's attention.
///
/// A failure that asks only for another try is given a few: a server that is busy for a second is daily fare.
fn last_round(view: &View<Memcached>) -> Option<Trouble> {
    let outcome = view.last_outcome.as_ref()?;
    let lasting = |failed: &&Failed| failed.failure.class != Class::Retry || failed.times >= LASTING;
    if let Some(failed) = outcome.failed.as_ref().filter(lasting) {
        return Some(Trouble::new(STEP_FAILED, format!("{}: {}", failed.step, failed.failure.message)));
    }
    let contest = outcome.contested.first()?;
    Some(Trouble::new(
        "FieldContested",
        format!("{} keeps changing {} of {}", contest.manager, contest.path, contest.object),
    ))
}

/// The status, and the events that go with what changed in it.
fn finish(plan: &mut Plan, view: &View<Memcached>, status: MemcachedStatus) {
    for new in &status.conditions {
        let old = old_conditions(view).iter().find(|old| old.type_ == new.type_);
        announce_condition(plan, old, new);
    }
    let because = "what people and programs read of it";
    let value = serde_json::to_value(status).unwrap_or(Value::Null);
    plan.then(Effect::Status(value), because);
}

fn announce_condition(plan: &mut Plan, old: Option<&Condition>, new: &Condition) {
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
