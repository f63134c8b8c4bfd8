//! The first seed's walk with real processes, by the real kubectl: as root, and as a plain user.
//!
//! Run by root both are walked: the plain user is one that the machine does not know, with nothing but a
//! directory. Run by anybody else, the walk is that user's, and the one as root is said to be left out.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use crate::support::forward::Forward;
use crate::support::machine::{
    self, Traces, keeper_of, kill, node_of, own_network, processes, programs, signal,
};
use crate::support::user::User;
use crate::support::{Cluster, eventually, said};

const SAMPLE: &str = "examples/seeds/memcached.yaml";
/// What the walk runs.
const IMAGES: [&str; 2] = ["memcached:1.6.9", "busybox"];
/// What Debian's last two releases have.
const OLD: &str = "1.6.18";
const NEW: &str = "1.6.38";

/// What memcached answers to a few commands.
fn talk(mut to: TcpStream) -> String {
    to.write_all(b"set greeting 0 0 5\r\nhello\r\nget greeting\r\nversion\r\nquit\r\n").unwrap();
    let mut answer = String::new();
    to.read_to_string(&mut answer).unwrap();
    answer
}

fn is_memcached(answer: &str) -> bool {
    answer.starts_with("STORED\r\nVALUE greeting 0 5\r\nhello\r\nEND\r\nVERSION 1.6.")
}

/// A busybox that says a word and waits: from it the cluster is seen as pods see it.
fn idle(cluster: &Cluster) {
    let words =
        ["run", "idle", "--image=busybox", "--command", "--", "sh", "-c", "echo here; exec sleep 86400"];
    cluster.kubectl_with(&words, "").ok();
    cluster.kubectl("wait --for=condition=Ready pod/idle --timeout=30s").ok();
}

/// What memcached answers to the same commands from within a pod.
fn talk_from_idle(cluster: &Cluster, address: &str) -> String {
    let script = format!(
        r"printf 'set greeting 0 0 5\r\nhello\r\nget greeting\r\nversion\r\nquit\r\n' | nc {address} 11211"
    );
    cluster.kubectl_with(&["exec", "idle", "--", "sh", "-c", &script], "").ok()
}

/// Waits until the sample has its three.
fn until_ready(cluster: &Cluster) {
    cluster.becomes("deployment/memcached-sample", ".status.readyReplicas", "3");
}

/// Applies the sample, and gives the addresses of its pods once all are ready.
fn with_sample(cluster: &Cluster) -> Vec<String> {
    cluster.kubectl(&format!("apply -f {SAMPLE}")).ok();
    until_ready(cluster);
    let path = "jsonpath={.items[*].status.podIP}";
    let addresses = cluster.kubectl(&format!("get pods -l memcached_cr=memcached-sample -o {path}")).ok();
    let addresses: Vec<String> = addresses.split_whitespace().map(str::to_owned).collect();
    assert_eq!(addresses.len(), 3, "{addresses:?}");
    addresses
}

fn walk(user: User) {
    own_network(&IMAGES);
    let mut cluster = user.up(&["--memory"]);
    let addresses = with_sample(&cluster);
    idle(&cluster);
    cluster.kubectl("expose deployment memcached-sample --name=balanced --port=11211").ok();
    let service = cluster.field("service/balanced", ".spec.clusterIP");

    // Each on its own address, all by the Service's name, one through the Service's address.
    let names = ["memcached-sample", "memcached-sample.default.svc.cluster.local", "balanced", &service];
    for address in addresses.iter().map(String::as_str).chain(names) {
        let answer = talk_from_idle(&cluster, address);
        assert!(is_memcached(&answer), "{address}: {answer}");
    }
    if user == User::Root {
        for address in addresses.iter().chain([&service]) {
            let answer = talk(TcpStream::connect((address.as_str(), 11211)).unwrap());
            assert!(is_memcached(&answer), "{address} from this machine: {answer}");
        }
    }
    for what in ["service/memcached-sample", "deployment/memcached-sample"] {
        let forward = Forward::to(&cluster, what, "11211");
        for _ in 0..2 {
            assert!(is_memcached(&talk(forward.connect())), "through port-forward to {what}");
        }
    }

    assert_eq!(cluster.kubectl("logs idle").ok(), "here\n");
    assert_eq!(cluster.kubectl_with(&["exec", "-i", "idle", "--", "cat"], "to and fro").ok(), "to and fro");
    let failed = cluster.kubectl_with(&["exec", "idle", "--", "sh", "-c", "exit 3"], "");
    assert_eq!(failed.code(), 3, "{failed}");
    let whoami = cluster.kubectl("exec deployment/memcached-sample -- id -un").ok();
    assert_eq!(whoami, "memcache\n");

    the_api_is_reached_from_pods(&cluster, user);
    if user == User::is_me() {
        a_hung_one_is_replaced(&cluster);
    }

    let traces = Traces::of(&cluster, user);
    assert!(traces.processes.len() > 8, "{:?}", traces.processes);
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end(), (0, String::new()), "{}", cluster.up.complaints());
    traces.are_gone();
}

