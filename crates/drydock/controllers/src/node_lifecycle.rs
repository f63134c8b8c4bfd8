//! What a cordon, and how a node is or that it is silent, amount to, written where others look for it.
//!
//! A node is heard of when its Lease in `kube-node-lease` is renewed, and when it posts its status. The conditions of one
//! that is silent for too long are `Unknown` until it posts them again. Taints follow: from `spec.unschedulable`, and
//! from the condition `Ready`.
//!
//! # Guarantees
//! - A node without a Lease has promised nothing: it is as it was made, but for the taint of a cordon.
//! - Silence counts only while somebody listens: a sleep of the machine, or of this process, is no longer than a turn.
//!
//! What is not here: pods of a silent node are neither evicted nor said to be not ready. They run without it, and there
//! is no other that they could go to.

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
use crate::machinery::recorder::{Recorder, Severity};
use crate::machinery::rest::{Error, PatchType, Rest};
use crate::objects::node::{Effect, Lease, Node, Readiness};
use crate::objects::resource::Key;
use crate::replica_set::whole_seconds;

/// Where nodes have their Leases.
const LEASES: &str = "kube-node-lease";

/// How long a node may be silent, and how often it is listened for: Kubernetes' numbers.
const GRACE: Duration = Duration::from_secs(50);
const TURN: Duration = Duration::from_secs(5);

const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(crate) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The conditions that only the node itself can vouch for.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// When a node renewed its Lease and posted its status, by its own clock: only that it changes means something.
type Sign = (Option<Timestamp>, Option<Timestamp>);

/// A node that is listened for.
struct Heard {
    last: Sign,
    listened: Timestamp,
    silent: Duration,
}

impl Heard {
    /// One that is heard of for the first time.
    fn new(sign: Sign, now: Timestamp) -> Self {
        Self { last: sign, listened: now, silent: Duration::ZERO }
    }

    /// Listens, and says for how long there was nothing. A pause longer than a turn counts as one: nobody listened.
    fn listen(&mut self, sign: Sign, now: Timestamp) -> Duration {
        let pause = Duration::try_from(now.duration_since(self.listened)).unwrap_or_default();
        self.silent = if sign == self.last { self.silent + pause.min(TURN) } else { Duration::ZERO };
        (self.last, self.listened) = (sign, now);
        self.silent
    }
}

