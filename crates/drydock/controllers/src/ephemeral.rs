//! Makes the claims that pods have for themselves alone: one for each volume that says what to claim, owned by the
//! pod, so that it goes with it.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::machinery::cache::{Cache, Kind};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::recorder::{Recorder, Severity};
use crate::machinery::rest::{Error, Rest, json_bytes};
use crate::objects::meta::OwnerReference;
use crate::objects::pod::Pod;
use crate::objects::resource::Key;
use crate::objects::storage::Claim;

/// The controller. Its keys are pods.
pub struct Controller {
    rest: Rest,
    recorder: Recorder,
    pods: Arc<Cache<Pod>>,
    claims: Arc<Cache<Claim>>,
}

impl Controller {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        recorder: Recorder,
        pods: &mut Informer<Pod>,
        claims: &mut Informer<Claim>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        let keys = queue.clone();
        pods.on_change(move |change| {
            if let Some(pod) =
                change.after.filter(|pod| !pod.spec.ephemeral.is_empty() && !pod.metadata.deleting())
            {
                keys.add(pod.metadata.key());
            }
        });
        // A claim that has gone may be what a pod still needs.
        let keys = queue.clone();
        claims.on_change(move |change| {
            let gone = change.before.filter(|_| change.after.is_none());
            let owner = gone.and_then(|claim| Some((claim, claim.metadata.controller()?)));
            if let Some((claim, owner)) = owner.filter(|(_, owner)| &*owner.kind == "Pod") {
                keys.add(Key::new(claim.metadata.namespace.clone(), &*owner.name));
            }
        });
        Self { rest, recorder, pods: pods.cache.clone(), claims: claims.cache.clone() }
    }

    /// Makes the claims of one pod that are not there.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(pod) = self.pods.get(key).filter(|pod| !pod.metadata.deleting()) else {
            return Ok(Next::OnChange);
        };
        for volume in &pod.spec.ephemeral {
            if let Err(error) = self.provide(&pod, volume).await {
                // What is in the way was not seen yet: it is looked at, and told, next time.
                if !error.conflict() {
                    let message = format!("ephemeral volume {volume}: {error}");
                    self.recorder.record(&*pod, Severity::Warning, "FailedBinding", message);
                }
                return Err(error);
            }
        }
        Ok(Next::OnChange)
    }

    /// Makes the claim of one volume, if it is not there.
    async fn provide(&self, pod: &Pod, volume: &str) -> Result<(), Error> {
        let name = format!("{}-{volume}", pod.metadata.name);
        let namespace = &pod.metadata.namespace;
        if let Some(there) = self.claims.get(&Key::new(namespace.clone(), &*name)) {
            if there.metadata.controller().is_some_and(|owner| owner.uid == pod.metadata.uid) {
                return Ok(());
            }
            let pod = &pod.metadata.name;
            return Err(Error::Undecided(format!(
                "PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"
            )));
        }
        let whole: Value = match self.rest.get(Pod::resource(), &pod.metadata.key(), None).await {
            Err(error) if error.not_found() => return Ok(()),
            other => other?,
        };
        let Some(claim) = claim(pod, &whole, volume) else { return Ok(()) };
        match self.rest.create(Claim::resource(), namespace, json_bytes(&claim)?).await {
            Err(error) if error.conflict() => Err(error),
            Err(error) => Err(Error::Undecided(format!("create PVC {name}: {error}"))),
            Ok(_) => Ok(()),
        }
    }
}

/// The claim that a volume of a pod says. Pure.
fn claim(pod: &Pod, whole: &Value, volume: &str) -> Option<Value> {
    let volumes = whole["spec"]["volumes"].as_array()?;
    let template = &volumes.iter().find(|one| one["name"] == volume)?["ephemeral"]["volumeClaimTemplate"];
    let owner = OwnerReference::to_controller(Pod::resource(), &pod.metadata);
    Some(json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": format!("{}-{volume}", pod.metadata.name),
            "labels": template["metadata"]["labels"],
            "annotations": template["metadata"]["annotations"],
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_the_pods_own_and_as_its_template_says() {
        let whole = json!({
            "metadata": { "name": "p", "namespace": "n", "uid": "u" },
            "spec": { "volumes": [
                { "name": "a", "emptyDir": {} },
                { "name": "b", "ephemeral": { "volumeClaimTemplate": { "metadata": { "labels": { "x": "1" } }, "spec": { "accessModes": ["ReadWriteOnce"] } } } },
            ] },
        });
        let pod: Pod = serde_json::from_value(whole.clone()).unwrap();
        assert_eq!(pod.claims(), [("p-b".to_owned(), true)]);
        let claim = claim(&pod, &whole, "b").unwrap();
        assert_eq!(
            (&claim["metadata"]["name"], &claim["metadata"]["labels"]),
            (&json!("p-b"), &json!({ "x": "1" }))
        );
        assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], "u");
        assert_eq!(claim["spec"], json!({ "accessModes": ["ReadWriteOnce"] }));
    }
}
