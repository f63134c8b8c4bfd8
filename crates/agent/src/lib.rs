//! What runs inside a pod, as its first process: `ballast agent`.
//!
//! It prepares a volume for a database server the first time, runs the server, passes signals on, and says in one line
//! why it ended. It works in any image that has the server: it needs no shell, no entrypoint and no library. An init
//! container puts it there ([`install`]).
//!
//! **What always holds**
//!
//! - A volume is prepared whole or not at all: killed at any moment, the next start throws away what was half made.
//! - What a volume holds is written on it: which server, which version. It is never opened by another one, nor by an
//!   older one, nor by a newer one unasked. What was there once is never made anew over its loss.
//! - Two never use a volume at the same time, as far as its file system knows.
//! - Passwords come from files and go to the server through a pipe. They are in no environment, command line, log,
//!   message or file of ours. What people call things reaches SQL as quoted identifiers only.
//! - The server gets every signal, and its exit code is ours. Whatever else ends below us is reaped.
//!
//! **What it does not do.** It knows no Kubernetes. It listens only where it is told to, and says how the server fares to
//! whoever asks there. On a volume that was prepared before it makes no database and no user; of those that it made it
//! changes the passwords alone, where it was told to listen and their files say something else.
//!
//! | file | idea |
//! | --- | --- |
//! | `run` | the driver: from what was asked to how it ended |
//! | `flavour`, `version` | the servers: programs, arguments, signals; which version may open what |
//! | `prepare`, `sql` | the commands that prepare each; quoting |
//! | `volume` | what is on a volume, and how it comes to be there |
//! | `process` | children, signals, last words |
//! | `attend`, `status`, `listen` | asking a server that runs; what is known of it; saying so over HTTP |
//! | `backup` | backups and scripts |
//! | `secret` | passwords from files |
//! | `install`, `message` | putting this program into a pod; the termination message |

mod attend;
pub mod backup;
mod flavour;
mod install;
mod listen;
mod memory;
mod message;
mod passwords;
mod prepare;
mod process;
mod run;
mod secret;
mod sql;
mod status;
mod version;
mod volume;

pub use flavour::Flavour;
pub use install::{InstallError, install};
pub use message::{DEFAULT_LOG, leave};
pub use prepare::Database;
pub use process::{Ended, ProcessError, Signals};
pub use run::{Finished, Run, RunError, run, which};
pub use secret::{Secret, SecretError};
pub use sql::{Longest, NameError};
pub use version::Version;
pub use volume::VolumeError;
