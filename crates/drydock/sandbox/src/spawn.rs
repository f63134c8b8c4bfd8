//! How an init makes processes: which PID namespace they are born in, and what they are connected to.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::sched::CloneFlags;
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;

use crate::birth::{self, Home, Program, Standard};
use crate::config::{ContainerConfig, ExecConfig};
use crate::identity::Capabilities;
use crate::log::Output;
use crate::process::{self, Side};
use crate::protocol::{Birth, ContainerSetup};
use crate::wire;

/// A new process, and the line on which it says how its start goes.
pub(crate) struct Spawned {
    pub pid: i32,
    pub line: UnixStream,
}

/// Which PID namespace a process is born in.
enum Pids<'a> {
    Own,
    New,
    Of(&'a OwnedFd),
}

/// What a container is connected to, the way in, and the ways out.
type Connections = (Standard, Option<OwnedFd>, Vec<(Output, OwnedFd)>);

/// Pipes for a container's input and outputs; a terminal is made inside. Who has the ends outside waits for many, and
/// so for none of them.
pub(crate) fn standard(config: &ContainerConfig) -> io::Result<Connections> {
    if config.tty {
        return Ok((Standard::Terminal, None, Vec::new()));
    }
    let (input, way_in) = if config.stdin {
        let (inside, outside) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&outside, true)?;
        (inside, Some(outside))
    } else {
        (OwnedFd::from(File::open("/dev/null")?), None)
    };
    let mut outside = Vec::new();
    let mut inside = Vec::new();
    for output in [Output::Out, Output::Err] {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // Only this end: a program does not expect its own to refuse when it is full.
        rustix::io::ioctl_fionbio(&reader, true)?;
        outside.push((output, reader));
        inside.push(writer);
    }
    let mut inside = inside.into_iter();
    let (Some(out), Some(err)) = (inside.next(), inside.next()) else {
        return Err(io::Error::other("a pipe is missing"));
    };
    Ok((Standard::Files([input, out, err]), way_in, outside))
}

/// Whose processes a container is among.
pub(crate) enum Among {
    /// Those of the pod.
    Pod,
    /// Its own.
    Itself,
    /// Those of this process, by its number outside.
    Others(i32),
}

/// Starts a container's main program.
pub(crate) fn container(
    setup: &ContainerSetup,
    standard: Standard,
    own_pids: &OwnedFd,
    among: &Among,
) -> io::Result<Spawned> {
    let others = match among {
        Among::Others(host_pid) => Some(namespace(*host_pid, "pid")?),
        Among::Pod | Among::Itself => None,
    };
    let pids = match (&others, among) {
        (Some(others), _) => Pids::Of(others),
        (None, Among::Pod) => Pids::Own,
        (None, _) => Pids::New,
    };
    spawn(pids, own_pids, |line| birth::container(setup, standard, line))
}

fn namespace(host_pid: i32, kind: &str) -> io::Result<OwnedFd> {
    let path = format!("/proc/{host_pid}/ns/{kind}");
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Starts a further program in a container that runs.
pub(crate) fn beside(
    setup: &ContainerSetup,
    host_pid: i32,
    config: &ExecConfig,
    standard: Standard,
    own_pids: &OwnedFd,
    join_pids: bool,
) -> io::Result<Spawned> {
    let namespace = |kind: &str| namespace(host_pid, kind);
    let home =
        Home { mounts: namespace("mnt")?, user: setup.nested_user().then(|| namespace("user")).transpose()? };
    let container_pids = namespace("pid")?;
    let pids = if join_pids { Pids::Of(&container_pids) } else { Pids::Own };
    let own = &setup.config;
    let mut env = own.env.clone();
    env.retain(|(key, _)| config.env.iter().all(|(new, _)| new != key));
    env.extend(config.env.iter().cloned());
    if config.tty && env.iter().all(|(key, _)| key != "TERM") {
        env.push(("TERM".to_owned(), "xterm".to_owned()));
    }
    let program = Program {
        args: &config.args,
        env,
        cwd: config.cwd.as_deref().unwrap_or(&own.cwd),
        // In a user namespace of its own a container has one user, and so have programs in it.
        user: config.user.as_ref().filter(|_| home.user.is_none()).unwrap_or(&own.user),
        new_user_namespace: None,
        capabilities: if own.privileged { Capabilities::ALL } else { own.capabilities },
        no_new_privileges: own.no_new_privileges,
        rlimits: &own.rlimits,
    };
    spawn(pids, own_pids, |line| birth::beside(setup, &home, program, standard, line))
}

fn spawn(
    pids: Pids<'_>,
    own_pids: &OwnedFd,
    become_it: impl FnOnce(&UnixStream) -> crate::error::StartError,
) -> io::Result<Spawned> {
    let (line, other_end) = UnixStream::pair()?;
    match pids {
        Pids::Own => {}
        Pids::New => nix::sched::unshare(CloneFlags::CLONE_NEWPID)?,
        Pids::Of(namespace) => nix::sched::setns(namespace.as_fd(), CloneFlags::CLONE_NEWPID)?,
    }
    let side = process::fork();
    if !matches!(side, Ok(Side::Child)) {
        // Children are born here again.
        nix::sched::setns(own_pids, CloneFlags::CLONE_NEWPID)?;
    }
    match side? {
        Side::Parent { child } => {
            line.set_nonblocking(true)?;
            Ok(Spawned { pid: child, line })
        }
        Side::Child => {
            drop(line);
            let why = become_it(&other_end);
            let _parent_gone = wire::send(&other_end, &Birth::Failed(why), &[]);
            std::process::exit(127)
        }
    }
}
