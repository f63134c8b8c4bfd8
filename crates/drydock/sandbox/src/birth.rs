//! From a fork of the pod's init to the container's program: everything between `fork` and `execve`.
//!
//! Runs in a process of its own, which says on its [`Birth`] socket who it is outside the pod, passes its terminal
//! out, and names the step that failed. The socket closes by itself when the program runs.

use std::ffi::CString;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::sched::CloneFlags;
use nix::unistd::{Gid, Uid};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit as Limit};

use crate::config::Rlimit;
use crate::error::{StartError, words};
use crate::identity::{self, Capabilities, User};
use crate::process;
use crate::protocol::{Birth, ContainerSetup};
use crate::rootfs;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Standard input, output and error, or a terminal to be made inside.
pub(crate) enum Standard {
    Files([OwnedFd; 3]),
    Terminal,
}

/// What is run, in a container's own setting or beside it.
pub(crate) struct Program<'a> {
    pub args: &'a [String],
    pub env: Vec<(String, String)>,
    pub cwd: &'a str,
    pub user: &'a User,
    /// Also the node's single user under another number, and how many processes it may have.
    pub new_user_namespace: Option<Option<u64>>,
    pub capabilities: Capabilities,
    pub no_new_privileges: bool,
    pub rlimits: &'a [Rlimit],
}

/// Becomes a container's main program. Comes back only to say why not.
pub(crate) fn container(setup: &ContainerSetup, standard: Standard, line: &UnixStream) -> StartError {
    let config = &setup.config;
    let attempt = || -> Result<(), StartError> {
        introduce(line)?;
        setup.group.join().map_err(StartError::step("cgroup"))?;
        if let Some(score) = config.oom_score_adj {
            // Lowering it needs a privilege that a node may lack; a container without is better than none.
            let _refused = fs::write("/proc/self/oom_score_adj", score.to_string());
        }
        let own = own_process_directory()?;
        rootfs::enter(setup)?;
        let program = Program {
            args: &config.args,
            env: config.env.clone(),
            cwd: &config.cwd,
            user: &config.user,
            new_user_namespace: setup.nested_user().then_some(setup.pids_without_cgroup),
            capabilities: if config.privileged { Capabilities::ALL } else { config.capabilities },
            no_new_privileges: config.no_new_privileges,
            rlimits: &config.rlimits,
        };
        become_program(program, standard, line, &own)
    };
    match attempt() {
        Ok(()) => StartError::NoCommand,
        Err(error) => error,
    }
}

/// Where a running container's program lives.
pub(crate) struct Home {
    pub mounts: OwnedFd,
    pub user: Option<OwnedFd>,
}

/// Becomes a further program in a container. Comes back only to say why not.
pub(crate) fn beside(
    setup: &ContainerSetup,
    home: &Home,
    program: Program<'_>,
    standard: Standard,
    line: &UnixStream,
) -> StartError {
    let attempt = || -> Result<(), StartError> {
        introduce(line)?;
        setup.group.join().map_err(StartError::step("cgroup"))?;
        let own = own_process_directory()?;
        nix::sched::setns(&home.mounts, CloneFlags::CLONE_NEWNS)
            .map_err(StartError::step("mount namespace"))?;
        if let Some(user) = &home.user {
            nix::sched::setns(user, CloneFlags::CLONE_NEWUSER).map_err(StartError::step("user namespace"))?;
        }
        become_program(program, standard, line, &own)
    };
    match attempt() {
        Ok(()) => StartError::NoCommand,
        Err(error) => error,
    }
}

/// Says who this is outside: the node's `/proc` counts as the node does.
fn introduce(line: &UnixStream) -> Result<(), StartError> {
    let own = fs::read_link("/proc/self").map_err(StartError::step("/proc/self"))?;
    let pid = own.to_str().and_then(|text| text.parse().ok()).unwrap_or(0);
    crate::wire::send(line, &Birth::Pid(pid), &[]).map_err(StartError::step("saying who this is"))
}

/// Kept open, because the container's own `/proc` may be hidden from it.
fn own_process_directory() -> Result<OwnedFd, StartError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open("/proc/self", flags, Mode::empty()).map_err(StartError::step("/proc/self"))
}

