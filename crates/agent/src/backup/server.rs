//! A server for nobody but us, for as long as it takes to fill its data.

use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::error::BackupError;
use super::stop::Stop;
use super::tools::{complaint, how};
use crate::flavour::{Flavour, option};
use crate::process::ProcessError;

/// A server that was prepared a moment ago has nothing to recover.
const START: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(20);

/// Nobody but us gets in, nothing happens by itself, and nothing is written twice: what is not finished is thrown
/// away, and what is finished is written to disk by an end in order and by whoever gives it its name. A table whose rows
/// may become too long was let in once.
const ARGUMENTS: [&str; 8] = [
    "--skip-networking",
    "--skip-log-bin",
    "--event-scheduler=OFF",
    "--innodb-doublewrite=OFF",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-strict-mode=OFF",
    "--max-allowed-packet=1G",
    "--local-infile=OFF",
];

/// A server that runs. It is gone with this.
pub(super) struct Server {
    program: &'static str,
    socket: PathBuf,
    child: Child,
    words: Option<JoinHandle<String>>,
}

impl Server {
    /// Starts one beside its data, and waits until it can be talked to.
    pub(super) fn start(
        flavour: Flavour,
        data: &Path,
        given: &[OsString],
        stop: &Stop,
    ) -> Result<Server, BackupError> {
        let program = flavour.program();
        let socket = data.with_file_name("socket");
        let mut arguments = flavour.arguments(data, None, given);
        arguments.push(option("--socket=", &socket));
        arguments.push(option("--pid-file=", &data.with_file_name("pid")));
        arguments.extend(ARGUMENTS.map(OsString::from));
        if flavour == Flavour::Mysql {
            arguments.push("--mysqlx=OFF".into());
        }
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| ProcessError::Start { program: program.into(), error })?;
        stop.watch(&child);
        let words = child.stderr.take().map(|stderr| thread::spawn(|| complaint(stderr)));
        let mut server = Server { program, socket, child, words };
        server.wait_until_it_listens(stop)?;
        Ok(server)
    }

    /// Where it listens.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Ends it in order, with everything written.
    pub(super) fn end(mut self) -> Result<(), BackupError> {
        // It is not waited for yet, so the number is its own.
        let _gone = kill(self.pid(), Signal::SIGTERM);
        let ended = self.child.wait().map_err(|error| self.broken(error))?;
        if ended.success() { Ok(()) } else { Err(self.failed()) }
    }

    fn wait_until_it_listens(&mut self, stop: &Stop) -> Result<(), BackupError> {
        let deadline = Instant::now() + START;
        while UnixStream::connect(&self.socket).is_err() {
            stop.check()?;
            let ended = self.child.try_wait().map_err(|error| self.broken(error))?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(self.failed());
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    fn failed(&mut self) -> BackupError {
        let _ended = self.child.kill();
        let ended = match self.child.wait() {
            Ok(ended) => how(ended),
            Err(error) => return self.broken(error),
        };
        let said = self.words.take().and_then(|words| words.join().ok()).unwrap_or_default();
        BackupError::Tool { program: self.program, ended, said }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX))
    }

    fn broken(&self, error: io::Error) -> BackupError {
        BackupError::Stream { program: self.program, error }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}
