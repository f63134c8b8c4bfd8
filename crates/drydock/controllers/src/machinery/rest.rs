//! Requests to the API server: paths, bodies, and the few answers that mean something to a controller.

use http::{Method, Request};
use kube::Client;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::objects::meta::Meta;
use crate::objects::resource::{Key, Resource};
use crate::objects::service::Bare;

/// The name under which fields are owned, whichever controller wrote them: Kubernetes' own.
const FIELD_MANAGER: &str = "kube-controller-manager";

/// Only the metadata of an object, from servers that can leave out the rest.
pub const METADATA_ONLY: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// Only the metadata of the objects of a list.
pub const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Why a reconcile did not come to its end. All of them are tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with an error, or did not answer.
    #[error("{}", told(.0))]
    Request(#[source] kube::Error),
    /// A body could not be written.
    #[error("cannot be written as JSON")]
    Body(#[source] serde_json::Error),
    /// A request could not be built.
    #[error("not a request")]
    Built(#[source] http::Error),
    /// What was found does not allow a decision.
    #[error("{0}")]
    Undecided(String),
}

/// What a person should read of a failed request: the server's own words where there are some.
fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

impl Error {
    /// The status code of the answer, if there was one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Request(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }

    /// There is no such object.
    pub fn not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// The object was changed in between, or is there already.
    pub fn conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// The object is there already.
    pub fn already_exists(&self) -> bool {
        matches!(self, Self::Request(kube::Error::Api(status)) if status.reason == "AlreadyExists")
    }

    /// Nothing can be created any more, since the namespace is going.
    pub fn namespace_terminating(&self) -> bool {
        let Self::Request(kube::Error::Api(status)) = self else { return false };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
    }
}

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Propagation {
    /// They go afterwards.
    Background,
    /// They go first.
    Foreground,
    /// They stay.
    Orphan,
}

/// What a patch is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// JSON merge patch.
    Merge,
    /// Strategic merge patch; built-in kinds only.
    Strategic,
    /// Server-side apply, by force.
    Apply,
}

/// A client of the API server under one identity.
#[derive(Clone)]
pub struct Rest {
    client: Client,
}

impl Rest {
    /// Requests by this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The client itself.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Reads the metadata of one object.
    pub async fn metadata(&self, resource: &Resource, key: &Key) -> Result<Meta, Error> {
        let request = Request::get(resource.object(key, None)).header("accept", METADATA_ONLY);
        let bare: Bare = self.send(request.body(Vec::new()).map_err(Error::Built)?).await?;
        Ok(bare.metadata)
    }

    /// Reads one object or subresource.
    pub async fn get<T: DeserializeOwned>(
        &self,
        resource: &Resource,
        key: &Key,
        subresource: Option<&str>,
    ) -> Result<T, Error> {
        self.send(Request::get(resource.object(key, subresource)).body(Vec::new()).map_err(Error::Built)?)
            .await
    }

    /// Reads all objects of a namespace.
    pub async fn list<T: DeserializeOwned>(
        &self,
        resource: &Resource,
        namespace: &str,
    ) -> Result<Vec<T>, Error> {
        let request = Request::get(resource.collection(namespace)).body(Vec::new()).map_err(Error::Built)?;
        let list: List<T> = self.send(request).await?;
        Ok(list.items)
    }

    /// Reads the metadata of one page of objects in a namespace.
    pub async fn list_metadata(
        &self,
        resource: &Resource,
        namespace: &str,
        page: &str,
    ) -> Result<List<Bare>, Error> {
        let mut path = format!("{}?limit=500", resource.collection(namespace));
        if !page.is_empty() {
            path.push_str("&continue=");
            path.push_str(page);
        }
        let request = Request::get(path).header("accept", METADATA_LIST);
        self.send(request.body(Vec::new()).map_err(Error::Built)?).await
    }

    /// Creates an object.
    pub async fn create(&self, resource: &Resource, namespace: &str, body: Vec<u8>) -> Result<Meta, Error> {
        let path = format!("{}?fieldManager={FIELD_MANAGER}", resource.collection(namespace));
        self.write(Method::POST, path, "application/json", body).await
    }

    /// Replaces an object, or one of its subresources.
    pub async fn replace(
        &self,
        resource: &Resource,
        key: &Key,
        subresource: Option<&str>,
        body: Vec<u8>,
    ) -> Result<Meta, Error> {
        let path = format!("{}?fieldManager={FIELD_MANAGER}", resource.object(key, subresource));
        self.write(Method::PUT, path, "application/json", body).await
    }

    /// Replaces the status of an object, if it is still at the version of `metadata`. The rest of the
    /// object is left out: the server takes it from what it has.
    pub async fn replace_status(
        &self,
        resource: &Resource,
        metadata: &Meta,
        status: &impl Serialize,
    ) -> Result<Meta, Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Body<'a, S> {
            api_version: String,
            kind: &'a str,
            metadata: &'a Meta,
            status: &'a S,
        }
        let body = Body { api_version: resource.api_version(), kind: &resource.kind, metadata, status };
        self.replace(resource, &metadata.key(), Some("status"), json_bytes(&body)?).await
    }

    /// Patches an object.
    pub async fn patch(
        &self,
        resource: &Resource,
        key: &Key,
        r#type: PatchType,
        body: &impl Serialize,
    ) -> Result<Meta, Error> {
        let (content, query) = match r#type {
            PatchType::Merge => ("application/merge-patch+json", format!("fieldManager={FIELD_MANAGER}")),
            PatchType::Strategic => {
                ("application/strategic-merge-patch+json", format!("fieldManager={FIELD_MANAGER}"))
            }
            PatchType::Apply => (
                "application/apply-patch+yaml",
                "fieldManager=clusterrole-aggregation-controller&force=true".into(),
            ),
        };
        self.write(
            Method::PATCH,
            format!("{}?{query}", resource.object(key, None)),
            content,
            json_bytes(body)?,
        )
        .await
    }

    /// Patches the status of an object, in the name of `manager`. Built-in kinds only.
    pub async fn patch_status(
        &self,
        resource: &Resource,
        key: &Key,
        manager: &str,
        body: &impl Serialize,
    ) -> Result<Meta, Error> {
        let path = format!("{}?fieldManager={manager}", resource.object(key, Some("status")));
        self.write(Method::PATCH, path, "application/strategic-merge-patch+json", json_bytes(body)?).await
    }

    /// Posts to a subresource that answers with no object.
    pub async fn post(
        &self,
        resource: &Resource,
        key: &Key,
        subresource: &str,
        body: &impl Serialize,
    ) -> Result<(), Error> {
        let request = Request::post(resource.object(key, Some(subresource)))
            .header("content-type", "application/json")
            .body(json_bytes(body)?)
            .map_err(Error::Built)?;
        self.client.request_text(request).await.map(drop).map_err(Error::Request)
    }

    /// Deletes an object, if it is still the one with this uid (and, when given, at this version).
    pub async fn delete(
        &self,
        resource: &Resource,
        key: &Key,
        uid: &str,
        version: Option<&str>,
        propagation: Option<Propagation>,
    ) -> Result<(), Error> {
        let mut preconditions = json!({ "uid": uid });
        if let Some(version) = version {
            preconditions["resourceVersion"] = version.into();
        }
        self.delete_at(resource.object(key, None), Some(preconditions), propagation).await
    }

    /// Deletes an object, if it is still the one with this uid. Returns the version at which it was marked or
    /// removed, so that the deletion can be awaited; zero when the server does not say.
    pub async fn delete_at_version(&self, resource: &Resource, key: &Key, uid: &str) -> Result<u64, Error> {
        let text = self.send_delete(resource.object(key, None), Some(json!({ "uid": uid })), None).await?;
        Ok(serde_json::from_str::<Bare>(&text).map_or(0, |bare| bare.metadata.version()))
    }

    /// Deletes an object without a grace period, if it is still the one with this uid.
    pub async fn delete_at_once(&self, resource: &Resource, key: &Key, uid: &str) -> Result<(), Error> {
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": { "uid": uid },
        });
        self.send_options(resource.object(key, None), &options).await.map(drop)
    }

    /// Deletes an object by name, whatever its uid.
    pub async fn delete_by_name(
        &self,
        resource: &Resource,
        key: &Key,
        propagation: Option<Propagation>,
    ) -> Result<(), Error> {
        self.delete_at(resource.object(key, None), None, propagation).await
    }

    /// Deletes all objects of a kind in a namespace; their dependents go afterwards.
    pub async fn delete_all(&self, resource: &Resource, namespace: &str) -> Result<(), Error> {
        self.delete_at(resource.collection(namespace), None, Some(Propagation::Background)).await
    }

    async fn delete_at(
        &self,
        path: String,
        preconditions: Option<Value>,
        propagation: Option<Propagation>,
    ) -> Result<(), Error> {
        self.send_delete(path, preconditions, propagation).await.map(drop)
    }

    async fn send_delete(
        &self,
        path: String,
        preconditions: Option<Value>,
        propagation: Option<Propagation>,
    ) -> Result<String, Error> {
        let mut options = json!({ "apiVersion": "v1", "kind": "DeleteOptions" });
        if let Some(preconditions) = preconditions {
            options["preconditions"] = preconditions;
        }
        if let Some(propagation) = propagation {
            options["propagationPolicy"] = serde_json::to_value(propagation).map_err(Error::Body)?;
        }
        self.send_options(path, &options).await
    }

    async fn send_options(&self, path: String, options: &Value) -> Result<String, Error> {
        let request = Request::delete(path).header("content-type", "application/json");
        let request = request.body(json_bytes(options)?).map_err(Error::Built)?;
        self.client.request_text(request).await.map_err(Error::Request)
    }

    async fn write(&self, method: Method, path: String, content: &str, body: Vec<u8>) -> Result<Meta, Error> {
        let request = Request::builder().method(method).uri(path).header("content-type", content);
        let bare: Bare = self.send(request.body(body).map_err(Error::Built)?).await?;
        Ok(bare.metadata)
    }

    async fn send<T: DeserializeOwned>(&self, request: Request<Vec<u8>>) -> Result<T, Error> {
        self.client.request(request).await.map_err(Error::Request)
    }
}

/// A list, or one page of it.
#[derive(serde::Deserialize)]
pub struct List<T> {
    /// Where it stands.
    pub metadata: ListMeta,
    /// The items; metadata lists say `null` for none.
    #[serde(
        default = "Vec::new",
        deserialize_with = "crate::objects::meta::nullable",
        bound(deserialize = "T: serde::Deserialize<'de>")
    )]
    pub items: Vec<T>,
}

/// `metadata` of a list.
#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMeta {
    /// The version the list was taken at.
    pub resource_version: Box<str>,
    /// Where the next page begins; empty on the last.
    pub r#continue: Box<str>,
}

/// JSON as a request body.
pub fn json_bytes(body: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(body).map_err(Error::Body)
}
