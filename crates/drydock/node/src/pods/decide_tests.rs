use super::*;
use crate::pods::observed::{Blocked, Ended, Unhealthy};
use serde_json::{Value, json};

fn now() -> Timestamp {
    "2024-01-01T00:01:00Z".parse().unwrap()
}

fn pod(spec: Value) -> Pod {
    let mut spec = spec;
    if spec.get("containers").is_none() {
        spec["containers"] = json!([{"name": "a", "image": "i"}]);
    }
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}))
        .unwrap()
}

/// A pod whose place is ready.
fn placed() -> Observed {
    Observed {
        seen: Some(now()),
        sandbox: Sandbox::Up([10, 0, 0, 2].into()),
        volumes_ready: true,
        ..Observed::default()
    }
}

fn here() -> Seen {
    Seen { image: ImageState::Here, asked: "i".to_owned(), ..Seen::default() }
}

fn running() -> Seen {
    let state = State::Running { id: "x".to_owned(), since: now() };
    Seen { state, started: true, ready: true, here: true, ..here() }
}

fn ended(code: i32) -> Seen {
    let ended = Ended {
        id: "x".to_owned(),
        code,
        signal: None,
        reason: String::new(),
        message: String::new(),
        started: now(),
        finished: now(),
    };
    Seen { state: State::Ended(ended), here: true, ..here() }
}

fn with(containers: &[(&str, Seen)]) -> Observed {
    let containers = containers.iter().map(|(name, seen)| ((*name).to_owned(), seen.clone())).collect();
    Observed { containers, ..placed() }
}

/// The actions in short, and in how many seconds it is thought again.
fn check(pod: &Pod, observed: &Observed, expected: &str) {
    let next = decide(pod, observed, now());
    let mut words: Vec<String> = next.actions.iter().map(short).collect();
    if let Some(at) = next.look_again {
        words.push(format!("in {}s", at.duration_since(now()).as_secs()));
    }
    assert_eq!(words.join(", "), expected);
}

fn short(action: &Action) -> String {
    match action {
        Action::PrepareVolumes => "volumes".to_owned(),
        Action::MakeSandbox => "sandbox".to_owned(),
        Action::Pull(name) => format!("pull {name}"),
        Action::Start(name) => format!("start {name}"),
        Action::Hold { container, reason, .. } => format!("hold {container} {reason}"),
        Action::Stop { container, grace, .. } => format!("stop {container} {grace}s"),
        Action::Fail(failure) => format!("fail {}", failure.reason),
        Action::Clear => "clear".to_owned(),
        Action::Delete => "delete".to_owned(),
    }
}

#[test]
fn a_new_pod_gets_its_place_then_its_image_then_runs() {
    let pod = pod(json!({}));
    check(&pod, &Observed::default(), "volumes");
    check(&pod, &Observed { volumes_ready: true, ..Observed::default() }, "sandbox");
    check(&pod, &placed(), "pull a");
    check(&pod, &with(&[("a", Seen { image: ImageState::Pulling, ..Seen::default() })]), "");
    check(&pod, &with(&[("a", here())]), "start a");
    check(&pod, &with(&[("a", running())]), "");
}

#[test]
fn a_step_that_failed_is_waited_out() {
    let blocked = Blocked { until: now() + SignedDuration::from_secs(4), attempts: 1 };
    check(&pod(json!({})), &Observed { blocked: Some(blocked), ..Observed::default() }, "in 4s");
}

#[test]
fn init_containers_come_first_and_in_order() {
    let init = json!([{"name": "x", "image": "i"}, {"name": "y", "image": "i"}]);
    let pod = pod(json!({"initContainers": init}));
    check(&pod, &placed(), "pull x");
    check(&pod, &with(&[("x", running())]), "");
    check(&pod, &with(&[("x", ended(0)), ("y", here())]), "start y");
    check(&pod, &with(&[("x", ended(0)), ("y", ended(0)), ("a", here())]), "start a");
    check(&pod, &with(&[("x", ended(1))]), "start x");
}

