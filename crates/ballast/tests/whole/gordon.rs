//! The third seed's section on a simple operator: by Ballast's own operator, and by the seed's own program.

use std::process::Command;

use crate::support::{Cluster, Process, eventually, root, said, table};

const SAMPLE: &str = "examples/seeds/gordon.yaml";
const GORDON: &str = "gn/gordoncluster";

/// The names of all pods.
fn pods(cluster: &Cluster) -> Vec<String> {
    let listed = cluster.kubectl("get pods -o name").ok();
    listed.lines().map(|line| line.trim_start_matches("pod/").to_owned()).collect()
}

/// Waits until there are that many pods, and the Gordon names just these.
#[track_caller]
fn settles(cluster: &Cluster, count: usize) -> Vec<String> {
    eventually(&format!("there are {count} pods and the status names them"), || {
        let mut pods = pods(cluster);
        let status = cluster.field(GORDON, ".status.pods[*]");
        let mut named: Vec<&str> = status.split_whitespace().collect();
        pods.sort();
        named.sort_unstable();
        (pods.len() == count && pods == named).then_some(pods)
    })
}

#[test]
fn the_number_is_kept_through_scaling_and_deletion() {
    let cluster = Cluster::start();
    cluster.kubectl(&format!("apply -f {SAMPLE}")).ok();
    let first = settles(&cluster, 3);
    assert!(first.iter().all(|name| name.starts_with("gordon-")), "{first:?}");
    let shown = table(&cluster.kubectl("get gn").ok());
    assert_eq!(shown[0], ["NAME", "REPLICAS", "READY", "AGE"]);
    assert_eq!(shown[1][..3], ["gordoncluster", "3", "False"]);
    assert_eq!(
        cluster.field(&format!("pod/{}", first[0]), ".spec.containers[0].image"),
        "prgcont/gordon:v1.0"
    );

    cluster.kubectl("scale gn gordoncluster --replicas=5").ok();
    settles(&cluster, 5);
    cluster.kubectl("scale gn gordoncluster --replicas=2").ok();
    let two = settles(&cluster, 2);
    let uid = cluster.field(&format!("pod/{}", two[0]), ".metadata.uid");
    cluster.kubectl(&format!("delete pod {} --wait=false", two[0])).ok();
    eventually("another is in its place", || {
        let uids = cluster.kubectl("get pods -o jsonpath={.items[*].metadata.uid}").ok();
        (uids.split_whitespace().count() == 2 && !uids.contains(&uid)).then_some(())
    });
    cluster.says(&format!("describe {GORDON}"), "made gordon-gordoncluster-");

    cluster.kubectl(&format!("delete -f {SAMPLE} --timeout=20s")).ok();
    eventually("no pods are left", || pods(&cluster).is_empty().then_some(()));
}

#[test]
fn what_can_not_be_is_refused_and_what_is_planned_is_shown() {
    let cluster = Cluster::start();
    let refused = cluster
        .apply("apiVersion: operator.prgcont.cz/v1\nkind: Gordon\nmetadata: {name: a}\nspec: {gordon: {replicas: -1}}\n")
        .refused();
    assert!(
        refused.contains("spec.gordon.replicas: Invalid value: \"integer\": replicas must not be negative"),
        "{refused}"
    );
    let planned = said(cluster.ballast().args(["plan", "-f", SAMPLE]).current_dir(root()), "");
    assert_eq!(planned.code(), 2, "{planned}");
    assert!(planned.stdout.contains("+ Pod default/gordon-gordoncluster-2"), "{planned}");
}

/// Names the kubeconfig of a real Kubernetes, which is made for these tests, to run the seed's programs on instead.
const REAL: &str = "BALLAST_REAL_KUBECONFIG";

/// A cluster without operators, in which nothing is that an earlier program left.
fn without_operators() -> Cluster {
    let Some(kubeconfig) = std::env::var_os(REAL) else {
        return Cluster::with(&["--memory", "--no-node", "--no-operators"]);
    };
    let directory = tempfile::tempdir().unwrap();
    // Whoever has started that cluster ends it.
    let up = Process::start(Command::new("true"));
    let cluster = Cluster { up, kubeconfig: kubeconfig.into(), directory };
    cluster.kubectl("delete --ignore-not-found --timeout=20s crd/gordons.operator.prgcont.cz").ok();
    cluster.kubectl("delete pods --all --now --timeout=20s").ok();
    // Without it no pod is admitted, and somebody has to make it first.
    cluster.kubectl("wait --for=create serviceaccount/default --timeout=30s").ok();
    cluster
}

/// A cluster without operators that knows what a Gordon is, and one of the seed's programs at work on it.
fn with_program(name: &str) -> (Cluster, Process) {
    let cluster = without_operators();
    let definitions = said(crate::support::ballast().arg("crds"), "").ok();
    cluster.kubectl_with(&["apply", "--server-side", "-f", "-"], &definitions).ok();
    cluster.kubectl("wait --for=condition=Established crd/gordons.operator.prgcont.cz --timeout=10s").ok();
    let python = said(&mut Command::new(root().join("hack/python-kubernetes")), "").ok();
    let mut command = Command::new(python.trim());
    command
        .args(["-u", "-W", "ignore", name])
        .current_dir(root().join("examples/seeds"))
        .env("KUBECONFIG", &cluster.kubeconfig)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let program = Process::start(command);
    cluster.kubectl(&format!("apply -f {SAMPLE}")).ok();
    assert_eq!(program.line(), "[gordoncluster] Deploying 3 replicas of gordon.", "{}", program.complaints());
    (cluster, program)
}

/// Waits until the program remembers that many pods, and just these are there.
#[track_caller]
fn remembers(cluster: &Cluster, count: usize) -> Vec<String> {
    eventually(&format!("the program remembers {count} pods"), || {
        let mut pods = pods(cluster);
        let state = cluster.field(GORDON, ".state.pods[*]");
        let mut named: Vec<&str> = state.split_whitespace().collect();
        pods.sort();
        named.sort_unstable();
        let replicas = cluster.field(GORDON, ".state.replicas");
        (pods.len() == count && pods == named && replicas == count.to_string()).then_some(pods)
    })
}

#[test]
fn the_seeds_own_program_works_word_for_word() {
    let (cluster, program) = with_program("gordon.py");
    let three = remembers(&cluster, 3);
    for _ in 0..3 {
        let line = program.line();
        let name = line.strip_prefix("[gordoncluster] Scheduled pod ").unwrap_or_else(|| panic!("{line}"));
        assert!(three.iter().any(|pod| pod == name), "{line}");
    }
    // It makes one too many, sees that by its own change, and takes one away again.
    cluster.kubectl("scale gn gordoncluster --replicas=5").ok();
    remembers(&cluster, 5);
    cluster.kubectl("scale gn gordoncluster --replicas=1").ok();
    remembers(&cluster, 1);
    assert_eq!(program.complaints(), "");
}

#[test]
fn the_sections_tasks_are_done_in_the_seeds_own_program() {
    let (cluster, program) = with_program("gordon_tasks.py");
    let three = remembers(&cluster, 3);
    cluster.kubectl(&format!("delete pod {} --wait=false", three[0])).ok();
    eventually("another is in its place", || {
        let now = remembers(&cluster, 3);
        (!now.contains(&three[0])).then_some(())
    });
    cluster.kubectl(&format!("delete {GORDON} --timeout=20s")).ok();
    eventually("no pods are left", || pods(&cluster).is_empty().then_some(()));
    assert_eq!(program.complaints(), "");
}
