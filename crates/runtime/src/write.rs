//! Every request that changes something.
//!
//! **What always holds.** There is no other way to write: a write asks the fence first, so a process that does not
//! hold the lease at this moment writes nothing. Bodies are never logged: one of them may be a secret.

use ballast_operator::{KindRef, Object, Target};
use kube::{
    Client,
    api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
    core::Request,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{failure::Refusal, fence::Fence, key::Key, watch::url};

/// What is read of the server's answer to a write: the rest of the object comes by the watch.
#[derive(Debug, Deserialize)]
pub(crate) struct Written {
    pub(crate) metadata: WrittenMeta,
}

/// The metadata of an object that was written.
#[derive(Debug, Deserialize)]
pub(crate) struct WrittenMeta {
    #[serde(rename = "resourceVersion", default)]
    pub(crate) version: String,
}

/// What came of a removal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// It is gone.
    Gone,
    /// It goes once its finalizers let it; this is its revision now.
    Going(String),
}

/// Writes, where that is allowed, and reads what a write has to know.
#[derive(Clone)]
pub(crate) struct Writer {
    client: Client,
    fence: Fence,
    /// The name under which fields are owned.
    manager: &'static str,
}

impl Writer {
    pub(crate) fn new(client: Client, fence: Fence, manager: &'static str) -> Self {
        Writer { client, fence, manager }
    }

    /// Server-side apply, by force.
    pub(crate) async fn apply(&self, kind: &KindRef, key: &Key, object: &Object) -> Result<Written, Refusal> {
        let how = PatchParams::apply(self.manager).force();
        self.patch(kind, key, None, &how, &Patch::Apply(object.value())).await
    }

    /// Server-side apply of the status, by force, to the object with this uid and no other.
    pub(crate) async fn status(
        &self,
        kind: &KindRef,
        key: &Key,
        uid: &str,
        status: &Value,
    ) -> Result<Written, Refusal> {
        let mut metadata = json!({"name": *key.name, "uid": uid});
        if let Some(namespace) = &key.namespace {
            metadata["namespace"] = json!(**namespace);
        }
        let body = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata, "status": status
        });
        let how = PatchParams::apply(self.manager).force();
        self.patch(kind, key, Some("status"), &how, &Patch::Apply(&body)).await
    }

    /// A merge patch of something that is not ours alone. `body` says the resourceVersion it is about.
    pub(crate) async fn merge(&self, kind: &KindRef, key: &Key, body: &Value) -> Result<Written, Refusal> {
        let how = PatchParams { field_manager: Some(self.manager.to_owned()), ..PatchParams::default() };
        self.patch(kind, key, None, &how, &Patch::Merge(body)).await
    }

    async fn patch(
        &self,
        kind: &KindRef,
        key: &Key,
        subresource: Option<&str>,
        how: &PatchParams,
        patch: &Patch<impl Serialize>,
    ) -> Result<Written, Refusal> {
        let collection = Request::new(url(kind, key.namespace.as_deref()));
        let request = match subresource {
            Some(name) => collection.patch_subresource(name, &key.name, how, patch),
            None => collection.patch(&key.name, how, patch),
        };
        self.send(request.map_err(kube::Error::BuildRequest)?).await
    }

    /// Creates an object.
    pub(crate) async fn create(
        &self,
        kind: &KindRef,
        namespace: Option<&str>,
        object: &impl Serialize,
    ) -> Result<Written, Refusal> {
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let how = PostParams { field_manager: Some(self.manager.to_owned()), ..PostParams::default() };
        let request = Request::new(url(kind, namespace)).create(&how, body);
        self.send(request.map_err(kube::Error::BuildRequest)?).await
    }

    /// Deletes an object, if it still is what was seen. What is gone already is gone.
    pub(crate) async fn remove(&self, target: &Target) -> Result<Removed, Refusal> {
        let how = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(target.uid.clone()),
                resource_version: Some(target.resource_version.clone()),
            }),
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        let request = Request::new(url(&target.kind, target.namespace.as_deref())).delete(&target.name, &how);
        match self.send::<Value>(request.map_err(kube::Error::BuildRequest)?).await {
            Err(refusal) if refusal.is(404) => Ok(Removed::Gone),
            Err(refusal) => Err(refusal),
            // The answer is a `Status`, or the object where it stays for a while.
            Ok(answer) => Ok(match answer.pointer("/metadata/deletionTimestamp") {
                Some(_) => Removed::Going(
                    answer
                        .pointer("/metadata/resourceVersion")
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                        .into(),
                ),
                None => Removed::Gone,
            }),
        }
    }

    async fn send<T: DeserializeOwned>(&self, request: http::Request<Vec<u8>>) -> Result<T, Refusal> {
        self.fence.check()?;
        Ok(self.client.request(request).await?)
    }

    /// The object as the server has it now. Not a write: it needs no lease.
    pub(crate) async fn read(&self, kind: &KindRef, key: &Key) -> Result<Option<Object>, Refusal> {
        read(&self.client, kind, key).await
    }
}