fn become_program(
    program: Program<'_>,
    standard: Standard,
    line: &UnixStream,
    own: &OwnedFd,
) -> Result<(), StartError> {
    let Some(first) = program.args.first() else { return Err(StartError::NoCommand) };
    nix::unistd::setsid().map_err(StartError::step("setsid"))?;
    connect(standard, program.user, line)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    for limit in program.rlimits {
        set_limit(limit)?;
    }
    let cwd = if program.cwd.is_empty() { "/" } else { program.cwd };
    make_directory(cwd, program.user);

    program.capabilities.bound().map_err(StartError::step("capability bounding set"))?;
    take_user(&program, own)?;
    program.capabilities.keep(program.user.uid).map_err(StartError::step("capabilities"))?;
    if program.no_new_privileges {
        rustix::thread::set_no_new_privs(true).map_err(StartError::step("no new privileges"))?;
    }
    std::env::set_current_dir(cwd)
        .map_err(|error| StartError::WorkingDirectory { path: cwd.to_owned(), reason: words(&error) })?;

    let mut env = program.env;
    let has = |env: &[(String, String)], name: &str| env.iter().any(|(key, _)| key == name);
    if !has(&env, "PATH") {
        env.push(("PATH".to_owned(), PATH.to_owned()));
    }
    if !has(&env, "HOME") {
        env.push(("HOME".to_owned(), identity::home(Path::new("/etc/passwd"), program.user.uid)));
    }
    let path = env.iter().rev().find(|(key, _)| key == "PATH").map_or(PATH, |(_, value)| value);
    let file = find(first, path)?;
    let args = strings(program.args.iter().cloned())?;
    let env = strings(env.iter().map(|(key, value)| format!("{key}={value}")))?;
    let name = strings(std::iter::once(file.clone()))?;
    let Some(name) = name.first() else { return Err(StartError::NoCommand) };
    process::default_signals().map_err(StartError::step("signals"))?;
    match nix::unistd::execve(name, &args, &env) {
        Ok(never) => match never {},
        Err(nix::Error::EACCES | nix::Error::EPERM) => Err(StartError::PermissionDenied(first.clone())),
        Err(nix::Error::ENOEXEC) => Err(StartError::Format(file)),
        Err(nix::Error::ENOENT) => Err(StartError::NoSuchFile(first.clone())),
        Err(error) => Err(StartError::step::<io::Error>(format!("exec {file}"))(error.into())),
    }
}

/// Puts the program's input and outputs where it looks for them.
fn connect(standard: Standard, user: &User, line: &UnixStream) -> Result<(), StartError> {
    let failed = |step: &'static str| move |error: rustix::io::Errno| StartError::step(step)(error);
    let [input, output, errors] = match standard {
        Standard::Files(files) => files,
        Standard::Terminal => {
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            let outer =
                rustix::fs::open("/dev/pts/ptmx", flags, Mode::empty()).map_err(failed("terminal"))?;
            rustix::pty::unlockpt(&outer).map_err(failed("terminal"))?;
            let open = || {
                rustix::pty::ioctl_tiocgptpeer(
                    &outer,
                    rustix::pty::OpenptFlags::RDWR
                        | rustix::pty::OpenptFlags::NOCTTY
                        | rustix::pty::OpenptFlags::CLOEXEC,
                )
                .map_err(failed("terminal"))
            };
            let inner = open()?;
            rustix::process::ioctl_tiocsctty(&inner).map_err(failed("controlling terminal"))?;
            // A user who does not own its terminal can use it all the same, through the open files.
            let _not_ours = std::os::unix::fs::fchown(&inner, Some(user.uid), None);
            crate::wire::send(line, &Birth::Terminal, &[outer.as_fd()])
                .map_err(StartError::step("terminal"))?;
            let (output, errors) = (open()?, open()?);
            [inner, output, errors]
        }
    };
    // A program may open its outputs again by name, which asks for their owner.
    for file in [&output, &errors] {
        let kind = rustix::fs::fstat(file).map_err(failed("standard output"))?.st_mode;
        if rustix::fs::FileType::from_raw_mode(kind).is_fifo() {
            let _not_ours = std::os::unix::fs::fchown(file, Some(user.uid), None);
        }
    }
    rustix::stdio::dup2_stdin(&input).map_err(failed("standard input"))?;
    rustix::stdio::dup2_stdout(&output).map_err(failed("standard output"))?;
    rustix::stdio::dup2_stderr(&errors).map_err(failed("standard error"))
}

