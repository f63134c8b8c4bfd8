//! The Makefile's targets for a cluster of one's own. `make undeploy` and `make uninstall`: what holds data is not taken
//! along.

use std::process::Command;

use crate::support::{Cluster, Process, Said, eventually, kubectl_program, program, root, said};

const DATABASE: &str = "
apiVersion: operators.example.com/v1alpha1
kind: MySQL
metadata: {name: shop}
spec: {databaseName: shop, databaseUser: seller}
";

const BACKUP: &str = "
apiVersion: operators.example.com/v1alpha1
kind: MySQLBackup
metadata: {name: before-the-sale}
spec: {instance: shop}
";

/// A target of the Makefile, with the program that is tested.
fn make(target: &str, cluster: &Cluster) -> Said {
    said(&mut making(target, cluster), "")
}

fn making(target: &str, cluster: &Cluster) -> Command {
    let mut make = Command::new("make");
    make.args(["--silent", target, "STATIC=true", &format!("BALLAST={}", program().display())])
        .env("KUBECONFIG", &cluster.kubeconfig)
        .env("KUBECTL", kubectl_program())
        .env("KUBECACHEDIR", cluster.directory.path().join("cache"))
        .current_dir(root());
    make
}

fn definitions(cluster: &Cluster) -> usize {
    cluster.kubectl("get crd -o name").ok().lines().count()
}

#[test]
fn definitions_and_operators_stay_as_long_as_there_is_a_database() {
    let cluster = Cluster::with(&["--memory", "--no-node", "--no-operators"]);
    make("deploy", &cluster).ok();
    assert_eq!(definitions(&cluster), 4);
    for (manifest, object) in [(DATABASE, "mysql/shop"), (BACKUP, "mysqlbackup/before-the-sale")] {
        // A definition may take a moment until its resources are served.
        eventually("it is taken", || cluster.apply(manifest).status.success().then_some(()));
        for target in ["undeploy", "uninstall"] {
            let said = make(target, &cluster).refused();
            let name = object.rsplit('/').next().unwrap();
            assert!(said.contains(name) && said.contains("these hold data: delete them first"), "{said}");
            assert_eq!(definitions(&cluster), 4);
        }
        cluster.kubectl(&format!("delete {object}")).ok();
    }
    make("undeploy", &cluster).ok();
    assert_eq!(definitions(&cluster), 0);
    let left = cluster.kubectl("get namespaces,clusterroles -o name").ok();
    assert!(!left.contains("ballast"), "{left}");
    // Twice is as good as once.
    make("uninstall", &cluster).ok();
}

#[test]
fn what_holds_no_data_goes_with_its_definition_whether_operators_run_or_not() {
    for flags in [&["--memory", "--no-node"][..], &["--memory", "--no-node", "--no-operators"]] {
        let cluster = Cluster::with(flags);
        make("install", &cluster).ok();
        for sample in ["memcached", "gordon"] {
            let apply = format!("apply -f examples/seeds/{sample}.yaml");
            eventually("it is taken", || cluster.kubectl(&apply).status.success().then_some(()));
        }
        make("uninstall", &cluster).ok();
        assert_eq!(definitions(&cluster), 0, "{flags:?}");
        eventually("what they made goes with them", || {
            cluster.kubectl("get deployments,pods -o name").ok().is_empty().then_some(())
        });
    }
}

#[test]
fn a_database_is_seen_also_where_not_all_definitions_are_there() {
    let cluster = Cluster::with(&["--memory", "--no-node", "--no-operators"]);
    make("install", &cluster).ok();
    eventually("it is taken", || cluster.apply(DATABASE).status.success().then_some(()));
    cluster.kubectl("delete crd mysqlbackups.operators.example.com").ok();
    for target in ["undeploy", "uninstall"] {
        let said = make(target, &cluster).refused();
        assert!(said.contains("shop") && said.contains("these hold data"), "{said}");
    }
    cluster.kubectl("get mysql shop").ok();
}

#[test]
fn what_can_not_be_asked_is_not_taken_for_an_answer() {
    let mut cluster = Cluster::with(&["--memory", "--no-node", "--no-operators"]);
    make("install", &cluster).ok();
    cluster.up.signal("KILL");
    cluster.up.end();
    let guard = said(
        Command::new("hack/no-databases")
            .arg(kubectl_program())
            .env("KUBECONFIG", &cluster.kubeconfig)
            .current_dir(root()),
        "",
    );
    assert!(!guard.status.success() && !guard.stderr.contains("these hold data"), "{guard}");
}

#[test]
fn help_lists_what_there_is_to_make() {
    let help = said(Command::new("make").args(["--silent", "help"]).current_dir(root()), "").ok();
    // It is what `make` alone says, too.
    assert_eq!(said(Command::new("make").arg("--silent").current_dir(root()), "").ok(), help);
    for target in ["help", "up", "run", "test", "lint", "bench", "install", "uninstall", "deploy", "undeploy"]
    {
        let lines = help.lines().filter_map(|line| line.strip_prefix("  make ")?.split_once(' '));
        let said: Vec<&str> =
            lines.filter(|(name, _)| *name == target).map(|(_, what)| what.trim()).collect();
        assert!(matches!(said[..], [what] if !what.is_empty()), "{target}: {help}");
    }
}

/// A make that is told to end, and tells what it runs: killed, it would leave that behind.
struct Made(Process);

impl Drop for Made {
    fn drop(&mut self) {
        self.0.signal("TERM");
        self.0.end();
    }
}

#[test]
fn run_runs_the_operators_on_this_machine_until_it_is_told_to_stop() {
    let cluster = Cluster::with(&["--memory", "--no-node", "--no-operators"]);
    make("install", &cluster).ok();
    let mut make = making("run", &cluster);
    make.arg("ARGS=--metrics-bind-address 127.0.0.1:0 --health-probe-bind-address 0");
    let made = Made(Process::start(make));
    let metrics = made.0.serves("metrics");
    let apply = "apply -f examples/seeds/memcached.yaml";
    eventually("it is taken", || cluster.kubectl(apply).status.success().then_some(()));
    cluster.becomes("deployment/memcached-sample", ".spec.replicas", "3");
    drop(made);
    assert!(std::net::TcpStream::connect(metrics).is_err(), "what was run goes on");
}
