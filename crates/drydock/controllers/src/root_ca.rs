//! The ConfigMap `kube-root-ca.crt` in every namespace: the certificate by which pods know the API server.

use std::sync::Arc;

use serde_json::json;

use crate::machinery::cache::{Cache, Kind};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::rest::{Error, Rest, json_bytes};
use crate::objects::meta::Meta;
use crate::objects::resource::Key;
use crate::objects::service::{ConfigMap, Namespace};

const NAME: &str = "kube-root-ca.crt";
const ENTRY: &str = "ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const DESCRIBED: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

/// What to do about the ConfigMap of a namespace.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is as it shall be, or the namespace is going.
    Leave,
    /// There is none.
    Create,
    /// It says something else.
    Replace,
}

/// Decides what to do about the ConfigMap of a namespace.
pub fn decide(namespace: &Namespace, held: Option<&ConfigMap>, ca: &str) -> Decision {
    if namespace.metadata.deleting() || &*namespace.status.phase == "Terminating" {
        return Decision::Leave;
    }
    match held {
        None => Decision::Create,
        Some(held)
            if held.data.ca.as_deref() == Some(ca)
                && held.metadata.annotations.get(DESCRIPTION).is_some_and(|text| !text.is_empty()) =>
        {
            Decision::Leave
        }
        Some(_) => Decision::Replace,
    }
}

/// The controller. Its keys are namespaces.
pub struct Controller {
    rest: Rest,
    ca: String,
    namespaces: Arc<Cache<Namespace>>,
    maps: Arc<Cache<ConfigMap>>,
}

impl Controller {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        ca: String,
        namespaces: &mut Informer<Namespace>,
        maps: &mut Informer<ConfigMap>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        let keys = queue.clone();
        namespaces.on_change(move |change| {
            if let Some(namespace) = change.after {
                keys.add(namespace.metadata.key());
            }
        });
        let keys = queue.clone();
        maps.on_change(move |change| {
            if let Some(map) = change.latest().filter(|map| &*map.metadata.name == NAME) {
                keys.add(Key::new("", map.metadata.namespace.clone()));
            }
        });
        Self { rest, ca, namespaces: namespaces.cache.clone(), maps: maps.cache.clone() }
    }

    /// Brings the ConfigMap of one namespace up to date.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let at = Key::new(key.name.clone(), NAME);
        let Some(namespace) = self.namespaces.get(key) else { return Ok(Next::OnChange) };
        let held = self.maps.get(&at);
        let outcome = match decide(&namespace, held.as_deref(), &self.ca) {
            Decision::Leave => return Ok(Next::OnChange),
            Decision::Create => {
                let metadata = Meta { name: NAME.into(), namespace: key.name.clone(), ..Meta::default() };
                self.rest.create(ConfigMap::resource(), &key.name, self.body(metadata)?).await
            }
            Decision::Replace => {
                let metadata = held.map(|held| held.metadata.clone()).unwrap_or_default();
                self.rest.replace(ConfigMap::resource(), &at, None, self.body(metadata)?).await
            }
        };
        match outcome {
            Err(error) if !error.already_exists() && !error.namespace_terminating() && !error.not_found() => {
                Err(error)
            }
            _ => Ok(Next::OnChange),
        }
    }

    fn body(&self, mut metadata: Meta) -> Result<Vec<u8>, Error> {
        metadata.annotations.set(DESCRIPTION, DESCRIBED);
        json_bytes(
            &json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { ENTRY: self.ca } }),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_is_made_when_missing_and_put_right_when_changed() {
        let mut namespace = Namespace::default();
        let map = |ca: &str, note: &str| -> ConfigMap {
            let text = format!(
                r#"{{"metadata":{{"annotations":{{"{DESCRIPTION}":"{note}"}}}},"data":{{"{ENTRY}":"{ca}","more":"kept out"}}}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        assert_eq!(decide(&namespace, None, "ca"), Decision::Create);
        assert_eq!(decide(&namespace, Some(&map("ca", "x")), "ca"), Decision::Leave);
        assert_eq!(decide(&namespace, Some(&map("ca", "")), "ca"), Decision::Replace);
        assert_eq!(decide(&namespace, Some(&map("old", "x")), "ca"), Decision::Replace);
        assert_eq!(decide(&namespace, Some(&ConfigMap::default()), "ca"), Decision::Replace);
        namespace.status.phase = "Terminating".into();
        assert_eq!(decide(&namespace, None, "ca"), Decision::Leave);
    }
}
