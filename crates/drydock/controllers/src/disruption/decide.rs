//! The decision about a PodDisruptionBudget: from it, its pods and what controls them to what it allows. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::objects::meta::OwnerReference;
use crate::objects::pod::Pod;
use crate::objects::workload::{Budget, BudgetCondition, BudgetStatus, IntOrPercent};
use crate::replica_set::whole_seconds;

/// How long an eviction that was granted may take until it is taken for not having happened.
const EVICTION_TIMEOUT: SignedDuration = SignedDuration::from_secs(120);

/// What is known when a budget is decided on.
pub struct View<'a> {
    /// The budget.
    pub budget: &'a Budget,
    /// The pods it selects.
    pub pods: &'a [Arc<Pod>],
    /// The size of what controls them. Only asked for shares.
    pub scales: &'a Known,
    /// The time.
    pub now: Timestamp,
}

/// The size of what controls a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The uid of what is scaled: the Deployment, not its ReplicaSet.
    pub uid: Box<str>,
    /// How many pods it wants.
    pub replicas: i32,
}

/// What is known of the size of what controls pods, by the uid of the pod's controller.
pub type Known = HashMap<Box<str>, Result<Scale, Unscaled>>;

/// Why it is not known how many pods the controller of a pod wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unscaled {
    /// It is not there, or another one has its name.
    Gone,
    /// Objects of its kind, as in `daemonsets.apps`, have no size that could be asked for.
    Sizeless(String),
    /// Nothing is served of its kind.
    Unserved {
        /// The kind.
        kind: Box<str>,
        /// Its group and version.
        api_version: Box<str>,
    },
}

impl Unscaled {
    /// Nothing is served of the kind of this owner.
    pub fn unserved(owner: &OwnerReference) -> Self {
        Self::Unserved { kind: owner.kind.clone(), api_version: owner.api_version.clone() }
    }

    /// Why, about this pod, in Kubernetes' words.
    fn told(&self, pod: &Pod) -> String {
        match self {
            Self::Gone => format!("found no controllers for pod \"{}\"", pod.metadata.name),
            Self::Sizeless(kind) => format!("{kind} does not implement the scale subresource"),
            Self::Unserved { kind, api_version } => {
                format!("no matches for kind \"{kind}\" in version \"{api_version}\"")
            }
        }
    }
}

/// Whether the number of pods there should be is asked of what controls them.
pub fn needs_scales(budget: &Budget) -> bool {
    budget.spec.max_unavailable.is_some()
        || matches!(budget.spec.min_available, Some(IntOrPercent::Percent(_)))
}

/// What is decided about a budget.
pub struct Decision {
    /// What to say.
    pub status: BudgetStatus,
    /// Pods whose eviction was granted and that nobody deleted in time.
    pub kept: Vec<Arc<Pod>>,
    /// When a granted eviction must be looked at again.
    pub look_again: Option<Duration>,
}

