//! PostgreSQL in a StatefulSet, by `examples/drydock/postgres.yaml`: what was committed is there whatever is killed, and
//! a CronJob dumps it.

use crate::support::machine::{self, family, kill, kill_all, node_of, own_network};
use crate::support::user::{THIS, User};
use crate::support::{Cluster, eventually};

const MANIFEST: &str = "examples/drydock/postgres.yaml";
const IMAGES: [&str; 2] = ["postgres:17", "busybox"];

/// What a person would look into the dumps with.
const READER: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  containers:
  - {name: main, image: busybox, command: [sleep, "86400"], volumeMounts: [{name: dumps, mountPath: /dumps}]}
  volumes: [{name: dumps, persistentVolumeClaim: {claimName: postgres-dumps}}]
"#;

/// What a statement answers, once PostgreSQL does.
fn sql(cluster: &Cluster, statement: &str) -> String {
    eventually(&format!("PostgreSQL answers {statement:?}"), || {
        let words = ["exec", "postgres-0", "--", "psql", "-qAt", "-U", "postgres", "-c", statement];
        let answer = cluster.kubectl_with(&words, "");
        answer.status.success().then_some(answer.stdout)
    })
}

/// All rows that were committed are there, and another one is.
fn kept(cluster: &Cluster, rows: &mut Vec<String>, next: &str) {
    eventually("the pod is ready", || {
        (cluster.field("statefulset/postgres", ".status.readyReplicas") == "1").then_some(())
    });
    assert_eq!(sql(cluster, "SELECT word FROM kept ORDER BY number").lines().collect::<Vec<_>>(), *rows);
    sql(cluster, &format!("INSERT INTO kept (word) VALUES ('{next}')"));
    rows.push(next.to_owned());
}

fn identity(cluster: &Cluster) -> String {
    cluster.field("pod/postgres-0", ".metadata.uid")
}

fn walk(user: User) {
    let data = user.directory();
    let _ended = machine::Ended(data.path());
    let flags = ["--no-operators", "--data-dir", data.path().to_str().unwrap()];
    let mut cluster = user.up(&flags);
    cluster.kubectl(&format!("apply -f {MANIFEST}")).ok();
    // So that it runs by itself while all this goes on.
    let every_minute = r#"{"spec": {"schedule": "* * * * *"}}"#;
    cluster.kubectl_with(&["patch", "cronjob", "postgres-dump", "-p", every_minute], "").ok();
    cluster.kubectl("rollout status statefulset/postgres --timeout=60s").ok();
    let mut rows = Vec::new();
    sql(&cluster, "CREATE TABLE kept (number SERIAL PRIMARY KEY, word TEXT)");
    kept(&cluster, &mut rows, "the pod was deleted");

    let first = identity(&cluster);
    cluster.replace_pod("postgres-0");
    assert_ne!(identity(&cluster), first);
    kept(&cluster, &mut rows, "the node was killed");

    let (pod, node) = (identity(&cluster), node_of(&cluster.up));
    kill(node);
    eventually("the node is back", || {
        machine::processes()
            .iter()
            .any(|(pid, parent, words)| {
                *parent == cluster.up.id() && *pid != node && words.starts_with("ballast node ")
            })
            .then_some(())
    });
    kept(&cluster, &mut rows, "everything was killed");
    assert_eq!(identity(&cluster), pod, "it went on running");
    assert_eq!(cluster.field("pod/postgres-0", ".status.containerStatuses[0].restartCount"), "0");

    // As a machine that loses its power.
    let all = family(cluster.up.id()).into_iter().chain(machine::of_directory(data.path()));
    kill_all(all.map(|(pid, _)| pid));
    cluster.up.end();
    cluster = user.up(&flags);
    kept(&cluster, &mut rows, "it was dumped");
    assert_eq!(identity(&cluster), pod);

    dumped(&cluster, &rows, user == User::is_me());
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
}

/// By hand; and by the clock, which one user's cluster is enough for.
fn dumped(cluster: &Cluster, rows: &[String], on_time: bool) {
    cluster.kubectl("create job --from=cronjob/postgres-dump dump-now").ok();
    cluster.kubectl("wait --for=condition=Complete job/dump-now --timeout=60s").ok();
    cluster.apply(READER).ok();
    cluster.kubectl("wait --for=condition=Ready pod/reader --timeout=30s").ok();
    let read = |script: &str| cluster.kubectl_with(&["exec", "reader", "--", "sh", "-c", script], "").ok();
    let dump = read("cat $(ls /dumps/*.sql | tail -1)");
    assert!(dump.trim_end().ends_with("-- PostgreSQL database cluster dump complete\n--"), "{dump}");
    for row in rows {
        assert!(dump.contains(&format!("\t{row}\n")), "{row} is missing in {dump}");
    }
    if on_time {
        cluster
            .kubectl("wait --for=jsonpath={.status.lastScheduleTime} cronjob/postgres-dump --timeout=90s")
            .ok();
        eventually("a dump that was due is there", || {
            let path = "jsonpath={range .items[?(@.status.succeeded==1)]}{.metadata.name}{'\\n'}{end}";
            let done = cluster.kubectl_with(&["get", "jobs", "-o", path], "").ok();
            done.lines().any(|name| name.starts_with("postgres-dump-")).then_some(())
        });
        let names = read("ls /dumps/*.sql");
        assert!(names.lines().count() >= 2, "one by hand, one by the clock: {names}");
    }
}

#[test]
fn rows_are_kept_whatever_is_killed_and_dumped_on_time() {
    let manifest = std::fs::read_to_string(crate::support::root().join(MANIFEST)).unwrap();
    assert!(manifest.contains(&format!("image: {THIS}\n")), "the example has the agent of this version");
    let users = User::all();
    users.iter().for_each(|user| user.pull_this());
    own_network(&IMAGES);
    users.into_iter().for_each(walk);
}
