//! What goes wrong is one line that says what and what to do, with exit code 1; what goes right is on standard output.

use std::net::TcpListener;

use crate::support::{Cluster, ballast, program, root, said};

/// Refused in one line that begins and ends so.
#[track_caller]
fn check(words: &[&str], beginning: &str, next: &str) {
    check_with(words, &[], beginning, next);
}

#[track_caller]
fn check_with(words: &[&str], environment: &[(&str, &str)], beginning: &str, next: &str) {
    let said = said(ballast().args(words).envs(environment.iter().copied()), "");
    assert_eq!(said.code(), 1, "{said}");
    assert_eq!(said.stdout, "", "{said}");
    let line = said.stderr.trim_end_matches('\n');
    assert!(!line.contains('\n'), "more than a line: {said}");
    assert!(line.starts_with(&format!("error: {beginning}")), "{said}");
    assert!(line.contains(&format!("; {next}")), "{said}");
}

#[test]
fn operators_without_a_cluster_say_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let quiet = ["run", "--metrics-bind-address", "0", "--health-probe-bind-address", "0"];
    let find = |kubeconfig: &str, beginning: &str, next: &str| {
        check_with(&quiet, &[("KUBECONFIG", kubeconfig)], beginning, next);
    };
    check(
        &quiet,
        "no cluster: KUBECONFIG is not set",
        "name one with KUBECONFIG, or start one with `ballast up`",
    );
    find(
        "/nonexistent/config",
        "can't read the kubeconfig /nonexistent/config: No such file or directory",
        "name a kubeconfig",
    );
    let diary = file("diary", "dear diary");
    find(&diary, &format!("{diary} is no kubeconfig: "), "name a kubeconfig");
    let empty = file("empty", "");
    find(&empty, &format!("{empty} is no kubeconfig: it names no cluster"), "name a kubeconfig");
    let other = file("other", "{apiVersion: v1, kind: Pod, metadata: {name: a}}");
    find(&other, &format!("{other} is no kubeconfig: it names no cluster"), "name a kubeconfig");
    // A port that nobody listens on: it was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let gone = file(
        "gone",
        &format!(
            "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}], \
             users: [{{name: u, user: {{}}}}], contexts: [{{name: c, context: {{cluster: c, user: u}}}}]}}"
        ),
    );
    find(
        &gone,
        &format!("can't reach the cluster at http://127.0.0.1:{port} (kubeconfig {gone}): "),
        "is it running",
    );
}

