//! ReplicaSets: as many pods as asked for, of the template, no more and no fewer.
//!
//! The decision is [`plan`] and [`status`]: from the set and its pods to what to create and delete and what
//! to say. The rest gathers, carries out and tells.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use serde_json::value::RawValue;

use crate::Clock;
use crate::claim::claim;
use crate::machinery::awaited::{Awaited, LOOK_AGAIN};
use crate::machinery::cache::{Cache, Kind, Object, Progress};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::recorder::{Recorder, Severity};
use crate::machinery::rest::{Error, Rest, json_bytes};
use crate::objects::condition::{Condition, condition};
use crate::objects::meta::OwnerReference;
use crate::objects::pod::{Phase, Pod};
use crate::objects::resource::Key;
use crate::objects::selector::includes;
use crate::objects::workload::{ReplicaSet, ReplicaSetStatus};
use crate::own;

/// Pods created or deleted in one go: Kubernetes' number.
const BURST: usize = 500;

/// What is known when a ReplicaSet is decided on.
pub struct View<'a> {
    /// The set.
    pub set: &'a ReplicaSet,
    /// Its pods that are neither ended nor being deleted.
    pub active: &'a [Arc<Pod>],
    /// How many pods of its siblings and its own each node has: the crowded node gives up first.
    pub crowds: &'a HashMap<Box<str>, usize>,
    /// The time.
    pub now: Timestamp,
}

/// What to do about the pods.
#[derive(Debug)]
pub enum Plan {
    /// Their number is right, or nobody's business any more.
    Leave,
    /// Create this many.
    Create(usize),
    /// Delete these.
    Delete(Vec<Arc<Pod>>),
}

/// Decides what to do about the pods.
pub fn plan(view: &View<'_>) -> Plan {
    if view.set.metadata.deleting() {
        return Plan::Leave;
    }
    let wanted = usize::try_from(view.set.spec.replicas).unwrap_or(0);
    let have = view.active.len();
    match have.cmp(&wanted) {
        Ordering::Equal => Plan::Leave,
        Ordering::Less => Plan::Create((wanted - have).min(BURST)),
        Ordering::Greater => {
            let mut pods = view.active.to_vec();
            pods.sort_by(|one, other| give_up_first(one, other, view));
            pods.truncate((have - wanted).min(BURST));
            Plan::Delete(pods)
        }
    }
}

/// The order in which pods are given up: those without a node, not running, not ready, cheap to delete, on a
/// crowded node, ready for the shortest time, restarted most often, youngest. Times are compared by their
/// order of magnitude, so that not always the same pods go.
fn give_up_first(one: &Pod, other: &Pod, view: &View<'_>) -> Ordering {
    let assigned = |pod: &Pod| !pod.spec.node_name.is_empty();
    let phase = |pod: &Pod| match pod.status.phase {
        Phase::Pending => 0,
        Phase::Unknown => 1,
        _ => 2,
    };
    let cost = |pod: &Pod| -> i32 {
        let annotation = pod.metadata.annotations.get("controller.kubernetes.io/pod-deletion-cost");
        annotation.and_then(|cost| cost.parse().ok()).unwrap_or(0)
    };
    let crowd = |pod: &Pod| view.crowds.get(&pod.spec.node_name).copied().unwrap_or(0);
    let magnitude = |since: Option<Timestamp>| {
        let age = since.map(|since| view.now.duration_since(since).as_nanos()).filter(|age| *age > 0);
        age.map_or(-1, |age| i64::from(age.ilog2()))
    };
    let ready_since = |pod: &Pod| pod.status.ready.filter(|ready| ready.is).and_then(|ready| ready.since);
    let by_age = |one_since: Option<Timestamp>, other_since: Option<Timestamp>| {
        if one_since == other_since {
            return Ordering::Equal;
        }
        magnitude(one_since)
            .cmp(&magnitude(other_since))
            .then_with(|| one.metadata.uid.cmp(&other.metadata.uid))
    };
    assigned(one)
        .cmp(&assigned(other))
        .then_with(|| phase(one).cmp(&phase(other)))
        .then_with(|| one.ready().cmp(&other.ready()))
        .then_with(|| cost(one).cmp(&cost(other)))
        .then_with(|| crowd(other).cmp(&crowd(one)))
        .then_with(|| by_age(ready_since(one), ready_since(other)))
        .then_with(|| other.status.restarts.cmp(&one.status.restarts))
        .then_with(|| by_age(one.metadata.creation_timestamp, other.metadata.creation_timestamp))
}

