//! What a pod's claims say about where it can go, and what must be done for them before it does. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cluster::{Cluster, Place};
use super::decide::Rejection;
use crate::objects::meta::Meta;
use crate::objects::pod::Pod;
use crate::objects::resource::Key;
use crate::objects::storage::{Claim, Class, Volume};
use crate::volumes::find::{For, find};
use crate::volumes::{BIND_COMPLETED, SELECTED_NODE};

/// Who makes no volumes: the class is of volumes that are made by hand.
const NOBODY: &str = "kubernetes.io/no-provisioner";

const IN_USE: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
const ELSEWHERE: &str = "node(s) didn't match PersistentVolume's node affinity";
const NONE_FREE: &str = "node(s) didn't find available persistent volumes to bind";
const NO_VOLUME: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// The claims, volumes and classes there are.
#[derive(Debug, Default)]
pub struct Storage {
    /// The claims.
    pub claims: BTreeMap<Key, Arc<Claim>>,
    /// The volumes.
    pub volumes: Vec<Arc<Volume>>,
    /// The classes, by name.
    pub classes: BTreeMap<Arc<str>, Arc<Class>>,
}

/// What is to be done for a claim before its pod goes to a node.
#[derive(Clone, Debug)]
pub enum Step {
    /// It gets this volume.
    Bind(Arc<Claim>, Arc<Volume>),
    /// A volume is to be made for it there.
    Provision(Arc<Claim>),
    /// Both are on their way.
    Wait,
}

/// The claims of a pod.
#[derive(Debug)]
pub struct Claims<'a> {
    storage: &'a Storage,
    /// With the volume that each has.
    bound: Vec<Option<&'a Arc<Volume>>>,
    /// Those that get theirs when it is known where the pod goes.
    open: Vec<&'a Arc<Claim>>,
    /// One is for one pod alone, and another has it.
    in_use: bool,
    /// One has its volume, and does not say so yet: a node would not take it.
    settling: bool,
}

impl<'a> Claims<'a> {
    /// Those of a pod.
    ///
    /// # Errors
    /// What keeps it from every node.
    pub fn of(pod: &Pod, cluster: &'a Cluster) -> Result<Self, String> {
        let storage = &cluster.storage;
        let mut claims =
            Self { storage, bound: Vec::new(), open: Vec::new(), in_use: false, settling: false };
        let mut immediate = false;
        for (name, ephemeral) in pod.claims() {
            let key = Key::new(pod.metadata.namespace.clone(), &*name);
            let Some(claim) = storage.claims.get(&key) else {
                return Err(match ephemeral {
                    true => format!(
                        "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                    ),
                    false => format!("persistentvolumeclaim {name:?} not found"),
                });
            };
            let volume = &claim.spec.volume_name;
            if &*claim.status.phase == "Lost" {
                return Err(format!(
                    "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
                ));
            }
            if claim.metadata.deleting() {
                return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
            }
            if ephemeral && claim.metadata.controller().is_none_or(|owner| owner.uid != pod.metadata.uid) {
                let (namespace, pod) = (&pod.metadata.namespace, &pod.metadata.name);
                return Err(format!(
                    "PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"
                ));
            }
            claims.in_use |= claim.for_one_pod() && cluster.pods().any(|(other, _)| has(other, &key));
            if !volume.is_empty() && claim.metadata.annotations.get(BIND_COMPLETED).is_some() {
                claims.bound.push(storage.volumes.iter().find(|known| *known.metadata.name == **volume));
                claims.settling |= &*claim.status.phase != "Bound";
            } else if volume.is_empty()
                && storage.classes.get(claim.class()).is_some_and(|class| class.waits())
            {
                claims.open.push(claim);
            } else {
                immediate = true;
            }
        }
        match immediate {
            true => Err("pod has unbound immediate PersistentVolumeClaims".to_owned()),
            false => Ok(claims),
        }
    }

    /// Whether the pod can have them there.
    pub fn check(&self, place: &Place) -> Result<(), Rejection> {
        if self.in_use {
            return Err(Rejection::for_now(IN_USE));
        }
        self.steps(&place.node.metadata).map(drop).map_err(Rejection::hopeless)
    }

    /// What is to be done for them before it can.
    pub fn steps(&self, node: &Meta) -> Result<Vec<Step>, &'static str> {
        for volume in &self.bound {
            match volume {
                None => return Err(NO_VOLUME),
                Some(volume) if !volume.reached_from(node) => return Err(ELSEWHERE),
                Some(_) => {}
            }
        }
        let mut taken: Vec<&Arc<Volume>> = Vec::new();
        let mut steps = if self.settling { vec![Step::Wait] } else { Vec::new() };
        for claim in &self.open {
            if let Some(selected) = claim.metadata.annotations.get(SELECTED_NODE) {
                if *selected != *node.name {
                    return Err(NONE_FREE);
                }
                steps.push(Step::Wait);
                continue;
            }
            let free = self
                .storage
                .volumes
                .iter()
                .filter(|volume| !taken.iter().any(|one| Arc::ptr_eq(one, volume)));
            if let Some(volume) = find(claim, free, For::Node(node)) {
                taken.push(volume);
                let given = volume.spec.claim_ref.as_ref().is_some_and(|of| of.uid == claim.metadata.uid);
                steps.push(if given { Step::Wait } else { Step::Bind((*claim).clone(), volume.clone()) });
                continue;
            }
            let class = self.storage.classes.get(claim.class());
            if class.is_none_or(|class| class.provisioner.is_empty() || &*class.provisioner == NOBODY) {
                return Err(NONE_FREE);
            }
            steps.push(Step::Provision((*claim).clone()));
        }
        Ok(steps)
    }
}

fn has(pod: &Pod, claim: &Key) -> bool {
    pod.metadata.namespace == claim.namespace && pod.claims().iter().any(|(name, _)| **name == *claim.name)
}
