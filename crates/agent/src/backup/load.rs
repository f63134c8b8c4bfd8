//! Gives a dump to a server by the server's own client, as fast as the server takes it.
//!
//! A client reads a statement to its end, sends it, and waits; the server, too, is at one statement of a client at a
//! time. So the rows of a table are given by several clients, an `INSERT` to each in turn. Another gives everything
//! else.
//!
//! **Guarantees.** What is not rows is carried out in the order of the dump, after all rows before it and before all
//! rows behind it. The first `INSERT` of a table is done before the others begin: a server that finds a table empty may
//! lock it as a whole. The first statement that fails ends it.
//!
//! **Assumptions.** Those of [`digest`](super::digest), and that rows depend on nothing that was said before them but
//! [`SETTINGS`], which every dump begins with, [`HISTORY`], which changes no other rows, and `USE`; triggers and foreign
//! keys come behind them or are not looked at. Nobody else is at the server, so locks are left out: at some of them a
//! table would get partitions for the time that went by.

use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::process::{Child, ChildStdin, ChildStdout};
use std::thread::{self, JoinHandle};

use memchr::{memchr, memmem};

use super::digest::{DELIMITER, INSERT, USE};
use super::error::BackupError;
use super::tools::{Tools, complaint, enlarge, failure};

const LOCK: &[u8] = b"LOCK TABLES `";
const UNLOCK: &[u8] = b"UNLOCK TABLES;";
/// As much of a line as tells what it is.
const TELLING: usize = UNLOCK.len();
/// How an `INSERT` ends: text has no line's end in it.
const END: &[u8] = b";\n";

/// What rows depend on.
const SETTINGS: &[u8] =
    b"SET NAMES utf8mb4;\nSET time_zone = '+00:00', unique_checks = 0, foreign_key_checks = 0, \
    sql_mode = 'NO_AUTO_VALUE_ON_ZERO', sql_notes = 0;\n";

/// And what those depend on that say since when they held, and until when: before each table that has some.
const HISTORY: &[u8] = b"SET system_versioning_insert_history = 1;\n";

/// What a client is asked to say when it has done all that it was given.
const DONE: &str = "ballast has done it";

/// How many clients give rows.
const FEWEST: usize = 2;
const MOST: usize = 4;

/// A dump that is being given to a server.
pub(super) struct Load {
    split: Split,
    others: Client,
    rows: Vec<Client>,
    /// Which of them is given rows.
    turn: usize,
    /// Whether they are the first of their table.
    first: bool,
    /// Whether something that is not rows may not be done yet.
    unsettled: bool,
}

impl Load {
    pub(super) fn begin(tools: &Tools<'_>, history: bool) -> Result<Load, BackupError> {
        let number = thread::available_parallelism().map_or(FEWEST, usize::from).clamp(FEWEST, MOST);
        let mut rows = (0..number).map(|_| Client::start(tools)).collect::<Result<Vec<_>, _>>()?;
        let history = if history { HISTORY } else { b"" };
        rows.iter_mut().try_for_each(|client| client.give(SETTINGS).and_then(|()| client.give(history)))?;
        Ok(Load {
            split: Split::default(),
            others: Client::start(tools)?,
            rows,
            turn: 0,
            first: true,
            unsettled: false,
        })
    }

    /// Gives what comes next.
    pub(super) fn give(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        let mut split = std::mem::take(&mut self.split);
        let given = split.feed(bytes, |part| self.part(part));
        self.split = split;
        given
    }

    /// Waits until all of it is done.
    pub(super) fn finish(mut self) -> Result<(), BackupError> {
        let rest = std::mem::take(&mut self.split.held);
        self.part(Part::Other(&rest))?;
        self.rows.into_iter().chain([self.others]).try_for_each(Client::end)
    }

    fn part(&mut self, part: Part<'_>) -> Result<(), BackupError> {
        match part {
            Part::Other(bytes) => {
                self.rows.iter_mut().try_for_each(Client::wait)?;
                (self.first, self.unsettled) = (true, true);
                self.others.give(bytes)
            }
            Part::Use(line) => {
                self.part(Part::Other(line))?;
                self.settle()?;
                self.rows.iter_mut().try_for_each(|client| client.give(line))
            }
            Part::Rows(bytes) => {
                self.settle()?;
                self.rows[self.turn].give(bytes)
            }
            Part::RowsEnd => {
                let client = &mut self.rows[self.turn];
                client.wait()?;
                client.give(END)?;
                client.ask()?;
                if std::mem::take(&mut self.first) {
                    client.wait()?;
                }
                self.turn = (self.turn + 1) % self.rows.len();
                Ok(())
            }
        }
    }

