//! DaemonSets: a pod of the template on every node that it suits.
//!
//! The decision is [`plan`](plan::plan). Pods are bound to their nodes by the scheduler, which each names in its
//! affinity. Of templates there is no history: a pod is of the current one, or of another.

mod plan;
mod pod;

use std::sync::Arc;

use crate::Clock;
use crate::claim::claim;
use crate::machinery::awaited::{Awaited, LOOK_AGAIN};
use crate::machinery::cache::{Cache, Kind, Progress};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::recorder::{Recorder, Severity};
use crate::machinery::rest::{Error, Rest, json_bytes};
use crate::objects::daemon::DaemonSet;
use crate::objects::node::Node;
use crate::objects::pod::Pod;
use crate::objects::resource::Key;
use crate::own;
use plan::{Step, View};

/// The controller.
pub struct Controller {
    rest: Rest,
    recorder: Recorder,
    clock: Clock,
    sets: Arc<Cache<DaemonSet>>,
    pods: Arc<Cache<Pod>>,
    nodes: Arc<Cache<Node>>,
    awaited: Awaited<Key>,
}

impl Controller {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        recorder: Recorder,
        clock: Clock,
        (sets, pods, nodes): (&mut Informer<DaemonSet>, &mut Informer<Pod>, &mut Informer<Node>),
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
        Self { rest, recorder, clock, sets, pods, nodes, awaited: Awaited::default() }
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
        let pods = self.gather(key, &set).await?;
        let nodes = self.nodes.all(|_| true);
        let plan = plan::plan(&View { set: &set, nodes: &nodes, pods: &pods, now: (self.clock)() });
        let mut outcome = Ok(());
        for step in plan.steps {
            outcome = outcome.and(self.carry_out(key, &set, step).await);
        }
        if plan.status != set.status {
            let written =
                self.rest.replace_status(DaemonSet::resource(), &set.metadata, &plan.status).await?;
            let sets: Arc<dyn Progress> = self.sets.clone();
            self.awaited.note(key, &sets, written.version());
        }
        outcome?;
        Ok(plan.look_again.map_or(Next::OnChange, Next::After))
    }

    /// The pods of the set, after taking and letting go.
    async fn gather(&self, key: &Key, set: &DaemonSet) -> Result<Vec<Arc<Pod>>, Error> {
        let candidates = self.pods.controlled_by(&set.metadata.uid).into_iter();
        let orphans = self.pods.orphans(&set.metadata.namespace);
        let claim = claim(&set.metadata, &set.spec.selector, candidates.chain(orphans));
        let own = own::carry_out(&self.rest, set, claim, None, |version| self.note(key, version)).await?;
        Ok(own.all())
    }

    async fn carry_out(&self, key: &Key, set: &DaemonSet, step: Step) -> Result<(), Error> {
        let pod = match step {
            Step::Create(node) => return self.create(key, set, &node).await,
            Step::Replace(pod) => {
                let (reason, message) = plan::ended(&pod);
                self.recorder.record(set, Severity::Warning, reason, message);
                pod
            }
            Step::Delete(pod) => pod,
        };
        match self.rest.delete_at_version(Pod::resource(), &pod.metadata.key(), &pod.metadata.uid).await {
            Ok(version) => {
                self.note(key, version);
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
                self.note(key, written.version());
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

    fn note(&self, key: &Key, version: u64) {
        let pods: Arc<dyn Progress> = self.pods.clone();
        self.awaited.note(key, &pods, version);
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
