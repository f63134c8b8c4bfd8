//! Makes a volume's data from a backup, and proves it.
//!
//! A server is prepared as ever, in a directory beside; it runs there for itself, without a network, reads the dump,
//! and is dumped once more. Only data that holds what the backup held gets the name under which a server looks for its
//! data. Killed at any moment, the next one throws away what was half made, or finds that all is done.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::definers;
use super::digest::{Contents as Dumped, Reading};
use super::dump::stream;
use super::error::{BackupError, on};
use super::load::Load;
use super::login::{Address, Connection};
use super::manifest::Manifest;
use super::pieces::{PIECE, fill};
use super::server::Server;
use super::stop::Stop;
use super::tools::Tools;
use super::verify::{Known, read, usable};
use crate::prepare::{Contents, steps};
use crate::process::Signals;
use crate::run::{Checked, NotPrepared, Run, carry_out, check, which};
use crate::sql::mysql_name;
use crate::status::nearly_full;
use crate::version::Version;
use crate::volume::{Found, Marker, Volume};

/// What is in the data that came from a backup.
const RECORD: &str = "ballast-restored.json";

/// A volume to be filled.
#[derive(Debug)]
pub struct Restore {
    /// The server that is to run on it, as it will be asked for.
    pub run: Run,
    /// The backup.
    pub file: PathBuf,
    /// What is known of it.
    pub known: Known,
}

/// What was restored.
#[derive(Debug)]
pub struct Restored {
    /// What it holds.
    pub manifest: Manifest,
    /// What wrote it last.
    pub version: Version,
    /// How long it took.
    pub took: Duration,
    /// Whether it had been done before.
    pub before: bool,
    /// Whether all its events are there; a server throws away those whose time has passed.
    pub events: bool,
}

/// Which backup some data came from.
#[derive(Serialize, Deserialize)]
struct Record {
    manifest_sha256: String,
    events: bool,
}

/// Fills a volume from a backup.
///
/// # Errors
/// There is no data on the volume, or what there was before, and why.
pub fn restore(restore: Restore, signals: &Signals) -> Result<Restored, BackupError> {
    let began = Instant::now();
    let Restore { run, file, known } = restore;
    let checked = check(run)?;
    let version = which(checked.run.flavour)?;
    // Nobody removes it meanwhile.
    let held = File::open(&file).map_err(on("can't read", file.clone()))?;
    held.lock_shared().map_err(on("can't lock", file.clone()))?;
    let manifest = Stop::guard(signals, |stop| usable(&file, &known, stop))?;
    fits(&manifest, &checked, &version)?;
    let marker = Marker::new(checked.run.flavour, version.clone(), None);
    let volume = Volume::open(&checked.run.volume)?;
    let wanted = manifest.own_sha256();
    // What is there already was perhaps opened by another version meanwhile: its marker stays as it is.
    let (marker, record, before) = match volume.look()? {
        Found::Data(held) => (held, recorded(&volume.data(), &wanted)?, true),
        Found::Nothing => {
            knows_today(&version, &manifest)?;
            let mut events = true;
            volume.prepare(&marker, |data| {
                let contents = checked.contents.as_ref();
                let steps = steps(marker.flavour, data, &checked.run.arguments, contents);
                steps.iter().try_for_each(|step| carry_out(step, marker.flavour, data, signals))?;
                let job =
                    Job { data, checked: &checked, file: &file, manifest: &manifest, version: &version };
                events = Stop::guard(signals, |stop| job.fill(stop)).map_err(|error| room(error, data))?;
                let record = Record { manifest_sha256: wanted.clone(), events };
                let path = data.join(RECORD);
                let line = serde_json::to_vec(&record).map_err(io::Error::from);
                line.and_then(|line| fs::write(&path, line)).map_err(on("can't write", path))
            })?;
            (marker, Record { manifest_sha256: wanted, events }, false)
        }
    };
    volume.confirm(&marker)?;
    let (version, took) = (marker.version, began.elapsed());
    Ok(Restored { manifest, version, took, before, events: record.events })
}

/// What goes wrong for want of room goes wrong in many ways. It is looked at before what was half made goes.
fn room(error: BackupError, data: &Path) -> BackupError {
    match nearly_full(data) {
        Some(full) if !error.is_final() => BackupError::Room { full, error: Box::new(error) },
        _ => error,
    }
}

