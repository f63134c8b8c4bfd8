//! What the operator decides: YAML in, plan out as text.
#![expect(clippy::unwrap_used, reason = "in a test a failure is the answer")]

use ballast_gordon::GordonOperator;
use ballast_staging::{Stage, check, same_text};
use serde_json::json;

const SAMPLE: &str = "
apiVersion: operator.prgcont.cz/v1
kind: Gordon
metadata: {name: sample}
spec: {gordon: {replicas: 3}}
";

fn sample(more: &str) -> Stage<GordonOperator> {
    Stage::new(GordonOperator, &format!("{SAMPLE}\n---\n{more}"))
}

fn pod(name: &str, more: &str) -> String {
    format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, {more}}}")
}

const READY: &str = "status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}";

/// The kubelet does its work.
fn all_up(stage: &mut Stage<GordonOperator>) {
    for name in pods(stage) {
        stage.meanwhile(&pod(&name, READY));
    }
    stage.rest();
}

/// The pods that the status names.
fn pods(stage: &Stage<GordonOperator>) -> Vec<String> {
    serde_json::from_value(stage.resource()["status"]["pods"].clone()).unwrap()
}

/// A sample whose pods are all up.
fn settled() -> Stage<GordonOperator> {
    let mut stage = sample("");
    stage.rest();
    all_up(&mut stage);
    stage.events.clear();
    stage
}

#[test]
fn a_new_resource_gets_its_pods() {
    check(
        GordonOperator,
        SAMPLE,
        "
        apply   Pod default/gordon-sample-0                  0 of 3 pods are there
        apply   Pod default/gordon-sample-1                  0 of 3 pods are there
        apply   Pod default/gordon-sample-2                  0 of 3 pods are there
        event   Normal PodsCreated                           people see it with kubectl describe
        status  Ready=False Progressing=True Degraded=False  what people and programs read of it
        ",
    );
}

#[test]
fn the_pods_and_the_status_are_as_agreed() {
    let stage = settled();
    insta::assert_snapshot!("pod", stage.child("Pod", "gordon-sample-0"));
    insta::assert_snapshot!("status_when_all_is_up", stage.status());
}

#[test]
fn at_the_fixpoint_a_plan_has_no_effects() {
    let mut stage = settled();
    assert_eq!(stage.effects(), "");
    assert_eq!(stage.later(86_400).effects(), "", "time alone changes nothing");
}

#[test]
fn the_number_is_kept_through_scaling() {
    let mut stage = settled();
    stage.meanwhile("{kind: Gordon, spec: {gordon: {replicas: 5}}}").rest();
    all_up(&mut stage);
    assert_eq!(pods(&stage).len(), 5);
    // The last ones go first, and one that is not ready before any that is.
    stage.meanwhile(&pod("gordon-sample-1", "status: {conditions: [{type: Ready, status: 'False'}]}"));
    stage.meanwhile("{kind: Gordon, spec: {gordon: {replicas: 3}}}");
    same_text(
        &stage.effects().lines().filter(|line| line.contains("remove")).collect::<Vec<_>>().join("\n"),
        "
        do      remove Pod default/gordon-sample-1  5 pods are there, and 3 wanted
        do      remove Pod default/gordon-sample-4  5 pods are there, and 3 wanted
        ",
    );
    stage.rest();
    assert_eq!(pods(&stage), ["gordon-sample-0", "gordon-sample-2", "gordon-sample-3"]);
    stage.meanwhile("{kind: Gordon, spec: {gordon: {replicas: 0}}}").rest();
    assert_eq!(stage.condition("Ready"), "True AllPodsReady: 0 of 0 pods ready");
    assert_eq!(
        stage.events.iter().filter(|event| event.contains("PodsRemoved")).count(),
        2,
        "{:?}",
        stage.events
    );
}

#[test]
fn a_deleted_pod_gets_a_successor_before_it_is_gone() {
    let mut stage = settled();
    let going = "{apiVersion: v1, kind: Pod, metadata: {name: gordon-sample-1, deletionTimestamp: '2030-01-01T12:00:00Z'}}";
    stage.meanwhile(going);
    let plan = stage.plan().to_string();
    assert!(plan.starts_with("apply   Pod default/gordon-sample-3"), "{plan}");
    assert_eq!(pods(stage.rest()), ["gordon-sample-0", "gordon-sample-2", "gordon-sample-3"]);
    // Once it is gone its name is free.
    stage.lose("Pod", "gordon-sample-1").lose("Pod", "gordon-sample-2").rest();
    assert_eq!(pods(&stage), ["gordon-sample-0", "gordon-sample-1", "gordon-sample-3"]);
}

