//! The first decision about a Job: what to do about its pods, and whether it is over. Pure. What to say follows once
//! that was done, in `track`.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::failure::{Failures, failed, finished_at, meaning};
use super::indexes::Indexes;
use crate::objects::condition::Condition;
use crate::objects::job::{FailureAction, Job, JobStatus, SuccessPolicy};
use crate::objects::pod::{Phase, Pod};
use crate::replica_set::whole_seconds;

/// What holds a pod until it is counted.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// The number of a pod.
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// How often pods of this number failed before.
pub const FAILED_BEFORE: &str = "batch.kubernetes.io/job-index-failure-count";
/// How often that did not count.
pub const IGNORED_BEFORE: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// Pods created or deleted in one go: Kubernetes' number.
const BURST: usize = 500;

/// What is known when a Job is decided on.
pub struct View<'a> {
    /// The Job.
    pub job: &'a Job,
    /// Its pods.
    pub pods: &'a [Arc<Pod>],
    /// The failures since the last success, as far as remembered.
    pub failures: Failures,
    /// The time.
    pub now: Timestamp,
}

/// A pod to be made.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NewPod {
    /// Its number, where pods have one.
    pub index: Option<i32>,
    /// How often pods of this number failed before, and how often that did not count; where failures are counted
    /// by number.
    pub failed_before: Option<(i32, i32)>,
}

/// What to do about the pods.
#[derive(Debug)]
pub enum Work {
    /// Nothing.
    Leave,
    /// Make these.
    Create(Vec<NewPod>),
    /// Delete these; when they are not to be counted, they are let go first.
    Delete {
        /// Which.
        pods: Vec<Arc<Pod>>,
        /// Whether they count.
        counted: bool,
    },
}

/// What is decided first.
#[derive(Debug)]
pub struct Assessment {
    /// What to do.
    pub work: Work,
    /// How the Job ends, if it does.
    pub verdict: Option<Condition>,
    /// The failures since the last success.
    pub failures: Failures,
    /// When to look again because a time passes.
    pub look_again: Option<Duration>,
    /// How many pods succeeded.
    pub succeeded: i32,
    /// Which numbers succeeded.
    pub succeeded_indexes: Indexes,
    /// Which numbers failed, where they can.
    pub failed_indexes: Option<Indexes>,
    /// Failed pods that are kept until their successor is made, since it counts on from them.
    pub kept: HashSet<Box<str>>,
    /// Whether the pods were looked at for their number.
    pub managed: bool,
}

/// The number of a pod.
pub fn index(pod: &Pod) -> Option<i32> {
    pod.metadata.annotations.get(INDEX)?.parse().ok().filter(|index| *index >= 0)
}

/// A new condition.
pub fn condition(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> Condition {
    Condition { last_probe_time: Some(now), ..Condition::new(kind, status, reason, message, now) }
}

/// The condition of this type, where it is true.
pub fn holds<'a>(status: &'a JobStatus, kind: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|one| &*one.r#type == kind && &*one.status == "True")
}

impl View<'_> {
    pub(super) fn completions(&self) -> i32 {
        self.job.spec.completions.unwrap_or(0)
    }

    pub(super) fn known_index(&self, pod: &Pod) -> Option<i32> {
        index(pod).filter(|index| *index < self.completions())
    }

    pub(super) fn active(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.iter().filter(|pod| pod.active())
    }

    pub(super) fn terminating(&self) -> i32 {
        count(self.pods.iter().filter(|pod| pod.metadata.deleting() && !pod.finished()))
    }

    /// Pods of this sort that are neither counted nor about to be.
    fn fresh<'p>(&'p self, known: &'p [Box<str>], sort: impl Fn(&Pod) -> bool + 'p) -> Vec<&'p Pod> {
        let fresh = self.pods.iter().filter(move |pod| {
            pod.metadata.has_finalizer(TRACKING)
                && !known.contains(&pod.metadata.uid)
                && (!self.job.indexed() || self.known_index(pod).is_some())
                && sort(pod)
        });
        fresh.map(|pod| &**pod).collect()
    }
}

/// How many there are.
pub fn count<T>(pods: impl Iterator<Item = T>) -> i32 {
    i32::try_from(pods.count()).unwrap_or(i32::MAX)
}

