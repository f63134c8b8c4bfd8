//! `ballast plan`: text for people, JSON for programs, an exit code for scripts, and nothing written.

use crate::support::{Cluster, Said, ballast, root, said};

const SAMPLE: &str = "examples/seeds/memcached.yaml";

fn offline(yaml: &str, flags: &[&str]) -> Said {
    said(ballast().args(["plan", "--offline", "-f", "-"]).args(flags), yaml)
}

fn memcached(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: cache.example.com/v1alpha1, kind: Memcached, metadata: {{name: {name}}}, spec: {spec}}}\n---\n"
    )
}

#[test]
fn without_a_cluster_it_is_the_plan_for_a_fresh_resource() {
    let planned = said(ballast().args(["plan", "--offline", "-f", SAMPLE]).current_dir(root()), "");
    assert_eq!((planned.code(), planned.stderr.as_str()), (2, ""), "{planned}");
    insta::assert_snapshot!(planned.stdout);
}

#[test]
fn programs_get_the_same_as_json() {
    let planned = offline(&memcached("a", "{size: 2, version: '1'}"), &["-o", "json", "-n", "elsewhere"]);
    assert_eq!(planned.code(), 2, "{planned}");
    let json: serde_json::Value = serde_json::from_str(&planned.stdout).unwrap();
    let steps = json["resources"][0]["steps"].as_array().unwrap();
    let line = |step: &serde_json::Value| {
        format!("{} {}", step["outcome"].as_str().unwrap(), step["subject"].as_str().unwrap())
    };
    assert_eq!(
        steps.iter().map(line).collect::<Vec<_>>(),
        [
            "create Memcached elsewhere/a",
            "create Deployment elsewhere/a",
            "create Service elsewhere/a",
            "create PodDisruptionBudget elsewhere/a",
            "do event Normal Created",
            "change status Ready=False Progressing=True Degraded=False",
        ]
    );
    assert_eq!(steps[1]["object"]["spec"]["replicas"], 2);
}

#[test]
fn wrong_resources_are_refused_as_the_server_would() {
    for (yaml, expected) in [
        (
            memcached("a", "{size: 0, version: '1'}"),
            "Memcached.cache.example.com \"a\" is invalid: spec.size: Invalid value: \"integer\": size must be greater than 0",
        ),
        (memcached("a", "{size: 1}"), "spec.version: Required value: version must be specified"),
        (
            memcached("a", "{size: three, version: '1'}"),
            ".spec.size: expected numeric (int or float), got string",
        ),
        (
            memcached("a", "{size: 1, version: '1', colour: red}"),
            ".spec.colour: field not declared in schema",
        ),
        (
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}".to_owned(),
            "no operator is for kind \"Deployment\" in version \"apps/v1\"; there are operators for Memcached (cache.example.com/v1alpha1), Gordon (operator.prgcont.cz/v1), MySQL (operators.example.com/v1alpha1), MySQLBackup (operators.example.com/v1alpha1)",
        ),
        ("{kind: Memcached, metadata: {name: a}}".to_owned(), "standard input: apiVersion is not set"),
        (
            "{apiVersion: cache.example.com/v1alpha1, kind: Memcached}".to_owned(),
            "standard input: metadata.name is not set",
        ),
        (
            memcached("'a/../b?c'", "{}"),
            "standard input: invalid resource name \"a/../b?c\": may not contain '/'",
        ),
        (memcached("A", "{size: 1, version: '1'}"), "metadata.name: Invalid value: \"A\""),
        (format!("a: {}", "[".repeat(100_000)), "standard input is not YAML: line 1 column "),
        ("just words".to_owned(), "apiVersion is not set"),
        (
            memcached(
                &format!("a, annotations: {{big: {}}}", "x".repeat(4_000_000)),
                "{size: 1, version: '1'}",
            ),
            "standard input: Request entity too large: limit is 3145728",
        ),
        ("{a: [".to_owned(), "standard input is not YAML: "),
        (String::new(), "there is nothing in standard input"),
    ] {
        let planned = offline(&yaml, &[]);
        assert_eq!(planned.code(), 1, "{yaml}: {planned}");
        assert!(
            planned.stderr.starts_with("error: ") && planned.stderr.contains(expected),
            "{expected:?}: {planned}"
        );
        assert_eq!(planned.stderr.lines().count(), 1, "{planned}");
    }
    let missing = said(ballast().args(["plan", "--offline", "-f", "/nonexistent.yaml"]), "");
    assert!(
        missing.stderr.starts_with("error: can't read /nonexistent.yaml: No such file or directory; "),
        "{missing}"
    );
}

