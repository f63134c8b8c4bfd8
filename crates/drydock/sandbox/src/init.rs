//! A pod's init: PID 1 of its PID namespace, and its supervisor.
//!
//! Made by a fork of the keeper, it makes the pod's network, IPC and UTS namespaces, gives the pod its address,
//! and then serves requests on a socket in the pod's directory: it starts containers, runs programs in them,
//! writes their logs, reaps whatever loses its parent, and writes down how each container ended before it tells
//! anyone. When it ends, the kernel ends every process of the pod.
//!
//! It has one thread and never waits for anyone but the poll at the top of its loop.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::sched::CloneFlags;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::mount::MountFlags;
use rustix::process::WaitOptions;
use serde::Serialize;

use crate::attach::{self, Listener};
use crate::birth::Standard;
use crate::config::ExecConfig;
use crate::error::StartError;
use crate::keeper::{PATIENCE, listen, open_namespace};
use crate::log::Log;
use crate::netlink::Netlink;
use crate::process::{self, Process};
use crate::protocol::{
    Birth, ContainerSetup, Done, Ended, InitRequest, PodAnswer, PodNetwork, PodSetup, Started,
};
use crate::spawn::{self, Among, Spawned};
use crate::state::{self, InitRecord, RunningRecord};
use crate::supervised::{Container, exit};
use crate::wire;

/// How long a connection that can't be accepted waits for the next try.
const DEAF: Duration = Duration::from_millis(100);

/// How long a program may take until it runs: what a kubelet waits for its runtime. Longer only takes one that another
/// program of its container has stopped on its way, or one for which a tree is copied first.
const BIRTH: Duration = Duration::from_secs(120);

/// Is a pod's init. The connection is told how the setup went. When the lifeline ends, so does the pod.
pub(crate) fn run(setup: &PodSetup, line: UnixStream, lifeline: Option<OwnedFd>) -> ! {
    let code = match prepare(setup, &line, lifeline) {
        Ok(init) => {
            let told = wire::send(&line, &PodAnswer::Up, &[]);
            drop(line);
            match told.and_then(|()| init.serve()) {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("pod {}: init: {error}", setup.id);
                    1
                }
            }
        }
        Err((step, error)) => {
            refuse(&line, step, &error);
            1
        }
    };
    std::process::exit(code)
}

/// Says that a pod can't be made.
pub(crate) fn refuse(line: &UnixStream, step: &str, error: &io::Error) {
    let errno = error.raw_os_error().unwrap_or(0);
    let _gone = wire::send(line, &PodAnswer::Failed { step: step.to_owned(), errno }, &[]);
}

fn prepare(
    setup: &PodSetup,
    line: &UnixStream,
    lifeline: Option<OwnedFd>,
) -> Result<Init, (&'static str, io::Error)> {
    fn at<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> (&'static str, io::Error) {
        move |error| (step, error.into())
    }
    let mut keep = vec![line.as_raw_fd()];
    keep.extend(lifeline.as_ref().map(AsRawFd::as_raw_fd));
    crate::process::close_all_but(&keep).map_err(at("inherited files"))?;
    let nothing = std::fs::File::open("/dev/null").map_err(at("/dev/null"))?;
    rustix::stdio::dup2_stdin(&nothing).map_err(at("standard input"))?;
    let _name_is_a_kindness = nix::sys::prctl::set_name(c"drydock-init");
    let _leader_already = nix::unistd::setsid();

    let node_network = open_namespace("net").map_err(at("network namespace"))?;
    record(setup, &node_network).map_err(at("record"))?;
    let own_pids = open_namespace("pid").map_err(at("PID namespace"))?;
    let node = Netlink::open().map_err(at("netlink"))?;
    let own_network = if setup.network.is_some() { CloneFlags::CLONE_NEWNET } else { CloneFlags::empty() };
    nix::sched::unshare(own_network | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC)
        .map_err(at("namespaces"))?;
    nix::unistd::sethostname(&setup.hostname).map_err(at("host name"))?;
    shared_memory(&setup.shm).map_err(at("shared memory"))?;
    if let Some(setup) = &setup.network {
        network(setup, &node).map_err(at("network"))?;
    }

    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    nix::sys::signal::sigprocmask(SigmaskHow::SIG_BLOCK, Some(&mask), None).map_err(at("signals"))?;
    let signals =
        SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).map_err(at("signals"))?;
    let listener = listen(&setup.directory, "init.sock").map_err(at("socket"))?;
    Ok(Init {
        _node_network: node_network,
        lifeline,
        share_process_namespace: setup.share_process_namespace,
        own_pids,
        listener,
        deaf: false,
        signals,
        births: Vec::new(),
        containers: BTreeMap::new(),
        execs: BTreeMap::new(),
    })
}

