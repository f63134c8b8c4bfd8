//! Operators that are not in the pods' network: a plain user's, in `ballast up` and in `ballast run`.

use crate::support::user::User;
use crate::support::{Cluster, Process, said};

const SAMPLE: &str = "examples/seeds/memcached.yaml";
const IMAGE: &str = "memcached:1.6.9";

/// Applies the sample, and waits until its servers themselves have said that they serve.
fn sample_is_ready(cluster: &Cluster) {
    cluster.kubectl(&format!("apply -f {SAMPLE}")).ok();
    let ready = ".status.conditions[?(@.type==\"Ready\")]";
    cluster.becomes("mc/memcached-sample", &format!("{ready}.reason"), "AllNodesReady");
    assert_eq!(cluster.field("mc/memcached-sample", &format!("{ready}.status")), "True");
    let version = cluster.field("mc/memcached-sample", ".status.version");
    assert!(version.starts_with("1.6."), "{version:?}");
    let servers = cluster.field("mc/memcached-sample", ".status.servers[*]");
    assert_eq!(servers.split_whitespace().count(), 3, "{servers:?}");
    let said = cluster.up.complaints();
    assert!(said.contains("in a network of their own"), "else this shows nothing: {said}");
}

#[test]
fn what_a_plain_users_servers_say_is_heard() {
    User::Plain.pull(&[IMAGE]);
    let mut cluster = User::Plain.up(&["--memory"]);
    sample_is_ready(&cluster);
    // Who plans asks the servers too: had they not answered, this would be no news of theirs.
    let mut plan = cluster.ballast();
    let planned = said(plan.args(["plan", "-f", SAMPLE]).current_dir(crate::support::root()), "");
    assert_eq!(planned.code(), 0, "{planned}");
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
}

#[test]
fn what_servers_say_is_heard_by_operators_that_run_elsewhere() {
    User::Plain.pull(&[IMAGE]);
    let cluster = User::Plain.up(&["--memory", "--no-operators"]);
    let definitions = said(crate::support::ballast().arg("crds"), "").ok();
    cluster.kubectl_with(&["apply", "--server-side", "-f", "-"], &definitions).ok();
    let mut command = cluster.ballast();
    command.args(["run", "--metrics-bind-address=0", "--health-probe-bind-address=0"]);
    let mut running = Process::start(command);
    sample_is_ready(&cluster);
    running.signal("TERM");
    assert_eq!(running.end().0, 0, "{}", running.complaints());
}
