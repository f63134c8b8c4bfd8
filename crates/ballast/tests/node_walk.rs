//! The first seed's walk with real processes, by the real kubectl: as root, and as a plain user.
//!
//! Run by root both are walked: the plain user is one that the machine does not know, with nothing but a
//! directory. Run by anybody else, the walk is that user's, and the one as root is said to be left out.
#![expect(clippy::unwrap_used, clippy::panic, reason = "in a test a failure is the answer")]
#![expect(dead_code, reason = "each test uses its part of the support")]

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard};

use support::{Cluster, Process, eventually, said};

const SAMPLE: &str = "examples/seeds/memcached.yaml";
/// What the walk runs.
const IMAGES: [&str; 2] = ["memcached:1.6.9", "busybox"];
/// A user that no machine has.
const PLAIN: u32 = 54_321;

/// Who runs `ballast`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    Root,
    Plain,
}

impl User {
    fn is_me() -> Self {
        if fs::metadata("/proc/self").unwrap().uid() == 0 { User::Root } else { User::Plain }
    }

    /// Those whom this process can be.
    fn all() -> Vec<Self> {
        match Self::is_me() {
            User::Root => vec![User::Root, User::Plain],
            User::Plain => {
                eprintln!("not root: nothing is walked as root here");
                vec![User::Plain]
            }
        }
    }

    /// A directory of this user's alone, which stays: images are made once.
    fn home(self) -> PathBuf {
        let home = open_to_all().join(format!("node-walk-{self:?}").to_lowercase());
        fs::create_dir_all(&home).unwrap();
        if self != Self::is_me() {
            chown(&home, Some(PLAIN), Some(PLAIN)).unwrap();
        }
        home
    }

    /// `ballast` as this user.
    fn ballast(self) -> Command {
        let usual = support::ballast();
        let mut command =
            Command::new(if self == Self::is_me() { usual.get_program().into() } else { program() });
        for (name, value) in usual.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let home = self.home();
        command
            .env("HOME", &home)
            .env_remove("XDG_DATA_HOME")
            .env_remove("XDG_CACHE_HOME")
            .current_dir(&home);
        if self != Self::is_me() {
            command.uid(PLAIN).gid(PLAIN);
        }
        command
    }

    /// A cluster of this user's, with its images made before: that may take longer than any test waits.
    fn up(self, flags: &[&str]) -> Cluster {
        for image in IMAGES {
            said(self.ballast().args(["image", "pull", image]), "").ok();
        }
        let directory = tempfile::tempdir_in(self.home()).unwrap();
        if self != Self::is_me() {
            chown(directory.path(), Some(PLAIN), Some(PLAIN)).unwrap();
        }
        let kubeconfig = directory.path().join("kubeconfig");
        let mut command = self.ballast();
        command.args(["up", "--listen", "127.0.0.1:0"]).args(flags).arg("--kubeconfig").arg(&kubeconfig);
        let up = Process::start(command);
        assert_eq!(up.line(), format!("ready: export KUBECONFIG={}", kubeconfig.display()));
        Cluster { up, kubeconfig, directory }
    }
}

fn is_open(path: &Path) -> bool {
    path.ancestors().all(|part| fs::metadata(part).is_ok_and(|found| found.mode() & 0o001 != 0))
}

/// A directory that every user can enter.
fn open_to_all() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if is_open(target) {
        return target.to_owned();
    }
    let other = std::env::temp_dir().join("ballast-tests");
    fs::create_dir_all(&other).unwrap();
    other
}

/// The program where every user can run it.
fn program() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_ballast"));
    if is_open(&built) {
        return built;
    }
    let copy = open_to_all().join(format!("ballast-{}", std::process::id()));
    if !copy.exists() {
        fs::copy(built, &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    }
    copy
}

