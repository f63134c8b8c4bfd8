//! Reads a dump as it goes by, and says what is in it: which tables, how many rows each, and a digest of them.
//!
//! **Guarantees.** The digest of a table is the sum of the hashes of its rows. So it depends neither on the order of
//! the rows, nor on how many of them an `INSERT` holds, nor on how the stream was cut into pieces; another byte in a row
//! makes another digest. What is no row and no comment is hashed in its order, as the definitions; the events apart
//! from them, because a server throws away those whose time has passed.
//!
//! **Assumptions.** The stream is what `mysqldump` and `mariadb-dump` write: text is escaped by backslashes and is no
//! longer than its line, every statement begins a line, and bodies of routines stand between two `DELIMITER`s. What is
//! not so is refused where it is seen; there is no way to prove it.
//!
//! **What it does not do.** It keeps nothing of what it reads, whatever the size of a row, and understands no SQL.

use std::collections::HashMap;

use memchr::{memchr, memchr2, memchr3, memmem};
use twox_hash::XxHash3_128;

use super::manifest::{Digest, Table};

pub(super) const INSERT: &[u8] = b"INSERT INTO `";
const CREATE: &[u8] = b"CREATE TABLE `";
pub(super) const USE: &[u8] = b"USE `";
pub(super) const DELIMITER: &[u8] = b"DELIMITER ";
const COMMENT: &[u8] = b"--";
/// The sections that hold events, and what follows them.
const EVENTS: &[u8] = b"-- Dumping events for database";
const ROUTINES: &[u8] = b"-- Dumping routines for database";
const NEXT_DATABASE: &[u8] = b"-- Current Database:";
/// What the line has in which a tool says what it is, and what ends that there.
const TOOL: &[u8] = b" dump";
const TOOL_ENDS: u8 = b',';
/// The last line of a dump that came to its end.
const COMPLETED: &[u8] = b"-- Dump completed";
/// The names of a table and of all its columns take no more.
const LONGEST_HEAD: usize = 2 << 20;

/// What is in a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    /// What wrote it, as it says itself: `MariaDB dump 10.19-11.8.6-MariaDB`.
    pub(crate) tool: String,
    /// In the order in which they came, as the tables.
    pub(crate) databases: Vec<String>,
    pub(crate) tables: Vec<Table>,
    pub(crate) definitions: Digest,
    pub(crate) events: Digest,
    pub(crate) bytes: u64,
}

/// Why a dump is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// It stops before its end.
    #[error("the dump stops after {0} bytes without the line that ends one")]
    Unended(u64),
    /// It was begun as a dump of nothing but bytes and UTF-8.
    #[error(
        "while it was dumped a column was made that is neither bytes nor in UTF-8; it is to be dumped again"
    )]
    Mixed,
    /// It was begun as a dump of tables that keep nothing of what their rows were.
    #[error("while it was dumped a table was made that keeps its history; it is to be dumped again")]
    History,
    /// Something that no dump has.
    #[error("the dump can't be understood near byte {0}: {1}")]
    Strange(u64, &'static str),
}

/// What is being read.
enum State {
    /// A line, of which `held` is the beginning.
    Line,
    /// The head of an `INSERT`, of which `held` is the beginning.
    Head,
    /// Between two rows.
    Between,
    /// A row, of which some was hashed already.
    Row(Box<XxHash3_128>),
    /// The end of the line after an `INSERT`.
    After,
}

/// Where in a row.
#[derive(Clone, Copy)]
enum Place {
    Bare { depth: u32 },
    Text { depth: u32 },
    Escaped { depth: u32 },
}

const ROW_BEGINS: Place = Place::Bare { depth: 0 };

/// A dump as far as it was read.
pub(crate) struct Reading {
    state: State,
    place: Place,
    held: Vec<u8>,
    /// The one that tables belong to.
    database: String,
    databases: Vec<String>,
    tables: Vec<Table>,
    known: HashMap<(String, String), usize>,
    /// The table that the rows belong to.
    current: usize,
    /// Whether a routine's body may come by, which looks as anything may.
    body: bool,
    in_events: bool,
    definitions: XxHash3_128,
    events: XxHash3_128,
    /// Whether the last line that was not empty ends a dump.
    completed: bool,
    tool: String,
    bytes: u64,
}

impl Reading {
    pub(crate) fn new() -> Reading {
        Reading {
            state: State::Line,
            place: ROW_BEGINS,
            held: Vec::new(),
            database: String::new(),
            databases: Vec::new(),
            tables: Vec::new(),
            known: HashMap::new(),
            current: 0,
            body: false,
            in_events: false,
            definitions: XxHash3_128::new(),
            events: XxHash3_128::new(),
            completed: false,
            tool: String::new(),
            bytes: 0,
        }
    }

