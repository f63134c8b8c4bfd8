//! From what was asked to how it ended.

use std::cmp::Ordering;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::attend::{Attended, attend, make_way};
use crate::backup::BackupError;
use crate::flavour::{Flavour, SOCKET, given, option};
use crate::listen::listen;
use crate::memory::InMemory;
use crate::passwords::Passwords;
use crate::prepare::{Contents, Database, Input, Step, steps};
use crate::process::{Child, Ended, Outcome, ProcessError, Signals};
use crate::secret::Secret;
use crate::sql::NameError;
use crate::status::{Heard, Status, nearly_full};
use crate::version::Version;
use crate::volume::{Found, Marker, Volume, VolumeError, own_directory};

/// How often it is looked whether a server has made its data.
const LOOK: Duration = Duration::from_millis(100);

/// What is asked for.
#[derive(Debug)]
pub struct Run {
    /// Which server.
    pub flavour: Flavour,
    /// Where its volume is mounted.
    pub volume: PathBuf,
    /// The superuser's password; for all but etcd.
    pub superuser: Option<Secret>,
    /// A database that is there from the beginning.
    pub database: Option<Database>,
    /// The name of an etcd member in its cluster.
    pub member: Option<String>,
    /// Whether data of an older series may be opened, after which there is no way back.
    pub upgrade: bool,
    /// Where to say over HTTP how it fares.
    pub listen: Option<SocketAddr>,
    /// What else the server is called with.
    pub arguments: Vec<OsString>,
}

/// How a server ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Finished {
    /// How.
    pub ended: Ended,
    /// Why, where it did not end as it was asked to.
    pub message: Option<String>,
}