/// A stopped process takes connections and says nothing: only the operator can tell.
fn a_hung_one_is_replaced(cluster: &Cluster) {
    let sample = "memcached/memcached-sample";
    let ready = ".status.conditions[?(@.type==\"Ready\")]";
    let before = programs(&cluster.up, "memcached");
    let hung = before[0];
    signal(hung, "STOP");
    let pod = eventually("it is noticed", || {
        Some(cluster.field(sample, ".status.silent[*].pod")).filter(|pod| !pod.is_empty())
    });
    let said = cluster.field(sample, &format!("{ready}.message"));
    assert!(said.starts_with(&format!("2 of 3 nodes ready: {pod} takes connections")), "{said}");
    cluster.says(&format!("describe {sample}"), "ServerReplaced");
    signal(hung, "KILL");
    cluster.becomes(sample, &format!("{ready}.message"), "3 of 3 nodes ready");
    let after = programs(&cluster.up, "memcached");
    assert_eq!(after.len(), 3, "{after:?}");
    assert_eq!(after.iter().filter(|pid| !before.contains(pid)).count(), 1, "{before:?}, then {after:?}");
    assert!(!after.contains(&hung));
    let servers = cluster.field(sample, ".status.servers[*]");
    for server in servers.split_whitespace() {
        let answer = talk_from_idle(cluster, server.split(':').next().unwrap());
        assert!(is_memcached(&answer), "{server}: {answer}");
    }
}

