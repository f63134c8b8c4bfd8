//! What the operator decides of its children: YAML in, plan out as text.
#![expect(clippy::unwrap_used, clippy::panic, reason = "in a test a failure is the answer")]
#![expect(dead_code, reason = "each test uses its part of the support")]

mod support;

use ballast_memcached::MemcachedOperator;
use ballast_staging::{Stage, same_text};
use support::{ALL_UP, check, sample, settled, told};

#[test]
fn a_new_resource_gets_its_children() {
    check(
        "",
        "
        apply   Deployment default/memcached-sample           3 nodes of memcached:1.6.9
        apply   Service default/memcached-sample              clients find every node under one name
        apply   PodDisruptionBudget default/memcached-sample  machines are drained one node at a time
        event   Normal Created                                people see it with kubectl describe
        status  Ready=False Progressing=True Degraded=False   what people and programs read of it
        ",
    );
}

#[test]
fn the_children_are_as_agreed() {
    let stage = settled();
    for (kind, snapshot) in
        [("Deployment", "deployment"), ("Service", "service"), ("PodDisruptionBudget", "budget")]
    {
        insta::assert_snapshot!(snapshot, stage.child(kind, "memcached-sample"));
    }
}

#[test]
fn at_the_fixpoint_a_plan_has_no_effects() {
    let mut stage = settled();
    assert_eq!(stage.effects(), "");
    assert_eq!(stage.later(86_400).effects(), "", "time alone changes nothing");
}

#[test]
fn the_status_speaks_from_evidence() {
    let mut stage = sample("");
    insta::assert_snapshot!("status_before_anything_is_seen", stage.rest().status());
    stage.later(5).meanwhile(ALL_UP);
    told(&mut stage, &[]);
    insta::assert_snapshot!("status_when_all_is_up", stage.rest().status());
    same_text(
        &stage.events.join("\n"),
        "
        Normal Created: made the Deployment, the Service and the disruption budget memcached-sample
        Normal Ready: 3 of 3 nodes ready
    ",
    );
}

#[test]
fn a_hand_edited_child_is_put_right() {
    let mut stage = settled();
    stage.edited(
        r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: memcached-sample}
spec: {replicas: 1, paused: true}
---
apiVersion: v1
kind: Service
metadata: {name: memcached-sample, labels: {app: mine, team: cache}}
"#,
    );
    same_text(
        &stage.effects(),
        r#"
        change  apply Deployment default/memcached-sample  3 nodes of memcached:1.6.9
                  ~ .spec.replicas: 1 → 3
        change  apply Service default/memcached-sample  clients find every node under one name
                  ~ .metadata.labels.app: "mine" → "memcached"
        change  status Ready=False Progressing=True Degraded=False  what people and programs read of it
                  ~ .status.conditions[type="Progressing"].message: "nothing is being changed" → "nodes are started or replaced"
                  ~ .status.conditions[type="Progressing"].reason: "Settled" → "Updating"
                  ~ .status.conditions[type="Progressing"].status: "False" → "True"
                  ~ .status.conditions[type="Ready"].message: "3 of 3 nodes ready" → "3 of 3 nodes ready, not all as wanted yet"
                  ~ .status.conditions[type="Ready"].reason: "AllNodesReady" → "Updating"
                  ~ .status.conditions[type="Ready"].status: "True" → "False"
        "#,
    );
    stage.rest();
    let deployment = stage.child("Deployment", "memcached-sample");
    assert!(deployment.contains("replicas: 3") && deployment.contains("paused: true"), "{deployment}");
    let service = stage.child("Service", "memcached-sample");
    assert!(service.contains("app: memcached") && service.contains("team: cache"), "{service}");
}

#[test]
fn what_was_edited_by_hand_is_announced_neither_as_scaling_nor_as_upgrading() {
    let mut stage = settled();
    stage.edited(
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: memcached-sample}, spec: {replicas: 1, \
         template: {spec: {containers: [{name: memcached, image: other}]}}}}",
    );
    let effects = stage.effects();
    for line in [".spec.replicas: 1 → 3", r#".image: "other" → "memcached:1.6.9""#] {
        assert!(effects.contains(line), "{effects}");
    }
    assert_eq!(stage.rest().events, Vec::<String>::new());
}

#[test]
fn a_deleted_child_is_made_again() {
    for kind in ["Deployment", "Service", "PodDisruptionBudget"] {
        let mut stage = settled();
        stage.lose(kind, "memcached-sample");
        let effects = stage.effects();
        assert!(effects.contains(&format!("create  apply {kind} default/memcached-sample")), "{effects}");
        stage.rest();
    }
}