/// Whether this server can be given that backup.
fn fits(manifest: &Manifest, checked: &Checked, version: &Version) -> Result<(), BackupError> {
    let flavour = checked.run.flavour;
    let refused = |what| Err(BackupError::Refused(what));
    if manifest.flavour != flavour {
        return refused(format!("the backup is one of {}, which {flavour} can't read", manifest.flavour));
    }
    if version.against(&manifest.version, flavour.series()).is_lt() {
        return refused(format!(
            "the backup is one of {flavour} {}, and {version} is older: take that version, or a later one",
            manifest.version
        ));
    }
    match checked.contents.as_ref().and_then(Contents::database) {
        Some(name) if !manifest.databases.iter().any(|held| held == name) => {
            let held = manifest.databases.join(", ");
            refused(format!("the backup holds no database {name:?}; it holds {held}: name one of those"))
        }
        _ => Ok(()),
    }
}

/// Whether this server knows which of the rows that were dumped with their past hold today: those that are kept as holding
/// until the end of time, which is in 2106 for MariaDB from 11.5 on, and before that in 2038.
fn knows_today(version: &Version, manifest: &Manifest) -> Result<(), BackupError> {
    let ends_later = |version: &Version| Version::parse("11.5").is_some_and(|from| *version >= from);
    if manifest.history && ends_later(version) && !ends_later(&manifest.version) {
        return Err(BackupError::Refused(format!(
            "the backup holds what rows of {} {} were, and {version} would take all of them for rows of the past: \
             take the version that it is of, and upgrade then",
            manifest.flavour, manifest.version
        )));
    }
    Ok(())
}

/// What is there came from this backup, or is left alone.
fn recorded(data: &Path, wanted: &str) -> Result<Record, BackupError> {
    let read = fs::read(data.join(RECORD)).ok();
    match read.and_then(|line| serde_json::from_slice::<Record>(&line).ok()) {
        Some(record) if record.manifest_sha256 == wanted => Ok(record),
        _ => Err(BackupError::Refused(format!(
            "{data:?} holds data already, and it did not come from this backup: give an empty volume"
        ))),
    }
}

/// Data to be filled.
struct Job<'a> {
    data: &'a Path,
    checked: &'a Checked,
    file: &'a Path,
    manifest: &'a Manifest,
    version: &'a Version,
}

impl Job<'_> {
    /// Runs a server on the data until it holds what it should. Says whether that includes the events.
    fn fill(&self, stop: &Stop) -> Result<bool, BackupError> {
        let run = &self.checked.run;
        let server = Server::start(run.flavour, self.data, &run.arguments, stop)?;
        let password = self.checked.contents.as_ref().map(|contents| contents.superuser().clone());
        let password = password.ok_or_else(|| BackupError::Refused("no password for root".to_owned()))?;
        let address = Address::Socket(server.socket().to_owned());
        let connection = Connection { flavour: run.flavour, address, user: "root".to_owned(), password };
        let tools = Tools::new(&connection, stop)?;
        let definers = definers::stand_in(&self.manifest.definers, &tools)?;
        self.load(&tools, stop)?;
        let Manifest { databases, wording, history, .. } = self.manifest;
        let found = stream(&tools, databases, *wording, *history, |stdout| digest(stdout, &tools))?;
        let definitions = self.manifest.is_worded_as(&found, self.version);
        if let Some(what) = self.manifest.difference(&found, definitions) {
            return Err(BackupError::Differs(what));
        }
        definers::confine(&definers, &tools)?;
        server.end()?;
        Ok(found.events == self.manifest.events)
    }

    fn load(&self, tools: &Tools<'_>, stop: &Stop) -> Result<(), BackupError> {
        // The dump makes them, as they were.
        let names = self.manifest.databases.iter();
        let gone: String =
            names.map(|name| format!("DROP DATABASE IF EXISTS {};\n", mysql_name(name))).collect();
        tools.rows(&gone)?;
        let file = File::open(self.file).map_err(on("can't read", self.file))?;
        let mut load = Load::begin(tools, self.manifest.history)?;
        let bytes = read(file, self.file, stop, |piece| load.give(piece))?;
        if bytes.sha256 != self.manifest.sha256 {
            let what = "it is not what it was a moment ago".to_owned();
            return Err(BackupError::Damaged { path: self.file.to_owned(), what });
        }
        load.finish()
    }
}

/// What a dump holds that nobody keeps.
fn digest(mut dump: impl Read, tools: &Tools<'_>) -> Result<Dumped, BackupError> {
    let (mut reading, mut piece) = (Reading::new(), vec![0; PIECE]);
    loop {
        match fill(&mut dump, &mut piece).map_err(tools.dump_broken())? {
            0 => return Ok(reading.finish()?),
            length => reading.feed(&piece[..length])?,
        }
    }
}

