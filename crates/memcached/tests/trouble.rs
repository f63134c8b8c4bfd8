//! What is said of names that are taken, of steps that fail and of pods that do not run.
#![expect(clippy::unwrap_used, clippy::panic, reason = "in a test a failure is the answer")]

mod support;

use ballast_memcached::MemcachedOperator;
use ballast_staging::Stage;
use support::{check, degraded, sample, settled};

fn check_degraded(more: &str, expected: &str) {
    let mut stage = settled();
    stage.meanwhile(more).round();
    assert_eq!(degraded(&stage), expected);
    assert!(stage.events.iter().any(|event| event.starts_with("Warning ")), "{:?}", stage.events);
}

#[test]
fn a_strangers_deployment_is_left_alone() {
    let stranger =
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: memcached-sample}, spec: {replicas: 9}}";
    check(
        stranger,
        "
        event   Warning NameTaken                            Degraded was not known
        status  Ready=False Progressing=False Degraded=True  what people and programs read of it
        look    again in 30s                                 whoever holds the name may let it go without our being told
        ",
    );
    let mut stage = sample(stranger);
    stage.rest();
    assert_eq!(
        degraded(&stage),
        "NameTaken: the Deployment memcached-sample was not made by this Memcached and is left alone: \
         delete it, or give this Memcached another name"
    );
}

#[test]
fn a_strangers_service_does_not_keep_the_nodes_from_running() {
    let mut stage = sample(
        "
apiVersion: v1
kind: Service
metadata:
  name: memcached-sample
  ownerReferences: [{apiVersion: v1, kind: Shop, name: shop, uid: u, controller: true}]
",
    );
    stage.rest();
    assert_eq!(
        degraded(&stage),
        "NameTaken: the Service memcached-sample belongs to Shop shop and is left alone: \
         delete it, or give this Memcached another name"
    );
    assert!(stage.child("Deployment", "memcached-sample").contains("replicas: 3"));
    assert!(!stage.child("Service", "memcached-sample").contains("clusterIP"));
}

#[test]
fn a_leftover_of_a_deleted_namesake_is_waited_for() {
    let leftover = "
apiVersion: apps/v1
kind: Deployment
metadata:
  name: memcached-sample
  ownerReferences:
  - {apiVersion: cache.example.com/v1alpha1, kind: Memcached, name: memcached-sample, uid: before, controller: true}
";
    let mut stage = sample(leftover);
    assert!(stage.plan().to_string().contains("look    again in 2s"));
    stage.rest().lose("Deployment", "memcached-sample").rest();
    assert!(stage.child("Deployment", "memcached-sample").contains("replicas: 3"));
}

#[test]
fn what_fails_is_said() {
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: memcached-sample}\nstatus:";
    check_degraded(
        &format!(
            "{deployment} {{conditions: [{{type: ReplicaFailure, status: 'True', message: exceeded quota}}]}}"
        ),
        "ReplicaFailure: exceeded quota",
    );
    check_degraded(
        &format!(
            "{deployment} {{readyReplicas: 1, conditions: [{{type: Progressing, status: 'False', \
             reason: ProgressDeadlineExceeded, message: it takes too long}}]}}"
        ),
        "ProgressDeadlineExceeded: it takes too long",
    );
    let pod = |status: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: memcached-sample-a}}\nstatus: {{containerStatuses: [{status}]}}"
        )
    };
    check_degraded(
        &pod("{name: memcached, image: 'memcached:nope', state: {waiting: {reason: ErrImagePull}}}"),
        "ImagePullFailed: 1 of 3 pods fail: memcached-sample-a: the image memcached:nope can't be pulled; \
         `kubectl describe pod memcached-sample-a` says why",
    );
    check_degraded(
        &pod(
            "{name: memcached, restartCount: 3, lastState: {terminated: {exitCode: 137, reason: OOMKilled}}, \
              state: {waiting: {reason: CrashLoopBackOff}}}",
        ),
        "CrashLoop: 1 of 3 pods fail: memcached-sample-a keeps crashing: OOMKilled, exit code 137; \
         `kubectl logs -p memcached-sample-a` says why",
    );
    check_degraded(
        &pod("{name: memcached, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}, \
              lastState: {terminated: {exitCode: 128, reason: StartError, message: 'exec: no such file'}}}"),
        "CrashLoop: 1 of 3 pods fail: memcached-sample-a keeps crashing: exec: no such file",
    );
    check_degraded(
        "{kind: Outcome, step: apply Service default/memcached-sample, class: Terminal, message: forbidden}",
        "StepFailed: apply Service default/memcached-sample: forbidden",
    );
    check_degraded(
        "{kind: Outcome, contested: [{object: Deployment default/memcached-sample, path: .spec.replicas, \
         manager: hpa, times: 4}]}",
        "FieldContested: hpa keeps changing .spec.replicas of Deployment default/memcached-sample",
    );
}

