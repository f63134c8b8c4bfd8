//! Jobs: pods that run to their end, as many as must succeed.
//!
//! [`plan`] and [`track`] decide; this file gathers what they need, carries it out and tells. [`Orphans`] lets go of pods
//! that no Job counts any more, and [`expiry`] deletes Jobs that have been over for long enough.

pub mod expiry;
mod failure;
mod indexes;
mod orphans;
mod plan;
mod track;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::Clock;
use crate::claim::claim;
use crate::machinery::awaited::{Awaited, LOOK_AGAIN};
use crate::machinery::cache::{Cache, Kind, Progress};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::recorder::{Recorder, Severity};
use crate::machinery::rest::{Error, PatchType, Rest, json_bytes};
use crate::objects::condition::Condition;
use crate::objects::job::{Job, JobStatus};
use crate::objects::meta::{Meta, OwnerReference};
use crate::objects::pod::Pod;
use crate::objects::resource::Key;
use crate::own::{self, Own};
use failure::Failures;
pub use orphans::Orphans;
use plan::{NewPod, TRACKING, View, Work};
use track::Done;

/// The longest name before what is made up.
const LONGEST_PREFIX: usize = 58;

/// The controller.
pub struct Controller {
    rest: Rest,
    recorder: Recorder,
    clock: Clock,
    jobs: Arc<Cache<Job>>,
    pods: Arc<Cache<Pod>>,
    awaited: Awaited<Key>,
    /// The failures since the last success of each Job: how long the next pod waits, nothing else.
    failures: Mutex<HashMap<Key, Failures>>,
}

