//! What people do to a resource, from its first day to its last.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery,
};
use serde_json::Value;

/// The name under which what people apply is owned.
const PERSON: &str = "person";
/// The name under which what people edit by hand is owned.
const HAND: &str = "person-by-hand";

/// A named sequence of acts. After each of them everything is let come to rest, and is looked at.
#[derive(Clone, Debug)]
pub struct Life {
    pub(crate) name: String,
    pub(crate) acts: Vec<(String, Act)>,
}

impl Life {
    /// A life in which nothing happens yet.
    pub fn new(name: impl Into<String>) -> Self {
        Life { name: name.into(), acts: Vec::new() }
    }

    /// Then this happens.
    #[must_use]
    pub fn act(mut self, name: impl Into<String>, act: Act) -> Self {
        self.acts.push((name.into(), act));
        self
    }
}

/// One thing that a person does. Doing it again right away must change nothing: where a run begins in the middle
/// of an act, the act is done again.
#[derive(Clone)]
pub struct Act(What);

#[derive(Clone)]
enum What {
    Apply(String),
    Edit(String),
    Delete(String),
    Do(Doing),
}

type Doing = Arc<dyn Fn(Client) -> BoxFuture<'static, Result<(), ActError>> + Send + Sync>;

/// Why an act could not be done.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// What was written down is no YAML of objects.
    #[error("the YAML of the act can't be read: {0}")]
    Yaml(String),
    /// The server did not do it.
    #[error("{0}")]
    Server(#[from] kube::Error),
}

impl Act {
    /// Applies these documents, as `kubectl apply --server-side` does.
    pub fn apply(yaml: impl Into<String>) -> Self {
        Act(What::Apply(yaml.into()))
    }

    /// Changes the objects that these documents name, as `kubectl edit` does: what a document says replaces what
    /// is there, and `null` takes it away.
    pub fn edit(yaml: impl Into<String>) -> Self {
        Act(What::Edit(yaml.into()))
    }

    /// Deletes the objects that these documents name: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}`.
    /// What is gone already is gone.
    pub fn delete(yaml: impl Into<String>) -> Self {
        Act(What::Delete(yaml.into()))
    }

    /// Does whatever else people do with a client.
    pub fn with(
        act: impl Fn(Client) -> BoxFuture<'static, Result<(), ActError>> + Send + Sync + 'static,
    ) -> Self {
        Act(What::Do(Arc::new(act)))
    }

    pub(crate) async fn play(&self, client: &Client) -> Result<(), ActError> {
        match &self.0 {
            What::Do(act) => act(client.clone()).await?,
            What::Apply(yaml) => {
                for document in documents(yaml)? {
                    let (api, name) = api(client, &document).await?;
                    api.patch(&name, &PatchParams::apply(PERSON), &Patch::Apply(&document)).await?;
                }
            }
            What::Edit(yaml) => {
                let how = PatchParams { field_manager: Some(HAND.to_owned()), ..PatchParams::default() };
                for document in documents(yaml)? {
                    let (api, name) = api(client, &document).await?;
                    api.patch(&name, &how, &Patch::Merge(&document)).await?;
                }
            }
            What::Delete(yaml) => {
                for document in documents(yaml)? {
                    let (api, name) = api(client, &document).await?;
                    match api.delete(&name, &DeleteParams::background()).await {
                        Err(kube::Error::Api(status)) if status.code == 404 => {}
                        answer => drop(answer?),
                    }
                }
            }
        }
        Ok(())
    }
}

/// The documents of a YAML text.
pub(crate) fn documents(yaml: &str) -> Result<Vec<Value>, ActError> {
    let all: Vec<Value> =
        serde_saphyr::from_multiple(yaml).map_err(|error| ActError::Yaml(error.to_string()))?;
    Ok(all.into_iter().filter(|document| !document.is_null()).collect())
}

/// Where a document's object lives, and its name there.
async fn api(client: &Client, document: &Value) -> Result<(Api<DynamicObject>, String), ActError> {
    let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let needed =
        |pointer: &str| text(pointer).ok_or_else(|| ActError::Yaml(format!("there is no {pointer}")));
    let (api_version, kind, name) = (needed("/apiVersion")?, needed("/kind")?, needed("/metadata/name")?);
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let (resource, capabilities) =
        discovery::pinned_kind(client, &GroupVersionKind::gvk(group, version, &kind)).await?;
    let namespace = text("/metadata/namespace").unwrap_or_else(|| "default".to_owned());
    let api = match capabilities.scope {
        discovery::Scope::Cluster => Api::all_with(client.clone(), &resource),
        discovery::Scope::Namespaced => Api::namespaced_with(client.clone(), &namespace, &resource),
    };
    Ok((api, name))
}

impl fmt::Debug for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            What::Apply(yaml) => f.debug_tuple("Apply").field(yaml).finish(),
            What::Edit(yaml) => f.debug_tuple("Edit").field(yaml).finish(),
            What::Delete(yaml) => f.debug_tuple("Delete").field(yaml).finish(),
            What::Do(_) => f.write_str("Do"),
        }
    }
}
