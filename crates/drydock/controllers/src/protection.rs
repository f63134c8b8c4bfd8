//! Claims and volumes that were deleted go when nothing uses them any more.
//!
//! The API server holds each by a finalizer from the start; this takes it off.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::machinery::awaited::LOOK_AGAIN;
use crate::machinery::cache::{Cache, Change, Kind};
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

/// Whether a pod has a claim. One that no node was given has not: no node would start it with a claim that goes. Nor has
/// one that its node is done with what was made for it alone: it may be kept until that is gone.
fn uses(pod: &Pod, claim: &Claim) -> bool {
    let own = || !pod.shut_down() && claim.metadata.controller().is_some_and(|it| it.uid == pod.metadata.uid);
    let is_this = |(name, alone): (String, bool)| *name == *claim.metadata.name && (!alone || own());
    !pod.spec.node_name.is_empty() && pod.claims().into_iter().any(is_this)
}

/// Whether a pod has left a claim that is to go.
fn lets_go(change: &Change<'_, Pod>, claim: &Claim) -> bool {
    let uses = |pod: &Arc<Pod>| uses(pod, claim);
    claim.metadata.deleting() && change.before.is_some_and(uses) && !change.after.is_some_and(uses)
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
            let Some(pod) = change.before else { return };
            for (claim, _) in pod.claims() {
                let key = Key::new(pod.metadata.namespace.clone(), claim);
                if known.get(&key).is_some_and(|claim| lets_go(change, &claim)) {
                    keys.add(key);
                }
            }
        });
        Self { rest, claims: claims.cache.clone(), pods: pods.cache.clone() }
    }

    /// Lets one claim go, if it may.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(claim) = self.claims.get(key) else { return Ok(Next::OnChange) };
        let used = || !self.pods.in_namespace(&key.namespace, |pod| uses(pod, &claim)).is_empty();
        if !may_go(&claim.metadata, CLAIM, used) {
            return Ok(Next::OnChange);
        }
        // A pod may be newer than what is known, and what it has would be removed under it.
        let pods: Vec<Pod> = self.rest.list(Pod::resource(), &key.namespace).await?;
        if pods.iter().any(|pod| uses(pod, &claim)) {
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
        let claim = |name: &str| {
            serde_json::from_value(json!({ "metadata": { "name": name, "namespace": "s" } })).unwrap()
        };
        assert!(uses(&pod("n"), &claim("data")));
        assert!(!uses(&pod("n"), &claim("other")));
        assert!(!uses(&pod(""), &claim("data")));
    }

    /// A pod with a claim of its own, and how long it has to end if it is deleted.
    fn with_its_own(uid: &str, grace: Option<i64>) -> Value {
        let deleted = grace.map(|_| "2026-01-01T00:00:00Z");
        json!({
            "metadata": {
                "name": "p", "namespace": "s", "uid": uid,
                "deletionTimestamp": deleted, "deletionGracePeriodSeconds": grace,
            },
            "spec": { "nodeName": "n", "volumes": [{ "name": "v", "ephemeral": {} }] },
        })
    }

    /// The claim of such a pod, which goes.
    fn of_its_own(uid: &str) -> Value {
        let owner = json!([{ "kind": "Pod", "name": "p", "uid": uid, "controller": true }]);
        let deleted = "2026-01-01T00:00:00Z";
        json!({ "metadata": { "name": "p-v", "namespace": "s", "deletionTimestamp": deleted, "ownerReferences": owner } })
    }

    #[test]
    fn a_claim_of_its_own_is_used_until_the_node_is_done_with_the_pod() {
        let claim: Claim = serde_json::from_value(of_its_own("1")).unwrap();
        let uses = |uid, grace| uses(&serde_json::from_value(with_its_own(uid, grace)).unwrap(), &claim);
        assert!(uses("1", None));
        assert!(uses("1", Some(30)));
        assert!(!uses("1", Some(0)));
        // Another one of its name waits until it is gone.
        assert!(!uses("2", None));
    }

    #[test]
    fn a_claim_that_goes_is_looked_at_when_a_pod_has_it_no_more() {
        let claim: Claim = serde_json::from_value(of_its_own("1")).unwrap();
        let pod = |grace| Arc::new(serde_json::from_value(with_its_own("1", grace)).unwrap());
        let (here, ending, ended) = (pod(None), pod(Some(30)), pod(Some(0)));
        let looked_at = |before, after| lets_go(&Change { before, after }, &claim);
        assert!(!looked_at(None, Some(&here)));
        assert!(!looked_at(Some(&here), Some(&ending)));
        assert!(looked_at(Some(&ending), Some(&ended)));
        assert!(looked_at(Some(&here), None));
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
