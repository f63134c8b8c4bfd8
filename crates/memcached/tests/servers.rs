//! What the servers say when they are asked, and what comes of it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "in a test a failure is the answer")]
#![expect(dead_code, reason = "each test uses its part of the support")]

mod support;

use ballast_memcached::{MemcachedOperator, Stats, Told};
use ballast_operator::{Answers, Operator as _};
use ballast_staging::Stage;
use support::{ALL_UP, SAMPLE, STATS, degraded, sample, serves, settled, told};

#[test]
fn ready_means_that_each_server_answered() {
    let ready = |answers: Option<Answers>| {
        let mut stage = sample("");
        stage.rest().meanwhile(ALL_UP);
        told(&mut stage, &[]);
        if let Some(answers) = answers {
            stage.answers = answers;
        }
        stage.rest();
        stage.condition("Ready")
    };
    assert_eq!(ready(None), "True AllNodesReady: 3 of 3 nodes ready");
    // Nobody could ask: nobody knows.
    assert_eq!(
        ready(Some(Answers::none())),
        "Unknown NotVerified: 0 of 3 nodes ready: memcached-sample-a could not be asked: it was not asked"
    );
    for (said, expected) in [
        (Told::Refuses, "False NotServing: 2 of 3 nodes ready: memcached-sample-b refuses connections"),
        (
            Told::Silent,
            "False NotServing: 2 of 3 nodes ready: memcached-sample-b takes connections and says nothing",
        ),
        (
            Told::Babbles { said: "HTTP/1.1 400".to_owned() },
            "False NotServing: 2 of 3 nodes ready: memcached-sample-b does not speak memcached's protocol: \
             \"HTTP/1.1 400\"",
        ),
        (
            Told::Unreachable { why: "no route".to_owned() },
            "Unknown NotVerified: 2 of 3 nodes ready: memcached-sample-b could not be asked: no route",
        ),
    ] {
        let mut stage = settled();
        told(&mut stage, &[("b", said)]);
        stage.rest();
        assert_eq!(stage.condition("Ready"), expected);
        let servers = &stage.resource()["status"]["servers"];
        assert_eq!(*servers, serde_json::json!(["10.0.0.1:11211", "10.0.0.3:11211"]));
    }
}

#[test]
fn only_pods_that_kubernetes_calls_ready_are_asked() {
    let mut stage = settled();
    let asked = |stage: &Stage<MemcachedOperator>| {
        let questions = stage.operator.questions(&stage.view);
        questions.iter().map(|question| question.subject.replace("memcached-sample-", "")).collect::<String>()
    };
    assert_eq!(asked(&stage), "abc");
    stage.meanwhile(
        "
{apiVersion: v1, kind: Pod, metadata: {name: memcached-sample-a}, status: {conditions: [{type: Ready, status: 'False'}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: memcached-sample-b, deletionTimestamp: '2030-01-01T12:00:00Z'}}
",
    );
    assert_eq!(asked(&stage), "c");
    assert_eq!(asked(&sample("")), "");
    assert!(!sample("").plan().to_string().contains("look "), "who has nobody to ask waits for a change");
}

#[test]
fn the_version_and_the_numbers_are_those_that_the_servers_say() {
    let mut stage = settled();
    told(&mut stage, &[("a", serves("1.6.38")), ("b", serves("1.6.38"))]);
    stage.rest();
    assert_eq!(stage.resource()["status"]["version"], "1.6.38, 1.6.9");
    let statistics = &stage.resource()["status"]["statistics"];
    assert_eq!(statistics["hitRatio"], "75%");
    assert_eq!((&statistics["memoryUsed"], &statistics["memoryLimit"]), (&"3Mi".into(), &"192Mi".into()));
}

#[test]
fn numbers_that_change_all_the_time_are_written_rarely() {
    let mut stage = settled();
    let busy = |hits: u64| Told::Serves {
        version: "1.6.9".to_owned(),
        stats: Stats { get_hits: hits, evictions: hits, bytes: hits << 16, ..STATS },
    };
    let mut writes = 0;
    for minute in 1..=60 {
        stage.later(60);
        told(&mut stage, &[("a", busy(minute * 1000)), ("b", busy(minute * 10))]);
        writes += usize::from(!stage.effects().is_empty());
        stage.rest();
    }
    assert_eq!(writes, 12);
    assert_eq!(stage.later(86_400).effects(), "", "an idle cache is never written about");
}

#[test]
fn a_server_that_hangs_is_replaced() {
    let mut stage = settled();
    told(&mut stage, &[("b", Told::Silent)]);
    let effects = stage.effects();
    assert!(!effects.contains("remove"), "one silence is no evidence: {effects}");
    stage.rest();
    assert_eq!(
        degraded(&stage),
        "NotServing: 1 of 3 servers do not serve: memcached-sample-b takes connections and says nothing"
    );
    assert!(stage.later(9).effects().is_empty(), "it is asked again and again, and nothing is written");
    let effects = stage.later(1).effects();
    assert!(
        effects.starts_with(
            "do      remove Pod default/memcached-sample-b  it hangs, and Kubernetes can't tell"
        ),
        "{effects}"
    );
    assert!(effects.contains("event Warning ServerReplaced"), "{effects}");
    stage.round();
    stage.meanwhile(
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: memcached-sample}, status: {readyReplicas: 2}}",
    );
    told(&mut stage, &[]);
    stage.rest();
    assert_eq!(stage.condition("Ready"), "False Updating: 2 of 3 nodes ready");
    assert!(!stage.status().contains("silent"), "{}", stage.status());
}

