//! What a cluster holds at one revision, as far as a life changed it.

use std::sync::Arc;

use ballast_operator::{KindRef, Object, Operator, Scope, View};
use drydock::{Revision, Snapshot};
use jiff::Timestamp;
use kube::Resource;
use serde::de::DeserializeOwned;

/// Resources that are about what happened, or about who leads, and not about what is.
const NOT_STATE: &[&str] = &["/events", "coordination.k8s.io/leases"];
/// The ConfigMap in every namespace by which pods know the API server. Every cluster has a certificate of its own.
const ROOT_CA: &str = "kube-root-ca.crt";

/// What a cluster holds at one revision: every object that was made or changed since the life began. Events and
/// leases are not part of it.
#[derive(Clone, Debug, Default)]
pub struct State {
    objects: Vec<Arc<Object>>,
}

impl State {
    /// What `snapshot` holds that is newer than `since`.
    pub(crate) fn new(snapshot: &Snapshot, since: Revision) -> Self {
        let changed = snapshot
            .iter()
            .filter(|stored| stored.revision > since && !NOT_STATE.contains(&&*stored.key.resource))
            .filter(|stored| *stored.key.name != *ROOT_CA);
        let read = |value: &[u8]| Object::new(serde_json::from_slice(value).ok()?).ok();
        State { objects: changed.filter_map(|stored| read(&stored.value)).map(Arc::new).collect() }
    }

    /// The state with these objects in it.
    pub fn of(objects: impl IntoIterator<Item = Object>) -> Self {
        State { objects: objects.into_iter().map(Arc::new).collect() }
    }

    /// All of it.
    pub fn objects(&self) -> &[Arc<Object>] {
        &self.objects
    }

    /// The objects of a kind.
    pub fn of_kind(&self, kind: &KindRef) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.iter().filter(|object| kind.is(object.api_version(), object.kind()))
    }

    /// The objects of a type. What can't be read as the type is left out.
    pub fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
        K::Scope: Scope,
    {
        self.of_kind(&KindRef::of::<K>()).filter_map(|object| object.read().ok()).collect()
    }

    /// The object of a type with a name.
    pub fn get<K>(&self, namespace: Option<&str>, name: &str) -> Option<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
        K::Scope: Scope,
    {
        let named = |object: &&Arc<Object>| object.name() == name && object.namespace() == namespace;
        self.of_kind(&KindRef::of::<K>()).find(named)?.read().ok()
    }

    /// What an operator that is started now would see of a resource: what it controls, what carries its label,
    /// what stands under the names it claims.
    pub(crate) fn view<O: Operator>(
        &self,
        operator: &O,
        resource: O::Resource,
        now: Timestamp,
    ) -> View<O::Resource> {
        let mut view = View::new(resource, now);
        let (name, namespace) = (view.name().to_owned(), view.namespace().map(str::to_owned));
        let near =
            |object: &Object| object.namespace().is_none() || object.namespace() == namespace.as_deref();
        for relation in operator.relations() {
            for object in self.of_kind(&relation.kind).filter(|object| near(object)) {
                let belongs = match relation.label() {
                    Some(label) => object.label(label) == Some(&name),
                    None => view.controls(object),
                };
                if belongs {
                    view.children.insert(&relation.kind, Arc::clone(object));
                }
            }
        }
        for claim in operator.claims(&view.resource).into_iter().chain(operator.further_claims(&view)) {
            if let Some(object) =
                self.of_kind(&claim.kind).find(|object| object.name() == claim.name && near(object))
            {
                view.children.insert(&claim.kind, Arc::clone(object));
            }
        }
        view
    }
}
