//! Gives pods to nodes, as kube-scheduler does.
//!
//! [`decide`] is the whole decision and knows nothing of the API. What is here feeds it and does what it
//! says: a pod that fits somewhere is bound; one that fits nowhere is told why, once per reason, and looked at
//! again when something changes that could help it. Nothing is asked while nothing changes.
//!
//! # Guarantees
//! - Decisions are made one after another, each knowing of those before it whether or not the caches show
//!   them already: a node is never given more than it has. Bindings are then written side by side.
//!
//! # Deliberately absent
//! Preemption, priorities, zones and limits of volumes, claims for devices.

mod claims;
mod cluster;
mod decide;
mod near;
mod score;
mod spread;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::Clock;
use crate::machinery::cache::{Cache, Kind};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::recorder::{Recorder, Severity};
use crate::machinery::rest::{Error, Rest};
use crate::objects::node::Node;
use crate::objects::pod::Pod;
use crate::objects::resource::Key;
use crate::objects::service::Namespace;
use crate::objects::storage::{Claim, Class, Volume};
use crate::volumes::{SELECTED_NODE, edit, give};
use claims::{Step, Storage};
use cluster::{Cluster, placement};
use decide::{Decision, decide};

/// The name that pods ask for, and that events are told by.
pub const NAME: &str = "default-scheduler";

/// The name under which fields are owned.
const FIELD_MANAGER: &str = "kube-scheduler";

/// A pod and the node it was given.
type Placed = (Arc<Pod>, Arc<str>);

/// Pods that were given a node which the cache does not show yet, by uid.
#[derive(Default)]
struct Assumed(Mutex<HashMap<Box<str>, Placed>>);

/// The controller. Its keys are pods.
pub struct Controller {
    rest: Rest,
    recorder: Recorder,
    clock: Clock,
    pods: Arc<Cache<Pod>>,
    nodes: Arc<Cache<Node>>,
    namespaces: Arc<Cache<Namespace>>,
    claims: Arc<Cache<Claim>>,
    volumes: Arc<Cache<Volume>>,
    classes: Arc<Cache<Class>>,
    assumed: Arc<Assumed>,
}

