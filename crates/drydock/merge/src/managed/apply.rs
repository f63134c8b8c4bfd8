//! Server-side apply.

use drydock_schema::Schema;
use jiff::Timestamp;
use serde_json::{Map, Value};
use thiserror::Error;

use super::{
    UNKNOWN_MANAGER,
    blank::blank,
    conflict::{self, Conflict},
    entries::{self, DecodeError, Entries, Entry, Operation, Owner},
    last_applied, same_but_entries,
    update::{Write, strip_system_fields},
};
use crate::{
    fields::FieldSet,
    node::Node,
    typed::{self, TypeErrors},
    value,
};

/// Who owned the fields of an object before it was first applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// A manager's opinion on an object, about to be merged into it.
#[derive(Debug, Clone, Copy)]
pub struct Apply<'a> {
    /// The kind's schema.
    pub schema: &'a Schema,
    /// What is stored; nothing when the apply creates the object.
    pub live: Option<&'a Value>,
    /// What was sent.
    pub applied: &'a Value,
    /// Who applies.
    pub manager: &'a str,
    /// The version of the kind that this endpoint serves.
    pub api_version: &'a str,
    /// The subresource that is applied to, if any.
    pub subresource: Option<&'a str>,
    /// Whether fields that others own are taken.
    pub force: bool,
    /// When.
    pub now: Timestamp,
    /// Fields that this endpoint does not write, e.g. `status` for the main resource.
    pub ignore: &'a FieldSet,
}

/// Why an object can't be applied. `Display` is the message Kubernetes gives.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ApplyError {
    /// Others own fields with other values (409, reason `Conflict`).
    #[error("{}", conflict::message(.0))]
    Conflicts(Vec<Conflict>),
    /// The request is no apply of this kind (400, reason `BadRequest`).
    #[error("{0}")]
    BadRequest(String),
    /// What was applied does not have the types of the schema (500, no reason).
    #[error("failed to create typed patch object ({object}): {errors}")]
    Invalid {
        /// Which object: `ns/name; apps/v1, Kind=Deployment`.
        object: String,
        /// What is wrong, a line for each.
        errors: String,
    },
    /// What is stored does not have the types of the schema (500, no reason).
    #[error("failed to create typed live object ({object}): {errors}")]
    InvalidLive {
        /// Which object.
        object: String,
        /// What is wrong, a line for each.
        errors: String,
    },
    /// The entries of the stored object can't be read (500, no reason).
    #[error("failed to decode managed fields: {0}")]
    ManagedFields(#[from] DecodeError),
}

/// Merges what was applied into the live object.
///
/// The result has its `managedFields` set. An apply that changes nothing returns an object that
/// is equal to the live one.
///
/// # Errors
///
/// On conflicts, unless `force` is set; and where the applied object is not of the schema's
/// types or not of this kind.
pub fn apply(apply: Apply<'_>) -> Result<Value, ApplyError> {
    let entries = match apply.live {
        Some(live) => Entries::of(live)?,
        None => Entries::default(),
    };
    check_request(&apply)?;
    let node = Node::root(apply.schema);
    typed::validate(node, apply.applied).map_err(|errors| ApplyError::Invalid {
        object: describe(apply.applied),
        errors: errors.to_string(),
    })?;
    let nothing = Value::Object(Map::new());
    let run = Run { apply: &apply, node, live: apply.live.unwrap_or(&nothing) };
    run.perform(entries)
}

struct Run<'a> {
    apply: &'a Apply<'a>,
    node: Node<'a>,
    live: &'a Value,
}

