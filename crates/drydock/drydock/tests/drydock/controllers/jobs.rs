//! Jobs and CronJobs: pods that end, and what follows from how they do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use drydock::{Drydock, Fault, Verb};
use k8s_openapi::api::batch::v1::{CronJob, Job, JobStatus};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::controllers::support::{Cluster, eventually, object};

fn template(restart: &str) -> Value {
    json!({ "spec": { "restartPolicy": restart, "containers": [{ "name": "c", "image": "i:1" }] } })
}

async fn run(cluster: &Cluster, more: Value) -> Job {
    let mut spec = json!({ "template": template("Never") });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let job = json!({ "metadata": { "name": "j" }, "spec": spec });
    cluster.in_default::<Job>().create(&PostParams::default(), &object(job)).await.unwrap()
}

/// Waits until this many pods of the Job are there and neither ended nor ending.
async fn active(cluster: &Cluster, count: usize) -> Vec<Pod> {
    let pods: Api<Pod> = cluster.in_default();
    eventually(&format!("{count} pods"), || async {
        let all = pods.list(&ListParams::default()).await.ok()?.items;
        let active = all.into_iter().filter(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            !matches!(phase, Some("Succeeded" | "Failed")) && pod.metadata.deletion_timestamp.is_none()
        });
        let active: Vec<Pod> = active.collect();
        (active.len() == count).then_some(active)
    })
    .await
}

