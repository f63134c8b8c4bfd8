//! Garbage: objects whose owners are gone. Works over every kind the cluster has, custom ones included.
//!
//! # Guarantees
//! - Nothing is deleted that the server has not just shown to exist with that uid, and of whose owners it has
//!   not just said that none is left; the deletion itself asks for the uid, and for the version or at least
//!   unchanged owners.
//! - An owner of a kind that nobody serves can't be verified: what it owns stays.

mod decide;
pub mod graph;
pub mod inventory;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::json;

use crate::machinery::queue::{Next, Queue};
use crate::machinery::rest::{Error, PatchType, Propagation, Rest};
use crate::objects::meta::{Meta, OwnerReference};
use crate::objects::resource::{Key, Resource};
use decide::{Decision, Owner, decide};
use graph::{FOREGROUND, Graph, Node, ORPHAN, Stage, Uid, Work};
use inventory::{Feed, Inventory, Offered};

/// How long an unknown owner may be late: two watches of one server are never further apart.
const LATE: Duration = Duration::from_millis(500);

/// The controller. Its keys are uids.
pub struct Controller {
    rest: Rest,
    graph: Arc<Mutex<Graph>>,
    inventory: Arc<Inventory>,
    queue: Arc<Queue<Uid>>,
    /// Objects with an owner that can't be verified: looked at again when kinds come or go.
    unverified: Arc<Mutex<BTreeSet<Uid>>>,
}

impl Controller {
    /// The controller.
    pub fn new(rest: Rest, inventory: Arc<Inventory>, queue: &Arc<Queue<Uid>>) -> Self {
        let unverified: Arc<Mutex<BTreeSet<Uid>>> = Arc::default();
        let (waiting, keys) = (unverified.clone(), queue.clone());
        inventory.on_change(move || {
            std::mem::take(&mut *waiting.lock()).into_iter().for_each(|uid| keys.add(uid))
        });
        Self { rest, graph: Arc::default(), inventory, queue: queue.clone(), unverified }
    }

    /// Where changes of objects of any kind go.
    pub fn feed(&self) -> Feed {
        let (graph, queue) = (self.graph.clone(), self.queue.clone());
        let kinds: Mutex<Vec<Arc<Resource>>> = Mutex::default();
        Arc::new(move |resource, before, after| {
            let mut graph = graph.lock();
            let work = match (before, after) {
                (_, Some(after)) => graph.observe(&shared(&kinds, resource), after),
                (Some(before), None) => graph.forget(&before.uid),
                (None, None) => Work::default(),
            };
            drop(graph);
            enqueue(&queue, work);
        })
    }

    /// Looks at one object.
    pub async fn reconcile(&self, uid: &Uid) -> Result<Next, Error> {
        let node = {
            let graph = self.graph.lock();
            match graph.node(uid) {
                None => return Ok(Next::OnChange),
                Some(node) if node.stage == Stage::Going => return Ok(Next::OnChange),
                Some(node) if node.stage == Stage::Living && graph.settled(node) => {
                    return Ok(Next::OnChange);
                }
                Some(node) => node.clone(),
            }
        };
        let live = match self.rest.metadata(&node.resource, &node.key).await {
            Ok(live) if *live.uid == **uid => live,
            Ok(_) => return self.forget(uid),
            Err(error) if error.not_found() => return self.forget(uid),
            Err(error) => return Err(error),
        };
        match node.stage {
            Stage::Foreground => self.wait_for_dependents(uid, &node, &live).await,
            Stage::Orphaning => self.orphan_dependents(uid, &node, &live).await,
            Stage::Living | Stage::Going => self.collect(uid, &node, live).await,
        }
    }

    /// The server has no such object any more; its watch will say so, or never does.
    fn forget(&self, uid: &Uid) -> Result<Next, Error> {
        let work = self.graph.lock().forget(uid);
        enqueue(&self.queue, work);
        Ok(Next::OnChange)
    }

    /// Lets an object in foreground deletion go when nothing that blocks it is left; until then has its
    /// dependents looked at.
    async fn wait_for_dependents(&self, uid: &Uid, node: &Node, live: &Meta) -> Result<Next, Error> {
        let blocking = self.graph.lock().blocking(uid);
        if blocking.is_empty() {
            self.remove_finalizer(node, live, FOREGROUND).await?;
        }
        for (dependent, stage) in blocking {
            if stage != Stage::Foreground {
                self.queue.add(dependent);
            }
        }
        Ok(Next::OnChange)
    }

    /// Takes the owner out of all its dependents, then lets it go.
    async fn orphan_dependents(&self, uid: &Uid, node: &Node, live: &Meta) -> Result<Next, Error> {
        let dependents: Vec<Node> = self.graph.lock().dependents(uid).map(|(_, node)| node.clone()).collect();
        let outcomes = join_all(dependents.iter().map(|dependent| self.disown(dependent, uid))).await;
        outcomes.into_iter().collect::<Result<(), _>>()?;
        self.remove_finalizer(node, live, ORPHAN).await?;
        Ok(Next::OnChange)
    }

    async fn disown(&self, dependent: &Node, owner: &Uid) -> Result<(), Error> {
        let live = match self.rest.metadata(&dependent.resource, &dependent.key).await {
            Err(error) if error.not_found() => return Ok(()),
            other => other?,
        };
        let kept: Vec<_> = live.owner_references.iter().filter(|own| *own.uid != **owner).cloned().collect();
        if kept.len() == live.owner_references.len() {
            return Ok(());
        }
        self.set_owners(dependent, &live, &kept).await
    }