/// One after the other: each looks at what is left on the machine.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What memcached answers to a few commands.
fn talk(mut to: TcpStream) -> String {
    to.write_all(b"set greeting 0 0 5\r\nhello\r\nget greeting\r\nversion\r\nquit\r\n").unwrap();
    let mut answer = String::new();
    to.read_to_string(&mut answer).unwrap();
    answer
}

fn is_memcached(answer: &str) -> bool {
    answer.starts_with("STORED\r\nVALUE greeting 0 5\r\nhello\r\nEND\r\nVERSION 1.6.")
}

/// The processes of this machine: number, parent, words.
fn processes() -> Vec<(u32, u32, String)> {
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
fn family(of: u32) -> Vec<(u32, String)> {
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

fn node_of(up: &Process) -> u32 {
    let all = processes();
    let node = all.iter().find(|(_, parent, words)| *parent == up.id() && words.ends_with("node "));
    node.unwrap_or_else(|| panic!("up has no node: {all:?}")).0
}

fn programs(up: &Process, name: &str) -> Vec<u32> {
    let family = family(up.id()).into_iter().filter(|(_, words)| words.starts_with(name));
    let mut found: Vec<u32> = family.map(|(pid, _)| pid).collect();
    found.sort_unstable();
    found
}

/// What there is on the machine of a cluster: processes, links, cgroups, mounts.
struct Traces {
    processes: Vec<u32>,
    places: Vec<PathBuf>,
    mounts: String,
}

impl Traces {
    fn of(cluster: &Cluster, user: User) -> Self {
        let processes: Vec<u32> = family(cluster.up.id()).into_iter().map(|(pid, _)| pid).collect();
        let address = cluster.field("node/ballast", ".status.addresses[0].address");
        let number: u8 = address.split('.').nth(1).unwrap().parse::<u8>().unwrap() - 244;
        let mut places = vec![PathBuf::from(format!("/sys/class/net/ballast{number}"))];
        places.retain(|_| user == User::Root);
        assert!(places.iter().all(|place| place.exists()), "{places:?}");
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
        Traces { processes, places, mounts: fs::read_to_string("/proc/self/mounts").unwrap() }
    }

    /// Nothing of it is left.
    #[track_caller]
    fn are_gone(&self) {
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
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert_eq!(mounts.matches("node-walk").count(), self.mounts.matches("node-walk").count(), "{mounts}");
    }
}

/// `kubectl port-forward` to a free port of this machine.
struct Forward {
    child: Child,
    port: u16,
    /// Read from, or the next line that kubectl prints would be its end.
    _said: BufReader<ChildStdout>,
}

impl Forward {
    fn to(cluster: &Cluster, what: &str, port: u16) -> Self {
        let mut command = cluster.command();
        command.args(["port-forward", what, &format!(":{port}")]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let port = line.split_whitespace().nth(2).and_then(|address| address.rsplit_once(':')).unwrap().1;
        Forward { child, port: port.parse().unwrap(), _said: said }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).unwrap()
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A busybox that says a word and waits: from it the cluster is seen as pods see it.
fn idle(cluster: &Cluster) {
    let words =
        ["run", "idle", "--image=busybox", "--command", "--", "sh", "-c", "echo here; exec sleep 86400"];
    cluster.kubectl_with(&words, "").ok();
    cluster.kubectl("wait --for=condition=Ready pod/idle --timeout=30s").ok();
}

/// What memcached answers to the same commands from within a pod.
fn talk_from_idle(cluster: &Cluster, address: &str) -> String {
    let script = format!(
        r"printf 'set greeting 0 0 5\r\nhello\r\nget greeting\r\nversion\r\nquit\r\n' | nc {address} 11211"
    );
    cluster.kubectl_with(&["exec", "idle", "--", "sh", "-c", &script], "").ok()
}

/// Waits until the sample has its three.
fn until_ready(cluster: &Cluster) {
    cluster.becomes("deployment/memcached-sample", ".status.readyReplicas", "3");
}

/// Applies the sample, and gives the addresses of its pods once all are ready.
fn with_sample(cluster: &Cluster) -> Vec<String> {
    cluster.kubectl(&format!("apply -f {SAMPLE}")).ok();
    until_ready(cluster);
    let path = "jsonpath={.items[*].status.podIP}";
    let addresses = cluster.kubectl(&format!("get pods -l memcached_cr=memcached-sample -o {path}")).ok();
    let addresses: Vec<String> = addresses.split_whitespace().map(str::to_owned).collect();
    assert_eq!(addresses.len(), 3, "{addresses:?}");
    addresses
}

fn walk(user: User) {
    let _turn = alone();
    let mut cluster = user.up(&["--memory"]);
    let addresses = with_sample(&cluster);
    idle(&cluster);
    cluster.kubectl("expose deployment memcached-sample --name=balanced --port=11211").ok();
    let service = cluster.field("service/balanced", ".spec.clusterIP");

    // Each on its own address, all by the Service's name, one through the Service's address.
    let names = ["memcached-sample", "memcached-sample.default.svc.cluster.local", "balanced", &service];
    for address in addresses.iter().map(String::as_str).chain(names) {
        let answer = talk_from_idle(&cluster, address);
        assert!(is_memcached(&answer), "{address}: {answer}");
    }
    if user == User::Root {
        for address in addresses.iter().chain([&service]) {
            let answer = talk(TcpStream::connect((address.as_str(), 11211)).unwrap());
            assert!(is_memcached(&answer), "{address} from this machine: {answer}");
        }
    }
    for what in ["service/memcached-sample", "deployment/memcached-sample"] {
        let forward = Forward::to(&cluster, what, 11211);
        for _ in 0..2 {
            assert!(is_memcached(&talk(forward.connect())), "through port-forward to {what}");
        }
    }

    assert_eq!(cluster.kubectl("logs idle").ok(), "here\n");
    assert_eq!(cluster.kubectl_with(&["exec", "-i", "idle", "--", "cat"], "to and fro").ok(), "to and fro");
    let failed = cluster.kubectl_with(&["exec", "idle", "--", "sh", "-c", "exit 3"], "");
    assert_eq!(failed.code(), 3, "{failed}");
    let whoami = cluster.kubectl("exec deployment/memcached-sample -- id -un").ok();
    assert_eq!(whoami, "memcache\n");

    the_api_is_reached_from_pods(&cluster, user);

    let traces = Traces::of(&cluster, user);
    assert!(traces.processes.len() > 8, "{:?}", traces.processes);
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end(), (0, String::new()), "{}", cluster.up.complaints());
    traces.are_gone();
}

/// With the address, the certificate and the token that pods are given.
fn the_api_is_reached_from_pods(cluster: &Cluster, user: User) {
    let secrets = "/var/run/secrets/kubernetes.io/serviceaccount";
    let read = |file: &str| cluster.kubectl(&format!("exec idle -- cat {secrets}/{file}")).ok();
    let variable = |name: &str| {
        let script = format!("echo ${name}");
        cluster.kubectl_with(&["exec", "idle", "--", "sh", "-c", &script], "").ok().trim().to_owned()
    };
    let server =
        format!("https://{}:{}", variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT"));
    let authority = cluster.directory.path().join("ca.crt");
    fs::write(&authority, read("ca.crt")).unwrap();
    let pid = programs(&cluster.up, "sleep 86400")[0].to_string();
    // In the pod's network, with this machine's kubectl.
    let mut inside = Command::new("nsenter");
    inside.args(["--net", "--target", &pid]);
    if User::is_me() == User::Plain {
        inside.args(["--user", "--preserve-credentials"]);
    }
    let kubectl = cluster.command();
    inside.arg(kubectl.get_program()).env("KUBECONFIG", "/dev/null");
    inside.env("KUBECACHEDIR", cluster.directory.path().join("cache-inside"));
    inside.args(["--server", &server, "--token", &read("token"), "--certificate-authority"]).arg(&authority);
    let known = said(inside.args(["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]), "").ok();
    assert_eq!(known, "system:serviceaccount:default:default", "{user:?}");
}

#[test]
fn the_seeds_memcacheds_answer_when_run_by_root() {
    match User::is_me() {
        User::Root => walk(User::Root),
        User::Plain => eprintln!("NOT RUN: this needs root"),
    }
}

#[test]
fn the_seeds_memcacheds_answer_when_run_by_a_plain_user() {
    walk(User::Plain);
}

/// Whatever is killed, of a cluster in memory nothing stays, and the node of one that lives comes back.
fn killed_in_memory(user: User) {
    let cluster = user.up(&["--memory"]);
    with_sample(&cluster);
    let before = programs(&cluster.up, "memcached");
    assert_eq!(before.len(), 3);
    kill(node_of(&cluster.up));
    eventually("the node is back and its pods run anew", || {
        let now = programs(&cluster.up, "memcached");
        (now.len() == 3 && now.iter().all(|pid| !before.contains(pid))).then_some(())
    });
    until_ready(&cluster);
    let traces = Traces::of(&cluster, user);
    kill(cluster.up.id());
    traces.are_gone();
}

/// Of a cluster that is kept, pods outlive whoever is killed, and end with a stop in order.
fn killed_and_kept(user: User) {
    let kept = tempfile::tempdir_in(user.home()).unwrap();
    if user != User::is_me() {
        chown(kept.path(), Some(PLAIN), Some(PLAIN)).unwrap();
    }
    let flags = ["--data-dir", kept.path().to_str().unwrap()];
    let mut cluster = user.up(&flags);
    let addresses = with_sample(&cluster);
    let before = memcacheds(kept.path());
    assert_eq!(before.len(), 3);
    let unhurt = |cluster: &Cluster, what: &str| {
        until_ready(cluster);
        idle(cluster);
        for address in &addresses {
            assert!(is_memcached(&talk_from_idle(cluster, address)), "{address} after {what}");
        }
        assert_eq!(memcacheds(kept.path()), before, "after {what}");
        cluster.kubectl("delete pod idle --now").ok();
    };
    kill(node_of(&cluster.up));
    unhurt(&cluster, "the node was killed");
    kill(cluster.up.id());
    cluster = user.up(&flags);
    unhurt(&cluster, "up was killed");
    let node = node_of(&cluster.up);
    kill(cluster.up.id());
    kill(node);
    cluster = user.up(&flags);
    unhurt(&cluster, "both were killed");

    let traces = Traces::of(&cluster, user);
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
    traces.are_gone();
    assert!(memcacheds(kept.path()).is_empty());
    cluster = user.up(&flags);
    until_ready(&cluster);
    eventually("the pods run again", || (memcacheds(kept.path()).len() == 3).then_some(()));
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
}

/// The memcacheds of a cluster that is kept somewhere, also while nobody looks after them.
fn memcacheds(directory: &Path) -> Vec<u32> {
    let all = processes();
    let place = directory.to_str().unwrap();
    let inits: Vec<u32> = all
        .iter()
        .filter(|(_, _, words)| words.contains("sandbox-keeper") && words.contains(place))
        .map(|(pid, _, _)| *pid)
        .collect();
    let ours =
        |(_, parent, words): &&(u32, u32, String)| inits.contains(parent) && words.starts_with("memcached");
    let mut found: Vec<u32> = all.iter().filter(ours).map(|(pid, _, _)| *pid).collect();
    found.sort_unstable();
    found
}

fn kill(pid: u32) {
    said(Command::new("sh").args(["-c", &format!("kill -KILL {pid}")]), "").ok();
}

#[test]
fn a_killed_process_of_a_cluster_in_memory_leaves_nothing() {
    let _turn = alone();
    User::all().into_iter().for_each(killed_in_memory);
}

#[test]
fn a_killed_process_of_a_kept_cluster_leaves_its_pods_to_the_next() {
    let _turn = alone();
    User::all().into_iter().for_each(killed_and_kept);
}
