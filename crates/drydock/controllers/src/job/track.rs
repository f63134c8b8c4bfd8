//! The second and third decision about a Job: [`track`] says what to say after the work and which pods are counted
//! for good, and [`settle`] what to say once those were let go. Pure.
//!
//! A pod is held by a finalizer until it is counted: first its uid goes into the status, then the finalizer off,
//! then the uid turns into a count. Kill the process in between, and no pod is lost or counted twice.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::failure::{failed, meaning};
use super::indexes::Indexes;
use super::plan::{Assessment, TRACKING, View, condition, count, holds, index};
use crate::objects::condition::Condition;
use crate::objects::job::{JobStatus, Uncounted};
use crate::objects::pod::{Phase, Pod};
use crate::replica_set::whole_seconds;

/// Pods that wait to be counted: Kubernetes' number, so that the status stays within its size.
const MOST_UNCOUNTED: usize = 500;

/// What came of the work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Pods made.
    pub created: i32,
    /// Pods deleted.
    pub deleted: i32,
    /// Ready ones among those.
    pub deleted_ready: i32,
    /// Whether all of it was done.
    pub whole: bool,
}

/// What is decided once the work was done.
#[derive(Debug)]
pub struct Tracked {
    /// What to say.
    pub status: JobStatus,
    /// Pods to be let go once that is said.
    pub release: Vec<Arc<Pod>>,
    /// How the Job ended, once they are.
    pub end: Option<Condition>,
    /// `true` when it was just held, `false` when it just goes on.
    pub held: Option<bool>,
}

/// Puts a condition in, unless it is there; says whether it was not. One that never was is not said to be false.
fn ensure(status: &mut JobStatus, new: Condition) -> bool {
    match status.conditions.iter_mut().find(|one| one.r#type == new.r#type) {
        Some(held)
            if held.status == new.status && held.reason == new.reason && held.message == new.message =>
        {
            false
        }
        Some(held) => {
            *held = new;
            true
        }
        None if &*new.status == "False" => false,
        None => {
            status.conditions.push(new);
            true
        }
    }
}

/// Decides what to say after the work, and which pods are counted for good.
pub fn track(view: &View<'_>, assessment: &Assessment, done: Done) -> Tracked {
    let (job, now) = (view.job, whole_seconds(view.now));
    let spec = &job.spec;
    let mut status = job.status.clone();
    if status.start_time.is_none() && !spec.suspend {
        status.start_time = Some(now);
    }
    let active = count(view.active()) + done.created - done.deleted;
    let mut verdict = assessment.verdict.clone().filter(|_| done.whole);
    let mut held = None;
    if assessment.verdict.is_none() {
        let complete = match spec.completions {
            None => assessment.succeeded > 0 && active == 0,
            Some(completions) => assessment.succeeded >= completions && active == 0,
        };
        if complete {
            let message = "Reached expected number of succeeded pods";
            verdict = Some(condition("SuccessCriteriaMet", "True", "CompletionsReached", message, now));
        } else if assessment.managed {
            let new = if spec.suspend {
                condition("Suspended", "True", "JobSuspended", "Job suspended", now)
            } else {
                condition("Suspended", "False", "JobResumed", "Job resumed", now)
            };
            if ensure(&mut status, new) {
                held = Some(spec.suspend);
                if !spec.suspend {
                    // The time while it was held does not count.
                    status.start_time = Some(now);
                }
            }
        }
    }
    status.active = active;
    status.ready = Some(count(view.active().filter(|pod| pod.ready())) - done.deleted_ready);
    status.terminating = Some(view.terminating() + done.deleted);
    let (release, whole) = count_pods(view, assessment, verdict.as_ref(), &mut status);
    let end = verdict.map(|verdict| match &*verdict.r#type {
        "SuccessCriteriaMet" => {
            let end = condition("Complete", "True", &verdict.reason, &verdict.message, now);
            if holds(&status, "SuccessCriteriaMet").is_none() {
                status.conditions.push(verdict);
            }
            end
        }
        "FailureTarget" => {
            let end = condition("Failed", "True", &verdict.reason, &verdict.message, now);
            status.conditions.push(verdict);
            end
        }
        _ => verdict,
    });
    Tracked { status, release, end: end.filter(|_| whole), held }
}

