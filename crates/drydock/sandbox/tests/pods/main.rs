//! Pods of a tiny tree, run for real: as root and as a plain user, through crashes of their owner.
//!
//! Namespaces can be entered only by a process without threads, so this is a program of its own: the driver runs
//! itself once for each setting, and looks afterwards whether anything is left. All traffic stays in network
//! namespaces that the test made.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure here is the answer")]

mod anyone;
mod checks;
mod crashes;
mod tree;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use drydock_sandbox::{Entry, Host, Network, Options, enter, hook};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many files a node may have open at once before it takes all that it may.
const FILES: u64 = 1000;

/// The user that stands for anyone: nobody.
const PLAIN: u32 = 65534;

fn main() -> ExitCode {
    hook();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["inside", setting, directory] => checks::run(Setting::read(setting), Path::new(directory)),
        ["own", setting, directory] => crashes::own(Setting::read(setting), Path::new(directory)),
        ["adopt", setting, directory] => crashes::adopt(Setting::read(setting), Path::new(directory)),
        ["keep", setting, directory] => crashes::keep(Setting::read(setting), Path::new(directory)),
        ["sweep", setting, directory] => crashes::sweep(Setting::read(setting), Path::new(directory)),
        ["anew", setting, directory] => crashes::anew(Setting::read(setting), Path::new(directory)),
        _ if words.contains(&"--list") => ExitCode::SUCCESS,
        _ => drive(),
    }
}

/// Who runs the pods, and what becomes of them when their owner ends.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Setting {
    plain: bool,
    outlive: bool,
    copy_trees: bool,
}

impl Setting {
    fn name(self) -> String {
        format!(
            "{}-{}-{}",
            if self.plain { "plain" } else { "root" },
            if self.outlive { "lasting" } else { "mortal" },
            if self.copy_trees { "copied" } else { "layered" }
        )
    }

    fn read(name: &str) -> Self {
        Self {
            plain: name.contains("plain"),
            outlive: name.contains("lasting"),
            copy_trees: name.contains("copied"),
        }
    }

    /// This program again, as the setting's user.
    fn command(self, part: &str, directory: &Path) -> Command {
        let other = self.plain && rustix::process::geteuid().is_root();
        let mut command = Command::new(program(other));
        command.args([part, &self.name()]).arg(directory);
        if other {
            command.uid(PLAIN).gid(PLAIN);
        }
        command
    }
}

/// This program; a copy where somebody else can't run it.
fn program(somebody_else: bool) -> PathBuf {
    let built = std::env::current_exe().unwrap();
    if somebody_else { anyone::program(built) } else { built }
}

/// Enters and opens a host below a directory.
fn open(setting: Setting, directory: &Path, resume: bool) -> Host {
    let all = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(FILES), ..all }).unwrap();
    let entered = enter(&Entry { state_dir: directory.join("state"), resume }).unwrap();
    assert_eq!(entered.resumed(), resume);
    let options = Options {
        networks: vec![Network {
            pod_cidr: "10.99.0.0/16".parse().unwrap(),
            uplink: Some("dock-test".to_owned()),
        }],
        service_cidr: Some("10.96.0.0/12".parse().unwrap()),
        outlive: setting.outlive,
        copy_trees: setting.copy_trees,
        program: None,
    };
    Host::open(entered, options).unwrap()
}

/// As root, a network namespace that stands for the machine's. The parts run in it too.
fn machine(root: bool) {
    if root {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
    }
}

fn drive() -> ExitCode {
    let root = rustix::process::geteuid().is_root();
    machine(root);
    let mut failed = false;
    for plain in [false, true] {
        if !plain && !root {
            println!("as root: skipped, this is not root");
            continue;
        }
        let mut part = |what: &str, words: &str, run: &dyn Fn(Setting, &Path) -> bool| {
            let directory = scratch(plain && root);
            println!("\n{} as {}", what, if plain { "a plain user" } else { "root" });
            let passed = run(Setting { plain, ..Setting::read(words) }, directory.path());
            let left = left_behind(directory.path());
            if !left.is_empty() {
                println!("  left behind: {left:#?}");
            }
            let fine = passed && left.is_empty();
            println!("{}", if fine { "ok" } else { "FAILED" });
            failed |= !fine;
        };
        let inside = |setting: Setting, directory: &Path| {
            setting.command("inside", directory).status().unwrap().success()
        };
        part("running pods", "mortal", &inside);
        part("running pods with copied trees", "mortal copied", &inside);
        part("a mortal node killed", "mortal", &crashes::mortal);
        part("the keeper of a mortal node killed", "mortal", &crashes::keeper_killed);
        part("the keepers of lasting nodes killed", "lasting", &crashes::keeper_killed);
        part("a node killed, then its pods adopted", "lasting", &crashes::adopted);
        part("node and keeper killed, then the pods adopted", "lasting", &crashes::adopted_without_keeper);
        part("a node killed, then its pods swept", "lasting", &crashes::swept);
        part("a node killed, its own record damaged", "lasting", &crashes::host_damaged);
        part("a node killed, a pod's records damaged", "lasting", &crashes::pod_damaged);
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// A directory that everyone may use, with a tree in it that belongs to whoever runs the pods.
fn scratch(give_away: bool) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    tree::make(&directory.path().join("tree"));
    if give_away {
        tree::give_away(&directory.path().join("tree"), PLAIN);
    }
    directory
}

/// What a host has left on the machine, beside files in its directory. Others may run hosts of their own meanwhile.
fn left_behind(directory: &Path) -> Vec<String> {
    let text = directory.to_str().unwrap();
    let mut left: Vec<String> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|pid| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?.replace('\0', " ");
            line.contains(text).then_some(format!("{pid} {line}"))
        })
        .collect();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    left.extend(mounts.lines().filter(|line| line.contains(text)).map(str::to_owned));
    let links = fs::read_to_string("/proc/self/net/dev").unwrap();
    left.extend(links.lines().filter(|line| line.contains("dock-test")).map(str::to_owned));
    left.extend(cgroups(directory).iter().map(|path| path.display().to_string()));
    left
}

/// The cgroups of the host in a directory, in whichever trees they are.
fn cgroups(directory: &Path) -> Vec<PathBuf> {
    let state = directory.join("state");
    let hash =
        state.to_str().unwrap().bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    let mut found = Vec::new();
    find(Path::new("/sys/fs/cgroup"), &format!("drydock-{hash:016x}"), 3, &mut found);
    found
}

fn find(directory: &Path, name: &str, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if entry.file_name().to_string_lossy().starts_with(name) {
                found.push(entry.path());
            } else if depth > 0 {
                find(&entry.path(), name, depth - 1, found);
            }
        }
    }
}
