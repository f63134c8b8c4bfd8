//! Custom resource definitions come to life and end.
//!
//! A definition that is written is settled at once: its names are accepted or not, and what it
//! defines is served before the writer has its answer. A definition that is deleted first takes its
//! objects with it, however long their finalizers hold them; then its names are given to those that
//! waited for them.
//!
//! **Always holds:** what the registry serves is what the store's established definitions say, also
//! after a start from a snapshot or a directory. A definition comes to the end of its way from after
//! any write of it. Watches of what a definition defines end when that becomes something else.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use drydock_kinds::{Kind, crd};
use drydock_store::{Change, CommitError, Expect, Key, Page, Range, Revision, Stored};
use futures::StreamExt;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    Api, auth,
    delete::DeleteOptions,
    object::{self, meta},
};

pub(crate) const GROUP: &str = "apiextensions.k8s.io";
pub(crate) const PLURAL: &str = "customresourcedefinitions";
const RESOURCE: &str = "apiextensions.k8s.io/customresourcedefinitions";
const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// How often the status of a definition is written again when somebody else was faster.
const ATTEMPTS: usize = 16;

/// When what is left of a deleted definition is looked at anew though nothing happened to it: something
/// could not be written.
const AGAIN: Duration = Duration::from_secs(10);

/// Since which revision objects of a resource are written by the schema it has now, and what that was made of.
#[derive(Debug, Default)]
pub(crate) struct Installed(Mutex<BTreeMap<String, (Revision, u64)>>);

impl Installed {
    /// Objects of `resource` that were written later were pruned and defaulted by the present schema, and are in its
    /// storage version.
    pub fn since(&self, resource: &str) -> Option<Revision> {
        self.0.lock().get(resource).map(|(revision, _)| *revision)
    }
}

impl Api {
    /// Serves what the definitions in the store define, and goes on with those that were ending.
    pub(crate) fn restore_definitions(&self) {
        self.definitions().iter().for_each(|stored| self.follow(&stored.key.name));
    }

