//! What can go wrong, by what the caller can do about it.

use std::io;
use std::net::SocketAddr;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// A failure of the machine, of a pod's supervisor, or of a container's start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine refused; trying again may help.
    #[error("{what}")]
    Machine {
        /// What was attempted.
        what: String,
        /// What the machine said.
        source: io::Error,
    },
    /// This machine can't do it at all; trying again does not help.
    #[error("{0}")]
    Unsupported(String),
    /// The container's configuration can't be carried out; see [`StartError::reason`].
    #[error(transparent)]
    Start(#[from] StartError),
    /// An address could not be connected to from within a pod: that is said of what is there, not of this machine.
    #[error("connecting to {address} in pod {pod}")]
    Unreached {
        /// The pod.
        pod: String,
        /// The address.
        address: SocketAddr,
        /// What was answered.
        source: io::Error,
    },
    /// The pod's init does not run any more.
    #[error("pod {0} is gone")]
    Gone(String),
    /// A pod or container of this name exists, or does not.
    #[error("{0}")]
    Name(String),
}

impl Error {
    /// Wraps what the machine said with what was attempted.
    pub(crate) fn machine(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Machine { what, source }
    }
}

/// Why a container did not start, in the words that Kubernetes' runtimes use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum StartError {
    /// A name without a slash that no directory of `$PATH` has.
    #[error("exec: \"{0}\": executable file not found in $PATH")]
    NotInPath(String),
    /// A path that does not exist.
    #[error("exec: \"{0}\": stat {0}: no such file or directory")]
    NoSuchFile(String),
    /// A file that is not executable for this user.
    #[error("exec: \"{0}\": permission denied")]
    PermissionDenied(String),
    /// A directory where a program was expected.
    #[error("exec: \"{0}\": is a directory")]
    IsDirectory(String),
    /// A file that the kernel can't run: another machine's, or a script without its first line.
    #[error("exec {0}: exec format error")]
    Format(String),
    /// Nothing to run: neither the image nor the pod says a command.
    #[error("no command specified")]
    NoCommand,
    /// A user that this node can't become.
    #[error("setting user {uid}:{gid}: {reason}")]
    User {
        /// The user.
        uid: u32,
        /// Its group.
        gid: u32,
        /// What the kernel said.
        reason: String,
    },
    /// The working directory can't be entered.
    #[error("chdir to cwd (\"{path}\") failed: {reason}")]
    WorkingDirectory {
        /// The directory.
        path: String,
        /// What the kernel said.
        reason: String,
    },
    /// A volume or file system that can't be mounted.
    #[error("error mounting \"{source_path}\" to rootfs at \"{destination}\": {reason}")]
    Mount {
        /// What was to be mounted.
        source_path: String,
        /// Where, as the container would see it.
        destination: String,
        /// What the kernel said.
        reason: String,
    },
    /// Any other step of the preparation.
    #[error("{step}: {reason}")]
    Step {
        /// What was attempted.
        step: String,
        /// What the kernel said.
        reason: String,
    },
}

impl StartError {
    /// The reason that a kubelet shows while such a container waits.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoCommand => "CreateContainerError",
            Self::NotInPath(_)
            | Self::NoSuchFile(_)
            | Self::PermissionDenied(_)
            | Self::IsDirectory(_)
            | Self::Format(_)
            | Self::User { .. }
            | Self::WorkingDirectory { .. }
            | Self::Mount { .. }
            | Self::Step { .. } => "RunContainerError",
        }
    }

    /// Wraps what the machine said with what was attempted.
    pub(crate) fn step<E: Into<io::Error>>(step: impl Into<String>) -> impl FnOnce(E) -> Self {
        let step = step.into();
        move |error| Self::Step { step, reason: words(&error.into()) }
    }
}

/// Whether the machine was short of what it takes to look. That says nothing of what was looked for.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let short = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    short.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// What the kernel said, without the number that Rust adds.
#[must_use]
pub fn words(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error") {
        Some(at) => text[..at].to_lowercase(),
        None => text,
    }
}
