//! The operators as pods: what `make deploy` applies, on a cluster of this machine without operators of its own.

use std::fs;
use std::process::Command;

use crate::support::machine::programs;
use crate::support::user::{THIS, User};
use crate::support::{Cluster, ballast, eventually, said};

const SAMPLE: &str = "examples/seeds/memcached.yaml";
const MEMCACHED: &str = "memcached:1.6.9";
const NAMESPACE: &str = "ballast-system";
/// The image that is deployed, as an archive brings it.
const PACKED: &str = "example.com/ballast:packed";

/// A cluster that the operators are deployed into.
struct Deployed {
    cluster: Cluster,
    manifests: String,
}

impl Deployed {
    fn start(user: User) -> Self {
        user.pull_this();
        user.pull(&[MEMCACHED]);
        let directory = user.directory();
        let archive = directory.path().join("ballast.tar");
        said(user.ballast().args(["image", "export", THIS, "--name", PACKED]).arg(&archive), "").ok();
        said(user.ballast().args(["image", "import"]).arg(&archive), "").ok();
        let cluster = user.up(&["--memory", "--no-operators"]);
        let manifests = said(ballast().args(["manifests", "--image", PACKED]), "").ok();
        cluster.kubectl_with(&["apply", "--server-side", "-f", "-"], &manifests).ok();
        Deployed { cluster, manifests }
    }

    fn here(&self, words: &str) -> crate::support::Said {
        self.cluster.kubectl(&format!("-n {NAMESPACE} {words}"))
    }

    /// The pods of the operators that are ready.
    fn ready(&self) -> Vec<String> {
        let said = self.here("get pods -l app.kubernetes.io/component=operators --no-headers").ok();
        let rows = crate::support::table(&said).into_iter();
        rows.filter(|row| row[1..3] == ["1/1", "Running"]).map(|row| row[0].clone()).collect()
    }

    fn two_are_ready(&self) -> Vec<String> {
        eventually("two copies are ready", || Some(self.ready()).filter(|ready| ready.len() == 2))
    }

    /// Whoever holds the Lease: a pod's name, and a number of the process's own.
    fn leader(&self) -> Option<String> {
        let holder = self.here("get lease ballast -o jsonpath={.spec.holderIdentity}").stdout;
        Some(holder.rsplit_once('_')?.0.to_owned())
    }

    /// The copies that took it to be theirs.
    fn led(&self, copies: &[String]) -> Vec<String> {
        let said = |pod: &String| self.here(&format!("logs {pod}")).ok().contains("\"holds the lease\"");
        copies.iter().filter(|pod| said(pod)).cloned().collect()
    }

    /// Waits until the sample has so many servers, all of which have answered.
    fn sample_serves(&self, replicas: usize) {
        let sample = "mc/memcached-sample";
        let ready = format!("{replicas} of {replicas} nodes ready");
        self.cluster.becomes(sample, ".status.conditions[?(@.type==\"Ready\")].message", &ready);
        self.cluster.becomes(sample, ".status.conditions[?(@.type==\"Ready\")].status", "True");
        let servers = self.cluster.field(sample, ".status.servers[*]");
        assert_eq!(servers.split_whitespace().count(), replicas, "{servers}");
    }

    fn undeploy(&self) {
        let mut kubectl = Command::new("timeout");
        let real = self.cluster.command();
        kubectl.arg("60").arg(real.get_program()).args(["delete", "--ignore-not-found", "-f", "-"]);
        kubectl.envs(real.get_envs().filter_map(|(name, value)| Some((name, value?))));
        said(&mut kubectl, &self.manifests).ok();
    }
}

/// Everything in the life of a deployment.
fn lives(user: User) {
    let mut deployed = Deployed::start(user);
    let first = deployed.two_are_ready();
    let running = programs(&deployed.cluster.up, "/usr/bin/ballast run ");
    assert_eq!(running.len(), 2, "{running:?}");
    if user == User::Root {
        // Of a plain user nothing runs as another.
        for pid in running {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            assert!(status.contains("\nUid:\t65532\t65532\t65532\t65532\n"), "{status}");
        }
    }
    let leader = deployed.leader().unwrap();
    assert_eq!(deployed.led(&first), std::slice::from_ref(&leader), "of {first:?}");
    deployed.cluster.kubectl(&format!("apply -f {SAMPLE}")).ok();
    deployed.sample_serves(3);

    // Without a word: it can't let go of the Lease, which has to run out.
    deployed.here(&format!("delete pod {leader} --grace-period=0 --force")).ok();
    deployed.cluster.kubectl("scale mc memcached-sample --replicas=2").ok();
    let next = eventually("another leads", || deployed.leader().filter(|next| *next != leader));
    deployed.sample_serves(2);
    let second = deployed.two_are_ready();
    assert_eq!(deployed.led(&second), std::slice::from_ref(&next), "of {second:?}");
    let log = deployed.here(&format!("logs {next}")).ok();
    assert!(!log.contains("forbidden"), "a permission is missing: {log}");

    // With a Memcached left over.
    deployed.undeploy();
    let cluster = &deployed.cluster;
    for (kind, ours) in
        [("crd", ""), ("namespaces", NAMESPACE), ("clusterroles,clusterrolebindings", "/ballast")]
    {
        let left = cluster.kubectl(&format!("get {kind} -o name")).ok();
        let is_left = if ours.is_empty() { !left.is_empty() } else { left.contains(ours) };
        assert!(!is_left, "{left}");
    }
    eventually("what the Memcached had is gone", || {
        cluster.kubectl("get deployments,pods -o name").ok().is_empty().then_some(())
    });
    deployed.cluster.up.signal("TERM");
    assert_eq!(deployed.cluster.up.end().0, 0, "{}", deployed.cluster.up.complaints());
    eventually("nothing runs from the image", || {
        said(user.ballast().args(["image", "rm", PACKED]), "").status.success().then_some(())
    });
}

#[test]
fn two_copies_run_as_pods_and_hand_over_and_go() {
    lives(User::is_me());
}

#[test]
fn so_they_do_on_a_plain_users_machine() {
    match User::is_me() {
        User::Root => lives(User::Plain),
        User::Plain => eprintln!("the test beside this one was run by a plain user"),
    }
}
