//! Somebody asks for an end while something long is under way.

use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::{Mutex, PoisonError};

use nix::sys::signal::Signal;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

use super::error::BackupError;
use crate::process::Signals;

/// Whether somebody asked for an end, and who is to end then.
#[derive(Debug, Default)]
pub(super) struct Stop(Mutex<Asked>);

#[derive(Debug, Default)]
struct Asked {
    by: Option<Signal>,
    children: Vec<OwnedFd>,
}

impl Stop {
    /// Does something that ends with the first signal that asks for it.
    pub(super) fn guard<T: Send>(
        signals: &Signals,
        work: impl FnOnce(&Stop) -> Result<T, BackupError> + Send,
    ) -> Result<T, BackupError> {
        let stop = Stop::default();
        let done = signals.during(|| work(&stop), |signal| stop.told(signal))?;
        // What failed after that failed because of it.
        done.map_err(|error| stop.check().err().unwrap_or(error))
    }

    /// Fails once somebody asked for an end.
    pub(super) fn check(&self) -> Result<(), BackupError> {
        self.asked(|asked| asked.by.map_or(Ok(()), |signal| Err(BackupError::Stopped(signal))))
    }

    /// A child that has to end with us.
    pub(super) fn watch(&self, child: &Child) {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let Some(Ok(child)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return };
        self.asked(|asked| {
            asked.children.push(child);
            asked.end();
        });
    }

    fn told(&self, signal: Signal) {
        if matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGHUP) {
            self.asked(|asked| {
                asked.by.get_or_insert(signal);
                asked.end();
            });
        }
    }

    fn asked<T>(&self, look: impl FnOnce(&mut Asked) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Asked {
    /// What they are at is thrown away, so they need not do it in order.
    fn end(&mut self) {
        if self.by.is_some() {
            for child in self.children.drain(..) {
                let _gone = pidfd_send_signal(child, rustix::process::Signal::KILL);
            }
        }
    }
}
