//! CronJobs: a Job each time the schedule says so.
//!
//! [`plan`] decides; this file gathers what it needs, carries it out and tells.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use crate::Clock;
use crate::machinery::awaited::{Awaited, LOOK_AGAIN};
use crate::machinery::cache::{Cache, Kind, Progress};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::recorder::{Recorder, Severity};
use crate::machinery::rest::{Error, Propagation, Rest, json_bytes};
use crate::objects::job::{CronJob, CronJobStatus, Job, Reference};
use crate::objects::meta::{Meta, OwnerReference};
use crate::objects::resource::Key;
use crate::own;
use plan::{View, plan};

/// The annotation that says for which time a Job was started.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// The controller.
pub struct Controller {
    rest: Rest,
    recorder: Recorder,
    clock: Clock,
    cron_jobs: Arc<Cache<CronJob>>,
    jobs: Arc<Cache<Job>>,
    awaited: Awaited<Key>,
}

impl Controller {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        recorder: Recorder,
        clock: Clock,
        cron_jobs: &mut Informer<CronJob>,
        jobs: &mut Informer<Job>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        let (keys, now) = (queue.clone(), clock.clone());
        cron_jobs.on_change(move |change| {
            let Some(latest) = change.latest() else { return };
            let when = |one: &CronJob| (one.spec.schedule.clone(), one.spec.time_zone.clone());
            // Times that only the new schedule has, and that have passed, are not made up for.
            if let (Some(before), Some(after)) = (change.before, change.after)
                && when(before) != when(after)
                && let Some(wait) = plan::look_again(after, &after.status, now())
            {
                return keys.add_after(latest.metadata.key(), wait);
            }
            keys.add(latest.metadata.key());
        });
        let keys = queue.clone();
        jobs.on_change(move |change| {
            for job in change.both() {
                if let Some(owner) = own::owner_of::<CronJob>(&job.metadata) {
                    keys.add(owner);
                }
            }
        });
        Self {
            rest,
            recorder,
            clock,
            cron_jobs: cron_jobs.cache.clone(),
            jobs: jobs.cache.clone(),
            awaited: Awaited::default(),
        }
    }

    /// Starts what is due, and takes in what became of what was started.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        if self.awaited.holds(key) {
            return Ok(Next::After(LOOK_AGAIN));
        }
        let Some(cron_job) = self.cron_jobs.get(key) else {
            self.awaited.forget(key);
            return Ok(Next::OnChange);
        };
        let jobs = self.jobs.controlled_by(&cron_job.metadata.uid);
        let missing = self.missing(&cron_job, &jobs).await?;
        let now = (self.clock)();
        let plan = plan(&View { cron_job: &cron_job, jobs: &jobs, missing: &missing, now });
        for (severity, reason, message) in plan.events {
            self.recorder.record(&*cron_job, severity, reason, message);
        }
        let mut status = plan.status;
        let outcome = self.start(&cron_job, &plan.replace, plan.start, &mut status).await;
        for job in &plan.clean_up {
            self.delete(&cron_job, &job.metadata.key(), &mut status).await;
        }
        if status != cron_job.status {
            let written = self.rest.replace_status(CronJob::resource(), &cron_job.metadata, &status).await?;
            let cron_jobs: Arc<dyn Progress> = self.cron_jobs.clone();
            self.awaited.note(key, &cron_jobs, written.version());
        }
        outcome?;
        let next = plan::look_again(&cron_job, &status, (self.clock)());
        // A clock that is set back must not keep a CronJob from its time for long.
        Ok(next.map_or(Next::OnChange, |wait| Next::After(wait.min(Duration::from_secs(3600)))))
    }

    /// Jobs that the status says run, and that are not there: asked, since the cache may be late.
    async fn missing(&self, cron_job: &CronJob, jobs: &[Arc<Job>]) -> Result<Vec<Box<str>>, Error> {
        let mut missing = Vec::new();
        for active in &cron_job.status.active {
            if jobs.iter().any(|job| job.metadata.uid == active.uid) {
                continue;
            }
            let key = Key::new(cron_job.metadata.namespace.clone(), &*active.name);
            match self.rest.metadata(Job::resource(), &key).await {
                Ok(live) if live.uid == active.uid => {}
                Ok(_) => missing.push(active.uid.clone()),
                Err(error) if error.not_found() => missing.push(active.uid.clone()),
                Err(error) => return Err(error),
            }
        }
        Ok(missing)
    }

    /// Starts a Job, after those that it replaces were deleted, and says so in the status.
    async fn start(
        &self,
        cron_job: &CronJob,
        replaced: &[Box<str>],
        due: Option<Timestamp>,
        status: &mut CronJobStatus,
    ) -> Result<(), Error> {
        let Some(due) = due else { return Ok(()) };
        for name in replaced {
            let key = Key::new(cron_job.metadata.namespace.clone(), &**name);
            if !self.delete(cron_job, &key, status).await {
                return Err(Error::Undecided(format!("could not replace job {key}")));
            }
        }
        let body = json_bytes(&job_body(cron_job, due))?;
        let made = match self.rest.create(Job::resource(), &cron_job.metadata.namespace, body).await {
            Ok(made) => {
                let message = format!("Created job {}", made.name);
                self.recorder.record(cron_job, Severity::Normal, "SuccessfulCreate", message);
                let jobs: Arc<dyn Progress> = self.jobs.clone();
                self.awaited.note(&cron_job.metadata.key(), &jobs, made.version());
                made
            }
            Err(error) if error.namespace_terminating() => return Ok(()),
            // It was made before, and only not yet said to be.
            Err(error) if error.already_exists() => {
                let name = plan::job_name(cron_job, due);
                let key = Key::new(cron_job.metadata.namespace.clone(), name);
                let there = self.rest.metadata(Job::resource(), &key).await?;
                if there.controller().is_none_or(|owner| owner.uid != cron_job.metadata.uid) {
                    return Ok(());
                }
                there
            }
            Err(error) => {
                let message = format!("Error creating job: {error}");
                self.recorder.record(cron_job, Severity::Warning, "FailedCreate", message);
                return Err(error);
            }
        };
        status.active.push(reference(&made));
        status.last_schedule_time = Some(due);
        Ok(())
    }

    /// Deletes a Job, which then runs no more; says whether it is gone.
    async fn delete(&self, cron_job: &CronJob, key: &Key, status: &mut CronJobStatus) -> bool {
        let background = Some(Propagation::Background);
        match self.rest.delete_by_name(Job::resource(), key, background).await {
            Ok(()) => {
                let message = format!("Deleted job {}", key.name);
                self.recorder.record(cron_job, Severity::Normal, "SuccessfulDelete", message);
            }
            Err(error) if error.not_found() => {}
            Err(error) => {
                let message = format!("Deleted job: {error}");
                self.recorder.record(cron_job, Severity::Warning, "FailedDelete", message);
                return false;
            }
        }
        status.active.retain(|one| *one.name != *key.name);
        true
    }
}

fn reference(job: &Meta) -> Reference {
    Reference {
        api_version: Job::resource().api_version().into(),
        kind: "Job".into(),
        name: (&*job.name).into(),
        namespace: (&*job.namespace).into(),
        resource_version: job.resource_version.clone(),
        uid: job.uid.clone(),
    }
}

/// The Job for a time.
fn job_body(cron_job: &CronJob, due: Timestamp) -> serde_json::Value {
    let template = &cron_job.spec.job_template;
    let mut annotations = template.metadata.annotations.clone();
    annotations.set(SCHEDULED, &plan::scheduled(cron_job, due));
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": plan::job_name(cron_job, due),
            "namespace": &*cron_job.metadata.namespace,
            "labels": template.metadata.labels,
            "annotations": annotations,
            "ownerReferences": [OwnerReference::to_controller(CronJob::resource(), &cron_job.metadata)],
        },
        "spec": template.spec,
    })
}
