//! Backups, scripts and what is in an image, each a container that runs once and says in its termination message what came of it:
//! `{"ok":true,…}`, or `{"ok":false,"reason":"OneWord","message":"…"}`.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use ballast_agent::backup::{Address, BackupError, Connection, Dump, Known, Manifest, Ran, Restore, Script};
use ballast_agent::{Flavour, Secret, Signals};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::arguments::{BackupCommand, KnownArguments, ServerArguments};
use super::{leave, request};
use crate::arguments::LogArguments;
use crate::configuration::Environment;
use crate::failure::{Explain as _, Failure};
use crate::logging;
use crate::terminal::{Colour, print};

/// The longest explanation: with everything else it fits into a termination message, however it is escaped.
const LONGEST: usize = 1000;

/// How it ends where another try would only come to the same end. The operator's Jobs are not tried again then.
const FINAL: u8 = 3;

/// Does what was typed.
pub(super) fn backup(command: BackupCommand, environment: &Environment) -> Result<ExitCode, Failure> {
    // Before any thread is there.
    let signals = Signals::hold().what("nothing was begun")?;
    let (log, logging) = message(&command);
    logging::start(logging, "info", Colour::on(&io::stderr(), environment))?;
    let log = log.to_owned();
    match carry_out(command, &signals) {
        Ok(done) => {
            leave(&log, &done.to_string());
            Ok(ExitCode::SUCCESS)
        }
        Err(Undone { reason, is_final, failure }) => {
            leave(&log, &why(reason, &failure).to_string());
            if !is_final {
                return Err(failure);
            }
            failure.complain(environment);
            Ok(ExitCode::from(FINAL))
        }
    }
}

fn message(command: &BackupCommand) -> (&Path, &LogArguments) {
    let message = match command {
        BackupCommand::Dump(arguments) => &arguments.message,
        BackupCommand::Restore(arguments) => return (&arguments.run.termination_log, &arguments.run.log),
        BackupCommand::VerifyBackup(arguments) => &arguments.message,
        BackupCommand::RemoveBackup(arguments) => &arguments.message,
        BackupCommand::Script(arguments) => &arguments.message,
        BackupCommand::Which(arguments) => &arguments.message,
    };
    (&message.termination_log, &message.log)
}

/// Why nothing came of it: a word, whether that stays so, and the whole sentence.
struct Undone {
    reason: &'static str,
    is_final: bool,
    failure: Failure,
}

/// What came of it, or why nothing did.
fn carry_out(command: BackupCommand, signals: &Signals) -> Result<Value, Undone> {
    match command {
        BackupCommand::Dump(arguments) => {
            let dump = Dump {
                server: connection(arguments.server).map_err(refused)?,
                databases: arguments.databases,
                directory: arguments.to,
                now: Timestamp::now(),
                stop_writes: arguments.stop_writes,
            };
            let manifest =
                ballast_agent::backup::dump(&dump, signals).map_err(failed("there is no backup"))?;
            // The last line: who reads the log finds the digests of all tables there.
            print(&format!("{}\n", manifest.line()))
                .what("the manifest can't be printed")
                .map_err(refused)?;
            Ok(about(&manifest))
        }
        BackupCommand::Restore(arguments) => {
            let restore = Restore {
                run: request(arguments.run).map_err(refused)?,
                file: arguments.from,
                known: known(arguments.known),
            };
            let restored =
                ballast_agent::backup::restore(restore, signals).map_err(failed("nothing was restored"))?;
            let mut said = about(&restored.manifest);
            said["seconds"] = seconds(restored.took);
            said["version"] = json!(restored.version);
            said["before"] = json!(restored.before);
            said["events"] = json!(restored.events);
            Ok(said)
        }
        BackupCommand::VerifyBackup(arguments) => {
            let known = known(arguments.known);
            let verified = ballast_agent::backup::verify(&arguments.file, &known, signals);
            Ok(about(&verified.map_err(failed("the backup can't be relied on"))?))
        }
        BackupCommand::RemoveBackup(arguments) => {
            for name in &arguments.names {
                let removed = ballast_agent::backup::remove(&arguments.from, name);
                removed.map_err(failed("the backup was not removed"))?;
            }
            Ok(json!({"ok": true, "files": arguments.names.len()}))
        }
        BackupCommand::Script(arguments) => {
            let script = Script {
                server: connection(arguments.server).map_err(refused)?,
                database: arguments.database,
                name: arguments.name,
                file: arguments.file,
            };
            let ran =
                ballast_agent::backup::script(&script, signals).map_err(failed("the script is not done"))?;
            Ok(match ran {
                Ran::Now => json!({"ok": true, "before": false}),
                Ran::Before { same } => json!({"ok": true, "before": true, "same": same}),
            })
        }
        BackupCommand::Which(arguments) => {
            let flavour = Flavour::from(arguments.server);
            let version = ballast_agent::which(flavour)
                .what("this image is not the one")
                .map_err(|failure| Undone { reason: "NoServer", is_final: true, failure })?;
            Ok(json!({"ok": true, "flavour": flavour, "version": version}))
        }
    }
}