/// The object as the server has it now.
pub(crate) async fn read(client: &Client, kind: &KindRef, key: &Key) -> Result<Option<Object>, Refusal> {
    let request = Request::new(url(kind, key.namespace.as_deref())).get(&key.name, &GetParams::default());
    match client.request::<Value>(request.map_err(kube::Error::BuildRequest)?).await.map_err(Refusal::from) {
        Err(refusal) if refusal.is(404) => Ok(None),
        Err(refusal) => Err(refusal),
        Ok(value) => Object::of_kind(kind, value)
            .map(Some)
            .map_err(|error| Refusal::new(ballast_operator::Class::Bug, error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use drydock::Drydock;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use tokio::time::Instant;

    use super::*;

    fn map(value: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}, "data": {"k": value}
        })
    }

    fn key() -> Key {
        Key { namespace: Some("default".into()), name: "a".into() }
    }

    #[tokio::test]
    async fn what_became_another_is_not_removed() {
        let drydock = Drydock::builder().controllers(false).start().await.unwrap();
        let (kind, writer) =
            (KindRef::of::<ConfigMap>(), Writer::new(drydock.client(), Fence::open(), "test"));
        let apply = async |value: &str| {
            let object = Object::of_kind(&kind, map(value)).unwrap();
            writer.apply(&kind, &key(), &object).await.unwrap();
            Target::of(&kind, &writer.read(&kind, &key()).await.unwrap().unwrap())
        };
        let seen = apply("one").await;
        let changed = apply("two").await;
        assert!(writer.remove(&seen).await.unwrap_err().is(409), "it is another revision");
        assert_eq!(writer.remove(&changed).await.unwrap(), Removed::Gone);
        let anew = apply("two").await;
        let other = Target { uid: changed.uid, ..anew.clone() };
        assert!(writer.remove(&other).await.unwrap_err().is(409), "it has the name of one that is gone");
        assert_eq!(writer.remove(&anew).await.unwrap(), Removed::Gone);
        assert_eq!(writer.remove(&anew).await.unwrap(), Removed::Gone, "what is gone is gone");
    }

    #[tokio::test]
    async fn from_the_moment_at_which_the_lease_is_lost_nothing_is_written() {
        let drydock = Drydock::builder().controllers(false).start().await.unwrap();
        let (kind, fence) = (KindRef::of::<ConfigMap>(), Fence::closed());
        let writer = Writer::new(drydock.client(), fence.clone(), "test");
        let write = async |value: &str| {
            let object = Object::of_kind(&kind, map(value)).unwrap();
            writer.apply(&kind, &key(), &object).await.is_ok()
        };
        assert!(!write("before it is held").await);
        fence.extend(Instant::now() + Duration::from_secs(60));
        assert!(write("held").await);
        fence.close();
        assert!(!write("let go").await);
        fence.extend(Instant::now());
        assert!(!write("run out").await);
        let kept = Api::<ConfigMap>::namespaced(drydock.client(), "default").get("a").await.unwrap();
        assert_eq!(kept.data.unwrap()["k"], "held");
    }
}
