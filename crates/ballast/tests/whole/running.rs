//! Several at a time, on disk and off, until they are told to stop; and operators against a cluster of somebody else's.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Cluster, Process, ballast, eventually, said};
use serde_json::Value;

const SAMPLE: &str = "examples/seeds/memcached.yaml";
const DATABASE: &str = r#"
apiVersion: operators.example.com/v1alpha1
kind: MySQL
metadata: {name: shop}
spec: {databaseName: shop, databaseUser: seller, storageSize: 1Gi}
"#;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The file that the `ready` line names.
fn kubeconfig_of(line: &str) -> PathBuf {
    line.strip_prefix("ready: export KUBECONFIG=")
        .unwrap_or_else(|| panic!("{line}"))
        .trim_matches('\'')
        .into()
}

#[test]
fn two_run_side_by_side_and_know_nothing_of_each_other() {
    let (one, other) = (Cluster::start(), Cluster::start());
    one.kubectl(&format!("apply -f {SAMPLE}")).ok();
    one.becomes("deployment/memcached-sample", ".spec.replicas", "3");
    assert_eq!(other.kubectl("get memcacheds -A -o name").ok(), "");
    assert_eq!(mode(&one.kubeconfig), 0o600);
    let strange =
        said(other.command().env("KUBECONFIG", swap_servers(&one, &other)).args(["get", "pods"]), "");
    assert!(!strange.status.success(), "one cluster's credentials are the other's: {strange}");
}

/// One cluster's address with the other's credentials.
fn swap_servers(one: &Cluster, other: &Cluster) -> PathBuf {
    let server = |text: &str| text.lines().find(|line| line.contains("server:")).unwrap().to_owned();
    let (ours, theirs) =
        [&one.kubeconfig, &other.kubeconfig].map(|path| std::fs::read_to_string(path).unwrap()).into();
    let path = one.directory.path().join("mixed");
    std::fs::write(&path, ours.replace(&server(&ours), &server(&theirs))).unwrap();
    path
}

#[test]
fn a_passing_cluster_takes_its_kubeconfig_along() {
    let place = tempfile::tempdir().unwrap();
    for (signal, variable) in [("TERM", "XDG_RUNTIME_DIR"), ("INT", "TMPDIR")] {
        let usual = ballast();
        // Whoever runs the tests in the background has Ctrl-C ignored.
        let mut command = Command::new("env");
        command
            .arg("--default-signal=INT")
            .arg(usual.get_program())
            .args(["up", "--memory", "--listen", "127.0.0.1:0", "--no-operators", "--no-node"])
            .env_remove("XDG_RUNTIME_DIR")
            .env(variable, place.path());
        let mut up = Process::start(command);
        let kubeconfig = kubeconfig_of(&up.line());
        assert!(kubeconfig.starts_with(place.path()), "{}", kubeconfig.display());
        assert_eq!((mode(&kubeconfig), mode(kubeconfig.parent().unwrap())), (0o600, 0o700));
        up.signal(signal);
        assert_eq!(up.end(), (0, String::new()));
        assert_eq!(
            std::fs::read_dir(place.path()).unwrap().count(),
            0,
            "something is left after SIG{signal}"
        );
    }
}

#[test]
fn what_its_starter_has_it_ignore_does_not_stop_it() {
    let place = tempfile::tempdir().unwrap();
    let kubeconfig = place.path().join("kubeconfig");
    let program = ballast();
    let mut command = Command::new("env");
    command.args(["--ignore-signal=HUP", "--ignore-signal=INT"]).arg(program.get_program());
    command.args([
        "up",
        "--memory",
        "--listen",
        "127.0.0.1:0",
        "--no-operators",
        "--no-node",
        "--kubeconfig",
    ]);
    let mut up = Process::start({
        command.arg(&kubeconfig);
        command
    });
    up.line();
    up.signal("HUP");
    up.signal("INT");
    let down = said(ballast().args(["down", "--kubeconfig"]).arg(&kubeconfig), "").ok();
    assert!(down.starts_with("stopped in "), "{down}");
    assert_eq!(up.end(), (0, String::new()));
}

