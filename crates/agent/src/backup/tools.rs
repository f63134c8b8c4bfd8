//! The programs that a server comes with: its client and what dumps it.
//!
//! **What always holds.** They are told who and where by a [`Login`]. What people call things is quoted.

use std::ffi::OsString;
use std::io::{self, Cursor, Read, Write as _};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;

use memchr::memmem;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::Signal;

use super::digest::DigestError;
use super::error::BackupError;
use super::login::{Connection, Login};
use super::manifest::{Definers, Wording};
use super::stop::Stop;
use crate::flavour::Flavour;
use crate::process::{Ended, ProcessError};
use crate::version::Version;

/// The longest complaint that is repeated, from its end.
const LONGEST_COMPLAINT: usize = 2048;
/// How much of what a tool writes waits for us, so that it seldom has to.
const PIPE: i32 = 1 << 20;

/// What the tools of a flavour are called, and what only they understand.
pub(super) struct Dialect {
    pub(super) client: &'static str,
    dump: &'static str,
    dump_arguments: &'static [&'static str],
    /// Whether the tool writes what it is to write as it is kept so that a column of text takes it.
    as_kept: bool,
    /// Whether the server has tables that keep what their rows were.
    history: bool,
}

/// What both understand. Everything is in the dump, and as of one moment.
const DUMP_ARGUMENTS: [&str; 6] =
    ["--routines", "--triggers", "--events", "--quick", "--max-allowed-packet=1G", "--comments"];
/// In letters that survive, whatever they are kept in, and what are none in digits.
const IN_LETTERS: [&str; 2] = ["--hex-blob", "--default-character-set=utf8mb4"];
/// As it is kept. Where text is in UTF-8, none of it is another byte, but for the line that says so; and a tool that need
/// not look for the end of each letter takes half the time. Bytes are no letters then, and a server takes them so: in
/// UTF-8 no quote is part of anything else.
const AS_KEPT: [&str; 1] = ["--default-character-set=binary"];
const SAYS_AS_KEPT: &[u8] = b"\n/*!40101 SET NAMES binary */;\n";
const SAYS_UTF8: &[u8] = b"\n/*!40101 SET NAMES utf8mb4 */;\n";
/// Where in a dump that line is at the latest.
const LONGEST_HEAD: usize = 64 << 10;
/// What looks the same however it is asked for, what is kept in an encoding, and what is bytes.
const NUMBERS: &str = "'tinyint', 'smallint', 'mediumint', 'int', 'bigint', 'decimal', 'float', 'double', 'year', \
    'date', 'time', 'datetime', 'timestamp'";
const LETTERS: &str = "'char', 'varchar', 'tinytext', 'text', 'mediumtext', 'longtext', 'enum', 'set'";
const BYTES: &str = "'binary', 'varbinary', 'tinyblob', 'blob', 'mediumblob', 'longblob'";
const UTF8: &str = "'utf8mb4', 'utf8mb3', 'utf8', 'ascii'";

/// What rows were, where a table keeps that. MariaDB's tool knows it since 10.11.
const WITH_HISTORY: &str = "--dump-history";
/// Who defined what is carried out in their names, whoever has it carried out.
const DEFINERS: &str = "SELECT definer, table_schema FROM information_schema.views WHERE security_type = 'DEFINER';\n\
    SELECT definer, routine_schema FROM information_schema.routines WHERE security_type = 'DEFINER';\n\
    SELECT definer, trigger_schema FROM information_schema.triggers;\n\
    SELECT definer, event_schema FROM information_schema.events;\n";

/// What to do where that can't be.
const ITS_HISTORY: &str = "a backup without it would not be whole. Copy it into a table of its own (SELECT … FROM … FOR \
    SYSTEM_TIME ALL), then take the versioning away (ALTER TABLE … DROP SYSTEM VERSIONING)";

/// For tables that know no transactions there is no other way to one moment than to let nobody write.
const ONE_MOMENT: &str = "--single-transaction";
const NOBODY_WRITES: &str = "--lock-all-tables";

/// Bytes arrive as they are, and nothing that they hold is a command to the client.
const CLIENT_ARGUMENTS: [&str; 6] = [
    "--batch",
    "--skip-column-names",
    "--binary-mode",
    "--default-character-set=utf8mb4",
    "--max-allowed-packet=1G",
    "--connect-timeout=10",
];