    /// Waits until what is not rows is done.
    fn settle(&mut self) -> Result<(), BackupError> {
        if std::mem::take(&mut self.unsettled) {
            self.others.ask()?;
            self.others.wait()?;
        }
        Ok(())
    }
}

/// One of the server's clients.
struct Client {
    program: &'static str,
    child: Child,
    stdin: Option<BufWriter<ChildStdin>>,
    answers: BufReader<ChildStdout>,
    /// Whether it was asked to say when everything is done, and has not said so yet.
    owes: bool,
    words: Option<JoinHandle<String>>,
}

impl Client {
    fn start(tools: &Tools<'_>) -> Result<Client, BackupError> {
        let (program, mut child) = tools.start_client(&["--unbuffered"])?;
        let broken = || BackupError::Stream { program, error: io::ErrorKind::BrokenPipe.into() };
        let stdin = child.stdin.take().ok_or_else(broken)?;
        enlarge(&stdin);
        let answers = BufReader::new(child.stdout.take().ok_or_else(broken)?);
        let words = child.stderr.take().map(|stderr| thread::spawn(|| complaint(stderr)));
        Ok(Client { program, child, stdin: Some(BufWriter::new(stdin)), answers, owes: false, words })
    }

    fn give(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        let given =
            self.stdin.as_mut().map_or(Err(io::ErrorKind::BrokenPipe.into()), |stdin| stdin.write_all(bytes));
        given.map_err(|error| self.failed(error))
    }

    /// Asks to be told when everything is done.
    fn ask(&mut self) -> Result<(), BackupError> {
        self.give(format!("SELECT '{DONE}';\n").as_bytes())?;
        self.owes = true;
        let given = self.stdin.as_mut().map_or(Ok(()), |stdin| stdin.flush());
        given.map_err(|error| self.failed(error))
    }