impl Controller {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        recorder: Recorder,
        clock: Clock,
        jobs: &mut Informer<Job>,
        pods: &mut Informer<Pod>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        own::follow(jobs, pods, queue);
        Self {
            rest,
            recorder,
            clock,
            jobs: jobs.cache.clone(),
            pods: pods.cache.clone(),
            awaited: Awaited::default(),
            failures: Mutex::default(),
        }
    }

    /// Brings one Job nearer to its end.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        if self.awaited.holds(key) {
            return Ok(Next::After(LOOK_AGAIN));
        }
        let job = self.jobs.get(key).filter(|job| job.ended().is_none());
        let Some(job) = job else {
            self.awaited.forget(key);
            self.failures.lock().remove(key);
            return Ok(Next::OnChange);
        };
        if job.managed_by_another() {
            return Ok(Next::OnChange);
        }
        let pods = self.gather(&job).await?;
        let failures = self.failures.lock().get(key).copied().unwrap_or_default();
        let view = View { job: &job, pods: &pods, failures, now: (self.clock)() };
        let assessment = plan::assess(&view);
        let (done, outcome) = self.carry_out(&job, &assessment.work).await;
        let tracked = track::track(&view, &assessment, done);
        if let Some(held) = tracked.held {
            let (reason, message) =
                if held { ("Suspended", "Job suspended") } else { ("Resumed", "Job resumed") };
            self.recorder.record(&*job, Severity::Normal, reason, message.into());
        }
        let mut written = job.metadata.clone();
        if tracked.status != job.status {
            written = self.write_status(&job, &written, &tracked.status).await?;
        }
        self.failures.lock().insert(key.clone(), assessment.failures);
        let released = self.release(&job, &tracked.release).await;
        let gone: HashSet<&str> = released.iter().filter_map(|one| one.as_ref().ok().copied()).collect();
        let held = pods.iter().filter(|pod| pod.metadata.has_finalizer(TRACKING));
        let left = held.map(|pod| pod.metadata.uid.clone()).filter(|uid| !gone.contains(&**uid)).collect();
        let (status, end) = track::settle(&tracked, &left, (self.clock)());
        if status != tracked.status {
            self.write_status(&job, &written, &status).await?;
        }
        if let Some(end) = end {
            self.tell_end(&job, &status, &end);
        }
        outcome?;
        released.into_iter().try_for_each(|one| one.map(drop))?;
        Ok(assessment.look_again.map_or(Next::OnChange, |wait| Next::After(wait + Duration::from_millis(10))))
    }

    /// The pods of the Job, after taking and letting go.
    async fn gather(&self, job: &Job) -> Result<Vec<Arc<Pod>>, Error> {
        let candidates = self.pods.controlled_by(&job.metadata.uid).into_iter();
        let orphans = self.pods.orphans(&job.metadata.namespace);
        let claim = claim(&job.metadata, &job.spec.selector, candidates.chain(orphans));
        let written = |version| self.note_pod(job, version);
        let Own { mut old, taken } = own::carry_out(&self.rest, job, claim, Some(TRACKING), written).await?;
        old.extend(taken.into_iter().map(|pod| {
            let mut marked = (*pod).clone();
            marked.metadata.finalizers.push(TRACKING.into());
            Arc::new(marked)
        }));
        Ok(old)
    }

    async fn carry_out(&self, job: &Job, work: &Work) -> (Done, Result<(), Error>) {
        match work {
            Work::Leave => (Done { whole: true, ..Done::default() }, Ok(())),
            Work::Create(new) => self.create(job, new).await,
            Work::Delete { pods, counted } => self.delete(job, pods, *counted).await,
        }
    }

    /// Creates pods in batches that double as long as all goes well: where the first fails, few follow.
    async fn create(&self, job: &Job, mut new: &[NewPod]) -> (Done, Result<(), Error>) {
        let mut done = Done { whole: true, ..Done::default() };
        let mut batch = 1;
        while !new.is_empty() {
            let (now, later) = new.split_at(batch.min(new.len()));
            let requests = now.iter().map(|new| async move {
                let body = json_bytes(&pod_body(job, new))?;
                self.rest.create(Pod::resource(), &job.metadata.namespace, body).await
            });
            let mut failed = None;
            for outcome in join_all(requests).await {
                match outcome {
                    Ok(pod) => {
                        done.created += 1;
                        self.note_pod(job, pod.version());
                        let message = format!("Created pod: {}", pod.name);
                        self.recorder.record(job, Severity::Normal, "SuccessfulCreate", message);
                    }
                    // Every other attempt would fail too, and the Job goes with the namespace.
                    Err(error) if error.namespace_terminating() => return (done, Ok(())),
                    Err(error) => {
                        let message = format!("Error creating: {error}");
                        self.recorder.record(job, Severity::Warning, "FailedCreate", message);
                        failed = Some(error);
                    }
                }
            }
            if let Some(error) = failed {
                return (Done { whole: false, ..done }, Err(error));
            }
            (new, batch) = (later, batch * 2);
        }
        (done, Ok(()))
    }

    async fn delete(&self, job: &Job, pods: &[Arc<Pod>], counted: bool) -> (Done, Result<(), Error>) {
        let requests = pods.iter().map(|pod| async move {
            if !counted {
                self.let_go(job, pod).await?;
            }
            self.rest.delete_at_version(Pod::resource(), &pod.metadata.key(), &pod.metadata.uid).await
        });
        let mut done = Done { whole: true, ..Done::default() };
        let mut result = Ok(());
        for (pod, outcome) in pods.iter().zip(join_all(requests).await) {
            match outcome {
                Ok(version) => {
                    self.note_pod(job, version);
                    let message = format!("Deleted pod: {}", pod.metadata.name);
                    self.recorder.record(job, Severity::Normal, "SuccessfulDelete", message);
                }
                Err(error) if error.not_found() => {}
                Err(error) => {
                    let message = format!("Error deleting: {error}");
                    self.recorder.record(job, Severity::Warning, "FailedDelete", message);
                    done.whole = false;
                    result = Err(error);
                    continue;
                }
            }
            done.deleted += 1;
            done.deleted_ready += i32::from(pod.ready());
        }
        (done, result)
    }

    /// Lets pods go; the uids of those that are.
    async fn release<'p>(&self, job: &Job, pods: &'p [Arc<Pod>]) -> Vec<Result<&'p str, Error>> {
        let requests = pods.iter().map(|pod| async move {
            self.let_go(job, pod).await?;
            Ok(&*pod.metadata.uid)
        });
        join_all(requests).await
    }

    async fn let_go(&self, job: &Job, pod: &Pod) -> Result<(), Error> {
        if let Some(written) = let_go(&self.rest, pod).await? {
            self.note_pod(job, written.version());
        }
        Ok(())
    }

    async fn write_status(&self, job: &Job, metadata: &Meta, status: &JobStatus) -> Result<Meta, Error> {
        let written = self.rest.replace_status(Job::resource(), metadata, status).await?;
        let jobs: Arc<dyn Progress> = self.jobs.clone();
        self.awaited.note(&job.metadata.key(), &jobs, written.version());
        Ok(written)
    }

    fn tell_end(&self, job: &Job, status: &JobStatus, end: &Condition) {
        if &*end.r#type == "Complete" {
            if job.spec.completions.is_some_and(|completions| status.succeeded > completions) {
                let message = "Too many succeeded pods running after completion count reached";
                self.recorder.record(job, Severity::Warning, "TooManySucceededPods", message.into());
            }
            self.recorder.record(job, Severity::Normal, "Completed", "Job completed".into());
            return;
        }
        const REASONS: [&str; 5] = [
            "BackoffLimitExceeded",
            "DeadlineExceeded",
            "MaxFailedIndexesExceeded",
            "FailedIndexes",
            "PodFailurePolicy",
        ];
        let reason = REASONS.into_iter().find(|known| **known == *end.reason).unwrap_or("Failed");
        self.recorder.record(job, Severity::Warning, reason, end.message.to_string());
    }

    fn note_pod(&self, job: &Job, version: u64) {
        let pods: Arc<dyn Progress> = self.pods.clone();
        self.awaited.note(&job.metadata.key(), &pods, version);
    }
}

