//! The keeper: a small process with one thread that makes pods' inits by forking itself.
//!
//! Inits are not children of the node, so they don't die with it; they share the keeper's memory until they write
//! to it, so a hundred of them cost little; and having one thread, the keeper may fork without running a program
//! anew. It holds the node's namespaces while the node is away. What it does is so little that it has no reason to
//! fail: it forks on request, reaps, and ends.
//!
//! A mortal keeper ends its pods, removes what was made for them, and ends itself when the node's end of its
//! standard input closes, whatever ended the node; its inits watch the same input. A lasting one waits for the next
//! node. While a node lives, a keeper that is killed is followed by another; see [`crate::keeping`].

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use nix::sched::CloneFlags;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};

use crate::init;
use crate::network;
use crate::process::{self, Process, Side};
use crate::protocol::KeeperRequest;
use crate::state::{self, Layout};
use crate::sweep;
use crate::wire;

/// The first argument that makes a program the keeper; see [`crate::hook`].
pub(crate) const ARGUMENT: &str = "sandbox-keeper";

/// How long a request may take to arrive; it is sent in one piece by the same program.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Is the keeper until it is told to end.
pub(crate) fn run(directory: &Path, mortal: bool) -> io::Result<()> {
    let _leader_already = nix::unistd::setsid();
    let _name_is_a_kindness = nix::sys::prctl::set_name(c"drydock-keeper");
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    nix::sys::signal::sigprocmask(SigmaskHow::SIG_BLOCK, Some(&mask), None)?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))?;
    let listener = listen(directory, "keeper.sock")?;
    std::io::stdout().write_all(b"ready\n")?;
    std::io::stdout().flush()?;
    rustix::stdio::dup2_stdout(std::io::stderr())?;

    let mut inits = BTreeSet::new();
    let mut lifeline = true;
    loop {
        let stdin = std::io::stdin();
        let mut polled = vec![PollFd::new(&listener, PollFlags::IN), PollFd::new(&signals, PollFlags::IN)];
        if lifeline {
            polled.push(PollFd::new(&stdin, PollFlags::IN));
        }
        match rustix::event::poll(&mut polled, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready.get(1) == Some(&true) {
            while let Ok(Some(_)) = signals.read_signal() {}
            reap(&mut inits);
        }
        if ready.get(2) == Some(&true) {
            lifeline = false;
            if mortal {
                end(&mut inits);
                let layout = Layout { root: directory.to_owned() };
                let record = state::read(&layout.host()).ok();
                return sweep::remains(&layout, record.as_ref(), None).map_err(io::Error::other);
            }
        }
        if ready.first() == Some(&true) {
            let (line, _) = listener.accept()?;
            line.set_read_timeout(Some(PATIENCE))?;
            match wire::receive(&line) {
                Ok(Some((KeeperRequest::Pod(setup), _))) => match fork_pod(&mut inits) {
                    Ok(Side::Child) => {
                        // The node's own: this process may be killed without any harm to pods.
                        let lifeline = mortal.then(|| stdin.as_fd().try_clone_to_owned()).transpose();
                        match lifeline {
                            Ok(lifeline) => init::run(&setup, line, lifeline),
                            Err(error) => {
                                init::refuse(&line, "lifeline", &error);
                                return Err(error);
                            }
                        }
                    }
                    Ok(Side::Parent { .. }) => {}
                    Err(error) => init::refuse(&line, "fork", &error),
                },
                Ok(Some((KeeperRequest::Shutdown, _))) => {
                    end(&mut inits);
                    if let Err(error) = network::remove_inner_end() {
                        eprintln!("the link to the machine can't be removed: {error}");
                    }
                    // The end of the line is the answer.
                    return Ok(());
                }
                Ok(None) => {}
                Err(error) => eprintln!("a request can't be read: {error}"),
            }
        }
    }
}

/// A process between keeper and init makes the PID namespace: one who enters a new one for its children can't go
/// back where the old one belongs to someone else, as it does without root. The init it leaves behind is the
/// keeper's, who takes in all orphans below it.
fn fork_pod(inits: &mut BTreeSet<i32>) -> io::Result<Side> {
    let (mut answer, mut say) = io::pipe()?;
    let between = match process::fork()? {
        Side::Parent { child } => child,
        Side::Child => {
            drop(answer);
            let forked = nix::sched::unshare(CloneFlags::CLONE_NEWPID).map_err(io::Error::from);
            let word = match forked.and_then(|()| process::fork()) {
                Ok(Side::Child) => return Ok(Side::Child),
                Ok(Side::Parent { child }) => child,
                Err(error) => -error.raw_os_error().unwrap_or(1),
            };
            let _keeper_gone = say.write_all(&word.to_ne_bytes());
            std::process::exit(0)
        }
    };
    drop(say);
    let mut word = [0; 4];
    let heard = answer.read_exact(&mut word);
    if let Some(between) = rustix::process::Pid::from_raw(between) {
        let _reaped = rustix::process::waitpid(Some(between), rustix::process::WaitOptions::empty());
    }
    heard?;
    match i32::from_ne_bytes(word) {
        child if child > 0 => {
            inits.insert(child);
            Ok(Side::Parent { child })
        }
        errno => Err(io::Error::from_raw_os_error(-errno)),
    }
}

fn reap(inits: &mut BTreeSet<i32>) {
    while let Ok(Some((pid, _))) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {
        inits.remove(&pid.as_raw_nonzero().get());
    }
}

/// Ends every pod and waits until the last process of each is gone.
fn end(inits: &mut BTreeSet<i32>) {
    for pid in inits.iter() {
        let _gone = nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), Signal::SIGKILL);
    }
    while !inits.is_empty() {
        match rustix::process::wait(rustix::process::WaitOptions::empty()) {
            Ok(Some((pid, _))) => {
                inits.remove(&pid.as_raw_nonzero().get());
            }
            Err(rustix::io::Errno::INTR) => {}
            Ok(None) | Err(_) => return,
        }
    }
}

/// One of this process' own namespaces.
pub(crate) fn open_namespace(kind: &str) -> io::Result<std::os::fd::OwnedFd> {
    Ok(rustix::fs::open(format!("/proc/self/ns/{kind}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Listens on a socket in a directory, whose path may be longer than a socket's can.
pub(crate) fn listen(directory: &Path, name: &str) -> io::Result<UnixListener> {
    match std::fs::remove_file(directory.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let opened = std::fs::File::open(directory)?;
    UnixListener::bind(format!("/proc/self/fd/{}/{name}", opened.as_raw_fd()))
}

/// The other side of [`listen`], where no runtime is at hand.
pub(crate) fn connect(directory: &Path, name: &str) -> io::Result<UnixStream> {
    let opened = std::fs::File::open(directory)?;
    UnixStream::connect(format!("/proc/self/fd/{}/{name}", opened.as_raw_fd()))
}

/// Who [listens](listen): by this a process is found of which nothing readable was written down.
pub(crate) fn listener(directory: &Path, name: &str) -> Option<Process> {
    let line = connect(directory, name).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&line).ok()?;
    Process::of(peer.pid.as_raw_nonzero().get()).ok()
}
