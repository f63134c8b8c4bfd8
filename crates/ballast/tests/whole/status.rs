//! `ballast status` and `ballast down`: finding what runs, what it says, and stopping it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Cluster, Process, Said, ballast, eventually, said, table};
use serde_json::{Value, json};

/// `ballast` of somebody whose data is there.
fn of(home: &Path, words: &str) -> Command {
    let mut command = ballast();
    command.env("XDG_DATA_HOME", home).args(words.split_whitespace());
    command
}

fn up(home: &Path) -> Cluster {
    let directory = tempfile::tempdir().unwrap();
    let up = Process::start(of(home, "up --no-node --listen 127.0.0.1:0"));
    let kubeconfig = home.join("ballast/kubeconfig");
    assert_eq!(up.line(), format!("ready: export KUBECONFIG={}", kubeconfig.display()));
    Cluster { up, kubeconfig, directory }
}

#[track_caller]
fn nothing_runs(said: Said, code: i32, what: &Path) {
    let line = format!("nothing runs: no `ballast up` has its cluster in {}", what.display());
    let (stdout, stderr) = match code {
        0 => (format!("{line}\n"), String::new()),
        _ => (
            String::new(),
            format!("error: {line}; start it with `ballast up --data-dir {}`\n", what.display()),
        ),
    };
    assert_eq!((said.code(), &said.stdout, &said.stderr), (code, &stdout, &stderr), "{said}");
}

#[test]
fn status_says_how_it_is_and_down_stops_it() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("ballast");
    let run = |words: &str| said(&mut of(home.path(), words), "");
    nothing_runs(run("status"), 1, &data);
    nothing_runs(run("down"), 0, &data);

    let mut cluster = up(home.path());
    cluster.kubectl("apply -f examples/seeds/memcached.yaml").ok();
    let text = eventually("the operators are at work and have seen the resource", || {
        let text = run("status").ok();
        (text.contains(": at work") && text.contains("0 of 3 nodes ready")).then_some(text)
    });
    let lines: Vec<&str> = text.lines().collect();
    let first = format!("ballast {} runs since ", env!("CARGO_PKG_VERSION"));
    assert!(lines[0].starts_with(&first), "{text}");
    assert!(lines[0].ends_with(&format!("), process {}", cluster.up.id())), "{text}");
    let row = |name: &str| {
        let line = lines.iter().find(|line| line.trim_start().starts_with(name));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).trim_start()[name.len()..].trim().to_owned()
    };
    assert!(row("cluster").contains("at https://127.0.0.1:"), "{text}");
    assert!(row("data").starts_with(&format!("{}, a log of ", data.display())), "{text}");
    assert_eq!(row("kubeconfig"), cluster.kubeconfig.display().to_string());
    assert!(row("operators").contains("memcached"), "{text}");
    assert_eq!((row("node"), row("images")), ("none".to_owned(), "0, 0.0 MB".to_owned()), "{text}");
    let resources = table(text.split_once("\n\n").unwrap().1);
    assert_eq!(resources[0], ["KIND", "NAMESPACE", "NAME", "READY", "REASON", "MESSAGE"]);
    assert_eq!(resources[1][..4], ["Memcached", "default", "memcached-sample", "False"], "{text}");

    let read: Value = serde_json::from_str(&run("status -o json").ok()).unwrap();
    assert_eq!(read["process"], cluster.up.id());
    assert_eq!(read["directory"], data.to_str().unwrap());
    assert_eq!(read["resources"][0]["name"], "memcached-sample");
    let by_kubeconfig = run(&format!("status --kubeconfig {}", cluster.kubeconfig.display())).ok();
    assert!(by_kubeconfig.starts_with(&first), "{by_kubeconfig}");
    nothing_runs(run("status --data-dir /nonexistent/place"), 1, Path::new("/nonexistent/place"));

    let down = run("down");
    assert!(down.stderr.starts_with("stopping ballast "), "{down}");
    let stopped = down.ok();
    assert!(stopped.starts_with("stopped in "), "{stopped}");
    assert!(stopped.ends_with(&format!("its cluster is kept in {}\n", data.display())), "{stopped}");
    assert_eq!(cluster.up.end(), (0, String::new()));
    nothing_runs(run("down"), 0, &data);
    assert!(!data.join("running").exists(), "a record of nothing");

    let again = up(home.path());
    assert_eq!(again.field("mc/memcached-sample", ".spec.size"), "3", "what was kept is there");
}