/// With the address, the certificate and the token that pods are given.
fn the_api_is_reached_from_pods(cluster: &Cluster, user: User) {
    let secrets = "/var/run/secrets/kubernetes.io/serviceaccount";
    let read = |file: &str| cluster.kubectl(&format!("exec idle -- cat {secrets}/{file}")).ok();
    let variable = |name: &str| {
        let script = format!("echo ${name}");
        cluster.kubectl_with(&["exec", "idle", "--", "sh", "-c", &script], "").ok().trim().to_owned()
    };
    let server =
        format!("https://{}:{}", variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT"));
    let authority = cluster.directory.path().join("ca.crt");
    fs::write(&authority, read("ca.crt")).unwrap();
    let pid = programs(&cluster.up, "sleep 86400")[0].to_string();
    // In the pod's network, with this machine's kubectl.
    let mut inside = Command::new("nsenter");
    inside.args(["--net", "--target", &pid]);
    if User::is_me() == User::Plain {
        inside.args(["--user", "--preserve-credentials"]);
    }
    let kubectl = cluster.command();
    inside.arg(kubectl.get_program()).env("KUBECONFIG", "/dev/null");
    inside.env("KUBECACHEDIR", cluster.directory.path().join("cache-inside"));
    inside.args(["--server", &server, "--token", &read("token"), "--certificate-authority"]).arg(&authority);
    let known = said(inside.args(["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]), "").ok();
    assert_eq!(known, "system:serviceaccount:default:default", "{user:?}");
}

#[test]
fn the_seeds_memcacheds_answer_when_run_by_root() {
    match User::is_me() {
        User::Root => walk(User::Root),
        User::Plain => eprintln!("NOT RUN: this needs root"),
    }
}

#[test]
fn the_seeds_memcacheds_answer_when_run_by_a_plain_user() {
    walk(User::Plain);
}

/// From bookworm's to trixie's, by the real kubectl: there are never fewer than three that serve, nor more than one more.
fn upgraded(user: User) {
    let mut cluster = user.up(&["--memory"]);
    let sample = "memcached/memcached-sample";
    cluster.kubectl(&format!("apply -f {SAMPLE}")).ok();
    let ask = |version: &str| {
        let patch = format!(r#"{{"spec":{{"version":"{version}"}}}}"#);
        cluster.kubectl_with(&["patch", sample, "--type=merge", "-p", &patch], "").ok();
    };
    ask(OLD);
    cluster.becomes(sample, ".status.version", OLD);
    cluster.kubectl(&format!("wait --for=condition=Ready {sample} --timeout=30s")).ok();
    let path = "jsonpath={range .items[*]}{.spec.containers[0].image}={.status.conditions[?(@.type==\"Ready\")].status} {end}";
    let pods = ["get", "pods", "-l", "memcached_cr=memcached-sample", "-o", path];
    ask(NEW);
    let seen: Vec<String> = std::iter::from_fn(|| {
        let pods = cluster.kubectl_with(&pods, "").ok();
        let all_new = pods.matches(&format!(":{NEW}=True")).count() == 3;
        (!all_new).then_some(pods)
    })
    .take(2000)
    .collect();
    for pods in &seen {
        assert!(pods.matches("=True").count() >= 3, "one is missing: {pods}");
        assert!(pods.split_whitespace().count() <= 5, "three, one that comes and one that goes: {pods}");
    }
    assert!(seen.iter().any(|pods| pods.contains(OLD) && pods.contains(NEW)), "both at once: {seen:?}");
    cluster.becomes(sample, ".status.version", NEW);
    cluster.kubectl(&format!("wait --for=condition=Ready {sample} --timeout=30s")).ok();
    idle(&cluster);
    for server in cluster.field(sample, ".status.servers[*]").split_whitespace() {
        let answer = talk_from_idle(&cluster, server.split(':').next().unwrap());
        assert!(answer.contains(&format!("VERSION {NEW}\r\n")), "{server}: {answer}");
    }
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
}

#[test]
fn an_upgrade_goes_from_one_real_version_to_another_and_nobody_is_missed() {
    own_network(&[&format!("memcached:{OLD}"), &format!("memcached:{NEW}"), "memcached:1.6.9", "busybox"]);
    User::all().into_iter().for_each(upgraded);
}

/// Whatever is killed, of a cluster in memory nothing stays, and the node of one that lives comes back.
fn killed_in_memory(user: User) {
    let cluster = user.up(&["--memory"]);
    with_sample(&cluster);
    let before = programs(&cluster.up, "memcached");
    assert_eq!(before.len(), 3);
    kill(node_of(&cluster.up));
    eventually("the node is back and its pods run anew", || {
        let now = programs(&cluster.up, "memcached");
        (now.len() == 3 && now.iter().all(|pid| !before.contains(pid))).then_some(())
    });
    until_ready(&cluster);
    let traces = Traces::of(&cluster, user);
    // Whoever forks pods is not needed by those that run, and there is another at once.
    let before = programs(&cluster.up, "memcached");
    cluster.up.complaints();
    kill(keeper_of(&cluster.up));
    idle(&cluster);
    let all = processes();
    let runs = |pid: &u32| all.iter().any(|(one, _, words)| one == pid && words.starts_with("memcached"));
    assert!(before.iter().all(runs), "pods outlive their keeper");
    let said = cluster.up.complaints();
    assert!(said.contains("the keeper of the pods has died; another is started"), "{said}");
    assert!(!said.contains("the node died"), "{said}");
    let later = Traces::of(&cluster, user);
    kill(cluster.up.id());
    traces.are_gone();
    later.are_gone();
}

/// Of a cluster that is kept, pods outlive whoever is killed, and end with a stop in order.
fn killed_and_kept(user: User) {
    let kept = user.directory();
    let _ended = machine::Ended(kept.path());
    let flags = ["--data-dir", kept.path().to_str().unwrap()];
    let mut cluster = user.up(&flags);
    let addresses = with_sample(&cluster);
    let before = memcacheds(kept.path());
    assert_eq!(before.len(), 3);
    let unhurt = |cluster: &Cluster, what: &str| {
        until_ready(cluster);
        idle(cluster);
        for address in &addresses {
            assert!(is_memcached(&talk_from_idle(cluster, address)), "{address} after {what}");
        }
        assert_eq!(memcacheds(kept.path()), before, "after {what}");
        cluster.kubectl("delete pod idle --now").ok();
    };
    kill(keeper_of(&cluster.up));
    unhurt(&cluster, "the keeper was killed");
    kill(node_of(&cluster.up));
    unhurt(&cluster, "the node was killed");
    kill(cluster.up.id());
    cluster.up.end();
    cluster = user.up(&flags);
    unhurt(&cluster, "up was killed");
    let node = node_of(&cluster.up);
    kill(cluster.up.id());
    kill(node);
    cluster.up.end();
    cluster = user.up(&flags);
    unhurt(&cluster, "both were killed");

    let traces = Traces::of(&cluster, user);
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
    traces.are_gone();
    assert!(memcacheds(kept.path()).is_empty());
    cluster = user.up(&flags);
    until_ready(&cluster);
    eventually("the pods run again", || (memcacheds(kept.path()).len() == 3).then_some(()));
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
}

/// The memcacheds of a cluster that is kept somewhere, also while nobody looks after them.
fn memcacheds(directory: &Path) -> Vec<u32> {
    let all = processes();
    let place = directory.to_str().unwrap();
    let inits: Vec<u32> = all
        .iter()
        .filter(|(_, _, words)| words.contains("sandbox-keeper") && words.contains(place))
        .map(|(pid, _, _)| *pid)
        .collect();
    let ours =
        |(_, parent, words): &&(u32, u32, String)| inits.contains(parent) && words.starts_with("memcached");
    let mut found: Vec<u32> = all.iter().filter(ours).map(|(pid, _, _)| *pid).collect();
    found.sort_unstable();
    found
}

#[test]
fn a_killed_process_of_a_cluster_in_memory_leaves_nothing() {
    own_network(&IMAGES);
    User::all().into_iter().for_each(killed_in_memory);
}

#[test]
fn a_killed_process_of_a_kept_cluster_leaves_its_pods_to_the_next() {
    own_network(&IMAGES);
    User::all().into_iter().for_each(killed_and_kept);
}