    /// Reads what comes next.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), DigestError> {
        while !bytes.is_empty() {
            let before = bytes.len();
            bytes = match &mut self.state {
                State::Line => self.line(bytes),
                State::Head => self.head(bytes)?,
                State::Between => self.between(bytes)?,
                State::Row(_) => self.row(bytes),
                State::After => self.after(bytes)?,
            };
            self.bytes += (before - bytes.len()) as u64;
        }
        Ok(())
    }

    /// What was in it, if that was all.
    pub(crate) fn finish(mut self) -> Result<Contents, DigestError> {
        if !self.held.is_empty() && matches!(self.state, State::Line) {
            let last = std::mem::take(&mut self.held);
            self.whole_line(&last);
        }
        if !self.completed || self.body || !matches!(self.state, State::Line) {
            return Err(DigestError::Unended(self.bytes));
        }
        Ok(Contents {
            tool: self.tool,
            databases: self.databases,
            tables: self.tables,
            definitions: Digest(self.definitions.finish_128()),
            events: Digest(self.events.finish_128()),
            bytes: self.bytes,
        })
    }

    fn line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if !self.body && self.held.iter().chain(bytes).take(INSERT.len()).eq(INSERT) {
            self.state = State::Head;
            return bytes;
        }
        let Some(end) = memchr(b'\n', bytes) else {
            self.held.extend_from_slice(bytes);
            return &[];
        };
        if self.held.is_empty() {
            self.whole_line(&bytes[..end]);
        } else {
            let mut line = std::mem::take(&mut self.held);
            line.extend_from_slice(&bytes[..end]);
            self.whole_line(&line);
        }
        &bytes[end + 1..]
    }

    fn whole_line(&mut self, line: &[u8]) {
        if let Some(delimiter) = line.strip_prefix(DELIMITER) {
            self.body = delimiter != b";";
        } else if !self.body {
            if line.starts_with(COMMENT) {
                return self.comment(line);
            }
            if let Some((name, _)) = line.strip_prefix(USE).and_then(name) {
                if !self.databases.contains(&name) {
                    self.databases.push(name.clone());
                }
                self.database = name;
            } else if let Some((name, _)) = line.strip_prefix(CREATE).and_then(name) {
                self.table(name);
            }
        }
        if !line.is_empty() {
            self.completed = false;
        }
        let hash = if self.in_events { &mut self.events } else { &mut self.definitions };
        hash.write(line);
        hash.write(b"\n");
    }

    fn comment(&mut self, line: &[u8]) {
        self.completed = line.starts_with(COMPLETED);
        if self.tool.is_empty() && memmem::find(line, TOOL).is_some() {
            let end = memchr(TOOL_ENDS, line).unwrap_or(line.len());
            self.tool = String::from_utf8_lossy(&line[COMMENT.len()..end]).trim().to_owned();
        }
        if line.starts_with(EVENTS) {
            self.in_events = true;
        } else if line.starts_with(ROUTINES) || line.starts_with(NEXT_DATABASE) || self.completed {
            self.in_events = false;
        }
    }

    /// From the beginning of an `INSERT` to its first row.
    fn head<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], DigestError> {
        let before = self.held.len();
        let found = if before == 0 {
            insert(bytes)
        } else {
            self.held.extend_from_slice(&bytes[..bytes.len().min(LONGEST_HEAD)]);
            insert(&self.held)
        };
        match found {
            Ok(Some((table, end))) => {
                self.held.clear();
                self.current = self.table(table);
                self.state = State::Between;
                self.completed = false;
                Ok(&bytes[end - before..])
            }
            Ok(None) if self.held.len().max(bytes.len()) > LONGEST_HEAD => {
                Err(self.strange("an INSERT of no rows"))
            }
            Ok(None) => {
                if before == 0 {
                    self.held.extend_from_slice(bytes);
                }
                Ok(&[])
            }
            Err(what) => Err(self.strange(what)),
        }
    }

    /// From the end of a row to the beginning of the next.
    fn between<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], DigestError> {
        match bytes[0] {
            b',' | b'\n' | b' ' | b'\r' => Ok(&bytes[1..]),
            b';' => {
                self.state = State::After;
                Ok(&bytes[1..])
            }
            b'(' => Ok(self.rows(bytes)),
            _ => Err(self.strange("something that is no row between the rows of an INSERT")),
        }
    }

    /// As many rows as are whole, and the beginning of the next.
    fn rows<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        let table = &mut self.tables[self.current];
        let (mut rows, mut sum) = (table.rows, table.digest.0);
        while bytes.first() == Some(&b'(') {
            let mut place = ROW_BEGINS;
            let Some(end) = row_end(bytes, &mut place) else {
                let mut hash = Box::new(XxHash3_128::new());
                hash.write(bytes);
                self.place = place;
                self.state = State::Row(hash);
                bytes = &[];
                break;
            };
            rows += 1;
            sum = sum.wrapping_add(XxHash3_128::oneshot(&bytes[..end]));
            bytes = &bytes[end..];
            if let [b',', b'(', ..] = bytes {
                bytes = &bytes[1..];
            } else if let [b',', b'\n', b'(', ..] = bytes {
                bytes = &bytes[2..];
            }
        }
        (table.rows, table.digest) = (rows, Digest(sum));
        bytes
    }

    /// More of a row that was cut.
    fn row<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let State::Row(hash) = &mut self.state else { return bytes };
        let end = row_end(bytes, &mut self.place);
        let (row, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        hash.write(row);
        if end.is_some() {
            let table = &mut self.tables[self.current];
            table.rows += 1;
            table.digest.0 = table.digest.0.wrapping_add(hash.finish_128());
            self.state = State::Between;
        }
        rest
    }

    fn after<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], DigestError> {
        match bytes[0] {
            b'\r' => {}
            b'\n' => self.state = State::Line,
            _ => return Err(self.strange("something behind an INSERT on its line")),
        }
        Ok(&bytes[1..])
    }

    fn table(&mut self, name: String) -> usize {
        let key = (self.database.clone(), name);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let place = self.tables.len();
        let (database, name) = key.clone();
        self.tables.push(Table { database, name, rows: 0, digest: Digest(0) });
        self.known.insert(key, place);
        place
    }

    fn strange(&self, what: &'static str) -> DigestError {
        DigestError::Strange(self.bytes, what)
    }
}