/// Decides what to do about the pods, and whether the Job is over.
pub fn assess(view: &View<'_>) -> Assessment {
    let (job, now) = (view.job, whole_seconds(view.now));
    let (spec, status) = (&job.spec, &job.status);
    let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
    let policy = spec.pod_failure_policy.as_ref();
    let succeeded = view.fresh(&uncounted.succeeded, |pod| pod.status.phase == Phase::Succeeded);
    let failing = view.fresh(&uncounted.failed, |pod| failed(job, pod));
    let counted = count(failing.iter().filter(|pod| meaning(policy, pod).counts()));
    let all_failed = status.failed + counted + count(uncounted.failed.iter());
    let mut assessment = Assessment {
        work: Work::Leave,
        verdict: None,
        failures: view.failures.after(&succeeded, &failing),
        look_again: None,
        succeeded: status.succeeded + count(succeeded.iter()) + count(uncounted.succeeded.iter()),
        succeeded_indexes: Indexes::default(),
        failed_indexes: None,
        kept: HashSet::new(),
        managed: false,
    };
    let failure =
        |reason: &str, message: &str| Some(condition("FailureTarget", "True", reason, message, now));
    let mut verdict = holds(status, "SuccessCriteriaMet").cloned();
    if verdict.is_none() {
        verdict = match holds(status, "FailureTarget") {
            Some(target) => Some(condition("Failed", "True", &target.reason, &target.message, now)),
            None => {
                let mut failing = view.pods.iter().filter(|pod| failed(job, pod));
                let why = failing.find_map(|pod| meaning(policy, pod).fails_job);
                why.and_then(|why| failure("PodFailurePolicy", &why))
            }
        };
    }
    if verdict.is_none() {
        if all_failed > spec.backoff_limit || restarted_too_often(view) {
            verdict = failure("BackoffLimitExceeded", "Job has reached the specified backoff limit");
        } else if let Some(left) = left_of_deadline(view) {
            if left.is_zero() {
                verdict = failure("DeadlineExceeded", "Job was active longer than specified deadline");
            } else {
                assessment.look_again = Some(left);
            }
        }
    }
    if job.indexed() {
        verdict = assess_indexes(view, &mut assessment, verdict, now);
    }
    if verdict.is_some() {
        let pods = view.active().cloned().collect();
        assessment.work = Work::Delete { pods, counted: true };
    } else if !job.metadata.deleting() {
        assessment.managed = true;
        manage(view, &mut assessment);
    }
    assessment.verdict = verdict;
    assessment
}

/// Which indexes are through, and what that means.
fn assess_indexes(
    view: &View<'_>,
    assessment: &mut Assessment,
    verdict: Option<Condition>,
    now: Timestamp,
) -> Option<Condition> {
    let (job, completions) = (view.job, view.completions());
    let spec = &job.spec;
    let indexes = |sort: &dyn Fn(&Pod) -> bool| -> Vec<i32> {
        let held = view.pods.iter().filter(|pod| pod.metadata.has_finalizer(TRACKING) && sort(pod));
        held.filter_map(|pod| view.known_index(pod)).collect()
    };
    let before = Indexes::parse(&job.status.completed_indexes, completions);
    let succeeded = before.and(indexes(&|pod| pod.status.phase == Phase::Succeeded));
    assessment.succeeded = succeeded.total();
    let mut verdict = verdict;
    let failure =
        |reason: &str, message: &str| Some(condition("FailureTarget", "True", reason, message, now));
    if let Some(limit) = spec.backoff_limit_per_index {
        let before = Indexes::parse(job.status.failed_indexes.as_deref().unwrap_or_default(), completions);
        let failing = before.and(indexes(&|pod| {
            if !failed(job, pod) {
                return false;
            }
            let meaning = meaning(spec.pod_failure_policy.as_ref(), pod);
            meaning.action == FailureAction::FailIndex || (meaning.counts() && failures_of(pod).0 >= limit)
        }));
        if verdict.is_none() {
            if spec.max_failed_indexes.is_some_and(|most| failing.total() > most) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                verdict = failure("MaxFailedIndexesExceeded", message);
            } else if failing.total() > 0 && failing.total() + succeeded.total() >= completions {
                verdict = failure("FailedIndexes", "Job has failed indexes");
            }
        }
        assessment.kept =
            last_failed(view, &succeeded, &failing).values().map(|pod| pod.metadata.uid.clone()).collect();
        assessment.failed_indexes = Some(failing);
    }
    if verdict.is_none()
        && let Some(message) = enough(spec.success_policy.as_ref(), &succeeded, completions)
    {
        verdict = Some(condition("SuccessCriteriaMet", "True", "SuccessPolicy", &message, now));
    }
    assessment.succeeded_indexes = succeeded;
    verdict
}

