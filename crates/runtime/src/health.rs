//! Whether this process is well, and whether it can work.
//!
//! `/healthz` fails when the process should be started anew: it believes to hold the lease and does not.
//! `/readyz` fails until every kind has been listed once. Standing by is being ready: a process that waits for another
//! to let the lease go has to count, or a rolling update of one replica would wait for itself. One that can't take the
//! lease, or has not seen for long that another holds it, does not stand by: it would never work, and nobody would
//! know. That is for a person to mend, not for a restart, so `/healthz` does not speak of it.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{fence::Fence, lease, telling, watch::Caches};

/// Where this process stands with the lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// There is none to hold.
    #[default]
    Unneeded,
    /// Nobody has looked at it yet.
    Unread,
    /// Somebody else holds it, as it was read then.
    StandsBy { holder: String, read: Instant },
    /// It can't be read or taken, and this is why and what to do about it.
    Unreachable { why: String },
    /// It is ours.
    Held,
    /// It was ours, and is lost.
    Lost,
}

/// What is known of this process's health. Clones share it.
#[derive(Clone, Default)]
pub struct Health(Arc<Inner>);

#[derive(Default)]
struct Inner {
    caches: OnceLock<Arc<Caches>>,
    fence: OnceLock<Fence>,
    standing: Mutex<Standing>,
}

/// What came of the checks of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) well: bool,
    pub(crate) text: String,
}

impl Health {
    pub(crate) fn watch(&self, caches: Arc<Caches>, fence: Fence) {
        // There is one run per manager, so both are empty.
        let _ = self.0.caches.set(caches);
        let _ = self.0.fence.set(fence);
    }

    pub(crate) fn stands(&self, standing: Standing) {
        *self.0.standing.lock() = standing;
    }

    /// Whether every kind has been listed and the lease, if one is needed, is held, or held by another.
    pub fn is_ready(&self) -> bool {
        self.ready(false).well
    }

    /// Whether it is [ready](Health::is_ready), and what is missing where it isn't.
    ///
    /// # Errors
    /// What is missing, in a line.
    pub fn check(&self) -> Result<(), String> {
        self.caches()?;
        self.lease()
    }

    /// Whether this process is the one that works: it is ready, and holds the lease if one is needed.
    pub fn is_working(&self) -> bool {
        self.is_ready() && matches!(*self.0.standing.lock(), Standing::Unneeded | Standing::Held)
    }

    /// What `/healthz` says.
    pub(crate) fn healthy(&self, verbose: bool) -> Checked {
        summary("healthz", &[("ping", Ok(())), ("lease", self.kept())], verbose)
    }

    /// What `/readyz` says.
    pub(crate) fn ready(&self, verbose: bool) -> Checked {
        summary("readyz", &[("caches", self.caches()), ("lease", self.lease())], verbose)
    }

    fn caches(&self) -> Result<(), String> {
        let Some(caches) = self.0.caches.get() else { return Err("nothing is watched yet".to_owned()) };
        let missing: Vec<String> = caches.missing().into_iter().map(ToString::to_string).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("not listed yet: {}", missing.join(", "))) }
    }

    /// Whether this process holds the lease that it believes to hold.
    fn kept(&self) -> Result<(), String> {
        match *self.0.standing.lock() {
            Standing::Held if self.0.fence.get().is_some_and(|fence| fence.check().is_err()) => {
                Err("it could not be renewed in time".to_owned())
            }
            Standing::Lost => Err("it is lost".to_owned()),
            _ => Ok(()),
        }
    }

    /// Whether this process works, or will when its turn comes.
    fn lease(&self) -> Result<(), String> {
        self.kept()?;
        match &*self.0.standing.lock() {
            Standing::Unread => Err("it has not been read yet".to_owned()),
            Standing::Unreachable { why } => Err(why.clone()),
            Standing::StandsBy { holder, read } if read.elapsed() > lease::DURATION => Err(format!(
                "it was last read {} ago, when {holder} held it",
                telling::duration(read.elapsed())
            )),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Health").field("ready", &self.is_ready()).finish()
    }
}

/// In the form that Kubernetes' own components use.
fn summary(path: &str, checks: &[(&str, Result<(), String>)], verbose: bool) -> Checked {
    let well = checks.iter().all(|(_, result)| result.is_ok());
    if well && !verbose {
        return Checked { well, text: "ok".to_owned() };
    }
    let mut text = String::new();
    for (name, result) in checks {
        text.push_str(&match result {
            Ok(()) => format!("[+]{name} ok\n"),
            Err(why) => format!("[-]{name} failed: {why}\n"),
        });
    }
    text.push_str(&format!("{path} check {}\n", if well { "passed" } else { "failed" }));
    Checked { well, text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::{Namespaces, Wanted};

    #[test]
    fn nothing_is_ready_before_anything_is_watched() {
        let health = Health::default();
        let ready = health.ready(false);
        assert!(!ready.well);
        assert_eq!(
            ready.text,
            "[-]caches failed: nothing is watched yet\n[+]lease ok\nreadyz check failed\n"
        );
        assert_eq!(health.healthy(false).text, "ok");
        assert_eq!(health.healthy(true).text, "[+]ping ok\n[+]lease ok\nhealthz check passed\n");
    }

    /// What `/healthz` and `/readyz` say of a lease with which this process stands so.
    fn check(standing: Standing, healthy: &str, ready: &str) {
        let health = Health::default();
        health.stands(standing.clone());
        for (checked, expected) in [(health.healthy(true), healthy), (health.ready(true), ready)] {
            let line = checked.text.lines().find(|line| line.contains("lease"));
            assert_eq!(line, Some(expected), "{standing:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn standing_by_is_being_ready_and_waiting_for_what_can_not_be_had_is_not() {
        let (ok, read) = ("[+]lease ok", Instant::now());
        let stands_by = Standing::StandsBy { holder: "other".into(), read };
        check(Standing::Unneeded, ok, ok);
        check(Standing::Held, ok, ok);
        check(stands_by.clone(), ok, ok);
        check(Standing::Unread, ok, "[-]lease failed: it has not been read yet");
        check(Standing::Unreachable { why: "forbidden".into() }, ok, "[-]lease failed: forbidden");
        check(Standing::Lost, "[-]lease failed: it is lost", "[-]lease failed: it is lost");
        tokio::time::advance(2 * lease::DURATION).await;
        check(stands_by, ok, "[-]lease failed: it was last read 30s ago, when other held it");
    }

    #[tokio::test(start_paused = true)]
    async fn who_believes_to_hold_the_lease_and_could_not_renew_it_is_not_well() {
        let (health, fence) = (Health::default(), Fence::closed());
        health.watch(Arc::new(Wanted::default().caches(&Namespaces::All, |_, _| Vec::new())), fence.clone());
        health.stands(Standing::Held);
        fence.extend(Instant::now() + lease::RENEW_DEADLINE);
        assert!(health.healthy(false).well && health.ready(false).well);
        tokio::time::advance(lease::RENEW_DEADLINE).await;
        let said = "[-]lease failed: it could not be renewed in time\n";
        for checked in [health.healthy(false), health.ready(false)] {
            assert!(!checked.well && checked.text.contains(said), "{}", checked.text);
        }
    }
}
