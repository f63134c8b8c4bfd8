//! The node's own namespaces, entered at the very start of a program.
//!
//! As root the node gets a network and a mount namespace. Otherwise it gets a user namespace first, in which it is
//! root: with the numbers that `/etc/subuid` grants and `newuidmap` maps where both are there, with the single
//! number of its owner elsewhere. A process can enter a user namespace only while it has one thread; that is why
//! [`enter`] comes before everything else. Open files stay open: a listener made before keeps listening outside.
//!
//! A node that comes back after a crash enters the namespaces that the keeper, or a pod's init, still holds.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sched::CloneFlags;
use rustix::mount::MountPropagationFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;

use crate::keeper;
use crate::process::{self, Side};
use crate::state::{self, HostRecord, InitRecord, Layout};

/// How the node enters.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Where this host keeps its records; made when missing.
    pub state_dir: PathBuf,
    /// Take over what an earlier run left running, if anything; otherwise always start anew.
    pub resume: bool,
}

/// Whose numbers the node can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Users {
    /// All of the machine's.
    All,
    /// Those below this one.
    Below(u32),
    /// Its own only, seen as any other.
    One,
}

/// The node is inside.
#[derive(Debug)]
pub struct Entered {
    pub(crate) state_dir: PathBuf,
    pub(crate) resumed: bool,
    pub(crate) root: bool,
    pub(crate) users: Users,
    /// The machine's own network namespace, where root can go back to.
    pub(crate) outside: Option<OwnedFd>,
    /// What it could have open at once before it took all that it may: what pods get.
    pub(crate) files: Rlimit,
    /// Held as long as the node lives, so that no second one sweeps what this one runs.
    pub(crate) lock: fs::File,
}

impl Entered {
    /// Whether running pods were found, whose namespaces these are.
    pub fn resumed(&self) -> bool {
        self.resumed
    }
}

/// Why the node can't have namespaces of its own. Each is one line for a person.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// The caller was not the first thing that its program did.
    #[error("namespaces must be entered before any thread is started")]
    Threads,
    /// Neither root nor user namespaces.
    #[error("pods need root or user namespaces, and this machine grants no user namespace: {0}")]
    NoUserNamespace(String),
    /// Someone else runs pods from the same directory.
    #[error("{0} is in use by another node")]
    InUse(PathBuf),
    /// Anything else that the machine refused.
    #[error("{what}")]
    Machine {
        /// What was attempted.
        what: String,
        /// What the machine said.
        source: io::Error,
    },
}

fn at<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> EnterError {
    let what = what.into();
    move |error| EnterError::Machine { what, source: error.into() }
}

/// What pods are given to read is made under this, whoever starts the node: a container's user is seldom the node's. What
/// is private says so where it is made.
const READABLE: rustix::fs::Mode = rustix::fs::Mode::WGRP.union(rustix::fs::Mode::WOTH);

/// Becomes the keeper when this process was started to be it, and then never returns.
///
/// Every program that opens a [`crate::Host`] calls this first, or [`enter`], which does.
pub fn hook() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != keeper::ARGUMENT) {
        return;
    }
    let state = PathBuf::from(arguments.next().unwrap_or_default());
    let mortal = arguments.next().is_some_and(|word| word == "mortal");
    rustix::process::umask(READABLE);
    let code = match keeper::run(&state, mortal) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("keeper: {error}");
            1
        }
    };
    std::process::exit(code)
}

/// Enters the node's namespaces, and makes this process known as a node's.
///
/// # Errors
///
/// When the machine grants none, when the program has threads already, or when another node has the directory.
pub fn enter(entry: &Entry) -> Result<Entered, EnterError> {
    hook();
    rustix::process::umask(READABLE);
    if process::threads().map_err(at("counting threads"))? > 1 {
        return Err(EnterError::Threads);
    }
    let directory = &entry.state_dir;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(at(format!("making {}", directory.display())))?;
    let state_dir = directory.canonicalize().map_err(at(format!("finding {}", directory.display())))?;
    let lock = lock(&state_dir)?;
    let files = take_files();
    let _name_is_a_kindness = nix::sys::prctl::set_name(c"drydock-node");
    let outside = keeper::open_namespace("net").map_err(at("network namespace"))?;
    let root = is_root();

    let layout = Layout { root: state_dir.clone() };
    if entry.resume && resume(&layout, root)? {
        let users = if root { Users::All } else { mapped_users() };
        let outside = root.then_some(outside);
        return Ok(Entered { state_dir, resumed: true, root, users, outside, files, lock });
    }
    let users = if root { Users::All } else { user_namespace()? };
    nix::sched::unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).map_err(at("namespaces"))?;
    // What the machine unmounts later goes here too; what is mounted here is not seen there.
    rustix::mount::mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(at("mount namespace"))?;
    let outside = root.then_some(outside);
    Ok(Entered { state_dir, resumed: false, root, users, outside, files, lock })
}

/// Lets this process have as many files open as it may: each connection is some, and those of all pods are its own. What
/// it could have open before.
fn take_files() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    let _as_before = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before });
    before
}

pub(crate) fn lock(directory: &Path) -> Result<fs::File, EnterError> {
    let path = directory.join("lock");
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(at(format!("opening {}", path.display())))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::AGAIN) => Err(EnterError::InUse(directory.to_owned())),
        Err(error) => Err(at("locking")(error)),
    }
}

/// Root in name and in what it may do: containers often have one without the other.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
        && rustix::thread::capabilities(None)
            .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN))
}

