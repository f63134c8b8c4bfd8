//! A child at a time, signals, and what it said last.
//!
//! **Guarantees.** Signals wait from the moment [`Signals::hold`] is called: none is lost and none ends this process,
//! also where it is the first of its container, whom the kernel sends no signal that it does not expect. Whatever ends
//! below this process is reaped.
//!
//! **Assumptions.** [`Signals::hold`] is called before the first thread is started, and nobody else waits for children.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// What somebody may send.
const AWAITED: [Signal; 7] = [
    Signal::SIGCHLD,
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// How long the last words of a child that ended are waited for: what it left behind may hold its standard error.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// What servers begin the lines with that say why they end.
const REASONS: [&str; 5] = ["FATAL", "PANIC", "ERROR", "\"level\":\"fatal\"", "error:"];
/// What they say after the reason.
const NO_REASON: &str = "Aborting";
/// A longer line is no sentence.
const LONGEST_LINE: usize = 1024;

/// Why a child can't be run.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// There is no such program, or it can't be started.
    #[error("{program:?} can't be started in this image")]
    Start {
        /// Its name.
        program: OsString,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// The system refuses something that it never refuses.
    #[error("{0} failed")]
    System(&'static str, #[source] Errno),
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself.
    Code(u8),
    /// By a signal.
    Signal(Signal),
}

impl Ended {
    /// The exit code that says so.
    pub fn code(self) -> u8 {
        match self {
            Ended::Code(code) => code,
            Ended::Signal(signal) => 128 | u8::try_from(signal as i32).unwrap_or(0),
        }
    }
}

/// What became of a child.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) ended: Ended,
    /// The first signal that this process got meanwhile.
    pub(crate) told: Option<Signal>,
    /// The line of its standard error that says most about its end.
    pub(crate) last_words: Option<String>,
}

/// A child to be.
pub(crate) struct Child<'a> {
    pub(crate) program: &'a OsStr,
    pub(crate) arguments: &'a [OsString],
    /// What it reads; nothing where this is not given.
    pub(crate) input: Option<&'a str>,
    /// Whether what it prints is passed on. What it complains of always is.
    pub(crate) heard: bool,
}

/// The signals of this process, held until somebody asks for them.
#[derive(Debug)]
pub struct Signals(SigSet);

impl Signals {
    /// Holds them from here on.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn hold() -> Result<Signals, ProcessError> {
        let held: SigSet = AWAITED.into_iter().collect();
        held.thread_block().map_err(|error| ProcessError::System("holding signals", error))?;
        Ok(Signals(held))
    }

    /// Runs a child to its end. It gets what `answer` makes of each signal that comes meanwhile.
    pub(crate) fn run(
        &self,
        child: &Child<'_>,
        answer: impl Fn(Signal) -> Signal,
    ) -> Result<Outcome, ProcessError> {
        let start = |error| ProcessError::Start { program: child.program.to_owned(), error };
        let mut process = Command::new(child.program)
            .args(child.arguments)
            .stdin(if child.input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(if child.heard { Stdio::inherit() } else { Stdio::null() })
            .stderr(Stdio::piped())
            .spawn()
            .map_err(start)?;
        if let (Some(mut stdin), Some(input)) = (process.stdin.take(), child.input) {
            let input = input.to_owned();
            // Who does not read to the end says itself why.
            thread::spawn(move || stdin.write_all(input.as_bytes()));
        }
        let words = process.stderr.take().map(listen);
        let pid = Pid::from_raw(i32::try_from(process.id()).unwrap_or(i32::MAX));
        let mut told = None;
        let ended = loop {
            match self.0.wait().map_err(|error| ProcessError::System("waiting for signals", error))? {
                Signal::SIGCHLD => {
                    if let Some(ended) = reap(pid)? {
                        break ended;
                    }
                }
                signal => {
                    told.get_or_insert(signal);
                    // It is not reaped yet, so the number is still its own.
                    let _gone = kill(pid, answer(signal));
                }
            }
        };
        let last_words = words.and_then(|words| words.recv_timeout(LAST_WORDS).ok()).flatten();
        Ok(Outcome { ended, told, last_words })
    }

    /// Does something in a thread of its own, and says meanwhile which signals come. Whatever it starts, it waits for.
    pub(crate) fn during<T: Send>(
        &self,
        work: impl FnOnce() -> T + Send,
        told: impl Fn(Signal),
    ) -> Result<T, ProcessError> {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let working = scope.spawn(|| {
                let _wakes = Wakes(&done);
                work()
            });
            while !done.load(Ordering::Acquire) {
                match self.0.wait().map_err(|error| ProcessError::System("waiting for signals", error))? {
                    Signal::SIGCHLD => {}
                    signal => told(signal),
                }
            }
            working.join().map_err(|_| ProcessError::System("a thread", Errno::UnknownErrno))
        })
    }
}

