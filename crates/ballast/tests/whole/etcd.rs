//! Three etcd members in a StatefulSet, by `examples/drydock/etcd.yaml`: they find each other by name, and stay enough of
//! them to answer through a lost member, a rolling update and a drain.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::machine::own_network;
use crate::support::user::{THIS, User};
use crate::support::{Cluster, Said, eventually};
use serde_json::Value;

const MANIFEST: &str = "examples/drydock/etcd.yaml";
const IMAGES: [&str; 1] = ["quay.io/coreos/etcd:v3.5.16"];
const ALL: &str = "--endpoints=etcd-0.etcd:2379,etcd-1.etcd:2379,etcd-2.etcd:2379";

/// etcdctl in the pod of a member.
fn etcdctl(cluster: &Cluster, member: usize, words: &[&str]) -> Said {
    let pod = format!("etcd-{member}");
    cluster.kubectl_with(&[&["exec", &pod, "-c", "etcd", "--", "etcdctl"], words].concat(), "")
}

/// What each member says of itself: its number, and who leads.
fn status(cluster: &Cluster) -> Vec<(u64, u64)> {
    let said = etcdctl(cluster, 0, &[ALL, "--write-out=json", "endpoint", "status"]).ok();
    let said: Value = serde_json::from_str(&said).unwrap();
    let one = |status: &Value| {
        (
            status["Status"]["header"]["member_id"].as_u64().unwrap(),
            status["Status"]["leader"].as_u64().unwrap(),
        )
    };
    said.as_array().unwrap().iter().map(one).collect()
}

fn ready(cluster: &Cluster) -> usize {
    cluster.field("statefulset/etcd", ".status.readyReplicas").parse().unwrap_or(0)
}

/// The three are one cluster with one leader. Gives their numbers.
fn one_cluster(cluster: &Cluster) -> Vec<u64> {
    eventually("three are ready", || (ready(cluster) == 3).then_some(()));
    let status = status(cluster);
    let (members, leaders): (Vec<u64>, BTreeSet<u64>) = status.into_iter().unzip();
    assert_eq!((members.len(), leaders.len()), (3, 1), "{members:?} {leaders:?}");
    assert!(members.contains(leaders.first().unwrap()));
    members
}

fn walk(user: User) {
    let mut cluster = user.up(&["--memory", "--no-operators"]);
    cluster.kubectl(&format!("apply -f {MANIFEST}")).ok();
    cluster.kubectl("rollout status statefulset/etcd --timeout=60s").ok();
    let members = one_cluster(&cluster);
    let list = etcdctl(&cluster, 0, &["member", "list"]).ok();
    assert_eq!(list.matches(", started, etcd-").count(), 3, "{list}");
    etcdctl(&cluster, 0, &["put", "greeting", "hello"]).ok();
    assert_eq!(etcdctl(&cluster, 2, &["get", "greeting", "--print-value-only"]).ok(), "hello\n");

    let followed = cluster.follow("statefulset/etcd", &[".status.readyReplicas"]);
    assert_eq!(followed.line(), "3");
    cluster.kubectl("delete pod etcd-1 --grace-period=0 --force").ok();
    while followed.line() == "3" {}
    assert_eq!(one_cluster(&cluster), members, "it is the same member, with what it had");
    let own = ["get", "greeting", "--print-value-only", "--consistency=s"];
    assert_eq!(etcdctl(&cluster, 1, &own).ok(), "hello\n");

    updated(&cluster);
    assert_eq!(one_cluster(&cluster), members);
    drained(&cluster);
    assert_eq!(one_cluster(&cluster), members);
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
}

/// Says that it is done when it goes, also where a test fails: whoever waits for that must not wait for ever.
struct Done<'d>(&'d AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One after the other is replaced while somebody writes, and what was acknowledged is there.
fn updated(cluster: &Cluster) {
    let done = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut acknowledged = Vec::new();
            for number in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let member = number % 3;
                let key = format!("number-{number}");
                if etcdctl(cluster, member, &[ALL, "put", &key, "here"]).status.success() {
                    acknowledged.push(key);
                }
            }
            acknowledged
        });
        let updated = Done(&done);
        let paths = [".status.readyReplicas", ".status.currentRevision", ".status.updateRevision"];
        let followed = cluster.follow("statefulset/etcd", &paths);
        let before = followed.line();
        cluster.kubectl("rollout restart statefulset/etcd").ok();
        let budget = "poddisruptionbudget/etcd";
        let old = before.split(' ').next_back().unwrap();
        let mut least = usize::MAX;
        loop {
            let line = followed.line();
            let [ready, current, update] = *line.split(' ').collect::<Vec<_>>() else { panic!("{line:?}") };
            least = least.min(ready.parse().unwrap_or(0));
            if current == update && current != old {
                break;
            }
        }
        assert_eq!(least, 2, "one at a time");
        cluster.becomes(budget, ".status.disruptionsAllowed", "1");
        drop(updated);
        writer.join().unwrap()
    });
    assert!(!written.is_empty());
    let all = etcdctl(cluster, 0, &["get", "number-", "--prefix", "--keys-only"]).ok();
    let all: BTreeSet<&str> = all.lines().collect();
    let lost: Vec<_> = written.iter().filter(|key| !all.contains(key.as_str())).collect();
    assert!(lost.is_empty(), "of {}: {lost:?}", written.len());
}

/// The budget lets one go, which finds no other node; then it holds the drain back.
fn drained(cluster: &Cluster) {
    let words = "drain ballast --ignore-daemonsets --delete-emptydir-data --timeout=6s";
    let refused = cluster.kubectl(words).refused();
    assert!(
        refused.contains("Cannot evict pod as it would violate the pod's disruption budget."),
        "{refused}"
    );
    assert_eq!(ready(cluster), 2, "{refused}");
    cluster.becomes("poddisruptionbudget/etcd", ".status.disruptionsAllowed", "0");
    let alive: Vec<usize> = (0..3)
        .filter(|member| etcdctl(cluster, *member, &["put", "during", "drain"]).status.success())
        .collect();
    assert_eq!(alive.len(), 2, "who is left still answers");
    cluster.kubectl("uncordon ballast").ok();
}

#[test]
fn three_members_are_one_cluster_and_stay_it() {
    let manifest = std::fs::read_to_string(crate::support::root().join(MANIFEST)).unwrap();
    assert!(manifest.contains(&format!("image: {THIS}\n")), "the example has the agent of this version");
    let users = User::all();
    users.iter().for_each(|user| user.pull_this());
    own_network(&IMAGES);
    users.into_iter().for_each(walk);
}