/// Which rule of a success policy is fulfilled, in words.
fn enough(policy: Option<&SuccessPolicy>, succeeded: &Indexes, completions: i32) -> Option<String> {
    let rules = &policy.filter(|_| succeeded.total() > 0)?.rules;
    let at = rules.iter().position(|rule| match (&rule.succeeded_indexes, rule.succeeded_count) {
        (Some(wanted), least) => {
            let wanted = Indexes::parse(wanted, completions);
            // A rule that asks for no index at all is never met, rather than always.
            wanted.total() > 0 && succeeded.shared(&wanted) >= least.unwrap_or(wanted.total())
        }
        (None, Some(least)) => succeeded.total() >= least,
        (None, None) => false,
    })?;
    Some(format!("Matched rules at index {at}"))
}

/// How often pods of a pod's number failed before it, and how often that did not count.
fn failures_of(pod: &Pod) -> (i32, i32) {
    let read =
        |name: &str| pod.metadata.annotations.get(name).and_then(|text| text.parse().ok()).unwrap_or(0);
    (i32::max(read(FAILED_BEFORE), 0), i32::max(read(IGNORED_BEFORE), 0))
}

/// The last failed pod of each number that is to be tried again.
fn last_failed<'a>(view: &View<'a>, succeeded: &Indexes, failing: &Indexes) -> BTreeMap<i32, &'a Arc<Pod>> {
    let active: HashSet<i32> = view.active().filter_map(|pod| index(pod)).collect();
    let mut last: BTreeMap<i32, &Arc<Pod>> = BTreeMap::new();
    for pod in view.pods.iter().filter(|pod| pod.metadata.has_finalizer(TRACKING) && failed(view.job, pod)) {
        let Some(number) = view.known_index(pod) else { continue };
        if succeeded.has(number) || failing.has(number) || active.contains(&number) {
            continue;
        }
        let order = |pod: &Pod| {
            let (counted, ignored) = failures_of(pod);
            (counted + ignored, finished_at(pod))
        };
        let held = last.entry(number).or_insert(pod);
        if order(pod) >= order(held) {
            *held = pod;
        }
    }
    last
}

/// Whether containers that are started again were so too often.
fn restarted_too_often(view: &View<'_>) -> bool {
    let running = view.pods.iter().filter(|pod| matches!(pod.status.phase, Phase::Running | Phase::Pending));
    let restarts: i32 = running.map(|pod| pod.status.all_restarts).sum();
    restarts > 0
        && restarts >= view.job.spec.backoff_limit.max(1)
        && view.job.spec.template.value()["spec"]["restartPolicy"] == "OnFailure"
}

/// How much of the time it may take is left.
fn left_of_deadline(view: &View<'_>) -> Option<Duration> {
    let spec = &view.job.spec;
    let seconds = spec.active_deadline_seconds.filter(|_| !spec.suspend)?;
    let start = view.job.status.start_time.unwrap_or(view.now);
    let end = start.checked_add(SignedDuration::from_secs(seconds)).ok()?;
    Some(Duration::try_from(end.duration_since(view.now)).unwrap_or_default())
}

