//! The data file and its index.
//!
//! One line per type, four columns split by tabs:
//!
//! 1. the name of the definition, `io.k8s.api.apps.v1.Deployment`;
//! 2. the kinds it serves, `group/version/Kind` split by commas; `*/*/Kind` when every group has it;
//! 3. its protobuf fields, `[[number, JSON name, type, flags], …]`, where a type with a dot is
//!    another line's name and the flags are `r`epeated, `m`ap with string keys, `p`ointer in Go,
//!    `o`mitted from JSON when empty, also when it is an empty struct (`z`), `i`nlined into its
//!    parent, `a` the message is a plain list;
//! 4. its OpenAPI v2 definition, word for word, with the defaults that only v3 has.
//!
//! The file is plain text because a reader touches only the lines it needs: building the index is
//! one pass for newlines, and a definition is parsed when it is first asked for.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, OnceLock},
};

use super::fields::Message;
use crate::Schema;

const DATA: &str = include_str!("../../data/kubernetes.tsv");

/// One built-in type.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) kinds: &'static str,
    pub(crate) fields: &'static str,
    pub(crate) openapi: &'static str,
    pub(super) schema: OnceLock<Option<Arc<Schema>>>,
    message: OnceLock<Message>,
}

pub(crate) struct Table {
    /// In the order of their names.
    pub(super) entries: Vec<Entry>,
    kinds: HashMap<&'static str, usize>,
}

pub(crate) static TABLE: LazyLock<Table> = LazyLock::new(|| Table::read(DATA));

impl Table {
    fn read(text: &'static str) -> Self {
        let mut entries: Vec<Entry> = text.lines().filter_map(Entry::read).collect();
        entries.sort_unstable_by_key(|entry| entry.name);
        let mut kinds = HashMap::new();
        for (index, entry) in entries.iter().enumerate() {
            for kind in entry.kinds.split(',').filter(|kind| !kind.is_empty()) {
                kinds.insert(kind, index);
            }
        }
        Self { entries, kinds }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Entry> {
        let index = self.entries.binary_search_by(|entry| entry.name.cmp(name)).ok()?;
        self.entries.get(index)
    }

    pub(crate) fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Entry> {
        let index = self
            .kinds
            .get(format!("{group}/{version}/{kind}").as_str())
            .or_else(|| self.kinds.get(format!("*/*/{kind}").as_str()))?;
        self.entries.get(*index)
    }
}

impl Entry {
    /// The fields of the type, read on first use.
    pub(crate) fn message(&self) -> &Message {
        self.message.get_or_init(|| Message::read(self.fields))
    }

    fn read(line: &'static str) -> Option<Self> {
        let mut columns = line.splitn(4, '\t');
        Some(Self {
            name: columns.next()?,
            kinds: columns.next()?,
            fields: columns.next()?,
            openapi: columns.next()?,
            schema: OnceLock::new(),
            message: OnceLock::new(),
        })
    }
}