    /// Settles the definitions that have not the names they ask for: those that another one had, and
    /// those whose process ended between the two writes of a definition. Goes on until nothing changes,
    /// since names that one gives up are another's to have.
    pub(crate) async fn settle_definitions(&self) {
        let Some(kind) = self.registry().find(GROUP, "v1", PLURAL) else { return };
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for stored in self.definitions() {
                if object::read_stored(&stored).is_ok_and(|definition| !has_its_names(&definition)) {
                    changed |= self.settle(&kind, stored).await;
                }
            }
        }
    }

    /// A definition was written.
    pub(crate) async fn definition_written(&self, kind: &Kind, stored: &Arc<Stored>) {
        if self.settle(kind, stored.clone()).await {
            self.settle_definitions().await;
        }
    }

    /// A definition is gone, and its names are free.
    pub(crate) async fn definition_removed(&self, name: &str) {
        self.follow(name);
        self.settle_definitions().await;
    }

    fn definitions(&self) -> Vec<Arc<Stored>> {
        let range = Range { resource: RESOURCE.into(), namespace: None };
        self.store().list(&range, Page::default()).map(|listing| listing.items).unwrap_or_default()
    }

    /// Serves what the definition of this name defines now, or nothing where it is gone; one that is
    /// deleted is ended.
    fn follow(&self, name: &str) {
        // It is read under the lock: of two who wrote it, whoever comes last serves what is there.
        let mut installed = self.installed().0.lock();
        let (stored, resource) = (self.store().get(&Key::new(RESOURCE, "", name)), resource_of(name));
        let Some(definition) = stored.and_then(|stored| object::read_stored(&stored).ok()) else {
            self.registry().uninstall(name);
            self.store().end_watches(&resource);
            installed.remove(&resource);
            self.ending().lock().remove(name);
            return;
        };
        let made_of = made_of(&definition);
        let before = installed.get(&resource);
        if before.is_none_or(|(_, before)| *before != made_of) {
            self.registry().install(&definition);
            // After the new is served: who still found the old looks again when the watch has begun.
            self.store().end_watches(&resource);
            // What was written before this moment was written by what was served until then.
            let own = meta(&definition, "resourceVersion").parse().ok().filter(|_| before.is_none());
            let since = own.map_or(self.store().revision(), Revision);
            installed.insert(resource, (since, made_of));
        }
        if waits_for_us(&definition) {
            self.end(definition);
        } else {
            self.ending().lock().remove(name);
        }
    }

    /// Decides about the names of a definition, writes what was decided and follows it. Says whether
    /// anything was written.
    async fn settle(&self, kind: &Kind, mut stored: Arc<Stored>) -> bool {
        let mut written = false;
        for _ in 0..ATTEMPTS {
            let Ok(before) = object::read_stored(&stored) else { break };
            let mut definition = before.clone();
            crd::settle(&mut definition, auth::all(self.store(), RESOURCE).iter(), self.now());
            if definition == before {
                break;
            }
            let Ok(draft) = object::draft(kind, definition) else { break };
            let expect = Expect::At(stored.revision);
            match self.store().commit(stored.key.clone(), expect, Change::Put(draft)).await {
                Ok(_) => written = true,
                Err(CommitError::Conflict(newer)) => {
                    stored = newer;
                    continue;
                }
                Err(CommitError::Missing | CommitError::Closed) => {}
                Err(error) => tracing::warn!(%error, key = %stored.key, "a definition could not be settled"),
            }
            break;
        }
        self.follow(&stored.key.name);
        written
    }

    /// Takes the objects of a deleted definition away, then the definition.
    fn end(&self, definition: Value) {
        let (name, uid) = (meta(&definition, "name").to_owned(), meta(&definition, "uid").to_owned());
        let began = self.ending().lock().insert(name.clone(), uid.clone()).is_none_or(|before| before != uid);
        if !began {
            return;
        }
        let api = self.clone();
        tokio::spawn(async move {
            if api.clean_up(&name, &uid, stored_kind(definition)).await {
                api.definition_removed(&name).await;
            }
        });
    }

    /// Deletes the objects of a definition until there are none, also those that come late because
    /// their writer was past its checks; then takes our finalizer off, unless somebody did, and removes
    /// what was written between the last look and that. False when the store was closed over it.
    async fn clean_up(&self, name: &str, uid: &str, kind: Option<Arc<Kind>>) -> bool {
        let range = Range { resource: resource_of(name).into(), namespace: None };
        while self.ends(name, uid).is_some() {
            // Begun before the list, so that nothing that happens after it is slept over.
            let Ok(mut watch) = self.store().watch(range.clone(), self.store().revision()) else { continue };
            let items = self.store().list(&range, Page::default()).map(|l| l.items).unwrap_or_default();
            if items.is_empty()
                && let Some(removed) = self.release_definition(name, uid).await
            {
                if let (Some(removed), Some(kind)) = (removed, &kind) {
                    self.sweep(&range, removed, kind).await;
                }
                return true;
            }
            for item in items {
                let going = object::read_stored(&item).is_ok_and(|object| object::is_terminating(&object));
                let Some(kind) = kind.as_ref().filter(|_| !going) else { continue };
                let options = DeleteOptions::default();
                if let Err(failure) = self.delete_as_system(kind, &item.key, &options).await {
                    tracing::warn!(%failure, key = %item.key, "an object could not be deleted with its definition");
                }
            }
            if let Ok(None) = tokio::time::timeout(AGAIN, watch.next()).await
                && self.store().is_closed()
            {
                return false;
            }
        }
        true
    }

    /// The definition that is being deleted, as long as it is and waits for us.
    fn ends(&self, name: &str, uid: &str) -> Option<(Arc<Stored>, Value)> {
        let stored = self.store().get(&Key::new(RESOURCE, "", name))?;
        let definition = object::read_stored(&stored).ok()?;
        (meta(&definition, "uid") == uid && waits_for_us(&definition)).then_some((stored, definition))
    }

    /// The definition of a custom kind is being deleted.
    pub(crate) fn is_ending(&self, kind: &Kind) -> bool {
        self.ending().lock().contains_key(&kind.qualified_plural())
    }

    /// Removes the objects of a definition that was removed at a revision, whatever holds them: there is no way left to
    /// let them go. What is younger belongs to another definition of that name.
    async fn sweep(&self, range: &Range, removed: Revision, kind: &Kind) {
        let items = self.store().list(range, Page::default()).map(|l| l.items).unwrap_or_default();
        for item in items.into_iter().filter(|item| item.revision < removed) {
            let Ok(draft) = object::read_stored(&item).and_then(|last| object::draft(kind, last)) else {
                continue;
            };
            let (expect, change) = (Expect::At(item.revision), Change::Delete(draft));
            if let Err(error) = self.store().commit(item.key.clone(), expect, change).await {
                tracing::warn!(%error, key = %item.key, "an object outlives its definition");
            }
        }
    }

    /// Takes our finalizer off a definition, and with the last one the definition away; gives the revision of that.
    /// `None` when it could not be written.
    async fn release_definition(&self, name: &str, uid: &str) -> Option<Option<Revision>> {
        let kind = self.registry().find(GROUP, "v1", PLURAL)?;
        for _ in 0..ATTEMPTS {
            let Some((stored, mut definition)) = self.ends(name, uid) else { return Some(None) };
            let kept: Vec<String> = object::finalizers(&definition)
                .into_iter()
                .filter(|finalizer| *finalizer != FINALIZER)
                .map(str::to_owned)
                .collect();
            object::set_finalizers(&mut definition, &kept);
            let message = "removed all instances";
            set_terminating(&mut definition, "False", "InstanceDeletionCompleted", message, self.now());
            let draft = object::draft(&kind, definition).ok()?;
            let change = if kept.is_empty() { Change::Delete(draft) } else { Change::Put(draft) };
            match self.store().commit(stored.key.clone(), Expect::At(stored.revision), change).await {
                Ok(last) => return Some(kept.is_empty().then_some(last.revision)),
                Err(CommitError::Conflict(_) | CommitError::Missing) => {}
                Err(CommitError::Closed) => return None,
                Err(error) => {
                    tracing::warn!(%error, key = %stored.key, "a deleted definition could not be let go");
                    return None;
                }
            }
        }
        None
    }
}