/// A taint that this controller answers for, and whether the node shall have it.
type Judged = (&'static str, Effect, bool);

/// What is to be said of a node by taints. Of one without a Lease it is only whether it was cordoned.
fn judge(node: &Node, leased: bool) -> Vec<Judged> {
    let mut judged = vec![(UNSCHEDULABLE, Effect::NoSchedule, node.spec.unschedulable)];
    if leased {
        let state = node.status.ready.state;
        for effect in [Effect::NoSchedule, Effect::NoExecute] {
            judged.push((NOT_READY, effect, state == Readiness::NotReady));
            judged.push((UNREACHABLE, effect, state == Readiness::Unreachable));
        }
    }
    judged
}

/// Whether a node has the taints that it shall have.
fn fits(node: &Node, judged: &[Judged]) -> bool {
    judged.iter().all(|&(key, effect, wanted)| {
        let has = node.spec.taints.iter().any(|taint| &*taint.key == key && taint.effect == effect);
        has == wanted
    })
}

/// The taints of a node as they shall be. What others wrote stays.
fn taints(held: &[Value], judged: &[Judged], now: Timestamp) -> Vec<Value> {
    let mut taints = held.to_vec();
    for &(key, effect, wanted) in judged {
        let is = |taint: &Value| taint["key"] == key && taint["effect"] == json!(effect);
        if !wanted {
            taints.retain(|taint| !is(taint));
        } else if !taints.iter().any(is) {
            taints.push(json!({ "key": key, "effect": effect, "timeAdded": whole_seconds(now) }));
        }
    }
    taints
}

/// What is said of a node that is silent, as far as it is not said yet.
fn unknown(held: &[Value], now: Timestamp) -> Vec<Value> {
    let unknown = |kind: &&str| {
        let before = held.iter().find(|condition| condition["type"] == **kind);
        let (reason, message) = match before.map(|condition| &condition["status"]) {
            Some(status) if status == "Unknown" => return None,
            Some(_) => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
            None => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
        };
        Some(json!({
            "type": kind,
            "status": "Unknown",
            "reason": reason,
            "message": message,
            "lastTransitionTime": whole_seconds(now),
        }))
    };
    CONDITIONS.iter().filter_map(unknown).collect()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The controller.
pub struct Controller {
    rest: Rest,
    recorder: Recorder,
    clock: Clock,
    nodes: Arc<Cache<Node>>,
    leases: Arc<Cache<Lease>>,
    heard: Mutex<HashMap<Key, Heard>>,
}

impl Controller {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        recorder: Recorder,
        clock: Clock,
        nodes: &mut Informer<Node>,
        leases: &mut Informer<Lease>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        nodes.queue_each(queue);
        let keys = queue.clone();
        leases.on_change(move |change| {
            if let Some(lease) = change.latest().filter(|lease| &*lease.metadata.namespace == LEASES) {
                keys.add(Key::new("", lease.metadata.name.clone()));
            }
        });
        let (nodes, leases) = (nodes.cache.clone(), leases.cache.clone());
        Self { rest, recorder, clock, nodes, leases, heard: Mutex::default() }
    }

    /// Listens for one node, and has it say what it amounts to.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let node = self.nodes.get(key);
        let lease = self.leases.get(&Key::new(LEASES, key.name.clone()));
        let Some((node, lease)) = node.as_ref().zip(lease) else {
            self.heard.lock().remove(key);
            if let Some(node) = node {
                self.taint(key, &node, false).await?;
            }
            return Ok(Next::OnChange);
        };
        let silent = self.listen(key, (lease.spec.renew_time, node.status.ready.heartbeat));
        if node.status.ready.state == Readiness::Unreachable {
            self.taint(key, node, true).await?;
            return Ok(Next::OnChange);
        }
        if silent < GRACE {
            self.taint(key, node, true).await?;
        } else {
            self.give_up(key, node).await?;
        }
        Ok(Next::After(TURN))
    }

    fn listen(&self, key: &Key, sign: Sign) -> Duration {
        let now = (self.clock)();
        let mut all = self.heard.lock();
        all.entry(key.clone()).or_insert_with(|| Heard::new(sign, now)).listen(sign, now)
    }

    /// Writes the taints of a node, if they are not there. That changes the node, and nothing else is to be done.
    async fn taint(&self, key: &Key, node: &Node, leased: bool) -> Result<(), Error> {
        if fits(node, &judge(node, leased)) {
            return Ok(());
        }
        let Some((node, live)) = self.live(key).await? else { return Ok(()) };
        let judged = judge(&node, leased);
        if fits(&node, &judged) {
            return Ok(());
        }
        let taints = taints(items(&live["spec"]["taints"]), &judged, (self.clock)());
        let patch = json!({
            "metadata": { "resourceVersion": node.metadata.resource_version },
            "spec": { "taints": Some(taints).filter(|taints| !taints.is_empty()) },
        });
        self.rest.patch(Node::resource(), key, PatchType::Merge, &patch).await.map(drop)
    }

    /// Says of a node that nothing is known of it, unless it was heard of just now. Its taints follow from that.
    async fn give_up(&self, key: &Key, silent: &Node) -> Result<(), Error> {
        let Some((node, live)) = self.live(key).await? else { return Ok(()) };
        if node.status.ready != silent.status.ready {
            return Ok(());
        }
        let patch = json!({
            "metadata": { "resourceVersion": node.metadata.resource_version },
            "status": { "conditions": unknown(items(&live["status"]["conditions"]), (self.clock)()) },
        });
        self.rest.patch_status(Node::resource(), key, crate::WATCHER, &patch).await?;
        let message = format!("Node {} status is now: NodeNotReady", key.name);
        self.recorder.record(&node, Severity::Normal, "NodeNotReady", message);
        Ok(())
    }

    /// A node as it is now, as it is decided on and whole.
    async fn live(&self, key: &Key) -> Result<Option<(Node, Value)>, Error> {
        let live: Value = match self.rest.get(Node::resource(), key, None).await {
            Err(error) if error.not_found() => return Ok(None),
            other => other?,
        };
        let node = serde_json::from_value(live.clone());
        Ok(Some((node.map_err(|error| Error::Request(kube::Error::SerdeError(error)))?, live)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00.5Z";

    /// Which taints a node has of which were there and how it is: `key:effect`, without what all keys begin with.
    #[track_caller]
    fn check(there: &[&str], words: &str, expected: &[&str]) {
        let mut live = json!({});
        for word in words.split_whitespace() {
            match word {
                "cordoned" => live["spec"]["unschedulable"] = true.into(),
                "leased" => {}
                ready => live["status"]["conditions"] = json!([{ "type": "Ready", "status": ready }]),
            }
        }
        let taint = |word: &&str| {
            let (key, effect) = word.split_once(':').unwrap();
            json!({ "key": format!("node.kubernetes.io/{key}"), "effect": effect, "timeAdded": "before" })
        };
        live["spec"]["taints"] = there.iter().map(taint).collect();
        let node: Node = serde_json::from_value(live.clone()).unwrap();
        let judged = judge(&node, words.contains("leased"));
        let taints = taints(items(&live["spec"]["taints"]), &judged, NOW.parse().unwrap());
        let text =
            |value: &Value| value.as_str().unwrap().trim_start_matches("node.kubernetes.io/").to_owned();
        let shown = |taint: &Value| format!("{}:{}", text(&taint["key"]), text(&taint["effect"]));
        assert_eq!(taints.iter().map(shown).collect::<Vec<_>>(), expected);
        let kept = there.iter().filter(|word| expected.contains(word)).count();
        let new: Vec<_> =
            taints.iter().filter(|taint| taint["timeAdded"] == "2026-01-01T00:00:00Z").collect();
        assert_eq!(new.len(), expected.len() - kept, "what was there keeps its time");
        assert_eq!(fits(&node, &judged), there == expected);
    }

    #[test]
    fn a_taint_follows_a_cordon_and_goes_with_it() {
        check(&[], "True", &[]);
        check(&[], "True cordoned", &["unschedulable:NoSchedule"]);
        check(&["own:NoExecute"], "cordoned leased True", &["own:NoExecute", "unschedulable:NoSchedule"]);
        check(&["unschedulable:NoSchedule"], "cordoned True", &["unschedulable:NoSchedule"]);
        check(&["unschedulable:NoSchedule", "own:NoSchedule"], "True", &["own:NoSchedule"]);
        // The effect is part of what a taint is.
        check(&["unschedulable:NoExecute"], "True", &["unschedulable:NoExecute"]);
    }

    #[test]
    fn taints_follow_the_readiness_of_a_node_with_a_lease() {
        let unreachable = ["unreachable:NoSchedule", "unreachable:NoExecute"];
        let not_ready = ["not-ready:NoSchedule", "not-ready:NoExecute"];
        check(&[], "leased Unknown", &unreachable);
        check(&unreachable, "leased Unknown", &unreachable);
        check(&unreachable, "leased False", &not_ready);
        check(&not_ready, "leased True", &[]);
        for ready in ["Unknown", "False", "True", ""] {
            check(&[], ready, &[]);
            check(&not_ready, ready, &not_ready);
        }
    }

    #[test]
    fn nothing_is_known_of_a_silent_node_but_what_others_say() {
        let held = [
            json!({ "type": "Ready", "status": "True" }),
            json!({ "type": "DiskPressure", "status": "Unknown" }),
            json!({ "type": "LimitsNotEnforced", "status": "True" }),
            json!({ "type": "PIDPressure", "status": "False" }),
        ];
        let said = unknown(&held, NOW.parse().unwrap());
        let shown =
            |one: &Value| format!("{}={} {}", one["type"], one["status"], one["reason"]).replace('"', "");
        assert_eq!(
            said.iter().map(shown).collect::<Vec<_>>(),
            [
                "Ready=Unknown NodeStatusUnknown",
                "MemoryPressure=Unknown NodeStatusNeverUpdated",
                "PIDPressure=Unknown NodeStatusUnknown",
            ]
        );
        assert_eq!(said[0]["message"], "Kubelet stopped posting node status.");
        assert_eq!(said[0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
    }

    #[test]
    fn silence_counts_while_somebody_listens_and_ends_with_any_sign() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let (lease, both) = ((Some(at(1)), None), (Some(at(1)), Some(at(2))));
        let mut heard = Heard::new(lease, at(100));
        let mut silent = |sign, second| heard.listen(sign, at(second)).as_secs();
        assert_eq!(silent(lease, 103), 3);
        assert_eq!(silent(lease, 108), 8);
        // An hour's sleep.
        assert_eq!(silent(lease, 3708), 13);
        // A clock that was set back.
        assert_eq!(silent(lease, 200), 13);
        assert_eq!(silent(lease, 204), 17);
        assert_eq!(silent(both, 205), 0);
        assert_eq!(silent(both, 209), 4);
        assert_eq!(silent((Some(at(3)), Some(at(2))), 211), 0);
    }
}
