//! Stands by a MySQL or MariaDB server for as long as it runs: asks it each second, sees an upgrade through, and tells it
//! passwords that changed.
//!
//! The server is asked by the client that its image has, which stays connected through the socket beside it; so one
//! question is one line there and one line back.
//!
//! **Assumption.** Somebody else reaps what ends here: how a program ended is known by what it said and did.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::backup::{Login, complaint};
use crate::flavour::{Flavour, SOCKET};
use crate::passwords::{Newer, Passwords};
use crate::status::{Heard, Status};
use crate::version::Version;
use crate::volume::{Marker, Volume};

/// How soon the socket of a server that starts is looked for again, and how soon the server is asked again.
const GLANCE: Duration = Duration::from_millis(10);
const SOON: Duration = Duration::from_millis(50);
/// How often one that serves is asked.
const EACH: Duration = Duration::from_secs(1);
/// How soon what failed is tried again.
const LATER: Duration = Duration::from_secs(5);

/// How a client begins to say what a server did not like.
const ERROR: &str = "ERROR ";
/// After this a server quotes what it could not read, which may hold a password.
const QUOTED: &str = " near ";
/// What a server says to a password that it does not know.
const DENIED: &str = "ERROR 1045 ";

/// Whom to attend.
pub(crate) struct Attended {
    pub(crate) status: Arc<Status>,
    pub(crate) volume: Arc<Volume>,
    pub(crate) marker: Marker,
    pub(crate) passwords: Passwords,
}

/// Makes way for a server's socket: one that is there was left by a server that is gone.
pub(crate) fn make_way() {
    let _none = fs::remove_file(SOCKET);
}

/// Attends from here on, until the process ends.
pub(crate) fn attend(attended: Attended) {
    let Attended { status, volume, mut marker, mut passwords } = attended;
    thread::spawn(move || {
        while !Path::new(SOCKET).exists() {
            thread::sleep(GLANCE);
        }
        // Whether the user is let in with what the file holds is looked at once: from then on the file is.
        let mut unseen = true;
        loop {
            let mut told = None;
            let (heard, why) = match Session::open(passwords.login()) {
                Ok(mut session) => {
                    while let Ok(version) = session.ask() {
                        if let Some(newer) = told.take() {
                            learned(&mut passwords, newer);
                            unseen = false;
                        }
                        if marker.upgrading {
                            status.hear(Heard::Nothing, "its data is being upgraded");
                            let upgraded = upgrade(&mut session, &passwords, &volume, &mut marker);
                            status.upgraded(upgraded.clone());
                            match upgraded {
                                Ok(()) => tracing::info!(version = %marker.version, "the data is upgraded"),
                                Err(why) => {
                                    tracing::error!("{why}");
                                    thread::sleep(LATER);
                                }
                            }
                            continue;
                        }
                        status.is_version(version);
                        told = passwords.newer(unseen && is_denied(&passwords));
                        unseen = unseen && told.is_some();
                        match &told {
                            // The client ends with the first statement that fails: whether it did is heard next.
                            Some(newer) => drop(session.tell(&passwords.statements(newer))),
                            None => {
                                status.hear(Heard::Answer, "");
                                thread::sleep(EACH);
                            }
                        }
                    }
                    session.last_words()
                }
                Err(why) => (Heard::Nothing, why),
            };
            let refused = why.starts_with(ERROR).then(|| why.split(QUOTED).next().unwrap_or_default());
            if let (true, Some(why)) = (told.is_some(), refused) {
                let why = format!("it does not take a password that was changed: {why}");
                tracing::error!("{why}");
                status.hear(Heard::Refusal, &why);
                thread::sleep(LATER);
                continue;
            }
            if let (true, Some(why)) = (marker.upgrading, refused) {
                let why = format!("the server takes no account to upgrade by: {why}");
                tracing::error!("{why}");
                status.upgraded(Err(why));
            }
            status.hear(heard, &why);
            if heard == Heard::Refusal
                && let Err(error) = passwords.denied()
            {
                tracing::error!(%error, "the password that there is now can't be tried");
            }
            thread::sleep(if heard == Heard::Refusal { EACH } else { SOON });
        }
    });
}

fn learned(passwords: &mut Passwords, newer: Newer) {
    match passwords.learned(newer) {
        Ok(()) => tracing::info!("the server was told the passwords that changed"),
        Err(error) => tracing::error!(%error, "the new password can't be kept"),
    }
}

/// Whether the server does not know the user's password.
fn is_denied(passwords: &Passwords) -> bool {
    let Some(Ok(login)) = passwords.user_login() else { return false };
    let Ok(mut session) = Session::open(&login) else { return false };
    session.ask().is_err() && session.last_words().0 == Heard::Refusal
}

