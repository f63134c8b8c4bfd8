//! What can go wrong with a backup, and the word for it that goes into a condition.

use std::fmt;
use std::io;
use std::path::PathBuf;

use nix::sys::signal::Signal;

use super::digest::DigestError;
use super::manifest::ManifestError;
use crate::process::{Ended, ProcessError};
use crate::run::RunError;
use crate::volume::VolumeError;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file can't be read or written.
    #[error("{what} {path:?}")]
    Disk {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// A program of the server's ended with an error.
    #[error("{program} {}{}", how(.ended), after(.said))]
    Tool {
        /// Which.
        program: &'static str,
        /// How it ended.
        ended: Ended,
        /// What it said.
        said: String,
    },
    /// A program that was read from or written to broke off.
    #[error("the stream of {program} broke off")]
    Stream {
        /// Which.
        program: &'static str,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// It is another server, or another version.
    #[error("{0}")]
    Server(String),
    /// What the tool wrote is no whole dump.
    #[error(transparent)]
    Dump(#[from] DigestError),
    /// What was read back is not what was written.
    #[error("the backup was written, and what was read back is something else: {0}")]
    ReadBack(String),
    /// A backup is not what its manifest says.
    #[error("the backup {path:?} is damaged: {what}")]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// What a manifest says can't be believed.
    #[error("the manifest {path:?} can't be believed")]
    Manifest {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        error: ManifestError,
    },
    /// What was restored is not what was backed up.
    #[error("what was restored is not what was backed up: {0}")]
    Differs(String),
    /// It went wrong on a volume that has no room left.
    #[error("{full}")]
    Room {
        /// How much there is.
        full: String,
        /// What went wrong.
        #[source]
        error: Box<BackupError>,
    },
    /// What was asked for makes no sense, or would do harm.
    #[error("{0}")]
    Refused(String),
    /// A script was begun, and nobody knows how far it came.
    #[error("{0}")]
    Begun(String),
    /// There is no such script.
    #[error("there is no script {0:?}")]
    NoScript(PathBuf),
    /// Somebody asked for an end.
    #[error("{0} came before it was done; nothing was kept")]
    Stopped(Signal),
    /// The volume can't be used.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The server can't be prepared.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A program can't be run.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

impl BackupError {
    /// One word for it, as conditions have.
    pub fn reason(&self) -> &'static str {
        match self {
            BackupError::Disk { error, .. } if full(error) => "VolumeFull",
            BackupError::Room { .. } => "VolumeFull",
            BackupError::Disk { .. } | BackupError::Volume(_) => "VolumeUnusable",
            BackupError::Tool { .. } | BackupError::Stream { .. } => "ToolFailed",
            BackupError::Server(_) => "OtherServer",
            BackupError::Dump(_) => "DumpIncomplete",
            BackupError::ReadBack(_) => "ReadBackDiffers",
            BackupError::Damaged { .. } | BackupError::Manifest { .. } => "BackupDamaged",
            BackupError::Differs(_) => "RestoreDiffers",
            BackupError::Refused(_) => "Refused",
            BackupError::Begun(_) => "ScriptInterrupted",
            BackupError::NoScript(_) => "NoScript",
            BackupError::Stopped(_) => "Stopped",
            BackupError::Run(_) | BackupError::Process(_) => "ServerUnprepared",
        }
    }

    /// Whether another try would only come to the same end.
    pub fn is_final(&self) -> bool {
        match self {
            BackupError::Disk { error, .. } => error.kind() == io::ErrorKind::NotFound,
            BackupError::Damaged { .. }
            | BackupError::Manifest { .. }
            | BackupError::Differs(_)
            | BackupError::Refused(_)
            | BackupError::Begun(_)
            | BackupError::NoScript(_) => true,
            _ => false,
        }
    }
}

fn full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn how(ended: &Ended) -> impl fmt::Display + use<> {
    match ended {
        Ended::Code(code) => format!("ended with code {code}"),
        Ended::Signal(signal) => format!("was ended by {signal}"),
    }
}

fn after(words: &str) -> impl fmt::Display + use<> {
    if words.is_empty() { String::new() } else { format!(": {words}") }
}

/// Says of each failure on a path what was tried.
pub(super) fn on(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.into();
    move |error| BackupError::Disk { what, path, error }
}
