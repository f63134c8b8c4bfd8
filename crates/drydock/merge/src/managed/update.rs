//! Writes that are not applies.

use std::sync::LazyLock;

use drydock_schema::Schema;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    UNKNOWN_MANAGER,
    blank::blank,
    entries::{self, Entries, Entry, Operation, Owner},
};
use crate::{
    fields::FieldSet,
    node::Node,
    typed::{self, TypeErrors},
};

/// Fields that are the system's, whoever writes them.
static SYSTEM_FIELDS: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::of_names(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "clusterName"],
        &["metadata", "creationTimestamp"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "resourceVersion"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
    ])
});

/// A create, a replace, or a patch that is not an apply, as it is about to be stored.
#[derive(Debug)]
pub struct Update<'a> {
    /// The kind's schema.
    pub schema: &'a Schema,
    /// What is stored; nothing when this is a create.
    pub live: Option<&'a Value>,
    /// What is to be stored. Its `managedFields` are what the writer sent.
    pub new: Value,
    /// Who writes. Where the request does not say, the client's name.
    pub manager: &'a str,
    /// The version of the kind that was written.
    pub api_version: &'a str,
    /// The subresource that was written, if any.
    pub subresource: Option<&'a str>,
    /// When.
    pub now: Timestamp,
    /// Fields that this endpoint does not write, e.g. `status` for the main resource.
    pub ignore: &'a FieldSet,
}

/// The new object with its `managedFields` as they are after this write.
///
/// The fields that changed become the writer's and nobody else's; fields that went are nobody's.
/// The writer's time moves only if it took a field. An object that is not managed (its entries
/// were reset) stays so until it is applied.
#[must_use]
pub fn update(update: Update<'_>) -> Value {
    let Update { schema, live, mut new, manager, api_version, subresource, now, ignore } = update;
    let mut entries = starting_entries(live, &new, subresource);
    entries::store(&mut new, Vec::new());
    if entries.is_empty() && live.is_some() {
        return new;
    }
    let write = Write {
        node: Node::root(schema),
        owner: Owner {
            manager: if manager.is_empty() { UNKNOWN_MANAGER } else { manager },
            operation: Operation::Update,
            api_version,
            subresource: subresource.unwrap_or_default(),
        },
        now,
        ignore,
    };
    let recorded = match live {
        Some(live) => write.record(&mut entries, live, &new),
        None => write.record(&mut entries, &blank(schema), &new),
    };
    match recorded {
        Ok(()) => {
            entries.cap_updates();
            entries.store(&mut new);
            new
        }
        // An object that can't be compared can't be managed. Kubernetes, too, stores it so.
        Err(_) => new,
    }
}

/// The entries that this write starts from: those that were sent, if they can be read and are
/// any, because that is how entries are edited; otherwise those of the live object.
fn starting_entries(live: Option<&Value>, new: &Value, subresource: Option<&str>) -> Entries {
    let stored = || live.map(|live| Entries::of(live).unwrap_or_default()).unwrap_or_default();
    if subresource.is_some_and(|s| !s.is_empty()) {
        return stored();
    }
    if entries::is_reset(new) {
        return Entries::default();
    }
    match Entries::of(new) {
        Ok(entries) if !entries.is_empty() => entries,
        _ => stored(),
    }
}

/// Who writes what, when.
pub(super) struct Write<'a> {
    pub(super) node: Node<'a>,
    pub(super) owner: Owner<'a>,
    pub(super) now: Timestamp,
    pub(super) ignore: &'a FieldSet,
}

impl Write<'_> {
    /// Makes the difference between two versions the writer's.
    pub(super) fn record(&self, entries: &mut Entries, live: &Value, new: &Value) -> Result<(), TypeErrors> {
        for entry in &mut entries.0 {
            typed::reconcile(self.node, &mut entry.set);
        }
        let changes = typed::compare(self.node, live, new)?.without(self.ignore);
        entries.subtract(&[&changes.modified, &changes.added, &changes.removed]);
        let mut taken = changes.modified;
        taken.union(changes.added);
        strip_system_fields(&mut taken);
        if taken.is_empty() {
            return Ok(());
        }
        let mut set = entries.take(self.owner).map(|entry| entry.set).unwrap_or_default();
        set.union(taken);
        entries.0.push(Entry {
            manager: self.owner.manager.to_owned(),
            operation: self.owner.operation,
            api_version: self.owner.api_version.to_owned(),
            subresource: self.owner.subresource.to_owned(),
            time: Some(entries::time(self.now)),
            set,
        });
        Ok(())
    }
}

pub(super) fn strip_system_fields(set: &mut FieldSet) {
    set.subtract(&SYSTEM_FIELDS);
}