#[test]
fn a_server_that_answers_once_in_between_is_not_replaced() {
    let mut stage = settled();
    for between in [serves("1.6.9"), Told::Unreachable { why: "no route".to_owned() }] {
        told(&mut stage, &[("b", Told::Silent)]);
        stage.rest().later(8);
        told(&mut stage, &[("b", between)]);
        stage.rest().later(3);
        told(&mut stage, &[("b", Told::Silent)]);
        let effects = stage.effects();
        assert!(!effects.contains("remove"), "{effects}");
        stage.rest();
        told(&mut stage, &[]);
        stage.rest();
    }
}

#[test]
fn nothing_is_replaced_where_all_fall_silent_or_none_can_be_reached() {
    for said in [Told::Silent, Told::Refuses, Told::Unreachable { why: "no route".to_owned() }] {
        let mut stage = settled();
        told(&mut stage, &[("a", said.clone()), ("b", said.clone()), ("c", said.clone())]);
        stage.rest();
        assert_eq!(stage.later(3600).effects(), "", "{said:?}");
        assert!(!stage.condition("Ready").starts_with("True"), "{said:?}");
    }
    // With a single server there is nobody to compare with.
    let alone = SAMPLE.replace("size: 3", "size: 1");
    let one = ALL_UP.split("---").take(2).collect::<Vec<_>>().join("---").replace(": 3", ": 1");
    let mut stage = Stage::new(MemcachedOperator, &alone);
    stage.rest().meanwhile(&one);
    told(&mut stage, &[]);
    stage.rest();
    assert_eq!(stage.condition("Ready"), "True AllNodesReady: 1 of 1 node ready");
    told(&mut stage, &[("b", Told::Silent)]);
    let effects = stage.rest().later(10).effects();
    assert!(effects.contains("remove Pod default/memcached-sample-b"), "{effects}");
}

/// The first pod of an upgrade, up by all that Kubernetes knows.
const NEW_ONE: &str = "
apiVersion: v1
kind: Pod
metadata: {name: memcached-sample-d, labels: {app: memcached, memcached_cr: memcached-sample}}
spec: {containers: [{name: memcached, image: 'memcached:1.6.38'}]}
status: {podIP: 10.0.0.4, conditions: [{type: Ready, status: 'True'}]}
";

/// An upgrade whose first new pod is up.
fn upgrading() -> Stage<MemcachedOperator> {
    let mut stage = settled();
    stage.meanwhile("{kind: Memcached, spec: {size: 3, version: 1.6.38}}").rest();
    stage.meanwhile(
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: memcached-sample}, status: {replicas: 4, \
         updatedReplicas: 1, readyReplicas: 4}}",
    );
    stage.meanwhile(NEW_ONE);
    stage
}

