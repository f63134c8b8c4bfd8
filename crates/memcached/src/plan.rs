//! From what is seen to what is done. Reads like the runbook it replaces.

use std::time::Duration;

use ballast_operator::{
    Answers, ConditionStatus, Conditions, Effect, EventType, KindRef, Object, Operator as _, Plan, Removal,
    Scope, Standing, Taken, Target, Trouble, Unreadable, View, pod,
};
use jiff::SignedDuration;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Service},
    policy::v1::PodDisruptionBudget,
};
use kube_core::Resource;
use serde::de::DeserializeOwned;

use crate::{
    Cache, Memcached, MemcachedOperator, MemcachedStatus, Problem, SilentServer,
    desired::{self, selector},
    observe::{Observed, Rollout, behind, observe, pods},
    servers::{PATIENCE, Servers, freshness},
    statistics::statistics,
};

/// Why what was done is said.
const TOLD: &str = "people see it with kubectl describe";

/// How long pods are looked for that the Deployment speaks of. Where their image is changed on their way, they are never
/// seen.
const BEHIND: SignedDuration = SignedDuration::from_mins(1);

pub(crate) fn plan(view: &View<Memcached>, answers: &Answers) -> Plan {
    if view.is_being_deleted() {
        // The garbage collector takes the children; there is nothing to hold on to.
        return Plan::empty();
    }
    match Cache::try_from(&view.resource) {
        Err(problems) => wait_for_a_better_spec(view, &problems),
        Ok(cache) => bring_about(view, &cache, answers),
    }
}

/// Nothing is done about a spec that can't be understood.
fn wait_for_a_better_spec(view: &View<Memcached>, problems: &[Problem]) -> Plan {
    let old = view.resource.status.clone().unwrap_or_default();
    let conditions = view.conditions().invalid_spec(problems).into_list();
    let mut plan = Plan::empty();
    plan.report(view, MemcachedStatus { conditions, ..old });
    plan
}

fn bring_about(view: &View<Memcached>, cache: &Cache, answers: &Answers) -> Plan {
    let mut plan = Plan::empty();
    let servers = Servers::of(&pods(view), answers);
    let paused = servers.stopped_by(cache).is_some();
    let deployment = Object::of(&desired::deployment(view, cache, paused));
    let names = Names::look(view, cache);
    let live = names.deployment.ours();
    if names.deployment.is_free() {
        apply_children(&mut plan, view, cache, &names, live, &deployment);
    }
    let observed = observe(view, cache, live, &deployment, &servers);
    let silent = servers.silent(old_silent(view), view.now);
    if observed.rollout == Rollout::Complete {
        replace_a_silent_one(&mut plan, view, &servers, &silent);
    }
    plan.report(view, status(view, cache, &names, &observed, &servers, silent));
    if let Some(after) = names.look_again() {
        plan.then(Effect::LookAgain(after), "whoever holds the name may let it go without our being told");
    }
    if let Some(ago) = behind(view, live).filter(|ago| *ago < BEHIND) {
        // A server that is not seen is not asked, and an upgrade to one that hangs would go on.
        plan.look_anew(KindRef::of::<Pod>(), ago, "the Deployment speaks of nodes that are not seen");
    }
    if servers.asked() > 0 {
        plan.then(Effect::LookAgain(freshness(view)), "whether a server serves is known only by asking it");
    }
    plan
}

/// Kubernetes can't tell a server that hangs from one that is idle.
fn replace_a_silent_one(plan: &mut Plan, view: &View<Memcached>, servers: &Servers, silent: &[SilentServer]) {
    let kind = KindRef::of::<Pod>();
    let Some(hung) = servers.to_replace(silent, view.now) else { return };
    let Some(pod) = view.children.object(&kind, &hung.pod) else { return };
    let note = format!(
        "{} takes connections and said nothing for {PATIENCE:?}: it is deleted, and the Deployment makes another",
        hung.pod
    );
    let because = "it hangs, and Kubernetes can't tell";
    plan.then(Effect::Remove { target: Target::of(&kind, pod), right: Removal::Child }, because);
    plan.event(EventType::Warning, "ServerReplaced", "Replace", note, "people should know of it");
}

fn old_silent(view: &View<Memcached>) -> &[SilentServer] {
    view.resource.status.as_ref().map(|status| status.silent.as_slice()).unwrap_or_default()
}

