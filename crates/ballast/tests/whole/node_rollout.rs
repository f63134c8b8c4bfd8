//! `kubectl rollout` of what runs, there and back, and `kubectl cp`; as root, and as a plain user.

use std::fs;

use crate::support::machine::own_network;
use crate::support::user::User;
use crate::support::{Cluster, table};

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
    let said = cluster.kubectl_with(&["exec", "db-0", "--", "cat", "/tmp/tree/odd name"], "").ok();
    assert_eq!(said, "it's\n");
    copy("db-0:/tmp/tree/below/bytes", here.join("back").to_str().unwrap());
    assert!(fs::read(here.join("back")).unwrap() == bytes, "the same bytes");
}

fn gone_there_and_back(user: User) {
    let cluster = user.up(&["--memory", "--no-operators"]);
    cluster.apply(WORKLOADS).ok();
    for (what, app) in [("deployment/web", "web"), ("statefulset/db", "db")] {
        rolled_out(&cluster, what, app);
    }
    copied(&cluster);
}

#[test]
fn rollouts_are_watched_listed_undone_and_begun_again_and_files_copied() {
    own_network(&IMAGES);
    User::all().into_iter().for_each(gone_there_and_back);
}