fn failed(what: &'static str) -> impl FnOnce(BackupError) -> Undone {
    move |error| Undone {
        reason: error.reason(),
        is_final: error.is_final(),
        failure: Failure::from(anyhow::Error::from(error).context(what)),
    }
}

fn refused(failure: Failure) -> Undone {
    Undone { reason: "Refused", is_final: false, failure }
}

/// Why nothing came of it, as far as it fits.
fn why(reason: &str, failure: &Failure) -> Value {
    let message: String = failure.to_string().chars().take(LONGEST).collect();
    json!({"ok": false, "reason": reason, "message": message})
}

/// All that fits of a backup.
fn about(manifest: &Manifest) -> Value {
    json!({
        "ok": true,
        "file": manifest.file,
        "bytes": manifest.bytes,
        "contentBytes": manifest.content_bytes,
        "sha256": manifest.sha256,
        "manifestSha256": manifest.own_sha256(),
        "tables": manifest.tables.len(),
        "rows": manifest.rows(),
        "began": manifest.began,
        "seconds": seconds(Duration::from_millis(manifest.milliseconds)),
        "flavour": manifest.flavour,
        "version": manifest.version,
    })
}

/// As people read it.
fn seconds(took: Duration) -> Value {
    json!((took.as_secs_f64() * 1000.0).round() / 1000.0)
}

fn connection(arguments: ServerArguments) -> Result<Connection, Failure> {
    let address = match (arguments.socket, arguments.host) {
        (Some(socket), _) => Address::Socket(socket),
        (None, host) => Address::Network { host: host.unwrap_or_default(), port: arguments.port },
    };
    let password = Secret::read(&arguments.password_file).what("no password")?;
    Ok(Connection { flavour: arguments.server.into(), address, user: arguments.user, password })
}

fn known(arguments: KnownArguments) -> Known {
    Known { sha256: arguments.sha256, manifest_sha256: arguments.manifest_sha256 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ballast_mysql::LastWords;

    /// What the operators read of it. A word that they don't find is nothing to them, and no error.
    fn read(said: Value) -> LastWords {
        serde_json::from_value(said).unwrap()
    }

    #[test]
    fn the_operators_read_each_word_that_is_left() {
        let digest = "0".repeat(32);
        let line = format!(
            r#"{{"format":1,"file":"f","bytes":1,"sha256":"ab","contentBytes":2,"began":"2026-01-01T00:00:00Z","milliseconds":3500,"flavour":"mariadb","version":"11.8.6","databases":["shop"],"definitions":"{digest}","events":"{digest}","tables":[{{"database":"shop","name":"t","rows":5,"digest":"{digest}"}}]}}"#
        );
        let manifest = Manifest::read(line.as_bytes(), None).unwrap();
        assert_eq!(
            read(about(&manifest)),
            LastWords {
                ok: true,
                reason: String::new(),
                message: String::new(),
                file: "f".to_owned(),
                bytes: 1,
                content_bytes: 2,
                sha256: "ab".to_owned(),
                manifest_sha256: manifest.own_sha256(),
                tables: 1,
                rows: 5,
                seconds: 3.5,
                flavour: "mariadb".to_owned(),
                version: "11.8.6".to_owned(),
            }
        );
        let failure = Failure::new("the disk is full");
        let said = read(why("VolumeFull", &failure));
        assert_eq!((said.ok, &*said.reason, &*said.message), (false, "VolumeFull", "the disk is full"));
    }
}
