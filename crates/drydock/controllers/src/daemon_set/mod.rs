//! DaemonSets: a pod of the template on every node that it suits.
//!
//! The decision is [`plan`](plan::plan). Pods are bound to their nodes by the scheduler, which each names in its
//! affinity. A pod is of the current template or of another; which there were is in the set's revisions.

mod backoff;
mod plan;
mod pod;
mod rollout;

use std::sync::Arc;

use parking_lot::Mutex;

use crate::Clock;
use crate::claim::claim;
use crate::machinery::awaited::{Awaited, LOOK_AGAIN};
use crate::machinery::cache::{Cache, Kind, Progress};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::recorder::{Recorder, Severity};
use crate::machinery::rest::{Error, Rest, json_bytes};
use crate::objects::daemon::{DaemonSet, DaemonSetStatus, REVISION};
use crate::objects::node::Node;
use crate::objects::pod::{Phase, Pod};
use crate::objects::resource::Key;
use crate::objects::stateful::Revision;
use crate::own;
use crate::revisions::Revisions;
use backoff::Backoff;
use plan::{Step, View};

/// What the controller listens to.
type Informers<'a> =
    (&'a mut Informer<DaemonSet>, &'a mut Informer<Pod>, &'a mut Informer<Node>, &'a mut Informer<Revision>);

/// The controller.
pub struct Controller {
    rest: Rest,
    recorder: Recorder,
    clock: Clock,
    sets: Arc<Cache<DaemonSet>>,
    pods: Arc<Cache<Pod>>,
    nodes: Arc<Cache<Node>>,
    revisions: Revisions,
    backoff: Mutex<Backoff>,
    awaited: Awaited<Key>,
}

impl Controller {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        recorder: Recorder,
        clock: Clock,
        (sets, pods, nodes, revisions): Informers<'_>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        own::follow(sets, pods, queue);
        let (keys, known) = (queue.clone(), sets.cache.clone());
        nodes.on_change(move |change| {
            let heartbeat = |before: &Arc<Node>| change.after.is_some_and(|after| !after.differs(before));
            if !change.before.is_some_and(heartbeat) {
                known.keys().into_iter().for_each(|set| keys.add(set));
            }
        });
        let (sets, pods, nodes) = (sets.cache.clone(), pods.cache.clone(), nodes.cache.clone());
        let revisions = Revisions::new(rest.clone(), revisions.cache.clone());
        Self {
            rest,
            recorder,
            clock,
            sets,
            pods,
            nodes,
            revisions,
            backoff: Mutex::default(),
            awaited: Awaited::default(),
        }
    }

    /// Brings one set nearer to what was asked for.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        if self.awaited.holds(key) {
            return Ok(Next::After(LOOK_AGAIN));
        }
        let Some(set) = self.sets.get(key) else {
            self.awaited.forget(key);
            return Ok(Next::OnChange);
        };
        if set.metadata.deleting() || set.spec.selector.is_empty() {
            return Ok(Next::OnChange);
        }
        let written = |version| self.note(key, &self.revisions.cache, version);
        let revisions = self.revisions.gather(&*set, written).await?;
        let Some(current) = self.revisions.current(&*set, &revisions, written).await? else {
            return Ok(Next::OnChange);
        };
        if current.collisions != set.status.collision_count {
            // Its pods are told by another hash from now on.
            let status = DaemonSetStatus { collision_count: current.collisions, ..set.status.clone() };
            return self.say(key, &set, &status).await.map(|()| Next::OnChange);
        }
        let pods = self.gather(key, &set).await?;
        let nodes = self.nodes.all(|_| true);
        let now = (self.clock)();
        let plan =
            plan::plan(&View { set: &set, nodes: &nodes, pods: &pods, backoff: &self.backoff.lock(), now });
        let mut outcome = Ok(());
        for step in plan.steps {
            outcome = outcome.and(self.carry_out(key, &set, step).await);
        }
        if plan.status != set.status {
            self.say(key, &set, &plan.status).await?;
        }
        outcome?;
        let hashes = pods.iter().filter_map(|pod| pod.metadata.labels.get(REVISION));
        let live: Vec<String> = hashes.map(|hash| format!("{}-{hash}", set.metadata.name)).collect();
        let live: Vec<&str> = live.iter().map(|name| &**name).chain([&*current.name]).collect();
        self.revisions.prune(&*set, &revisions, &live).await?;
        Ok(plan.look_again.map_or(Next::OnChange, Next::After))
    }

    async fn say(&self, key: &Key, set: &DaemonSet, status: &DaemonSetStatus) -> Result<(), Error> {
        let written = self.rest.replace_status(DaemonSet::resource(), &set.metadata, status).await?;
        self.note(key, &self.sets, written.version());
        Ok(())
    }

    /// The pods of the set, after taking and letting go.
    async fn gather(&self, key: &Key, set: &DaemonSet) -> Result<Vec<Arc<Pod>>, Error> {
        let candidates = self.pods.controlled_by(&set.metadata.uid).into_iter();
        let orphans = self.pods.orphans(&set.metadata.namespace);
        let claim = claim(&set.metadata, &set.spec.selector, candidates.chain(orphans));
        let own = own::carry_out(&self.rest, set, claim, None, |version| self.note(key, &self.pods, version))
            .await?;
        Ok(own.all())
    }

    async fn carry_out(&self, key: &Key, set: &DaemonSet, step: Step) -> Result<(), Error> {
        let pod = match step {
            Step::Create(node) => return self.create(key, set, &node).await,
            Step::Replace(pod) => {
                if pod.status.phase == Phase::Failed {
                    self.backoff.lock().failed(set, pod::target(&pod), (self.clock)());
                }
                let (severity, reason, message) = plan::ended(&pod);
                self.recorder.record(set, severity, reason, message);
                pod
            }
            Step::Delete(pod) => pod,
        };
        match self.rest.delete_at_version(Pod::resource(), &pod.metadata.key(), &pod.metadata.uid).await {
            Ok(version) => {
                self.note(key, &self.pods, version);
                let message = format!("Deleted pod: {}", pod.metadata.name);
                self.recorder.record(set, Severity::Normal, "SuccessfulDelete", message);
                Ok(())
            }
            // It is gone, which is what was wanted.
            Err(error) if error.not_found() || error.conflict() => Ok(()),
            Err(error) => {
                let message = format!("Error deleting: {error}");
                self.recorder.record(set, Severity::Warning, "FailedDelete", message);
                Err(error)
            }
        }
    }

    async fn create(&self, key: &Key, set: &DaemonSet, node: &str) -> Result<(), Error> {
        let body = json_bytes(&pod::body(set, node))?;
        match self.rest.create(Pod::resource(), &set.metadata.namespace, body).await {
            Ok(written) => {
                self.note(key, &self.pods, written.version());
                let message = format!("Created pod: {}", written.name);
                self.recorder.record(set, Severity::Normal, "SuccessfulCreate", message);
                Ok(())
            }
            // The set goes with the namespace.
            Err(error) if error.namespace_terminating() => Ok(()),
            Err(error) => {
                let message = format!("Error creating: {error}");
                self.recorder.record(set, Severity::Warning, "FailedCreate", message);
                Err(error)
            }
        }
    }

    fn note<T>(&self, key: &Key, cache: &Arc<Cache<T>>, version: u64)
    where
        Cache<T>: Progress + 'static,
    {
        let cache: Arc<dyn Progress> = cache.clone();
        self.awaited.note(key, &cache, version);
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