#[test]
fn a_container_that_looks_into_the_pod_is_started_once_whatever_else_is() {
    let ephemeral = json!([{"name": "e", "image": "i", "targetContainerName": "a"}]);
    let with_init =
        json!({"initContainers": [{"name": "x", "image": "i"}], "ephemeralContainers": ephemeral});
    check(&pod(with_init), &with(&[("e", here()), ("x", ended(1))]), "start e, start x");
    let pod = pod(json!({"ephemeralContainers": ephemeral}));
    check(&pod, &with(&[("a", running())]), "pull e");
    check(&pod, &with(&[("a", running()), ("e", running())]), "");
    check(&pod, &with(&[("a", running()), ("e", ended(1))]), "");
    let another = Seen { here: false, ..ended(0) };
    check(&pod, &with(&[("a", running()), ("e", another)]), "");
    let mut going = pod.clone();
    going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    check(&going, &with(&[("a", running()), ("e", running())]), "stop a 30s, stop e 30s");
}

#[test]
fn an_init_container_that_fails_ends_a_pod_that_is_never_started_again() {
    let pod = pod(json!({"restartPolicy": "Never", "initContainers": [{"name": "x", "image": "i"}]}));
    check(&pod, &with(&[("x", ended(1))]), "clear");
}

#[test]
fn init_containers_run_again_for_a_new_sandbox() {
    let pod = pod(json!({"initContainers": [{"name": "x", "image": "i"}, {"name": "y", "image": "i"}]}));
    let before = |seen: Seen| Seen { here: false, ..seen };
    let old = [("y", before(ended(0))), ("a", before(ended(137)))];
    check(&pod, &with(&[&[("x", before(ended(0)))], &old[..]].concat()), "start x");
    check(&pod, &with(&[&[("x", running())], &old[..]].concat()), "");
    check(&pod, &with(&[&[("x", ended(0))], &old[..]].concat()), "start y");
    check(&pod, &with(&[("x", ended(0)), ("y", ended(0)), old[1].clone()]), "start a");
}