/// Decides what the budget allows. A pod whose controller has no size makes that impossible: the error says which.
pub fn decide(view: &View<'_>) -> Result<Decision, String> {
    let (budget, now) = (view.budget, view.now);
    let mut expected = i32::try_from(view.pods.len()).unwrap_or(i32::MAX);
    if needs_scales(budget) {
        expected = expected_scale(view)?;
    }
    let desired = match (&budget.spec.max_unavailable, &budget.spec.min_available) {
        (Some(maximum), _) => (expected - maximum.of(expected, true)).max(0),
        (None, Some(minimum)) => minimum.of(expected, true),
        (None, None) => 0,
    };
    let Granted { disrupted, kept, first } = granted(view);
    let healthy = view
        .pods
        .iter()
        .filter(|pod| !pod.metadata.deleting() && pod.ready() && !disrupted.contains_key(&*pod.metadata.name))
        .count();
    let healthy = i32::try_from(healthy).unwrap_or(i32::MAX);
    // A budget without pods allows nothing: it would be wrong the moment the first one comes.
    let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
    let generation = budget.metadata.generation;
    let (is, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let status = BudgetStatus {
        observed_generation: generation,
        disrupted_pods: disrupted,
        disruptions_allowed: allowed,
        current_healthy: healthy,
        desired_healthy: desired,
        expected_pods: expected,
        conditions: conditions(&budget.status.conditions, generation, is, reason, "", now),
    };
    let look_again = first.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
    Ok(Decision { status, kept, look_again })
}

/// What to say when nothing can be decided: that nothing may go.
pub fn fail_safe(budget: &Budget, message: &str, now: Timestamp) -> BudgetStatus {
    let held = &budget.status;
    let conditions =
        conditions(&held.conditions, held.observed_generation, "False", "SyncFailed", message, now);
    BudgetStatus { disruptions_allowed: 0, conditions, ..held.clone() }
}

fn conditions(
    held: &[BudgetCondition],
    generation: i64,
    is: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Vec<BudgetCondition> {
    const TYPE: &str = "DisruptionAllowed";
    let before = held.iter().find(|condition| &*condition.r#type == TYPE && &*condition.status == is);
    let new = BudgetCondition {
        r#type: TYPE.into(),
        status: is.into(),
        observed_generation: generation,
        last_transition_time: before
            .and_then(|condition| condition.last_transition_time)
            .or_else(|| Some(whole_seconds(now))),
        reason: reason.into(),
        message: message.into(),
    };
    let mut all = held.to_vec();
    match all.iter_mut().find(|condition| &*condition.r#type == TYPE) {
        Some(own) => *own = new,
        None => all.push(new),
    }
    all
}

/// How many pods there should be: the sizes of all that control them, each counted once. Pods that nothing
/// controls do not count.
fn expected_scale(view: &View<'_>) -> Result<i32, String> {
    let mut sizes = BTreeMap::new();
    for pod in view.pods {
        let Some(owner) = pod.metadata.controller() else { continue };
        let scale = view.scales.get(&owner.uid).map_or(Err(&Unscaled::Gone), Result::as_ref);
        let scale = scale.map_err(|why| why.told(pod))?;
        sizes.insert(scale.uid.clone(), scale.replicas);
    }
    Ok(sizes.values().sum())
}

/// The evictions that were granted and have not happened yet.
#[derive(Default)]
struct Granted {
    /// Those that still may.
    disrupted: BTreeMap<Box<str>, Timestamp>,
    /// The pods of those that should have.
    kept: Vec<Arc<Pod>>,
    /// When the first that may runs out.
    first: Option<Timestamp>,
}

fn granted(view: &View<'_>) -> Granted {
    let mut granted = Granted::default();
    for pod in view.pods.iter().filter(|pod| !pod.metadata.deleting()) {
        let Some(at) = view.budget.status.disrupted_pods.get(&*pod.metadata.name) else { continue };
        let Ok(end) = at.checked_add(EVICTION_TIMEOUT) else { continue };
        if end >= view.now {
            granted.disrupted.insert((&*pod.metadata.name).into(), *at);
            granted.first = Some(granted.first.map_or(end, |first| first.min(end)));
        } else {
            granted.kept.push(pod.clone());
        }
    }
    granted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::pod::Ready;

    const NOW: &str = "2026-01-01T01:00:00Z";

    fn pods(text: &str) -> Vec<Arc<Pod>> {
        let read = |(at, word): (usize, &str)| {
            let (is, owner) = word.split_once(':').unwrap_or((word, ""));
            let mut pod = Pod::default();
            pod.metadata.name = format!("p{at}").into();
            pod.status.ready = Some(Ready { is: is != "unready", since: None });
            if is == "going" {
                pod.metadata.deletion_timestamp = Some(NOW.parse().unwrap());
            }
            if !owner.is_empty() {
                let owner =
                    OwnerReference { uid: owner.into(), controller: Some(true), ..Default::default() };
                pod.metadata.owner_references.push(owner);
            }
            Arc::new(pod)
        };
        text.split_whitespace().enumerate().map(read).collect()
    }

    #[track_caller]
    fn check(spec: &str, status: &str, given: &str, expected: &str) {
        let text = format!(r#"{{"metadata":{{"name":"b","generation":1}},"spec":{spec},"status":{status}}}"#);
        let budget: Budget = serde_json::from_str(&text).unwrap();
        let scale = |uid: &str, replicas| Ok(Scale { uid: uid.into(), replicas });
        let thing =
            OwnerReference { kind: "Thing".into(), api_version: "x.io/v1".into(), ..Default::default() };
        let scales = HashMap::from([
            ("rs1".into(), scale("d", 4)),
            ("rs2".into(), scale("d", 4)),
            ("other".into(), scale("other", 2)),
            ("gone".into(), Err(Unscaled::Gone)),
            ("daemons".into(), Err(Unscaled::Sizeless("daemonsets.apps".into()))),
            ("thing".into(), Err(Unscaled::unserved(&thing))),
        ]);
        let pods = pods(given);
        let now = NOW.parse().unwrap();
        let told = match decide(&View { budget: &budget, pods: &pods, scales: &scales, now }) {
            Ok(Decision { status, kept, look_again }) => format!(
                "allowed {} healthy {}/{} expected {} {}{}{}",
                status.disruptions_allowed,
                status.current_healthy,
                status.desired_healthy,
                status.expected_pods,
                status.conditions[0].reason,
                kept.iter().map(|pod| format!(" kept {}", pod.metadata.name)).collect::<String>(),
                look_again.map(|wait| format!(" again in {wait:?}")).unwrap_or_default()
            ),
            Err(message) => message,
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn a_minimum_leaves_what_is_healthy_beyond_it() {
        check(
            r#"{"minAvailable":2}"#,
            "{}",
            "ready ready ready",
            "allowed 1 healthy 3/2 expected 3 SufficientPods",
        );
        check(
            r#"{"minAvailable":2}"#,
            "{}",
            "ready ready unready",
            "allowed 0 healthy 2/2 expected 3 InsufficientPods",
        );
        check(
            r#"{"minAvailable":2}"#,
            "{}",
            "ready ready going",
            "allowed 0 healthy 2/2 expected 3 InsufficientPods",
        );
        check(r#"{"minAvailable":0}"#, "{}", "", "allowed 0 healthy 0/0 expected 0 InsufficientPods");
    }

    #[test]
    fn shares_are_of_what_the_controllers_want() {
        let (maximum, minimum) = (r#"{"maxUnavailable":1}"#, r#"{"minAvailable":"50%"}"#);
        check(
            maximum,
            "{}",
            "ready:rs1 ready:rs2 ready:rs2",
            "allowed 0 healthy 3/3 expected 4 InsufficientPods",
        );
        check(
            minimum,
            "{}",
            "ready:rs1 ready:rs2 ready:other",
            "allowed 0 healthy 3/3 expected 6 InsufficientPods",
        );
        check(
            r#"{"maxUnavailable":"30%"}"#,
            "{}",
            "ready:rs1 ready:rs1 ready:rs1 ready:rs1",
            "allowed 2 healthy 4/2 expected 4 SufficientPods",
        );
    }

    #[test]
    fn a_pod_whose_controller_has_no_size_stops_the_decision() {
        let told = |pods: &str, expected: &str| check(r#"{"maxUnavailable":1}"#, "{}", pods, expected);
        told("ready:rs1 ready:gone ready:thing", r#"found no controllers for pod "p1""#);
        told("ready:daemons ready:gone", "daemonsets.apps does not implement the scale subresource");
        told("ready:rs1 ready:never-asked", r#"found no controllers for pod "p1""#);
        told("ready:rs1 ready:thing", r#"no matches for kind "Thing" in version "x.io/v1""#);
    }

    #[test]
    fn granted_evictions_count_until_they_run_out() {
        let recent = r#"{"disruptedPods":{"p0":"2026-01-01T00:59:00Z"}}"#;
        check(
            r#"{"minAvailable":1}"#,
            recent,
            "ready ready",
            "allowed 0 healthy 1/1 expected 2 InsufficientPods again in 60s",
        );
        let past = r#"{"disruptedPods":{"p0":"2026-01-01T00:57:00Z"}}"#;
        check(
            r#"{"minAvailable":1}"#,
            past,
            "ready ready",
            "allowed 1 healthy 2/1 expected 2 SufficientPods kept p0",
        );
        check(
            r#"{"minAvailable":1}"#,
            past,
            "going ready",
            "allowed 0 healthy 1/1 expected 2 InsufficientPods",
        );
    }

    #[test]
    fn a_transition_time_moves_only_with_the_status() {
        let mut budget = Budget::default();
        budget.spec.min_available = Some(IntOrPercent::Int(1));
        let (pods, scales) = (pods("ready ready"), HashMap::new());
        let view = |budget: &Budget, now: &str| {
            let view = View { budget, pods: &pods, scales: &scales, now: now.parse().unwrap() };
            decide(&view).map(|decision| decision.status).unwrap()
        };
        budget.status = view(&budget, "2026-01-01T00:00:00Z");
        assert_eq!(view(&budget, NOW), budget.status);
    }
}