#[test]
fn a_server_that_ended_with_its_machine_is_not_in_a_crash_loop() {
    let said = |code: i32, state: &str| {
        let ended = format!("{{terminated: {{exitCode: {code}, reason: Ended}}}}");
        let state = if state.is_empty() { &ended } else { state };
        let mut stage = settled();
        stage.meanwhile(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: memcached-sample-a}}, status: {{containerStatuses: [{{name: \
             memcached, restartCount: 2, lastState: {ended}, state: {state}}}]}}}}"
        ));
        stage.round();
        stage.condition("Degraded").split(':').next().unwrap().to_owned()
    };
    let (runs, waits) = ("{running: {}}", "{waiting: {reason: CrashLoopBackOff}}");
    let in_order = ["", runs, "{waiting: {reason: ContainerCreating}}"].map(|state| said(0, state));
    assert_eq!(in_order, ["False AsExpected"; 3]);
    assert_eq!([said(0, waits), said(1, ""), said(1, runs), said(1, waits)], ["True CrashLoop"; 4]);
}

#[test]
fn what_the_server_refuses_is_not_under_way() {
    let refused = |class: &str| {
        format!(
            "{{kind: Outcome, step: apply Deployment default/memcached-sample, class: {class}, message: too much}}"
        )
    };
    // Only the status is written: the Deployment is not taken.
    let read = |stage: &mut Stage<MemcachedOperator>| {
        let status = stage.plan().status().unwrap().clone();
        stage.view.resource.status = serde_json::from_value(status).unwrap();
    };
    // There is none, and there will be none.
    let mut stage = sample("");
    read(stage.meanwhile(&refused("Terminal")));
    assert_eq!(stage.condition("Ready"), "False StepFailed: 0 of 3 nodes ready");
    let expected = "False StepFailed: nothing is changed: the server refuses the Deployment: too much";
    assert_eq!(stage.condition("Progressing"), expected);
    let expected = "True StepFailed: apply Deployment default/memcached-sample: too much";
    assert_eq!(stage.condition("Degraded"), expected);
    // There is one, of the spec before.
    let mut stage = settled();
    stage.meanwhile("{kind: Memcached, spec: {size: 3, version: 1.6.38}}").meanwhile(&refused("Terminal"));
    read(&mut stage);
    assert_eq!(stage.condition("Ready"), "False StepFailed: 3 of 3 nodes ready, not all as wanted yet");
    assert!(stage.condition("Progressing").starts_with("False StepFailed"));
    // What may pass is still on its way.
    let mut stage = sample("");
    read(stage.meanwhile(&refused("Retry")));
    assert_eq!(stage.condition("Progressing"), "True Creating: nodes are started or replaced");
    // Another step's failure says nothing of a Deployment that is as wanted.
    let mut stage = settled();
    stage.meanwhile(
        "{kind: Outcome, step: apply Service default/memcached-sample, class: Terminal, message: no}",
    );
    stage.round();
    assert_eq!(stage.condition("Ready"), "True AllNodesReady: 3 of 3 nodes ready");
}

#[test]
fn a_step_that_fails_does_not_hide_what_else_is_wrong() {
    let mut stage = settled();
    let failing =
        "{kind: Outcome, step: apply Service default/memcached-sample, class: Terminal, message: refused}";
    stage.meanwhile(failing).round();
    let quota = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: memcached-sample}, \
                 status: {conditions: [{type: ReplicaFailure, status: 'True', message: exceeded quota}]}}";
    stage.meanwhile(quota).meanwhile(failing).round();
    assert_eq!(
        degraded(&stage),
        "ReplicaFailure: exceeded quota. Besides, StepFailed: apply Service default/memcached-sample: refused"
    );
    let told: Vec<&str> = stage.events.iter().map(String::as_str).collect();
    assert_eq!(
        told,
        [
            "Warning StepFailed: apply Service default/memcached-sample: refused",
            "Warning ReplicaFailure: exceeded quota"
        ]
    );
}

#[test]
fn a_process_that_begins_does_not_take_back_what_the_one_before_it_found() {
    let mut stage = settled();
    stage.meanwhile("{kind: Outcome, step: apply x, class: Terminal, message: refused}").round();
    stage.view.last_outcome = None;
    assert_eq!(stage.effects(), "");
    assert!(stage.plan().to_string().contains("look    again in 1s "), "{}", stage.plan());
    // It has tried once, and nothing failed.
    stage.round();
    stage.rest();
    assert_eq!(stage.events.last().unwrap(), "Normal Recovered: nothing is known to be wrong");
}

#[test]
fn a_failure_that_may_pass_is_given_time() {
    let failing = |times: u32| {
        let mut stage = settled();
        stage.meanwhile(&format!(
            "{{kind: Outcome, step: apply x, class: Retry, message: too busy, times: {times}}}"
        ));
        stage
    };
    assert_eq!(failing(2).effects(), "");
    let mut stage = failing(3);
    stage.round();
    assert_eq!(degraded(&stage), "StepFailed: apply x: too busy");
    stage.rest();
    assert!(stage.events.last().unwrap().starts_with("Normal Recovered"), "{:?}", stage.events);
}

#[test]
fn what_is_healed_is_said_too() {
    let mut stage = settled();
    let failing = "{name: memcached, image: i, state: {waiting: {reason: ErrImagePull}}}";
    let pod = |statuses: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: memcached-sample-a}}, status: {{containerStatuses: [{statuses}]}}}}"
        )
    };
    stage.meanwhile(&pod(failing)).rest().meanwhile(&pod("")).rest();
    assert_eq!(stage.events.last().unwrap(), "Normal Recovered: nothing is known to be wrong");
}
