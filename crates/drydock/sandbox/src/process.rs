//! Processes by identity: a number alone may belong to someone else by now.
//!
//! A [`Process`] is a number, the moment it started and the boot it belongs to. Only when all three agree is it
//! looked at or ended; the check is made on a handle to the process, so that its number can't change hands
//! between the check and the signal.

#![expect(unsafe_code, reason = "fork, signal dispositions and signals without names have no safe interface")]

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal};
use rustix::event::{PollFd, PollFlags, Timespec};
use serde::{Deserialize, Serialize};

use crate::error::is_shortage;

/// How long one waits who could not look.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);

/// One process, and no other that may get its number later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number in the node's PID namespace.
    pub pid: i32,
    /// When it started, in the kernel's ticks since boot.
    pub start: u64,
    /// Which boot that was.
    pub boot: String,
}

impl Process {
    /// The process that has this number now.
    pub fn of(pid: i32) -> io::Result<Self> {
        Ok(Self { pid, start: start_time(pid)?, boot: boot_id()? })
    }

    /// Whether it still runs. A zombie does not; one that can't be looked at now counts as before.
    pub fn alive(&self) -> bool {
        !matches!(self.handle(), Ok(None))
    }

    /// A handle to it, unless it has ended.
    ///
    /// # Errors
    ///
    /// When the machine is short of what it takes to look.
    pub(crate) fn handle(&self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = rustix::process::Pid::from_raw(self.pid) else { return Ok(None) };
        let opened = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
        let Some(handle) = seen(opened.map_err(Into::into))? else { return Ok(None) };
        let same = seen(boot_id())?.is_some_and(|boot| boot == self.boot)
            && seen(start_time(self.pid))?.is_some_and(|start| start == self.start);
        Ok((same && !ended(&handle, Duration::ZERO)).then_some(handle))
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&self) {
        let handle = loop {
            match self.handle() {
                Ok(Some(handle)) => break handle,
                Ok(None) => return,
                Err(_) => std::thread::sleep(AGAIN),
            }
        };
        let mut polled = [PollFd::new(&handle, PollFlags::IN)];
        while let Err(rustix::io::Errno::INTR) = rustix::event::poll(&mut polled, None) {}
    }

    /// Ends it at once and waits until it is gone; true when it is.
    pub fn kill(&self, patience: Duration) -> bool {
        let handle = match self.handle() {
            Ok(Some(handle)) => handle,
            Ok(None) => return true,
            Err(_) => return false,
        };
        let sent = rustix::process::pidfd_send_signal(&handle, rustix::process::Signal::KILL);
        if sent.is_err_and(|error| error == rustix::io::Errno::SRCH) {
            return true;
        }
        ended(&handle, patience)
    }
}

/// What was looked at, if it is there.
fn seen<T>(looked: io::Result<T>) -> io::Result<Option<T>> {
    match looked {
        Err(error) if is_shortage(&error) => Err(error),
        other => Ok(other.ok()),
    }
}

fn ended(handle: &OwnedFd, patience: Duration) -> bool {
    let timeout = Timespec {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(patience.subsec_nanos()),
    };
    let mut polled = [PollFd::new(handle, PollFlags::IN)];
    matches!(rustix::event::poll(&mut polled, Some(&timeout)), Ok(1..))
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

fn start_time(pid: i32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may hold anything; fields are counted after it. The start is the 22nd of all.
    let after = stat.rfind(')').map_or("", |at| &stat[at + 1..]);
    after
        .split_ascii_whitespace()
        .nth(19)
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat can't be read")))
}

/// Sends a child a signal by its number: of some there are no names.
pub(crate) fn signal(child: i32, number: i32) -> io::Result<()> {
    // The two between are the C library's own.
    if !matches!(number, 1..=31 | 34..=64) {
        return Err(rustix::io::Errno::INVAL.into());
    }
    // SAFETY: it is the number of a signal, and not of one that the C library keeps for itself.
    let signal = unsafe { rustix::process::Signal::from_raw_unchecked(number) };
    let child = rustix::process::Pid::from_raw(child).ok_or(rustix::io::Errno::SRCH)?;
    Ok(rustix::process::kill_process(child, signal)?)
}

/// Ends every process of a group, by the number of the one that it was made for.
pub(crate) fn kill_group(leader: i32) -> io::Result<()> {
    let leader = rustix::process::Pid::from_raw(leader).ok_or(rustix::io::Errno::SRCH)?;
    Ok(rustix::process::kill_process_group(leader, rustix::process::Signal::KILL)?)
}

/// Which side of a fork this is.
pub(crate) enum Side {
    Parent { child: i32 },
    Child,
}

/// Duplicates this process, which must have one thread only.
pub(crate) fn fork() -> io::Result<Side> {
    // SAFETY: every caller is the keeper or a pod's init, or a program that has just checked that it has a
    // single thread: no other thread can hold a lock or be in the middle of a change, so the copy may run
    // ordinary code.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Parent { child } => Ok(Side::Parent { child: child.as_raw() }),
        nix::unistd::ForkResult::Child => Ok(Side::Child),
    }
}

/// Signals as a program expects them at its start: none blocked, none ignored.
pub(crate) fn default_signals() -> io::Result<()> {
    for signal in Signal::iterator() {
        if matches!(signal, Signal::SIGKILL | Signal::SIGSTOP) {
            continue;
        }
        // SAFETY: the default disposition runs no code of ours.
        unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) }?;
    }
    nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    Ok(())
}

/// How many threads this process has.
pub(crate) fn threads() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

/// Closes every descriptor but standard ones and those named.
///
/// The owners of the others must never be used or dropped afterwards: a forked process that does not go back to
/// where it was forked from.
pub(crate) fn close_all_but(keep: &[i32]) -> io::Result<()> {
    let open: Vec<i32> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open.into_iter().filter(|fd| *fd > 2 && !keep.contains(fd)) {
        // The descriptor of the listing itself is closed already.
        let _gone = nix::unistd::close(fd);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_another_start_time_is_not_ours() {
        let me = Process::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(me.alive());
        let other = Process { start: me.start + 1, ..me.clone() };
        assert!(!other.alive());
        let last_boot = Process { boot: "another".to_owned(), ..me };
        assert!(last_boot.kill(Duration::from_secs(1)), "what is gone counts as ended, and is not signalled");
    }

    #[test]
    fn an_ended_process_is_not_alive_before_it_is_reaped() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::of(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(process.alive());
        assert!(process.kill(Duration::from_secs(5)));
        assert!(!process.alive());
        child.wait().unwrap();
    }
}
