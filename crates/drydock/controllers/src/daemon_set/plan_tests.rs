use std::time::Duration;

use serde_json::{Value, json};

use super::plan::{Plan, Step, View, plan};
use super::*;
use crate::objects::daemon::REVISION;

const NOW: &str = "2026-01-01T01:00:00Z";

/// A set whose specification has these fields beside what each has.
fn set(more: Value) -> DaemonSet {
    let mut spec = json!({
        "selector": { "matchLabels": { "app": "d" } },
        "template": { "metadata": { "labels": { "app": "d" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } },
        "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1 } },
    });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    serde_json::from_value(
        json!({ "metadata": { "name": "d", "namespace": "n", "uid": "s", "generation": 3 }, "spec": spec }),
    )
    .unwrap()
}

/// Nodes as words: a name, and what there is about it (`big`, `tainted`, `evicting`, `cordoned`).
fn nodes(text: &str) -> Vec<Arc<Node>> {
    let read = |word: &str| {
        let mut parts = word.split(':');
        let mut node = json!({
            "metadata": { "name": parts.next(), "labels": {} },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        for part in parts {
            let taint = |effect: &str| json!([{ "key": "k", "effect": effect }]);
            match part {
                "big" => node["metadata"]["labels"]["size"] = "big".into(),
                "tainted" => node["spec"]["taints"] = taint("NoSchedule"),
                "evicting" => node["spec"]["taints"] = taint("NoExecute"),
                _ => node["spec"]["unschedulable"] = true.into(),
            }
        }
        Arc::new(serde_json::from_value(node).unwrap())
    };
    text.split_whitespace().map(read).collect()
}

/// Pods as words: the node, and how it is (`new` or `old`, `ready`, `waits`, `going`, `failed`, `succeeded`), each a second younger than
/// the one before but for those that are `early`.
fn pods(set: &DaemonSet, text: &str) -> Vec<Arc<Pod>> {
    let read = |(number, word): (usize, &str)| {
        let mut parts = word.split(':');
        let node = parts.next().unwrap();
        let mut pod = pod::body(set, node);
        pod["metadata"]["name"] = format!("{node}{number}").into();
        pod["metadata"]["creationTimestamp"] = format!("2026-01-01T00:00:{number:02}Z").into();
        pod["spec"]["nodeName"] = node.into();
        pod["status"] = json!({ "phase": "Running" });
        for part in parts {
            match part {
                "old" => pod["metadata"]["labels"][REVISION] = "before".into(),
                "early" => pod["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into(),
                "waits" => pod["spec"]["nodeName"] = "".into(),
                "going" => pod["metadata"]["deletionTimestamp"] = NOW.into(),
                "failed" => pod["status"]["phase"] = "Failed".into(),
                "succeeded" => pod["status"]["phase"] = "Succeeded".into(),
                "ready" => {
                    let since = "2026-01-01T00:59:55Z";
                    pod["status"]["conditions"] =
                        json!([{ "type": "Ready", "status": "True", "lastTransitionTime": since }]);
                }
                _ => {}
            }
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    };
    text.split_whitespace().enumerate().map(read).collect()
}

#[track_caller]
fn check(more: Value, on: &str, have: &str, expected: &str) {
    check_after("", more, on, have, expected);
}

/// The same when a pod of this node was replaced a second ago, for the third time.
#[track_caller]
fn check_after(failing: &str, more: Value, on: &str, have: &str, expected: &str) {
    let set = set(more);
    let (nodes, pods) = (nodes(on), pods(&set, have));
    let now = NOW.parse().unwrap();
    let mut backoff = Backoff::default();
    (0..3).for_each(|_| backoff.failed(&set, failing, now - Duration::from_secs(1)));
    let view = View { set: &set, nodes: &nodes, pods: &pods, backoff: &backoff, now };
    let Plan { steps, status, look_again } = plan(&view);
    let step = |step: &Step| match step {
        Step::Create(node) => format!("create {node}"),
        Step::Delete(pod) => format!("delete {}", pod.metadata.name),
        Step::Replace(pod) => format!("replace {}", pod.metadata.name),
    };
    let mut words: Vec<String> = steps.iter().map(step).collect();
    words.push(format!(
        "{}/{}/{} of {} new {} astray {}",
        status.number_available,
        status.number_ready,
        status.current_number_scheduled,
        status.desired_number_scheduled,
        status.updated_number_scheduled,
        status.number_misscheduled
    ));
    words.extend(look_again.map(|wait| format!("again in {}s", wait.as_secs())));
    assert_eq!(words.join(", "), expected);
}

#[test]
fn every_node_has_one() {
    check(json!({}), "a b", "", "create a, create b, 0/0/0 of 2 new 0 astray 0");
    check(json!({}), "a b", "a:waits b:ready", "1/1/2 of 2 new 2 astray 0");
    check(json!({}), "a", "a:ready a:ready", "delete a1, 1/1/1 of 1 new 1 astray 0");
    // One that waits for a node that is gone goes; one that was there is not taken away here.
    check(json!({}), "a", "a:ready gone:waits gone:ready", "delete gone1, 1/1/1 of 1 new 1 astray 0");
    // One that goes keeps its place until it is gone.
    check(json!({}), "a", "a:ready:going", "1/1/1 of 1 new 1 astray 0");
    // But not when it has ended, and somebody holds it.
    check(json!({}), "a", "a:failed:going", "create a, 0/0/0 of 1 new 0 astray 0");
    check(json!({}), "a", "a:succeeded:going a:ready", "1/1/1 of 1 new 1 astray 0");
    check(json!({}), "a", "a:failed", "replace a0, 0/0/1 of 1 new 1 astray 0");
    check(json!({}), "a", "a:succeeded", "replace a0, 0/0/1 of 1 new 1 astray 0");
}

#[test]
fn a_pod_that_waits_for_no_node_is_nobodys_business() {
    let set = set(json!({}));
    let mut lost = (*pods(&set, "a:waits")[0]).clone();
    lost.spec.placement = None;
    let now = NOW.parse().unwrap();
    let (pods, backoff) = ([Arc::new(lost)], Backoff::default());
    assert!(plan(&View { set: &set, nodes: &[], pods: &pods, backoff: &backoff, now }).steps.is_empty());
}

#[test]
fn a_node_that_fails_pods_waits_for_the_next() {
    check_after(
        "a",
        json!({}),
        "a b",
        "a:failed b:failed",
        "replace b1, 0/0/2 of 2 new 2 astray 0, again in 3s",
    );
    check_after("a", json!({}), "a", "a:succeeded", "replace a0, 0/0/1 of 1 new 1 astray 0");
    check_after("a", json!({}), "a:evicting", "a:failed", "delete a0, 0/0/0 of 0 new 0 astray 1");
    check_after("a", surge(json!(1)), "a", "a:failed", "0/0/1 of 1 new 1 astray 0, again in 3s");
    check_after("a", surge(json!(1)), "a", "a:old:ready a:failed", "1/1/1 of 1 new 0 astray 0, again in 3s");
}

#[test]
fn nodes_that_it_does_not_suit_have_none() {
    let spec = json!({ "nodeSelector": { "size": "big" }, "containers": [] });
    let big = json!({ "template": { "metadata": { "labels": { "app": "d" } }, "spec": spec } });
    check(big, "a:big b", "b:ready", "create a, delete b0, 0/0/0 of 1 new 0 astray 1");
    check(json!({}), "a:tainted b:cordoned", "", "create b, 0/0/0 of 1 new 0 astray 0");
    let there = || json!({ "template": { "metadata": {}, "spec": { "nodeName": "b", "containers": [] } } });
    check(there(), "a b", "", "create b, 0/0/0 of 1 new 0 astray 0");
    check(there(), "a", "a:ready elsewhere:ready", "delete a0, 0/0/0 of 0 new 0 astray 1");
    // A taint that comes later sends it away only if it says so.
    check(json!({}), "a:tainted", "a:ready", "0/0/0 of 0 new 0 astray 1");
    check(json!({}), "a:evicting", "a:ready", "delete a0, 0/0/0 of 0 new 0 astray 1");
}

#[test]
fn another_template_reaches_one_node_after_the_other() {
    check(json!({}), "a b c", "a:old:ready b:old:ready c:old:ready", "delete a0, 3/3/3 of 3 new 0 astray 0");
    check(json!({}), "a b c", "a:new b:old:ready c:old:ready", "2/2/3 of 3 new 1 astray 0");
    check(json!({}), "a b c", "a:new:ready b:old:ready c:old:ready", "delete b1, 3/3/3 of 3 new 1 astray 0");
    // One that does not serve is no loss, and nobody else goes with it.
    check(json!({}), "a b", "a:old b:old:ready", "delete a0, 1/1/2 of 2 new 0 astray 0");
    let two = json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "50%" } } });
    check(
        two,
        "a b c",
        "a:old:ready b:old:ready c:old:ready",
        "delete a0, delete b1, 3/3/3 of 3 new 0 astray 0",
    );
    let by_hand = json!({ "updateStrategy": { "type": "OnDelete" } });
    check(by_hand, "a b", "a:old:ready b:old", "1/1/2 of 2 new 0 astray 0");
}

#[test]
fn a_node_that_shall_have_none_is_not_waited_for() {
    check(json!({}), "a:tainted b", "b:old:ready", "delete b0, 1/1/1 of 1 new 0 astray 0");
}

/// With room for this many more.
fn surge(most: Value) -> Value {
    let bounds = json!({ "maxUnavailable": 0, "maxSurge": most });
    json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": bounds } })
}

#[test]
fn with_a_surge_the_new_pod_comes_before_the_old_one_goes() {
    let one = || surge(json!(1));
    check(one(), "a b", "", "create a, create b, 0/0/0 of 2 new 0 astray 0");
    check(one(), "a b", "a:old:ready b:old:ready", "create a, 2/2/2 of 2 new 0 astray 0");
    check(one(), "a b", "a:old:ready b:old:ready a:new:waits", "2/2/2 of 2 new 0 astray 0");
    check(
        one(),
        "a b",
        "a:old:ready b:old:ready a:new:ready",
        "delete a0, create b, 2/2/2 of 2 new 0 astray 0",
    );
    check(one(), "a b", "a:old:ready:going b:old:ready a:new:ready", "create b, 2/2/2 of 2 new 0 astray 0");
    check(one(), "a b", "a:new:ready b:new:ready", "2/2/2 of 2 new 2 astray 0");
    // Whose name comes first says nothing of two that came in the same second.
    check(one(), "a", "a:new:early a:old:ready:early", "1/1/1 of 1 new 0 astray 0");
    let half = surge(json!("50%"));
    check(
        half,
        "a b c",
        "a:old:ready b:old:ready c:old:ready",
        "create a, create b, 3/3/3 of 3 new 0 astray 0",
    );
}

#[test]
fn with_a_surge_what_does_not_serve_is_no_loss() {
    let one = || surge(json!(1));
    // Beside one that does not serve anyway as many come as there are such.
    check(
        one(),
        "a b c",
        "a:old b:old c:old:ready",
        "create a, create b, create c, 1/1/3 of 3 new 0 astray 0",
    );
    check(one(), "a", "a:old a:new:waits", "delete a0, 0/0/1 of 1 new 0 astray 0");
    // One that is ready and not yet long enough is kept until the other is.
    let slow = || {
        let mut slow = one();
        slow["minReadySeconds"] = 10.into();
        slow
    };
    check(slow(), "a", "a:old:ready a:new", "0/1/1 of 1 new 0 astray 0, again in 5s");
    check(
        one(),
        "a",
        "a:new:ready a:new:ready a:old:ready a:old:ready",
        "delete a2, delete a1, delete a3, 1/1/1 of 1 new 1 astray 0",
    );
    // Nobody waits for one that has ended, or goes.
    check(one(), "a", "a:failed", "replace a0, create a, 0/0/1 of 1 new 1 astray 0");
    check(one(), "a", "a:ready:going", "create a, 1/1/1 of 1 new 1 astray 0");
}

#[test]
fn with_a_surge_nobody_leaves_a_node_before_there_are_enough_elsewhere() {
    let one = || surge(json!(1));
    check(one(), "a:tainted b", "a:old:ready", "create b, 0/0/0 of 1 new 0 astray 1");
    check(one(), "a:tainted b", "a:old:ready b:new", "0/0/1 of 1 new 1 astray 1");
    check(one(), "a:tainted b", "a:old:ready b:new:ready", "delete a0, 1/1/1 of 1 new 1 astray 1");
    check(one(), "a:tainted b", "a:old b:new:ready", "delete a0, 1/1/1 of 1 new 1 astray 1");
    check(one(), "a:tainted b", "a:new:ready b:new:ready", "1/1/1 of 1 new 1 astray 1");
    let by_hand = json!({ "updateStrategy": { "type": "OnDelete", "rollingUpdate": { "maxSurge": 1 } } });
    check(by_hand, "a", "a:old:ready", "1/1/1 of 1 new 0 astray 0");
}

#[test]
fn a_pod_counts_when_it_has_been_ready_long_enough() {
    let slow = json!({ "minReadySeconds": 10 });
    check(slow, "a", "a:ready", "0/1/1 of 1 new 1 astray 0, again in 5s");
}

#[test]
fn a_pod_waits_for_its_node_and_no_other() {
    let set = set(json!({}));
    let pod: Pod = serde_json::from_value(pod::body(&set, "a")).unwrap();
    assert_eq!(pod::target(&pod), "a");
    let body = pod::body(&set, "a");
    assert_eq!(body["metadata"]["generateName"], "d-");
    assert_eq!(body["metadata"]["ownerReferences"][0]["kind"], "DaemonSet");
    assert_eq!(body["spec"]["tolerations"].as_array().unwrap().len(), 6);
}

#[test]
fn what_every_such_pod_tolerates_it_tolerates_for_ever_and_once() {
    let own = json!([
        { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9 },
        { "key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "tolerationSeconds": 9 },
    ]);
    let spec = json!({ "hostNetwork": true, "containers": [], "tolerations": own });
    let set = set(json!({ "template": { "metadata": {}, "spec": spec } }));
    let body = pod::body(&set, "a");
    let all = body["spec"]["tolerations"].as_array().unwrap();
    let told = |one: &Value| {
        let key = one["key"].as_str().unwrap().trim_start_matches("node.kubernetes.io/").to_owned();
        key + &one["tolerationSeconds"].as_i64().map(|time| format!(" for {time}")).unwrap_or_default()
    };
    // What says another operator is another toleration.
    assert_eq!(
        all.iter().map(told).collect::<Vec<_>>().join(", "),
        "not-ready, unreachable for 9, unreachable, disk-pressure, memory-pressure, pid-pressure, unschedulable, \
         network-unavailable"
    );
}

#[test]
fn a_pod_that_ended_well_is_no_reason_to_warn() {
    let set = set(json!({}));
    let told = |how: &str| plan::ended(&pods(&set, how)[0]);
    assert_eq!((told("a:failed").0, told("a:failed").1), (Severity::Warning, "FailedDaemonPod"));
    assert_eq!((told("a:succeeded").0, told("a:succeeded").1), (Severity::Normal, "SucceededDaemonPod"));
}
