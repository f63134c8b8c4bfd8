use super::super::track::{Done, settle, track};
use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

/// A Job with this specification and status, and pods as words: a name, then how it is (`running`, `ready`,
/// `succeeded`, `failed`, `going`), its number (`#3`), whether it was let go (`free`), when it ended (`@MM-SS`).
struct Given {
    job: Job,
    pods: Vec<Arc<Pod>>,
}

fn given(spec: &str, status: &str, pods: &str) -> Given {
    let mut spec: serde_json::Value = serde_json::from_str(spec).unwrap();
    let usual = serde_json::json!({ "parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed" });
    for (field, value) in usual.as_object().unwrap() {
        if spec.get(field).is_none() {
            spec[field] = value.clone();
        }
    }
    let status: serde_json::Value = serde_json::from_str(status).unwrap();
    let job = serde_json::json!({ "metadata": { "name": "j", "uid": "j" }, "spec": spec, "status": status });
    let read = |word: &str| {
        let mut parts = word.split(':');
        let name = parts.next().unwrap();
        let mut pod = serde_json::json!({
            "metadata": { "name": name, "uid": name, "namespace": "n", "finalizers": [TRACKING] },
            "spec": { "nodeName": "n" },
            "status": { "phase": "Running" },
        });
        for how in parts {
            match how {
                "going" => pod["metadata"]["deletionTimestamp"] = NOW.into(),
                "free" => pod["metadata"]["finalizers"] = serde_json::json!([]),
                "succeeded" => pod["status"]["phase"] = "Succeeded".into(),
                "failed" => pod["status"]["phase"] = "Failed".into(),
                "running" => {}
                "ready" => {
                    pod["status"]["conditions"] = serde_json::json!([{ "type": "Ready", "status": "True" }]);
                }
                other => match (other.strip_prefix('#'), other.strip_prefix('@'), other.strip_prefix('+')) {
                    (Some(index), ..) => pod["metadata"]["annotations"][INDEX] = index.into(),
                    (_, Some(time), _) => {
                        let at = format!("2026-01-01T00:{}Z", time.replace('-', ":"));
                        let ended = serde_json::json!({ "exitCode": 1, "finishedAt": at });
                        pod["status"]["containerStatuses"] =
                            serde_json::json!([{ "name": "c", "state": { "terminated": ended } }]);
                    }
                    (_, _, Some(times)) => pod["metadata"]["annotations"][FAILED_BEFORE] = times.into(),
                    _ => panic!("{other}"),
                },
            }
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    };
    Given { job: serde_json::from_value(job).unwrap(), pods: pods.split_whitespace().map(read).collect() }
}

/// What is decided when all that is asked for is done, and everything let go at once.
fn told(given: &Given) -> String {
    told_holding(given, "")
}

/// What is decided when all that is asked for is done, but this pod could not be let go.
fn told_holding(given: &Given, held: &str) -> String {
    let view =
        View { job: &given.job, pods: &given.pods, failures: Failures::default(), now: NOW.parse().unwrap() };
    let assessment = assess(&view);
    let names = |pods: &[Arc<Pod>]| pods.iter().map(|pod| &*pod.metadata.name).collect::<Vec<_>>().join("+");
    let mut words = Vec::new();
    let mut done = Done { whole: true, ..Done::default() };
    match &assessment.work {
        Work::Leave => {}
        Work::Create(new) => {
            done.created = count(new.iter());
            let numbers: Vec<String> = new
                .iter()
                .filter_map(|new| {
                    let failed =
                        new.failed_before.filter(|one| *one != (0, 0)).map(|one| format!("+{}", one.0));
                    Some(format!("#{}{}", new.index?, failed.unwrap_or_default()))
                })
                .collect();
            words.push(match numbers.is_empty() {
                true => format!("create {}", new.len()),
                false => format!("create {}", numbers.join(" ")),
            });
        }
        Work::Delete { pods, counted } if !pods.is_empty() => {
            done.deleted = count(pods.iter());
            words.push(format!("delete {}{}", names(pods), if *counted { "" } else { " uncounted" }));
        }
        Work::Delete { .. } => {}
    }
    let tracked = track(&view, &assessment, done);
    if !tracked.release.is_empty() {
        words.push(format!("let {} go", names(&tracked.release)));
    }
    let left = given.pods.iter().filter(|pod| {
        &*pod.metadata.name == held || tracked.release.iter().all(|one| !Arc::ptr_eq(one, pod))
    });
    let left = left.map(|pod| pod.metadata.uid.clone()).collect();
    let (status, end) = settle(&tracked, &left, view.now);
    words.push(format!("active {} succeeded {} failed {}", status.active, status.succeeded, status.failed));
    if !status.completed_indexes.is_empty() {
        words.push(format!("through {}", status.completed_indexes));
    }
    if let Some(failed) = &status.failed_indexes {
        words.push(format!("failed [{failed}]"));
    }
    for one in status.conditions.iter().filter(|one| !given.job.status.conditions.contains(one)) {
        words.push(format!("{}={} {}", one.r#type, one.status, one.reason));
    }
    if let Some(end) = end {
        words.push(format!("{} at {}", end.message, status.completion_time.is_some()));
    }
    if let Some(wait) = assessment.look_again {
        words.push(format!("again in {}s", wait.as_secs()));
    }
    words.join(", ")
}

#[track_caller]
fn check(spec: &str, status: &str, pods: &str, expected: &str) {
    assert_eq!(told(&given(spec, status, pods)), expected);
}

const COMPLETE: &str = "SuccessCriteriaMet=True CompletionsReached, Complete=True CompletionsReached, \
                        Reached expected number of succeeded pods at true";

#[test]
fn as_many_pods_run_at_a_time_as_may_and_are_still_needed() {
    let three = r#"{"completions":3,"parallelism":2}"#;
    check(three, "{}", "", "create 2, active 2 succeeded 0 failed 0");
    check(three, "{}", "a:ready b:ready", "active 2 succeeded 0 failed 0");
    check(three, "{}", "a:succeeded b:ready", "create 1, let a go, active 2 succeeded 1 failed 0");
    check(three, r#"{"succeeded":2}"#, "b:ready", "active 1 succeeded 2 failed 0");
    check(
        three,
        r#"{"succeeded":2}"#,
        "b:succeeded",
        &format!("let b go, active 0 succeeded 3 failed 0, {COMPLETE}"),
    );
    check(three, "{}", "a:ready b:ready c:running", "delete c uncounted, active 2 succeeded 0 failed 0");
}

#[test]
fn a_pod_is_counted_once_however_often_it_is_looked_at() {
    let two = r#"{"completions":2,"parallelism":1}"#;
    let noted = r#"{"uncountedTerminatedPods":{"succeeded":["a"]}}"#;
    check(two, noted, "a:succeeded", "create 1, let a go, active 1 succeeded 1 failed 0");
    check(two, noted, "a:succeeded:free", "create 1, active 1 succeeded 1 failed 0");
    check(two, r#"{"succeeded":1}"#, "a:succeeded:free", "create 1, active 1 succeeded 1 failed 0");
}

#[test]
fn without_completions_the_first_success_ends_it_when_all_are_over() {
    let any = r#"{"parallelism":2}"#;
    check(any, "{}", "a:ready", "create 1, active 2 succeeded 0 failed 0");
    check(any, "{}", "a:succeeded b:ready", "let a go, active 1 succeeded 1 failed 0");
    check(
        any,
        "{}",
        "a:succeeded b:succeeded",
        &format!("let a+b go, active 0 succeeded 2 failed 0, {COMPLETE}"),
    );
}

#[test]
fn failures_wait_longer_each_time_and_are_limited() {
    let one = r#"{"completions":1,"backoffLimit":1}"#;
    check(one, "{}", "a:failed:@59-55", "let a go, active 0 succeeded 0 failed 1, again in 5s");
    check(one, "{}", "a:failed:@59-40", "create 1, let a go, active 1 succeeded 0 failed 1");
    let limit = "FailureTarget=True BackoffLimitExceeded, Failed=True BackoffLimitExceeded, \
                 Job has reached the specified backoff limit at false";
    check(
        one,
        r#"{"failed":1}"#,
        "b:failed:@59-00",
        &format!("let b go, active 0 succeeded 0 failed 2, {limit}"),
    );
    check(
        r#"{"completions":1,"backoffLimit":2,"parallelism":3}"#,
        r#"{"failed":2}"#,
        "a:failed b:ready",
        "delete b, let a+b go, active 0 succeeded 0 failed 4, FailureTarget=True BackoffLimitExceeded",
    );
}

#[test]
fn a_pod_that_is_taken_away_has_failed_unless_it_is_waited_for() {
    check(
        r#"{"completions":1}"#,
        "{}",
        "a:going:@00-00",
        "create 1, let a go, active 1 succeeded 0 failed 1",
    );
    check(
        r#"{"completions":1,"podReplacementPolicy":"Failed"}"#,
        "{}",
        "a:going",
        "active 0 succeeded 0 failed 0",
    );
}

#[test]
fn a_job_that_takes_too_long_fails() {
    let soon = r#"{"completions":1,"activeDeadlineSeconds":60}"#;
    check(
        soon,
        r#"{"startTime":"2026-01-01T00:59:30Z"}"#,
        "a:ready",
        "active 1 succeeded 0 failed 0, again in 30s",
    );
    check(
        soon,
        r#"{"startTime":"2026-01-01T00:58:30Z"}"#,
        "a:ready",
        "delete a, let a go, active 0 succeeded 0 failed 1, FailureTarget=True DeadlineExceeded",
    );
    check(
        soon,
        r#"{"startTime":"2026-01-01T00:58:30Z","failed":1,"conditions":[{"type":"FailureTarget","status":"True","reason":"DeadlineExceeded","message":"why"}]}"#,
        "",
        "active 0 succeeded 0 failed 1, Failed=True DeadlineExceeded, why at false",
    );
}

#[test]
fn a_job_that_is_held_has_no_pods_and_begins_anew() {
    let held = r#"{"completions":1,"suspend":true}"#;
    check(
        held,
        "{}",
        "a:ready",
        "delete a uncounted, active 0 succeeded 0 failed 0, Suspended=True JobSuspended",
    );
    let before = r#"{"conditions":[{"type":"Suspended","status":"True","reason":"JobSuspended","message":"Job suspended"}]}"#;
    check(
        r#"{"completions":1}"#,
        before,
        "",
        "create 1, active 1 succeeded 0 failed 0, Suspended=False JobResumed",
    );
    let resumed = given(r#"{"completions":1}"#, before, "");
    let view =
        View { job: &resumed.job, pods: &[], failures: Failures::default(), now: NOW.parse().unwrap() };
    let tracked = track(&view, &assess(&view), Done { whole: true, ..Done::default() });
    assert_eq!((tracked.status.start_time, tracked.held), (Some(NOW.parse().unwrap()), Some(false)));
}

#[test]
fn each_number_succeeds_once() {
    let four = r#"{"completions":4,"parallelism":2,"completionMode":"Indexed"}"#;
    check(four, "{}", "", "create #0 #1, active 2 succeeded 0 failed 0");
    check(
        four,
        r#"{"completedIndexes":"1"}"#,
        "a:ready:#0",
        "create #2, active 2 succeeded 1 failed 0, through 1",
    );
    check(
        four,
        r#"{"completedIndexes":"1","succeeded":1}"#,
        "a:succeeded:#0 b:ready:#2",
        "create #3, let a go, active 2 succeeded 2 failed 0, through 0,1",
    );
    check(
        four,
        r#"{"completedIndexes":"1-3","succeeded":3}"#,
        "a:succeeded:#0",
        &format!("let a go, active 0 succeeded 4 failed 0, through 0-3, {COMPLETE}"),
    );
    check(four, "{}", "a:ready:#0 b:ready:#0 c:ready", "delete c+a uncounted, active 1 succeeded 0 failed 0");
}

#[test]
fn numbers_fail_by_themselves_where_that_is_asked_for() {
    let own = r#"{"completions":2,"parallelism":2,"completionMode":"Indexed","backoffLimitPerIndex":1,"backoffLimit":2147483647}"#;
    check(
        own,
        "{}",
        "a:failed:#0:@59-30 b:ready:#1",
        "create #0+1, active 2 succeeded 0 failed 0, failed []",
    );
    check(
        own,
        "{}",
        "a:failed:#0:@59-55 b:ready:#1",
        "active 1 succeeded 0 failed 0, failed [], again in 5s",
    );
    check(
        own,
        "{}",
        "a:failed:#0:+1:@59-30 b:ready:#1",
        "let a go, active 1 succeeded 0 failed 1, failed [0]",
    );
    check(
        own,
        r#"{"failed":2,"failedIndexes":"0"}"#,
        "b:succeeded:#1",
        "let b go, active 0 succeeded 1 failed 2, through 1, failed [0], FailureTarget=True FailedIndexes, \
         Failed=True FailedIndexes, Job has failed indexes at false",
    );
}

#[test]
fn enough_numbers_are_enough() {
    let policy = r#"{"completions":3,"parallelism":3,"completionMode":"Indexed","successPolicy":{"rules":[{"succeededIndexes":"2"},{"succeededCount":2}]}}"#;
    check(
        policy,
        "{}",
        "a:succeeded:#0 b:ready:#1 c:succeeded:#2",
        "delete b, let a+b+c go, active 0 succeeded 2 failed 0, through 0,2, SuccessCriteriaMet=True SuccessPolicy",
    );
}

#[test]
fn a_success_rule_that_names_no_index_is_passed_over() {
    for rules in [
        r#"{"succeededIndexes":""}"#,
        r#"{"succeededIndexes":"","succeededCount":1}"#,
        r#"{"succeededIndexes":"7"}"#,
    ] {
        let policy = |rules: &str| {
            format!(
                r#"{{"completions":3,"parallelism":3,"completionMode":"Indexed","successPolicy":{{"rules":[{rules}]}}}}"#
            )
        };
        let pods = "a:succeeded:#0 b:ready:#1 c:ready:#2";
        check(&policy(rules), "{}", pods, "let a go, active 2 succeeded 1 failed 0, through 0");
        let next = format!(r#"{rules},{{"succeededCount":1}}"#);
        check(
            &policy(&next),
            "{}",
            pods,
            "delete b+c, let a+b+c go, active 0 succeeded 1 failed 0, through 0, SuccessCriteriaMet=True SuccessPolicy",
        );
    }
}

#[test]
fn a_job_is_not_over_while_a_pod_is_held_that_counts_by_other_means() {
    let indexed = given(r#"{"completions":1,"completionMode":"Indexed"}"#, "{}", "a:succeeded:#0");
    let met = "SuccessCriteriaMet=True CompletionsReached";
    let before_the_end = format!("let a go, active 0 succeeded 1 failed 0, through 0, {met}");
    assert_eq!(told_holding(&indexed, "a"), before_the_end);
    let ignored = given(
        r#"{"completions":1,"podFailurePolicy":{"rules":[{"action":"Ignore","onExitCodes":{"operator":"In","values":[1]}}]}}"#,
        "{}",
        "a:failed:@50-00 b:succeeded",
    );
    let before_the_end = format!("let a+b go, active 0 succeeded 1 failed 0, {met}");
    assert_eq!(told_holding(&ignored, "a"), before_the_end);
}

#[test]
fn what_a_failure_means_is_said_by_the_policy() {
    let policy = r#"{"completions":1,"backoffLimit":0,"podFailurePolicy":{"rules":[{"action":"Ignore","onExitCodes":{"operator":"In","values":[1]}}]}}"#;
    check(policy, "{}", "a:failed:@50-00", "create 1, let a go, active 1 succeeded 0 failed 0");
    let fatal = r#"{"completions":1,"podFailurePolicy":{"rules":[{"action":"FailJob","onExitCodes":{"operator":"In","values":[1]}}]}}"#;
    check(
        fatal,
        "{}",
        "a:failed:@50-00",
        "let a go, active 0 succeeded 0 failed 1, FailureTarget=True PodFailurePolicy, Failed=True PodFailurePolicy, \
         Container c for pod n/a failed with exit code 1 matching FailJob rule at index 0 at false",
    );
}

#[test]
fn a_job_that_is_being_deleted_lets_everything_go() {
    let mut given = given(r#"{"completions":2}"#, "{}", "a:ready");
    given.job.metadata.deletion_timestamp = Some(NOW.parse().unwrap());
    assert_eq!(told(&given), "let a go, active 1 succeeded 0 failed 0");
}