fn apply_children(
    plan: &mut Plan,
    view: &View<Memcached>,
    cache: &Cache,
    names: &Names,
    live: Option<&Deployment>,
    deployment: &Object,
) {
    plan.apply(deployment.clone(), format!("{} of {}", nodes(cache.size), cache.image));
    if let Some(live) = live {
        announce_changes(plan, view, cache, live, deployment);
    }
    if names.service.is_free() {
        plan.apply(Object::of(&desired::service(view, cache)), "clients find every node under one name");
    }
    if names.budget.is_free() {
        plan.apply(
            Object::of(&desired::disruption_budget(view, cache)),
            "machines are drained one node at a time",
        );
    }
    if live.is_none() {
        let note = format!("made the Deployment, the Service and the disruption budget {}", cache.name);
        plan.event(EventType::Normal, "Created", "Create", note, TOLD);
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

/// What stands under a name.
struct Name<K> {
    standing: Result<Standing<K>, Unreadable>,
    taken: Option<Taken>,
}

impl<K> Name<K>
where
    K: Resource<DynamicType = (), Scope: Scope> + DeserializeOwned,
{
    fn look(view: &View<Memcached>, name: &str) -> Self {
        Name { standing: view.standing(name), taken: view.taken::<K>(name) }
    }

    /// Nobody's or ours: may be applied.
    fn is_free(&self) -> bool {
        self.taken.is_none()
    }

    fn ours(&self) -> Option<&K> {
        match &self.standing {
            Ok(Standing::Ours(ours)) => Some(ours),
            _ => None,
        }
    }

    fn trouble(&self) -> Option<Trouble> {
        let unreadable = self.standing.as_ref().err();
        let taken = self.taken.as_ref().map(|taken| taken.trouble.clone());
        taken.or_else(|| unreadable.map(|why| Trouble::new("Unreadable", why.to_string())))
    }
}

impl Names {
    fn look(view: &View<Memcached>, cache: &Cache) -> Self {
        Names {
            deployment: Name::look(view, &cache.name),
            service: Name::look(view, &cache.name),
            budget: Name::look(view, &cache.name),
        }
    }

    fn trouble(&self) -> Option<Trouble> {
        self.deployment.trouble().or_else(|| self.service.trouble()).or_else(|| self.budget.trouble())
    }

    fn look_again(&self) -> Option<Duration> {
        let taken = [&self.deployment.taken, &self.service.taken, &self.budget.taken];
        taken.into_iter().flatten().map(|taken| taken.look_again).min()
    }
}

/// What the nodes go through, said once: when the Deployment does not say it yet. What somebody wrote
/// into the Deployment is put right, and is said by that alone. It comes right after the Deployment: whatever fails
/// later, that was done.
fn announce_changes(
    plan: &mut Plan,
    view: &View<Memcached>,
    cache: &Cache,
    live: &Deployment,
    want: &Object,
) {
    let edited = |field: &str| view.was_edited(want, MemcachedOperator::FIELD_MANAGER, field);
    let mut say = |reason: &str, action: &str, note: String| {
        plan.event(EventType::Normal, reason, action, note, TOLD);
    };
    let spec = live.spec.as_ref();
    let replicas = spec.and_then(|spec| spec.replicas).unwrap_or(1);
    if replicas != cache.size && !edited(".spec.replicas") {
        say("Scaling", "Scale", format!("from {} to {}", nodes(replicas), nodes(cache.size)));
    }
    let template = spec.and_then(|spec| spec.template.spec.as_ref());
    let image = template.and_then(|template| pod::image_in(template, desired::CONTAINER));
    if let Some(image) = image.filter(|image| *image != cache.image && !edited(".image")) {
        say("Upgrading", "Upgrade", format!("from {image} to {}", cache.image));
    }
}

fn status(
    view: &View<Memcached>,
    cache: &Cache,
    names: &Names,
    observed: &Observed,
    servers: &Servers,
    silent: Vec<SilentServer>,
) -> MemcachedStatus {
    let old = view.resource.status.as_ref();
    let troubles = [names.trouble(), observed.trouble.clone(), view.last_trouble()];
    let selected: Vec<String> =
        selector(cache).iter().map(|(name, value)| format!("{name}={value}")).collect();
    let endpoints = servers.endpoints();
    let same = old.is_some_and(|old| old.servers == endpoints);
    let shown = old.and_then(|old| old.statistics.as_ref());
    MemcachedStatus {
        nodes: observed.nodes.clone(),
        observed_generation: view.generation(),
        replicas: observed.replicas,
        ready_replicas: servers.serving(),
        selector: Some(selected.join(",")),
        version: servers.version().or_else(|| old.and_then(|old| old.version.clone())),
        statistics: statistics(shown, &servers.stats(), same, view.now),
        servers: endpoints,
        silent,
        conditions: conditions(view, cache, names, observed, servers, troubles).into_list(),
    }
}

fn conditions(
    view: &View<Memcached>,
    cache: &Cache,
    names: &Names,
    observed: &Observed,
    servers: &Servers,
    troubles: [Option<Trouble>; 3],
) -> Conditions {
    let mut count = format!("{} of {} ready", servers.serving(), nodes(cache.size));
    if let Some(why) = &observed.unschedulable {
        count = format!("{count}; pods wait for a machine: {why}");
    }
    if servers.serving() >= cache.size && observed.rollout != Rollout::Complete {
        count = format!("{count}, not all as wanted yet");
    }
    let all = view.conditions();
    let blocked = names.deployment.trouble();
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
            (None, Rollout::Refused { message }) => all.set("Ready", false, Trouble::STEP_FAILED, count).set(
                "Progressing",
                false,
                Trouble::STEP_FAILED,
                format!("nothing is changed: the server refuses the Deployment: {message}"),
            ),
            (None, Rollout::Stuck { message }) => all
                .set("Ready", false, "ProgressDeadlineExceeded", count)
                .set("Progressing", false, "ProgressDeadlineExceeded", message.clone()),
            (None, Rollout::Stopped { message }) => all.set("Ready", false, "UpgradeStopped", count).set(
                "Progressing",
                false,
                "UpgradeStopped",
                message.clone(),
            ),
            (None, Rollout::Complete) => ready_as_they_say(all, cache, servers, count).set(
                "Progressing",
                false,
                "Settled",
                "nothing is being changed",
            ),
        };
    all.degraded(troubles.into_iter().flatten())
}

/// Kubernetes says that every node is up; whether they serve they say themselves.
fn ready_as_they_say(all: Conditions, cache: &Cache, servers: &Servers, count: String) -> Conditions {
    if servers.serving() >= cache.size {
        return all.set("Ready", true, "AllNodesReady", count);
    }
    if let Some(fault) = servers.iter().find_map(crate::servers::Server::fault) {
        return all.set("Ready", false, "NotServing", format!("{count}: {fault}"));
    }
    let doubt = servers.iter().find_map(crate::servers::Server::doubt);
    let doubt = doubt.unwrap_or_else(|| "nobody said why not".to_owned());
    all.set("Ready", ConditionStatus::Unknown, "NotVerified", format!("{count}: {doubt}"))
}