/// What to say, and when to look again because a pod will have been ready long enough.
pub fn status(
    view: &View<'_>,
    failure: Option<(&'static str, String)>,
) -> (ReplicaSetStatus, Option<Duration>) {
    let set = view.set;
    let min_ready = Duration::from_secs(u64::try_from(set.spec.min_ready_seconds).unwrap_or(0));
    let labels = set.spec.template.labels();
    let waits: Vec<Duration> =
        view.active.iter().filter_map(|pod| pod.available_in(min_ready, view.now)).collect();
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let mut conditions = set.status.conditions.clone();
    match (failure, condition(&conditions, "ReplicaFailure").is_some()) {
        (Some((reason, message)), false) => {
            let since = whole_seconds(view.now);
            conditions.push(Condition::new("ReplicaFailure", "True", reason, message, since));
        }
        (None, true) => conditions.retain(|condition| &*condition.r#type != "ReplicaFailure"),
        _ => {}
    }
    let status = ReplicaSetStatus {
        replicas: count(view.active.len()),
        fully_labeled_replicas: count(
            view.active.iter().filter(|pod| includes(&pod.metadata.labels, labels)).count(),
        ),
        ready_replicas: count(waits.len()),
        available_replicas: count(waits.iter().filter(|wait| wait.is_zero()).count()),
        observed_generation: set.metadata.generation,
        conditions,
    };
    (status, waits.into_iter().filter(|wait| !wait.is_zero()).min())
}

/// Times in objects have whole seconds.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// The controller.
pub struct Controller {
    rest: Rest,
    recorder: Recorder,
    clock: Clock,
    sets: Arc<Cache<ReplicaSet>>,
    pods: Arc<Cache<Pod>>,
    queue: Arc<Queue<Key>>,
    awaited: Awaited<Key>,
    /// Pods whose deletion was asked for and is not seen yet, by set. They are counted as gone.
    deleted: Mutex<HashMap<Key, Vec<Arc<Pod>>>>,
}

impl Controller {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        recorder: Recorder,
        clock: Clock,
        sets: &mut Informer<ReplicaSet>,
        pods: &mut Informer<Pod>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        own::follow(sets, pods, queue);
        let (keys, known) = (queue.clone(), sets.cache.clone());
        pods.on_change(move |change| {
            // A pod that becomes ready is available some time later.
            if let (Some(before), Some(after)) = (change.before, change.after)
                && !before.ready()
                && after.ready()
                && let Some(owner) = after.metadata.controller()
            {
                let key = Key::new(after.metadata.namespace.clone(), &*owner.name);
                if let Some(set) = known.get(&key).filter(|set| set.spec.min_ready_seconds > 0) {
                    let seconds = u64::try_from(set.spec.min_ready_seconds).unwrap_or(0);
                    keys.add_after(key, Duration::from_secs(seconds));
                }
            }
        });
        Self {
            rest,
            recorder,
            clock,
            sets: sets.cache.clone(),
            pods: pods.cache.clone(),
            queue: queue.clone(),
            awaited: Awaited::default(),
            deleted: Mutex::default(),
        }
    }

    /// Brings one set nearer to what was asked for.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        if self.awaited.holds(key) {
            return Ok(Next::After(LOOK_AGAIN));
        }
        let Some(set) = self.sets.get(key) else {
            self.awaited.forget(key);
            self.deleted.lock().remove(key);
            return Ok(Next::OnChange);
        };
        let pods = self.gather(&set).await?;
        let active = pods.into_iter().filter(|pod| pod.active()).collect();
        let active = self.without_deleted(key, active);
        let crowds = self.crowds(&set, &active);
        let view = View { set: &set, active: &active, crowds: &crowds, now: (self.clock)() };
        let (changed, outcome) = self.carry_out(&set, plan(&view)).await;
        let failure = outcome.as_ref().err().map(|error| {
            let reason = if active.len() > usize::try_from(set.spec.replicas).unwrap_or(0) {
                "FailedDelete"
            } else {
                "FailedCreate"
            };
            (reason, error.to_string())
        });
        // What was just created or deleted comes back as changes; a status without it would be wrong at once.
        let tell = !changed || failure.is_some();
        let (status, soon) = status(&view, failure);
        if tell && status != set.status {
            self.write_status(&set, &status).await?;
        }
        outcome?;
        Ok(soon.map_or(Next::OnChange, Next::After))
    }

    /// The pods of the set, ended ones included, after taking and letting go.
    async fn gather(&self, set: &ReplicaSet) -> Result<Vec<Arc<Pod>>, Error> {
        let candidates = self.pods.controlled_by(&set.metadata.uid).into_iter();
        let orphans = self.pods.orphans(&set.metadata.namespace).into_iter().filter(|pod| pod.active());
        let mut claim = claim(&set.metadata, &set.spec.selector, candidates.chain(orphans));
        claim.release.retain(|pod| pod.active());
        let key = set.metadata.key();
        let own = own::carry_out(&self.rest, set, claim, None, |version| self.note(&key, version)).await?;
        Ok(own.all())
    }

    /// Leaves out pods whose deletion was asked for before and is not seen yet.
    fn without_deleted(&self, key: &Key, active: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
        let mut all = self.deleted.lock();
        let Some(deleted) = all.get_mut(key) else { return active };
        deleted.retain(|gone| active.iter().any(|pod| pod.metadata.uid == gone.metadata.uid));
        let left = active
            .into_iter()
            .filter(|pod| deleted.iter().all(|gone| gone.metadata.uid != pod.metadata.uid))
            .collect();
        if deleted.is_empty() {
            all.remove(key);
        }
        left
    }

    /// How many active pods each node has, of this set and of its siblings under the same controller.
    fn crowds(&self, set: &ReplicaSet, active: &[Arc<Pod>]) -> HashMap<Box<str>, usize> {
        let mut crowds = HashMap::new();
        if active.len() <= usize::try_from(set.spec.replicas).unwrap_or(0) {
            return crowds;
        }
        let mut count = |pods: &[Arc<Pod>]| {
            for pod in pods.iter().filter(|pod| pod.active() && !pod.spec.node_name.is_empty()) {
                *crowds.entry(pod.spec.node_name.clone()).or_default() += 1;
            }
        };
        count(active);
        if let Some(owner) = set.metadata.controller() {
            for sibling in self.sets.controlled_by(&owner.uid) {
                if sibling.metadata.uid != set.metadata.uid {
                    count(&self.pods.controlled_by(&sibling.metadata.uid));
                }
            }
        }
        crowds
    }

    /// Says whether anything was changed, and how it ended.
    async fn carry_out(&self, set: &ReplicaSet, plan: Plan) -> (bool, Result<(), Error>) {
        match plan {
            Plan::Leave => (false, Ok(())),
            Plan::Create(number) => self.create(set, number).await,
            Plan::Delete(pods) => self.delete(set, pods).await,
        }
    }

    /// Creates pods in batches that double as long as all goes well: where the first fails, few follow.
    async fn create(&self, set: &ReplicaSet, mut left: usize) -> (bool, Result<(), Error>) {
        let body = match pod_body(set) {
            Ok(body) => body,
            Err(error) => return (false, Err(error)),
        };
        let key = set.metadata.key();
        let (mut batch, mut created) = (1, false);
        while left > 0 {
            let size = batch.min(left);
            let requests =
                (0..size).map(|_| self.rest.create(Pod::resource(), &set.metadata.namespace, body.clone()));
            let mut failed = None;
            for outcome in join_all(requests).await {
                match outcome {
                    Ok(pod) => {
                        created = true;
                        self.note(&key, pod.version());
                        self.recorder.record(
                            set,
                            Severity::Normal,
                            "SuccessfulCreate",
                            format!("Created pod: {}", pod.name),
                        );
                    }
                    // Every other attempt would fail too, and the set goes with the namespace.
                    Err(error) if error.namespace_terminating() => return (created, Ok(())),
                    Err(error) => {
                        self.recorder.record(
                            set,
                            Severity::Warning,
                            "FailedCreate",
                            format!("Error creating: {error}"),
                        );
                        failed = Some(error);
                    }
                }
            }
            if let Some(error) = failed {
                return (created, Err(error));
            }
            left -= size;
            batch *= 2;
        }
        (created, Ok(()))
    }

    async fn delete(&self, set: &ReplicaSet, pods: Vec<Arc<Pod>>) -> (bool, Result<(), Error>) {
        let key = set.metadata.key();
        self.deleted.lock().entry(key.clone()).or_default().extend(pods.iter().cloned());
        let requests = pods.iter().map(|pod| async move {
            let outcome =
                self.rest.delete(Pod::resource(), &pod.metadata.key(), &pod.metadata.uid, None, None).await;
            (pod, outcome)
        });
        let mut result = Ok(());
        for (pod, outcome) in join_all(requests).await {
            match outcome {
                Ok(()) => {
                    let message = format!("Deleted pod: {}", pod.metadata.name);
                    self.recorder.record(set, Severity::Normal, "SuccessfulDelete", message);
                }
                Err(error) if error.not_found() => {}
                Err(error) => {
                    if let Some(deleted) = self.deleted.lock().get_mut(&key) {
                        deleted.retain(|gone| gone.metadata.uid != pod.metadata.uid);
                    }
                    self.recorder.record(
                        set,
                        Severity::Warning,
                        "FailedDelete",
                        format!("Error deleting: {error}"),
                    );
                    result = Err(Error::Undecided(format!("unable to delete pods: {error}")));
                }
            }
        }
        self.queue.add_after(key, LOOK_AGAIN);
        (true, result)
    }

    async fn write_status(&self, set: &ReplicaSet, status: &ReplicaSetStatus) -> Result<(), Error> {
        let key = set.metadata.key();
        let written = self.rest.replace_status(ReplicaSet::resource(), &set.metadata, status).await?;
        let sets: Arc<dyn Progress> = self.sets.clone();
        self.awaited.note(&key, &sets, written.version());
        Ok(())
    }

    fn note(&self, key: &Key, version: u64) {
        let pods: Arc<dyn Progress> = self.pods.clone();
        self.awaited.note(key, &pods, version);
    }
}

/// The pod a set creates, as JSON: the template with a name to be made and the set as its owner.
fn pod_body(set: &ReplicaSet) -> Result<Vec<u8>, Error> {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Template<'a> {
        metadata: serde_json::Map<String, serde_json::Value>,
        #[serde(borrow)]
        spec: Option<&'a RawValue>,
    }
    let template: Template<'_> = serde_json::from_str(set.spec.template.raw().get()).map_err(Error::Body)?;
    let mut metadata = serde_json::Map::new();
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template.metadata.get(field).filter(|value| !value.is_null()) {
            metadata.insert(field.into(), value.clone());
        }
    }
    metadata.insert("generateName".into(), format!("{}-", set.metadata.name).into());
    let owner = OwnerReference::to_controller(ReplicaSet::resource(), set.meta());
    metadata.insert("ownerReferences".into(), json!([owner]));
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Body<'a> {
        api_version: &'a str,
        kind: &'a str,
        metadata: serde_json::Map<String, serde_json::Value>,
        spec: Option<&'a RawValue>,
    }
    json_bytes(&Body { api_version: "v1", kind: "Pod", metadata, spec: template.spec })
}

#[cfg(test)]
#[path = "replica_set_tests.rs"]
mod tests;