/// Whether a database does not belong to the server, which makes its own anew. No others are called as the first two,
/// in whatever letters; of the last a server before MariaDB 10.6 has none, and somebody may.
fn is_data(database: &str) -> String {
    format!(
        "NOT (LOWER({database}) IN ('information_schema', 'performance_schema') OR CAST({database} AS BINARY) = 'mysql' \
         OR CAST({database} AS BINARY) = 'sys' AND EXISTS (SELECT 1 FROM information_schema.tables own \
         WHERE own.table_schema = 'sys' AND own.table_name = 'sys_config'))"
    )
}

pub(super) fn dialect(flavour: Flavour) -> Result<Dialect, BackupError> {
    match flavour {
        Flavour::Mariadb => Ok(Dialect {
            client: "mariadb",
            dump: "mariadb-dump",
            // Later versions put each table into one transaction, whose length keeps the server that reads it busy.
            dump_arguments: &["--skip-no-autocommit"],
            as_kept: true,
            history: true,
        }),
        Flavour::Mysql => Ok(Dialect {
            client: "mysql",
            dump: "mysqldump",
            // Which transactions it holds is for replicas; where its tablespaces are is no part of the data.
            dump_arguments: &["--set-gtid-purged=OFF", "--no-tablespaces"],
            as_kept: false,
            history: false,
        }),
        Flavour::Postgres | Flavour::Etcd => {
            Err(BackupError::Refused(format!("there are no backups of {flavour} yet")))
        }
    }
}

/// A dump as it comes.
pub(super) type Dump = io::Chain<Cursor<Vec<u8>>, ChildStdout>;

/// The tools for one server.
pub(super) struct Tools<'a> {
    dialect: Dialect,
    flavour: Flavour,
    login: Login,
    stop: &'a Stop,
}

/// What a program is run with, and what becomes of its streams.
struct Streams<I, O> {
    input: Option<I>,
    output: O,
}