/// Notes the pods that are over; which are to be let go, and whether those are all.
fn count_pods(
    view: &View<'_>,
    assessment: &Assessment,
    verdict: Option<&Condition>,
    status: &mut JobStatus,
) -> (Vec<Arc<Pod>>, bool) {
    let job = view.job;
    let tracked = || view.pods.iter().filter(|pod| pod.metadata.has_finalizer(TRACKING));
    let known = status.uncounted_terminated_pods.clone().unwrap_or_default();
    let left: HashSet<Box<str>> = tracked().map(|pod| pod.metadata.uid.clone()).collect();
    clean(status, &left);
    let mut waiting = status.uncounted_terminated_pods.take().unwrap_or_default();
    let failing = verdict.is_some_and(|verdict| &*verdict.r#type != "SuccessCriteriaMet");
    let before = Indexes::parse(&status.completed_indexes, view.completions());
    let mut indexes = Vec::new();
    let mut pods: Vec<&Arc<Pod>> = tracked().collect();
    pods.sort_by_key(|pod| index(pod));
    let (mut release, mut whole) = (Vec::new(), true);
    for pod in pods {
        let uid = &pod.metadata.uid;
        let has_failed = failed(job, pod);
        let over = job.metadata.deleting() || verdict.is_some() || pod.status.phase == Phase::Succeeded;
        if !over && (!has_failed || assessment.kept.contains(uid)) {
            continue;
        }
        release.push(pod.clone());
        let number = view.known_index(pod);
        if pod.status.phase == Phase::Succeeded && !known.failed.contains(uid) {
            if job.indexed() {
                indexes.extend(number.filter(|number| !before.has(*number)));
            } else if !known.succeeded.contains(uid) {
                waiting.succeeded.push(uid.clone());
            }
        } else if (has_failed || failing)
            && !known.failed.contains(uid)
            && (!job.indexed() || number.is_some())
            && meaning(job.spec.pod_failure_policy.as_ref(), pod).counts()
        {
            waiting.failed.push(uid.clone());
        }
        if indexes.len() + waiting.succeeded.len() + waiting.failed.len() >= MOST_UNCOUNTED {
            whole = false;
            break;
        }
    }
    if job.indexed() {
        let succeeded = before.and(indexes);
        status.succeeded = succeeded.total();
        status.completed_indexes = succeeded.to_string().into();
        status.failed_indexes = assessment.failed_indexes.as_ref().map(|failing| failing.to_string().into());
    }
    status.uncounted_terminated_pods = Some(waiting);
    (release, whole)
}

/// Turns the uids of pods that nothing holds any more into counts.
fn clean(status: &mut JobStatus, left: &HashSet<Box<str>>) {
    let Some(Uncounted { succeeded, failed }) = &mut status.uncounted_terminated_pods else { return };
    for (uids, counter) in [(succeeded, &mut status.succeeded), (failed, &mut status.failed)] {
        let before = uids.len();
        uids.retain(|uid| left.contains(uid));
        *counter += i32::try_from(before - uids.len()).unwrap_or(0);
    }
}

/// What to say once pods were let go, of which these are left; and whether the Job is over with that. It is not while
/// one that was to be let go is left, counted or not: nobody lets go of anything for a Job that is over.
pub fn settle(tracked: &Tracked, left: &HashSet<Box<str>>, now: Timestamp) -> (JobStatus, Option<Condition>) {
    let mut status = tracked.status.clone();
    clean(&mut status, left);
    let waiting = status.uncounted_terminated_pods.as_ref();
    let counted = waiting.is_none_or(|waiting| waiting.succeeded.is_empty() && waiting.failed.is_empty());
    let released = tracked.release.iter().all(|pod| !left.contains(&pod.metadata.uid));
    let through = counted && released && status.terminating.unwrap_or(0) == 0;
    let Some(end) = tracked.end.clone().filter(|_| through) else {
        return (status, None);
    };
    let now = whole_seconds(now);
    let end = Condition { last_probe_time: Some(now), last_transition_time: Some(now), ..end };
    ensure(&mut status, end.clone());
    if &*end.r#type == "Complete" {
        status.completion_time = Some(now);
    }
    (status, Some(end))
}