/// Becomes the program's user.
fn take_user(program: &Program<'_>, own: &OwnedFd) -> Result<(), StartError> {
    let User { uid, gid, groups } = program.user;
    let failed = |error: io::Error| StartError::User { uid: *uid, gid: *gid, reason: words(&error) };
    let Some(pids) = program.new_user_namespace else {
        let groups: Vec<Gid> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        match nix::unistd::setgroups(&groups) {
            // With one user only there are no further groups to take or to lose.
            Err(nix::Error::EPERM) => {}
            other => other.map_err(|error| failed(error.into()))?,
        }
        let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
        if nix::unistd::getuid() == uid && nix::unistd::getgid() == gid {
            return Ok(());
        }
        nix::unistd::setresgid(gid, gid, gid).map_err(|error| failed(error.into()))?;
        return nix::unistd::setresuid(uid, uid, uid).map_err(|error| failed(error.into()));
    };
    nix::sched::unshare(CloneFlags::CLONE_NEWUSER).map_err(|error| failed(error.into()))?;
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{uid} 0 1")),
        ("gid_map", format!("{gid} 0 1")),
    ] {
        let opened = rustix::fs::openat(own, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        let mut opened = fs::File::from(opened.map_err(|error| failed(error.into()))?);
        opened.write_all(text.as_bytes()).map_err(failed)?;
    }
    // The new namespace brought all capabilities anew.
    program.capabilities.bound().map_err(|error| failed(error.into()))?;
    if let Some(pids) = pids {
        // Counted for each user namespace by itself: other containers of the same user are not in it.
        let limit = Limit { current: Some(pids), maximum: Some(pids) };
        rustix::process::setrlimit(Resource::Nproc, limit).map_err(|error| failed(error.into()))?;
    }
    Ok(())
}

fn set_limit(limit: &Rlimit) -> Result<(), StartError> {
    let resource = match limit.name.to_ascii_lowercase().trim_start_matches("rlimit_") {
        "as" => Resource::As,
        "core" => Resource::Core,
        "cpu" => Resource::Cpu,
        "data" => Resource::Data,
        "fsize" => Resource::Fsize,
        "memlock" => Resource::Memlock,
        "msgqueue" => Resource::Msgqueue,
        "nice" => Resource::Nice,
        "nofile" => Resource::Nofile,
        "nproc" => Resource::Nproc,
        "rtprio" => Resource::Rtprio,
        "sigpending" => Resource::Sigpending,
        "stack" => Resource::Stack,
        name => {
            return Err(StartError::Step {
                step: format!("rlimit {name}"),
                reason: "there is none".to_owned(),
            });
        }
    };
    rustix::process::setrlimit(resource, Limit { current: limit.soft, maximum: limit.hard })
        .map_err(StartError::step(format!("rlimit {}", limit.name)))
}

/// Makes a working directory that the tree lacks, for its user. Whether it can be entered is seen later.
fn make_directory(path: &str, user: &User) {
    if fs::metadata(path).is_err() {
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
        if made.is_ok() {
            let _not_ours = std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid));
        }
    }
}

/// The file that a command means.
fn find(command: &str, path: &str) -> Result<String, StartError> {
    if command.contains('/') {
        return match executable(command) {
            Ok(()) => Ok(command.to_owned()),
            Err(Unfit::Missing) => Err(StartError::NoSuchFile(command.to_owned())),
            Err(Unfit::Directory) => Err(StartError::IsDirectory(command.to_owned())),
            Err(Unfit::Forbidden) => Err(StartError::PermissionDenied(command.to_owned())),
        };
    }
    path.split(':')
        .map(|directory| if directory.is_empty() { "." } else { directory })
        .map(|directory| format!("{directory}/{command}"))
        .find(|file| executable(file).is_ok())
        .ok_or_else(|| StartError::NotInPath(command.to_owned()))
}

enum Unfit {
    Missing,
    Directory,
    Forbidden,
}

fn executable(file: &str) -> Result<(), Unfit> {
    let metadata = fs::metadata(file).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Unfit::Forbidden,
        _ => Unfit::Missing,
    })?;
    if metadata.is_dir() {
        Err(Unfit::Directory)
    } else if metadata.mode() & 0o111 == 0 {
        Err(Unfit::Forbidden)
    } else {
        Ok(())
    }
}

fn strings(texts: impl Iterator<Item = String>) -> Result<Vec<CString>, StartError> {
    texts
        .map(|text| {
            CString::new(text).map_err(|_| StartError::Step {
                step: "exec".to_owned(),
                reason: "an argument holds a zero byte".to_owned(),
            })
        })
        .collect()
}