impl<'a> Tools<'a> {
    pub(super) fn new(connection: &Connection, stop: &'a Stop) -> Result<Tools<'a>, BackupError> {
        let (dialect, login) = (dialect(connection.flavour)?, Login::new(connection)?);
        Ok(Tools { dialect, flavour: connection.flavour, login, stop })
    }

    /// What the server is. It has to be what was asked for.
    pub(super) fn server(&self) -> Result<Version, BackupError> {
        let said = self.rows("SELECT VERSION();\n")?.concat().concat();
        let flavour = if said.contains("MariaDB") { Flavour::Mariadb } else { Flavour::Mysql };
        match Version::parse(&said) {
            Some(version) if flavour == self.flavour => Ok(version),
            _ => Err(BackupError::Server(format!(
                "the server is not {}: it says {said:?} of itself",
                self.flavour
            ))),
        }
    }

    /// The databases that are not the server's own.
    pub(super) fn databases(&self) -> Result<Vec<String>, BackupError> {
        let rows = self.rows(&format!(
            "SELECT schema_name FROM information_schema.schemata \
             WHERE {} ORDER BY schema_name;\n",
            is_data("schema_name")
        ))?;
        Ok(rows.concat())
    }

    /// Whether there is a table that knows no transactions.
    pub(super) fn untransactional(&self) -> Result<bool, BackupError> {
        let rows = self.rows(&format!(
            "SELECT 1 FROM information_schema.tables t JOIN information_schema.engines e ON t.engine = e.engine \
             WHERE t.table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND e.transactions <> 'YES' \
             AND {} LIMIT 1;\n",
            is_data("t.table_schema")
        ))?;
        Ok(!rows.is_empty())
    }

    /// As it is kept where all that the server holds is numbers, times, bytes and text in UTF-8; in letters otherwise. A
    /// column's default is text in any case, also one of bytes.
    pub(super) fn wording(&self) -> Result<Wording, BackupError> {
        if !self.dialect.as_kept {
            return Ok(Wording::InLetters);
        }
        let rows = self.rows(&format!(
            "SELECT COUNT(*) FROM information_schema.columns c WHERE {} AND NOT \
             (data_type IN ({NUMBERS}) OR data_type IN ({LETTERS}) AND character_set_name IN ({UTF8}) \
             OR data_type IN ({BYTES}) AND COALESCE(column_default, 'NULL') = 'NULL');\n",
            is_data("c.table_schema")
        ))?;
        Ok(if rows.concat() == ["0"] { Wording::AsKept } else { Wording::InLetters })
    }

    /// Whether there are tables in these databases that keep what their rows were, all of which can be dumped with them.
    /// One that can't is refused: a dump without it looks as whole as any.
    pub(super) fn history(&self, databases: &[String]) -> Result<bool, BackupError> {
        if !self.dialect.history {
            return Ok(false);
        }
        let rows = self.rows(&format!(
            "SELECT t.table_schema, t.table_name, c.data_type FROM information_schema.tables t \
             LEFT JOIN information_schema.columns c ON c.table_schema = t.table_schema AND c.table_name = t.table_name \
             AND c.generation_expression = 'ROW START' \
             WHERE t.table_type = 'SYSTEM VERSIONED' AND {};\n",
            is_data("t.table_schema")
        ))?;
        let mut found = None;
        for row in rows {
            let [database, name, by] = &row[..] else { continue };
            // A server may call one otherwise than whoever asked, but for that.
            if !databases.iter().any(|dumped| dumped.to_lowercase() == database.to_lowercase()) {
                continue;
            }
            let table = format!("the table {name:?} of {database:?} keeps its history");
            if by == "bigint" {
                return Err(BackupError::Refused(format!(
                    "{table} by numbers of transactions, which mean nothing to another server: {ITS_HISTORY}"
                )));
            }
            found = Some(table);
        }
        match found {
            Some(table) if !self.knows(WITH_HISTORY)? => Err(BackupError::Refused(format!(
                "{table}, which {} dumps from 10.11 on, and this version does not: {ITS_HISTORY}",
                self.dialect.dump
            ))),
            found => Ok(found.is_some()),
        }
    }

    /// The accounts in whose names something is carried out in these databases. What is carried out in the name of an
    /// account that is gone is not, here as elsewhere.
    pub(super) fn definers(&self, databases: &[String]) -> Result<Definers, BackupError> {
        let (rows, accounts) = (self.rows(DEFINERS)?, self.accounts()?);
        let mut definers = Definers::new();
        for row in rows {
            if let [account, database] = &row[..]
                && databases.contains(database)
                && accounts.contains(account)
            {
                definers.entry(account.clone()).or_default().insert(database.clone());
            }
        }
        Ok(definers)
    }

    /// All accounts and roles.
    pub(super) fn accounts(&self) -> Result<Vec<String>, BackupError> {
        Ok(self.rows("SELECT CONCAT(user, '@', host) FROM mysql.user;\n")?.concat())
    }

    /// Whether the tool that dumps has an option.
    fn knows(&self, option: &str) -> Result<bool, BackupError> {
        let output = |mut stdout: ChildStdout| {
            let mut help = Vec::new();
            stdout.read_to_end(&mut help).map_err(self.dump_broken())?;
            Ok(memmem::find(&help, option.as_bytes()).is_some())
        };
        let streams = Streams { input: None::<fn(ChildStdin) -> Result<(), BackupError>>, output };
        self.run(self.dialect.dump, &["--no-defaults".into(), "--help".into()], streams)
    }

    /// Dumps databases as of one moment. `take` gets the stream; it is heard first when both have something to say,
    /// unless it says only that the dump did not end.
    pub(super) fn dump<T: Send>(
        &self,
        databases: &[String],
        untransactional: bool,
        wording: Wording,
        history: bool,
        take: impl FnOnce(Dump) -> Result<T, BackupError>,
    ) -> Result<T, BackupError> {
        let mut arguments: Vec<OsString> = vec![self.login.option()];
        let words = match wording {
            Wording::AsKept => &AS_KEPT[..],
            Wording::InLetters => &IN_LETTERS,
        };
        arguments.extend(
            DUMP_ARGUMENTS.iter().chain(words).chain(self.dialect.dump_arguments).map(OsString::from),
        );
        arguments.extend(history.then(|| WITH_HISTORY.into()));
        arguments.push(if untransactional { NOBODY_WRITES } else { ONE_MOMENT }.into());
        arguments.push("--databases".into());
        // Behind this nothing is an option.
        arguments.push("--".into());
        arguments.extend(databases.iter().map(OsString::from));
        let output = |stdout: ChildStdout| match wording {
            Wording::AsKept => take(in_utf8(stdout, self.dump_broken())?),
            Wording::InLetters => take(Cursor::default().chain(stdout)),
        };
        let streams = Streams { input: None::<fn(ChildStdin) -> Result<(), BackupError>>, output };
        self.run(self.dialect.dump, &arguments, streams)
    }

    /// What a statement answers.
    pub(super) fn rows(&self, statement: &str) -> Result<Vec<Vec<String>>, BackupError> {
        let answer = self.client(None, |mut stdin| {
            stdin.write_all(statement.as_bytes()).map_err(|error| self.broken(self.dialect.client, error))
        })?;
        Ok(answer.lines().map(|line| line.split('\t').map(unescaped).collect()).collect())
    }

    /// Runs what `give` writes, in a database where one is given.
    pub(super) fn client(
        &self,
        database: Option<&str>,
        give: impl FnOnce(ChildStdin) -> Result<(), BackupError> + Send,
    ) -> Result<String, BackupError> {
        let mut arguments = self.client_arguments();
        if let Some(database) = database {
            arguments.push(format!("--database={database}").into());
        }
        let read = |mut stdout: ChildStdout| {
            let mut answer = Vec::new();
            stdout.read_to_end(&mut answer).map_err(|error| self.broken(self.dialect.client, error))?;
            Ok(String::from_utf8_lossy(&answer).into_owned())
        };
        let ran = self.run(self.dialect.client, &arguments, Streams { input: Some(give), output: read });
        ran.map_err(|error| match error {
            BackupError::Tool { program, ended, said } => {
                BackupError::Tool { program, ended, said: without_statement(&said) }
            }
            other => other,
        })
    }

    /// Starts a client that takes statements for as long as it is given some.
    pub(super) fn start_client(&self, more: &[&str]) -> Result<(&'static str, Child), BackupError> {
        let program = self.dialect.client;
        let mut arguments = self.client_arguments();
        arguments.extend(more.iter().map(OsString::from));
        Ok((program, self.start(program, &arguments, true)?))
    }

    fn client_arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec![self.login.option()];
        arguments.extend(CLIENT_ARGUMENTS.map(OsString::from));
        arguments
    }

