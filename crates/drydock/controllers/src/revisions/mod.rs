//! The ControllerRevisions of StatefulSets and DaemonSets: each template that was asked for, under a number, so that
//! one can go back.
//!
//! The decisions are in [`history`]; here they are carried out, for every kind that remembers.

mod history;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::claim;
use crate::machinery::cache::{Cache, Kind};
use crate::machinery::rest::{Error, PatchType, Rest, json_bytes};
use crate::objects::daemon::DaemonSet;
use crate::objects::meta::OwnerReference;
use crate::objects::resource::Key;
use crate::objects::stateful::{Revision, StatefulSet};
use crate::objects::template::Template;
use crate::own::{self, Owner};
use history::Choice;

/// A kind that remembers its templates.
pub trait Remembers: Owner {
    /// The label of a revision that says its hash.
    const HASH: &str;
    /// The template that is asked for.
    fn template(&self) -> &Template;
    /// How many old ones are kept.
    fn history_limit(&self) -> Option<i32>;
    /// How many hashes were found taken.
    fn collisions(&self) -> Option<i32>;
    /// The hash of what a revision remembers.
    fn hash(&self, data: &Value, collisions: Option<i32>) -> String;
}

impl Remembers for StatefulSet {
    const HASH: &str = "controller.kubernetes.io/hash";

    fn template(&self) -> &Template {
        &self.spec.template
    }

    fn history_limit(&self) -> Option<i32> {
        self.spec.revision_history_limit
    }

    fn collisions(&self) -> Option<i32> {
        self.status.collision_count
    }

    fn hash(&self, data: &Value, collisions: Option<i32>) -> String {
        history::hash(data, collisions.unwrap_or(0))
    }
}

impl Remembers for DaemonSet {
    const HASH: &str = crate::objects::daemon::REVISION;

    fn template(&self) -> &Template {
        &self.spec.template
    }

    fn history_limit(&self) -> Option<i32> {
        self.spec.revision_history_limit
    }

    fn collisions(&self) -> Option<i32> {
        self.status.collision_count
    }

    fn hash(&self, _: &Value, collisions: Option<i32>) -> String {
        self.spec.template.hash(collisions)
    }
}

/// The revision of the template that is asked for.
pub struct Current {
    /// Its name.
    pub name: Arc<str>,
    /// How many hashes were found taken.
    pub collisions: Option<i32>,
}

/// The revisions there are.
pub struct Revisions {
    rest: Rest,
    /// All of them.
    pub cache: Arc<Cache<Revision>>,
}

impl Revisions {
    /// Those of this cache, written by this client.
    pub fn new(rest: Rest, cache: Arc<Cache<Revision>>) -> Self {
        Self { rest, cache }
    }

    /// The revisions of a set in their order, those that nobody manages taken over. `written` is told the version of
    /// each write.
    pub async fn gather<O: Remembers>(
        &self,
        set: &O,
        written: impl Fn(u64),
    ) -> Result<Vec<Arc<Revision>>, Error> {
        let meta = set.meta();
        let mut own = self.cache.controlled_by(&meta.uid);
        let mut orphans = self.cache.orphans(&meta.namespace);
        orphans.retain(|revision| set.selector().matches(&revision.metadata.labels));
        if !orphans.is_empty() && !meta.deleting() {
            own::may_take(&self.rest, set).await?;
            for revision in orphans {
                let owner = OwnerReference::to_controller(O::resource(), meta);
                let (at, patch) = (revision.metadata.key(), claim::adoption(owner, &revision.metadata.uid));
                let kind = Revision::resource();
                written(self.rest.patch(kind, &at, PatchType::Strategic, &patch).await?.version());
                own.push(revision);
            }
        }
        own.retain(|revision| set.selector().matches(&revision.metadata.labels));
        own.sort_by(|one, other| history::order(one, other));
        Ok(own)
    }

    /// Has a revision of the template among those of the set. Nothing when the namespace is going.
    pub async fn current<O: Remembers>(
        &self,
        set: &O,
        own: &[Arc<Revision>],
        written: impl Fn(u64),
    ) -> Result<Option<Current>, Error> {
        let collisions = set.collisions();
        match history::choose(set.template(), own) {
            Choice::Latest(revision) => {
                Ok(Some(Current { name: revision.metadata.name.clone(), collisions }))
            }
            Choice::Again(revision, number) => {
                let patch = json!({ "metadata": { "resourceVersion": revision.metadata.resource_version }, "revision": number });
                let at = revision.metadata.key();
                let again = self.rest.patch(Revision::resource(), &at, PatchType::Merge, &patch).await?;
                written(again.version());
                Ok(Some(Current { name: again.name, collisions }))
            }
            Choice::New(number) => self.remember(set, number, written).await,
        }
    }

    /// Makes a revision of the template. Each name that is taken by something else is counted.
    async fn remember<O: Remembers>(
        &self,
        set: &O,
        number: i64,
        written: impl Fn(u64),
    ) -> Result<Option<Current>, Error> {
        let (meta, mut collisions) = (set.meta(), set.collisions());
        let data = history::data(set.template());
        let label = set.hash(&data, collisions);
        loop {
            let name = history::name(&meta.name, &set.hash(&data, collisions));
            let mut labels = set.template().labels().clone();
            labels.set(O::HASH, &label);
            let body = json!({
                "apiVersion": "apps/v1",
                "kind": "ControllerRevision",
                "metadata": {
                    "name": name,
                    "namespace": &*meta.namespace,
                    "labels": labels,
                    "annotations": meta.annotations,
                    "ownerReferences": [OwnerReference::to_controller(O::resource(), meta)],
                },
                "data": data,
                "revision": number,
            });
            match self.rest.create(Revision::resource(), &meta.namespace, json_bytes(&body)?).await {
                Ok(made) => {
                    written(made.version());
                    return Ok(Some(Current { name: made.name, collisions }));
                }
                Err(error) if error.namespace_terminating() => return Ok(None),
                Err(error) if error.already_exists() => {
                    let at = Key::new(meta.namespace.clone(), name);
                    let taken: Revision = self.rest.get(Revision::resource(), &at, None).await?;
                    if taken.template == *set.template() {
                        return Ok(Some(Current { name: taken.metadata.name, collisions }));
                    }
                    collisions = Some(collisions.unwrap_or(0) + 1);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes the oldest beyond the limit, of those that nothing is at.
    pub async fn prune<O: Remembers>(
        &self,
        set: &O,
        own: &[Arc<Revision>],
        live: &[&str],
    ) -> Result<(), Error> {
        for revision in history::beyond_limit(set, own, live) {
            let (at, uid) = (revision.metadata.key(), &revision.metadata.uid);
            match self.rest.delete(Revision::resource(), &at, uid, None, None).await {
                Err(error) if !error.not_found() && !error.conflict() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}