#[test]
fn a_container_waits_for_the_hook_of_the_one_before_it() {
    let pod = pod(json!({"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}));
    let hooking = Seen { hooking: true, started: false, ready: false, ..running() };
    check(&pod, &with(&[("a", hooking), ("b", here())]), "");
    check(&pod, &with(&[("a", running()), ("b", here())]), "start b");
}

#[test]
fn a_node_that_stops_ends_containers_within_its_time_and_begins_nothing() {
    let halting = |observed: Observed| Observed { halting: Some(5), ..observed };
    let pod = pod(json!({"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}));
    check(&pod, &halting(with(&[("a", running()), ("b", here())])), "stop a 5s");
    check(&pod, &halting(with(&[("a", ended(143)), ("b", ended(0))])), "");
    check(&pod, &halting(Observed::default()), "");

    let pod = once();
    check(&pod, &halting(with(&[("a", here())])), "");
    let mut observed = halting(with(&[("a", running())]));
    check(&pod, &observed, "fail Terminated");
    let Action::Fail(failure) = decide(&pod, &observed, now()).actions.remove(0) else {
        panic!("no failure")
    };
    observed.failed = Some(failure);
    check(&pod, &observed, "stop a 5s");

    // Nor does one have longer that was over before, and whose node is another by now.
    let mut over = once();
    over.status = Some(serde_json::from_value(json!({"phase": "Failed"})).unwrap());
    check(&over, &with(&[("a", running())]), "stop a 30s");
    check(&over, &halting(with(&[("a", running())])), "stop a 5s");
}

/// A pod that is not begun again.
fn once() -> Pod {
    pod(json!({"restartPolicy": "Never"}))
}

#[test]
fn a_sidecar_is_started_first_and_stopped_last() {
    let mut pod = pod(json!({"initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always"}]}));
    check(&pod, &with(&[("s", Seen { started: false, ..running() })]), "");
    check(&pod, &with(&[("s", running()), ("a", here())]), "start a");
    check(&pod, &with(&[("s", ended(0)), ("a", running())]), "start s");
    pod.metadata.deletion_timestamp = Some(crate::pods::status::time(now()));
    check(&pod, &with(&[("s", running()), ("a", running())]), "stop a 30s");
    check(&pod, &with(&[("s", running()), ("a", ended(0))]), "stop s 30s");
}

#[test]
fn sidecars_end_one_after_the_other_in_the_pods_time() {
    let sidecar = |name: &str| json!({"name": name, "image": "i", "restartPolicy": "Always"});
    let mut pod = pod(json!({"initContainers": [sidecar("s"), sidecar("t")]}));
    pod.metadata.deletion_timestamp = Some(crate::pods::status::time(now()));
    let since = |seconds: i64, s: Seen, t: Seen| Observed {
        ending: Some(now() - SignedDuration::from_secs(seconds)),
        ..with(&[("s", s), ("t", t), ("a", ended(0))])
    };
    check(&pod, &with(&[("s", running()), ("t", running()), ("a", ended(0))]), "stop t 30s, in 30s");
    check(&pod, &since(10, running(), Seen { stopping: true, ..running() }), "in 20s");
    check(&pod, &since(10, running(), ended(0)), "stop s 20s");
    check(&pod, &since(29, running(), ended(0)), "stop s 2s");
    check(&pod, &since(30, running(), Seen { stopping: true, ..running() }), "stop s 2s");
    check(&pod, &since(40, running(), running()), "stop t 2s, stop s 2s");
}

#[test]
fn the_restart_policy_decides_what_follows_an_end() {
    for (policy, code, expected) in [
        ("Always", 0, "start a"),
        ("Always", 1, "start a"),
        ("OnFailure", 1, "start a"),
        ("OnFailure", 0, "clear"),
        ("Never", 1, "clear"),
    ] {
        check(&pod(json!({"restartPolicy": policy})), &with(&[("a", ended(code))]), expected);
    }
}

#[test]
fn a_container_that_ends_again_waits() {
    let mut seen = ended(1);
    seen.backoff.attempt(now(), now());
    check(&pod(json!({})), &with(&[("a", seen)]), "hold a CrashLoopBackOff, in 10s");
}

#[test]
fn an_image_that_can_not_be_had_is_asked_for_again_with_patience() {
    let failed = |at: i64, failures| Seen {
        image: ImageState::Failed {
            reason: "ErrImagePull".to_owned(),
            message: "no".to_owned(),
            at: now() - SignedDuration::from_secs(at),
        },
        pull_failures: failures,
        ..Seen::default()
    };
    check(&pod(json!({})), &with(&[("a", failed(0, 1))]), "in 2s");
    check(&pod(json!({})), &with(&[("a", failed(3, 1))]), "hold a ImagePullBackOff, in 7s");
    check(&pod(json!({})), &with(&[("a", failed(10, 1))]), "pull a");
    check(&pod(json!({})), &with(&[("a", failed(10, 2))]), "hold a ImagePullBackOff, in 10s");
}

#[test]
fn a_condemned_or_changed_container_is_stopped_once() {
    let unhealthy = Unhealthy { message: "m".to_owned(), grace: Some(5) };
    let condemned = Seen { unhealthy: Some(unhealthy), ..running() };
    check(&pod(json!({})), &with(&[("a", condemned.clone())]), "stop a 5s");
    check(&pod(json!({})), &with(&[("a", Seen { stopping: true, ..condemned })]), "");
    check(&pod(json!({})), &with(&[("a", Seen { asked: "other".to_owned(), ..running() })]), "stop a 30s");
}

#[test]
fn a_deleted_pod_is_stopped_cleared_and_let_go() {
    let mut pod = pod(json!({}));
    pod.metadata.deletion_timestamp = Some(crate::pods::status::time(now()));
    pod.metadata.deletion_grace_period_seconds = Some(7);
    check(&pod, &with(&[("a", running())]), "stop a 7s");
    check(&pod, &with(&[("a", ended(0))]), "clear");
    check(&pod, &Observed { cleared: true, ..with(&[("a", ended(0))]) }, "delete");
    check(&pod, &Observed { cleared: true, released: true, ..with(&[("a", ended(0))]) }, "");
    check(&pod, &Observed { absent: true, ..with(&[("a", running())]) }, "stop a 2s");
    check(&pod, &Observed { absent: true, cleared: true, ..placed() }, "");
}

#[test]
fn a_deadline_is_waited_for_and_kept() {
    let mut pod = pod(json!({"activeDeadlineSeconds": 10}));
    check(&pod, &with(&[("a", running())]), "in 10s");
    let start = crate::pods::status::time(now() - SignedDuration::from_secs(10));
    pod.status =
        Some(k8s_openapi::api::core::v1::PodStatus { start_time: Some(start), ..Default::default() });
    check(&pod, &with(&[("a", running())]), "fail DeadlineExceeded");
}

#[test]
fn a_pod_that_has_written_too_much_ends_soon() {
    let pod = pod(json!({"terminationGracePeriodSeconds": 600}));
    let mut observed = Observed { exceeded: Some("too much".to_owned()), ..with(&[("a", running())]) };
    check(&pod, &observed, "fail Evicted");
    let Action::Fail(failure) = decide(&pod, &observed, now()).actions.remove(0) else {
        panic!("no failure")
    };
    observed.failed = Some(failure);
    check(&pod, &observed, "stop a 1s");
}