#[test]
fn a_pod_that_ended_is_replaced() {
    for phase in ["Failed", "Succeeded"] {
        let mut stage = settled();
        stage.meanwhile(&pod("gordon-sample-0", &format!("status: {{phase: {phase}}}")));
        same_text(
            &stage.plan().to_string(),
            "
            apply   Pod default/gordon-sample-3                  it succeeds one that ended
            event   Normal PodsCreated                           people see it with kubectl describe
            remove  Pod default/gordon-sample-0                  it ended, and its successor is made
            status  Ready=False Progressing=True Degraded=False  what people and programs read of it
            ",
        );
        stage.rest();
        assert!(stage.child("Pod", "gordon-sample-3").contains("operator.prgcont.cz/attempt: \"1\""));
        assert_eq!(pods(&stage).len(), 3);
    }
}

/// A pod that ended at noon, soon after it was made, as the `attempt`th in a row.
fn ended(attempt: u32, lived: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: gordon-sample-0, annotations: {{operator.prgcont.cz/attempt: '{attempt}'}}}}
status:
  phase: Failed
  reason: Evicted
  startTime: '{lived}'
  containerStatuses: [{{name: gordon, state: {{terminated: {{exitCode: 1, finishedAt: '2030-01-01T12:00:00Z'}}}}}}]
"
    )
}

#[test]
fn pods_that_end_again_and_again_are_replaced_more_and_more_rarely() {
    for (attempt, wait) in [(0, 0), (1, 1), (2, 2), (5, 16), (9, 256), (10, 300), (4_000_000_000, 300)] {
        let mut stage = settled();
        stage.meanwhile(&ended(attempt, "2030-01-01T11:59:59Z"));
        if wait > 0 {
            let plan = stage.rest().plan().to_string();
            assert!(plan.contains(&format!("look    again in {wait}s")) && !plan.contains("apply"), "{plan}");
            assert_eq!(
                stage.condition("Degraded"),
                "True PodsEnd: pods end soon after they are made, last gordon-sample-0: Evicted"
            );
            assert_eq!(pods(&stage).len(), 2);
        }
        let plan = stage.later(wait).plan().to_string();
        assert!(plan.starts_with("apply   Pod default/gordon-sample-3"), "{attempt}: {plan}");
        stage.rest();
        let next = u64::from(attempt) + 1;
        assert!(stage.child("Pod", "gordon-sample-3").contains(&format!("attempt: \"{next}\"")));
    }
    // Who lived long did not end soon.
    let mut stage = settled();
    let plan = stage.meanwhile(&ended(9, "2030-01-01T11:50:00Z")).plan().to_string();
    assert!(plan.starts_with("apply   Pod default/gordon-sample-3"), "{plan}");
    assert!(stage.rest().child("Pod", "gordon-sample-3").contains("attempt: \"1\""));
}

#[test]
fn one_that_waits_holds_up_no_other() {
    let mut stage = settled();
    stage.meanwhile(&ended(9, "2030-01-01T11:59:59Z")).lose("Pod", "gordon-sample-1");
    let plan = stage.plan().to_string();
    assert!(plan.starts_with("apply   Pod default/gordon-sample-1  "), "{plan}");
    assert_eq!(plan.matches("apply").count(), 1, "{plan}");
    // Where enough are there without it, it is only in the way.
    stage.meanwhile("{kind: Gordon, spec: {gordon: {replicas: 1}}}");
    let plan = stage.plan().to_string();
    assert!(plan.contains("it ended, and there are enough without it"), "{plan}");
}

#[test]
fn names_that_others_hold_are_passed_over() {
    let stranger = "{apiVersion: v1, kind: Pod, metadata: {name: gordon-sample-1}}";
    let mut stage = sample(stranger);
    assert_eq!(pods(stage.rest()), ["gordon-sample-0", "gordon-sample-2", "gordon-sample-3"]);
    let leftover = "
apiVersion: v1
kind: Pod
metadata:
  name: gordon-sample-0
  ownerReferences: [{apiVersion: operator.prgcont.cz/v1, kind: Gordon, name: sample, uid: before, controller: true}]
";
    assert_eq!(pods(sample(leftover).rest()), ["gordon-sample-1", "gordon-sample-2", "gordon-sample-3"]);
}

#[test]
fn where_names_run_out_the_rest_waits() {
    let held: Vec<String> = (0..13).map(|n| pod(&format!("gordon-sample-{n}"), "spec: {}")).collect();
    let mut stage = sample(&held.join("\n---\n"));
    assert_eq!(pods(stage.rest()), ["gordon-sample-13"]);
    stage.lose("Pod", "gordon-sample-0").lose("Pod", "gordon-sample-7").rest();
    assert_eq!(pods(&stage), ["gordon-sample-0", "gordon-sample-13", "gordon-sample-7"]);
}

