use super::*;
use serde_json::{Value, json};

fn now() -> Timestamp {
    "2024-01-01T00:01:00.5Z".parse().unwrap()
}

fn ended(code: i32) -> Ended {
    Ended {
        id: "drydock://x".to_owned(),
        code,
        signal: None,
        reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
        message: String::new(),
        started: now(),
        finished: now(),
    }
}

fn running() -> Seen {
    let state = State::Running { id: "drydock://x".to_owned(), since: now() };
    Seen { state, started: true, ready: true, ..Seen::default() }
}

fn observed(containers: &[(&str, Seen)]) -> Observed {
    Observed {
        seen: Some(now()),
        sandbox: Sandbox::Up([10, 0, 0, 2].into()),
        containers: containers.iter().map(|(name, seen)| ((*name).to_owned(), seen.clone())).collect(),
        ..Observed::default()
    }
}

/// Phase, conditions that hold, and the containers' states.
fn check(spec: Value, observed: &Observed, expected: &str) -> PodStatus {
    let mut spec = spec;
    spec["containers"] = json!([{"name": "a", "image": "i"}]);
    let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec});
    let status = of(&serde_json::from_value(pod).unwrap(), observed, "10.0.0.1", now());
    let conditions: Vec<&str> = status
        .conditions
        .iter()
        .flatten()
        .filter(|condition| condition.status == "True")
        .map(|condition| condition.type_.as_str())
        .collect();
    let all =
        status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    let states: Vec<String> = all
        .map(|container| {
            let state = container.state.clone().unwrap();
            let word = match (&state.waiting, &state.running, &state.terminated) {
                (Some(waiting), _, _) => waiting.reason.clone().unwrap(),
                (_, Some(_), _) => "running".to_owned(),
                (_, _, Some(ended)) => ended.reason.clone().unwrap(),
                _ => String::new(),
            };
            format!("{}={word}{}", container.name, if container.ready { "+" } else { "" })
        })
        .collect();
    let found = format!("{} [{}] {}", status.phase.clone().unwrap(), conditions.join(" "), states.join(" "));
    assert_eq!(found, expected);
    status
}

#[test]
fn a_status_follows_what_is_seen() {
    check(json!({}), &Observed::default(), "Pending [Initialized PodScheduled] a=ContainerCreating");
    check(
        json!({}),
        &observed(&[("a", running())]),
        "Running [PodReadyToStartContainers Initialized Ready ContainersReady PodScheduled] a=running+",
    );
    check(
        json!({}),
        &observed(&[("a", Seen { ready: false, ..running() })]),
        "Running [PodReadyToStartContainers Initialized PodScheduled] a=running",
    );
    let waiting = State::Waiting { reason: "CrashLoopBackOff".to_owned(), message: "m".to_owned() };
    check(
        json!({}),
        &observed(&[("a", Seen { state: waiting, last: Some(ended(1)), ..Seen::default() })]),
        "Running [PodReadyToStartContainers Initialized PodScheduled] a=CrashLoopBackOff",
    );
    let done = |code| Seen { state: State::Ended(ended(code)), ..Seen::default() };
    check(
        json!({"restartPolicy": "Never"}),
        &observed(&[("a", done(0))]),
        "Succeeded [PodReadyToStartContainers Initialized PodScheduled] a=Completed",
    );
    check(
        json!({"restartPolicy": "Never"}),
        &observed(&[("a", done(1))]),
        "Failed [PodReadyToStartContainers Initialized PodScheduled] a=Error",
    );
    let init = json!({"initContainers": [{"name": "x", "image": "i"}]});
    check(
        init.clone(),
        &observed(&[("x", running())]),
        "Pending [PodReadyToStartContainers PodScheduled] x=running a=PodInitializing",
    );
    check(
        init,
        &observed(&[("x", done(0)), ("a", running())]),
        "Running [PodReadyToStartContainers Initialized Ready ContainersReady PodScheduled] x=Completed+ a=running+",
    );
}

#[test]
fn a_gate_that_others_hold_keeps_the_pod_from_being_ready() {
    let status = check(
        json!({"readinessGates": [{"conditionType": "example.com/open"}]}),
        &observed(&[("a", running())]),
        "Running [PodReadyToStartContainers Initialized ContainersReady PodScheduled] a=running+",
    );
    let ready = status.conditions.unwrap().into_iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!(ready.reason.as_deref(), Some("ReadinessGatesNotReady"));
}