#[test]
fn a_passing_cluster_is_found_by_its_kubeconfig() {
    let mut cluster = Cluster::start();
    let (kubeconfig, place) = (cluster.kubeconfig.clone(), tempfile::tempdir().unwrap());
    let by_kubeconfig = |verb: &str| {
        let mut command = ballast();
        command.args([verb, "--kubeconfig"]).arg(&kubeconfig).env("XDG_DATA_HOME", place.path());
        said(&mut command, "").ok()
    };
    let text = by_kubeconfig("status");
    assert!(text.contains("in memory: gone when it stops"), "{text}");
    // As whoever pasted what `up` printed asks.
    let mut pasted = of(place.path(), "status");
    let same = said(pasted.env("KUBECONFIG", &kubeconfig), "").ok();
    assert!(same.contains(kubeconfig.to_str().unwrap()), "{same}");
    let stopped = by_kubeconfig("down");
    assert!(stopped.ends_with("its cluster was kept in memory, and is gone\n"), "{stopped}");
    assert_eq!(cluster.up.end().0, 0);
    let nothing = by_kubeconfig("down");
    assert!(nothing.starts_with("nothing runs: no `ballast up` has the kubeconfig "), "{nothing}");
}

#[test]
fn a_record_that_a_crash_left_is_nobodys_and_no_other_process_is_touched() {
    let home = tempfile::tempdir().unwrap();
    let (data, record) = (home.path().join("ballast"), home.path().join("ballast/running"));
    let run = |words: &str| said(&mut of(home.path(), words), "");
    let mut cluster = up(home.path());
    cluster.up.signal("KILL");
    cluster.up.end();
    assert!(record.exists(), "nobody could take it away");
    nothing_runs(run("status"), 1, &data);
    nothing_runs(run("down"), 0, &data);

    // The number of the process is given to another one, which has nothing to do with it.
    let mut innocent = Command::new("sleep").arg("1000000").spawn().unwrap();
    let mut left: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    left["process"] = json!(innocent.id());
    fs::write(&record, left.to_string()).unwrap();
    nothing_runs(run("down"), 0, &data);
    assert!(innocent.try_wait().unwrap().is_none(), "it was stopped");
    innocent.kill().unwrap();
    innocent.wait().unwrap();

    fs::write(&record, "dear diary").unwrap();
    let strange = run("down");
    assert_eq!(strange.code(), 1, "{strange}");
    assert!(strange.stderr.contains(" is no record of a `ballast up`"), "{strange}");
    assert_eq!(strange.stderr.lines().count(), 1, "{strange}");
    // The next one writes its own.
    let again = up(home.path());
    let text = run("status").ok();
    assert!(text.contains(&format!("process {}\n", again.up.id())), "{text}");
}

#[test]
fn one_that_runs_and_does_not_answer_is_said_to() {
    let home = tempfile::tempdir().unwrap();
    let cluster = up(home.path());
    cluster.up.signal("STOP");
    let silent = said(&mut of(home.path(), "status"), "");
    cluster.up.signal("CONT");
    assert_eq!((silent.code(), silent.stdout.as_str()), (1, ""), "{silent}");
    assert_eq!(silent.stderr.lines().count(), 1, "{silent}");
    assert!(silent.stderr.starts_with("error: it runs, and did not answer within "), "{silent}");
}