/// The definition is deleted, and its objects are yet to be.
fn waits_for_us(definition: &Value) -> bool {
    object::is_terminating(definition) && object::finalizers(definition).contains(&FINALIZER)
}

/// All that the kinds of a definition depend on, in short: a change of its status alone makes no object stale.
fn made_of(definition: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    crd::is_established(definition).hash(&mut hasher);
    for part in ["/metadata/uid", "/spec", "/status/acceptedNames"] {
        definition.pointer(part).map(Value::to_string).hash(&mut hasher);
    }
    hasher.finish()
}

/// The store's name of what the definition of this name defines.
fn resource_of(name: &str) -> String {
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    format!("{group}/{plural}")
}

/// The definition was settled, and got all that it asks for.
fn has_its_names(definition: &Value) -> bool {
    definition["status"]["acceptedNames"] == definition["spec"]["names"]
}

/// A kind to delete the objects of a definition by, also where none of its versions is served any
/// more. One that was never established has no objects.
fn stored_kind(mut definition: Value) -> Option<Arc<Kind>> {
    for version in definition["spec"]["versions"].as_array_mut().into_iter().flatten() {
        version["served"] = true.into();
    }
    crd::kinds_of(&definition).into_iter().next().map(Arc::new)
}

/// A definition that is deleted waits for its objects.
pub(crate) fn mark_terminating(definition: &mut Value, now: Timestamp) {
    let mut finalizers: Vec<String> = object::finalizers(definition).into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    object::set_finalizers(definition, &finalizers);
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will occur as soon as possible";
    set_terminating(definition, "True", "InstanceDeletionPending", message, now);
}

fn set_terminating(definition: &mut Value, status: &str, reason: &str, message: &str, now: Timestamp) {
    let condition = json!({
        "type": "Terminating",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": object::time(now),
    });
    object::set_condition(definition, condition);
}