/// Wakes who waits for signals when it goes, however that comes about.
struct Wakes<'a>(&'a AtomicBool);

impl Drop for Wakes<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        let _always = kill(Pid::this(), Signal::SIGCHLD);
    }
}

/// Takes leave of everybody who has ended, and says how the one did.
fn reap(child: Pid) -> Result<Option<Ended>, ProcessError> {
    let mut found = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == child => {
                found = Some(Ended::Code(u8::try_from(code).unwrap_or(u8::MAX)));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => found = Some(Ended::Signal(signal)),
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(found),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(ProcessError::System("waiting for a child", error)),
        }
    }
}

/// Passes on what comes, and gives the line that says most when nothing comes any more.
fn listen(mut from: impl Read + Send + 'static) -> Receiver<Option<String>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut words = Words::default();
        let mut buffer = [0; 8192];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let heard = buffer.get(..length).unwrap_or_default();
            // Where nobody listens any more, it still has to be read.
            let _nobody = io::stderr().write_all(heard);
            words.hear(heard);
        }
        let _nobody = sender.send(words.last());
    });
    receiver
}

/// The lines of a standard error that may say why.
#[derive(Default)]
struct Words {
    line: Vec<u8>,
    reason: Option<String>,
    last: Option<String>,
}

impl Words {
    fn hear(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => self.line_ends(),
                byte if self.line.len() < LONGEST_LINE => self.line.push(*byte),
                _ => {}
            }
        }
    }

    fn line_ends(&mut self) {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).trim().to_owned();
        if line.is_empty() {
            return;
        }
        if REASONS.iter().any(|reason| line.contains(reason)) && !line.ends_with(NO_REASON) {
            self.reason = Some(line.clone());
        }
        self.last = Some(line);
    }

    fn last(mut self) -> Option<String> {
        self.line_ends();
        self.reason.or(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_says_why_is_found_among_the_last_words() {
        for (said, expected) in [
            ("LOG: starting\nFATAL:  wrong owner\nLOG: shut down\n", Some("FATAL:  wrong owner")),
            (
                "0 [ERROR] Failed to access it\n0 [ERROR] Aborting\n0 [Note] end\n",
                Some("0 [ERROR] Failed to access it"),
            ),
            (
                "{\"level\":\"fatal\",\"msg\":\"discovery failed\"}\n",
                Some("{\"level\":\"fatal\",\"msg\":\"discovery failed\"}"),
            ),
            ("one\ntwo", Some("two")),
            ("\n\n", None),
        ] {
            let mut words = Words::default();
            said.as_bytes().chunks(3).for_each(|chunk| words.hear(chunk));
            assert_eq!(words.last().as_deref(), expected, "{said}");
        }
    }

    #[test]
    fn an_end_has_the_code_that_a_shell_gives_it() {
        assert_eq!(Ended::Code(3).code(), 3);
        assert_eq!(Ended::Signal(Signal::SIGTERM).code(), 143);
    }
}
