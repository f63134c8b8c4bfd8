//! Killing at random: the API server, the node, both, or who forks pods, at any moment of a rolling update, again
//! and again.
//!
//! After each kill the update ends as it would have, and this machine has of the cluster what its pods need, and
//! nothing else: processes, namespaces, links, mounts, directories, cgroups. A few rounds belong to the tests;
//! `make soak` asks for a hundred with `BALLAST_SOAK`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::dice::{Dice, rounds};
use crate::support::machine::{Ended, find_node, is_in_network_of, kill_all, node_of, processes};
use crate::support::user::User;
use crate::support::{Cluster, eventually};
use serde_json::{Value, json};

/// Where nothing is asked for: enough to kill everything once.
const ROUNDS: u32 = 8;
/// About as long as a rolling update of three pods takes when nobody is killed, in milliseconds.
const UPDATE: u64 = 900;
/// About as long as the first pod of it takes to be made.
const MAKING: u64 = 30;
/// What runs: it listens, so that ready means something.
const IMAGE: &str = "memcached:1.6";
const REPLICAS: usize = 3;

fn up(directory: &Path) -> Cluster {
    User::is_me().up(&["--data-dir", directory.to_str().unwrap()])
}

/// What the node writes down for the next one.
fn record(directory: &Path) -> Value {
    let text = fs::read(directory.join("node/state/host.json")).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// The cgroups that are the cluster's in `directory`, one in each of the machine's trees that grant any.
fn groups(directory: &Path) -> Vec<PathBuf> {
    let record = record(directory);
    let parents = record["cgroups"]["parents"].as_object().into_iter().flatten();
    parents.map(|(_, path)| PathBuf::from(path.as_str().unwrap())).collect()
}

/// Which number the link has that is called so, if there is one.
fn number(uplink: &Value) -> Option<u64> {
    let path = Path::new("/sys/class/net").join(uplink["name"].as_str()?).join("ifindex");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// What the cluster in `directory` has on this machine, whoever looks after it, and how much of it there should be.
fn counts(directory: &Path, cluster: &Cluster) -> Vec<(&'static str, usize, usize)> {
    let all = processes();
    let place = directory.to_str().unwrap();
    // The keeper, and the inits that are its copies.
    let holders: Vec<u32> = all
        .iter()
        .filter(|(_, _, words)| words.contains("sandbox-keeper") && words.contains(place))
        .map(|one| one.0)
        .collect();
    let inside: Vec<&(u32, u32, String)> =
        all.iter().filter(|(pid, parent, _)| holders.contains(parent) && !holders.contains(pid)).collect();
    let servers = inside.iter().filter(|(_, _, words)| words.starts_with("memcached")).count();
    let namespaces = |kind: &str| {
        let of = |pid: &u32| fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok();
        holders.iter().chain(inside.iter().map(|one| &one.0)).filter_map(of).collect::<BTreeSet<_>>().len()
    };
    let of_node = |file: &str| {
        let node = find_node(&cluster.up).map(|node| fs::read_to_string(format!("/proc/{node}/{file}")));
        node.and_then(Result::ok).unwrap_or_default()
    };
    // They are called after the pods' addresses, which begin with 10.
    let links = of_node("net/dev").lines().filter(|line| line.trim_start().starts_with("v0a")).count();
    let mounts = of_node("mounts").lines().filter(|line| line.contains(place)).count();
    let below = |path: &Path| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().is_dir()).count()
    };
    let mut counts = vec![
        ("keepers and inits", holders.len(), 1 + REPLICAS),
        ("processes in pods", inside.len(), REPLICAS),
        ("servers", servers, REPLICAS),
        ("network namespaces", namespaces("net"), 1 + REPLICAS),
        ("IPC namespaces", namespaces("ipc"), 1 + REPLICAS),
        ("PID namespaces", namespaces("pid"), 1 + 2 * REPLICAS),
        ("links of pods", links, REPLICAS),
        // What is secret is in memory, and so is what the containers of a pod share.
        ("mounts of the node's", mounts, 1 + REPLICAS),
        ("directories of pods", below(&directory.join("node/state/pods")), REPLICAS),
    ];
    counts.extend(groups(directory).iter().map(|group| ("cgroups of pods", below(group), REPLICAS)));
    counts
}

/// There is what belongs to the pods that there are, and nothing else.
fn is_clean(directory: &Path, cluster: &Cluster) -> bool {
    counts(directory, cluster).iter().all(|(_, found, wanted)| found == wanted)
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

/// Shows what the pods say and what there is of them where a test ends because of them.
struct Shown<'a>(&'a Path, &'a Cluster);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.1.kubectl("describe pods -l app=soak"));
            println!("{:#?}", counts(self.0, self.1));
        }
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
    let mut dice = Dice::new();
    User::is_me().pull(&[IMAGE]);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let _ended = Ended(directory.path());
    let mut cluster = up(directory.path());
    cluster.kubectl_with(&["apply", "-f", "-"], &deployment()).ok();
    for round in 1..=rounds(ROUNDS) {
        let began = Instant::now();
        cluster.kubectl(&format!("set env deployment/soak ROUND={round}")).ok();
        let moment = Duration::from_millis(if dice.of(2) == 0 { dice.of(MAKING) } else { dice.of(UPDATE) });
        std::thread::sleep(moment);
        let (server, node) = (cluster.up.id(), find_node(&cluster.up));
        let keeper = record(directory.path())["keeper"]["pid"].as_u64().and_then(|pid| pid.try_into().ok());
        let (victims, killed) = match dice.of(4) {
            0 => ("the API server", vec![Some(server)]),
            1 => ("the node", vec![node]),
            2 => ("both", vec![node, Some(server)]),
            _ => ("the keeper", vec![keeper]),
        };
        kill_all(killed.iter().copied().flatten());
        if killed.contains(&Some(server)) {
            cluster.up.end();
            cluster = up(directory.path());
        }
        let _shown = Shown(directory.path(), &cluster);
        eventually(&format!("round {round} ends, {victims} killed after {moment:?}"), || {
            (converged(&cluster, round) && is_clean(directory.path(), &cluster)).then_some(())
        });
        println!("round {round}: {victims} killed after {moment:?}, converged after {:?}", began.elapsed());
    }
    assert!(!is_in_network_of(node_of(&cluster.up), cluster.up.id()), "the node has a network of its own");
    let (groups, uplink) = (groups(directory.path()), record(directory.path())["uplink"].clone());
    assert_eq!(number(&uplink), uplink["index"].as_u64(), "{uplink}");
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
    assert!(!groups.iter().any(|group| group.exists()), "{groups:?}");
    let place = directory.path().to_str().unwrap();
    eventually("no process is left", || {
        processes().iter().all(|(_, _, words)| !words.contains(place)).then_some(())
    });
    // Others may have a link of that name by now, but not this one.
    assert!(uplink.is_null() || number(&uplink) != uplink["index"].as_u64(), "{uplink}");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(place), "{mounts}");
}
