//! Pods that are held for a Job which counts them no more: it is gone, or over.
//!
//! A Job is over only when it has let go of all its pods, so that those of one that is over are here as a back-up:
//! somebody else may have ended it, or have had a pod be held again. Pods of a Job that another controller acts on are
//! that one's.

use std::sync::Arc;

use super::let_go;
use super::plan::TRACKING;
use crate::machinery::cache::{Cache, Change};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::rest::{Error, Rest};
use crate::objects::job::Job;
use crate::objects::pod::Pod;
use crate::objects::resource::Key;
use crate::own;

/// Lets go of pods that no Job counts any more.
pub struct Orphans {
    rest: Rest,
    jobs: Arc<Cache<Job>>,
    pods: Arc<Cache<Pod>>,
}

impl Orphans {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        jobs: &mut Informer<Job>,
        pods: &mut Informer<Pod>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        let (keys, known) = (queue.clone(), pods.cache.clone());
        jobs.on_change(move |change| {
            if let Some(job) = left_its_pods(change) {
                known.controlled_by(&job.metadata.uid).iter().for_each(|pod| keys.add(pod.metadata.key()));
            }
        });
        let (keys, known) = (queue.clone(), jobs.cache.clone());
        pods.on_change(move |change| {
            if let Some(pod) = change.after.filter(|pod| is_orphan(pod, &known)) {
                keys.add(pod.metadata.key());
            }
        });
        Self { rest, jobs: jobs.cache.clone(), pods: pods.cache.clone() }
    }

    /// Lets one pod go, if it is an orphan.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        if let Some(pod) = self.pods.get(key).filter(|pod| is_orphan(pod, &self.jobs)) {
            let_go(&self.rest, &pod).await?;
        }
        Ok(Next::OnChange)
    }
}

/// The Job that has just gone or ended.
fn left_its_pods<'a>(change: &Change<'a, Job>) -> Option<&'a Arc<Job>> {
    let counted = change.before.is_none_or(|job| job.ended().is_none());
    match change.after {
        None => change.before,
        Some(job) => Some(job).filter(|job| counted && job.ended().is_some()),
    }
}

/// Whether a pod is held for a Job that does not count it.
fn is_orphan(pod: &Pod, jobs: &Cache<Job>) -> bool {
    if !pod.metadata.has_finalizer(TRACKING) {
        return false;
    }
    match pod.metadata.controller() {
        None => !jobs
            .in_namespace(&pod.metadata.namespace, |job| job.spec.selector.matches(&pod.metadata.labels))
            .iter()
            .any(|job| !job.metadata.deleting() && may_count(job)),
        Some(owner) => own::owner_of::<Job>(&pod.metadata).is_some_and(|key| {
            !jobs.get(&key).is_some_and(|job| job.metadata.uid == owner.uid && may_count(&job))
        }),
    }
}

/// Whether the pods of a Job may still be counted.
fn may_count(job: &Job) -> bool {
    job.ended().is_none() || job.managed_by_another()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Jobs by name, which is their uid as well.
    fn jobs() -> Cache<Job> {
        let jobs = Cache::default();
        let failed = json!([{ "type": "Failed", "status": "True" }]);
        for (name, managed_by, conditions) in [
            ("runs", None, json!([])),
            ("over", None, failed.clone()),
            ("over-here", Some("kubernetes.io/job-controller"), failed.clone()),
            ("over-elsewhere", Some("example.com/jobs"), failed),
        ] {
            let job = json!({
                "metadata": { "name": name, "namespace": "n", "uid": name },
                "spec": { "managedBy": managed_by, "selector": { "matchLabels": { "job": name } } },
                "status": { "conditions": conditions },
            });
            jobs.set(Arc::new(serde_json::from_value(job).unwrap()));
        }
        jobs
    }

    /// A pod of a Job, which refers to it by this uid.
    fn pod(job: &str, uid: &str) -> Pod {
        let owners = match uid {
            "" => json!([]),
            uid => {
                json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": true }])
            }
        };
        let pod = json!({ "metadata": {
            "name": "p", "namespace": "n", "labels": { "job": job },
            "finalizers": [TRACKING], "ownerReferences": owners,
        } });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_pod_is_let_go_when_its_job_is_gone_or_over_unless_that_is_up_to_somebody_else() {
        let jobs = jobs();
        for (job, uid, expected) in [
            ("runs", "runs", false),
            ("runs", "earlier", true),
            ("gone", "gone", true),
            ("over", "over", true),
            ("over-here", "over-here", true),
            ("over-elsewhere", "over-elsewhere", false),
            // Nobody's yet, or no more.
            ("runs", "", false),
            ("over", "", true),
            ("gone", "", true),
        ] {
            assert_eq!(is_orphan(&pod(job, uid), &jobs), expected, "{job} {uid}");
        }
        let mut free = pod("over", "over");
        free.metadata.finalizers.clear();
        assert!(!is_orphan(&free, &jobs));
    }

    #[test]
    fn the_pods_of_a_job_are_looked_at_when_it_goes_and_once_when_it_ends() {
        let jobs = jobs();
        let job = |name: &str| jobs.get(&Key::new("n", name));
        for (before, after, expected) in [
            (None, Some("runs"), false),
            (Some("runs"), Some("runs"), false),
            (Some("runs"), Some("over"), true),
            (None, Some("over"), true),
            (Some("over"), Some("over"), false),
            (Some("runs"), None, true),
            (Some("over"), None, true),
        ] {
            let (old, new) = (before.and_then(job), after.and_then(job));
            let change = Change { before: old.as_ref(), after: new.as_ref() };
            assert_eq!(left_its_pods(&change).is_some(), expected, "{before:?} {after:?}");
        }
    }
}