#[test]
fn a_cluster_that_does_not_take_the_kubeconfig_is_told_from_one_that_is_gone() {
    let cluster = Cluster::with(&["--memory", "--no-node", "--no-operators"]);
    let text = std::fs::read_to_string(&cluster.kubeconfig).unwrap();
    let changed = |key: &str, instead: &str| {
        let line = |line: &str| match line.trim_start().starts_with(key) {
            true => instead.to_owned(),
            false => line.to_owned(),
        };
        let path = cluster.directory.path().join("changed");
        std::fs::write(&path, text.lines().map(line).collect::<Vec<_>>().join("\n")).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let quiet = ["run", "--metrics-bind-address", "0", "--health-probe-bind-address", "0"];
    for (key, instead, why, next) in [
        ("token:", "    token: wrong", "Unauthorized", "it is there, and does not take"),
        ("token:", "", "Unauthorized", "it is there, and does not take"),
        (
            "certificate-authority-data:",
            "",
            "invalid peer certificate: UnknownIssuer",
            "does the kubeconfig have this cluster's",
        ),
    ] {
        let said = said(ballast().args(quiet).env("KUBECONFIG", changed(key, instead)), "");
        assert_eq!(said.code(), 1, "{said}");
        assert_eq!(said.stderr.lines().count(), 1, "more than a line: {said}");
        assert!(said.stderr.contains(&format!(": {why}; {next}")), "{said}");
    }
}

#[test]
fn a_namespace_that_can_not_be_is_not_waited_for() {
    let kubeconfig = ("KUBECONFIG", "/nonexistent");
    let advice = "write names as shop,blog, or nothing for all";
    for name in ["Shop", "a_b", "-a", "a.b", &"a".repeat(64)] {
        let what = format!("WATCH_NAMESPACE: {name:?} can't be a namespace");
        let list = format!("default,{name}");
        check_with(&["run"], &[kubeconfig, ("WATCH_NAMESPACE", &list)], &what, advice);
        check(&["manifests", &format!("--watch-namespace={list}")], &what, advice);
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    check(
        &["up", "--memory", "--listen", &address],
        &format!("can't listen on {address}: Address already in use"),
        "stop what listens there, or take a free port with --listen 127.0.0.1:0",
    );
    // An address that is kept for documentation, so that nobody has it.
    check(
        &["up", "--memory", "--listen", "192.0.2.1:6443"],
        "can't listen on 192.0.2.1:6443: Cannot assign requested address",
        "name an address that this machine has, or take a free port with --listen 127.0.0.1:0",
    );
    let kubeconfig = [("KUBECONFIG", "/nonexistent")];
    check_with(
        &["run", "--metrics-bind-address", &address],
        &kubeconfig,
        &format!("can't listen on {address} for metrics: Address already in use"),
        "choose another address with --metrics-bind-address, or 0 for none",
    );
    check_with(
        &["run", "--metrics-bind-address", "0", "--health-probe-bind-address", &address],
        &kubeconfig,
        &format!("can't listen on {address} for health probes: Address already in use"),
        "choose another address with --health-probe-bind-address, or 0 for none",
    );
    check(
        &["up", "--memory", "--listen", "6443"],
        "--listen: \"6443\" is no address",
        "write one as 127.0.0.1:8080",
    );
}

#[test]
fn a_place_that_can_not_be_used_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let file = path("file");
    std::fs::write(&file, "not a directory").unwrap();
    check(
        &["up", "--listen", "127.0.0.1:0", "--data-dir", &format!("{file}/data")],
        &format!("can't start the cluster in {file}/data: "),
        "name another directory with --data-dir DIR, or keep nothing with --memory",
    );
    check(
        &["up", "--memory", "--listen", "127.0.0.1:0", "--kubeconfig", &file],
        &format!("{file} is there already, and it is no kubeconfig that `ballast up` wrote"),
        "name another file with --kubeconfig, or move this one away",
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "not a directory");
    let bytes = path("bytes");
    std::fs::write(&bytes, [0x7f, b'E', 0xff]).unwrap();
    check(
        &["up", "--memory", "--listen", "127.0.0.1:0", "--kubeconfig", &bytes],
        &format!("{bytes} is there already, and it is no kubeconfig that `ballast up` wrote"),
        "name another file with --kubeconfig, or move this one away",
    );
    assert_eq!(std::fs::read(&bytes).unwrap(), [0x7f, b'E', 0xff]);
    let folder = directory.path().to_str().unwrap();
    check(
        &["up", "--memory", "--listen", "127.0.0.1:0", "--kubeconfig", folder],
        &format!("can't read {folder}: Is a directory"),
        "name another file with --kubeconfig, or move this one away",
    );
    check(
        &["up", "--memory", "--log-level", "loud"],
        "--log-level \"loud\" is no level",
        "write error, warn",
    );
}

#[test]
fn what_was_mistyped_is_no_plan_with_changes() {
    for words in [
        &["upp"][..],
        &["plan"],
        &["up", "--memory", "--data-dir", "x"],
        &["run", "--max-concurrent-reconciles=0"],
    ] {
        let said = said(ballast().args(words), "");
        assert_eq!((said.code(), said.stdout.as_str()), (1, ""), "{said}");
        assert!(said.stderr.starts_with("error: "), "{said}");
    }
    let near = |word: &str| said(ballast().arg(word), "").stderr;
    assert!(near("stats").contains("'status'"), "{}", near("stats"));
    assert!(!near("nonsense").contains("node"), "{}", near("nonsense"));
    let help = said(ballast().args(["up", "--help"]), "");
    assert!(help.stdout.contains("Examples:") && help.stdout.contains("127.0.0.1:6443"), "{help}");
    assert_eq!(help.code(), 0);
}

#[test]
fn the_version_is_for_people_and_for_programs() {
    let text = said(ballast().arg("version"), "").ok();
    assert!(
        text.starts_with(concat!("ballast ", env!("CARGO_PKG_VERSION")))
            && text.contains("Kubernetes API v1.34"),
        "{text}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&said(ballast().args(["version", "-o", "json"]), "").ok()).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn an_image_that_can_not_be_is_not_waited_for() {
    let advice = "write one as example.com/ballast:1.0";
    for name in ["", "Bad Image", "ballast:"] {
        check(&["manifests", "--image", name], &format!("--image: {name:?} can't be an image"), advice);
        let what = format!("--agent-image: {name:?} can't be an image");
        check_with(&["run", "--agent-image", name], &[("KUBECONFIG", "/nonexistent")], &what, advice);
    }
}

#[test]
fn what_is_printed_for_kubectl_is_yaml() {
    let documents = |words: &[&str]| {
        let text = said(ballast().args(words), "").ok();
        serde_saphyr::from_multiple::<serde_json::Value>(&text).unwrap()
    };
    let definitions = documents(&["crds"]);
    assert_eq!(definitions[0]["metadata"]["name"], "memcacheds.cache.example.com");
    let manifests =
        documents(&["manifests", "--image", "i:1", "--replicas", "2", "--watch-namespace", "b,a"]);
    let deployment = manifests.iter().find(|object| object["kind"] == "Deployment").unwrap();
    assert_eq!(deployment["spec"]["replicas"], 2);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "i:1");
    assert!(
        container["env"].to_string().contains(r#"{"name":"WATCH_NAMESPACE","value":"a,b"}"#),
        "{container}"
    );
}

#[test]
fn whoever_stops_reading_has_read_enough() {
    let binary = program();
    let binary = binary.display();
    let script = format!("set -o pipefail; {binary} manifests | true && {binary} --help | true");
    let said = said(std::process::Command::new("bash").args(["-c", &script]).current_dir(root()), "");
    assert_eq!((said.code(), said.stderr.as_str()), (0, ""), "{said}");
}