/// Enters the namespaces of an earlier run, if some process still holds them.
fn resume(layout: &Layout, root: bool) -> Result<bool, EnterError> {
    let Ok(record) = state::read::<HostRecord>(&layout.host()) else { return Ok(false) };
    let mut shared = CloneFlags::CLONE_NEWNS;
    if !root {
        shared |= CloneFlags::CLONE_NEWUSER;
    }
    let keeper = record.keeper.as_ref().map(process::Process::handle).transpose();
    if let Some(handle) = keeper.map_err(at("looking for the keeper"))?.flatten() {
        nix::sched::setns(&handle, shared | CloneFlags::CLONE_NEWNET)
            .map_err(at("the keeper's namespaces"))?;
        return Ok(true);
    }
    for id in state::names(&layout.pods()).map_err(at("pods"))? {
        let Ok(init) = state::read::<InitRecord>(&layout.init_record(&id)) else { continue };
        let handle = init.process.handle().map_err(at("looking for an init"))?;
        let Some(handle) = handle else { continue };
        nix::sched::setns(&handle, shared).map_err(at("an init's namespaces"))?;
        let path = format!("/proc/{}/fd/{}", init.process.pid, init.node_network_fd);
        let network = fs::File::open(path).map_err(at("the node's network namespace"))?;
        nix::sched::setns(&network, CloneFlags::CLONE_NEWNET).map_err(at("the node's network namespace"))?;
        return Ok(true);
    }
    Ok(false)
}

/// The users of the namespace this process is in.
fn mapped_users() -> Users {
    let text = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let end = text
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace().map(str::parse::<u32>);
            let (Some(Ok(inside)), _, Some(Ok(count))) = (fields.next(), fields.next(), fields.next()) else {
                return None;
            };
            Some(inside.saturating_add(count))
        })
        .max()
        .unwrap_or(1);
    if end > 1 { Users::Below(end) } else { Users::One }
}

/// Enters a user namespace as its root.
fn user_namespace() -> Result<Users, EnterError> {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let granted = Grant::find(uid, gid);
    let mapper = granted.as_ref().map(Mapper::fork).transpose().map_err(at("fork"))?;
    nix::sched::unshare(CloneFlags::CLONE_NEWUSER)
        .map_err(|error| EnterError::NoUserNamespace(why_not(error)))?;
    if mapper.is_some_and(Mapper::map) {
        return Ok(mapped_users());
    }
    for (file, text) in [
        ("uid_map", format!("0 {uid} 1")),
        ("setgroups", "deny".to_owned()),
        ("gid_map", format!("0 {gid} 1")),
    ] {
        fs::write(format!("/proc/self/{file}"), text)
            .map_err(|error| EnterError::NoUserNamespace(format!("{file}: {error}")))?;
    }
    Ok(Users::One)
}

/// What usually stands in the way, where the kernel's answer alone would not say it.
fn why_not(error: nix::Error) -> String {
    let is = |path: &str, value: &str| fs::read_to_string(path).is_ok_and(|text| text.trim() == value);
    for (path, value) in [
        ("/proc/sys/user/max_user_namespaces", "0"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
    ] {
        if is(path, value) {
            return format!("{path} is {value}");
        }
    }
    io::Error::from(error).to_string()
}

/// Numbers that the machine's administrator grants a user beside its own.
struct Grant {
    uid: u32,
    gid: u32,
    uids: (u32, u32),
    gids: (u32, u32),
}

impl Grant {
    fn find(uid: u32, gid: u32) -> Option<Self> {
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let name = passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)? == uid.to_string()).then_some(name)
        });
        let range = |path: &str| {
            let text = fs::read_to_string(path).ok()?;
            text.lines().find_map(|line| {
                let mut fields = line.split(':');
                let owner = fields.next()?;
                if Some(owner) != name && owner != uid.to_string() {
                    return None;
                }
                Some((fields.next()?.parse().ok()?, fields.next()?.trim().parse().ok()?))
            })
        };
        Some(Self { uid, gid, uids: range("/etc/subuid")?, gids: range("/etc/subgid")? })
    }
}

/// A copy of this process that stays outside, to have the granted numbers mapped from there.
struct Mapper {
    child: i32,
    go: io::PipeWriter,
    answer: io::PipeReader,
}

impl Mapper {
    fn fork(grant: &Grant) -> io::Result<Self> {
        let (mut wait, go) = io::pipe()?;
        let (answer, mut say) = io::pipe()?;
        let parent = std::process::id();
        match process::fork()? {
            Side::Parent { child } => Ok(Self { child, go, answer }),
            Side::Child => {
                drop((go, answer));
                let mut byte = [0];
                let told = wait.read_exact(&mut byte).is_ok();
                let mapped = told
                    && map("newuidmap", parent, grant.uid, grant.uids)
                    && map("newgidmap", parent, grant.gid, grant.gids);
                let _parent_gone = say.write_all(if mapped { b"y" } else { b"n" });
                std::process::exit(0)
            }
        }
    }

    /// Maps this process' users, now that it is in its namespace; false when that is refused.
    fn map(mut self) -> bool {
        let mut answer = [0];
        let mapped =
            self.go.write_all(b"!").is_ok() && self.answer.read_exact(&mut answer).is_ok() && answer == *b"y";
        if let Some(child) = rustix::process::Pid::from_raw(self.child) {
            let _reaped = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
        }
        mapped
    }
}

fn map(program: &str, process: u32, own: u32, (first, count): (u32, u32)) -> bool {
    let arguments = [process, 0, own, 1, 1, first, count].map(|number| number.to_string());
    Command::new(program)
        .args(arguments)
        .stderr(std::process::Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
