//! Whether this process is well, and whether it can work.
//!
//! `/healthz` fails when the process should be started anew: it believes to hold the lease and does not.
//! `/readyz` fails until every kind has been listed once. Waiting for the lease is being ready: a process that stands
//! by has to count, or a rolling update of one replica would wait for itself.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::{fence::Fence, watch::Caches};

/// Where this process stands with the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// There is none to hold.
    #[default]
    Unneeded,
    /// Somebody else has it.
    Waiting,
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

    /// Whether every kind has been listed and the lease, if one is needed, is not lost.
    pub fn is_ready(&self) -> bool {
        self.ready(false).well
    }

    /// Whether this process is the one that works: it is ready, and holds the lease if one is needed.
    pub fn is_working(&self) -> bool {
        self.is_ready() && matches!(*self.0.standing.lock(), Standing::Unneeded | Standing::Held)
    }

    /// What `/healthz` says.
    pub(crate) fn healthy(&self, verbose: bool) -> Checked {
        summary("healthz", &[("ping", Ok(())), ("lease", self.lease())], verbose)
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

    fn lease(&self) -> Result<(), String> {
        match *self.0.standing.lock() {
            Standing::Unneeded | Standing::Waiting => Ok(()),
            Standing::Held if self.0.fence.get().is_some_and(|fence| fence.check().is_err()) => {
                Err("it could not be renewed in time".to_owned())
            }
            Standing::Held => Ok(()),
            Standing::Lost => Err("it is lost".to_owned()),
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

    #[test]
    fn who_lost_the_lease_is_not_well() {
        let health = Health::default();
        health.stands(Standing::Waiting);
        assert!(health.healthy(false).well, "standing by is being well");
        health.stands(Standing::Lost);
        assert!(!health.healthy(false).well);
    }
}
