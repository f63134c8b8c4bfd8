//! A container as its pod's init has it: what it writes is read, logged and passed on, and its end written down.
//!
//! **What always holds.** The log gets all that is read. Where somebody attached is behind, nothing more is read until
//! they are not: the container waits, and nothing is lost.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use jiff::Timestamp;
use rustix::process::WaitStatus;

use crate::attach::Listener;
use crate::config::Exit;
use crate::init::tell;
use crate::log::{Log, Output};
use crate::process;
use crate::protocol::{ContainerSetup, Ended};
use crate::state;

/// How many buffers of one output are read before others are looked at: more than a pipe holds, so that nothing
/// is left in it when its container has ended.
const TURNS: usize = 8;

pub(crate) struct Container {
    pub(crate) setup: Box<ContainerSetup>,
    pub(crate) pid: i32,
    pub(crate) host_pid: i32,
    pub(crate) started: Timestamp,
    pub(crate) log: Option<Log>,
    pub(crate) outputs: Vec<(Output, OwnedFd)>,
    pub(crate) input: Option<OwnedFd>,
    pub(crate) waiters: Vec<UnixStream>,
    pub(crate) attached: Vec<Listener>,
    pub(crate) exit: Option<Exit>,
}

impl Container {
    pub(crate) fn take_terminal(&mut self, terminal: OwnedFd) {
        let _blocking = rustix::io::ioctl_fionbio(&terminal, true);
        self.input = terminal.try_clone().ok();
        self.outputs = vec![(Output::Out, terminal)];
    }

    /// Whether it has to wait for one who attached and has not taken all of what came before.
    pub(crate) fn is_held_up(&self) -> bool {
        self.attached.iter().any(Listener::is_behind)
    }

    /// Reads and passes on what the container has written.
    pub(crate) fn take_output(&mut self) {
        self.attached.retain_mut(Listener::pass_on);
        if !self.is_held_up() {
            self.read_output();
            self.attached.retain_mut(Listener::pass_on);
        }
    }

    /// Reads what the container has written, as much as is there.
    fn read_output(&mut self) {
        let mut buffer = [0u8; 16 * 1024];
        let Self { outputs, log, attached, .. } = self;
        outputs.retain(|(output, fd)| {
            // Others wait too; a container that never stops writing has its turn again soon.
            let mut turns = TURNS;
            loop {
                match rustix::io::read(fd, &mut buffer) {
                    Ok(0) => return false,
                    Ok(length) => {
                        let bytes = &buffer[..length];
                        if let Some(log) = log {
                            // A full disk loses lines, not the container.
                            let _full = log.write(*output, bytes, Timestamp::now());
                        }
                        attached.iter_mut().for_each(|listener| listener.say(*output, bytes));
                        turns -= 1;
                        if length < buffer.len() || turns == 0 {
                            return true;
                        }
                    }
                    Err(rustix::io::Errno::AGAIN) => return true,
                    Err(rustix::io::Errno::INTR) => {}
                    // A terminal whose last program is gone says so with an error.
                    Err(_) => return false,
                }
            }
        });
    }

    pub(crate) fn ended(&mut self, status: WaitStatus, now: Timestamp, among_others: bool) {
        if among_others {
            // Elsewhere the kernel ends what is left with the container's PID 1.
            let _none_left = process::kill_group(self.pid);
            self.setup.group.kill();
        }
        self.read_output();
        std::mem::take(&mut self.attached).into_iter().for_each(Listener::finish);
        if let Some(log) = &mut self.log {
            let _full = log.finish(now);
        }
        let exit = exit(status, self.setup.group.out_of_memory(), self.started, now);
        let _full = state::write(&self.setup.directory.join("exit.json"), &exit);
        for waiter in std::mem::take(&mut self.waiters) {
            tell(&waiter, &Ended::Exit(exit.clone()), &[]);
        }
        self.exit = Some(exit);
        self.outputs.clear();
        self.input = None;
        self.log = None;
    }
}

pub(crate) fn exit(status: WaitStatus, oom_killed: bool, started: Timestamp, finished: Timestamp) -> Exit {
    let signal = status.terminating_signal();
    let code = signal.map_or_else(|| status.exit_status().unwrap_or(255), |signal| 128 + signal);
    Exit { code, signal, oom_killed, started, finished }
}