    /// The stream of the tool that dumps broke off.
    pub(super) fn dump_broken(&self) -> impl Fn(io::Error) -> BackupError + Sync + use<> {
        let program = self.dialect.dump;
        move |error| BackupError::Stream { program, error }
    }

    pub(super) fn client_broken(&self, error: io::Error) -> BackupError {
        self.broken(self.dialect.client, error)
    }

    fn broken(&self, program: &'static str, error: io::Error) -> BackupError {
        BackupError::Stream { program, error }
    }

    fn start(
        &self,
        program: &'static str,
        arguments: &[OsString],
        input: bool,
    ) -> Result<Child, BackupError> {
        self.stop.check()?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(if input { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| ProcessError::Start { program: program.into(), error })?;
        self.stop.watch(&child);
        Ok(child)
    }

    fn run<T>(
        &self,
        program: &'static str,
        arguments: &[OsString],
        streams: Streams<
            impl FnOnce(ChildStdin) -> Result<(), BackupError> + Send,
            impl FnOnce(ChildStdout) -> Result<T, BackupError>,
        >,
    ) -> Result<T, BackupError> {
        let mut child = self.start(program, arguments, streams.input.is_some())?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        thread::scope(|scope| {
            let complaint = scope.spawn(|| stderr.map(complaint).unwrap_or_default());
            let given = scope.spawn(|| match (streams.input, stdin) {
                (Some(give), Some(stdin)) => give(stdin),
                _ => Ok(()),
            });
            let taken = match stdout {
                Some(stdout) => {
                    enlarge(&stdout);
                    (streams.output)(stdout)
                }
                None => Err(self.broken(program, io::ErrorKind::BrokenPipe.into())),
            };
            if taken.is_err() {
                // Nobody wants what it still has.
                let _ended = child.kill();
            }
            let ended = child.wait().map_err(|error| self.broken(program, error));
            let given =
                given.join().unwrap_or_else(|_| Err(self.broken(program, io::ErrorKind::Other.into())));
            let said = complaint.join().unwrap_or_default();
            self.stop.check()?;
            let failed = match ended? {
                ended if ended.success() => None,
                ended => Some(BackupError::Tool { program, ended: how(ended), said }),
            };
            let ours = taken.and_then(|taken| given.map(|()| taken));
            match (ours, failed) {
                // Who breaks off says itself why.
                (
                    Ok(_) | Err(BackupError::Stream { .. } | BackupError::Dump(DigestError::Unended(_))),
                    Some(failed),
                ) => Err(failed),
                (ours, _) => ours,
            }
        })
    }
}

/// Says of a dump that was asked for as it is kept what its text is in.
fn in_utf8<R: Read>(
    mut dump: R,
    broken: impl Fn(io::Error) -> BackupError,
) -> Result<io::Chain<Cursor<Vec<u8>>, R>, BackupError> {
    let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(at) = memmem::find(&head, SAYS_AS_KEPT) {
            head.splice(at..at + SAYS_AS_KEPT.len(), SAYS_UTF8.iter().copied());
            break;
        }
        if head.len() >= LONGEST_HEAD {
            return Err(DigestError::Strange(0, "it does not say what its letters are").into());
        }
        match dump.read(&mut buffer) {
            // The tool ended, and says why.
            Ok(0) => break,
            Ok(more) => head.extend_from_slice(&buffer[..more]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(broken(error)),
        }
    }
    Ok(Cursor::new(head).chain(dump))
}

/// Lets more wait in a pipe.
pub(super) fn enlarge(pipe: impl AsFd) {
    if let Err(error) = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(PIPE)) {
        tracing::debug!(%error, "the pipe stays small");
    }
}

