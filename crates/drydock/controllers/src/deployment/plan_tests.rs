use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

fn words(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split_whitespace().map(|word| word.split_once('=').unwrap_or((word, "")))
}

fn template(name: &str) -> String {
    format!(r#"{{"metadata":{{"labels":{{"app":"web"}}}},"spec":{{"containers":[{{"name":"{name}"}}]}}}}"#)
}

/// `replicas=10 surge=3 unavailable=2 template=b …`
fn deployment(line: &str) -> Deployment {
    let text = r#"{"metadata":{"name":"web","namespace":"n","uid":"d","generation":2},
        "spec":{"selector":{"matchLabels":{"app":"web"}},"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"}},
        "progressDeadlineSeconds":600,"revisionHistoryLimit":10},"status":{"observedGeneration":2}}"#;
    let mut deployment: Deployment = serde_json::from_str(text).unwrap();
    for (key, value) in words(line) {
        let number = value.parse().unwrap_or(0);
        let (spec, status) = (&mut deployment.spec, &mut deployment.status);
        match key {
            "replicas" => spec.replicas = number,
            "surge" => spec.strategy.rolling_update.max_surge = Some(serde_json::from_str(value).unwrap()),
            "unavailable" => {
                spec.strategy.rolling_update.max_unavailable = Some(serde_json::from_str(value).unwrap());
            }
            "template" => spec.template = serde_json::from_str(&template(value)).unwrap(),
            "recreate" => spec.strategy.r#type = "Recreate".into(),
            "paused" => spec.paused = true,
            "limit" => spec.revision_history_limit = Some(number),
            "minReady" => spec.min_ready_seconds = number,
            "revision" => {
                deployment.metadata.annotations.set(REVISION, value);
            }
            "annotation" => {
                deployment.metadata.annotations.set("note", value);
            }
            "deleting" => deployment.metadata.deletion_timestamp = Some(NOW.parse().unwrap()),
            "progressing" => {
                let (reason, time) = value.split_once('@').unwrap();
                let time = format!("2026-01-01T{time}Z").parse().unwrap();
                let is = if reason == "ProgressDeadlineExceeded" { "False" } else { "True" };
                status.conditions.push(new_condition(PROGRESSING, is, reason, String::new(), time));
            }
            "had" => {
                let counts: Vec<i32> = value.split('/').map(|count| count.parse().unwrap()).collect();
                (status.updated_replicas, status.replicas) = (counts[0], counts[1]);
                (status.ready_replicas, status.available_replicas) = (counts[2], counts[2]);
            }
            other => panic!("{other}"),
        }
    }
    deployment
}

/// `name template=a replicas=10 available=10 …`
fn set(at: usize, line: &str) -> ReplicaSet {
    let (name, rest) = line.split_once(' ').unwrap();
    let mut set = ReplicaSet::default();
    set.metadata.name = name.into();
    set.metadata.creation_timestamp = Some(format!("2026-01-01T00:{at:02}:00Z").parse().unwrap());
    for (key, value) in words(rest) {
        let number: i32 = value.parse().unwrap_or(0);
        match key {
            "template" => set.spec.template = serde_json::from_str(&template(value)).unwrap(),
            "replicas" => {
                set.spec.replicas = number;
                set.status.replicas = number;
            }
            "has" => set.status.replicas = number,
            "available" => {
                set.status.available_replicas = number;
                set.status.ready_replicas = number;
            }
            "desired" => {
                set.metadata.annotations.set(DESIRED, value);
            }
            "max" => {
                set.metadata.annotations.set(MAXIMUM, value);
            }
            "revision" => {
                set.metadata.annotations.set(REVISION, value);
            }
            "failing" => {
                let time = NOW.parse().unwrap();
                set.status.conditions.push(new_condition(
                    "ReplicaFailure",
                    "True",
                    "FailedCreate",
                    value.into(),
                    time,
                ));
            }
            other => panic!("{other}"),
        }
    }
    set
}

