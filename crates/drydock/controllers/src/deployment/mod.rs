//! Deployments: one ReplicaSet per template, and pods that move from one to the next within bounds.
//!
//! [`plan`] decides; this file gathers what it needs, carries its plan out and tells.

mod bounds;
mod plan;
mod revision;
mod status;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::Clock;
use crate::claim::claim;
use crate::machinery::awaited::{Awaited, LOOK_AGAIN};
use crate::machinery::cache::{Cache, Kind, Progress};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::recorder::{Recorder, Severity};
use crate::machinery::rest::{Error, PatchType, Rest, json_bytes};
use crate::objects::meta::{OwnerReference, Pairs};
use crate::objects::pod::Pod;
use crate::objects::resource::Key;
use crate::objects::template::HASH_LABEL;
use crate::objects::workload::{Deployment, DeploymentStatus, ReplicaSet};
use crate::own;
use crate::replica_set::whole_seconds;
use plan::{Action, Plan, View, plan};
use status::{PROGRESSING, has_deadline, new_condition, set_condition};

/// The controller.
pub struct Controller {
    rest: Rest,
    recorder: Recorder,
    clock: Clock,
    deployments: Arc<Cache<Deployment>>,
    sets: Arc<Cache<ReplicaSet>>,
    pods: Arc<Cache<Pod>>,
    awaited: Awaited<Key>,
}