/// What a client's end means, and what it said.
pub(super) fn failure(program: &'static str, status: ExitStatus, said: &str) -> BackupError {
    BackupError::Tool { program, ended: how(status), said: without_statement(said) }
}

pub(super) fn how(status: ExitStatus) -> Ended {
    let signal = status.signal().and_then(|signal| Signal::try_from(signal).ok());
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
    signal.map_or(Ended::Code(code), Ended::Signal)
}

/// What a program complains of, in one line, from its end if it is long.
pub(crate) fn complaint(mut from: impl Read) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        kept.extend_from_slice(&buffer[..length]);
        let surplus = kept.len().saturating_sub(LONGEST_COMPLAINT);
        kept.drain(..surplus);
    }
    let text = String::from_utf8_lossy(&kept).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

/// What a client says of a failure, but for the statement, which may hold a password, or somebody's data.
fn without_statement(said: &str) -> String {
    let (_, error) = said.split_at(said.rfind("ERROR ").unwrap_or(0));
    error.split(" near '").next().unwrap_or_default().to_owned()
}

/// A value as the client prints it.
fn unescaped(text: &str) -> String {
    let (mut read, mut letters) = (String::new(), text.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => read.extend(letters.next().map(|letter| match letter {
                'n' => '\n',
                't' => '\t',
                '0' => '\0',
                other => other,
            })),
            letter => read.push(letter),
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_that_failed_is_not_repeated() {
        let error = "ERROR 1064 (42000) at line 3: You have an error in your SQL syntax";
        for said in [
            format!("{error} near 'IDENTIFED BY 'secret'' at line 1"),
            format!(
                "--------------\nCREATE USER x IDENTIFED BY 'secret'\n--------------\n\n{error} near 'IDENTIFED'"
            ),
        ] {
            assert_eq!(without_statement(&complaint(said.as_bytes())), error);
        }
        assert_eq!(without_statement("mysql: unknown option"), "mysql: unknown option");
    }

    #[test]
    fn a_dump_of_what_is_kept_in_utf8_says_so() {
        let says = |head: &str| -> Result<String, String> {
            let broken = |error| BackupError::Stream { program: "mariadb-dump", error };
            let mut dump = in_utf8(head.as_bytes(), broken).map_err(|error| error.to_string())?;
            let mut read = String::new();
            dump.read_to_string(&mut read).unwrap();
            Ok(read)
        };
        let rows = "INSERT INTO `t` VALUES ('\n/*!40101 SET NAMES binary */;\n');\n".repeat(2000);
        let dump = |names| format!("-- MariaDB dump\n/*!40101 SET NAMES {names} */;\n{rows}");
        assert_eq!(says(&dump("binary")), Ok(dump("utf8mb4")), "and nothing else");
        assert_eq!(says(""), Ok(String::new()), "why is for the tool to say");
        let unsaid = says(&dump("latin1").replace("\n/", "")).unwrap_err();
        assert!(unsaid.contains("what its letters are"), "{unsaid}");
    }

    #[test]
    fn a_long_complaint_is_kept_from_its_end() {
        let said = format!("{}\n\nmariadb-dump: Got error: 1412\n", "warning\n".repeat(5000));
        let kept = complaint(said.as_bytes());
        assert!(kept.len() < 3000 && kept.ends_with("; warning; mariadb-dump: Got error: 1412"), "{kept}");
    }

    #[test]
    fn what_a_client_prints_is_read_as_it_was() {
        assert_eq!(unescaped("a\\tb\\n\\\\c"), "a\tb\n\\c");
    }
}