/// What the scheduler listens to: pods, nodes and namespaces, and what claims are bound by.
type Informers<'a> = (
    (&'a mut Informer<Pod>, &'a mut Informer<Node>, &'a mut Informer<Namespace>),
    (&'a mut Informer<Claim>, &'a mut Informer<Volume>, &'a mut Informer<Class>),
);

impl Controller {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        recorder: Recorder,
        clock: Clock,
        ((pods, nodes, namespaces), (claims, volumes, classes)): Informers<'_>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        let assumed = Arc::<Assumed>::default();
        let (all, keys, known) = (pods.cache.clone(), queue.clone(), assumed.clone());
        pods.on_change(move |change| {
            if let Some(pod) = change.after.filter(|pod| pod.waits_for_node()) {
                // Its own condition is what the scheduler wrote itself.
                let told = change.before.is_some_and(|before| {
                    before.status.unscheduled != pod.status.unscheduled && !changed(before, pod)
                });
                if !told {
                    keys.add(pod.metadata.key());
                }
                return;
            }
            let (before, after) =
                (change.before.filter(|pod| on_node(pod)), change.after.filter(|pod| on_node(pod)));
            let taken_back = change.latest().and_then(|pod| known.0.lock().remove(&pod.metadata.uid));
            match (before, after) {
                (None, None) if taken_back.is_none() => {}
                (_, None) => wake(&all, &keys, |_| true),
                // A pod that came helps those who want to be with it.
                (None, Some(_)) => wake(&all, &keys, selective),
                (Some(before), Some(after)) if changed(before, after) => wake(&all, &keys, |_| true),
                (Some(_), Some(_)) => {}
            }
        });
        let (all, keys) = (pods.cache.clone(), queue.clone());
        nodes.on_change(move |change| {
            let same = change.before.zip(change.after).is_some_and(|(before, after)| !after.differs(before));
            if !same {
                wake(&all, &keys, |_| true);
            }
        });
        let (all, keys) = (pods.cache.clone(), queue.clone());
        claims.on_change(move |change| {
            let Some(claim) = change.latest() else { return };
            let meta = &claim.metadata;
            let uses = |pod: &Pod| {
                pod.metadata.namespace == meta.namespace
                    && pod.claims().iter().any(|(name, _)| **name == *meta.name)
            };
            wake(&all, &keys, uses);
        });
        let (all, keys) = (pods.cache.clone(), queue.clone());
        volumes.on_change(move |_| wake(&all, &keys, |pod| !pod.claims().is_empty()));
        let (all, keys) = (pods.cache.clone(), queue.clone());
        classes.on_change(move |_| wake(&all, &keys, |pod| !pod.claims().is_empty()));
        Self {
            rest,
            recorder,
            clock,
            claims: claims.cache.clone(),
            volumes: volumes.cache.clone(),
            classes: classes.cache.clone(),
            pods: pods.cache.clone(),
            nodes: nodes.cache.clone(),
            namespaces: namespaces.cache.clone(),
            assumed,
        }
    }

    /// Finds a node for one pod.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some((pod, decision)) = self.decided(key) else { return Ok(Next::OnChange) };
        match decision {
            Decision::Bind(node) => {
                let bound = self.bind(&pod, &node).await;
                if bound.is_err() {
                    self.assumed.0.lock().remove(&pod.metadata.uid);
                }
                match bound {
                    Err(error) if error.not_found() => {}
                    other => other?,
                }
            }
            Decision::Prepare(node, steps) => {
                for step in steps {
                    match self.prepare(&node, step).await {
                        // Somebody else changed it, or took it: that is seen, and decided on anew.
                        Err(error) if error.not_found() || error.conflict() => break,
                        other => other?,
                    }
                }
            }
            Decision::Wait(why) => self.tell(&pod, &why).await?,
        }
        Ok(Next::OnChange)
    }

    /// Decides about one pod, and notes where it goes. `None` when there is nothing to be decided.
    fn decided(&self, key: &Key) -> Option<(Arc<Pod>, Decision)> {
        let mut assumed = self.assumed.0.lock();
        let pod = self.pods.get(key).filter(|pod| pod.waits_for_node())?;
        if assumed.contains_key(&pod.metadata.uid) {
            return None;
        }
        let placed =
            self.pods.all(on_node).into_iter().filter(|pod| !assumed.contains_key(&pod.metadata.uid));
        let placed = placed.map(|pod| {
            let node = Arc::from(&*pod.spec.node_name);
            (pod, node)
        });
        let namespaces = self.namespaces.all(|_| true).into_iter();
        let namespaces = namespaces.map(|one| (one.metadata.name.clone(), one.metadata.labels.clone()));
        let everything: Vec<_> = placed.chain(assumed.values().cloned()).collect();
        // Nobody pays for claims who has none.
        let storage = if pod.claims().is_empty() { Storage::default() } else { self.storage(&key.namespace) };
        let cluster = Cluster::new(self.nodes.all(|_| true), everything, namespaces.collect(), storage);
        let decision = decide(&pod, &cluster);
        if let Decision::Bind(node) = &decision {
            assumed.insert(pod.metadata.uid.clone(), (pod.clone(), node.clone()));
        }
        Some((pod, decision))
    }

    /// The claims of a namespace, and what they are bound by.
    fn storage(&self, namespace: &Arc<str>) -> Storage {
        let claims = self.claims.in_namespace(namespace, |_| true).into_iter();
        let classes = self.classes.all(|_| true).into_iter();
        Storage {
            claims: claims.map(|claim| (claim.metadata.key(), claim)).collect(),
            volumes: self.volumes.all(|_| true),
            classes: classes.map(|class| (class.metadata.name.clone(), class)).collect(),
        }
    }

    /// Does for a claim what must be done before its pod goes to a node.
    async fn prepare(&self, node: &str, step: Step) -> Result<(), Error> {
        match step {
            Step::Wait => {}
            Step::Bind(claim, volume) => {
                let chosen = !volume.is_for(&claim);
                edit::<Volume>(&self.rest, &volume.metadata, None, |volume| give(volume, &claim, chosen))
                    .await?;
            }
            Step::Provision(claim) => {
                let select =
                    |claim: &mut Value| claim["metadata"]["annotations"][SELECTED_NODE] = json!(node);
                edit::<Claim>(&self.rest, &claim.metadata, None, select).await?;
            }
        }
        Ok(())
    }

    async fn bind(&self, pod: &Arc<Pod>, node: &Arc<str>) -> Result<(), Error> {
        let meta = &pod.metadata;
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": { "namespace": &*meta.namespace, "name": &*meta.name, "uid": &*meta.uid },
            "target": { "kind": "Node", "name": &**node },
        });
        // The node may have begun by the time the answer is here.
        let before = (self.clock)();
        self.rest.post(Pod::resource(), &meta.key(), "binding", &binding).await?;
        let told = format!("Successfully assigned {}/{} to {node}", meta.namespace, meta.name);
        self.recorder.record_at(&**pod, Severity::Normal, "Scheduled", told, Some(before));
        Ok(())
    }

    /// Says why the pod has to wait, unless it is said already.
    async fn tell(&self, pod: &Arc<Pod>, why: &str) -> Result<(), Error> {
        let before = pod.status.unscheduled.as_deref();
        if before.is_some_and(|(message, _)| message == why) {
            return Ok(());
        }
        self.recorder.record(&**pod, Severity::Warning, "FailedScheduling", why.to_owned());
        let since = before.and_then(|(_, since)| *since).unwrap_or_else(|| (self.clock)());
        let since = Timestamp::from_second(since.as_second()).unwrap_or(since);
        let mut condition = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": why,
            "lastProbeTime": null,
            "lastTransitionTime": since,
        });
        if pod.metadata.generation > 0 {
            condition["observedGeneration"] = pod.metadata.generation.into();
        }
        let patch =
            json!({ "metadata": { "uid": &*pod.metadata.uid }, "status": { "conditions": [condition] } });
        match self.rest.patch_status(Pod::resource(), &pod.metadata.key(), FIELD_MANAGER, &patch).await {
            // Gone, or another of its name.
            Err(error) if error.not_found() || error.conflict() => Ok(()),
            other => other.map(drop),
        }
    }
}

/// Whether the pod takes something of a node.
fn on_node(pod: &Pod) -> bool {
    !pod.spec.node_name.is_empty() && !pod.finished()
}

/// Whether a pod is another than before, for the scheduler.
fn changed(before: &Pod, after: &Pod) -> bool {
    before.metadata.uid != after.metadata.uid
        || before.metadata.labels != after.metadata.labels
        || before.spec.requests != after.spec.requests
        || before.spec.for_scheduler != after.spec.for_scheduler
        || before.spec.placement != after.spec.placement
}

/// Whether a pod may wait for others to come.
fn selective(pod: &Pod) -> bool {
    let placement = placement(pod);
    !placement.affinity.pod_affinity.required.is_empty() || !placement.topology_spread_constraints.is_empty()
}

/// Has waiting pods looked at again.
fn wake(pods: &Cache<Pod>, keys: &Queue<Key>, filter: impl Fn(&Pod) -> bool) {
    for pod in pods.all(|pod| pod.waits_for_node() && filter(pod)) {
        keys.add(pod.metadata.key());
    }
}
