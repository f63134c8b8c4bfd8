//! What an owner calls its own: hearing of it, taking what it selects, letting go of what it selects no more.
//!
//! Which is which is decided by [`claim`](crate::claim); here it is carried out, for every kind that owns by a
//! selector.
//!
//! # Guarantees
//! - What is taken or let go is the object that was looked at: another one of its name is left alone.
//! - An owner that is being deleted, which its cache may not know yet, takes nothing.
//! - Nothing is counted as missing because it could not be taken: that is tried again.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::claim::{self, Claim};
use crate::machinery::cache::{Kind, Object};
use crate::machinery::informer::Informer;
use crate::machinery::queue::Queue;
use crate::machinery::rest::{Error, PatchType, Rest};
use crate::objects::meta::{Meta, OwnerReference};
use crate::objects::resource::Key;
use crate::objects::selector::LabelSelector;

/// A kind that owns what it selects.
pub trait Owner: Kind {
    /// What it selects.
    fn selector(&self) -> &LabelSelector;
}

/// The owner of this kind that controls an object.
pub fn owner_of<O: Kind>(meta: &Meta) -> Option<Key> {
    let (owner, kind) = (meta.controller()?, O::resource());
    let ours = *owner.kind == *kind.kind && owner.group() == kind.group;
    ours.then(|| Key::new(meta.namespace.clone(), &*owner.name))
}

/// Queues an owner when it changes, when something of its own does, and when something does that it selects and
/// nobody manages.
pub fn follow<O: Owner, T: Object>(
    owners: &mut Informer<O>,
    owned: &mut Informer<T>,
    queue: &Arc<Queue<Key>>,
) {
    owners.queue_each(queue);
    let (keys, known) = (queue.clone(), owners.cache.clone());
    owned.on_change(move |change| {
        for object in change.both() {
            let meta = object.meta();
            if let Some(owner) = owner_of::<O>(meta) {
                keys.add(owner);
            } else if meta.controller().is_none() && change.after.is_some() && !meta.labels.is_empty() {
                let selecting = known.in_namespace(&meta.namespace, |owner| {
                    !owner.selector().is_empty() && owner.selector().matches(&meta.labels)
                });
                selecting.iter().for_each(|owner| keys.add(owner.meta().key()));
            }
        }
    });
}

/// What came of a claim.
pub struct Own<T> {
    /// What was its own already.
    pub old: Vec<Arc<T>>,
    /// What has just been taken, as it was before.
    pub taken: Vec<Arc<T>>,
}

impl<T> Own<T> {
    /// All of it.
    pub fn all(self) -> Vec<Arc<T>> {
        [self.old, self.taken].concat()
    }
}

/// Takes and lets go. With a `mark`, what is owned carries that finalizer. `written` is told the version of each write.
pub async fn carry_out<O: Kind, T: Kind>(
    rest: &Rest,
    owner: &O,
    Claim { own, adopt, release }: Claim<T>,
    mark: Option<&str>,
    written: impl Fn(u64),
) -> Result<Own<T>, Error> {
    let patch = async |object: &T, patch: Value| match rest
        .patch(T::resource(), &object.meta().key(), PatchType::Strategic, &patch)
        .await
    {
        Ok(meta) => {
            written(meta.version());
            Ok(true)
        }
        Err(error) if error.not_found() => Ok(false),
        Err(error) => Err(error),
    };
    for object in release {
        let mut release = claim::release(&owner.meta().uid, &object.meta().uid);
        if let Some(mark) = mark {
            release["metadata"]["$deleteFromPrimitiveList/finalizers"] = json!([mark]);
        }
        match patch(&object, release).await {
            // Another one by now, or nobody's.
            Err(error) if error.conflict() || error.code() == Some(422) => {}
            other => drop(other?),
        }
    }
    if !adopt.is_empty() {
        may_take(rest, owner).await?;
    }
    let mut taken = Vec::new();
    for object in adopt {
        let reference = OwnerReference::to_controller(O::resource(), owner.meta());
        let mut adoption = claim::adoption(reference, &object.meta().uid);
        if let Some(mark) = mark {
            adoption["metadata"]["finalizers"] = json!([mark]);
        }
        if patch(&object, adoption).await? {
            taken.push(object);
        }
    }
    Ok(Own { old: own, taken })
}

/// The cache may not know yet that the owner is being deleted; what it took now would be lost.
pub async fn may_take<O: Kind>(rest: &Rest, owner: &O) -> Result<(), Error> {
    let live = rest.metadata(O::resource(), &owner.meta().key()).await?;
    if live.uid != owner.meta().uid || live.deleting() {
        return Err(Error::Undecided("it is being deleted and takes nothing".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::workload::{Deployment, ReplicaSet};

    #[test]
    fn an_owner_is_known_by_kind_and_group_whatever_the_version() {
        let meta = |api_version: &str, kind: &str, controller: bool| {
            let mut meta = Meta { namespace: "n".into(), ..Default::default() };
            meta.owner_references.push(OwnerReference {
                api_version: api_version.into(),
                kind: kind.into(),
                name: "x".into(),
                controller: Some(controller),
                ..Default::default()
            });
            meta
        };
        let key = Some(Key::new("n", "x"));
        assert_eq!(owner_of::<ReplicaSet>(&meta("apps/v1", "ReplicaSet", true)), key);
        assert_eq!(owner_of::<ReplicaSet>(&meta("apps/v1beta2", "ReplicaSet", true)), key);
        assert_eq!(owner_of::<ReplicaSet>(&meta("example.com/v1", "ReplicaSet", true)), None);
        assert_eq!(owner_of::<ReplicaSet>(&meta("apps/v1", "ReplicaSet", false)), None);
        assert_eq!(owner_of::<Deployment>(&meta("apps/v1", "ReplicaSet", true)), None);
    }
}