impl From<NotPrepared> for BackupError {
    fn from(why: NotPrepared) -> BackupError {
        match why {
            NotPrepared::Stopped(signal) => BackupError::Stopped(signal),
            NotPrepared::Failed(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flavour::Flavour;
    use crate::prepare::Database;
    use crate::secret;

    fn manifest(flavour: &str, version: &str) -> Manifest {
        let digest = "0".repeat(32);
        let line = format!(
            r#"{{"format":1,"file":"f","bytes":1,"sha256":"","contentBytes":1,"began":"2026-01-01T00:00:00Z","milliseconds":1,"flavour":"{flavour}","version":"{version}","databases":["shop","other"],"definitions":"{digest}","events":"{digest}","tables":[]}}"#
        );
        Manifest::read(line.as_bytes(), None).unwrap()
    }

    fn asked(flavour: Flavour, database: &str) -> Checked {
        let database = Database { name: database.into(), user: "u".into(), password: secret::of("p") };
        let contents = Contents::new(flavour, secret::of("r"), Some(database)).unwrap();
        let run = Run {
            flavour,
            volume: "/v".into(),
            superuser: None,
            database: None,
            member: None,
            upgrade: false,
            listen: None,
            arguments: Vec::new(),
        };
        Checked { run, contents: Some(contents) }
    }

    #[test]
    fn a_backup_is_given_to_the_same_server_of_the_same_age_or_younger() {
        for (held, runs, database, expected) in [
            (("mariadb", "10.11.19"), (Flavour::Mariadb, "11.8.6"), "shop", None),
            (("mariadb", "11.8.6"), (Flavour::Mariadb, "11.8.3"), "other", None),
            (
                ("mariadb", "11.8.6"),
                (Flavour::Mariadb, "10.11.19"),
                "shop",
                Some(
                    "the backup is one of MariaDB 11.8.6, and 10.11.19 is older: take that version, or a later one",
                ),
            ),
            (
                ("mariadb", "11.8.6"),
                (Flavour::Mysql, "9.7.4"),
                "shop",
                Some("the backup is one of MariaDB, which MySQL can't read"),
            ),
            (
                ("mysql", "9.7.4"),
                (Flavour::Mysql, "9.7.4"),
                "shops",
                Some("the backup holds no database \"shops\"; it holds shop, other: name one of those"),
            ),
        ] {
            let version = Version::parse(runs.1).unwrap();
            let fits = fits(&manifest(held.0, held.1), &asked(runs.0, database), &version);
            assert_eq!(fits.map_err(|error| error.to_string()).err().as_deref(), expected);
        }
    }

    #[test]
    fn what_rows_were_is_not_given_to_a_server_for_which_time_ends_later() {
        for (held, runs, refused) in [
            ("10.11.19", "10.11.21", false),
            ("10.11.19", "11.4.9", false),
            ("10.11.19", "11.5.2", true),
            ("11.4.9", "12.0.2", true),
            ("11.5.2", "11.8.6", false),
        ] {
            let mut history = manifest("mariadb", held);
            history.history = true;
            let version = Version::parse(runs).unwrap();
            assert_eq!(knows_today(&version, &history).is_err(), refused, "{held} to {runs}");
            assert!(
                knows_today(&version, &manifest("mariadb", held)).is_ok(),
                "nothing of the past is in it"
            );
        }
    }

    #[test]
    fn definitions_are_compared_where_the_same_server_and_the_same_tool_wrote_them() {
        let found = |tool: &str| {
            let dump =
                format!("-- MariaDB dump 10.19-{tool}, for Linux\nCREATE VIEW v;\n-- Dump completed\n");
            let mut reading = Reading::new();
            reading.feed(dump.as_bytes()).unwrap();
            reading.finish().unwrap()
        };
        let mut held = manifest("mariadb", "11.8.6");
        let compared = |held: &Manifest, version, tool| {
            held.is_worded_as(&found(tool), &Version::parse(version).unwrap())
        };
        assert!(!compared(&held, "11.8.6", "11.8.6"), "an older manifest does not say");
        held.tool = found("11.8.6").tool;
        assert!(compared(&held, "11.8.6", "11.8.6"));
        assert!(!compared(&held, "11.8.8", "11.8.6") && !compared(&held, "11.8.6", "11.8.8"));
        assert_eq!(Manifest::read(held.line().as_bytes(), None).unwrap().tool, held.tool);
        assert!(held.difference(&found("11.8.6"), true).unwrap().starts_with("the definitions"));
        assert_eq!(held.difference(&found("11.8.8"), false), None);
    }

    #[test]
    fn data_that_came_from_elsewhere_is_left_alone() {
        let data = tempfile::tempdir().unwrap();
        assert!(recorded(data.path(), "ab").is_err());
        fs::write(data.path().join(RECORD), r#"{"manifest_sha256":"ab","events":false}"#).unwrap();
        assert!(!recorded(data.path(), "ab").unwrap().events);
        let error = recorded(data.path(), "cd").err().unwrap();
        assert_eq!(error.reason(), "Refused");
    }
}