/// Where a row ends, if it does; otherwise how far it went.
fn row_end(bytes: &[u8], place: &mut Place) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        match *place {
            Place::Bare { depth } => {
                at += soon(rest, |byte| matches!(byte, b'\'' | b'(' | b')'))
                    .or_else(|| memchr3(b'\'', b'(', b')', rest))?;
                let byte = bytes[at];
                at += 1;
                match byte {
                    b'\'' => *place = Place::Text { depth },
                    b'(' => *place = Place::Bare { depth: depth + 1 },
                    _ if depth <= 1 => return Some(at),
                    _ => *place = Place::Bare { depth: depth - 1 },
                }
            }
            Place::Text { depth } => {
                at += soon(rest, |byte| matches!(byte, b'\'' | b'\\'))
                    .or_else(|| memchr2(b'\'', b'\\', rest))?;
                *place = if bytes[at] == b'\'' { Place::Bare { depth } } else { Place::Escaped { depth } };
                at += 1;
            }
            Place::Escaped { depth } => {
                rest.first()?;
                at += 1;
                *place = Place::Text { depth };
            }
        }
    }
}

/// Looks where most values end, before a search that is quick but takes a while to begin.
#[inline(always)]
fn soon(bytes: &[u8], wanted: impl Fn(u8) -> bool) -> Option<usize> {
    bytes.iter().take(12).position(|byte| wanted(*byte))
}

/// The table and the length of an `INSERT` up to its first row; nothing where that is still to come.
fn insert(bytes: &[u8]) -> Result<Option<(String, usize)>, &'static str> {
    let Some((table, mut at)) = bytes.get(INSERT.len()..).and_then(name) else { return Ok(None) };
    at += INSERT.len();
    // Where some columns are computed, the others are named.
    let mut columns = false;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        match rest.first() {
            None => return Ok(None),
            Some(b'(') if !columns => columns = true,
            Some(b' ' | b',' | b')' | b'\n' | b'\r') => {}
            Some(b'`') if columns => match name(&rest[1..]) {
                None => return Ok(None),
                Some((_, length)) => at += length,
            },
            // What the server calls these columns of a table that keeps its history is not quoted.
            Some(b'r') if columns => match rest.iter().position(|byte| !matches!(byte, b'a'..=b'z' | b'_')) {
                None => return Ok(None),
                Some(end) if [&b"row_start"[..], b"row_end"].contains(&&rest[..end]) => at += end - 1,
                Some(_) => return Err("an INSERT without VALUES"),
            },
            Some(b'V') if rest.len() >= 6 => {
                let values = rest.strip_prefix(b"VALUES").ok_or("an INSERT without VALUES")?;
                let space = values.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                return match values.get(space) {
                    None => Ok(None),
                    Some(b'(') => Ok(Some((table, at + 6 + space))),
                    Some(_) => Err("an INSERT without rows"),
                };
            }
            Some(b'V') => return Ok(None),
            Some(_) => return Err("an INSERT without VALUES"),
        }
        at += 1;
    }
}

/// The name whose quote was opened, and how long it is with the quote that ends it.
fn name(bytes: &[u8]) -> Option<(String, usize)> {
    let mut read = Vec::new();
    let mut at = 0;
    loop {
        let length = memchr(b'`', bytes.get(at..)?)?;
        read.extend_from_slice(&bytes[at..at + length]);
        at += length + 1;
        match bytes.get(at) {
            Some(b'`') => read.push(b'`'),
            Some(_) => return Some((String::from_utf8_lossy(&read).into_owned(), at)),
            // It may be doubled by what comes next.
            None => return None,
        }
        at += 1;
    }
}

#[cfg(test)]
#[path = "digest_tests.rs"]
mod tests;