/// As many pods as there shall be now.
fn manage(view: &View<'_>, assessment: &mut Assessment) {
    let (job, spec) = (view.job, &view.job.spec);
    let active: Vec<Arc<Pod>> = view.active().cloned().collect();
    let running = count(active.iter());
    if spec.suspend {
        if running > 0 {
            assessment.work = Work::Delete { pods: active, counted: false };
        }
        return;
    }
    let wanted = match spec.completions {
        None if assessment.succeeded > 0 => running,
        None => spec.parallelism,
        Some(completions) => (completions - assessment.succeeded).min(spec.parallelism).max(0),
    };
    let mut surplus = to_remove(view, active, usize::try_from(running - wanted).unwrap_or(0));
    if !surplus.is_empty() {
        surplus.truncate(BURST);
        assessment.work = Work::Delete { pods: surplus, counted: false };
        return;
    }
    let ending = if job.replaces_only_failed() { view.terminating() } else { 0 };
    let Some(missing) = usize::try_from(wanted - ending - running).ok().filter(|missing| *missing > 0) else {
        return;
    };
    let missing = missing.min(BURST);
    if spec.backoff_limit_per_index.is_none() {
        let pause = assessment.failures.pause(view.now);
        if !pause.is_zero() {
            wait(assessment, pause);
            return;
        }
    }
    let new = match job.indexed() {
        false => (0..missing).map(|_| NewPod::default()).collect(),
        true => next_indexes(view, assessment, missing),
    };
    if !new.is_empty() {
        assessment.work = Work::Create(new);
    }
}

fn wait(assessment: &mut Assessment, pause: Duration) {
    assessment.look_again = Some(assessment.look_again.map_or(pause, |other| other.min(pause)));
}

/// The next numbers, where each that failed has waited its time.
fn next_indexes(view: &View<'_>, assessment: &mut Assessment, most: usize) -> Vec<NewPod> {
    let job = view.job;
    let mut taken = assessment.succeeded_indexes.and(view.active().filter_map(|pod| index(pod)));
    if job.replaces_only_failed() {
        let ending = view.pods.iter().filter(|pod| pod.metadata.deleting() && !pod.finished());
        taken = taken.and(ending.filter_map(|pod| index(pod)));
    }
    let failing = assessment.failed_indexes.clone().unwrap_or_default();
    let next = taken.merged(&failing).first_missing(most, view.completions());
    if job.spec.backoff_limit_per_index.is_none() {
        return next.into_iter().map(|index| NewPod { index: Some(index), failed_before: None }).collect();
    }
    let before = last_failed(view, &assessment.succeeded_indexes, &failing);
    let mut new = Vec::new();
    let mut soonest: Option<Duration> = None;
    for number in next {
        let last = before.get(&number);
        let (counted, ignored) = last.map_or((0, 0), |pod| failures_of(pod));
        let times = last.map_or(0, |_| u32::try_from(counted + ignored + 1).unwrap_or(u32::MAX));
        let pause = Failures { count: times, last: last.map(|pod| finished_at(pod)) }.pause(view.now);
        if !pause.is_zero() {
            soonest = Some(soonest.map_or(pause, |other| other.min(pause)));
            continue;
        }
        let counts = last.map(|pod| meaning(job.spec.pod_failure_policy.as_ref(), pod).counts());
        let failed_before = match counts {
            None => (0, 0),
            Some(true) => (counted + 1, ignored),
            Some(false) => (counted, ignored + 1),
        };
        new.push(NewPod { index: Some(number), failed_before: Some(failed_before) });
    }
    if let Some(pause) = soonest.filter(|_| new.is_empty()) {
        wait(assessment, pause);
    }
    new
}

/// Which active pods go: those without a number of their own, then those that are the least loss.
fn to_remove(view: &View<'_>, mut active: Vec<Arc<Pod>>, least: usize) -> Vec<Arc<Pod>> {
    active.sort_by(|one, other| give_up_first(one, other));
    if !view.job.indexed() {
        active.truncate(least);
        return active;
    }
    let mut kept = HashSet::new();
    let mut remove = Vec::new();
    let mut left = Vec::new();
    // The last of each number is the one that is the most loss.
    for pod in active.into_iter().rev() {
        match view.known_index(&pod) {
            Some(index) if kept.insert(index) => left.push(pod),
            _ => remove.push(pod),
        }
    }
    left.reverse();
    let more = least.saturating_sub(remove.len());
    remove.extend(left.into_iter().take(more));
    remove
}

/// The order in which pods are given up: without a node, not running, not ready, youngest.
fn give_up_first(one: &Pod, other: &Pod) -> Ordering {
    let worth = |pod: &Pod| {
        let phase = match pod.status.phase {
            Phase::Pending => 0,
            Phase::Unknown => 1,
            _ => 2,
        };
        (!pod.spec.node_name.is_empty(), phase, pod.ready())
    };
    let age = |pod: &Pod| pod.metadata.creation_timestamp;
    worth(one).cmp(&worth(other)).then_with(|| age(other).cmp(&age(one)))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