#[test]
fn another_image_reaches_the_pods_one_at_a_time() {
    let mut stage = settled();
    stage.meanwhile("{kind: Gordon, spec: {gordon: {replicas: 3, image: 'prgcont/gordon:v2.0'}}}");
    for left in (0..3).rev() {
        let plan = stage.plan().to_string();
        assert_eq!(plan.matches("remove").count(), 1, "{plan}");
        assert!(plan.contains("it is replaced by one of prgcont/gordon:v2.0"), "{plan}");
        stage.rest();
        let ready = stage.condition("Ready");
        assert!(ready.starts_with("False ") && ready.contains("2 of 3 pods ready"), "{left}: {ready}");
        assert_eq!(stage.effects(), "", "the others wait for the new one");
        all_up_once(&mut stage);
    }
    stage.rest();
    assert_eq!(stage.condition("Ready"), "True AllPodsReady: 3 of 3 pods ready");
    for name in pods(&stage) {
        assert!(stage.child("Pod", &name).contains("prgcont/gordon:v2.0"));
    }
}

/// The kubelet does its work, and nobody looks yet.
fn all_up_once(stage: &mut Stage<GordonOperator>) {
    for name in pods(stage) {
        stage.meanwhile(&pod(&name, READY));
    }
}

#[test]
fn an_image_that_does_not_run_goes_no_further_and_the_way_back_is_said() {
    let mut stage = settled();
    stage.meanwhile("{kind: Gordon, spec: {gordon: {replicas: 3, image: 'prgcont/gordon:nope'}}}").rest();
    stage.meanwhile(&pod(
        "gordon-sample-0",
        "status: {containerStatuses: [{name: gordon, image: 'prgcont/gordon:nope', state: {waiting: {reason: ErrImagePull}}}]}",
    ));
    stage.rest();
    assert_eq!(
        stage.condition("Degraded"),
        "True ImagePullFailed: 1 of 3 pods fail: gordon-sample-0: the image prgcont/gordon:nope can't be pulled; \
         `kubectl describe pod gordon-sample-0` says why. Pods of prgcont/gordon:v1.0 go on running: set \
         spec.gordon.image back to it"
    );
    stage.meanwhile("{kind: Gordon, spec: {gordon: {replicas: 3, image: null}}}").rest();
    all_up(&mut stage);
    assert_eq!(stage.condition("Ready"), "True AllPodsReady: 3 of 3 pods ready");
    assert!(stage.condition("Degraded").starts_with("False"));
}

#[test]
fn nothing_is_done_about_a_resource_that_goes() {
    let mut stage = settled();
    stage.meanwhile("{kind: Gordon, metadata: {deletionTimestamp: 2030-01-01T12:00:00Z}}");
    stage.lose("Pod", "gordon-sample-0");
    assert_eq!(stage.plan().to_string(), "nothing to do\n");
}

#[test]
fn a_spec_that_the_schema_should_have_refused_is_not_acted_upon() {
    check(
        GordonOperator,
        "{apiVersion: operator.prgcont.cz/v1, kind: Gordon, metadata: {name: a.b}, spec: {gordon: {replicas: -1}}}",
        "
        event   Warning InvalidSpec                            Degraded was not known
        status  Ready=Unknown Progressing=False Degraded=True  what people and programs read of it
        ",
    );
}

#[test]
fn what_the_server_refuses_is_said() {
    let mut stage = sample(
        "{kind: Outcome, step: apply Pod default/gordon-sample-0, class: Terminal, message: exceeded quota}",
    );
    stage.view.resource.status = serde_json::from_value(stage.plan().status().unwrap().clone()).unwrap();
    assert_eq!(
        stage.condition("Degraded"),
        "True StepFailed: apply Pod default/gordon-sample-0: exceeded quota"
    );
    assert_eq!(stage.resource()["status"]["replicas"], json!(0));
}

#[test]
fn who_keeps_changing_a_field_is_named() {
    let mut stage = settled();
    stage.meanwhile(
        "{kind: Outcome, contested: [{object: Pod default/gordon-sample-0, path: .metadata.labels.app, manager: mesh, times: 4}]}",
    );
    stage.round();
    assert_eq!(
        stage.condition("Degraded"),
        "True FieldContested: mesh keeps changing .metadata.labels.app of Pod default/gordon-sample-0"
    );
}