#[test]
fn an_upgrade_goes_on_while_the_new_ones_serve() {
    let mut stage = upgrading();
    told(&mut stage, &[("d", serves("1.6.38"))]);
    stage.rest();
    assert!(!stage.child("Deployment", "memcached-sample").contains("paused"));
    assert_eq!(stage.condition("Ready"), "False Updating: 4 of 3 nodes ready, not all as wanted yet");
}

#[test]
fn an_upgrade_stops_with_the_way_back_when_the_new_one_does_not_serve() {
    for said in [Told::Silent, Told::Refuses] {
        let mut stage = upgrading();
        told(&mut stage, &[("d", said)]);
        stage.rest();
        assert!(stage.child("Deployment", "memcached-sample").contains("paused: true"));
        assert!(stage.condition("Progressing").starts_with("False UpgradeStopped"));
        let degraded = degraded(&stage);
        assert!(
            degraded.starts_with("UpgradeStopped: the upgrade is stopped: memcached-sample-d "),
            "{degraded}"
        );
        let way_back = "3 nodes of memcached:1.6.9 go on serving; set spec.version back to \"1.6.9\", or on to a \
                        version that works";
        assert!(degraded.ends_with(way_back), "{degraded}");
        assert_eq!(stage.later(3600).effects(), "", "it is the version that is in doubt: no pod is replaced");
        // The way back is gone.
        stage.meanwhile("{kind: Memcached, spec: {size: 3, version: 1.6.9}}").rest();
        assert!(!stage.child("Deployment", "memcached-sample").contains("paused"));
        assert!(stage.child("Deployment", "memcached-sample").contains("memcached:1.6.9"));
    }
    // A new one that recovers lets it go on.
    let mut stage = upgrading();
    told(&mut stage, &[("d", Told::Silent)]);
    stage.rest();
    told(&mut stage, &[("d", serves("1.6.38"))]);
    stage.rest();
    assert!(!stage.child("Deployment", "memcached-sample").contains("paused"));
}

#[test]
fn pods_that_are_behind_the_deployment_are_listed_anew() {
    let status = "{replicas: 4, updatedReplicas: 1, readyReplicas: 4, observedGeneration: 2, conditions: [{type: \
                  Progressing, status: 'True', lastUpdateTime: '2030-01-01T12:00:00Z'}]}";
    let deployment =
        "apiVersion: apps/v1, kind: Deployment, metadata: {name: memcached-sample, generation: 2}";
    let mut stage = settled();
    stage.meanwhile("{kind: Memcached, spec: {size: 3, version: 1.6.38}}").rest();
    stage.meanwhile(&format!("{{{deployment}, status: {status}}}")).rest();
    let looks = |stage: &Stage<MemcachedOperator>| {
        let plan = stage.operator.plan(&stage.view, &stage.answers).to_string();
        (plan.contains("relist  Pod"), plan.contains("again in 2s"))
    };
    assert_eq!(looks(&stage), (false, true), "it was made a moment ago");
    stage.later(2);
    assert_eq!(looks(&stage), (true, true));
    // It is seen, but not yet that it is up.
    stage.meanwhile(&NEW_ONE.replace("'True'", "'False'"));
    assert_eq!(looks(&stage), (true, true));
    stage.meanwhile(NEW_ONE);
    assert_eq!(looks(&stage), (false, false));
    // What is not seen in a minute is not there to be seen.
    stage.meanwhile(&NEW_ONE.replace("'True'", "'False'")).later(60);
    assert_eq!(looks(&stage), (false, false));
}

#[test]
fn an_upgrade_to_a_version_that_does_not_start_says_the_way_back_too() {
    let mut stage = upgrading();
    stage.meanwhile(
        "
apiVersion: v1
kind: Pod
metadata: {name: memcached-sample-d}
status:
  conditions: [{type: Ready, status: 'False'}]
  containerStatuses: [{name: memcached, image: 'memcached:1.6.38', state: {waiting: {reason: ErrImagePull}}}]
",
    );
    told(&mut stage, &[]);
    stage.rest();
    let degraded = degraded(&stage);
    assert!(degraded.starts_with("ImagePullFailed: 1 of 4 pods fail"), "{degraded}");
    assert!(degraded.contains("set spec.version back to \"1.6.9\""), "{degraded}");
}
