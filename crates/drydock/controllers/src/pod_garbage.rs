//! Pods that nobody will ever end: those of a node that is no more, and those that go and never had a node.
//!
//! # Guarantees
//! - A node counts as gone only when it was not known for a while, and then the server itself says so.
//! - What did not end yet is said to have failed before it is deleted, so that who counts its pods sees it. A pod that
//!   had a node is said to be the victim of a disruption, not of itself.
//! - A pod that only waits for its finalizers is left alone.
//!
//! What is not here: pods that ended are never too many, and a node is not declared out of service.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::Clock;
use crate::machinery::cache::{Cache, Kind};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::rest::{Error, Rest};
use crate::objects::node::Node;
use crate::objects::pod::Pod;
use crate::objects::resource::Key;
use crate::objects::service::Bare;
use crate::replica_set::whole_seconds;

/// How long a node may be unknown, and how often a pod of it is looked at: Kubernetes' numbers.
const QUARANTINE: Duration = Duration::from_secs(40);
const TURN: Duration = Duration::from_secs(20);

const VICTIM: &str = "DisruptionTarget";

/// What is to be done about a pod.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Nothing: somebody else looks after it, or nothing helps.
    Keep,
    /// Its node is not known, but not for long enough. It is to be looked at again.
    Wait(Duration),
    /// It is to go, if the server does not know its node either.
    Orphaned,
    /// It is to go.
    Unscheduled,
}

/// Decides about a pod. `missing` is for how long its node is not known, if it is not.
fn decide(pod: &Pod, missing: Option<Duration>) -> Verdict {
    let deleting = pod.metadata.deleting();
    if deleting && pod.finished() && pod.metadata.deletion_grace_period_seconds.unwrap_or(0) == 0 {
        return Verdict::Keep;
    }
    match missing {
        _ if pod.spec.node_name.is_empty() && deleting => Verdict::Unscheduled,
        None => Verdict::Keep,
        Some(_) if pod.spec.node_name.is_empty() => Verdict::Keep,
        Some(time) if time < QUARANTINE => Verdict::Wait(TURN.min(QUARANTINE - time)),
        Some(_) => Verdict::Orphaned,
    }
}

/// What is said of a pod that goes because of a disruption.
pub(crate) fn victim(pod: &Pod, reason: &str, message: &str, now: Timestamp) -> Value {
    let mut condition = json!({
        "type": VICTIM,
        "status": "True",
        "reason": reason,
        "message": message,
        "observedGeneration": pod.metadata.generation,
    });
    // One that was a victim before is so since then.
    if !pod.status.conditions.iter().any(|held| held == (VICTIM, "True")) {
        condition["lastTransitionTime"] = json!(whole_seconds(now));
    }
    condition
}

/// What is said of a pod that did not end before it is deleted.
fn failed(pod: &Pod, orphaned: bool, now: Timestamp) -> Option<Value> {
    if pod.finished() {
        return None;
    }
    let mut status = json!({ "phase": "Failed", "observedGeneration": pod.metadata.generation });
    if orphaned {
        let said = victim(pod, "DeletionByPodGC", "PodGC: node no longer exists", now);
        status["conditions"] = json!([said]);
    }
    Some(json!({ "metadata": { "uid": pod.metadata.uid }, "status": status }))
}

/// The controller.
pub struct Controller {
    rest: Rest,
    clock: Clock,
    pods: Arc<Cache<Pod>>,
    nodes: Arc<Cache<Node>>,
    /// Since when the node of a pod is not known.
    missing: Mutex<HashMap<Key, Timestamp>>,
}

