//! What a Job and its pods show.

use ballast_operator::{KindRef, Trouble, View, pod};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    batch::v1::{Job, JobCondition},
    core::v1::{ContainerStateTerminated, Pod},
};
use kube_core::Resource;

use crate::{
    ask::LastWords,
    desired::{CONTAINER, agent},
};

/// How long a pod may wait for a machine before that is told: a volume that is yet to be made takes a moment, and a machine
/// that is yet to come a while.
const PATIENCE: SignedDuration = SignedDuration::from_mins(1);

/// How far a Job is, as Kubernetes says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Running,
    Complete,
    Failed,
}

pub(crate) fn progress(job: &Job) -> Progress {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let has = |type_: &str| {
        conditions.clone().any(|condition| condition.type_ == type_ && condition.status == "True")
    };
    if has("Complete") {
        Progress::Complete
    } else if has("Failed") {
        Progress::Failed
    } else {
        Progress::Running
    }
}

/// Why Kubernetes gave a Job up.
pub(crate) fn given_up(job: &Job) -> Option<String> {
    let failed = failed(job)?;
    failed.message.clone().or_else(|| failed.reason.clone())
}

/// That a Job was ended at its deadline, where it was: its pod knows only that it was told to stop.
pub(crate) fn overdue(job: &Job) -> Option<String> {
    failed(job)?.reason.as_deref().filter(|reason| *reason == "DeadlineExceeded")?;
    let seconds = job.spec.as_ref()?.active_deadline_seconds?;
    Some(format!("it was not done within the {seconds} s of its deadline"))
}

/// When it did.
pub(crate) fn failed_at(job: &Job) -> Option<Timestamp> {
    Some(failed(job)?.last_transition_time.as_ref()?.0)
}

fn failed(job: &Job) -> Option<&JobCondition> {
    let mut conditions = job.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == "Failed" && condition.status == "True")
}

/// The pods of the Job that has this name now, the last that ended last. Those of an earlier one may still be there, and
/// speak of something else.
pub(crate) fn pods<R: Resource<DynamicType = ()>>(view: &View<R>, job: &str) -> Vec<Pod> {
    let Some(job) = view.children.object(&KindRef::of::<Job>(), job) else { return Vec::new() };
    let of_job = |pod: &Pod| {
        let mut owners = pod.metadata.owner_references.iter().flatten();
        owners.any(|owner| owner.controller == Some(true) && Some(owner.uid.as_str()) == job.uid())
    };
    let mut pods: Vec<Pod> = view.children.list();
    pods.retain(of_job);
    pods.sort_by_key(|pod| ended(pod).and_then(|ended| ended.finished_at.clone()).map(|at| at.0));
    pods
}

/// How the container that counts ended.
pub(crate) fn ended(pod: &Pod) -> Option<&ContainerStateTerminated> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == CONTAINER)?.state.as_ref()?.terminated.as_ref()
}

/// What a pod said in the end, where it said something that can be understood.
pub(crate) fn last_words(pod: &Pod) -> Option<LastWords> {
    serde_json::from_str(ended(pod)?.message.as_deref()?).ok()
}

/// Why the last try of a Job failed, where there will be others.
pub(crate) fn why_tried_again(pods: &[Pod]) -> Option<String> {
    let again = |ended: &&ContainerStateTerminated| ![0, agent::FINAL].contains(&ended.exit_code);
    pods.last().and_then(ended).filter(again).and_then(|_| why_failed(pods))
}

/// What keeps a Job from doing anything, where its pod is there and can't start.
pub(crate) fn stuck(pods: &[Pod], now: Timestamp) -> Option<Trouble> {
    let waiting: Vec<Pod> = pods.iter().filter(|pod| ended(pod).is_none()).cloned().collect();
    pod::trouble(&waiting, CONTAINER).or_else(|| {
        let patient = |pod: &&Pod| {
            let made = pod.metadata.creation_timestamp.as_ref();
            made.is_some_and(|made| now.duration_since(made.0) >= PATIENCE)
        };
        let (pod, why) =
            waiting.iter().filter(patient).find_map(|pod| Some((pod, pod::unschedulable(pod)?)))?;
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let message =
            format!("no machine takes the pod {name}: {why}; `kubectl describe pod {name}` says more");
        Some(Trouble::new("Unschedulable", message))
    })
}

/// The last of a Job's pods that failed.
fn last_failed(pods: &[Pod]) -> Option<&Pod> {
    pods.iter().rev().find(|pod| ended(pod).is_some_and(|ended| ended.exit_code != 0))
}

/// What it said in the end.
pub(crate) fn last_failure(pods: &[Pod]) -> Option<LastWords> {
    last_failed(pods).and_then(last_words).filter(|words| !words.ok)
}

/// Why it failed.
pub(crate) fn why_failed(pods: &[Pod]) -> Option<String> {
    let pod = last_failed(pods)?;
    match last_failure(pods) {
        Some(words) if words.reason.is_empty() => Some(words.message),
        Some(words) => Some(format!("{}: {}", words.reason, words.message)),
        None => {
            let ended = ended(pod)?;
            let said = ended.message.as_deref().unwrap_or_default().trim();
            let reason = ended.reason.as_deref().unwrap_or("it ended");
            Some(
                format!("{reason}, exit code {}: {said}", ended.exit_code)
                    .trim_end_matches([':', ' '])
                    .to_owned(),
            )
        }
    }
}
