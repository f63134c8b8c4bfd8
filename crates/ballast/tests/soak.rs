//! Killing at random: the API server, the node, or both, at any moment of a rolling update, again and again.
//!
//! After each kill the update ends as it would have, with as many processes as there are pods. A few rounds
//! belong to the tests; `make soak` asks for a hundred with `BALLAST_SOAK`. The seed is printed, and
//! `BALLAST_SOAK_SEED` repeats a run's choices.
#![expect(clippy::unwrap_used, clippy::panic, reason = "in a test a failure is the answer")]
#![expect(dead_code, reason = "each test uses its part of the support")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use support::{Cluster, Process, ballast, eventually, said};

/// Where nothing is asked for: enough to kill everything once.
const ROUNDS: u32 = 6;
/// About as long as a rolling update of three pods takes when nobody is killed, in milliseconds.
const UPDATE: u64 = 900;
/// What runs: it listens, so that ready means something.
const IMAGE: &str = "memcached:1.6";
const REPLICAS: usize = 3;

/// Choices that can be repeated.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let time = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let seed = number("BALLAST_SOAK_SEED").unwrap_or_else(time);
        println!("BALLAST_SOAK_SEED={seed}");
        Dice(seed)
    }

    /// One of so many.
    fn of(&mut self, many: u64) -> u64 {
        // Knuth's constants for a generator of 64 bits; the upper ones are the better ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % many
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text}")))
}

/// A home that stays, so that images are made once.
fn home() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("soak-home")
}

fn at_home() -> Command {
    let mut command = ballast();
    command.env("HOME", home());
    command
}

fn up(directory: &Path) -> Cluster {
    let own = tempfile::tempdir().unwrap();
    let kubeconfig = own.path().join("kubeconfig");
    let mut command = at_home();
    command.args(["up", "--listen", "127.0.0.1:0", "--data-dir"]).arg(directory);
    let up = Process::start({
        command.arg("--kubeconfig").arg(&kubeconfig);
        command
    });
    assert_eq!(up.line(), format!("ready: export KUBECONFIG={}", kubeconfig.display()));
    Cluster { up, kubeconfig, directory: own }
}

/// Number, parent and words of every process that is not dead.
fn processes() -> Vec<(u32, u32, String)> {
    let numbers =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers
        .filter_map(|pid: u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let rest = stat.rsplit_once(')')?.1;
            let parent = rest.split_whitespace().nth(1)?.parse().ok()?;
            let dead = rest.trim_start().starts_with('Z');
            (!dead).then(|| (pid, parent, String::from_utf8_lossy(&words).replace('\0', " ")))
        })
        .collect()
}

fn node_of(up: u32) -> Option<u32> {
    let all = processes();
    all.iter().find(|(_, parent, words)| *parent == up && words.ends_with("node ")).map(|(pid, _, _)| *pid)
}

/// The servers that run for the cluster in `directory`, whoever looks after them.
fn servers(directory: &Path) -> usize {
    let all = processes();
    let place = directory.to_str().unwrap();
    let inits: BTreeSet<u32> = all
        .iter()
        .filter(|(_, _, words)| words.contains("sandbox-keeper") && words.contains(place))
        .map(|one| one.0)
        .collect();
    all.iter().filter(|(_, parent, words)| inits.contains(parent) && words.starts_with("memcached")).count()
}

fn kill(pid: u32) {
    // One that is dead already has been killed.
    said(Command::new("sh").args(["-c", &format!("kill -KILL {pid}")]), "");
}

fn deployment() -> String {
    let server = json!({
        "name": "memcached", "image": IMAGE, "readinessProbe": {"tcpSocket": {"port": 11211}, "periodSeconds": 1},
    });
    let template = json!({
        "metadata": {"labels": {"app": "soak"}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [server]},
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "soak"},
        "spec": {"replicas": REPLICAS, "selector": {"matchLabels": {"app": "soak"}}, "template": template},
    })
    .to_string()
}

/// What a failed run would leave running: pods of a kept cluster outlive everybody.
struct Sweep<'a>(&'a Path);

impl Drop for Sweep<'_> {
    fn drop(&mut self) {
        let place = self.0.to_string_lossy();
        processes().iter().filter(|(_, _, words)| words.contains(&*place)).for_each(|one| kill(one.0));
    }
}

/// The update of this round is through: as many pods as wanted, all of this round, all ready.
fn converged(cluster: &Cluster, round: u32) -> bool {
    let template = "{.metadata.generation} {.status.observedGeneration} {.status.replicas} {.status.updatedReplicas} {.status.readyReplicas}";
    let deployment =
        cluster.kubectl_with(&["get", "deployment", "soak", "-o", &format!("jsonpath={template}")], "");
    if deployment.code() != 0 {
        return false;
    }
    let said = deployment.ok();
    let fields: Vec<&str> = said.split(' ').collect();
    let wanted = REPLICAS.to_string();
    if fields[0] != fields[1] || fields[2..] != [wanted.as_str(); 3] {
        return false;
    }
    let path = "jsonpath={range .items[*]}{.spec.containers[0].env[0].value} {end}";
    let pods = cluster.kubectl_with(&["get", "pods", "-l", "app=soak", "-o", path], "");
    pods.code() == 0
        && pods.ok().split_whitespace().collect::<Vec<_>>() == vec![round.to_string().as_str(); REPLICAS]
}

#[test]
fn whoever_is_killed_and_whenever_a_rolling_update_ends_and_nothing_is_left() {
    let rounds = number("BALLAST_SOAK").map_or(ROUNDS, |rounds| u32::try_from(rounds).unwrap());
    let mut dice = Dice::new();
    fs::create_dir_all(home()).unwrap();
    said(at_home().args(["image", "pull", IMAGE]), "").ok();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let _sweep = Sweep(directory.path());
    let links = || {
        fs::read_dir("/sys/class/net")
            .unwrap()
            .flatten()
            .map(|link| link.file_name())
            .collect::<BTreeSet<_>>()
    };
    let before = links();
    let mut cluster = up(directory.path());
    cluster.kubectl_with(&["apply", "-f", "-"], &deployment()).ok();
    for round in 1..=rounds {
        let began = Instant::now();
        cluster.kubectl(&format!("set env deployment/soak ROUND={round}")).ok();
        let moment = Duration::from_millis(dice.of(UPDATE));
        std::thread::sleep(moment);
        let (server, node) = (cluster.up.id(), node_of(cluster.up.id()));
        let choice = dice.of(3);
        let victims = ["the API server", "the node", "both"][usize::try_from(choice).unwrap()];
        for victim in node.filter(|_| choice != 0).into_iter().chain((choice != 1).then_some(server)) {
            kill(victim);
        }
        if choice != 1 {
            cluster.up.end();
            cluster = up(directory.path());
        }
        eventually(&format!("round {round} ends, {victims} killed after {moment:?}"), || {
            (converged(&cluster, round) && servers(directory.path()) == REPLICAS).then_some(())
        });
        println!("round {round}: {victims} killed after {moment:?}, converged after {:?}", began.elapsed());
    }
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
    let place = directory.path().to_str().unwrap();
    eventually("no process is left", || {
        processes().iter().all(|(_, _, words)| !words.contains(place)).then_some(())
    });
    assert_eq!(links(), before);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(place), "{mounts}");
}