/// Takes off what holds a pod, if it is still that pod and held; nothing where there is none of its name.
///
/// A conflict does not say that the pod is gone, and one that is held is counted by whoever finds it: whether another
/// has its name by now is seen at the next look.
async fn let_go(rest: &Rest, pod: &Pod) -> Result<Option<Meta>, Error> {
    if !pod.metadata.has_finalizer(TRACKING) {
        return Ok(None);
    }
    let patch = json!({
        "metadata": { "uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [TRACKING] },
    });
    match rest.patch(Pod::resource(), &pod.metadata.key(), PatchType::Strategic, &patch).await {
        Ok(written) => Ok(Some(written)),
        Err(error) if error.not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// A new pod of a Job.
fn pod_body(job: &Job, new: &NewPod) -> Value {
    let mut template = job.spec.template.value();
    let mut metadata = Map::new();
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(field).filter(|value| !value.is_null()) {
            metadata.insert(field.into(), value.clone());
        }
    }
    let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(finalizers) = finalizers.as_array_mut()
        && !finalizers.contains(&json!(TRACKING))
    {
        finalizers.push(TRACKING.into());
    }
    let mut prefix = format!("{}-", job.metadata.name);
    if let Some(index) = new.index {
        let suffix = format!("-{index}-");
        let room = LONGEST_PREFIX.saturating_sub(suffix.len());
        prefix = format!("{}{suffix}", &job.metadata.name[..job.metadata.name.len().min(room)]);
        template["spec"]["hostname"] = format!("{}-{index}", job.metadata.name).into();
        for field in ["labels", "annotations"] {
            metadata.entry(field).or_insert_with(|| json!({}))[plan::INDEX] = index.to_string().into();
        }
        for field in ["initContainers", "containers"] {
            for container in template["spec"][field].as_array_mut().into_iter().flatten() {
                tell_index(container);
            }
        }
    }
    if let Some((counted, ignored)) = new.failed_before {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        annotations[plan::FAILED_BEFORE] = counted.to_string().into();
        if ignored > 0 {
            annotations[plan::IGNORED_BEFORE] = ignored.to_string().into();
        }
    }
    metadata.insert("generateName".into(), prefix.into());
    let owner = OwnerReference::to_controller(Job::resource(), &job.metadata);
    metadata.insert("ownerReferences".into(), json!([owner]));
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"] })
}

/// A container reads the number of its pod from a variable.
fn tell_index(container: &mut Value) {
    const NAME: &str = "JOB_COMPLETION_INDEX";
    let mut variables = container["env"].as_array().cloned().unwrap_or_default();
    if variables.iter().all(|variable| variable["name"] != NAME) {
        let path = format!("metadata.labels['{}']", plan::INDEX);
        variables.push(json!({ "name": NAME, "valueFrom": { "fieldRef": { "fieldPath": path } } }));
        container["env"] = variables.into();
    }
}
