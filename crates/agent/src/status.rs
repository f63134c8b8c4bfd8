//! What is known of a server, for whoever asks: kept up to date by who attends it, read by who listens.
//!
//! **What always holds.** It is ready only while a query that it answered is young. What nobody has confirmed for a
//! while counts as not so, also when whoever should confirm it hangs.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::{Timestamp, Unit};
use serde_json::{Value, json};

use crate::flavour::Flavour;
use crate::version::Version;

/// How old the last answer of a server that serves may be. It is asked each second.
const YOUNG: Duration = Duration::from_secs(6);

/// What the server said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It answered a query.
    Answer,
    /// It does not know our password, so others may well be served.
    Refusal,
    /// Nothing.
    Nothing,
}

/// What is known of the server on a volume.
#[derive(Debug)]
pub(crate) struct Status {
    flavour: Flavour,
    volume: PathBuf,
    began: Instant,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    version: Option<Version>,
    heard: Heard,
    /// When that was heard.
    at: Instant,
    /// Since when it is ready, or is not.
    since: Timestamp,
    message: String,
    /// Why its data could not be upgraded, for as long as that is so.
    failed: Option<String>,
}

impl Status {
    pub(crate) fn new(flavour: Flavour, volume: PathBuf, message: &str) -> Status {
        let (began, since, message) = (Instant::now(), Timestamp::now(), message.to_owned());
        let now = Now { version: None, heard: Heard::Nothing, at: began, since, message, failed: None };
        Status { flavour, volume, began, now: Mutex::new(now) }
    }

    pub(crate) fn is_version(&self, version: Version) {
        self.now().version = Some(version);
    }

    /// What was heard of the server just now, and a sentence about why that is no answer.
    pub(crate) fn hear(&self, heard: Heard, message: &str) {
        let mut now = self.now();
        if (now.heard == Heard::Answer) != (heard == Heard::Answer) {
            now.since = Timestamp::now();
        }
        (now.heard, now.at, now.message) = (heard, Instant::now(), message.to_owned());
    }

    /// What came of upgrading its data. Why it failed is said until it succeeds, also while it is tried again.
    pub(crate) fn upgraded(&self, how: Result<(), String>) {
        self.now().failed = how.err();
    }

    /// Whether clients are served, or why not.
    pub(crate) fn serves(&self) -> Result<(), String> {
        match self.now().said() {
            (Heard::Answer | Heard::Refusal, _) => Ok(()),
            (Heard::Nothing, message) => Err(message),
        }
    }

    /// All of it.
    pub(crate) fn document(&self) -> Value {
        let (used, free) = space(&self.volume);
        let now = self.now();
        let (heard, message) = now.said();
        json!({
            "flavour": self.flavour,
            "version": now.version.as_ref().map(ToString::to_string).unwrap_or_default(),
            "ready": heard == Heard::Answer,
            "since": now.since.round(Unit::Second).unwrap_or(now.since),
            "denied": heard == Heard::Refusal,
            "failed": now.failed.is_some(),
            "message": message,
            "uptimeSeconds": self.began.elapsed().as_secs(),
            "dataBytes": used,
            "freeBytes": free,
        })
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A word about a volume that may be why a server ended: those that run out of room rarely say so last.
pub(crate) fn nearly_full(volume: &Path) -> Option<String> {
    let (used, free) = space(volume);
    let all = used.saturating_add(free);
    let full = || format!("the volume is nearly full: of {} MiB {} are free", all >> 20, free >> 20);
    (free < all / 20).then(full)
}

/// How much of a volume is used, and how much may still be.
fn space(volume: &Path) -> (u64, u64) {
    rustix::fs::statvfs(volume).map_or((0, 0), |found| {
        let used = found.f_blocks.saturating_sub(found.f_bfree);
        (used.saturating_mul(found.f_frsize), found.f_bavail.saturating_mul(found.f_frsize))
    })
}

impl Now {
    fn said(&self) -> (Heard, String) {
        match self.heard {
            Heard::Nothing => (Heard::Nothing, self.failed.as_ref().unwrap_or(&self.message).clone()),
            _ if self.at.elapsed() > YOUNG => {
                let silent = format!("it has answered nothing for {} seconds", self.at.elapsed().as_secs());
                (Heard::Nothing, silent)
            }
            heard => (heard, self.message.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        Status::new(Flavour::Mariadb, "/".into(), "it is being prepared")
    }

    #[test]
    fn it_is_ready_while_an_answer_is_young() {
        let status = status();
        assert_eq!(status.serves(), Err("it is being prepared".to_owned()));
        status.is_version(Version::parse("11.8.6").unwrap());
        status.hear(Heard::Answer, "");
        assert_eq!(status.serves(), Ok(()));
        let said = status.document();
        assert_eq!(
            (&said["flavour"], &said["version"], &said["ready"], &said["message"]),
            (&"mariadb".into(), &"11.8.6".into(), &true.into(), &"".into())
        );
        assert!(said["freeBytes"].as_u64() > Some(0) && said["dataBytes"].as_u64() > Some(0), "{said}");
        let old = Instant::now().checked_sub(YOUNG + Duration::from_secs(1)).unwrap();
        status.now().at = old;
        assert_eq!(status.document()["ready"], false);
        assert!(status.serves().unwrap_err().starts_with("it has answered nothing for "));
    }

    #[test]
    fn an_upgrade_that_failed_is_a_failure_until_one_succeeds() {
        let status = status();
        let said = |ready: bool, failed: bool, message: &str| {
            let said = status.document();
            assert_eq!(
                (&said["ready"], &said["failed"], &said["message"]),
                (&ready.into(), &failed.into(), &message.into())
            );
        };
        status.hear(Heard::Nothing, "its data is being upgraded");
        said(false, false, "its data is being upgraded");
        status.upgraded(Err("mariadb-upgrade did not come to its end".to_owned()));
        status.hear(Heard::Nothing, "its data is being upgraded");
        said(false, true, "mariadb-upgrade did not come to its end");
        assert_eq!(status.serves(), Err("mariadb-upgrade did not come to its end".to_owned()));
        status.upgraded(Ok(()));
        status.hear(Heard::Answer, "");
        said(true, false, "");
    }

    #[test]
    fn a_password_that_it_does_not_know_keeps_nobody_else_out() {
        let status = status();
        status.hear(Heard::Refusal, "ERROR 1045");
        assert_eq!(status.serves(), Ok(()));
        assert_eq!(
            (&status.document()["ready"], &status.document()["denied"], &status.document()["message"]),
            (&false.into(), &true.into(), &"ERROR 1045".into())
        );
    }
}
