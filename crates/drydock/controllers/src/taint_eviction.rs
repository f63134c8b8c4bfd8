//! Pods that a person's taint `NoExecute` sends away from their node.
//!
//! A pod that does not tolerate all of them is deleted at once; one that tolerates them for a while, after the shortest
//! of these times, unless the taint is gone by then.
//!
//! # Guarantees
//! - A pod is said to be the victim of a disruption before it is deleted, so that who counts its pods does not blame it.
//! - Time counts from when the pod was first seen under a taint, and not anew with each that is added.
//!
//! What is not here: a node that is not ready or silent evicts nobody. Its pods run without it, and there is no other
//! that they could go to.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::Clock;
use crate::machinery::cache::{Cache, Kind};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::recorder::{Recorder, Severity};
use crate::machinery::rest::{Error, Rest};
use crate::node_lifecycle::{NOT_READY, UNREACHABLE};
use crate::objects::node::{Effect, Node, Taint};
use crate::objects::placement::Toleration;
use crate::objects::pod::Pod;
use crate::objects::resource::Key;
use crate::pod_garbage::victim;

const REASON: &str = "TaintManagerEviction";

/// How long a pod may stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stay {
    /// As long as it wants.
    Ever,
    /// For as long, from when it was first seen under a taint.
    For(Duration),
}

/// Those of a node's taints that send pods away.
fn evicting(node: &Node) -> impl Iterator<Item = &Taint> {
    let judged = |key: &str| [NOT_READY, UNREACHABLE].contains(&key);
    node.spec.taints.iter().filter(move |taint| taint.effect == Effect::NoExecute && !judged(&taint.key))
}

/// How long a pod may stay under these taints. Of several tolerations of a taint the first counts.
fn stay<'a>(taints: impl Iterator<Item = &'a Taint>, tolerations: &[Toleration]) -> Stay {
    let mut least = None;
    for taint in taints {
        let Some(toleration) = tolerations.iter().find(|one| one.tolerates(taint)) else {
            return Stay::For(Duration::ZERO);
        };
        let Some(seconds) = toleration.toleration_seconds else { continue };
        let time = Duration::from_secs(seconds.try_into().unwrap_or(0));
        least = Some(least.map_or(time, |least: Duration| least.min(time)));
    }
    least.map_or(Stay::Ever, Stay::For)
}

/// The controller.
pub struct Controller {
    rest: Rest,
    recorder: Recorder,
    clock: Clock,
    pods: Arc<Cache<Pod>>,
    nodes: Arc<Cache<Node>>,
    /// Who is to go later, and since when it is under a taint.
    since: Mutex<HashMap<Key, (Box<str>, Timestamp)>>,
}