impl Run<'_> {
    fn perform(&self, mut entries: Entries) -> Result<Value, ApplyError> {
        if entries.is_empty() && self.apply.live.is_some() {
            let write = Write {
                node: self.node,
                owner: Owner { manager: BEFORE_FIRST_APPLY, ..self.owner(Operation::Update) },
                now: self.apply.now,
                ignore: self.apply.ignore,
            };
            write
                .record(&mut entries, &blank(self.apply.schema), self.live)
                .map_err(|e| self.invalid_live(&e))?;
        }
        for entry in &mut entries.0 {
            typed::reconcile(self.node, &mut entry.set);
        }

        let mut merged = typed::merge(self.node, self.live, self.apply.applied)
            .map_err(|errors| self.invalid_live(&errors))?;
        let mut set = typed::field_set(self.node, self.apply.applied);
        set.subtract_trees(self.apply.ignore);
        let last = entries.take(self.owner(Operation::Apply));
        if let Some(last) = &last {
            self.prune(&mut merged, &last.set, &set, &entries);
        }
        self.take_over(&mut entries, &merged)?;

        let changed = !same_but_entries(self.live, &merged, value::equal);
        strip_system_fields(&mut set);
        if !set.is_empty() {
            let before = last.and_then(|entry| entry.time);
            entries.0.push(Entry {
                manager: self.manager().to_owned(),
                operation: Operation::Apply,
                api_version: self.apply.api_version.to_owned(),
                subresource: self.apply.subresource.unwrap_or_default().to_owned(),
                time: if changed { Some(entries::time(self.apply.now)) } else { before },
                set,
            });
        }
        let mut object = if changed { merged } else { self.live.clone() };
        if self.apply.manager == last_applied::KUBECTL {
            last_applied::refresh(&mut object, self.apply.applied);
        }
        entries.store(&mut object);
        Ok(object)
    }

    /// Removes what this manager applied last time and not this time, unless another owns it.
    fn prune(&self, merged: &mut Value, last: &FieldSet, set: &FieldSet, others: &Entries) {
        if last.is_subset(set) {
            return;
        }
        let last = last.with_declared_parents(self.node);
        let all = typed::field_set(self.node, merged).with_declared_parents(self.node);

        // First without anything of last time, then with what someone owns put back: a parent
        // may have gone although a child is owned.
        let mut pruned = merged.clone();
        typed::remove(self.node, &mut pruned, &last);
        let mut keep = typed::field_set(self.node, &pruned);
        keep.union(set.clone());
        for entry in &others.0 {
            keep.union(entry.set.clone());
        }
        let mut gone = all.clone();
        gone.subtract(&keep.with_declared_parents(self.node));
        pruned.clone_from(merged);
        typed::remove(self.node, &mut pruned, &gone);

        // And of that only what really was this manager's.
        let mut gone = all;
        gone.subtract(&typed::field_set(self.node, &pruned).with_declared_parents(self.node));
        typed::remove(self.node, merged, &gone.intersection(&last));
    }

    /// Takes what changes away from the other managers, or says whose it is.
    fn take_over(&self, entries: &mut Entries, merged: &Value) -> Result<(), ApplyError> {
        let changes = typed::compare(self.node, self.live, merged)
            .map_err(|errors| self.invalid_live(&errors))?
            .without(self.apply.ignore);
        if !self.apply.force {
            let mut written = changes.modified.clone();
            written.union(changes.added.clone());
            let conflicts = conflicts(entries, &written);
            if !conflicts.is_empty() {
                let allowed = (self.apply.manager == last_applied::KUBECTL)
                    .then(|| last_applied::allowed(self.node, self.live, self.apply.api_version))
                    .flatten();
                let left: Vec<Conflict> = match allowed {
                    Some(allowed) => conflicts.into_iter().filter(|c| !allowed.contains(&c.path.0)).collect(),
                    None => conflicts,
                };
                if !left.is_empty() {
                    return Err(ApplyError::Conflicts(left));
                }
            }
        }
        entries.subtract(&[&changes.modified, &changes.added, &changes.removed]);
        Ok(())
    }

    fn manager(&self) -> &str {
        if self.apply.manager.is_empty() { UNKNOWN_MANAGER } else { self.apply.manager }
    }

    fn owner(&self, operation: Operation) -> Owner<'_> {
        Owner {
            manager: self.manager(),
            operation,
            api_version: self.apply.api_version,
            subresource: self.apply.subresource.unwrap_or_default(),
        }
    }

    fn invalid_live(&self, errors: &TypeErrors) -> ApplyError {
        ApplyError::InvalidLive { object: describe(self.live), errors: errors.to_string() }
    }
}

fn conflicts(entries: &Entries, written: &FieldSet) -> Vec<Conflict> {
    let mut conflicts: Vec<Conflict> = entries
        .0
        .iter()
        .flat_map(|entry| {
            entry.set.intersection(written).paths().into_iter().map(|path| Conflict {
                manager: entry.manager.clone(),
                operation: entry.operation,
                api_version: entry.api_version.clone(),
                subresource: (!entry.subresource.is_empty()).then(|| entry.subresource.clone()),
                time: entry.time.clone(),
                path,
            })
        })
        .collect();
    // The sort is stable: the paths of one manager keep their order.
    conflicts.sort_by(|a, b| {
        (&a.manager, a.operation, &a.api_version, &a.subresource).cmp(&(
            &b.manager,
            b.operation,
            &b.api_version,
            &b.subresource,
        ))
    });
    conflicts
}

fn check_request(apply: &Apply<'_>) -> Result<(), ApplyError> {
    let text = |object: &Value, name| object.get(name).and_then(Value::as_str).map(str::to_owned);
    let kind = text(apply.applied, "kind");
    let other_kind =
        apply.live.and_then(|live| text(live, "kind")).is_some_and(|live| kind.as_ref() != Some(&live));
    if text(apply.applied, "apiVersion").as_deref() != Some(apply.api_version) || other_kind {
        return Err(ApplyError::BadRequest(format!("invalid object type: {}", describe_kind(apply.applied))));
    }
    match apply.applied.get("metadata").and_then(|metadata| metadata.get("managedFields")) {
        Some(Value::Array(_)) => Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned())),
        _ => Ok(()),
    }
}

/// `namespace/name; group/version, Kind=Kind`.
fn describe(object: &Value) -> String {
    let metadata = object.get("metadata");
    let text = |name| metadata.and_then(|m| m.get(name)).and_then(Value::as_str).unwrap_or_default();
    format!("{}/{}; {}", text("namespace"), text("name"), describe_kind(object))
}

fn describe_kind(object: &Value) -> String {
    let text = |name| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let version = text("apiVersion");
    let group_version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
    format!("{group_version}, Kind={}", text("kind"))
}
