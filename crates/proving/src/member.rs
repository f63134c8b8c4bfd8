//! One of the operators that are proven together, whatever its type.

use std::sync::Arc;

use ballast_operator::{KindRef, Object, Operator};
use ballast_runtime::Manager;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

use crate::{
    Service, State,
    checks::{self, Found},
    service::Tapped,
};

/// An operator of a process: how it is made, and what it is held to.
pub(crate) trait Member: Send + Sync {
    /// The definition of its resource.
    fn definition(&self) -> CustomResourceDefinition;
    /// The name under which it owns fields.
    fn manager(&self) -> &'static str;
    /// The status of its resource, as a path of the API: `apps/deployments/status`.
    fn says(&self) -> String;
    /// What it watches, as paths of the API: its own kind and all that has to do with it.
    fn watched(&self) -> Vec<String>;
    /// Adds a new one to a process.
    fn register(&self, process: Manager, engine: Tapped) -> Manager;
    fn orphans(&self, state: &State) -> Vec<Found>;
    fn fixpoint<'a>(
        &'a self,
        service: &'a Arc<dyn Service>,
        state: &'a State,
        now: Timestamp,
    ) -> BoxFuture<'a, Vec<Found>>;
    fn holds_living_data(&self, state: &State, object: &Object) -> bool;
}

/// An operator by what makes it. Each that is made is a new process.
pub(crate) struct By<M>(pub(crate) M);

impl<O: Operator, M: Fn() -> O + Send + Sync> Member for By<M> {
    fn definition(&self) -> CustomResourceDefinition {
        O::Resource::crd()
    }

    fn manager(&self) -> &'static str {
        O::FIELD_MANAGER
    }

    fn says(&self) -> String {
        format!("{}/status", path(&KindRef::of::<O::Resource>()))
    }

    fn watched(&self) -> Vec<String> {
        let mut paths = vec![path(&KindRef::of::<O::Resource>())];
        for relation in (self.0)().relations() {
            let path = path(&relation.kind);
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        paths
    }

    fn register(&self, process: Manager, engine: Tapped) -> Manager {
        process.register((self.0)(), engine)
    }

    fn orphans(&self, state: &State) -> Vec<Found> {
        checks::orphans(&(self.0)(), state)
    }

    fn fixpoint<'a>(
        &'a self,
        service: &'a Arc<dyn Service>,
        state: &'a State,
        now: Timestamp,
    ) -> BoxFuture<'a, Vec<Found>> {
        Box::pin(checks::fixpoint(&self.0, service, state, now))
    }

    fn holds_living_data(&self, state: &State, object: &Object) -> bool {
        checks::holds_living_data(&(self.0)(), state, object)
    }
}

/// `apps/deployments`; without a group `pods`.
fn path(kind: &KindRef) -> String {
    if kind.group.is_empty() { kind.plural.to_string() } else { format!("{}/{}", kind.group, kind.plural) }
}
