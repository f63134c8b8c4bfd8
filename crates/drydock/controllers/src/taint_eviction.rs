//! Pods that a person's taint `NoExecute` sends away from their node.
//!
//! A pod that does not tolerate all of them is deleted at once; one that tolerates them for a while, after the shortest
//! of these times, unless the taint is gone by then.
//!
//! # Guarantees
//! - A pod is said to be the victim of a disruption before it is deleted, so that who counts its pods does not blame it.
//! - When a pod is to go is decided once: other taints change nothing about it, but for one that it does not tolerate,
//!   which sends it away at once, and none that does, which lets it stay.
//! - A pod that goes already, because somebody else deleted it, is treated like any other.
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
use crate::objects::meta::Meta;
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
    /// For as long, from when that is first seen.
    For(Duration),
    /// Not at all.
    No,
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
            return Stay::No;
        };
        let Some(seconds) = toleration.toleration_seconds else { continue };
        let time = Duration::from_secs(seconds.try_into().unwrap_or(0));
        least = Some(least.map_or(time, |least: Duration| least.min(time)));
    }
    least.map_or(Stay::Ever, Stay::For)
}

/// When pods are to go.
#[derive(Default)]
struct Schedule(HashMap<Key, Planned>);

/// When a pod is to go.
struct Planned {
    /// Which it is.
    uid: Box<str>,
    /// When; nothing is left to be done about one that was sent away after its time.
    at: Option<Timestamp>,
}

/// What to do about a pod now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// Nothing, until something changes.
    Leave,
    /// Look again.
    Wait(Duration),
    /// Send it away.
    Evict,
}

impl Schedule {
    /// Forgets when a pod was to go. Says whether it still was.
    fn cancel(&mut self, key: &Key) -> bool {
        self.0.remove(key).is_some_and(|planned| planned.at.is_some())
    }

    /// Takes in how long a pod may stay; nothing is known of one whose node is gone, and what was decided stands. Says
    /// whether it is no longer to go when it was, and what to do.
    fn take_in(&mut self, key: &Key, uid: &str, stay: Option<Stay>, now: Timestamp) -> (bool, Then) {
        if self.0.get(key).is_some_and(|planned| *planned.uid != *uid) {
            self.0.remove(key);
        }
        let planned = match stay {
            Some(Stay::Ever) => return (self.cancel(key), Then::Leave),
            Some(Stay::No) => return (self.cancel(key), Then::Evict),
            Some(Stay::For(time)) => {
                let planned =
                    || Planned { uid: uid.into(), at: Some(now.saturating_add(time).unwrap_or(now)) };
                Some(&*self.0.entry(key.clone()).or_insert_with(planned))
            }
            None => self.0.get(key),
        };
        let then = match planned.and_then(|planned| planned.at) {
            None => Then::Leave,
            Some(at) if at <= now => Then::Evict,
            Some(at) => Then::Wait(Duration::try_from(at.duration_since(now)).unwrap_or_default()),
        };
        (false, then)
    }

    /// Takes in that a pod was sent away.
    fn sent_away(&mut self, key: &Key) {
        if let Some(planned) = self.0.get_mut(key) {
            planned.at = None;
        }
    }
}

/// The controller.
pub struct Controller {
    rest: Rest,
    recorder: Recorder,
    clock: Clock,
    pods: Arc<Cache<Pod>>,
    nodes: Arc<Cache<Node>>,
    schedule: Mutex<Schedule>,
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
            if change.after.is_none() || node.is_some_and(|node| evicting(&node).next().is_some()) {
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
        Self { rest, recorder, clock, pods, nodes, schedule: Mutex::default() }
    }

