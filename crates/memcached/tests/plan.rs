//! What the operator decides: YAML in, plan out as text.
#![expect(clippy::unwrap_used, reason = "in a test a failure is the answer")]

use ballast_memcached::{MemcachedOperator, Stats, Told};
use ballast_operator::{
    Answer, Answers, Operator as _,
    testing::{self, Stage, same_text},
};

const SAMPLE: &str = r#"
apiVersion: cache.example.com/v1alpha1
kind: Memcached
metadata: {name: memcached-sample}
spec: {size: 3, version: "1.6.9"}
"#;

/// What Kubernetes reports when all three nodes are up.
const ALL_UP: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: memcached-sample}
status: {observedGeneration: 1, replicas: 3, updatedReplicas: 3, readyReplicas: 3, availableReplicas: 3}
---
apiVersion: v1
kind: Pod
metadata: {name: memcached-sample-b, labels: {app: memcached, memcached_cr: memcached-sample}}
spec: {containers: [{name: memcached, image: 'memcached:1.6.9'}]}
status: {podIP: 10.0.0.2, conditions: [{type: Ready, status: 'True'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: memcached-sample-a, labels: {app: memcached, memcached_cr: memcached-sample}}
spec: {containers: [{name: memcached, image: 'memcached:1.6.9'}]}
status: {podIP: 10.0.0.1, conditions: [{type: Ready, status: 'True'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: memcached-sample-c, labels: {app: memcached, memcached_cr: memcached-sample}}
spec: {containers: [{name: memcached, image: 'memcached:1.6.9'}]}
status: {podIP: 10.0.0.3, conditions: [{type: Ready, status: 'True'}]}
";

const STATS: Stats =
    Stats { get_hits: 75, get_misses: 25, evictions: 0, bytes: 1 << 20, limit_maxbytes: 64 << 20 };

fn serves(version: &str) -> Told {
    Told::Serves { version: version.to_owned(), stats: STATS }
}

/// Everyone who is asked answers, but for those named here.
fn told(stage: &mut Stage<MemcachedOperator>, others: &[(&str, Told)]) {
    stage.answers = Answers::none();
    for question in stage.operator.questions(&stage.view) {
        let other = others.iter().find(|(pod, _)| question.subject.ends_with(pod));
        let said = other.map_or_else(|| serves("1.6.9"), |(_, told)| told.clone());
        stage.answers.insert(question.id, Answer::Said(serde_json::to_value(said).unwrap()));
    }
}

fn sample(more: &str) -> Stage<MemcachedOperator> {
    Stage::new(MemcachedOperator, &format!("{SAMPLE}\n---\n{more}"))
}

/// A sample whose children are made and whose nodes are all up and answer.
fn settled() -> Stage<MemcachedOperator> {
    let mut stage = sample("");
    stage.rest().meanwhile(ALL_UP);
    told(&mut stage, &[]);
    stage.rest().events.clear();
    stage
}

fn check(more: &str, expected: &str) {
    testing::check(MemcachedOperator, &format!("{SAMPLE}\n---\n{more}"), expected);
}

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
    stage.meanwhile(
        r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: memcached-sample, generation: 2}
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
        do      event Normal Scaling  people see it with kubectl describe
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

/// The message of a condition that is True.
fn degraded(stage: &Stage<MemcachedOperator>) -> String {
    let resource = stage.resource();
    let conditions = resource["status"]["conditions"].as_array().unwrap();
    let degraded = conditions.iter().find(|condition| condition["type"] == "Degraded").unwrap();
    assert_eq!(degraded["status"], "True", "{degraded}");
    format!("{}: {}", degraded["reason"].as_str().unwrap(), degraded["message"].as_str().unwrap())
}

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
        "{kind: Outcome, step: apply Service default/memcached-sample, class: Terminal, message: forbidden}",
        "StepFailed: apply Service default/memcached-sample: forbidden",
    );
    check_degraded(
        "{kind: Outcome, contested: [{object: Deployment default/memcached-sample, path: .spec.replicas, \
         manager: hpa, times: 4}]}",
        "FieldContested: hpa keeps changing .spec.replicas of Deployment default/memcached-sample",
    );
}

/// Status, reason and message of a condition.
fn condition(stage: &Stage<MemcachedOperator>, type_: &str) -> String {
    let resource = stage.resource();
    let conditions = resource["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|condition| condition["type"] == type_).unwrap();
    let text = |field: &str| found[field].as_str().unwrap().to_owned();
    format!("{} {}: {}", text("status"), text("reason"), text("message"))
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
    assert_eq!(condition(&stage, "Ready"), "False StepFailed: 0 of 3 nodes ready");
    let expected = "False StepFailed: nothing is changed: the server refuses the Deployment: too much";
    assert_eq!(condition(&stage, "Progressing"), expected);
    let expected = "True StepFailed: apply Deployment default/memcached-sample: too much";
    assert_eq!(condition(&stage, "Degraded"), expected);
    // There is one, of the spec before.
    let mut stage = settled();
    stage.meanwhile("{kind: Memcached, spec: {size: 3, version: 1.6.38}}").meanwhile(&refused("Terminal"));
    read(&mut stage);
    assert_eq!(condition(&stage, "Ready"), "False StepFailed: 3 of 3 nodes ready, not all as wanted yet");
    assert!(condition(&stage, "Progressing").starts_with("False StepFailed"));
    // What may pass is still on its way.
    let mut stage = sample("");
    read(stage.meanwhile(&refused("Retry")));
    assert_eq!(condition(&stage, "Progressing"), "True Creating: nodes are started or replaced");
    // Another step's failure says nothing of a Deployment that is as wanted.
    let mut stage = settled();
    stage.meanwhile(
        "{kind: Outcome, step: apply Service default/memcached-sample, class: Terminal, message: no}",
    );
    stage.round();
    assert_eq!(condition(&stage, "Ready"), "True AllNodesReady: 3 of 3 nodes ready");
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
        condition(&stage, "Ready")
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
        assert_eq!(condition(&stage, "Ready"), expected);
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
    assert_eq!(condition(&stage, "Ready"), "False Updating: 2 of 3 nodes ready");
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
        assert!(!condition(&stage, "Ready").starts_with("True"), "{said:?}");
    }
    // With a single server there is nobody to compare with.
    let alone = SAMPLE.replace("size: 3", "size: 1");
    let one = ALL_UP.split("---").take(2).collect::<Vec<_>>().join("---").replace(": 3", ": 1");
    let mut stage = Stage::new(MemcachedOperator, &alone);
    stage.rest().meanwhile(&one);
    told(&mut stage, &[]);
    stage.rest();
    assert_eq!(condition(&stage, "Ready"), "True AllNodesReady: 1 of 1 node ready");
    told(&mut stage, &[("b", Told::Silent)]);
    let effects = stage.rest().later(10).effects();
    assert!(effects.contains("remove Pod default/memcached-sample-b"), "{effects}");
}

/// An upgrade whose first new pod is up, by all that Kubernetes knows.
fn upgrading() -> Stage<MemcachedOperator> {
    let mut stage = settled();
    stage.meanwhile("{kind: Memcached, spec: {size: 3, version: 1.6.38}}").rest();
    stage.meanwhile(
        "
{apiVersion: apps/v1, kind: Deployment, metadata: {name: memcached-sample}, status: {replicas: 4, updatedReplicas: 1, readyReplicas: 4}}
---
apiVersion: v1
kind: Pod
metadata: {name: memcached-sample-d, labels: {app: memcached, memcached_cr: memcached-sample}}
spec: {containers: [{name: memcached, image: 'memcached:1.6.38'}]}
status: {podIP: 10.0.0.4, conditions: [{type: Ready, status: 'True'}]}
",
    );
    stage
}

#[test]
fn an_upgrade_goes_on_while_the_new_ones_serve() {
    let mut stage = upgrading();
    told(&mut stage, &[("d", serves("1.6.38"))]);
    stage.rest();
    assert!(!stage.child("Deployment", "memcached-sample").contains("paused"));
    assert_eq!(condition(&stage, "Ready"), "False Updating: 4 of 3 nodes ready, not all as wanted yet");
}

#[test]
fn an_upgrade_stops_with_the_way_back_when_the_new_one_does_not_serve() {
    for said in [Told::Silent, Told::Refuses] {
        let mut stage = upgrading();
        told(&mut stage, &[("d", said)]);
        stage.rest();
        assert!(stage.child("Deployment", "memcached-sample").contains("paused: true"));
        assert!(condition(&stage, "Progressing").starts_with("False UpgradeStopped"));
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
