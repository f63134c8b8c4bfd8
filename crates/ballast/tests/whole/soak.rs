//! Killing at random: the API server, the node, or both, at any moment of a rolling update, again and again.
//!
//! After each kill the update ends as it would have, with as many processes as there are pods. A few rounds
//! belong to the tests; `make soak` asks for a hundred with `BALLAST_SOAK`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::dice::{Dice, rounds};
use crate::support::machine::{Ended, find_node, kill_all, processes};
use crate::support::user::User;
use crate::support::{Cluster, eventually};
use serde_json::json;

/// Where nothing is asked for: enough to kill everything once.
const ROUNDS: u32 = 6;
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

/// Shows what the pods say where a test ends because of them.
struct Shown<'a>(&'a Cluster);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.0.kubectl("describe pods -l app=soak"));
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
    for round in 1..=rounds(ROUNDS) {
        let began = Instant::now();
        cluster.kubectl(&format!("set env deployment/soak ROUND={round}")).ok();
        let moment = Duration::from_millis(if dice.of(2) == 0 { dice.of(MAKING) } else { dice.of(UPDATE) });
        std::thread::sleep(moment);
        let (server, node) = (cluster.up.id(), find_node(&cluster.up));
        let choice = dice.of(3);
        let victims = ["the API server", "the node", "both"][usize::try_from(choice).unwrap()];
        kill_all(node.filter(|_| choice != 0).into_iter().chain((choice != 1).then_some(server)));
        if choice != 1 {
            cluster.up.end();
            cluster = up(directory.path());
        }
        let _shown = Shown(&cluster);
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
    // What others took away meanwhile is theirs.
    assert_eq!(links().difference(&before).collect::<Vec<_>>(), Vec::<&std::ffi::OsString>::new());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(place), "{mounts}");
}