impl Controller {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        recorder: Recorder,
        clock: Clock,
        pods: &mut Informer<Pod>,
        nodes: &mut Informer<Node>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        let (keys, known) = (queue.clone(), nodes.cache.clone());
        pods.on_change(move |change| {
            let Some(pod) = change.latest().filter(|pod| !pod.spec.node_name.is_empty()) else { return };
            let same = |before: &Arc<Pod>| {
                before.spec.node_name == pod.spec.node_name
                    && before.spec.tolerations() == pod.spec.tolerations()
            };
            if change.after.is_some() && change.before.is_some_and(same) {
                return;
            }
            let node = known.get(&Key::new("", &*pod.spec.node_name));
            if node.is_some_and(|node| evicting(&node).next().is_some()) {
                keys.add(pod.metadata.key());
            }
        });
        let (keys, all) = (queue.clone(), pods.cache.clone());
        nodes.on_change(move |change| {
            let taints = |node: Option<&Arc<Node>>| -> Vec<Taint> {
                node.map(|node| evicting(node).cloned().collect()).unwrap_or_default()
            };
            if taints(change.before) != taints(change.after)
                && let Some(node) = change.latest()
            {
                let own = all.all(|pod| *pod.spec.node_name == *node.metadata.name);
                own.iter().for_each(|pod| keys.add(pod.metadata.key()));
            }
        });
        let (pods, nodes) = (pods.cache.clone(), nodes.cache.clone());
        Self { rest, recorder, clock, pods, nodes, since: Mutex::default() }
    }

    /// Looks at one pod.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(pod) = self.pods.get(key).filter(|pod| !pod.metadata.deleting()) else {
            self.since.lock().remove(key);
            return Ok(Next::OnChange);
        };
        let stay = match self.nodes.get(&Key::new("", &*pod.spec.node_name)) {
            Some(node) => stay(evicting(&node), pod.spec.tolerations()),
            None => Stay::Ever,
        };
        let left = match stay {
            Stay::Ever => {
                if self.since.lock().remove(key).is_some() {
                    let message = format!("Cancelling deletion of Pod {key}");
                    self.recorder.record(&*pod, Severity::Normal, REASON, message);
                }
                return Ok(Next::OnChange);
            }
            Stay::For(time) => time.saturating_sub(self.passed(key, &pod)),
        };
        if !left.is_zero() {
            return Ok(Next::After(left));
        }
        self.evict(key, &pod).await?;
        self.since.lock().remove(key);
        self.recorder.record(&*pod, Severity::Normal, REASON, format!("Marking for deletion Pod {key}"));
        Ok(Next::OnChange)
    }

    /// For how long a pod is under taints.
    fn passed(&self, key: &Key, pod: &Pod) -> Duration {
        let now = (self.clock)();
        let mut all = self.since.lock();
        let since = all.entry(key.clone()).or_insert_with(|| (pod.metadata.uid.clone(), now));
        if since.0 != pod.metadata.uid {
            *since = (pod.metadata.uid.clone(), now);
        }
        Duration::try_from(now.duration_since(since.1)).unwrap_or_default()
    }

    async fn evict(&self, key: &Key, pod: &Pod) -> Result<(), Error> {
        let said = victim(
            pod,
            "DeletionByTaintManager",
            "Taint manager: deleting due to NoExecute taint",
            (self.clock)(),
        );
        let patch = serde_json::json!({
            "metadata": { "uid": pod.metadata.uid },
            "status": { "conditions": [said] },
        });
        let told = self.rest.patch_status(Pod::resource(), key, crate::WATCHER, &patch).await;
        let gone = match told {
            Ok(_) => self.rest.delete(Pod::resource(), key, &pod.metadata.uid, None, None).await,
            Err(error) => Err(error),
        };
        match gone {
            Err(error) if !error.not_found() => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a pod with these tolerations (`key=value:Effect@seconds`) may stay under these taints, in seconds.
    #[track_caller]
    fn check(taints: &[&str], tolerations: &[&str], expected: Option<u64>) {
        let split = |word: &str| -> serde_json::Value {
            let (what, seconds) = word.split_once('@').unwrap_or((word, ""));
            let (key, effect) = what.split_once(':').unwrap();
            let (key, value) = key.split_once('=').unwrap_or((key, ""));
            let operator = if value.is_empty() { "Exists" } else { "Equal" };
            serde_json::json!({ "key": key, "value": value, "effect": effect, "operator": operator,
                "tolerationSeconds": seconds.parse::<i64>().ok() })
        };
        let all = |words: &[&str]| -> Vec<_> { words.iter().map(|word| split(word)).collect() };
        let node = serde_json::json!({ "spec": { "taints": all(taints) } });
        let pod = serde_json::json!({ "spec": { "tolerations": all(tolerations) } });
        let node: Node = serde_json::from_value(node).unwrap();
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let expected = expected.map_or(Stay::Ever, |seconds| Stay::For(Duration::from_secs(seconds)));
        assert_eq!(stay(evicting(&node), pod.spec.tolerations()), expected);
    }

    #[test]
    fn who_tolerates_all_taints_stays_and_who_misses_one_goes() {
        check(&[], &[], None);
        check(&["a:NoExecute"], &[], Some(0));
        check(&["a:NoExecute"], &["a:NoExecute"], None);
        check(&["a=x:NoExecute"], &["a=y:NoExecute"], Some(0));
        check(&["a=x:NoExecute", "b:NoExecute"], &["a=x:NoExecute", "b:NoSchedule"], Some(0));
        check(&["a=x:NoExecute", "b:NoExecute"], &["a=x:NoExecute", "b:"], None);
        check(&["a:NoSchedule", "b:PreferNoSchedule"], &[], None);
    }

    #[test]
    fn the_shortest_time_counts_and_the_first_toleration() {
        check(&["a:NoExecute"], &["a:NoExecute@60"], Some(60));
        check(&["a:NoExecute"], &["a:NoExecute@0"], Some(0));
        check(&["a:NoExecute"], &["a:NoExecute@-5"], Some(0));
        check(&["a:NoExecute", "b:NoExecute"], &["a:NoExecute@60", "b:NoExecute@9"], Some(9));
        check(&["a:NoExecute", "b:NoExecute"], &["a:NoExecute@60", "b:NoExecute"], Some(60));
        check(&["a=x:NoExecute"], &["a:NoExecute@60", "a=x:NoExecute@9"], Some(60));
        check(&["a:NoExecute", "b:NoExecute"], &["a:NoExecute@60"], Some(0));
    }

    #[test]
    fn what_became_of_the_node_evicts_nobody() {
        let key = |word: &str| format!("node.kubernetes.io/{word}:NoExecute");
        check(&[&key("not-ready"), &key("unreachable")], &[], None);
        check(&[&key("unreachable")], &[&format!("{}@300", key("unreachable"))], None);
        check(&[&key("out-of-service")], &[], Some(0));
    }
}
