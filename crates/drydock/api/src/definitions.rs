//! Custom resource definitions come to life and end.
//!
//! A definition that is written is settled at once: its names are accepted or not, and what it
//! defines is served before the writer has its answer. A definition that is deleted first takes its
//! objects with it, however long their finalizers hold them.
//!
//! **Always holds:** what the registry serves is what the store's established definitions say, also
//! after a start from a snapshot or a directory.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use drydock_kinds::{Kind, crd};
use drydock_store::{Change, CommitError, Expect, Key, Page, Range, Revision, Stored};
use futures::StreamExt;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    Api, auth,
    object::{self, meta},
};

pub(crate) const GROUP: &str = "apiextensions.k8s.io";
pub(crate) const PLURAL: &str = "customresourcedefinitions";
const RESOURCE: &str = "apiextensions.k8s.io/customresourcedefinitions";
const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// How often the status of a definition is written again when somebody else was faster.
const ATTEMPTS: usize = 16;

/// Since which revision objects of a resource are written by the schema it has now.
#[derive(Debug, Default)]
pub(crate) struct Installed(Mutex<BTreeMap<String, (Revision, u64)>>);

impl Installed {
    /// Objects of `resource` that were written later were defaulted by the present schema.
    pub fn since(&self, resource: &str) -> Option<Revision> {
        self.0.lock().get(resource).map(|(revision, _)| *revision)
    }
}

impl Api {
    /// Serves what the definitions in the store define, and goes on with those that were ending.
    pub(crate) fn restore_definitions(&self) {
        for definition in auth::all(self.store(), RESOURCE) {
            self.install(&definition);
            if object::is_terminating(&definition) {
                self.end(&definition);
            }
        }
    }

    /// A definition was written.
    pub(crate) async fn definition_written(&self, kind: &Kind, stored: &Arc<Stored>) {
        let Ok(definition) = object::read_stored(stored) else { return };
        let settled = self.settle(kind, stored, definition).await;
        self.install(&settled);
        if object::is_terminating(&settled) {
            self.end(&settled);
        }
    }

    /// A definition is gone.
    pub(crate) fn definition_removed(&self, stored: &Stored) {
        self.registry().uninstall(&stored.key.name);
        if let Ok(definition) = object::read_stored(stored) {
            self.installed().0.lock().remove(&resource_of(&definition));
        }
    }

    /// Serves what a definition defines. A change of its status alone makes no object stale.
    fn install(&self, definition: &Value) {
        self.registry().install(definition);
        let mut hasher = DefaultHasher::new();
        definition["spec"].to_string().hash(&mut hasher);
        let specification = hasher.finish();
        let version = meta(definition, "resourceVersion").parse().map_or(self.store().revision(), Revision);
        let mut installed = self.installed().0.lock();
        let own = installed.entry(resource_of(definition)).or_insert((version, specification));
        if own.1 != specification {
            *own = (version, specification);
        }
    }

    /// Decides about the names of a definition, and writes what was decided.
    async fn settle(&self, kind: &Kind, stored: &Arc<Stored>, mut definition: Value) -> Value {
        let mut stored = stored.clone();
        for _ in 0..ATTEMPTS {
            let before = definition.clone();
            let others = auth::all(self.store(), RESOURCE);
            crd::settle(&mut definition, others.iter(), self.now());
            if definition == before {
                break;
            }
            let Ok(draft) = object::draft(kind, definition.clone()) else { break };
            let expect = Expect::At(stored.revision);
            match self.store().commit(stored.key.clone(), expect, Change::Put(draft)).await {
                Ok(_) => break,
                Err(CommitError::Conflict(newer)) => {
                    let Ok(read) = object::read_stored(&newer) else { break };
                    (stored, definition) = (newer, read);
                }
                Err(_) => break,
            }
        }
        definition
    }

    /// Takes the objects of a deleted definition away, then the definition.
    fn end(&self, definition: &Value) {
        let name = meta(definition, "name").to_owned();
        if !self.ending().lock().insert(name.clone()) {
            return;
        }
        let (api, definition) = (self.clone(), definition.clone());
        tokio::spawn(async move {
            api.clean_up(&definition).await;
            api.ending().lock().remove(&name);
        });
    }

    async fn clean_up(&self, definition: &Value) {
        if !object::finalizers(definition).contains(&FINALIZER) {
            return;
        }
        let resource = resource_of(definition);
        let range = Range { resource: resource.as_str().into(), namespace: None };
        let Ok(mut watch) = self.store().watch(range.clone(), self.store().revision()) else { return };
        if let Some(kind) = self.any_kind(definition) {
            let items = self.store().list(&range, Page::default()).map(|l| l.items).unwrap_or_default();
            for item in items {
                self.delete_as_system(&kind, &item).await;
            }
        }
        while self.store().list(&range, Page::default()).is_ok_and(|listing| !listing.items.is_empty()) {
            if !matches!(watch.next().await, Some(Ok(_))) {
                return;
            }
        }
        self.release_definition(meta(definition, "name")).await;
    }

    /// The definition of a custom kind is being deleted.
    pub(crate) fn is_ending(&self, kind: &Kind) -> bool {
        self.ending().lock().contains(&kind.qualified_plural())
    }

    fn any_kind(&self, definition: &Value) -> Option<Arc<Kind>> {
        let group = definition["spec"]["group"].as_str()?;
        let plural = definition["spec"]["names"]["plural"].as_str()?;
        let versions = definition["spec"]["versions"].as_array()?;
        versions.iter().find_map(|version| self.registry().find(group, version["name"].as_str()?, plural))
    }

    /// Takes our finalizer off a definition, and with the last one the definition away.
    async fn release_definition(&self, name: &str) {
        let Some(kind) = self.registry().find(GROUP, "v1", PLURAL) else { return };
        let key = Key::new(RESOURCE, "", name);
        for _ in 0..ATTEMPTS {
            let Some(stored) = self.store().get(&key) else { return };
            let Ok(mut definition) = object::read_stored(&stored) else { return };
            let kept: Vec<String> = object::finalizers(&definition)
                .into_iter()
                .filter(|finalizer| *finalizer != FINALIZER)
                .map(str::to_owned)
                .collect();
            object::set_finalizers(&mut definition, &kept);
            let message = "removed all instances";
            set_terminating(&mut definition, "False", "InstanceDeletionCompleted", message, self.now());
            let Ok(draft) = object::draft(&kind, definition) else { return };
            let change = if kept.is_empty() { Change::Delete(draft) } else { Change::Put(draft) };
            match self.store().commit(key.clone(), Expect::At(stored.revision), change).await {
                Ok(stored) if kept.is_empty() => return self.definition_removed(&stored),
                Err(CommitError::Conflict(_)) => {}
                _ => return,
            }
        }
    }
}

/// The store's name of what a definition defines.
fn resource_of(definition: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text(&definition["spec"]["group"]), text(&definition["spec"]["names"]["plural"]))
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
