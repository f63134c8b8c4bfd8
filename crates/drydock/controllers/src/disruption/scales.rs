//! How many pods those want that control them: Deployments and ReplicaSets as they are known, anything else by its
//! scale.

use std::sync::Arc;

use super::decide::{Known, Scale, Unscaled};
use crate::garbage::inventory::{Inventory, Offered};
use crate::machinery::cache::Cache;
use crate::machinery::rest::{Error, Rest};
use crate::objects::meta::{Meta, OwnerReference};
use crate::objects::pod::Pod;
use crate::objects::resource::Key;
use crate::objects::workload::{Deployment, ReplicaSet};

/// Where sizes are found.
pub struct Scales {
    rest: Rest,
    sets: Arc<Cache<ReplicaSet>>,
    deployments: Arc<Cache<Deployment>>,
    inventory: Arc<Inventory>,
}

/// A `Scale`.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Answer {
    metadata: Meta,
    spec: Spec,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Spec {
    replicas: i32,
}

impl Scales {
    /// Sizes from these caches, and of the kinds in this inventory.
    pub fn new(
        rest: Rest,
        sets: Arc<Cache<ReplicaSet>>,
        deployments: Arc<Cache<Deployment>>,
        inventory: Arc<Inventory>,
    ) -> Self {
        Self { rest, sets, deployments, inventory }
    }

    /// The size of what controls each pod, up to the first that is not known: without it nothing can be decided.
    pub async fn of(&self, pods: &[Arc<Pod>]) -> Result<Known, Error> {
        let mut known = Known::new();
        for pod in pods {
            let Some(owner) = pod.metadata.controller() else { continue };
            if known.contains_key(&owner.uid) {
                continue;
            }
            let namespace = &pod.metadata.namespace;
            let scale = match (owner.group(), &*owner.kind) {
                ("apps", "ReplicaSet") => self.of_set(namespace, owner).ok_or(Unscaled::Gone),
                _ => self.of_any(namespace, owner).await?,
            };
            let found = scale.is_ok();
            known.insert(owner.uid.clone(), scale);
            if !found {
                break;
            }
        }
        Ok(known)
    }

    fn of_set(&self, namespace: &Arc<str>, owner: &OwnerReference) -> Option<Scale> {
        let set = self.sets.get(&Key::new(namespace.clone(), &*owner.name))?;
        if set.metadata.uid != owner.uid {
            return None;
        }
        let deployment = set.metadata.controller().and_then(|above| {
            let found = self.deployments.get(&Key::new(namespace.clone(), &*above.name))?;
            (found.metadata.uid == above.uid).then_some(found)
        });
        Some(match deployment {
            Some(found) => Scale { uid: found.metadata.uid.clone(), replicas: found.spec.replicas },
            None => Scale { uid: set.metadata.uid.clone(), replicas: set.spec.replicas },
        })
    }

    async fn of_any(
        &self,
        namespace: &Arc<str>,
        owner: &OwnerReference,
    ) -> Result<Result<Scale, Unscaled>, Error> {
        let Some(Offered { resource, scales, .. }) = self.kind_of(owner).await? else {
            return Ok(Err(Unscaled::unserved(owner)));
        };
        if !scales {
            return Ok(Err(Unscaled::Sizeless(resource.to_string())));
        }
        let key = Key::new(namespace.clone(), &*owner.name);
        match self.rest.get::<Answer>(&resource, &key, Some("scale")).await {
            Ok(answer) if answer.metadata.uid == owner.uid => {
                Ok(Ok(Scale { uid: owner.uid.clone(), replicas: answer.spec.replicas }))
            }
            Ok(_) => Ok(Err(Unscaled::Gone)),
            Err(error) if error.not_found() => Ok(Err(Unscaled::Gone)),
            Err(error) => Err(error),
        }
    }

    /// The kind of an owner, if it is served. One that is not known may have just come: the kinds are read anew
    /// before that is said.
    async fn kind_of(&self, owner: &OwnerReference) -> Result<Option<Offered>, Error> {
        let find = || self.inventory.find(owner.group(), owner.version(), &owner.kind);
        if let Some(found) = find() {
            return Ok(Some(found));
        }
        self.inventory.refresh(self.rest.client()).await?;
        Ok(find())
    }
}