    /// Looks at one pod.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(pod) = self.pods.get(key) else {
            if self.schedule.lock().cancel(key) {
                let (namespace, name) = (key.namespace.clone(), key.name.clone());
                self.tell_cancelled(&Pod {
                    metadata: Meta { namespace, name, ..Meta::default() },
                    ..Pod::default()
                });
            }
            return Ok(Next::OnChange);
        };
        let node = self.nodes.get(&Key::new("", &*pod.spec.node_name));
        let stay = node.map(|node| stay(evicting(&node), pod.spec.tolerations()));
        let (cancelled, then) = self.schedule.lock().take_in(key, &pod.metadata.uid, stay, (self.clock)());
        if cancelled {
            self.tell_cancelled(&pod);
        }
        match then {
            Then::Leave => return Ok(Next::OnChange),
            Then::Wait(time) => return Ok(Next::After(time)),
            Then::Evict => {}
        }
        self.evict(key, &pod).await?;
        self.schedule.lock().sent_away(key);
        self.recorder.record(&*pod, Severity::Normal, REASON, format!("Marking for deletion Pod {key}"));
        Ok(Next::OnChange)
    }

    fn tell_cancelled(&self, pod: &Pod) {
        let message = format!("Cancelling deletion of Pod {}", pod.metadata.key());
        self.recorder.record(pod, Severity::Normal, REASON, message);
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

    const fn seconds(seconds: u64) -> Stay {
        Stay::For(Duration::from_secs(seconds))
    }

    /// How long a pod with these tolerations (`key=value:Effect@seconds`) may stay under these taints.
    #[track_caller]
    fn check(taints: &[&str], tolerations: &[&str], expected: Stay) {
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
        assert_eq!(stay(evicting(&node), pod.spec.tolerations()), expected);
    }

    #[test]
    fn who_tolerates_all_taints_stays_and_who_misses_one_goes() {
        check(&[], &[], Stay::Ever);
        check(&["a:NoExecute"], &[], Stay::No);
        check(&["a:NoExecute"], &["a:NoExecute"], Stay::Ever);
        check(&["a=x:NoExecute"], &["a=y:NoExecute"], Stay::No);
        check(&["a=x:NoExecute", "b:NoExecute"], &["a=x:NoExecute", "b:NoSchedule"], Stay::No);
        check(&["a=x:NoExecute", "b:NoExecute"], &["a=x:NoExecute", "b:"], Stay::Ever);
        check(&["a:NoSchedule", "b:PreferNoSchedule"], &[], Stay::Ever);
    }

    #[test]
    fn the_shortest_time_counts_and_the_first_toleration() {
        check(&["a:NoExecute"], &["a:NoExecute@60"], seconds(60));
        check(&["a:NoExecute"], &["a:NoExecute@0"], seconds(0));
        check(&["a:NoExecute"], &["a:NoExecute@-5"], seconds(0));
        check(&["a:NoExecute", "b:NoExecute"], &["a:NoExecute@60", "b:NoExecute@9"], seconds(9));
        check(&["a:NoExecute", "b:NoExecute"], &["a:NoExecute@60", "b:NoExecute"], seconds(60));
        check(&["a=x:NoExecute"], &["a:NoExecute@60", "a=x:NoExecute@9"], seconds(60));
        check(&["a:NoExecute", "b:NoExecute"], &["a:NoExecute@60"], Stay::No);
    }

    #[test]
    fn what_became_of_the_node_evicts_nobody() {
        let key = |word: &str| format!("node.kubernetes.io/{word}:NoExecute");
        check(&[&key("not-ready"), &key("unreachable")], &[], Stay::Ever);
        check(&[&key("unreachable")], &[&format!("{}@300", key("unreachable"))], Stay::Ever);
        check(&[&key("out-of-service")], &[], Stay::No);
    }

    /// What is told and done about a pod as it may stay for so long (`-` when its node is gone), each so many seconds after
    /// the beginning. `sent` means that it was sent away.
    #[track_caller]
    fn follow(steps: &[(u64, &str)], expected: &str) {
        let (start, key): (Timestamp, _) = ("2026-01-01T00:00:00Z".parse().unwrap(), Key::new("n", "p"));
        let mut schedule = Schedule::default();
        let mut said = Vec::new();
        for (after, word) in steps {
            let stay = match *word {
                "sent" => {
                    schedule.sent_away(&key);
                    continue;
                }
                "-" => None,
                "ever" => Some(Stay::Ever),
                "no" => Some(Stay::No),
                number => Some(seconds(number.parse().unwrap())),
            };
            let (cancelled, then) = schedule.take_in(&key, "u", stay, start + Duration::from_secs(*after));
            said.extend(cancelled.then(|| "cancelled".to_owned()));
            said.push(match then {
                Then::Leave => "left".into(),
                Then::Wait(time) => format!("waits {}", time.as_secs()),
                Then::Evict => "goes".into(),
            });
        }
        assert_eq!(said.join(", "), expected);
    }

    #[test]
    fn when_a_pod_goes_is_decided_once() {
        follow(
            &[(0, "60"), (10, "60"), (20, "5"), (30, "600"), (60, "600")],
            "waits 60, waits 50, waits 40, waits 30, goes",
        );
        follow(&[(0, "60"), (20, "0"), (30, "-"), (60, "-")], "waits 60, waits 40, waits 30, goes");
        follow(&[(0, "0")], "goes");
        follow(&[(0, "-")], "left");
    }

    #[test]
    fn who_may_stay_again_or_not_at_all_is_told_that_it_was_cancelled() {
        follow(&[(0, "60"), (10, "ever"), (20, "60")], "waits 60, cancelled, left, waits 60");
        follow(&[(0, "60"), (10, "no"), (11, "no")], "waits 60, cancelled, goes, goes");
        follow(&[(0, "ever"), (10, "ever")], "left, left");
    }

    #[test]
    fn who_was_sent_away_after_its_time_is_so_once() {
        follow(&[(0, "1"), (1, "1"), (1, "sent"), (2, "1")], "waits 1, goes, left");
        follow(&[(0, "1"), (1, "1"), (1, "sent"), (2, "no")], "waits 1, goes, goes");
        follow(&[(0, "1"), (1, "1"), (1, "sent"), (2, "ever")], "waits 1, goes, left");
    }

    #[test]
    fn another_pod_of_the_name_has_its_own_time() {
        let (start, key): (Timestamp, _) = ("2026-01-01T00:00:00Z".parse().unwrap(), Key::new("n", "p"));
        let mut schedule = Schedule::default();
        schedule.take_in(&key, "1", Some(seconds(60)), start);
        let later = schedule.take_in(&key, "2", Some(seconds(60)), start + Duration::from_secs(50));
        assert_eq!(later, (false, Then::Wait(Duration::from_secs(60))));
        assert!(schedule.cancel(&key));
        assert!(!schedule.cancel(&key));
    }
}