    /// Deletes an object without living owners.
    async fn collect(&self, uid: &Uid, node: &Node, live: Meta) -> Result<Next, Error> {
        let kinds = self.inventory.kinds();
        let mut owners = Vec::with_capacity(live.owner_references.len());
        for reference in &live.owner_references {
            match self.verify(node, reference).await? {
                Some(owner) => owners.push(owner),
                None => {
                    self.unverified.lock().insert(uid.clone());
                    let changed = !Arc::ptr_eq(&kinds, &self.inventory.kinds());
                    return Ok(if changed { Next::After(LATE) } else { Next::OnChange });
                }
            }
        }
        let (dependents, waiting) = {
            let graph = self.graph.lock();
            let stages: Vec<Stage> = graph.dependents(uid).map(|(_, node)| node.stage).collect();
            (!stages.is_empty(), stages.contains(&Stage::Foreground))
        };
        match decide(&live, &owners, dependents, waiting) {
            Decision::Keep => {}
            Decision::KeepOwners(kept) => self.set_owners(node, &live, &kept).await?,
            Decision::Delete(propagation) => self.delete(node, &live, propagation).await?,
            Decision::UnblockAndDelete(unblocked) => {
                self.set_owners(node, &live, &unblocked).await?;
                // The object is another version now; the next look deletes it.
                return Ok(Next::After(Duration::ZERO));
            }
        }
        Ok(Next::OnChange)
    }

    /// Asks the server for an owner. `None` when it can't be verified.
    async fn verify(&self, node: &Node, reference: &OwnerReference) -> Result<Option<Owner>, Error> {
        if self.graph.lock().is_gone(&reference.uid) {
            return Ok(Some(Owner::Absent));
        }
        let found = self.inventory.find(reference.group(), reference.version(), &reference.kind);
        let Some(Offered { resource, .. }) = found else {
            tracing::debug!(object = %node.key, owner = %reference.kind, "an owner's kind is not served");
            return Ok(None);
        };
        // An object of the whole cluster can't have an owner in some namespace: which would it be?
        if resource.namespaced && node.key.namespace.is_empty() {
            return Ok(None);
        }
        let namespace = if resource.namespaced { node.key.namespace.clone() } else { "".into() };
        match self.rest.metadata(&resource, &Key::new(namespace, &*reference.name)).await {
            Ok(owner) if owner.uid != reference.uid => Ok(Some(self.absent(&reference.uid))),
            Ok(owner) if owner.deleting() && owner.has_finalizer(FOREGROUND) => Ok(Some(Owner::Waiting)),
            Ok(_) => Ok(Some(Owner::Solid)),
            Err(error) if error.not_found() => Ok(Some(self.absent(&reference.uid))),
            Err(error) => Err(error),
        }
    }

    /// No owner with this uid is where the reference says. It may be elsewhere, which the graph knows.
    fn absent(&self, uid: &str) -> Owner {
        let mut graph = self.graph.lock();
        if graph.node(uid).is_none() {
            graph.note_gone(uid);
        }
        Owner::Absent
    }

    async fn delete(&self, node: &Node, live: &Meta, propagation: Propagation) -> Result<(), Error> {
        let how = Some(propagation);
        let (resource, key, uid) = (&node.resource, &node.key, &live.uid);
        match self.rest.delete(resource, key, uid, Some(&live.resource_version), how).await {
            Err(error) if error.not_found() => Ok(()),
            Err(error) if error.conflict() => {
                // Changed meanwhile. If its owners are the same, that something else changes all the time
                // must not keep it alive.
                let again = match self.rest.metadata(resource, key).await {
                    Err(error) if error.not_found() => return Ok(()),
                    other => other?,
                };
                if again.uid != live.uid || again.owner_references != live.owner_references {
                    return Err(error);
                }
                match self.rest.delete(resource, key, uid, None, how).await {
                    Err(error) if error.not_found() => Ok(()),
                    other => other,
                }
            }
            other => other,
        }
    }

    async fn set_owners(&self, node: &Node, live: &Meta, owners: &[OwnerReference]) -> Result<(), Error> {
        let patch = json!({ "metadata": {
            "uid": live.uid,
            "resourceVersion": live.resource_version,
            "ownerReferences": owners,
        } });
        self.patch(node, &patch).await
    }

    async fn remove_finalizer(&self, node: &Node, live: &Meta, finalizer: &str) -> Result<(), Error> {
        if !live.has_finalizer(finalizer) {
            return Ok(());
        }
        let left: Vec<_> = live.finalizers.iter().filter(|own| &***own != finalizer).collect();
        let patch = json!({ "metadata": { "resourceVersion": live.resource_version, "finalizers": left } });
        self.patch(node, &patch).await
    }

    async fn patch(&self, node: &Node, patch: &serde_json::Value) -> Result<(), Error> {
        match self.rest.patch(&node.resource, &node.key, PatchType::Merge, patch).await {
            Err(error) if error.not_found() => Ok(()),
            other => other.map(drop),
        }
    }
}

fn enqueue(queue: &Queue<Uid>, work: Work) {
    work.now.into_iter().for_each(|uid| queue.add(uid));
    work.later.into_iter().for_each(|uid| queue.add_after(uid, LATE));
}

/// The one copy of a kind that all its objects share.
fn shared(kinds: &Mutex<Vec<Arc<Resource>>>, resource: &Resource) -> Arc<Resource> {
    let mut kinds = kinds.lock();
    if let Some(known) = kinds.iter().find(|known| ***known == *resource) {
        return known.clone();
    }
    let new = Arc::new(resource.clone());
    kinds.push(new.clone());
    new
}