/// Why a server did not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Asked(String),
    /// A name that can be none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The volume can't be used.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// A program can't be run.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Nobody can be told how it fares.
    #[error("can't listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// It can't be asked how it fares.
    #[error("can't attend the server")]
    Attend(#[source] Box<BackupError>),
    /// The image has another server, or none.
    #[error("{program} of this image is not {flavour}: it says {said:?} of itself")]
    NotThis {
        /// What was wanted.
        flavour: Flavour,
        /// The program that was asked.
        program: &'static str,
        /// What it said.
        said: String,
    },
    /// The volume holds something else.
    #[error("the volume holds the data of {held}, which {runs} must not open{advice}")]
    Held {
        /// Whose data it is.
        held: String,
        /// Who would open it.
        runs: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// A step of the preparation failed.
    #[error("{flavour} could not be prepared: {program} ended with code {code}{}", because(.last_words.as_deref()))]
    Unprepared {
        /// Which server.
        flavour: Flavour,
        /// Which program.
        program: &'static str,
        /// How it ended.
        code: u8,
        /// What it said.
        last_words: Option<String>,
    },
}

/// A request that makes sense.
pub(crate) struct Checked {
    pub(crate) run: Run,
    pub(crate) contents: Option<Contents>,
}

/// Prepares the volume where nothing is on it, runs the server, and says how it ended.
///
/// # Errors
/// When the server was never started. What the volume holds is as it was.
pub fn run(run: Run, signals: &Signals) -> Result<Finished, RunError> {
    let checked = check(run)?;
    let status = tell(&checked.run)?;
    let version = which(checked.run.flavour)?;
    status.is_version(version.clone());
    let volume = Volume::open(&checked.run.volume)?;
    let mut marker = Marker::new(checked.run.flavour, version, checked.run.member.clone());
    match volume.look()? {
        Found::Data(held) => marker.upgrading = admit(&held, &marker, checked.run.upgrade)?,
        Found::Nothing => {
            status.hear(Heard::Nothing, "its data is being prepared");
            if let Some(stopped) = prepare(&checked, &volume, &marker, signals)? {
                return Ok(stopped);
            }
        }
    }
    serve(&checked, volume, marker, &status, signals)
}

/// Begins to say how the server fares, before there is one: to prepare one may take longer than a probe waits.
fn tell(run: &Run) -> Result<Arc<Status>, RunError> {
    let status = Arc::new(Status::new(run.flavour, run.volume.clone(), "it begins"));
    if let Some(address) = run.listen {
        let bound = listen(address, &status).map_err(|error| RunError::Listen { address, error })?;
        tracing::info!(address = %bound, "says how {} fares", run.flavour);
    }
    Ok(status)
}

pub(crate) fn check(mut run: Run) -> Result<Checked, RunError> {
    let asked = |what: String| Err(RunError::Asked(what));
    let flavour = run.flavour;
    if let Some(reserved) = flavour.reserved(&run.arguments) {
        return asked(format!("{reserved} is for the agent to say, by the volume and the member's name"));
    }
    if run.listen.is_some() && !flavour.is_attended() {
        return asked(format!("how {flavour} fares is not known to the agent: ask itself"));
    }
    if flavour == Flavour::Etcd {
        if run.superuser.is_some() || run.database.is_some() {
            return asked("etcd has no superuser and no databases to begin with".to_owned());
        }
        if run.member.as_deref().is_none_or(str::is_empty) {
            return asked("an etcd member needs a name: the pod's".to_owned());
        }
        let in_file = given(&["--config-file", "-config-file"], &run.arguments);
        let set = env::var_os("ETCD_CONFIG_FILE").is_some_and(|file| !file.is_empty());
        if let Some(name) = in_file.or(set.then_some("ETCD_CONFIG_FILE")) {
            return asked(format!(
                "with {name} etcd heeds nothing else, not even where its data is: give it arguments, or variables"
            ));
        }
        return Ok(Checked { run, contents: None });
    }
    if run.member.is_some() {
        return asked(format!("{flavour} has no members"));
    }
    if rustix::process::geteuid().is_root() {
        return asked(format!(
            "{flavour} does not run as root: set the container's securityContext.runAsUser"
        ));
    }
    let Some(superuser) = run.superuser.take() else {
        return asked(format!("{flavour} needs a password for its superuser, in a file"));
    };
    let contents = Contents::new(flavour, superuser, run.database.take())?;
    Ok(Checked { run, contents: Some(contents) })
}

/// The version of the server that this image has.
///
/// # Errors
/// When it has none, or another one.
pub fn which(flavour: Flavour) -> Result<Version, RunError> {
    let program = flavour.program();
    let output = Command::new(program)
        .arg("--version")
        .output()
        .map_err(|error| ProcessError::Start { program: program.into(), error })?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match flavour.of_version(&said) {
        Some((found, version)) if found == flavour => Ok(version),
        _ => {
            let said = said.lines().next().unwrap_or_default().to_owned();
            Err(RunError::NotThis { flavour, program, said })
        }
    }
}

/// Whether what runs may open what is there, and whether it has something left to upgrade then.
fn admit(held: &Marker, runs: &Marker, upgrade: bool) -> Result<bool, RunError> {
    let refused = |advice| {
        let name = |marker: &Marker| match &marker.member {
            Some(member) => format!("{} {} (member {member:?})", marker.flavour, marker.version),
            None => format!("{} {}", marker.flavour, marker.version),
        };
        Err(RunError::Held { held: name(held), runs: name(runs), advice })
    };
    if held.flavour != runs.flavour {
        return refused("");
    }
    if held.member != runs.member {
        return refused(": each member keeps its own volume");
    }
    match runs.version.against(&held.version, runs.flavour.series()) {
        Ordering::Equal => Ok(held.upgrading),
        Ordering::Less => refused(": take the version that wrote it, or a later one"),
        Ordering::Greater if !runs.flavour.upgrades_itself() => {
            refused(": dump it with the version that wrote it, and restore that into an empty volume")
        }
        Ordering::Greater if upgrade => Ok(runs.flavour.is_attended()),
        Ordering::Greater => refused(
            " unasked: there is no way back from an upgrade. Take the version that wrote it, or ask for the upgrade (the agent's --upgrade)",
        ),
    }
}

/// Prepares the data. Says how that ended where somebody asked for an end meanwhile.
fn prepare(
    checked: &Checked,
    volume: &Volume,
    marker: &Marker,
    signals: &Signals,
) -> Result<Option<Finished>, RunError> {
    let flavour = marker.flavour;
    tracing::info!(version = %marker.version, volume = %checked.run.volume.display(), "prepares {flavour}");
    let prepared = volume.prepare(marker, |data| {
        let steps = steps(flavour, data, &checked.run.arguments, checked.contents.as_ref());
        if steps.is_empty() {
            own_directory(data)?;
        }
        steps.iter().try_for_each(|step| carry_out(step, flavour, data, signals))
    });
    match prepared {
        Ok(()) => Ok(None),
        Err(NotPrepared::Stopped(signal)) => {
            let message =
                Some(format!("{flavour} was being prepared when {signal} came: it will begin again"));
            Ok(Some(Finished { ended: Ended::Signal(signal), message }))
        }
        Err(NotPrepared::Failed(error)) => Err(error),
    }
}

/// Why the data was not prepared.
pub(crate) enum NotPrepared {
    /// Somebody asked for an end.
    Stopped(Signal),
    Failed(RunError),
}

impl<E: Into<RunError>> From<E> for NotPrepared {
    fn from(error: E) -> NotPrepared {
        NotPrepared::Failed(error.into())
    }
}

pub(crate) fn carry_out(
    step: &Step,
    flavour: Flavour,
    data: &Path,
    signals: &Signals,
) -> Result<(), NotPrepared> {
    match step {
        Step::Append { file, text } => {
            let path = data.join(file);
            let append = || OpenOptions::new().append(true).open(&path)?.write_all(text.as_bytes());
            Ok(append().map_err(|error| VolumeError::Disk {
                what: "can't write",
                path: path.clone(),
                error,
            })?)
        }
        Step::Command { program, arguments, input } => {
            let (mut arguments, mut text) = (arguments.clone(), "");
            let mut in_memory = None;
            match input {
                Input::Nothing => {}
                Input::Standard(given) => text = given,
                Input::File { option, text } => {
                    let start = |error| ProcessError::Start { program: program.into(), error };
                    let file = in_memory.insert(InMemory::of(text).map_err(start)?);
                    arguments.push(format!("{option}{}", file.path()).into());
                }
            }
            let (program, arguments) = (*program, &arguments);
            let child = Child { program: OsStr::new(program), arguments, input: Some(text), heard: false };
            // Whatever comes is an end: what is half made is thrown away.
            let outcome = signals.run(&child, |_| Signal::SIGKILL)?;
            match outcome {
                Outcome { told: Some(signal), .. } => Err(NotPrepared::Stopped(signal)),
                Outcome { ended: Ended::Code(0), .. } => Ok(()),
                Outcome { ended, last_words, .. } => {
                    let code = ended.code();
                    Err(RunError::Unprepared { flavour, program, code, last_words }.into())
                }
            }
        }
    }
}

/// Runs the server to its end.
fn serve(
    Checked { run, contents }: &Checked,
    volume: Volume,
    marker: Marker,
    status: &Arc<Status>,
    signals: &Signals,
) -> Result<Finished, RunError> {
    let flavour = run.flavour;
    let data = volume.data();
    volume.close()?;
    let (volume, said) = (Arc::new(volume), format!("{flavour} {}", marker.version));
    let mut arguments = flavour.arguments(&data, run.member.as_deref(), &run.arguments);
    let attended = run.listen.is_some() || marker.upgrading;
    if volume.has_data(flavour) {
        volume.confirm(&marker)?;
    } else {
        confirm_later(Arc::clone(&volume), marker.clone());
    }
    status.hear(Heard::Nothing, "it starts");
    if let (Some(contents), true) = (contents, attended) {
        make_way();
        arguments.push(option("--socket=", Path::new(SOCKET)));
        let not_attended = |error| RunError::Attend(Box::new(error));
        let passwords = Passwords::new(flavour, contents.superuser().clone(), contents.user());
        let passwords = passwords.map_err(not_attended)?;
        attend(Attended { status: Arc::clone(status), volume: Arc::clone(&volume), marker, passwords });
    }
    tracing::info!("runs {said}");
    let child =
        Child { program: OsStr::new(flavour.program()), arguments: &arguments, input: None, heard: true };
    let outcome = signals.run(&child, |signal| flavour.signal_for(signal))?;
    drop(volume);
    let mut finished = finished(&said, flavour, outcome);
    if let (Some(message), Some(full)) = (&mut finished.message, nearly_full(&run.volume)) {
        message.push_str(&format!("; {full}"));
    }
    Ok(finished)
}

/// A server that makes its own data has none before it runs.
fn confirm_later(volume: Arc<Volume>, marker: Marker) {
    thread::spawn(move || {
        while !volume.has_data(marker.flavour) {
            thread::sleep(LOOK);
        }
        if let Err(error) = volume.confirm(&marker) {
            tracing::warn!(%error, "the volume does not say yet that it holds data");
        }
    });
}

fn finished(said: &str, flavour: Flavour, outcome: Outcome) -> Finished {
    let Outcome { ended, told, last_words } = outcome;
    let message = match ended {
        Ended::Code(0) => None,
        Ended::Code(code) => Some(format!("{said} ended with code {code}{}", because(last_words.as_deref()))),
        Ended::Signal(signal) if told.map(|told| flavour.signal_for(told)) == Some(signal) => None,
        Ended::Signal(signal) => {
            Some(format!("{said} was ended by {signal}{}", because(last_words.as_deref())))
        }
    };
    Finished { ended, message }
}

fn because(last_words: Option<&str>) -> String {
    last_words.map(|words| format!(": {words}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(flavour: Flavour, version: &str, member: Option<&str>) -> Marker {
        Marker::new(flavour, Version::parse(version).unwrap(), member.map(str::to_owned))
    }

    #[test]
    fn a_volume_is_opened_by_what_wrote_it_and_by_what_is_newer_where_asked() {
        use Flavour::{Etcd, Mariadb, Mysql, Postgres};
        for (held, runs, unasked, asked) in [
            (marker(Postgres, "17.12", None), marker(Postgres, "17.3", None), true, true),
            (marker(Postgres, "15.20", None), marker(Postgres, "17.12", None), false, false),
            (marker(Mariadb, "10.11.19", None), marker(Mariadb, "11.8.6", None), false, true),
            (marker(Mariadb, "11.8.6", None), marker(Mariadb, "10.11.19", None), false, false),
            (marker(Mariadb, "10.11.19", None), marker(Mysql, "9.7.4", None), false, false),
            (marker(Mysql, "9.7.4", None), marker(Mariadb, "11.8.6", None), false, false),
            (marker(Etcd, "3.4.23", Some("a")), marker(Etcd, "3.5.16", Some("a")), false, true),
            (marker(Etcd, "3.5.16", Some("a")), marker(Etcd, "3.5.16", Some("b")), false, false),
        ] {
            assert_eq!(admit(&held, &runs, false).is_ok(), unasked, "{held:?} {runs:?}");
            assert_eq!(admit(&held, &runs, true).is_ok(), asked, "{held:?} {runs:?}");
        }
        let error = admit(&marker(Mariadb, "11.8.6", None), &marker(Mysql, "9.7.4", None), true).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the volume holds the data of MariaDB 11.8.6, which MySQL 9.7.4 must not open"
        );
        let error =
            admit(&marker(Mariadb, "10.11.19", None), &marker(Mariadb, "11.8.6", None), false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the volume holds the data of MariaDB 10.11.19, which MariaDB 11.8.6 must not open unasked: there is no way \
             back from an upgrade. Take the version that wrote it, or ask for the upgrade (the agent's --upgrade)"
        );
    }

    #[test]
    fn only_an_end_that_nobody_asked_for_is_explained() {
        let outcome = |ended, told| Outcome { ended, told, last_words: Some("FATAL: why".to_owned()) };
        for (ended, told, expected) in [
            (Ended::Code(0), Some(Signal::SIGTERM), None),
            (Ended::Signal(Signal::SIGINT), Some(Signal::SIGTERM), None),
            (Ended::Code(1), None, Some("PostgreSQL 17 ended with code 1: FATAL: why")),
            (Ended::Signal(Signal::SIGKILL), None, Some("PostgreSQL 17 was ended by SIGKILL: FATAL: why")),
        ] {
            let finished = finished("PostgreSQL 17", Flavour::Postgres, outcome(ended, told));
            assert_eq!(finished.message.as_deref(), expected);
        }
    }
}