#[test]
fn a_change_of_size_or_version_reaches_the_deployment() {
    let mut stage = settled();
    stage.meanwhile("{kind: Memcached, spec: {size: 5, version: 1.6.38}}");
    let effects = stage.effects();
    for line in [".spec.replicas: 3 → 5", r#".image: "memcached:1.6.9" → "memcached:1.6.38""#] {
        assert!(effects.contains(line), "{effects}");
    }
    stage.rest();
    let status = stage.status();
    assert!(status.contains("reason: Updating") && status.contains(r#"version: "1.6.9""#), "{status}");
    same_text(
        &stage.events.join("\n"),
        "
        Normal Scaling: from 3 nodes to 5 nodes
        Normal Upgrading: from memcached:1.6.9 to memcached:1.6.38
        ",
    );
}

#[test]
fn ready_is_not_said_from_an_old_report() {
    // Everything counts as up, but the Deployment has changed since its controller looked at it.
    let mut stage = sample("");
    stage.rest().meanwhile(ALL_UP).meanwhile(
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: memcached-sample, generation: 7}}",
    );
    stage.rest();
    assert!(!stage.status().contains("AllNodesReady"), "{}", stage.status());
    // One node is still of the version before.
    let mut stage = sample("");
    stage.rest().meanwhile(ALL_UP).meanwhile(
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: memcached-sample}, status: {updatedReplicas: 2}}",
    );
    stage.rest();
    assert!(!stage.status().contains("AllNodesReady"), "{}", stage.status());
}

#[test]
fn nothing_is_done_about_a_resource_that_goes() {
    let mut stage = settled();
    stage.meanwhile("{kind: Memcached, metadata: {deletionTimestamp: 2030-01-01T12:00:00Z}}");
    stage.lose("Deployment", "memcached-sample");
    assert_eq!(stage.plan().to_string(), "nothing to do\n");
}

#[test]
fn a_spec_that_the_schema_should_have_refused_is_not_acted_upon() {
    let stage = Stage::new(
        MemcachedOperator,
        "{apiVersion: cache.example.com/v1alpha1, kind: Memcached, metadata: {name: 9lives}, spec: {size: 0}}",
    );
    same_text(
        &stage.plan().to_string(),
        "
        event   Warning InvalidSpec                            Degraded was not known
        status  Ready=Unknown Progressing=False Degraded=True  what people and programs read of it
        ",
    );
    let status = stage.plan().status().unwrap().to_string();
    for message in ["size must be greater than 0", "version must be specified", "the name must begin with"] {
        assert!(status.contains(message), "{status}");
    }
}

#[test]
fn pods_that_end_or_go_are_no_nodes() {
    let mut stage = settled();
    stage.meanwhile(
        "
apiVersion: v1
kind: Pod
metadata: {name: memcached-sample-a}
status: {phase: Failed, reason: Evicted}
---
apiVersion: v1
kind: Pod
metadata: {name: memcached-sample-b, deletionTimestamp: '2030-01-01T12:00:00Z'}
",
    );
    stage.rest();
    assert_eq!(stage.resource()["status"]["nodes"], serde_json::json!(["memcached-sample-c"]));
}

/// The children as a real Kubernetes 1.34 gave them back, with its defaults and its managedFields.
const SERVED: [&str; 3] = [
    include_str!("served/deployment.json"),
    include_str!("served/service.json"),
    include_str!("served/budget.json"),
];

#[test]
fn what_a_server_fills_in_is_no_difference() {
    let stage = sample(&SERVED.join("\n---\n"));
    let settled = stage.settled();
    assert_eq!(settled.matches("keep    apply").count(), 3, "{settled}");
}

/// The resource as a real Kubernetes 1.34 gave it back after its status was applied by us, and a condition of their
/// own by somebody else.
const SERVED_RESOURCE: &str = include_str!("served/memcached.json");

#[test]
fn what_others_write_into_the_status_is_left_alone() {
    let text = format!("{SERVED_RESOURCE}\n---\n{}", SERVED.join("\n---\n"));
    let mut stage = Stage::new(MemcachedOperator, &text);
    told(stage.meanwhile(ALL_UP), &[]);
    assert_eq!(stage.effects(), "");
    stage.meanwhile("{kind: Memcached, spec: {size: 4, version: 1.6.9}}").rest();
    assert!(stage.status().contains("Audited"), "{}", stage.status());
    assert!(!stage.plan().status().unwrap().to_string().contains("Audited"));
}
