//! What is known of a backup: its manifest, a line of JSON in a file beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::digest::Contents;
use crate::flavour::Flavour;
use crate::version::Version;

/// What this writer understands.
const FORMAT: u32 = 1;

/// A digest, printed as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(pub(crate) u128);

/// How a dump writes what is neither number nor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Wording {
    /// Text letter by letter, and bytes in digits.
    #[default]
    InLetters,
    /// As the server keeps it.
    AsKept,
}

impl Wording {
    fn is_in_letters(&self) -> bool {
        *self == Wording::InLetters
    }
}

/// Accounts (`user@host`; a role's host is empty), and the databases in which something is carried out in their names.
pub type Definers = BTreeMap<String, BTreeSet<String>>;

/// A table in a dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// The database that it is in.
    pub database: String,
    /// Its name.
    pub name: String,
    /// How many rows.
    pub rows: u64,
    /// The sum of the XXH3-128 hashes of the rows, as the dump writes them.
    pub digest: Digest,
}

/// What a backup holds, and how to know it. It is written as it is read, to the byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    format: u32,
    /// The name of the file.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// The SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
    /// The size of the dump in it.
    pub content_bytes: u64,
    /// When it was begun.
    pub began: Timestamp,
    /// How long it took, with the proof.
    pub milliseconds: u64,
    /// Which server it was taken from.
    pub flavour: Flavour,
    /// And which version.
    pub version: Version,
    /// What wrote the dump, as it says itself; an image may have another than its server is. Older manifests don't say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tool: String,
    /// How the dump is written; another digest is comparable only of one that is written the same.
    #[serde(default, skip_serializing_if = "Wording::is_in_letters")]
    pub wording: Wording,
    /// Whether what rows were is in the dump too, since there are tables that keep that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub history: bool,
    /// The accounts in whose names views, routines, triggers and events are carried out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub definers: Definers,
    /// The databases.
    pub databases: Vec<String>,
    /// Everything but rows and events: tables, views, routines, triggers.
    pub definitions: Digest,
    /// The events.
    pub events: Digest,
    /// The tables.
    pub tables: Vec<Table>,
}

/// Why a manifest is none.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is not what was once written.
    #[error("its SHA-256 is {found}, not {wanted}")]
    Other {
        /// What it is.
        found: String,
        /// What it should be.
        wanted: String,
    },
    /// It can't be read as one.
    #[error("it is no manifest")]
    Unreadable(#[from] serde_json::Error),
    /// A later version of Ballast wrote it.
    #[error("it has format {0}, which this version of Ballast does not know")]
    Format(u32),
}

/// What was seen of a backup once it is there; the rest is in what was read.
pub(crate) struct Taken {
    pub(crate) file: String,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
    pub(crate) began: Timestamp,
    pub(crate) milliseconds: u64,
    pub(crate) flavour: Flavour,
    pub(crate) version: Version,
    pub(crate) wording: Wording,
    pub(crate) history: bool,
    pub(crate) definers: Definers,
}

impl Manifest {
    pub(crate) fn new(taken: Taken, contents: Contents) -> Manifest {
        let Taken { file, bytes, sha256, began, milliseconds, flavour, version, wording, history, definers } =
            taken;
        let Contents { tool, databases, tables, definitions, events, bytes: content_bytes } = contents;
        Manifest {
            format: FORMAT,
            file,
            bytes,
            sha256,
            content_bytes,
            began,
            milliseconds,
            flavour,
            version,
            tool,
            wording,
            history,
            definers,
            databases,
            definitions,
            events,
            tables,
        }
    }

    /// The line of JSON that is the file.
    pub fn line(&self) -> String {
        // Names and numbers: there is nothing in it that JSON can't say.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a line, which is to have this SHA-256 where one is known.
    ///
    /// # Errors
    /// When it is not what was once written.
    pub fn read(line: &[u8], sha256: Option<&str>) -> Result<Manifest, ManifestError> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let found = sha256_of(line);
        if let Some(wanted) = sha256.filter(|wanted| !wanted.eq_ignore_ascii_case(&found)) {
            return Err(ManifestError::Other { found, wanted: wanted.to_owned() });
        }
        match serde_json::from_slice::<Format>(line)?.format {
            FORMAT => Ok(serde_json::from_slice(line)?),
            other => Err(ManifestError::Format(other)),
        }
    }

    /// The SHA-256 of that line.
    pub fn own_sha256(&self) -> String {
        sha256_of(self.line().as_bytes())
    }

    /// The rows of all tables.
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.rows).sum()
    }

    /// Whether definitions look here as they do in a dump of a server of this version: they look different when either
    /// the server or the tool is another.
    pub(crate) fn is_worded_as(&self, found: &Contents, version: &Version) -> bool {
        self.version == *version && !self.tool.is_empty() && self.tool == found.tool
    }

    /// The first thing in which a dump differs from what is written here. Definitions are compared where they look the
    /// same.
    pub(crate) fn difference(&self, found: &Contents, definitions: bool) -> Option<String> {
        let mut others: Vec<&Table> = found.tables.iter().collect();
        for table in &self.tables {
            let Table { database, name, rows, .. } = table;
            let place = others.iter().position(|other| other.database == *database && other.name == *name);
            match place.map(|place| others.swap_remove(place)) {
                None => return Some(format!("the table {name:?} of {database:?} is missing")),
                Some(other) if other.rows != *rows => {
                    return Some(format!(
                        "the table {name:?} of {database:?} has {} rows instead of {rows}",
                        other.rows
                    ));
                }
                Some(other) if other.digest != table.digest => {
                    return Some(format!("the rows of the table {name:?} of {database:?} are others"));
                }
                Some(_) => {}
            }
        }
        if let Some(Table { database, name, .. }) = others.first() {
            return Some(format!("there is a table {name:?} of {database:?} that was not there"));
        }
        if definitions && self.definitions != found.definitions {
            return Some("the definitions of tables, views, routines or triggers are others".to_owned());
        }
        None
    }
}

/// The SHA-256 in hexadecimal digits.
pub(crate) fn sha256_of(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Digest, String> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = u128::from_str_radix(&text, 16).ok().filter(|_| digits);
        value.map(Digest).ok_or_else(|| format!("{text:?} is no digest"))
    }
}