    /// Waits until it has said so, if it was asked.
    fn wait(&mut self) -> Result<(), BackupError> {
        let mut line = String::new();
        while self.owes {
            line.clear();
            match self.answers.read_line(&mut line) {
                Ok(1..) => self.owes = line.trim_end() != DONE,
                Ok(0) => return Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(())
    }

    fn end(mut self) -> Result<(), BackupError> {
        let given = self.stdin.take().map_or(Ok(()), |mut stdin| stdin.flush());
        let ended = given.and_then(|()| self.child.wait());
        match ended {
            Ok(ended) if ended.success() => Ok(()),
            Ok(_) => Err(self.failed(io::ErrorKind::Other.into())),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// What it says itself, if it ended by itself.
    fn failed(&mut self, error: io::Error) -> BackupError {
        // What was not given yet is not wanted any more.
        if let Some(stdin) = self.stdin.take() {
            let (_stdin, _rest) = stdin.into_parts();
        }
        let said = self.words.take().and_then(|words| words.join().ok()).unwrap_or_default();
        match self.child.wait() {
            Ok(ended) if !ended.success() => failure(self.program, ended, &said),
            _ => BackupError::Stream { program: self.program, error },
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// A part of a dump.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    /// Some of an `INSERT`, without its end.
    Rows(&'a [u8]),
    /// The end of an `INSERT`.
    RowsEnd,
    /// A line that says which database what follows belongs to.
    Use(&'a [u8]),
    /// Some of everything else.
    Other(&'a [u8]),
}

/// Tells rows from everything else.
#[derive(Default)]
struct Split {
    at: At,
    /// The beginning of a line that is not known yet, a `USE`, or what may be the beginning of an end.
    held: Vec<u8>,
    /// Whether a routine's body may come by, which looks as anything may.
    body: bool,
}

#[derive(Default)]
enum At {
    #[default]
    Begin,
    Rows,
    Use,
    Lock,
    Other,
}

impl Split {
    fn feed<E>(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(Part<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            let line = memchr(b'\n', bytes).map(|end| end + 1);
            bytes = match self.at {
                At::Begin => {
                    let wanted = line.unwrap_or(bytes.len()).min(TELLING - self.held.len());
                    self.held.extend_from_slice(&bytes[..wanted]);
                    if self.held.len() == TELLING || self.held.ends_with(b"\n") {
                        self.tell(&mut take)?;
                    }
                    &bytes[wanted..]
                }
                At::Rows => self.rows(bytes, &mut take)?,
                At::Use | At::Lock | At::Other => {
                    let (part, rest) = bytes.split_at(line.unwrap_or(bytes.len()));
                    match self.at {
                        At::Use => self.held.extend_from_slice(part),
                        At::Lock => {}
                        _ => take(Part::Other(part))?,
                    }
                    if line.is_some() {
                        self.end_line(&mut take)?;
                    }
                    rest
                }
            };
        }
        Ok(())
    }

    /// What sort of line `held` begins.
    fn tell<E>(&mut self, take: &mut impl FnMut(Part<'_>) -> Result<(), E>) -> Result<(), E> {
        if let Some(delimiter) = self.held.strip_prefix(DELIMITER) {
            self.body = delimiter != END;
        }
        self.at = match &self.held {
            line if self.body || line.starts_with(DELIMITER) => At::Other,
            line if line.starts_with(INSERT) => At::Rows,
            line if line.starts_with(USE) => At::Use,
            line if line.starts_with(LOCK) || line.starts_with(UNLOCK) => At::Lock,
            _ => At::Other,
        };
        let whole = self.held.ends_with(b"\n");
        match self.at {
            At::Rows => take(Part::Rows(&std::mem::take(&mut self.held)))?,
            At::Other => take(Part::Other(&std::mem::take(&mut self.held)))?,
            At::Lock => self.held.clear(),
            At::Use | At::Begin => {}
        }
        if whole { self.end_line(take) } else { Ok(()) }
    }

    fn end_line<E>(&mut self, take: &mut impl FnMut(Part<'_>) -> Result<(), E>) -> Result<(), E> {
        match std::mem::take(&mut self.at) {
            At::Use => take(Part::Use(&std::mem::take(&mut self.held))),
            _ => Ok(()),
        }
    }

    fn rows<'a, E>(
        &mut self,
        bytes: &'a [u8],
        take: &mut impl FnMut(Part<'_>) -> Result<(), E>,
    ) -> Result<&'a [u8], E> {
        if !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            if let Some(rest) = bytes.strip_prefix(b"\n") {
                self.at = At::Begin;
                take(Part::RowsEnd)?;
                return Ok(rest);
            }
            take(Part::Rows(&held))?;
        }
        match memmem::find(bytes, END) {
            Some(end) => {
                take(Part::Rows(&bytes[..end]))?;
                self.at = At::Begin;
                take(Part::RowsEnd)?;
                Ok(&bytes[end + END.len()..])
            }
            None => {
                let (rows, held) = bytes.split_at(bytes.len() - usize::from(bytes.ends_with(b";")));
                self.held.extend_from_slice(held);
                take(Part::Rows(rows))?;
                Ok(&[])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a dump that comes in pieces of some length: who is given what.
    fn split(dump: &str, length: usize) -> String {
        let (mut split, mut said, mut last) = (Split::default(), String::new(), "");
        let mut take = |part: Part<'_>| {
            let (who, bytes) = match part {
                Part::Rows(bytes) => ("rows", bytes),
                Part::RowsEnd => ("end", &b""[..]),
                Part::Use(bytes) => ("use", bytes),
                Part::Other(bytes) => ("other", bytes),
            };
            if who != last && !(who == "rows" && bytes.is_empty()) {
                said.push_str(&format!("\n{who}: "));
                last = who;
            }
            said.push_str(&String::from_utf8_lossy(bytes).replace('\n', "|"));
            Ok::<_, ()>(())
        };
        dump.as_bytes().chunks(length).for_each(|piece| split.feed(piece, &mut take).unwrap());
        assert!(split.held.is_empty());
        said
    }

    #[test]
    fn rows_are_told_from_everything_else_however_a_dump_is_cut() {
        let dump = "-- MariaDB dump\n\nUSE `shop`;\nCREATE TABLE `t` (\n  `a` text\n);\nLOCK TABLES `t` WRITE;\n\
            INSERT INTO `t` VALUES\n(1,'a;b\\n;'),\n(2,';');\nINSERT INTO `t` VALUES (3,'x');\nUNLOCK TABLES;\n\
            DELIMITER ;;\nCREATE PROCEDURE p() BEGIN\nINSERT INTO `t` VALUES (4,'y');\nUSE `no`;\nLOCK TABLES `t` WRITE;\n\
            END ;;\nDELIMITER ;\nINSERT INTO `t` VALUES (5,'');\n-- Dump completed\n";
        let expected = "\nother: -- MariaDB dump||\nuse: USE `shop`;|\nother: CREATE TABLE `t` (|  `a` text|);|\n\
            rows: INSERT INTO `t` VALUES|(1,'a;b\\n;'),|(2,';')\nend: \nrows: INSERT INTO `t` VALUES (3,'x')\nend: \n\
            other: DELIMITER ;;|CREATE PROCEDURE p() BEGIN|INSERT INTO `t` VALUES (4,'y');|USE `no`;|LOCK TABLES `t` WRITE;|\
            END ;;|DELIMITER ;|\nrows: INSERT INTO `t` VALUES (5,'')\nend: \nother: -- Dump completed|";
        for length in (1..40).chain([dump.len()]) {
            assert_eq!(split(dump, length), expected, "in pieces of {length}");
        }
    }
}
