//! The entries of `metadata.managedFields`.

use std::fmt;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::fields::{FieldSet, FieldsV1Error};

/// How many managers that update are kept apart; the oldest beyond them become one.
const MAX_UPDATE_MANAGERS: usize = 10;

/// Whose name the updates beyond that go under.
const ANCIENT_CHANGES: &str = "ancient-changes";

/// How a manager came to own its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

impl Operation {
    /// The word in `managedFields[].operation`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why `metadata.managedFields` can't be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The list or one of its entries has another type.
    #[error("managed fields must be a list of entries")]
    NotAList,
    /// An entry was made by neither of the two ways.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// An entry has no version.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// An entry does not say how its fields are written.
    #[error("missing fieldsType in managed fields entry {0}")]
    MissingFieldsType(usize),
    /// An entry's fields are written in another way.
    #[error("invalid fieldsType {kind:?} in managed fields entry {index}")]
    FieldsType {
        /// Which way.
        kind: String,
        /// Which entry.
        index: usize,
    },
    /// An entry's fields can't be read.
    #[error("error decoding set: {0}")]
    Fields(#[from] FieldsV1Error),
}

/// What one manager owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
    pub(super) time: Option<String>,
    pub(super) set: FieldSet,
}

/// Who an entry belongs to. An applier is the same one whatever version it applies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner<'a> {
    pub(super) manager: &'a str,
    pub(super) operation: Operation,
    pub(super) api_version: &'a str,
    pub(super) subresource: &'a str,
}

impl Entry {
    fn is(&self, owner: Owner<'_>) -> bool {
        self.manager == owner.manager
            && self.operation == owner.operation
            && self.subresource == owner.subresource
            && (self.operation == Operation::Apply || self.api_version == owner.api_version)
    }

    fn owner(&self) -> Owner<'_> {
        Owner {
            manager: &self.manager,
            operation: self.operation,
            api_version: &self.api_version,
            subresource: &self.subresource,
        }
    }

    fn seconds(&self) -> i64 {
        self.time.as_deref().and_then(|t| t.parse::<Timestamp>().ok()).map_or(0, Timestamp::as_second)
    }
}

/// All entries of an object, each owner once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Entries(pub(super) Vec<Entry>);

/// Checks `metadata.managedFields`.
///
/// # Errors
///
/// When an entry can't be read.
pub fn validate(entries: &Value) -> Result<(), DecodeError> {
    Entries::decode(Some(entries)).map(drop)
}

impl Entries {
    pub(super) fn of(object: &Value) -> Result<Self, DecodeError> {
        Self::decode(object.get("metadata").and_then(|metadata| metadata.get("managedFields")))
    }

    fn decode(entries: Option<&Value>) -> Result<Self, DecodeError> {
        let list = match entries {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Array(list)) => list,
            Some(_) => return Err(DecodeError::NotAList),
        };
        let mut out = Self(Vec::with_capacity(list.len()));
        for (index, entry) in list.iter().enumerate() {
            let entry = decode(index, entry)?;
            match out.0.iter_mut().find(|other| other.is(entry.owner())) {
                Some(other) => *other = entry,
                None => out.0.push(entry),
            }
        }
        Ok(out)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, owner: Owner<'_>) -> Option<Entry> {
        let at = self.0.iter().position(|entry| entry.is(owner))?;
        Some(self.0.swap_remove(at))
    }

    /// Takes fields away from everyone, and entries away from those who have none left.
    pub(super) fn subtract(&mut self, sets: &[&FieldSet]) {
        self.0.retain_mut(|entry| {
            for set in sets {
                entry.set.subtract(set);
            }
            !entry.set.is_empty()
        });
    }

    /// Puts the oldest updates beyond [`MAX_UPDATE_MANAGERS`] together, one entry for each
    /// version.
    pub(super) fn cap_updates(&mut self) {
        let count =
            |entries: &Vec<Entry>| entries.iter().filter(|e| e.operation == Operation::Update).count();
        let mut updates = count(&self.0);
        if updates <= MAX_UPDATE_MANAGERS {
            return;
        }
        let (mut old, mut kept): (Vec<Entry>, Vec<Entry>) =
            std::mem::take(&mut self.0).into_iter().partition(|e| e.operation == Operation::Update);
        old.sort_by(|a, b| {
            (a.seconds(), &a.manager, &a.api_version, &a.subresource).cmp(&(
                b.seconds(),
                &b.manager,
                &b.api_version,
                &b.subresource,
            ))
        });
        // The first of a version stays as it is until a second one joins it.
        let mut buckets: Vec<Entry> = Vec::new();
        let mut rest = old.into_iter();
        while updates > MAX_UPDATE_MANAGERS {
            let Some(entry) = rest.next() else { break };
            match buckets.iter_mut().find(|bucket| bucket.api_version == entry.api_version) {
                Some(bucket) => {
                    if bucket.manager != ANCIENT_CHANGES || !bucket.subresource.is_empty() {
                        ANCIENT_CHANGES.clone_into(&mut bucket.manager);
                        bucket.subresource.clear();
                    }
                    bucket.set.union(entry.set);
                    bucket.time = entry.time;
                    updates -= 1;
                }
                None => buckets.push(entry),
            }
        }
        for entry in buckets.into_iter().chain(rest) {
            match kept.iter_mut().find(|other| other.is(entry.owner())) {
                Some(other) => {
                    other.set.union(entry.set);
                    other.time = entry.time;
                }
                None => kept.push(entry),
            }
        }
        self.0 = kept;
    }

    /// Writes the entries to `metadata.managedFields`, appliers first, then by time.
    pub(super) fn store(mut self, object: &mut Value) {
        self.0.sort_by(|a, b| {
            (a.operation, a.seconds(), &a.manager, &a.api_version, &a.subresource).cmp(&(
                b.operation,
                b.seconds(),
                &b.manager,
                &b.api_version,
                &b.subresource,
            ))
        });
        store(object, self.0.into_iter().map(encode).collect());
    }
}