/// Ends a pod, some time ago.
async fn end(cluster: &Cluster, pod: &Pod, phase: &str, code: i32) {
    let at = jiff::Timestamp::now() - jiff::SignedDuration::from_mins(10);
    let status = json!({ "status": {
        "phase": phase,
        "containerStatuses": [{
            "name": "c", "image": "i:1", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": code, "finishedAt": at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() } },
        }],
    } });
    let pods: Api<Pod> = cluster.in_default();
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

/// Waits until the status is so.
async fn status(cluster: &Cluster, what: &str, so: impl Fn(&JobStatus) -> bool) -> JobStatus {
    let jobs: Api<Job> = cluster.in_default();
    eventually(what, || async {
        let status = jobs.get("j").await.ok()?.status?;
        so(&status).then_some(status)
    })
    .await
}

fn conditions(status: &JobStatus) -> Vec<String> {
    let all = status.conditions.iter().flatten();
    all.map(|one| format!("{}={} {}", one.type_, one.status, one.reason.clone().unwrap_or_default()))
        .collect()
}

fn is(status: &JobStatus, condition: &str) -> bool {
    conditions(status).iter().any(|one| one.starts_with(&format!("{condition}=True")))
}

#[tokio::test]
async fn a_job_is_complete_when_enough_pods_succeeded() {
    let cluster = Cluster::start().await;
    run(&cluster, json!({ "completions": 3, "parallelism": 2 })).await;
    let first = active(&cluster, 2).await;
    assert_eq!(first[0].finalizers(), ["batch.kubernetes.io/job-tracking"]);
    for pod in &first {
        end(&cluster, pod, "Succeeded", 0).await;
    }
    let last = active(&cluster, 1).await;
    let half = status(&cluster, "two counted", |status| status.succeeded == Some(2)).await;
    assert_eq!((half.active, half.uncounted_terminated_pods.is_some()), (Some(1), true));
    end(&cluster, &last[0], "Succeeded", 0).await;
    let done = status(&cluster, "complete", |status| is(status, "Complete")).await;
    assert_eq!(
        conditions(&done),
        ["SuccessCriteriaMet=True CompletionsReached", "Complete=True CompletionsReached"]
    );
    assert!(done.completion_time >= done.start_time && done.succeeded == Some(3) && done.active.is_none());
    let pods = cluster.in_default::<Pod>().list(&ListParams::default()).await.unwrap();
    assert!(pods.iter().all(|pod| pod.finalizers().is_empty()));
}

/// Has the Job controller's writes to a pod fail.
fn of_pod(fault: Fault, pod: &Pod) -> Fault {
    let controller = "system:serviceaccount:kube-system:job-controller";
    fault.verb(Verb::Patch).resource("pods").name(pod.name_any()).user(controller)
}

#[tokio::test]
async fn a_job_is_not_over_before_it_has_let_go_of_its_pods() {
    let cluster = Cluster::start().await;
    run(&cluster, json!({ "completions": 1, "completionMode": "Indexed" })).await;
    let pods = active(&cluster, 1).await;
    let held = cluster.drydock.faults().order(of_pod(Fault::internal_error().always(), &pods[0]));
    end(&cluster, &pods[0], "Succeeded", 0).await;
    eventually("tried again", || async { (held.count() > 2).then_some(()) }).await;
    let jobs: Api<Job> = cluster.in_default();
    let meanwhile = jobs.get("j").await.unwrap().status.unwrap();
    assert_eq!(conditions(&meanwhile), ["SuccessCriteriaMet=True CompletionsReached"]);
    held.lift();
    let done = status(&cluster, "complete", |status| is(status, "Complete")).await;
    assert_eq!((done.succeeded, done.completed_indexes.as_deref()), (Some(1), Some("0")));
    let all = cluster.in_default::<Pod>().list(&ListParams::default()).await.unwrap();
    assert!(all.iter().all(|pod| pod.finalizers().is_empty()));
}

#[tokio::test]
async fn a_pod_that_somebody_else_wrote_to_meanwhile_is_counted_once() {
    let cluster = Cluster::start().await;
    run(&cluster, json!({ "completions": 2, "parallelism": 1 })).await;
    let first = active(&cluster, 1).await;
    let changed = cluster.drydock.faults().order(of_pod(Fault::conflict(), &first[0]));
    end(&cluster, &first[0], "Succeeded", 0).await;
    changed.happened().await;
    let pods: Api<Pod> = cluster.in_default();
    eventually("the first let go", || async {
        pods.get(&first[0].name_any()).await.ok()?.finalizers().is_empty().then_some(())
    })
    .await;
    let second = active(&cluster, 1).await;
    end(&cluster, &second[0], "Succeeded", 0).await;
    let done = status(&cluster, "complete", |status| is(status, "Complete")).await;
    assert_eq!(done.succeeded, Some(2));
}

#[tokio::test]
async fn a_pod_that_can_not_be_let_go_at_once_is_deleted_in_the_end() {
    let cluster = Cluster::start().await;
    run(&cluster, json!({})).await;
    let pods = active(&cluster, 1).await;
    let changed = cluster.drydock.faults().order(of_pod(Fault::conflict().times(4), &pods[0]));
    let hold = Patch::Merge(json!({ "spec": { "suspend": true } }));
    cluster.in_default::<Job>().patch("j", &PatchParams::default(), &hold).await.unwrap();
    let all: Api<Pod> = cluster.in_default();
    eventually("it is gone", || async {
        all.get_opt(&pods[0].name_any()).await.ok()?.is_none().then_some(())
    })
    .await;
    assert_eq!(changed.count(), 4);
}

#[tokio::test]
async fn nothing_holds_the_pods_of_a_job_that_is_over() {
    let cluster = Cluster::start().await;
    run(&cluster, json!({})).await;
    let pods = active(&cluster, 1).await;
    let all: Api<Pod> = cluster.in_default();
    let let_go = async |what: &str| {
        eventually(what, || async {
            all.get(&pods[0].name_any()).await.ok()?.finalizers().is_empty().then_some(())
        })
        .await;
    };
    // Somebody ends it by hand.
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition =
        |of: &str| json!({ "type": of, "status": "True", "reason": "Enough", "lastTransitionTime": now });
    let over = json!({ "status": {
        "active": 0, "ready": 0, "conditions": [condition("FailureTarget"), condition("Failed")] } });
    let jobs: Api<Job> = cluster.in_default();
    jobs.patch_status("j", &PatchParams::default(), &Patch::Merge(over)).await.unwrap();
    let_go("let go with the end").await;
    let hold = Patch::Merge(json!({ "metadata": { "finalizers": ["batch.kubernetes.io/job-tracking"] } }));
    all.patch(&pods[0].name_any(), &PatchParams::default(), &hold).await.unwrap();
    let_go("let go again").await;
}

#[tokio::test]
async fn failures_are_tried_again_up_to_the_limit() {
    let cluster = Cluster::start().await;
    run(&cluster, json!({ "backoffLimit": 1 })).await;
    let first = active(&cluster, 1).await;
    end(&cluster, &first[0], "Failed", 1).await;
    status(&cluster, "one failure", |status| status.failed == Some(1)).await;
    let second = active(&cluster, 1).await;
    end(&cluster, &second[0], "Failed", 1).await;
    let over = status(&cluster, "failed", |status| is(status, "Failed")).await;
    assert_eq!(
        conditions(&over),
        ["FailureTarget=True BackoffLimitExceeded", "Failed=True BackoffLimitExceeded"]
    );
    assert_eq!(over.failed, Some(2));
    let events: Api<Event> = cluster.in_default();
    eventually("it is told", || async {
        let all = events.list(&ListParams::default()).await.ok()?.items;
        all.iter().any(|one| one.reason.as_deref() == Some("BackoffLimitExceeded")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn each_number_has_its_pod_and_succeeds_once() {
    let cluster = Cluster::start().await;
    run(&cluster, json!({ "completions": 2, "parallelism": 2, "completionMode": "Indexed" })).await;
    let pods = active(&cluster, 2).await;
    let second = pods.iter().find(|pod| pod.name_any().starts_with("j-1-")).unwrap();
    assert_eq!(second.spec.as_ref().unwrap().hostname.as_deref(), Some("j-1"));
    assert_eq!(second.annotations()["batch.kubernetes.io/job-completion-index"], "1");
    end(&cluster, second, "Succeeded", 0).await;
    let half = status(&cluster, "one through", |status| status.succeeded == Some(1)).await;
    assert_eq!(half.completed_indexes.as_deref(), Some("1"));
    let first = active(&cluster, 1).await;
    end(&cluster, &first[0], "Failed", 1).await;
    let again = active(&cluster, 1).await;
    assert!(again[0].name_any().starts_with("j-0-"));
    end(&cluster, &again[0], "Succeeded", 0).await;
    let done = status(&cluster, "complete", |status| is(status, "Complete")).await;
    assert_eq!((done.completed_indexes.as_deref(), done.failed), (Some("0,1"), Some(1)));
}

#[tokio::test]
async fn a_job_is_held_and_goes_on_and_runs_out_of_time() {
    let cluster = Cluster::start().await;
    run(&cluster, json!({ "parallelism": 2, "completions": 2, "suspend": true })).await;
    let held = status(&cluster, "held", |status| is(status, "Suspended")).await;
    assert!(held.start_time.is_none());
    let jobs: Api<Job> = cluster.in_default();
    let set = |spec: Value| Patch::Merge(json!({ "spec": spec }));
    jobs.patch("j", &PatchParams::default(), &set(json!({ "suspend": false }))).await.unwrap();
    active(&cluster, 2).await;
    jobs.patch("j", &PatchParams::default(), &set(json!({ "suspend": true }))).await.unwrap();
    active(&cluster, 0).await;
    let soon = set(json!({ "suspend": false, "activeDeadlineSeconds": 1 }));
    jobs.patch("j", &PatchParams::default(), &soon).await.unwrap();
    let over = status(&cluster, "failed", |status| is(status, "Failed")).await;
    assert!(
        conditions(&over).contains(&"Failed=True DeadlineExceeded".to_owned()),
        "{:?}",
        conditions(&over)
    );
    assert_eq!(over.active, None);
}

#[tokio::test]
async fn what_is_over_goes_when_it_said_and_takes_its_pods_along() {
    let cluster = Cluster::start().await;
    run(&cluster, json!({ "ttlSecondsAfterFinished": 1 })).await;
    let pods = active(&cluster, 1).await;
    end(&cluster, &pods[0], "Succeeded", 0).await;
    let jobs: Api<Job> = cluster.in_default();
    eventually("the job gone", || async { jobs.get_opt("j").await.ok()?.is_none().then_some(()) }).await;
    assert!(cluster.names(&cluster.in_default::<Pod>()).await.is_empty());
}

#[tokio::test]
async fn nothing_holds_the_pods_of_a_job_that_was_deleted() {
    let cluster = Cluster::start().await;
    let jobs: Api<Job> = cluster.in_default();
    for propagation in [DeleteParams::background(), DeleteParams::foreground(), DeleteParams::orphan()] {
        let orphan = propagation == DeleteParams::orphan();
        run(&cluster, json!({})).await;
        let pods = active(&cluster, 1).await;
        jobs.delete("j", &propagation).await.unwrap();
        eventually("the job gone", || async { jobs.get_opt("j").await.ok()?.is_none().then_some(()) }).await;
        let all: Api<Pod> = cluster.in_default();
        if orphan {
            eventually("the pod let go", || async {
                all.get(&pods[0].name_any()).await.ok()?.finalizers().is_empty().then_some(())
            })
            .await;
        } else {
            eventually("no pods", || async { cluster.names(&all).await.is_empty().then_some(()) }).await;
        }
    }
}

#[tokio::test]
async fn a_cron_job_starts_jobs_and_keeps_a_few() {
    let cluster = Cluster::start().await;
    let cron_jobs: Api<CronJob> = cluster.in_default();
    let cron_job = json!({
        "metadata": { "name": "tick" },
        "spec": {
            "schedule": "@every 1s",
            "concurrencyPolicy": "Forbid",
            "successfulJobsHistoryLimit": 0,
            "jobTemplate": { "metadata": { "labels": { "a": "b" } }, "spec": { "template": template("OnFailure") } },
        },
    });
    cron_jobs.create(&PostParams::default(), &object(cron_job)).await.unwrap();
    let pods = active(&cluster, 1).await;
    let jobs: Api<Job> = cluster.in_default();
    let job = jobs.list(&ListParams::default()).await.unwrap().items.remove(0);
    assert_eq!(job.labels()["a"], "b");
    assert_eq!(job.owner_references()[0].kind, "CronJob");
    assert!(job.annotations().contains_key("batch.kubernetes.io/cronjob-scheduled-timestamp"));
    let told = eventually("it is said to run", || async {
        let status = cron_jobs.get("tick").await.ok()?.status?;
        status.active.iter().flatten().any(|one| one.uid == job.uid()).then_some(status)
    })
    .await;
    assert!(told.last_schedule_time.is_some());
    let hold = Patch::Merge(json!({ "spec": { "suspend": true } }));
    cron_jobs.patch("tick", &PatchParams::default(), &hold).await.unwrap();
    end(&cluster, &pods[0], "Succeeded", 0).await;
    eventually("none kept, none running", || async {
        let status = cron_jobs.get("tick").await.ok()?.status?;
        let through = status.last_successful_time.is_some() && status.active.is_none();
        (through && cluster.names(&jobs).await.is_empty()).then_some(())
    })
    .await;
}

/// The Jobs that are not going, by the CronJob that started them.
async fn started(cluster: &Cluster) -> BTreeMap<String, Vec<String>> {
    let jobs = cluster.in_default::<Job>().list(&ListParams::default()).await.unwrap();
    let mut started = BTreeMap::<String, Vec<String>>::new();
    for job in jobs.iter().filter(|job| job.metadata.deletion_timestamp.is_none()) {
        let minute = job.name_any().rsplit_once('-').unwrap().1.to_owned();
        started.entry(job.owner_references()[0].name.clone()).or_default().push(minute);
    }
    started
}

/// Midnight and a half minute, and minutes by number.
const BEGIN: i64 = 1_782_864_030;
const FIRST: &str = "29714401";
const SECOND: &str = "29714402";

#[tokio::test]
async fn what_still_runs_at_the_next_time_is_let_be_waited_for_or_replaced() {
    let seconds = Arc::new(AtomicI64::new(BEGIN));
    let now = Arc::clone(&seconds);
    let clock = move || jiff::Timestamp::from_second(now.load(Ordering::SeqCst)).unwrap();
    let cluster = Cluster::of(Drydock::builder().clock(clock)).await;
    cluster.run_pods();
    let cron_jobs: Api<CronJob> = cluster.in_default();
    for (name, more) in [
        ("allow", json!({ "concurrencyPolicy": "Allow" })),
        ("forbid", json!({ "concurrencyPolicy": "Forbid" })),
        ("replace", json!({ "concurrencyPolicy": "Replace" })),
        ("held", json!({ "suspend": true })),
        // In Berlin it is two hours later in summer.
        ("zone", json!({ "schedule": "1 2 * * *", "timeZone": "Europe/Berlin" })),
        ("no-zone", json!({ "schedule": "1 2 * * *" })),
    ] {
        let mut spec =
            json!({ "schedule": "* * * * *", "jobTemplate": { "spec": { "template": template("Never") } } });
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let cron_job = json!({ "metadata": { "name": name }, "spec": spec });
        cron_jobs.create(&PostParams::default(), &object(cron_job)).await.unwrap();
    }
    let expect = async |what: &str, expected: &[(&str, &[&str])]| {
        let expected: BTreeMap<String, Vec<String>> = expected
            .iter()
            .map(|(name, minutes)| ((*name).to_owned(), minutes.iter().map(|&one| one.to_owned()).collect()))
            .collect();
        let expected = &expected;
        eventually(what, || async { (started(&cluster).await == *expected).then_some(()) }).await;
    };
    // A minute passes, and somebody looks at what is due.
    let pass = async || {
        seconds.fetch_add(60, Ordering::SeqCst);
        for name in ["held", "no-zone", "allow", "forbid", "replace", "zone"] {
            let look = Patch::Merge(json!({ "metadata": { "annotations": {
                "looked": seconds.load(Ordering::SeqCst).to_string() } } }));
            cron_jobs.patch(name, &PatchParams::default(), &look).await.unwrap();
        }
    };
    pass().await;
    let one: &[&str] = &[FIRST];
    expect("one each", &[("allow", one), ("forbid", one), ("replace", one), ("zone", one)]).await;
    let pods = active(&cluster, 4).await;
    let replaced = pods.iter().find(|pod| pod.name_any().starts_with("replace-")).unwrap();

    pass().await;
    let (both, other): (&[&str], &[&str]) = (&[FIRST, SECOND], &[SECOND]);
    expect("as each says", &[("allow", both), ("forbid", one), ("replace", other), ("zone", one)]).await;
    let events: Api<Event> = cluster.in_default();
    for (name, reason, message) in [
        (
            "forbid",
            "JobAlreadyActive",
            "Not starting job because prior execution is running and concurrency policy is Forbid".to_owned(),
        ),
        ("replace", "SuccessfulDelete", format!("Deleted job replace-{FIRST}")),
    ] {
        let selector = ListParams::default().fields(&format!("involvedObject.name={name},reason={reason}"));
        let told =
            eventually("it is told", || async { events.list(&selector).await.ok()?.items.pop()?.message })
                .await;
        assert_eq!(told, message);
    }
    let all: Api<Pod> = cluster.in_default();
    eventually("what was replaced has ended", || async {
        all.get_opt(&replaced.name_any()).await.ok()?.is_none().then_some(())
    })
    .await;
    eventually("who runs is said", || async {
        let active = async |name: &str| {
            cron_jobs.get(name).await.ok()?.status?.active.map_or(Some(0), |active| Some(active.len()))
        };
        let counts = (active("allow").await?, active("forbid").await?, active("replace").await?);
        (counts == (2, 1, 1) && active("held").await? == 0).then_some(())
    })
    .await;

    // It was due all the time.
    let go_on = Patch::Merge(json!({ "spec": { "suspend": false } }));
    cron_jobs.patch("held", &PatchParams::default(), &go_on).await.unwrap();
    expect(
        "what was held goes on",
        &[("allow", both), ("forbid", one), ("held", other), ("replace", other), ("zone", one)],
    )
    .await;
}

#[tokio::test]
async fn what_could_not_be_deleted_is_not_replaced() {
    let seconds = Arc::new(AtomicI64::new(BEGIN));
    let now = Arc::clone(&seconds);
    let clock = move || jiff::Timestamp::from_second(now.load(Ordering::SeqCst)).unwrap();
    let cluster = Cluster::of(Drydock::builder().clock(clock)).await;
    let cron_jobs: Api<CronJob> = cluster.in_default();
    let cron_job = json!({
        "metadata": { "name": "replace" },
        "spec": {
            "schedule": "* * * * *",
            "concurrencyPolicy": "Replace",
            "jobTemplate": { "spec": { "template": template("Never") } },
        },
    });
    cron_jobs.create(&PostParams::default(), &object(cron_job)).await.unwrap();
    // A minute passes, somebody looks at what is due, and one Job is the one that runs.
    let pass = async |minute: &str| {
        seconds.fetch_add(60, Ordering::SeqCst);
        let look = Patch::Merge(json!({ "metadata": { "annotations": { "looked": minute } } }));
        cron_jobs.patch("replace", &PatchParams::default(), &look).await.unwrap();
        let name = format!("replace-{minute}");
        eventually("only this one runs, and is said to", || async {
            let active = cron_jobs.get("replace").await.ok()?.status?.active?;
            let said = active.len() == 1 && active[0].name.as_ref() == Some(&name);
            let runs = started(&cluster).await.remove("replace")?;
            (said && runs == [minute]).then_some(())
        })
        .await;
    };
    pass(FIRST).await;
    let fault = Fault::internal_error().verb(Verb::Delete).resource("batch/jobs");
    let order = cluster.drydock.faults().order(fault);
    pass(SECOND).await;
    assert_eq!(order.count(), 1);
}

#[tokio::test]
async fn of_jobs_that_failed_only_so_many_are_kept() {
    let seconds = Arc::new(AtomicI64::new(BEGIN));
    let now = Arc::clone(&seconds);
    let clock = move || jiff::Timestamp::from_second(now.load(Ordering::SeqCst)).unwrap();
    let cluster = Cluster::of(Drydock::builder().clock(clock)).await;
    let cron_jobs: Api<CronJob> = cluster.in_default();
    let cron_job = json!({
        "metadata": { "name": "fails" },
        "spec": {
            "schedule": "* * * * *",
            "failedJobsHistoryLimit": 1,
            "jobTemplate": { "spec": { "backoffLimit": 0, "template": template("Never") } },
        },
    });
    cron_jobs.create(&PostParams::default(), &object(cron_job)).await.unwrap();
    let jobs: Api<Job> = cluster.in_default();
    // A minute passes, and what was started for it fails.
    for minute in [FIRST, SECOND] {
        seconds.fetch_add(60, Ordering::SeqCst);
        let look = Patch::Merge(json!({ "metadata": { "annotations": { "looked": minute } } }));
        cron_jobs.patch("fails", &PatchParams::default(), &look).await.unwrap();
        let pods = active(&cluster, 1).await;
        end(&cluster, &pods[0], "Failed", 1).await;
        let name = format!("fails-{minute}");
        eventually("it failed", || async {
            is(&jobs.get(&name).await.ok()?.status?, "Failed").then_some(())
        })
        .await;
    }
    eventually("the earlier one is gone", || async {
        (started(&cluster).await["fails"] == [SECOND]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_can_not_be_started_within_its_deadline_is_left_out() {
    let seconds = Arc::new(AtomicI64::new(BEGIN));
    let now = Arc::clone(&seconds);
    let clock = move || jiff::Timestamp::from_second(now.load(Ordering::SeqCst)).unwrap();
    let cluster = Cluster::of(Drydock::builder().clock(clock)).await;
    let cron_jobs: Api<CronJob> = cluster.in_default();
    for (name, deadline) in [("hurried", json!(20)), ("patient", json!(null))] {
        let cron_job = json!({
            "metadata": { "name": name },
            "spec": {
                "schedule": "* * * * *",
                "startingDeadlineSeconds": deadline,
                "jobTemplate": { "spec": { "template": template("Never") } },
            },
        });
        cron_jobs.create(&PostParams::default(), &object(cron_job)).await.unwrap();
    }
    let pass = async |by: i64, expected: &[(&str, &[&str])]| {
        let at = seconds.fetch_add(by, Ordering::SeqCst) + by;
        for name in ["hurried", "patient"] {
            let look = Patch::Merge(json!({ "metadata": { "annotations": { "looked": at.to_string() } } }));
            cron_jobs.patch(name, &PatchParams::default(), &look).await.unwrap();
        }
        let of = |minutes: &[&str]| -> Vec<String> { minutes.iter().map(|&one| one.to_owned()).collect() };
        let expected = expected.iter().map(|(name, minutes)| ((*name).to_owned(), of(minutes)));
        let expected: &BTreeMap<_, _> = &expected.collect();
        eventually("as each says", || async { (started(&cluster).await == *expected).then_some(()) }).await;
    };
    // Fifty seconds late, then ten.
    pass(80, &[("patient", &[FIRST])]).await;
    pass(20, &[("hurried", &[SECOND]), ("patient", &[FIRST, SECOND])]).await;
}