#[test]
fn one_wrong_resource_among_several_hides_none_of_the_others() {
    let yaml = [
        memcached("a", "{size: 1, version: '1'}"),
        memcached("b", "{size: 0, version: '1'}"),
        memcached("c", "{size: 2, version: '1'}"),
    ];
    let planned = offline(&yaml.concat(), &[]);
    assert_eq!(planned.code(), 1, "{planned}");
    assert!(
        planned.stdout.contains("Memcached default/a: 6 changes")
            && planned.stdout.contains("Memcached default/c: 6 changes"),
        "{planned}"
    );
    assert!(planned.stderr.starts_with("error: standard input, document 2: "), "{planned}");
}

#[test]
fn against_a_cluster_it_shows_what_would_change_and_changes_nothing() {
    let cluster = Cluster::start();
    let plan = |flags: &[&str], yaml: &str| {
        said(cluster.ballast().args(["plan", "-f"]).args(flags).current_dir(root()), yaml)
    };
    let fresh = plan(&[SAMPLE], "");
    assert_eq!(fresh.code(), 2, "{fresh}");
    assert!(fresh.stdout.starts_with("Memcached default/memcached-sample: 6 changes\n"), "{fresh}");
    assert_eq!(cluster.kubectl("get memcacheds,deployments -o name").ok(), "", "something was written");

    cluster.kubectl(&format!("apply -f {SAMPLE}")).ok();
    cluster.becomes("mc/memcached-sample", ".status.replicas", "3");
    cluster.says("get poddisruptionbudgets", "memcached-sample");
    cluster.becomes(
        "mc/memcached-sample",
        r#".status.conditions[?(@.type=="Ready")].message"#,
        "0 of 3 nodes ready; pods wait for a machine: no nodes available to schedule pods",
    );
    let settled = crate::support::eventually("the operator rests", || {
        let planned = plan(&[SAMPLE], "");
        (planned.code() == 0).then_some(planned.stdout)
    });
    let expected = "\
Memcached default/memcached-sample: nothing to do
  = Memcached default/memcached-sample
  = Deployment default/memcached-sample
  = Service default/memcached-sample
  = PodDisruptionBudget default/memcached-sample
  = status Ready=False Progressing=True Degraded=False
";
    assert_eq!(settled, expected);
    let again = cluster.kubectl("get memcacheds -o yaml").ok();
    assert_eq!(plan(&["-"], &again).ok(), expected, "what was read from the cluster changes nothing");

    let before = cluster.field("mc/memcached-sample", ".metadata.resourceVersion");
    let wanted = memcached("memcached-sample", "{size: 5, version: 1.6.38}");
    let changed = plan(&["-"], &wanted);
    assert_eq!(changed.code(), 2, "{changed}");
    insta::assert_snapshot!(changed.stdout);
    assert_eq!(cluster.field("mc/memcached-sample", ".metadata.resourceVersion"), before);
    assert_eq!(cluster.field("deployment/memcached-sample", ".spec.replicas"), "3");

    let refused = plan(&["-"], &memcached("memcached-sample", "{size: 0, version: '1'}"));
    assert_eq!(refused.code(), 1, "{refused}");
    assert!(refused.stderr.contains("size must be greater than 0"), "{refused}");
    let elsewhere = plan(&["-", "-n", "nowhere"], &wanted);
    assert!(elsewhere.stderr.contains("namespaces \"nowhere\" not found"), "{elsewhere}");
}