fn tell(plan: &Plan<'_>) -> String {
    let mut lines = Vec::new();
    let notes = |annotations: &Pairs| {
        let short = |(name, value): (&str, &str)| format!(" {}={value}", name.rsplit('/').next().unwrap());
        annotations.iter().map(short).collect::<String>()
    };
    for action in &plan.actions {
        lines.push(match action {
            Action::Create { replicas, annotations, .. } => {
                format!("create {replicas}{}", notes(annotations))
            }
            Action::Edit { set, replicas, annotations, min_ready_seconds } => {
                let mut line = format!("edit {}", set.metadata.name);
                if let Some(replicas) = replicas {
                    line += &format!(" {} to {replicas}", set.spec.replicas);
                }
                if let Some(seconds) = min_ready_seconds {
                    line += &format!(" ready {seconds}s");
                }
                line + &annotations.as_ref().map(notes).unwrap_or_default()
            }
            Action::Delete(set) => format!("delete {}", set.metadata.name),
        });
    }
    if let Some(revision) = &plan.revision {
        lines.push(format!("revision {revision}"));
    }
    let status = &plan.status;
    let conditions: String = status
        .conditions
        .iter()
        .map(|condition| format!(" {}={}:{}", condition.r#type, condition.status, condition.reason))
        .collect();
    lines.push(format!(
        "status {}/{} available {} missing {}{conditions}",
        status.updated_replicas, status.replicas, status.available_replicas, status.unavailable_replicas
    ));
    lines.join("\n")
}

#[track_caller]
fn check(owner: &str, sets: &str, expected: &str) {
    check_with(owner, sets, false, expected);
}

#[track_caller]
fn check_with(owner: &str, sets: &str, old_pods_running: bool, expected: &str) {
    let deployment = deployment(owner);
    let sets: Vec<_> = sets
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .enumerate()
        .map(|(at, line)| set(at, line))
        .collect();
    let now = NOW.parse().unwrap();
    let plan = plan(View { deployment: &deployment, sets: sets.iter().collect(), old_pods_running, now });
    let expected: Vec<_> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(tell(&plan), expected.join("\n"));
}

#[test]
fn a_new_deployment_gets_a_set_of_full_size() {
    check(
        "replicas=3 template=a annotation=kept",
        "",
        "create 3 desired-replicas=3 max-replicas=4 revision=1 note=kept
         revision 1
         status 0/0 available 0 missing 3 Progressing=True:NewReplicaSetCreated Available=False:MinimumReplicasUnavailable",
    );
}

#[test]
fn pods_that_become_available_are_progress_and_then_completion() {
    check(
        "replicas=3 template=a revision=1 progressing=NewReplicaSetCreated@00:59:00",
        "web-a template=a replicas=3 available=1 desired=3 max=4 revision=1",
        "status 3/3 available 1 missing 2 Available=False:MinimumReplicasUnavailable Progressing=True:ReplicaSetUpdated",
    );
    check(
        "replicas=3 template=a revision=1 progressing=ReplicaSetUpdated@00:59:00 had=3/3/2",
        "web-a template=a replicas=3 available=3 desired=3 max=4 revision=1",
        "status 3/3 available 3 missing 0 Available=True:MinimumReplicasAvailable Progressing=True:NewReplicaSetAvailable",
    );
}

#[test]
fn a_new_template_starts_with_the_surge_and_takes_what_may_be_unavailable() {
    check(
        "replicas=10 surge=3 unavailable=2 template=b revision=1 progressing=NewReplicaSetAvailable@00:01:00 had=10/10/10",
        "web-a template=a replicas=10 available=10 desired=10 max=13 revision=1",
        "create 3 desired-replicas=10 max-replicas=13 revision=2
         edit web-a 10 to 8
         revision 2
         status 0/10 available 10 missing 1 Progressing=True:NewReplicaSetCreated Available=True:MinimumReplicasAvailable",
    );
}

#[test]
fn old_pods_go_as_new_ones_become_available() {
    check(
        "replicas=10 surge=3 unavailable=2 template=b revision=2 progressing=NewReplicaSetCreated@00:59:00 had=3/13/10",
        "web-a template=a replicas=8 available=8 desired=10 max=13 revision=1
         web-b template=b replicas=5 available=5 desired=10 max=13 revision=2",
        "edit web-a 8 to 3
         status 5/13 available 13 missing 0 Available=True:MinimumReplicasAvailable Progressing=True:ReplicaSetUpdated",
    );
}

#[test]
fn new_pods_that_do_not_become_available_hold_the_rollout() {
    check(
        "replicas=10 surge=3 unavailable=2 template=b revision=2 progressing=NewReplicaSetCreated@00:59:00 had=5/13/8",
        "web-a template=a replicas=8 available=8 desired=10 max=13 revision=1
         web-b template=b replicas=5 available=0 desired=10 max=13 revision=2",
        "status 5/13 available 8 missing 5 Progressing=True:NewReplicaSetCreated Available=True:MinimumReplicasAvailable",
    );
}

#[test]
fn unavailable_old_pods_go_first() {
    check(
        "replicas=4 surge=1 unavailable=0 template=b revision=2 progressing=NewReplicaSetCreated@00:59:00 had=1/5/3",
        "web-a template=a replicas=4 available=3 desired=4 max=5 revision=1
         web-b template=b replicas=1 available=1 desired=4 max=5 revision=2",
        "edit web-a 4 to 3
         status 1/5 available 4 missing 0 Available=True:MinimumReplicasAvailable Progressing=True:ReplicaSetUpdated",
    );
}

#[test]
fn an_old_template_again_is_a_rollback_to_its_set() {
    check(
        "replicas=4 surge=1 unavailable=0 template=a revision=2 progressing=NewReplicaSetAvailable@00:01:00 had=4/4/4",
        "web-a template=a replicas=0 desired=4 max=5 revision=1
         web-b template=b replicas=4 available=4 desired=4 max=5 revision=2",
        "edit web-a 0 to 1 desired-replicas=4 max-replicas=5 revision=3 revision-history=1
         revision 3
         status 0/4 available 4 missing 1 Progressing=True:NewReplicaSetAvailable Available=True:MinimumReplicasAvailable",
    );
}

#[test]
fn a_deployment_that_is_scaled_scales_its_only_set() {
    check(
        "replicas=5 template=a revision=1 progressing=NewReplicaSetAvailable@00:01:00 had=3/3/3",
        "web-a template=a replicas=3 available=3 desired=3 max=4 revision=1",
        "edit web-a 3 to 5 desired-replicas=5 max-replicas=7 revision=1
         status 3/3 available 3 missing 2 Progressing=True:NewReplicaSetAvailable Available=False:MinimumReplicasUnavailable",
    );
}

#[test]
fn scaling_amidst_a_rollout_is_proportional() {
    check(
        "replicas=20 surge=5 unavailable=2 template=b revision=2 progressing=ReplicaSetUpdated@00:59:00 had=5/13/8",
        "web-a template=a replicas=8 available=8 desired=10 max=13 revision=1
         web-b template=b replicas=5 available=0 desired=10 max=13 revision=2",
        "edit web-b 5 to 10 desired-replicas=20 max-replicas=25 revision=2
         edit web-a 8 to 15 desired-replicas=20 max-replicas=25 revision=1
         status 5/13 available 8 missing 17 Progressing=True:ReplicaSetUpdated Available=False:MinimumReplicasUnavailable",
    );
}

#[test]
fn a_paused_deployment_is_scaled_but_rolls_nothing_out() {
    check(
        "replicas=5 template=b paused revision=1 progressing=NewReplicaSetAvailable@00:01:00 had=3/3/3",
        "web-a template=a replicas=3 available=3 desired=3 max=4 revision=1",
        "edit web-a 3 to 5 desired-replicas=5 max-replicas=7 revision=1
         status 0/3 available 3 missing 2 Progressing=Unknown:DeploymentPaused Available=False:MinimumReplicasUnavailable",
    );
}

#[test]
fn a_resumed_deployment_says_so_and_goes_on() {
    check(
        "replicas=1 template=a revision=1 progressing=DeploymentPaused@00:01:00 had=1/1/0",
        "web-a template=a replicas=1 available=0 desired=1 max=2 revision=1",
        "status 1/1 available 0 missing 1 Progressing=Unknown:DeploymentResumed Available=False:MinimumReplicasUnavailable",
    );
}

#[test]
fn no_progress_within_the_deadline_is_told_once() {
    check(
        "replicas=1 template=a revision=1 progressing=ReplicaSetUpdated@00:40:00 had=1/1/0",
        "web-a template=a replicas=1 available=0 desired=1 max=2 revision=1",
        "status 1/1 available 0 missing 1 Available=False:MinimumReplicasUnavailable Progressing=False:ProgressDeadlineExceeded",
    );
    check(
        "replicas=1 template=a revision=1 progressing=ProgressDeadlineExceeded@00:50:00 had=1/1/0",
        "web-a template=a replicas=1 available=0 desired=1 max=2 revision=1",
        "status 1/1 available 0 missing 1 Progressing=False:ProgressDeadlineExceeded Available=False:MinimumReplicasUnavailable",
    );
}

/// When one that has lost a pod, or never had it, is looked at again.
fn looked_at_again(owner: &str, deleting: bool) -> Option<u64> {
    let mut deployment = deployment(&format!("replicas=1 template=a revision=1 had=1/1/0 {owner}"));
    let now = NOW.parse().unwrap();
    deployment.metadata.deletion_timestamp = deleting.then_some(now);
    let set = set(0, "web-a template=a replicas=1 available=0 desired=1 max=2 revision=1");
    let plan = plan(View { deployment: &deployment, sets: vec![&set], old_pods_running: false, now });
    plan.look_again.map(|wait| wait.as_secs())
}

#[test]
fn the_deadline_is_looked_at_when_it_passes() {
    assert_eq!(looked_at_again("progressing=ReplicaSetUpdated@00:55:00", false), Some(301));
}

#[test]
fn what_no_deadline_changes_is_not_looked_at_again() {
    for progressing in [
        "NewReplicaSetAvailable@00:55:00",
        "NewReplicaSetAvailable@00:01:00",
        "ProgressDeadlineExceeded@00:55:00",
    ] {
        assert_eq!(looked_at_again(&format!("progressing={progressing}"), false), None, "{progressing}");
    }
    for progressing in ["ReplicaSetUpdated@00:55:00", "ReplicaSetUpdated@00:01:00"] {
        assert_eq!(looked_at_again(&format!("progressing={progressing}"), true), None, "{progressing}");
    }
}

#[test]
fn recreate_waits_for_the_last_old_pod() {
    let owner =
        "replicas=3 recreate template=b revision=1 progressing=NewReplicaSetAvailable@00:01:00 had=3/3/3";
    check(
        owner,
        "web-a template=a replicas=3 available=3 desired=3 max=3 revision=1",
        "edit web-a 3 to 0
         status 0/3 available 3 missing 0 Progressing=True:NewReplicaSetAvailable Available=True:MinimumReplicasAvailable",
    );
    let gone = "web-a template=a replicas=0 has=0 desired=3 max=3 revision=1";
    check_with(
        owner,
        gone,
        true,
        "status 0/0 available 0 missing 0 Progressing=True:NewReplicaSetAvailable Available=False:MinimumReplicasUnavailable",
    );
    check_with(
        owner,
        gone,
        false,
        "create 3 desired-replicas=3 max-replicas=3 revision=2
         revision 2
         status 0/0 available 0 missing 3 Progressing=True:NewReplicaSetCreated Available=False:MinimumReplicasUnavailable",
    );
}

#[test]
fn old_sets_beyond_the_limit_are_deleted_behind_a_complete_rollout() {
    check(
        "replicas=1 limit=1 template=d revision=4 progressing=NewReplicaSetAvailable@00:01:00 had=1/1/1",
        "web-c template=c replicas=0 revision=3
         web-a template=a replicas=0 revision=1
         web-b template=b replicas=0 has=1 revision=2
         web-d template=d replicas=1 available=1 desired=1 max=2 revision=4",
        "delete web-a
         status 1/2 available 1 missing 0 Progressing=True:NewReplicaSetAvailable Available=True:MinimumReplicasAvailable",
    );
}

#[test]
fn a_failure_of_a_set_is_a_failure_of_the_deployment() {
    check(
        "replicas=1 template=a revision=1 progressing=NewReplicaSetCreated@00:59:00",
        "web-a template=a replicas=1 has=0 available=0 desired=1 max=2 revision=1 failing=quota",
        "status 0/0 available 0 missing 1 Progressing=True:NewReplicaSetCreated Available=False:MinimumReplicasUnavailable ReplicaFailure=True:FailedCreate",
    );
}

#[test]
fn a_deployment_that_is_being_deleted_only_tells() {
    check(
        "replicas=3 deleting template=b revision=1",
        "web-a template=a replicas=1 available=1 desired=1 max=2 revision=1",
        "status 0/1 available 1 missing 0 Available=False:MinimumReplicasUnavailable",
    );
}

#[test]
fn a_changed_readiness_time_reaches_the_current_set() {
    check(
        "replicas=1 minReady=9 template=a revision=1 progressing=NewReplicaSetAvailable@00:01:00 had=1/1/1",
        "web-a template=a replicas=1 available=1 desired=1 max=2 revision=1",
        "edit web-a ready 9s
         status 1/1 available 1 missing 0 Progressing=True:NewReplicaSetAvailable Available=True:MinimumReplicasAvailable",
    );
}

/// Plays a roll-out to its end: every pod becomes available at once, and the bounds must hold at each step.
#[track_caller]
fn play(owner: &str) {
    let mut deployment = deployment(owner);
    let mut sets = vec![set(0, "web-a template=a replicas=7 available=7 desired=7 max=9 revision=1")];
    let (floor, ceiling) = (
        deployment.spec.replicas - max_unavailable(&deployment),
        deployment.spec.replicas + max_surge(&deployment),
    );
    for step in 1..40 {
        let now: Timestamp = NOW.parse().unwrap();
        let (copies, copy) = (sets.clone(), deployment.clone());
        let plan =
            plan(View { deployment: &copy, sets: copies.iter().collect(), old_pods_running: false, now });
        let quiet = plan.actions.is_empty() && plan.status == deployment.status && plan.revision.is_none();
        if quiet {
            assert!(complete(&deployment, &deployment.status), "stuck after {step} steps: {}", tell(&plan));
            assert_eq!(sets.len(), 2);
            return;
        }
        for action in plan.actions {
            match action {
                Action::Create { name, replicas, annotations, .. } => {
                    let mut new = set(step, "x template=b");
                    new.metadata.name = name.as_str().into();
                    new.metadata.annotations = annotations;
                    new.spec.replicas = replicas;
                    sets.push(new);
                }
                Action::Edit { set: edited, replicas, annotations, .. } => {
                    let own = sets.iter_mut().find(|own| own.metadata.name == edited.metadata.name).unwrap();
                    own.spec.replicas = replicas.unwrap_or(own.spec.replicas);
                    own.metadata.annotations =
                        annotations.unwrap_or_else(|| own.metadata.annotations.clone());
                }
                Action::Delete(_) => panic!("nothing is to be deleted"),
            }
        }
        let total: i32 = sets.iter().map(|set| set.spec.replicas).sum();
        let staying: i32 = sets.iter().map(|set| set.spec.replicas.min(set.status.available_replicas)).sum();
        assert!(total <= ceiling, "{total} pods in step {step}");
        assert!(staying >= floor, "{staying} available in step {step}");
        deployment.status = plan.status;
        if let Some(revision) = plan.revision {
            deployment.metadata.annotations.set(REVISION, &revision);
        }
        for set in &mut sets {
            set.status.replicas = set.spec.replicas;
            set.status.available_replicas = set.spec.replicas;
            set.status.ready_replicas = set.spec.replicas;
        }
    }
    panic!("it does not come to an end");
}

#[test]
fn every_rolling_update_ends_within_its_bounds_and_then_plans_nothing() {
    for (surge, unavailable) in
        [("\"25%\"", "\"25%\""), ("1", "0"), ("0", "1"), ("3", "2"), ("\"100%\"", "0"), ("0", "\"1%\"")]
    {
        play(&format!(
            "replicas=7 surge={surge} unavailable={unavailable} template=b revision=1 progressing=NewReplicaSetAvailable@00:01:00 had=7/7/7"
        ));
    }
}
