//! `kubectl rollout` of what runs, there and back, `kubectl cp`, `cordon` and `drain`; as root, and as a plain user.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::machine::own_network;
use crate::support::user::User;
use crate::support::{Cluster, eventually, said, table};

const IMAGES: [&str; 1] = ["busybox"];

const WORKLOADS: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: busybox, command: [sleep, "86400"], env: [{name: A, value: one}]}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: busybox, command: [sleep, "86400"], env: [{name: A, value: one}]}]
"#;

/// What the containers of all pods of a workload have in a variable.
fn variable(cluster: &Cluster, app: &str) -> String {
    let path = "jsonpath={.items[*].spec.containers[0].env[0].value}";
    cluster.kubectl(&format!("get pods -l app={app} --field-selector status.phase=Running -o {path}")).ok()
}

/// The numbers of the revisions that kubectl lists.
fn revisions(cluster: &Cluster, what: &str) -> Vec<String> {
    let rows = table(&cluster.kubectl(&format!("rollout history {what}")).ok()).into_iter();
    rows.filter(|row| row.first().is_some_and(|word| word.parse::<u32>().is_ok()))
        .map(|row| row[0].clone())
        .collect()
}

fn rolled_out(cluster: &Cluster, what: &str, app: &str) {
    let status = || cluster.kubectl(&format!("rollout status {what} --timeout=30s")).ok();
    status();
    assert_eq!(variable(cluster, app), "one one");
    cluster.kubectl(&format!("set env {what} A=two")).ok();
    status();
    assert_eq!(variable(cluster, app), "two two");
    assert_eq!(revisions(cluster, what), ["1", "2"]);
    let first = cluster.kubectl(&format!("rollout history {what} --revision=1")).ok();
    assert!(first.contains("A:\tone") && !first.contains("A:\ttwo"), "{first}");

    let undone = cluster.kubectl(&format!("rollout undo {what}")).ok();
    assert!(undone.ends_with("rolled back\n"), "{undone}");
    status();
    assert_eq!(variable(cluster, app), "one one");
    assert_eq!(revisions(cluster, what), ["2", "3"], "what is gone back to is the last");
    cluster.kubectl(&format!("rollout undo {what} --to-revision=2")).ok();
    status();
    assert_eq!(variable(cluster, app), "two two");

    let pods =
        || cluster.kubectl(&format!("get pods -l app={app} -o jsonpath={{.items[*].metadata.uid}}")).ok();
    let before = pods();
    cluster.kubectl(&format!("rollout restart {what}")).ok();
    status();
    let after = pods();
    assert!(before.split(' ').all(|uid| !after.contains(uid)), "{before}: {after}");
}

/// A file and a directory, there and back.
fn copied(cluster: &Cluster) {
    let here = cluster.directory.path();
    let tree = here.join("tree");
    fs::create_dir_all(tree.join("below")).unwrap();
    let bytes: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
    fs::write(tree.join("below/bytes"), &bytes).unwrap();
    fs::write(tree.join("odd name"), "it's\n").unwrap();
    let copy = |from: &str, to: &str| cluster.kubectl_with(&["cp", from, to], "").ok();
    copy(tree.to_str().unwrap(), "db-0:/tmp/tree");
    let odd = cluster.kubectl_with(&["exec", "db-0", "--", "cat", "/tmp/tree/odd name"], "").ok();
    assert_eq!(odd, "it's\n");
    copy("db-0:/tmp/tree/below/bytes", here.join("back").to_str().unwrap());
    assert!(fs::read(here.join("back")).unwrap() == bytes, "the same bytes");
    let again = here.join("again");
    copy("db-0:/tmp/tree", again.to_str().unwrap());
    said(Command::new("diff").arg("-r").args([tree, again]), "").ok();
}

/// A node that takes no more pods.
fn cordoned(cluster: &Cluster) {
    cluster.kubectl("cordon ballast").ok();
    assert_eq!(table(&cluster.kubectl("get nodes").ok())[1][1], "Ready,SchedulingDisabled");
    cluster.kubectl("run waits --image=busybox --command -- sleep 86400").ok();
    let about = "get events --field-selector involvedObject.name=waits,reason=FailedScheduling";
    cluster.says(about, "0/1 nodes are available: 1 node(s) were unschedulable.");
    assert_eq!(cluster.field("pod/waits", ".status.phase"), "Pending");
    assert_eq!(cluster.field("pod/waits", ".spec.nodeName"), "");
    cluster.kubectl("uncordon ballast").ok();
    cluster.kubectl("wait --for=condition=Ready pod/waits --timeout=30s").ok();
}

/// A second node, which is no more than its word: whoever speaks for it says what its pods are.
const OTHER: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: other}
status:
  allocatable: {cpu: "4", memory: 4Gi, pods: "110"}
  conditions: [{type: Ready, status: "True"}]
"#;

/// A drain is held back by a budget until what it took away serves elsewhere, and is done when nothing is left.
fn drained(cluster: &Cluster) {
    let here = |node: &str, more: &str| {
        let words = format!("get pods --field-selector spec.nodeName={node} -o name {more}");
        cluster.kubectl(&words).ok().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let refused = cluster.kubectl("drain ballast").refused();
    assert!(refused.contains("cannot delete Pods that declare no controller"), "{refused}");
    cluster.kubectl("delete pod waits --now").ok();
    cluster.kubectl("create poddisruptionbudget web --selector=app=web --min-available=1").ok();
    cluster.becomes("poddisruptionbudget/web", ".status.disruptionsAllowed", "1");
    cluster.apply(OTHER).ok();

    let mut command = cluster.command();
    command.args(["drain", "ballast", "--timeout=60s"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let drain = command.spawn().unwrap();
    let moved = eventually("one has gone, and another is to take its place", || {
        here("other", "-l app=web").into_iter().next()
    });
    assert_eq!(here("ballast", "-l app=web").len(), 1, "the budget holds the other");
    assert_eq!(cluster.field("poddisruptionbudget/web", ".status.disruptionsAllowed"), "0");
    let serves = r#"{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}"#;
    cluster.kubectl_with(&["patch", &moved, "--subresource=status", "-p", serves], "").ok();
    let said = drain.wait_with_output().unwrap();
    let [out, held] = [&said.stdout, &said.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(said.status.success(), "{out}{held}");
    assert!(held.contains("Cannot evict pod as it would violate the pod's disruption budget."), "{held}");
    assert!(out.ends_with("node/ballast drained\n"), "{out}");
    for pod in ["web-", "db-0", "db-1"] {
        assert!(out.contains(&format!("pod/{pod}")), "{out}");
    }
    assert_eq!(here("ballast", ""), [""; 0]);
    for status in ["NodeReady", "NodeNotSchedulable"] {
        cluster.says("describe node ballast", &format!("Node ballast status is now: {status}"));
    }
}

fn gone_there_and_back(user: User) {
    let cluster = user.up(&["--memory", "--no-operators"]);
    cluster.apply(WORKLOADS).ok();
    for (what, app) in [("deployment/web", "web"), ("statefulset/db", "db")] {
        rolled_out(&cluster, what, app);
    }
    copied(&cluster);
    cordoned(&cluster);
    // Whose budget and scheduler they are makes no difference.
    if user == User::is_me() {
        drained(&cluster);
    }
}

#[test]
fn rollouts_are_watched_listed_undone_and_begun_again_and_files_copied() {
    own_network(&IMAGES);
    User::all().into_iter().for_each(gone_there_and_back);
}