/// A client that is connected, or about to be.
struct Session {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Session {
    fn open(login: &Login) -> Result<Session, String> {
        let program = login.client();
        let words = ["--batch", "--skip-column-names", "--unbuffered", "--connect-timeout=5"];
        let mut child = Command::new(program)
            .arg(login.option())
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{program} can't be started in this image: {error}"))?;
        let (questions, answers) = (child.stdin.take(), child.stdout.take());
        let answers = answers.ok_or_else(|| format!("{program} says nothing"))?;
        Ok(Session { child, questions, answers: BufReader::new(answers) })
    }

    fn tell(&mut self, statements: &str) -> Result<(), ()> {
        self.questions.as_mut().ok_or(())?.write_all(statements.as_bytes()).map_err(drop)
    }

    /// Tells it, and hears that it was done.
    fn do_by(&mut self, statements: &str) -> Result<(), ()> {
        self.tell(statements)?;
        self.ask().map(drop)
    }

    /// The server's version, from the server.
    fn ask(&mut self) -> Result<Version, ()> {
        self.tell("SELECT VERSION();\n")?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(drop)?;
        Version::parse(line.trim()).ok_or(())
    }

    /// Why there was no answer.
    fn last_words(mut self) -> (Heard, String) {
        drop(self.questions.take());
        let mut said = String::new();
        let complaints = self.child.stderr.take();
        let _cut_off = complaints.map(|mut complaints| complaints.read_to_string(&mut said));
        // Whoever reaps here may have been faster.
        let _reaped = self.child.wait();
        let said = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it hung up");
        let heard = if said.starts_with(DENIED) { Heard::Refusal } else { Heard::Nothing };
        (heard, said.to_owned())
    }
}

/// Brings what the server has of its own up to its version, and says on the volume that this is done.
fn upgrade(
    session: &mut Session,
    passwords: &Passwords,
    volume: &Volume,
    marker: &mut Marker,
) -> Result<(), String> {
    if marker.flavour == Flavour::Mariadb {
        let program = "mariadb-upgrade";
        tracing::info!(version = %marker.version, "upgrades the data by {program}");
        let passing = passwords.passing().map_err(|error| error.to_string())?;
        session.do_by(&passing.comes).map_err(|()| "the server takes no account to upgrade by")?;
        let said = output(program, &[passing.login.option(), "--silent".into()]);
        session.do_by(&passing.goes).map_err(|()| "the server keeps the account to upgrade by")?;
        let said = said?;
        if !is_upgraded(&volume.data(), &marker.version) {
            return Err(format!("{program} did not come to its end: {said}"));
        }
    }
    let mut done = marker.clone();
    done.upgrading = false;
    volume.confirm(&done).map_err(|error| error.to_string())?;
    *marker = done;
    Ok(())
}

/// Whether MariaDB's own tool has left the version up to which it brought the data.
fn is_upgraded(data: &Path, version: &Version) -> bool {
    // The second is what it was called before 11.
    ["mariadb_upgrade_info", "mysql_upgrade_info"].iter().any(|name| {
        let left = fs::read_to_string(data.join(name)).unwrap_or_default();
        Version::parse(left.trim()).as_ref() == Some(version)
    })
}

/// What a program has to say, in one line: MariaDB's complain on either side.
fn output(program: &'static str, arguments: &[OsString]) -> Result<String, String> {
    let start = || -> io::Result<_> {
        let (said, says) = io::pipe()?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(says.try_clone()?).stderr(says);
        Ok((command.spawn()?, said))
    };
    let (mut child, said) =
        start().map_err(|error| format!("{program} can't be started in this image: {error}"))?;
    let said = complaint(said);
    let _reaped = child.wait();
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tool_says_is_heard_on_either_side() {
        let words = ["-c", "echo 'FATAL ERROR: no room'; echo; echo why >&2; exit 1"].map(OsString::from);
        assert_eq!(output("sh", &words).unwrap(), "FATAL ERROR: no room; why");
    }

    #[test]
    fn what_the_tool_left_says_whether_it_came_to_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let version = Version::parse("11.8.6").unwrap();
        assert!(!is_upgraded(directory.path(), &version));
        fs::write(directory.path().join("mysql_upgrade_info"), "10.11.19-MariaDB").unwrap();
        assert!(!is_upgraded(directory.path(), &version));
        fs::write(directory.path().join("mariadb_upgrade_info"), "11.8.6-MariaDB").unwrap();
        assert!(is_upgraded(directory.path(), &version));
    }
}
