//! The end of a cluster and its next beginning, by the real kubectl: as root, and as a plain user.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::machine::{self, Traces, family, kill_all, own_network};
use crate::support::user::User;
use crate::support::{Cluster, Process, eventually, said};

const IMAGES: [&str; 1] = ["busybox"];

/// Pods that differ in how they take an end. Each says in its log how often it has begun.
const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: polite}
spec:
  initContainers:
  - {name: before, image: busybox, command: [sh, -c, "echo >> /data/begun"], volumeMounts: [{name: data, mountPath: /data}]}
  containers:
  - name: main
    image: busybox
    command: [sh, -c, "trap 'echo bye; exit 0' TERM; echo life $(wc -l < /data/begun); while true; do sleep 0.05; done"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: deaf}
spec:
  terminationGracePeriodSeconds: 600
  containers: [{name: main, image: busybox, command: [sh, -c, "trap '' TERM; while true; do sleep 0.5; done"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: once}
spec:
  restartPolicy: Never
  containers: [{name: main, image: busybox, command: [sh, -c, "trap 'exit 4' TERM; echo hears; while true; do sleep 0.05; done"]}]
"#;

const LAST: &str = ".status.containerStatuses[0].lastState.terminated";
const NOW: &str = ".status.containerStatuses[0].state";
const RESTARTS: &str = ".status.containerStatuses[0].restartCount";

/// Waits until a pod was begun so often, and gives how it had ended before: code and reason.
fn begun_again(cluster: &Cluster, pod: &str, restarts: &str) -> (String, String) {
    let pod = format!("pod/{pod}");
    cluster.becomes(&pod, RESTARTS, restarts);
    eventually("it runs", || {
        (!cluster.field(&pod, &format!("{NOW}.running.startedAt")).is_empty()).then_some(())
    });
    (cluster.field(&pod, &format!("{LAST}.exitCode")), cluster.field(&pod, &format!("{LAST}.reason")))
}

fn pair(code: &str, reason: &str) -> (String, String) {
    (code.to_owned(), reason.to_owned())
}

/// Asked to end, killed together with all its processes, and asked again.
fn ended_and_begun(user: User) {
    let kept = user.directory();
    let _ended = machine::Ended(kept.path());
    let flags = ["--no-operators", "--data-dir", kept.path().to_str().unwrap()];
    let mut cluster = user.up(&flags);
    cluster.apply(PODS).ok();
    cluster.kubectl("wait --for=condition=Ready pod --all --timeout=30s").ok();
    // Who has not said what to do about a signal does not hear it.
    cluster.says("logs polite", "life 1");
    cluster.says("logs once", "hears");

    let traces = Traces::of(&cluster, user);
    let began = Instant::now();
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
    let took = began.elapsed();
    assert!(took > Duration::from_secs(4), "there was a container that does not hear: {took:?}");
    assert!(took < Duration::from_secs(15), "no container is waited for longer than some seconds: {took:?}");
    traces.are_gone();

    cluster = user.up(&flags);
    assert_eq!(begun_again(&cluster, "polite", "1"), pair("0", "Completed"));
    assert_eq!(begun_again(&cluster, "deaf", "1"), pair("137", "Error"));
    cluster.becomes("pod/once", ".status.phase", "Failed");
    assert_eq!(cluster.field("pod/once", &format!("{NOW}.terminated.exitCode")), "4");
    assert_eq!(cluster.field("pod/once", RESTARTS), "0");
    // It was the node's doing.
    assert_eq!(cluster.field("pod/once", ".status.reason"), "Terminated");
    let disrupted = r#".status.conditions[?(@.type=="DisruptionTarget")].reason"#;
    assert_eq!(cluster.field("pod/once", disrupted), "TerminationByKubelet");
    cluster.says("logs polite", "life 2");
    assert_eq!(cluster.kubectl("logs polite --previous").ok(), "life 1\nbye\n");
    cluster.says("get events", "Pod sandbox changed, it will be killed and re-created.");

    // Whoever looks after it was killed alone is told that pods go on.
    cluster.up.signal("KILL");
    cluster.up.end();
    for verb in ["status", "down"] {
        let complaint = said(user.ballast().args([verb, "--data-dir"]).arg(kept.path()), "").refused();
        assert!(complaint.contains("its pods may run on, as it was killed; start it with"), "{complaint}");
    }
    cluster = user.up(&flags);
    cluster.kubectl("wait --for=condition=Ready pod/polite --timeout=30s").ok();
    assert_eq!(cluster.field("pod/polite", RESTARTS), "1");

    // As a machine that loses its power.
    let traces = Traces::of(&cluster, user);
    let all = family(cluster.up.id()).into_iter().chain(machine::of_directory(kept.path()));
    kill_all(all.map(|(pid, _)| pid));
    cluster.up.end();
    cluster = user.up(&flags);
    assert_eq!(begun_again(&cluster, "polite", "2"), pair("137", "ContainerStatusUnknown"));
    assert_eq!(begun_again(&cluster, "deaf", "2"), pair("137", "ContainerStatusUnknown"));
    cluster.says("logs polite", "life 3");
    cluster.kubectl("delete pod deaf --grace-period=1").ok();
    let ask = |verb: &str| said(user.ballast().args([verb, "--data-dir"]).arg(kept.path()), "").ok();
    let status = ask("status");
    let row = |name: &str| {
        let row = status.lines().find_map(|line| line.trim_start().strip_prefix(name));
        row.unwrap_or_else(|| panic!("no {name} in {status}")).trim()
    };
    assert_eq!((row("node"), row("pods")), ("ballast: ready", "1 Failed, 1 Running"), "{status}");
    let stopped = ask("down");
    assert!(stopped.starts_with("stopped in "), "{stopped}");
    traces.are_gone();
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
    cluster = user.up(&flags);
    assert_eq!(begun_again(&cluster, "polite", "3"), pair("0", "Completed"));
    cluster.kubectl("delete pod --all --now").ok();
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
}

#[test]
fn containers_are_asked_to_end_with_the_cluster_and_begin_again_with_it() {
    own_network(&IMAGES);
    User::all().into_iter().for_each(ended_and_begun);
}

#[test]
fn of_two_clusters_on_a_machine_each_says_what_is_reached() {
    own_network(&IMAGES);
    let user = User::is_me();
    let (first, second) = (user.up(&["--memory"]), user.up(&["--memory"]));
    let (first, second) = (first.up.complaints(), second.up.complaints());
    match user {
        User::Root => {
            assert!(first.contains("reached from this machine, like Services"), "{first}");
            assert!(second.contains("reached from this machine; its Services are not"), "{second}");
        }
        User::Plain => {
            for said in [first, second] {
                assert!(said.contains("in a network of their own, without root"), "{said}");
            }
        }
    }
}

/// Of a cluster in memory all processes are killed at once, those too that would clear up. It was not the only one,
/// so there is room elsewhere for the next.
fn swept(user: User) {
    let mut neighbour = user.up(&["--memory", "--no-operators"]);
    let mut cluster = user.up(&["--memory", "--no-operators"]);
    cluster.apply(PODS).ok();
    cluster.kubectl("wait --for=condition=Ready pod --all --timeout=30s").ok();
    let traces = Traces::of(&cluster, user);
    kill_all(family(cluster.up.id()).into_iter().map(|(pid, _)| pid));
    cluster.up.end();
    neighbour.up.signal("TERM");
    assert_eq!(neighbour.up.end().0, 0, "{}", neighbour.up.complaints());
    let mut next = user.up(&["--memory", "--no-operators"]);
    assert_eq!(next.kubectl("get pods -o name").ok(), "");
    next.up.signal("TERM");
    assert_eq!(next.up.end().0, 0, "{}", next.up.complaints());
    traces.are_gone();
}

#[test]
fn what_a_crash_of_everything_leaves_is_swept_by_the_next() {
    own_network(&IMAGES);
    User::all().into_iter().for_each(swept);
}

/// A cluster in a directory, with a node.
fn without_operators(user: User, directory: &Path) -> Command {
    let mut command = user.ballast();
    command.args(["up", "--no-operators", "--listen", "127.0.0.1:0", "--data-dir"]).arg(directory);
    command
}

/// Of a cluster's processes.
fn nothing_is_left(directory: &Path) {
    let left = machine::of_directory(directory);
    assert!(left.is_empty(), "{left:?}");
}

/// Nor does it say that anything does.
fn nothing_runs(user: User, directory: &Path) {
    let nothing = said(user.ballast().args(["down", "--data-dir"]).arg(directory), "").ok();
    assert!(nothing.starts_with("nothing runs: "), "{nothing}");
}

/// Told to stop as soon as its node has begun.
fn stopped_early(user: User) {
    let kept = user.directory();
    let _ended = machine::Ended(kept.path());
    let mut up = Process::start(without_operators(user, kept.path()));
    let keeper = kept.path().join("node/state/keeper.sock");
    eventually("the node has begun", || keeper.exists().then_some(()));
    up.signal("TERM");
    assert_eq!(up.end().0, 0, "{}", up.complaints());
    nothing_is_left(kept.path());
    nothing_runs(user, kept.path());
}

#[test]
fn a_stop_during_the_start_leaves_nothing() {
    own_network(&IMAGES);
    User::all().into_iter().for_each(stopped_early);
}

/// Told twice in one moment, as by a shell and a terminal that go away together.
fn told_twice(user: User) {
    let kept = user.directory();
    let _ended = machine::Ended(kept.path());
    let mut cluster = user.up(&["--no-operators", "--data-dir", kept.path().to_str().unwrap()]);
    cluster.apply(PODS).ok();
    cluster.kubectl("wait --for=condition=Ready pod --all --timeout=30s").ok();
    let traces = Traces::of(&cluster, user);
    cluster.up.signal("TERM");
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
    traces.are_gone();
    let last = format!("stopped; its cluster is kept in {}", kept.path().display());
    let mut said = String::new();
    eventually("it says so", || {
        said += &cluster.up.complaints();
        said.ends_with(&last).then_some(())
    });
    assert!(said.contains("stopping…"), "{said}");
}

#[test]
fn who_is_told_to_stop_twice_in_a_moment_stops_in_order() {
    own_network(&IMAGES);
    User::all().into_iter().for_each(told_twice);
}

/// Nobody can be told that it is ready.
fn failed_late(user: User) {
    let kept = user.directory();
    let _ended = machine::Ended(kept.path());
    let mut command = without_operators(user, kept.path());
    let full = File::options().write(true).open("/dev/full").unwrap();
    let failed = command.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).output().unwrap();
    let complaint = String::from_utf8_lossy(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{complaint}");
    assert!(complaint.ends_with("error: can't print: No space left on device\n"), "{complaint}");
    assert!(complaint.contains("node ballast: pods at "), "{complaint}");
    nothing_is_left(kept.path());
}

/// Its kubeconfig can't be written.
fn failed_early(user: User) {
    let kept = user.directory();
    let _ended = machine::Ended(kept.path());
    let mut command = without_operators(user, kept.path());
    let file = "/proc/kubeconfig";
    let complaint = said(command.args(["--kubeconfig", file]), "").refused();
    assert!(complaint.ends_with(", or say where else with --kubeconfig FILE\n"), "{complaint}");
    assert!(
        complaint.starts_with(&format!("error: can't write {file}.running: No such file or directory; "))
    );
    nothing_is_left(kept.path());
}

/// There is no place for images, which is seen when the API serves already.
fn failed_between(user: User) {
    let kept = user.directory();
    let _ended = machine::Ended(kept.path());
    let mut command = without_operators(user, kept.path());
    let complaint = said(command.env("XDG_DATA_HOME", "/dev/null"), "").refused();
    assert!(complaint.contains("/dev/null"), "{complaint}");
    assert!(kept.path().join("kubeconfig").exists());
    nothing_is_left(kept.path());
    nothing_runs(user, kept.path());
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    own_network(&IMAGES);
    User::all().into_iter().for_each(|user| {
        failed_early(user);
        failed_between(user);
        failed_late(user);
    });
}

/// Told to stop, and its node is killed before it has: `when` there is still something to be done.
fn stopped_by_another(user: User, when: impl Fn(&Cluster)) {
    let kept = user.directory();
    let _ended = machine::Ended(kept.path());
    let flags = ["--no-operators", "--data-dir", kept.path().to_str().unwrap()];
    let mut cluster = user.up(&flags);
    cluster.apply(PODS).ok();
    cluster.kubectl("wait --for=condition=Ready pod --all --timeout=30s").ok();
    let traces = Traces::of(&cluster, user);
    when(&cluster);
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
    traces.are_gone();
}

#[test]
fn a_node_that_dies_as_it_stops_is_followed_by_one_that_does_the_rest() {
    own_network(&IMAGES);
    User::all().into_iter().for_each(|user| {
        stopped_by_another(user, |cluster| {
            let node = machine::node_of(&cluster.up);
            machine::kill(node);
            cluster.up.signal("TERM");
        });
        stopped_by_another(user, |cluster| {
            let node = machine::node_of(&cluster.up);
            let shells = || machine::programs(&cluster.up, "sh").len();
            let before = shells();
            cluster.up.signal("TERM");
            eventually("the first has ended", || (shells() < before).then_some(()));
            machine::kill(node);
        });
    });
}
