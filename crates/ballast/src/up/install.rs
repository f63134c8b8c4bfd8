//! Putting what the operators stand on into a cluster: namespace, definitions, permissions.

use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind, TypeMeta};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client};
use serde_json::Value;

/// The name under which installed fields are owned: the same as that of `kubectl apply` for nobody.
const FIELD_MANAGER: &str = "ballast";
/// A definition is established at once, or something is wrong with it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why something is not installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// What is to be installed has no kind. A bug.
    #[error("an object without a kind")]
    Kind,
    /// The server refused it.
    #[error("{0}")]
    Refused(String, #[source] kube::Error),
    /// The watch for it failed.
    #[error("{0}")]
    Unseen(String, #[source] kube::runtime::wait::Error),
    /// A definition was taken and is not served.
    #[error("{0} is not established")]
    NotEstablished(String),
}

/// Applies objects, namespaces first, and waits until what they define is served. Gives them as the server has them.
///
/// # Errors
/// The server refuses one of them.
pub async fn install(client: &Client, objects: Vec<Value>) -> Result<Vec<DynamicObject>, InstallError> {
    let (first, rest): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|object| object["kind"] == "Namespace");
    let mut installed = try_join_all(first.into_iter().map(|object| apply(client, object))).await?;
    installed.extend(try_join_all(rest.into_iter().map(|object| apply(client, object))).await?);
    let kind = |object: &DynamicObject| object.types.as_ref().map(|types| types.kind.clone());
    let definitions =
        installed.iter().filter(|object| kind(object).as_deref() == Some("CustomResourceDefinition"));
    try_join_all(definitions.map(|definition| established(client, definition))).await?;
    Ok(installed)
}

async fn apply(client: &Client, object: Value) -> Result<DynamicObject, InstallError> {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let types = TypeMeta { api_version: text("/apiVersion"), kind: text("/kind") };
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::try_from(&types).map_err(|_| InstallError::Kind)?);
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let api: Api<DynamicObject> = match namespace.as_str() {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    api.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&object))
        .await
        .map_err(|error| InstallError::Refused(format!("{} {name}", types.kind), error))
}

async fn established(client: &Client, definition: &DynamicObject) -> Result<(), InstallError> {
    let name = definition.metadata.name.clone().unwrap_or_default();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let waiting = await_condition(definitions, &name, conditions::is_crd_established());
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(InstallError::Unseen(name, error)),
        Err(_) => Err(InstallError::NotEstablished(name)),
    }
}
