//! What a cluster has on this machine, and a machine that is a test's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::user::User;
use super::{Cluster, Process, eventually, kubectl_program, said};

/// A network of the test's own where it is root's, for what it starts from its own thread: whoever else has a cluster on
/// this machine has its links and routes for itself. Nothing can be downloaded there, so images are made before.
pub fn own_network(images: &[&str]) {
    kubectl_program();
    for user in User::all() {
        user.pull(images);
    }
    if User::is_me() == User::Root {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        loopback_up();
    }
}

/// Brings up the first link of a new network, which is its loopback.
fn loopback_up() {
    const NEW_LINK: u16 = 16;
    const REQUEST_AND_ACK: u16 = 1 | 4;
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)
            .unwrap();
    let mut message: Vec<u8> = Vec::new();
    message.extend(32u32.to_ne_bytes());
    message.extend(NEW_LINK.to_ne_bytes());
    message.extend(REQUEST_AND_ACK.to_ne_bytes());
    // The number of the request, whose it is, a family and a type: none. Then the link, its flags, which of them.
    for word in [0u32, 0, 0, 1, 1, 1] {
        message.extend(word.to_ne_bytes());
    }
    rustix::net::send(&socket, &message, SendFlags::empty()).unwrap();
    let mut answer = [0; 64];
    rustix::net::recv(&socket, &mut answer, RecvFlags::empty()).unwrap();
    assert_eq!(answer[16..20], [0; 4], "the kernel's answer is no error");
}

/// The processes of this machine: number, parent, words.
pub fn processes() -> Vec<(u32, u32, String)> {
    let entries =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    entries
        .filter_map(|pid: u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent, String::from_utf8_lossy(&words).replace('\0', " ")))
        })
        .collect()
}

/// A process and all below it.
pub fn family(of: u32) -> Vec<(u32, String)> {
    let all = processes();
    let mut found = vec![of];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(all.iter().filter(|(_, of, _)| *of == parent).map(|(pid, _, _)| *pid));
        at += 1;
    }
    all.into_iter().filter(|(pid, _, _)| found.contains(pid)).map(|(pid, _, words)| (pid, words)).collect()
}

/// The processes that hold the pods of a cluster that is kept in a directory, and all below them: they are
/// nobody's children once their node is gone.
pub fn of_directory(directory: &Path) -> Vec<(u32, String)> {
    let place = directory.to_str().unwrap();
    let keepers = processes().into_iter().filter(|(_, _, words)| words.contains(place));
    keepers.flat_map(|(pid, _, _)| family(pid)).collect()
}

/// The node of an `up`, if it lives at the moment.
pub fn find_node(up: &Process) -> Option<u32> {
    let all = processes().into_iter();
    let mut nodes = all.filter(|(_, of, words)| *of == up.id() && words.starts_with("ballast node "));
    nodes.next().map(|(pid, _, _)| pid)
}

pub fn node_of(up: &Process) -> u32 {
    find_node(up).unwrap_or_else(|| panic!("up has no node: {:?}", processes()))
}

/// Who forks the pods of an `up`: its node's only child, as long as it is the node's own.
pub fn keeper_of(up: &Process) -> u32 {
    let node = node_of(up);
    let all = processes();
    let keeper = all.iter().find(|(_, of, words)| *of == node && words.contains("sandbox-keeper"));
    keeper.unwrap_or_else(|| panic!("the node has no keeper: {all:?}")).0
}

pub fn programs(up: &Process, name: &str) -> Vec<u32> {
    let family = family(up.id()).into_iter().filter(|(_, words)| words.starts_with(name));
    let mut found: Vec<u32> = family.map(|(pid, _)| pid).collect();
    found.sort_unstable();
    found
}

/// The links of this thread's network.
fn links() -> String {
    fs::read_to_string("/proc/thread-self/net/dev").unwrap()
}

/// Whether two processes are in the same network.
pub fn is_in_network_of(one: u32, other: u32) -> bool {
    let of = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    of(one) == of(other)
}

/// Where a node has its files: it holds a lock there.
fn ground(node: u32) -> String {
    let open = fs::read_dir(format!("/proc/{node}/fd")).unwrap();
    let mut open = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let lock = open.find(|path| path.ends_with("state/lock")).unwrap();
    format!("{}/", lock.ancestors().nth(2).unwrap().display())
}

/// What there is on the machine of a cluster: processes, links, cgroups, mounts.
pub struct Traces {
    pub processes: Vec<u32>,
    link: String,
    places: Vec<PathBuf>,
    /// What the node writes is below this, and what it mounts.
    ground: String,
}

impl Traces {
    pub fn of(cluster: &Cluster, user: User) -> Self {
        let processes: Vec<u32> = family(cluster.up.id()).into_iter().map(|(pid, _)| pid).collect();
        let node = node_of(&cluster.up);
        assert!(!is_in_network_of(node, cluster.up.id()), "the node has a network of its own");
        let ground = ground(node);
        let mounts = fs::read_to_string(format!("/proc/{node}/mounts")).unwrap();
        assert!(mounts.contains(&ground), "nothing in {ground} is mounted for the node: {mounts}");
        let address = cluster.field("node/ballast", ".status.addresses[0].address");
        let number: u8 = address.split('.').nth(1).unwrap().parse::<u8>().unwrap() - 244;
        let link = format!("ballast{number}:");
        assert_eq!(links().contains(&link), user == User::Root, "{}", links());
        let mut places = Vec::new();
        let groups =
            processes.iter().filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).ok());
        for line in groups.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()) {
            let mut fields = line.splitn(3, ':').skip(1);
            let (tree, path) = (fields.next().unwrap(), fields.next().unwrap());
            if let Some(at) = path.find("/drydock-") {
                let end = path[at + 1..].find('/').map_or(path.len(), |length| at + 1 + length);
                places.push(PathBuf::from(format!("/sys/fs/cgroup/{tree}{}", &path[..end])));
            }
        }
        places.sort();
        places.dedup();
        Traces { processes, link, places, ground }
    }

    /// Nothing of it is left.
    #[track_caller]
    pub fn are_gone(&self) {
        eventually("no process is left", || {
            let alive = |pid: &u32| {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                !stat.is_empty() && !stat.contains(") Z ")
            };
            (!self.processes.iter().any(alive)).then_some(())
        });
        eventually(&format!("none of {:?} is left", self.places), || {
            (!self.places.iter().any(|place| place.exists())).then_some(())
        });
        assert!(!links().contains(&self.link), "{}", links());
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(&self.ground), "{mounts}");
    }
}

/// Sends a process a signal: `STOP`.
pub fn signal(pid: u32, name: &str) {
    said(Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]), "").ok();
}

/// Ends a process without a word.
pub fn kill(pid: u32) {
    signal(pid, "KILL");
}

/// The same for many, of which some may be gone by then.
pub fn kill_all(pids: impl IntoIterator<Item = u32>) {
    let words: Vec<String> = pids.into_iter().map(|pid| pid.to_string()).collect();
    let line = format!("kill -KILL {} 2>/dev/null; true", words.join(" "));
    said(Command::new("sh").args(["-c", &line]), "").ok();
}

/// Ends what a cluster that is kept in a directory has left, when a test ends before its time.
pub struct Ended<'a>(pub &'a Path);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        kill_all(of_directory(self.0).into_iter().map(|(pid, _)| pid));
    }
}