#[test]
fn a_kept_cluster_is_there_again_and_belongs_to_one_at_a_time() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("the data");
    let start = || {
        let mut command = ballast();
        command.args(["up", "--no-node", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
        command
    };
    let mut first = Cluster {
        up: Process::start(start()),
        kubeconfig: data.join("kubeconfig"),
        directory: tempfile::tempdir().unwrap(),
    };
    assert_eq!(first.up.line(), format!("ready: export KUBECONFIG='{}'", first.kubeconfig.display()));
    assert_eq!(mode(&first.kubeconfig), 0o600);
    first.kubectl(&format!("apply -f {SAMPLE}")).ok();
    first.becomes("deployment/memcached-sample", ".spec.replicas", "3");
    let uid = first.field("mc/memcached-sample", ".metadata.uid");

    let second = said(&mut start(), "");
    assert_eq!((second.code(), second.stdout.as_str()), (1, ""), "{second}");
    let expected = format!(
        "error: another ballast keeps its cluster in {}; use that one (export KUBECONFIG='{}')",
        data.display(),
        first.kubeconfig.display()
    );
    assert!(second.stderr.starts_with(&expected), "{second}");
    assert_eq!(second.stderr.lines().count(), 1, "{second}");

    // Not even a chance to say goodbye: what was written is there.
    first.up.signal("KILL");
    first.up.end();
    let elsewhere = place.path().join("theirs");
    let mut command = start();
    command.arg("--kubeconfig").arg(&elsewhere);
    let again = Cluster {
        up: Process::start(command),
        kubeconfig: elsewhere.clone(),
        directory: tempfile::tempdir().unwrap(),
    };
    again.up.line();
    let third = said(&mut start(), "");
    let expected = format!("use that one (export KUBECONFIG={})", elsewhere.display());
    assert!(third.stderr.contains(&expected), "{third}");
    assert_eq!(again.field("mc/memcached-sample", ".metadata.uid"), uid);
    again.kubectl("scale mc memcached-sample --replicas=2").ok();
    again.becomes("deployment/memcached-sample", ".spec.replicas", "2");
}

#[test]
fn the_kubeconfig_of_one_that_runs_is_not_written_over() {
    let mut first = Cluster::with(&["--memory", "--no-node", "--no-operators"]);
    let text = std::fs::read_to_string(&first.kubeconfig).unwrap();
    let data = first.directory.path().join("data");
    let start = |kept: &[&OsStr]| {
        let mut command = ballast();
        command.args(["up", "--no-node", "--no-operators", "--listen", "127.0.0.1:0", "--kubeconfig"]);
        command.arg(&first.kubeconfig).args(kept);
        command
    };
    let memory = ["--memory".as_ref()];
    let kept = ["--data-dir".as_ref(), data.as_os_str()];
    let file = first.kubeconfig.display();
    let expected = format!(
        "error: {file} is the kubeconfig of a cluster that runs, process {}; name another file with --kubeconfig, or \
         stop that one with `ballast down --kubeconfig {file}`",
        first.up.id()
    );
    for place in [&memory[..], &kept] {
        let mut refused = Process::start(start(place));
        assert_eq!(refused.next_line(), None, "it runs");
        assert_eq!(refused.end().0, 1);
        eventually("it says why", || (refused.complaints() == expected).then_some(()));
    }
    assert_eq!(std::fs::read_to_string(&first.kubeconfig).unwrap(), text);
    let next = start(&kept);
    first.up.signal("TERM");
    first.up.end();
    // It is nobody's any more.
    let next = Process::start(next);
    assert!(next.line().starts_with("ready: "));
}

#[test]
fn operators_run_against_a_cluster_of_somebody_elses() {
    let cluster = Cluster::with(&["--memory", "--no-node", "--no-operators"]);
    assert_eq!(cluster.kubectl("get crd -o name").ok(), "");
    let manifests = said(ballast().arg("manifests"), "").ok();
    cluster.kubectl_with(&["apply", "--server-side", "-f", "-"], &manifests).ok();
    cluster.kubectl(&format!("apply -f {SAMPLE}")).ok();
    let start = |namespaces: &str| {
        let mut command = cluster.ballast();
        command
            .args([
                "run",
                "--leader-elect",
                "--metrics-bind-address=127.0.0.1:0",
                "--health-probe-bind-address=0",
                "--log-format=json",
            ])
            .env("WATCH_NAMESPACE", namespaces);
        Process::start(command)
    };
    let mut running = start("default,other");
    cluster.becomes("deployment/memcached-sample", ".spec.replicas", "3");
    let lease = || {
        said(
            cluster.command().args([
                "get",
                "lease",
                "ballast",
                "-n",
                "ballast-system",
                "-o",
                "jsonpath={.spec.holderIdentity}",
            ]),
            "",
        )
        .stdout
    };
    assert!(!lease().is_empty(), "nobody holds the lease");
    cluster.kubectl("create namespace unwatched").ok();
    cluster.kubectl(&format!("apply -n unwatched -f {SAMPLE}")).ok();
    cluster.kubectl("scale mc memcached-sample --replicas=1").ok();
    cluster.becomes("deployment/memcached-sample", ".spec.replicas", "1");
    assert_eq!(cluster.kubectl("get deployments -n unwatched -o name").ok(), "");

    running.signal("TERM");
    assert_eq!(running.end().0, 0, "{}", running.complaints());
    eventually("the lease is let go", || lease().is_empty().then_some(()));
    let log = running.complaints();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let is_whole = |line: &Value| line["level"] == "INFO" && line["message"].is_string();
    assert!(!lines.is_empty() && lines.iter().all(is_whole), "{log}");
    // What is done in one round is known by its id, and that of the next is another.
    let id = |step: &str| {
        let of = |line: &&Value| line["step"].as_str().is_some_and(|words| words.starts_with(step));
        let line = lines.iter().find(of).unwrap_or_else(|| panic!("{step} in {log}"));
        line["span"]["reconcile_id"].as_str().unwrap().to_owned()
    };
    assert_eq!(id("apply Deployment default/"), id("apply Service default/"));
    let ids: BTreeSet<&str> = lines.iter().filter_map(|line| line["span"]["reconcile_id"].as_str()).collect();
    assert!(ids.len() > 1, "{log}");
}

#[test]
fn up_says_what_is_starting_and_its_operators_have_the_rights_that_are_shipped() {
    let cluster = Cluster::start();
    let said = cluster.up.complaints();
    assert!(said.contains("Kubernetes v1.34.") && said.contains("kept in memory"), "{said}");
    assert!(said.contains("operators: memcached, gordon, mysql, mysqlbackup"), "{said}");
    let bound = cluster.kubectl_with(&["get", "clusterrolebinding", "ballast", "-o", "yaml"], "").ok();
    cluster.kubectl("delete clusterrolebinding ballast").ok();
    cluster.kubectl(&format!("apply -f {SAMPLE}")).ok();
    let mut log = String::new();
    eventually("they are refused without them", || {
        log += &cluster.up.complaints();
        log.contains("is forbidden").then_some(())
    });
    assert_eq!(cluster.kubectl("get deployments -o name").ok(), "");
    cluster.apply(&bound).ok();
    // What nobody may do is not tried again by itself for a long while.
    cluster.kubectl("annotate mc memcached-sample granted=true").ok();
    cluster.becomes("deployment/memcached-sample", ".spec.replicas", "3");
}

#[test]
fn operators_of_some_namespaces_work_without_a_right_in_any_other() {
    let cluster = Cluster::with(&["--memory", "--no-node", "--no-operators"]);
    cluster.kubectl("create namespace shop").ok();
    cluster.kubectl("create namespace blog").ok();
    // Over an installation for all namespaces, whose rights go with it.
    for namespaces in ["", "shop,blog"] {
        let manifests = said(ballast().arg("manifests").env("WATCH_NAMESPACE", namespaces), "").ok();
        cluster.kubectl_with(&["apply", "--server-side", "-f", "-"], &manifests).ok();
    }
    let account = "--as=system:serviceaccount:ballast-system:ballast";
    let may = |what: &str| cluster.kubectl(&format!("auth can-i {what} {account}")).stdout.trim() == "yes";
    for what in ["list secrets", "list mysqls.operators.example.com", "watch pods", "create deployments.apps"]
    {
        assert!(may(&format!("{what} -n shop")) && may(&format!("{what} -n blog")), "{what}");
        assert!(!may(&format!("{what} -n default")) && !may(&format!("{what} -A")), "{what}");
    }

    let theirs = cluster.directory.path().join("account");
    std::fs::copy(&cluster.kubeconfig, &theirs).unwrap();
    let token = cluster.kubectl("create token ballast -n ballast-system").ok();
    for words in [
        format!("config set-credentials account --token={}", token.trim()),
        "config set-context --current --user=account".to_owned(),
    ] {
        said(cluster.command().args(words.split(' ')).env("KUBECONFIG", &theirs), "").ok();
    }
    let mut command = cluster.ballast();
    command
        .args([
            "run",
            "--leader-elect",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=127.0.0.1:0",
        ])
        .env("KUBECONFIG", &theirs)
        .env("WATCH_NAMESPACE", "shop,blog");
    let mut running = Process::start(command);
    let health = running.serves("health probes");
    for namespace in ["shop", "blog", "default"] {
        cluster.kubectl(&format!("apply -n {namespace} -f {SAMPLE}")).ok();
        cluster.kubectl_with(&["apply", "-n", namespace, "-f", "-"], DATABASE).ok();
    }
    for namespace in ["shop", "blog"] {
        let made = format!("get deployment/memcached-sample statefulset/mysql-shop -n {namespace} -o name");
        eventually(&format!("both are led in {namespace}"), || {
            cluster.kubectl(&made).status.success().then_some(())
        });
        cluster.says(&format!("get events -n {namespace}"), "mysql/shop");
    }
    assert!(answer(health, "/readyz").ends_with("\r\n\r\nok"), "{}", running.complaints());
    assert_eq!(cluster.kubectl("get deployments,statefulsets -n default -o name").ok(), "");
    running.signal("TERM");
    assert_eq!(running.end().0, 0, "{}", running.complaints());
    let said = running.complaints();
    assert!(!said.contains("forbidden"), "{said}");
}

/// What is answered at an address.
fn answer(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn any_port_may_be_asked_for_and_which_it_is_is_said() {
    let cluster = Cluster::start();
    let mut command = cluster.ballast();
    command.args(["run", "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"]);
    let mut running = Process::start(command);
    let [metrics, health] = ["metrics", "health probes"].map(|what| running.serves(what));
    let answered = answer(health, "/healthz");
    assert!(answered.contains("\r\n\r\nok"), "{answered}");
    // The operators' own are there when they have begun.
    for expected in [
        "\n# TYPE memcached_controller_reconcile_total counter\n",
        "\nmemcached_controller_reconcile_total ",
        "\ncontroller_runtime_reconcile_total{controller=\"memcached\",result=\"success\"} ",
        "\ncontroller_runtime_reconcile_total{controller=\"mysql\",result=\"error\"} ",
        "\nworkqueue_depth{controller=\"memcached\",name=\"memcached\",priority=\"0\"} ",
    ] {
        eventually(&format!("the metrics have {expected:?}"), || {
            answer(metrics, "/metrics").contains(expected).then_some(())
        });
    }
    running.signal("TERM");
    assert_eq!(running.end().0, 0, "{}", running.complaints());
}

#[test]
fn one_address_is_listened_on() {
    let cluster = Cluster::start();
    let sockets = |table: &str| {
        let text =
            std::fs::read_to_string(format!("/proc/{}/net/{table}", cluster.up.id())).unwrap_or_default();
        text.lines()
            .skip(1)
            .filter(|line| line.split_whitespace().nth(3) == Some("0A"))
            .map(inode)
            .collect::<Vec<_>>()
    };
    let listening: Vec<String> = ["tcp", "tcp6"].iter().flat_map(|table| sockets(table)).collect();
    let open = std::fs::read_dir(format!("/proc/{}/fd", cluster.up.id())).unwrap();
    let links: Vec<String> = open
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .map(|link| link.display().to_string())
        .collect();
    let ours = listening.iter().filter(|inode| links.contains(&format!("socket:[{inode}]"))).count();
    assert_eq!(ours, 1, "it listens on more than the API's address");
}

fn inode(line: &str) -> String {
    line.split_whitespace().nth(9).unwrap_or_default().to_owned()
}