/// Writes down who this is, as the node counts.
fn record(setup: &PodSetup, node_network: &OwnedFd) -> io::Result<()> {
    let own = std::fs::read_link("/proc/self")?;
    let pid = own.to_str().and_then(|text| text.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    let record = InitRecord { process: Process::of(pid)?, node_network_fd: node_network.as_raw_fd() };
    state::write(&setup.directory.join("init.json"), &record)
}

/// POSIX' shared memory is files, which no IPC namespace divides: each pod has a place of its own for them, of the name and
/// size that containerd gives.
fn shared_memory(path: &Path) -> io::Result<()> {
    std::fs::create_dir(path)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(rustix::mount::mount("shm", path, "tmpfs", flags, c"mode=1777,size=65536k")?)
}

fn network(setup: &PodNetwork, node: &Netlink) -> io::Result<()> {
    let own = open_namespace("net")?;
    node.add_veth(&setup.link, setup.bridge, "eth0", &own)?;
    let pod = Netlink::open()?;
    // Every user of a pod may listen where only root may elsewhere, and ping, as containerd's pods can.
    for (file, text) in [
        ("ipv4/ip_unprivileged_port_start", "0"),
        ("ipv4/ping_group_range", "0 2147483647"),
        // There are no IPv6 addresses here; without this each pod would look for neighbours for a while.
        ("ipv6/conf/eth0/disable_ipv6", "1"),
    ] {
        let _older_kernel = std::fs::write(format!("/proc/sys/net/{file}"), text);
    }
    pod.up(pod.must_index("lo")?)?;
    let link = pod.must_index("eth0")?;
    pod.add_address(link, setup.address, setup.prefix)?;
    pod.up(link)?;
    pod.add_route(None, setup.gateway, link)
}

struct Init {
    /// Held, so that the node's network is still there for the next node; see [`InitRecord`].
    _node_network: OwnedFd,
    lifeline: Option<OwnedFd>,
    share_process_namespace: bool,
    own_pids: OwnedFd,
    listener: UnixListener,
    /// Who knocks is not heard for a moment, because it could not be let in.
    deaf: bool,
    signals: SignalFd,
    births: Vec<Pending>,
    containers: BTreeMap<String, Container>,
    /// Programs beside containers, by number in the pod.
    execs: BTreeMap<i32, Exec>,
}

/// A program on its way from fork to exec.
struct Pending {
    container: Option<Container>,
    spawned: Spawned,
    inbox: wire::Inbox,
    host_pid: i32,
    terminal: Option<OwnedFd>,
    failed: Option<StartError>,
    client: UnixStream,
    /// By when it has to run, where that is known.
    due: Option<Instant>,
}

struct Exec {
    host_pid: i32,
    started: Timestamp,
    client: UnixStream,
}

/// Says something to whoever asked; one who is gone does not matter.
pub(crate) fn tell(client: &UnixStream, message: &impl Serialize, files: &[BorrowedFd<'_>]) {
    let _gone = wire::send(client, message, files);
}

impl Init {
    fn serve(mut self) -> io::Result<()> {
        loop {
            let deaf = std::mem::take(&mut self.deaf);
            let listens = if deaf { PollFlags::empty() } else { PollFlags::IN };
            let now = Instant::now();
            let births =
                self.births.iter().filter_map(|birth| Some(birth.due?.saturating_duration_since(now)));
            let patience = births.chain(deaf.then_some(DEAF)).min();
            let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
            let mut polled =
                vec![PollFd::new(&self.listener, listens), PollFd::new(&self.signals, PollFlags::IN)];
            // At a fixed place, whether it is there or not.
            let nobody = PollFd::new(&self.signals, PollFlags::empty());
            polled.push(self.lifeline.as_ref().map_or(nobody, |fd| PollFd::new(fd, PollFlags::IN)));
            polled.extend(self.births.iter().map(|birth| PollFd::new(&birth.spawned.line, PollFlags::IN)));
            for container in self.containers.values() {
                polled.extend(container.attached.iter().map(Listener::polled));
                if !container.is_held_up() {
                    polled.extend(container.outputs.iter().map(|(_, fd)| PollFd::new(fd, PollFlags::IN)));
                }
            }
            match rustix::event::poll(&mut polled, patience.as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(polled);
            if ready.get(2) == Some(&true) {
                return Ok(());
            }
            self.hear_births();
            self.give_up_births(Instant::now());
            for container in self.containers.values_mut() {
                container.take_output();
            }
            if ready.get(1) == Some(&true) {
                while let Ok(Some(_)) = self.signals.read_signal() {}
                self.reap();
            }
            if ready.first() == Some(&true) {
                match self.accept() {
                    Ok(client) => self.answer(client),
                    // It passes, as where no more files can be opened: the pod goes on meanwhile.
                    Err(error) => {
                        eprintln!("a connection can't be accepted: {error}");
                        self.deaf = true;
                    }
                }
            }
        }
    }

    fn accept(&self) -> io::Result<UnixStream> {
        let (client, _) = self.listener.accept()?;
        client.set_read_timeout(Some(PATIENCE))?;
        client.set_write_timeout(Some(PATIENCE))?;
        Ok(client)
    }

    /// Does what a connection asks.
    fn answer(&mut self, client: UnixStream) {
        let (request, files) = match wire::receive(&client) {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(error) => return eprintln!("a request can't be read: {error}"),
        };
        match request {
            InitRequest::Start(setup) => self.start(setup, client),
            InitRequest::Exec { id, config } => self.exec(&id, &config, files, client),
            InitRequest::Wait { id } => match self.containers.get_mut(&id) {
                Some(Container { exit: Some(exit), .. }) => tell(&client, &Ended::Exit(exit.clone()), &[]),
                Some(container) => container.waiters.push(client),
                None => tell(&client, &Ended::Absent, &[]),
            },
            InitRequest::Signal { id, signal } => {
                let done = match self.running(&id) {
                    Some(container) => done(process::signal(container.pid, signal)),
                    None => Done::Absent,
                };
                tell(&client, &done, &[]);
            }
            InitRequest::SignalExec { pid, signal } => {
                // Not reaped yet, its number inside is still its own.
                let found = self.execs.iter().find(|(_, exec)| exec.host_pid == pid).map(|(pid, _)| *pid);
                let done = found.map_or(Done::Absent, |pid| done(process::signal(pid, signal)));
                if let Some(leader) = found.filter(|_| signal == Signal::SIGKILL as i32) {
                    // What it started goes with it; nobody else would ever end that.
                    let _gone = process::kill_group(leader);
                }
                tell(&client, &done, &[]);
            }
            InitRequest::Socket => match socket() {
                Ok(socket) => tell(&client, &Done::Yes, &[socket.as_fd()]),
                Err(error) => tell(&client, &Done::Failed(error.to_string()), &[]),
            },
            InitRequest::Attach { id, stdin } => self.attach(&id, stdin, client),
            InitRequest::ReopenLog { id } => {
                let done = match self.containers.get_mut(&id) {
                    Some(container) => done(container.log.as_mut().map_or(Ok(()), Log::reopen)),
                    None => Done::Absent,
                };
                tell(&client, &done, &[]);
            }
            InitRequest::Forget { id } => {
                self.births.retain(|birth| {
                    let stays = birth.container.as_ref().is_none_or(|born| born.setup.config.id != id);
                    if !stays {
                        let _ended = process::signal(birth.spawned.pid, Signal::SIGKILL as i32);
                    }
                    stays
                });
                if self.containers.get(&id).is_some_and(|container| container.exit.is_some()) {
                    self.containers.remove(&id);
                }
                tell(&client, &Done::Yes, &[]);
            }
        }
    }

    fn running(&self, id: &str) -> Option<&Container> {
        self.containers.get(id).filter(|container| container.exit.is_none())
    }

    /// Whose processes a container is to be among.
    fn among(&self, setup: &ContainerSetup) -> io::Result<Among> {
        match &setup.config.beside {
            _ if self.share_process_namespace => Ok(Among::Pod),
            None => Ok(Among::Itself),
            Some(id) => match self.running(id) {
                Some(other) => Ok(Among::Others(other.host_pid)),
                None => Err(does_not_run(id)),
            },
        }
    }

    fn start(&mut self, setup: Box<ContainerSetup>, client: UnixStream) {
        let attempt = || -> io::Result<(Spawned, Container)> {
            let among = self.among(&setup)?;
            let log = setup.config.log.as_deref().map(Log::open).transpose()?;
            let (standard, input, outputs) = spawn::standard(&setup.config)?;
            let spawned = spawn::container(&setup, standard, &self.own_pids, &among);
            let spawned = spawned.map_err(|error| match &setup.config.beside {
                // What the kernel says where the first process of a namespace has ended, reaped or not.
                Some(id) if error.kind() == io::ErrorKind::OutOfMemory => does_not_run(id),
                _ => error,
            })?;
            let container = Container {
                pid: spawned.pid,
                host_pid: 0,
                started: Timestamp::now(),
                log,
                outputs,
                input,
                waiters: Vec::new(),
                attached: Vec::new(),
                exit: None,
                setup,
            };
            Ok((spawned, container))
        };
        match attempt() {
            Ok((spawned, container)) => self.births.push(Pending::new(spawned, Some(container), client)),
            Err(error) => tell(&client, &Started::No(StartError::step("starting the container")(error)), &[]),
        }
    }

    fn exec(&mut self, id: &str, config: &ExecConfig, files: Vec<OwnedFd>, client: UnixStream) {
        let Some(container) = self.running(id) else { return tell(&client, &Started::Absent, &[]) };
        let attempt = || -> io::Result<Spawned> {
            let standard = if config.tty {
                Standard::Terminal
            } else {
                let files: [OwnedFd; 3] = files
                    .try_into()
                    .map_err(|_| io::Error::other("standard input, output and error are missing"))?;
                Standard::Files(files)
            };
            let join_pids = !self.share_process_namespace;
            spawn::beside(&container.setup, container.host_pid, config, standard, &self.own_pids, join_pids)
        };
        match attempt() {
            Ok(spawned) => self.births.push(Pending::new(spawned, None, client)),
            Err(error) => tell(&client, &Started::No(StartError::step("exec")(error)), &[]),
        }
    }

    fn attach(&mut self, id: &str, stdin: bool, client: UnixStream) {
        let Some(container) = self.containers.get_mut(id).filter(|container| container.exit.is_none()) else {
            return tell(&client, &Done::Absent, &[]);
        };
        let rest = match attach::rest() {
            Ok(rest) => rest,
            Err(error) => return tell(&client, &Done::Failed(error.to_string()), &[]),
        };
        let tty = container.setup.config.tty;
        let once = container.setup.config.stdin_once && !tty;
        // The input of one that has it once goes with whoever writes to it: who only listens leaves it.
        let input = if once && stdin { container.input.take() } else { None };
        let way_in = input.as_ref().or(container.input.as_ref()).filter(|_| stdin || tty);
        let files = std::iter::once(&rest).chain(way_in).map(AsFd::as_fd);
        tell(&client, &Done::Yes, &files.collect::<Vec<_>>());
        // One who can't be listened to in turn is told nothing, and knows that this was not all.
        container.attached.extend(Listener::new(client, rest));
    }

    /// Takes what starting programs have said, and settles those that run or failed.
    fn hear_births(&mut self) {
        let mut under_way = Vec::new();
        for mut birth in std::mem::take(&mut self.births) {
            if birth.hear() {
                self.settle(birth);
            } else {
                under_way.push(birth);
            }
        }
        self.births = under_way;
    }

    /// Ends the starting programs that should run by now.
    fn give_up_births(&mut self, now: Instant) {
        let births = std::mem::take(&mut self.births);
        let (late, under_way): (Vec<_>, _) =
            births.into_iter().partition(|birth| birth.due.is_some_and(|due| due <= now));
        self.births = under_way;
        for mut birth in late {
            let _ended = process::signal(birth.spawned.pid, Signal::SIGKILL as i32);
            birth.failed = Some(StartError::Step {
                step: "starting the program".to_owned(),
                reason: format!("it did not run after {} seconds", BIRTH.as_secs()),
            });
            self.settle(birth);
        }
    }

    fn settle(&mut self, birth: Pending) {
        let Pending { container, spawned, host_pid, terminal, failed, client, .. } = birth;
        if let Some(error) = failed {
            return tell(&client, &Started::No(error), &[]);
        }
        let started = Timestamp::now();
        let answer = Started::Yes { pid: host_pid, started };
        match container {
            None => {
                let files: Vec<BorrowedFd<'_>> = terminal.iter().map(AsFd::as_fd).collect();
                tell(&client, &answer, &files);
                self.execs.insert(spawned.pid, Exec { host_pid, started, client });
            }
            Some(mut container) => {
                container.host_pid = host_pid;
                container.started = started;
                if let Some(terminal) = terminal {
                    container.take_terminal(terminal);
                }
                let record = Process::of(host_pid).map(|process| RunningRecord { process, started });
                // A program that has ended already has no number to write down, only its end.
                if let Ok(record) = record {
                    let _full = state::write(&container.setup.directory.join("running.json"), &record);
                }
                tell(&client, &answer, &[]);
                self.containers.insert(container.setup.config.id.clone(), container);
            }
        }
    }

    /// Takes note of every process that has ended.
    fn reap(&mut self) {
        let mut ended = Vec::new();
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            ended.push((pid.as_raw_nonzero().get(), status));
        }
        // What has ended has run, or said why not; that comes first.
        self.hear_births();
        let now = Timestamp::now();
        for (pid, status) in ended {
            if let Some(exec) = self.execs.remove(&pid) {
                tell(&exec.client, &Ended::Exit(exit(status, false, exec.started, now)), &[]);
            } else if let Some(container) = self
                .containers
                .values_mut()
                .find(|container| container.pid == pid && container.exit.is_none())
            {
                let among_others = self.share_process_namespace || container.setup.config.beside.is_some();
                container.ended(status, now, among_others);
            }
        }
    }
}

impl Pending {
    fn new(spawned: Spawned, container: Option<Container>, client: UnixStream) -> Self {
        let copied = container.as_ref().is_some_and(|container| !container.setup.overlay);
        Self {
            container,
            spawned,
            inbox: wire::Inbox::default(),
            host_pid: 0,
            terminal: None,
            failed: None,
            client,
            due: (!copied).then(|| Instant::now() + BIRTH),
        }
    }

    /// Takes what the program has said; true when nothing more will come.
    fn hear(&mut self) -> bool {
        loop {
            match self.inbox.receive_some(&self.spawned.line) {
                Ok(true) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Ok(false) | Err(_) => return true,
            }
            match self.inbox.take() {
                Ok(Some((Birth::Pid(pid), _))) => self.host_pid = pid,
                Ok(Some((Birth::Terminal, files))) => self.terminal = files.into_iter().next(),
                Ok(Some((Birth::Failed(error), _))) => self.failed = Some(error),
                Ok(None) => {}
                Err(_) => return true,
            }
        }
    }
}

fn does_not_run(container: &str) -> io::Error {
    io::Error::other(format!("the container {container} does not run"))
}

fn done(result: io::Result<()>) -> Done {
    match result {
        Ok(()) => Done::Yes,
        Err(error) => Done::Failed(error.to_string()),
    }
}

fn socket() -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_program_that_does_not_come_to_run_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let nothing = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let (line, _starting) = UnixStream::pair().unwrap();
        let (client, asked) = UnixStream::pair().unwrap();
        let spawned = Spawned { pid: i32::try_from(child.id()).unwrap(), line };
        let birth = Pending::new(spawned, None, client);
        let due = birth.due.unwrap();
        let mut init = Init {
            _node_network: nothing(),
            lifeline: None,
            share_process_namespace: false,
            own_pids: nothing(),
            listener: listen(directory.path(), "init.sock").unwrap(),
            deaf: false,
            signals: SignalFd::new(&SigSet::empty()).unwrap(),
            births: vec![birth],
            containers: BTreeMap::new(),
            execs: BTreeMap::new(),
        };
        init.give_up_births(due - Duration::from_nanos(1));
        assert_eq!((init.births.len(), child.try_wait().unwrap()), (1, None));
        init.give_up_births(due);
        assert_eq!((init.births.len(), init.execs.len()), (0, 0));
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGKILL as i32));
        let (answer, _) = wire::receive::<Started>(&asked).unwrap().unwrap();
        assert!(matches!(answer, Started::No(StartError::Step { .. })));
    }
}
