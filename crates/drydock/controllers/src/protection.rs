//! Claims and volumes that were deleted go when nothing uses them any more.
//!
//! The API server holds each by a finalizer from the start; this takes it off.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::machinery::awaited::LOOK_AGAIN;
use crate::machinery::cache::{Cache, Kind};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::rest::{Error, Rest, json_bytes};
use crate::objects::meta::Meta;
use crate::objects::pod::Pod;
use crate::objects::resource::{Key, Resource};
use crate::objects::storage::{Claim, Volume};

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";

/// Whether the finalizer is to be taken off.
fn may_go(meta: &Meta, finalizer: &str, used: impl FnOnce() -> bool) -> bool {
    meta.deleting() && meta.has_finalizer(finalizer) && !used()
}

/// Whether a pod has a claim. One that no node was given has not: no node would start it with a claim that goes.
fn uses(pod: &Pod, claim: &str) -> bool {
    !pod.spec.node_name.is_empty() && pod.claims().iter().any(|(own, _)| own == claim)
}

/// Takes a finalizer off, by update: that is what the roles allow.
async fn release(rest: &Rest, resource: &Resource, key: &Key, finalizer: &str) -> Result<(), Error> {
    let mut object: Value = match rest.get(resource, key, None).await {
        Err(error) if error.not_found() => return Ok(()),
        other => other?,
    };
    let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() else { return Ok(()) };
    finalizers.retain(|own| *own != json!(finalizer));
    match rest.replace(resource, key, None, json_bytes(&object)?).await {
        Err(error) if error.not_found() => Ok(()),
        other => other.map(drop),
    }
}

/// The controller of claims.
pub struct Claims {
    rest: Rest,
    claims: Arc<Cache<Claim>>,
    pods: Arc<Cache<Pod>>,
}

impl Claims {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        claims: &mut Informer<Claim>,
        pods: &mut Informer<Pod>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        let keys = queue.clone();
        claims.on_change(move |change| {
            if let Some(claim) = change.after.filter(|claim| claim.metadata.deleting()) {
                keys.add(claim.metadata.key());
            }
        });
        let (keys, known) = (queue.clone(), claims.cache.clone());
        pods.on_change(move |change| {
            let Some(pod) = change.before.filter(|_| change.after.is_none()) else { return };
            for (claim, _) in pod.claims() {
                let key = Key::new(pod.metadata.namespace.clone(), claim);
                if known.get(&key).is_some_and(|claim| claim.metadata.deleting()) {
                    keys.add(key);
                }
            }
        });
        Self { rest, claims: claims.cache.clone(), pods: pods.cache.clone() }
    }

    /// Lets one claim go, if it may.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(claim) = self.claims.get(key) else { return Ok(Next::OnChange) };
        let used = || !self.pods.in_namespace(&key.namespace, |pod| uses(pod, &key.name)).is_empty();
        if !may_go(&claim.metadata, CLAIM, used) {
            return Ok(Next::OnChange);
        }
        // A pod may be newer than what is known, and what it has would be removed under it.
        let pods: Vec<Pod> = self.rest.list(Pod::resource(), &key.namespace).await?;
        if pods.iter().any(|pod| uses(pod, &key.name)) {
            return Ok(Next::After(LOOK_AGAIN));
        }
        release(&self.rest, Claim::resource(), key, CLAIM).await?;
        Ok(Next::OnChange)
    }
}

/// The controller of volumes.
pub struct Volumes {
    rest: Rest,
    volumes: Arc<Cache<Volume>>,
}

impl Volumes {
    /// The controller, listening to this informer.
    pub fn new(rest: Rest, volumes: &mut Informer<Volume>, queue: &Arc<Queue<Key>>) -> Self {
        let keys = queue.clone();
        volumes.on_change(move |change| {
            if let Some(volume) = change.after.filter(|volume| volume.metadata.deleting()) {
                keys.add(volume.metadata.key());
            }
        });
        Self { rest, volumes: volumes.cache.clone() }
    }

    /// Lets one volume go, if it may.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(volume) = self.volumes.get(key) else { return Ok(Next::OnChange) };
        if may_go(&volume.metadata, VOLUME, || &*volume.status.phase == "Bound") {
            release(&self.rest, Volume::resource(), key, VOLUME).await?;
        }
        Ok(Next::OnChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_used_by_pods_that_have_a_node() {
        let pod = |node: &str| -> Pod {
            let volumes = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }, { "name": "w", "emptyDir": {} }]);
            serde_json::from_value(json!({ "spec": { "nodeName": node, "volumes": volumes } })).unwrap()
        };
        assert!(uses(&pod("n"), "data"));
        assert!(!uses(&pod("n"), "other"));
        assert!(!uses(&pod(""), "data"));
    }

    #[test]
    fn only_what_is_deleted_and_unused_may_go() {
        let meta = |text: &str| serde_json::from_str::<Meta>(text).unwrap();
        let held =
            r#"{"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["kubernetes.io/pvc-protection"]}"#;
        assert!(may_go(&meta(held), CLAIM, || false));
        assert!(!may_go(&meta(held), CLAIM, || true));
        assert!(!may_go(&meta(held), VOLUME, || false));
        assert!(!may_go(&meta(r#"{"finalizers":["kubernetes.io/pvc-protection"]}"#), CLAIM, || false));
    }
}