#[test]
fn times_are_whole_seconds_and_stay_while_nothing_changes() {
    let status = check(
        json!({}),
        &observed(&[("a", running())]),
        "Running [PodReadyToStartContainers Initialized Ready ContainersReady PodScheduled] a=running+",
    );
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "i"}]}, "status": status});
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let later = now() + jiff::SignedDuration::from_secs(100);
    let again = of(&pod, &observed(&[("a", running())]), "10.0.0.1", later);
    assert_eq!(again.conditions, status.conditions);
    assert_eq!(serde_json::to_value(again.start_time).unwrap(), json!("2024-01-01T00:01:00Z"));
}

#[test]
fn a_deleted_pod_ends_by_how_its_containers_did() {
    let end = |code: i32, cleared: bool| {
        let pod = json!({
            "metadata": {"name": "p", "generation": 2, "deletionTimestamp": "2024-01-01T00:00:00Z"},
            "spec": {"containers": [{"name": "a", "image": "i"}]},
        });
        let done = Seen { state: State::Ended(ended(code)), ..Seen::default() };
        let observed = Observed { cleared, ..observed(&[("a", done)]) };
        let status = of(&serde_json::from_value(pod).unwrap(), &observed, "10.0.0.1", now());
        assert_eq!(status.observed_generation, Some(2));
        status.phase.unwrap()
    };
    assert_eq!([end(0, false), end(0, true), end(3, true)], ["Running", "Succeeded", "Failed"]);
}

#[test]
fn a_container_that_was_made_shows_what_it_was_made_with() {
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [
        {"name": "b", "image": "busybox", "resources": {"requests": {"cpu": "1"}},
         "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": true}, {"name": "w", "mountPath": "/w"}]},
        {"name": "a", "image": "busybox"},
    ]}});
    let observed = observed(&[("b", Seen { asked: "busybox".to_owned(), ..running() })]);
    let status = of(&serde_json::from_value(pod).unwrap(), &observed, "10.0.0.1", now());
    let [a, b] = &status.container_statuses.unwrap()[..] else { panic!() };
    assert_eq!((&*a.name, &*a.image, &a.resources), ("a", "busybox", &None));
    assert_eq!((&*b.name, &*b.image), ("b", "docker.io/library/busybox:latest"));
    assert_eq!(serde_json::to_value(&b.resources).unwrap(), json!({"requests": {"cpu": "1"}}));
    assert_eq!(
        serde_json::to_value(&b.volume_mounts).unwrap(),
        json!([
            {"name": "v", "mountPath": "/v", "readOnly": true, "recursiveReadOnly": "Disabled"},
            {"name": "w", "mountPath": "/w"},
        ])
    );
}

#[test]
fn a_pod_that_was_over_before_anybody_looked_shows_its_address() {
    let done = Seen { state: State::Ended(ended(0)), ..Seen::default() };
    let gone = Observed {
        sandbox: Sandbox::None,
        address: Some([10, 0, 0, 2].into()),
        cleared: true,
        ..observed(&[("a", done)])
    };
    let status =
        check(json!({"restartPolicy": "Never"}), &gone, "Succeeded [Initialized PodScheduled] a=Completed");
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.2"));
}

#[test]
fn a_pod_is_over_when_nothing_of_it_runs_any_more() {
    let shut_down = Failure { reason: Failure::SHUT_DOWN, message: "m".to_owned(), grace: None };
    let failed = |reason, seen, before: &str| {
        let pod = json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "a", "image": "i"}], "restartPolicy": "Never"},
            "status": {"phase": before},
        });
        let failure = Failure { reason, ..shut_down.clone() };
        let observed = Observed { failed: Some(failure), ..observed(&[("a", seen)]) };
        let status = of(&serde_json::from_value(pod).unwrap(), &observed, "10.0.0.1", now());
        let said = status.conditions.unwrap().into_iter();
        let said: Vec<_> = said
            .filter(|one| ["Ready", "DisruptionTarget"].contains(&&*one.type_))
            .map(|one| format!("{}={}", one.type_, one.status))
            .collect();
        format!("{} {} {}", status.phase.unwrap(), status.reason.unwrap_or_default(), said.join(" "))
    };
    let done = || Seen { state: State::Ended(ended(143)), ..Seen::default() };
    let reason = Failure::SHUT_DOWN;
    assert_eq!(failed(reason, running(), "Running"), "Running  Ready=False");
    assert_eq!(failed(reason, done(), "Running"), "Failed Terminated Ready=False DisruptionTarget=True");
    assert_eq!(failed(Failure::EVICTED, done(), "Running"), "Failed Evicted Ready=False");
    // Who said that it is over is not contradicted.
    assert_eq!(failed("DeadlineExceeded", running(), "Failed"), "Failed DeadlineExceeded Ready=False");
}