/// Sets `metadata.managedFields`; an empty list is none at all.
pub(super) fn store(object: &mut Value, entries: Vec<Value>) {
    let Some(object) = object.as_object_mut() else { return };
    if entries.is_empty() {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        return;
    }
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }
}

/// Whether a person asks for the entries to be forgotten: `[]`, or one entry that is empty.
pub(super) fn is_reset(object: &Value) -> bool {
    let entries = object.get("metadata").and_then(|m| m.get("managedFields")).and_then(Value::as_array);
    match entries.map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(entry)]) => entry.values().all(|value| match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            _ => false,
        }),
        _ => false,
    }
}

pub(super) fn same_but_times(left: &[Value], right: &[Value]) -> bool {
    let others = |(name, _): &(&String, &Value)| name.as_str() != "time";
    left.len() == right.len()
        && left.iter().zip(right).all(|(left, right)| match (left.as_object(), right.as_object()) {
            (Some(left), Some(right)) => left.iter().filter(others).eq(right.iter().filter(others)),
            _ => left == right,
        })
}

/// A time as Kubernetes writes it, in whole seconds.
pub(super) fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn decode(index: usize, entry: &Value) -> Result<Entry, DecodeError> {
    let fields = entry.as_object().ok_or(DecodeError::NotAList)?;
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err(DecodeError::Operation),
    };
    if text("apiVersion").is_empty() {
        return Err(DecodeError::ApiVersion);
    }
    match text("fieldsType") {
        "FieldsV1" => {}
        "" => return Err(DecodeError::MissingFieldsType(index)),
        kind => return Err(DecodeError::FieldsType { kind: kind.to_owned(), index }),
    }
    let set = match fields.get("fieldsV1") {
        None | Some(Value::Null) => FieldSet::new(),
        Some(fields) => FieldSet::from_fields_v1(fields)?,
    };
    Ok(Entry {
        manager: text("manager").to_owned(),
        operation,
        api_version: text("apiVersion").to_owned(),
        subresource: text("subresource").to_owned(),
        time: fields.get("time").and_then(Value::as_str).map(str::to_owned),
        set,
    })
}

fn encode(entry: Entry) -> Value {
    let mut value = json!({
        "apiVersion": entry.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": entry.set.to_fields_v1(),
        "operation": entry.operation.as_str(),
    });
    if let Some(fields) = value.as_object_mut() {
        if !entry.manager.is_empty() {
            fields.insert("manager".to_owned(), Value::String(entry.manager));
        }
        if !entry.subresource.is_empty() {
            fields.insert("subresource".to_owned(), Value::String(entry.subresource));
        }
        if let Some(time) = entry.time {
            fields.insert("time".to_owned(), Value::String(time));
        }
    }
    value
}