impl Controller {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        clock: Clock,
        pods: &mut Informer<Pod>,
        nodes: &mut Informer<Node>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        let (keys, known) = (queue.clone(), nodes.cache.clone());
        pods.on_change(move |change| {
            let Some(pod) = change.latest() else { return };
            let unattended = match &*pod.spec.node_name {
                "" => pod.metadata.deleting(),
                node => !known.contains(&Key::new("", node)),
            };
            if unattended {
                keys.add(pod.metadata.key());
            }
        });
        let (keys, all) = (queue.clone(), pods.cache.clone());
        nodes.on_change(move |change| {
            if let (Some(node), None) | (None, Some(node)) = (change.before, change.after) {
                let own = all.all(|pod| *pod.spec.node_name == *node.metadata.name);
                own.iter().for_each(|pod| keys.add(pod.metadata.key()));
            }
        });
        Self { rest, clock, pods: pods.cache.clone(), nodes: nodes.cache.clone(), missing: Mutex::default() }
    }

    /// Looks at one pod.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(pod) = self.pods.get(key) else {
            self.missing.lock().remove(key);
            return Ok(Next::OnChange);
        };
        let now = (self.clock)();
        let orphaned = match decide(&pod, self.missing(key, &pod, now)) {
            Verdict::Keep => return Ok(Next::OnChange),
            Verdict::Wait(time) => return Ok(Next::After(time)),
            Verdict::Unscheduled => false,
            Verdict::Orphaned if self.has_node(&pod).await? => return Ok(Next::After(TURN)),
            Verdict::Orphaned => true,
        };
        if let Some(patch) = failed(&pod, orphaned, now) {
            match self.rest.patch_status(Pod::resource(), key, crate::WATCHER, &patch).await {
                Err(error) if error.not_found() => return Ok(Next::OnChange),
                other => other.map(drop)?,
            }
        }
        match self.rest.delete_at_once(Pod::resource(), key, &pod.metadata.uid).await {
            Err(error) if !error.not_found() => Err(error),
            _ => Ok(Next::OnChange),
        }
    }

    /// For how long the node of a pod is not known.
    fn missing(&self, key: &Key, pod: &Pod, now: Timestamp) -> Option<Duration> {
        let name = &pod.spec.node_name;
        let mut missing = self.missing.lock();
        if name.is_empty() || self.nodes.contains(&Key::new("", &**name)) {
            missing.remove(key);
            return None;
        }
        let since = *missing.entry(key.clone()).or_insert(now);
        Some(Duration::try_from(now.duration_since(since)).unwrap_or_default())
    }

    /// Whether the server knows the node of a pod.
    async fn has_node(&self, pod: &Pod) -> Result<bool, Error> {
        let key = Key::new("", &*pod.spec.node_name);
        match self.rest.get::<Bare>(Node::resource(), &key, None).await {
            Err(error) if error.not_found() => Ok(false),
            other => other.map(|_| true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00.5Z";
    const GOING: &str = r#","deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds""#;

    fn pod(going: &str, node: &str, status: &str) -> Pod {
        let text = format!(
            r#"{{"metadata":{{"name":"p","namespace":"n","uid":"u","generation":2{going}}},
                "spec":{{"nodeName":"{node}"}},"status":{status}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[track_caller]
    fn check(pod: &Pod, missing: Option<u64>, expected: Verdict) {
        assert_eq!(decide(pod, missing.map(Duration::from_secs)), expected);
    }

    #[test]
    fn a_pod_of_a_node_that_is_gone_for_long_enough_goes() {
        let seconds = Duration::from_secs;
        for phase in ["Pending", "Running", "Succeeded", "Failed"] {
            let here = pod("", "there", &format!(r#"{{"phase":"{phase}"}}"#));
            check(&here, None, Verdict::Keep);
            check(&here, Some(0), Verdict::Wait(seconds(20)));
            check(&here, Some(20), Verdict::Wait(seconds(20)));
            check(&here, Some(39), Verdict::Wait(seconds(1)));
            check(&here, Some(40), Verdict::Orphaned);
        }
    }

    #[test]
    fn a_pod_that_goes_and_never_had_a_node_goes_at_once() {
        check(&pod("", "", "{}"), None, Verdict::Keep);
        check(&pod(&format!("{GOING}:30"), "", "{}"), None, Verdict::Unscheduled);
        check(&pod(&format!("{GOING}:0"), "", "{}"), None, Verdict::Unscheduled);
        check(&pod(&format!("{GOING}:30"), "there", "{}"), None, Verdict::Keep);
    }

    #[test]
    fn a_pod_that_only_waits_for_its_finalizers_is_left_alone() {
        for (node, missing) in [("", None), ("gone", Some(60))] {
            check(&pod(&format!("{GOING}:0"), node, r#"{"phase":"Failed"}"#), missing, Verdict::Keep);
        }
        let waits = pod(&format!("{GOING}:30"), "gone", r#"{"phase":"Failed"}"#);
        check(&waits, Some(60), Verdict::Orphaned);
    }

    #[test]
    fn a_pod_that_did_not_end_is_said_to_have_failed_and_why() {
        let said = |pod: &Pod, orphaned| failed(pod, orphaned, NOW.parse().unwrap());
        let runs = pod("", "gone", r#"{"phase":"Running"}"#);
        let mut condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists", "observedGeneration": 2, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let patch = |status: Value| Some(json!({"metadata": {"uid": "u"}, "status": status}));
        let mut status = json!({"phase": "Failed", "observedGeneration": 2});
        assert_eq!(said(&runs, false), patch(status.clone()));
        status["conditions"] = json!([condition]);
        assert_eq!(said(&runs, true), patch(status.clone()));
        let victim = r#"{"phase":"Running","conditions":[{"type":"DisruptionTarget","status":"True"}]}"#;
        condition.as_object_mut().unwrap().remove("lastTransitionTime");
        status["conditions"] = json!([condition]);
        assert_eq!(said(&pod("", "gone", victim), true), patch(status));
        for phase in ["Succeeded", "Failed"] {
            assert_eq!(said(&pod("", "gone", &format!(r#"{{"phase":"{phase}"}}"#)), true), None);
        }
    }
}