impl Controller {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        recorder: Recorder,
        clock: Clock,
        (deployments, sets, pods): (&mut Informer<Deployment>, &mut Informer<ReplicaSet>, &mut Informer<Pod>),
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        own::follow(deployments, sets, queue);
        // The last old pod that goes lets a Deployment that recreates go on.
        let (keys, known, owners) = (queue.clone(), deployments.cache.clone(), sets.cache.clone());
        pods.on_change(move |change| {
            if let (Some(pod), None) = (change.before, change.after)
                && let Some(owner) = pod.metadata.controller()
                && let Some(set) = owners.get(&Key::new(pod.metadata.namespace.clone(), &*owner.name))
                && let Some(owner) = set.metadata.controller()
            {
                let key = Key::new(pod.metadata.namespace.clone(), &*owner.name);
                if known.get(&key).is_some_and(|deployment| !bounds::rolling(&deployment)) {
                    keys.add(key);
                }
            }
        });
        Self {
            rest,
            recorder,
            clock,
            deployments: deployments.cache.clone(),
            sets: sets.cache.clone(),
            pods: pods.cache.clone(),
            awaited: Awaited::default(),
        }
    }

    /// Brings one Deployment nearer to what was asked for.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        if self.awaited.holds(key) {
            return Ok(Next::After(LOOK_AGAIN));
        }
        let Some(deployment) = self.deployments.get(key) else {
            self.awaited.forget(key);
            return Ok(Next::OnChange);
        };
        if deployment.spec.selector.is_empty() {
            return Ok(Next::OnChange);
        }
        let sets = self.gather(key, &deployment).await?;
        let old_pods_running = !bounds::rolling(&deployment) && self.old_pods_running(&deployment, &sets);
        let now = (self.clock)();
        let plan = plan(View {
            deployment: &deployment,
            sets: sets.iter().map(|set| &**set).collect(),
            old_pods_running,
            now,
        });
        let Plan { actions, status, revision, look_again } = plan;
        for action in actions {
            match action {
                Action::Create { name, hash, replicas, annotations } => {
                    if !self.create(key, &deployment, &name, &hash, replicas, &annotations).await? {
                        return Ok(Next::OnChange);
                    }
                }
                Action::Edit { set, replicas, annotations, min_ready_seconds } => {
                    self.edit(key, &deployment, set, replicas, annotations, min_ready_seconds).await?;
                }
                Action::Delete(set) => self.delete(set).await?,
            }
        }
        if revision.is_some() || status != deployment.status {
            self.write_status(key, &deployment, revision.as_deref(), &status).await?;
        }
        Ok(look_again.map_or(Next::OnChange, Next::After))
    }

    /// The sets of the Deployment, after taking and letting go.
    async fn gather(&self, key: &Key, deployment: &Deployment) -> Result<Vec<Arc<ReplicaSet>>, Error> {
        let candidates = self.sets.controlled_by(&deployment.metadata.uid).into_iter();
        let orphans = self.sets.orphans(&deployment.metadata.namespace);
        let claimed = claim(&deployment.metadata, &deployment.spec.selector, candidates.chain(orphans));
        let written = |version| self.note_set(key, version);
        Ok(own::carry_out(&self.rest, deployment, claimed, None, written).await?.all())
    }

    /// Whether pods of other templates are still there.
    fn old_pods_running(&self, deployment: &Deployment, sets: &[Arc<ReplicaSet>]) -> bool {
        let old = sets.iter().filter(|set| set.spec.template != deployment.spec.template);
        old.flat_map(|set| self.pods.controlled_by(&set.metadata.uid)).any(|pod| !pod.finished())
    }

    /// Creates the set of the current template. Says whether the plan can go on.
    async fn create(
        &self,
        key: &Key,
        deployment: &Deployment,
        name: &str,
        hash: &str,
        replicas: i32,
        annotations: &Pairs,
    ) -> Result<bool, Error> {
        let body = set_body(deployment, name, hash, replicas, annotations);
        match self.rest.create(ReplicaSet::resource(), &key.namespace, json_bytes(&body)?).await {
            Ok(written) => {
                self.note_set(key, written.version());
                if replicas > 0 {
                    self.told_scaled(deployment, name, 0, replicas);
                }
                Ok(true)
            }
            Err(error) if error.already_exists() => self.collide(key, deployment, name).await,
            Err(error) if error.namespace_terminating() => Ok(false),
            Err(error) => {
                let message = format!("Failed to create new replica set \"{name}\": {error}");
                self.recorder.record(deployment, Severity::Warning, "ReplicaSetCreateError", message.clone());
                if has_deadline(deployment) {
                    let now = whole_seconds((self.clock)());
                    let mut status = deployment.status.clone();
                    let failure = new_condition(PROGRESSING, "False", "ReplicaSetCreateError", message, now);
                    set_condition(&mut status.conditions, failure);
                    if status != deployment.status {
                        self.write_status(key, deployment, None, &status).await?;
                    }
                }
                Err(error)
            }
        }
    }

    /// The name is taken: by the set the cache does not know yet, or by another template with the same hash.
    async fn collide(&self, key: &Key, deployment: &Deployment, name: &str) -> Result<bool, Error> {
        let at = Key::new(key.namespace.clone(), name);
        let taken: ReplicaSet = self.rest.get(ReplicaSet::resource(), &at, None).await?;
        let own = taken.metadata.controller().is_some_and(|owner| owner.uid == deployment.metadata.uid);
        if own && taken.spec.template == deployment.spec.template {
            self.note_set(key, taken.metadata.version());
            return Ok(true);
        }
        let mut status = deployment.status.clone();
        status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
        self.write_status(key, deployment, None, &status).await?;
        Ok(false)
    }

    async fn edit(
        &self,
        key: &Key,
        deployment: &Deployment,
        set: &ReplicaSet,
        replicas: Option<i32>,
        annotations: Option<Pairs>,
        min_ready_seconds: Option<i32>,
    ) -> Result<(), Error> {
        let mut patch = json!({ "metadata": { "resourceVersion": set.metadata.resource_version } });
        if let Some(annotations) = annotations {
            patch["metadata"]["annotations"] = serde_json::to_value(annotations).map_err(Error::Body)?;
        }
        if let Some(replicas) = replicas {
            patch["spec"]["replicas"] = replicas.into();
        }
        if let Some(seconds) = min_ready_seconds {
            patch["spec"]["minReadySeconds"] = seconds.into();
        }
        let written =
            self.rest.patch(ReplicaSet::resource(), &set.metadata.key(), PatchType::Merge, &patch).await?;
        self.note_set(key, written.version());
        if let Some(replicas) = replicas {
            self.told_scaled(deployment, &set.metadata.name, set.spec.replicas, replicas);
        }
        Ok(())
    }

    async fn delete(&self, set: &ReplicaSet) -> Result<(), Error> {
        let (key, uid) = (set.metadata.key(), &set.metadata.uid);
        match self.rest.delete(ReplicaSet::resource(), &key, uid, None, None).await {
            Err(error) if !error.not_found() && !error.conflict() => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes the status, and with it the revision: the server takes annotations with the status.
    async fn write_status(
        &self,
        key: &Key,
        deployment: &Deployment,
        revision: Option<&str>,
        status: &DeploymentStatus,
    ) -> Result<(), Error> {
        let mut metadata = deployment.metadata.clone();
        if let Some(revision) = revision {
            metadata.annotations.set(revision::REVISION, revision);
        }
        let written = self.rest.replace_status(Deployment::resource(), &metadata, status).await?;
        let deployments: Arc<dyn Progress> = self.deployments.clone();
        self.awaited.note(key, &deployments, written.version());
        Ok(())
    }

    fn told_scaled(&self, deployment: &Deployment, set: &str, from: i32, to: i32) {
        let way = if from < to { "up" } else { "down" };
        let message = format!("Scaled {way} replica set {set} from {from} to {to}");
        self.recorder.record(deployment, Severity::Normal, "ScalingReplicaSet", message);
    }

    fn note_set(&self, key: &Key, version: u64) {
        let sets: Arc<dyn Progress> = self.sets.clone();
        self.awaited.note(key, &sets, version);
    }
}

/// The set of the current template.
fn set_body(deployment: &Deployment, name: &str, hash: &str, replicas: i32, annotations: &Pairs) -> Value {
    let mut template = deployment.spec.template.value();
    template["metadata"]["labels"][HASH_LABEL] = hash.into();
    let mut selector = deployment.spec.selector.clone();
    selector.match_labels.set(HASH_LABEL, hash);
    json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": &*deployment.metadata.namespace,
            "labels": template["metadata"]["labels"],
            "annotations": annotations,
            "ownerReferences": [OwnerReference::to_controller(Deployment::resource(), &deployment.metadata)],
        },
        "spec": {
            "replicas": replicas,
            "minReadySeconds": deployment.spec.min_ready_seconds,
            "selector": selector,
            "template": template,
        },
    })
}
