//! `ballast status` and `ballast down`: finding what runs, what it says, and stopping it.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::support::{Cluster, Process, Said, ballast, eventually, said, table};
use rustix::fs::OFlags;
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
fn a_kept_cluster_is_found_by_its_kubeconfig_wherever_that_is() {
    let (home, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (data, kubeconfig) = (place.path().join("cluster"), place.path().join("kubeconfig"));
    let usual = up(home.path());
    let mut other = Process::start({
        let mut command = of(home.path(), "up --no-node --no-operators --listen 127.0.0.1:0");
        command.arg("--data-dir").arg(&data).arg("--kubeconfig").arg(&kubeconfig);
        command
    });
    other.line();
    let of_other = format!("process {}\n", other.id());
    let mut by_kubeconfig = of(home.path(), "status --kubeconfig");
    let text = said(by_kubeconfig.arg(&kubeconfig), "").ok();
    assert!(text.contains(&of_other), "{text}");
    let mut pasted = of(home.path(), "status");
    let text = said(pasted.env("KUBECONFIG", &kubeconfig), "").ok();
    assert!(text.contains(&of_other), "{text}");
    let down = said(of(home.path(), "down").env("KUBECONFIG", &kubeconfig), "").ok();
    assert!(down.ends_with(&format!("its cluster is kept in {}\n", data.display())), "{down}");
    assert_eq!(other.end(), (0, String::new()));
    let left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.len() == 2 && !left.iter().any(|name| name == "kubeconfig.running"), "{left:?}");
    let text = said(&mut of(home.path(), "status"), "").ok();
    assert!(text.contains(&format!("process {}\n", usual.up.id())), "another was stopped: {text}");
}

#[test]
fn one_that_begins_is_found_and_stopped() {
    let home = tempfile::tempdir().unwrap();
    let mut cluster = up(home.path());
    cluster.up.signal("TERM");
    cluster.up.end();
    // It waits for its certificate in the middle of its start.
    let file = home.path().join("ballast/keys/ca.crt");
    let certificate = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    said(Command::new("mkfifo").arg(&file), "").ok();
    let mut beginning = Process::start(of(home.path(), "up --no-node --listen 127.0.0.1:0"));
    let mut pipe = eventually("the certificate is asked for", || {
        let mut pipe = fs::File::options();
        pipe.write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(&file).ok()
    });
    let status = said(&mut of(home.path(), "status"), "").refused();
    let starting = format!("error: process {} is still starting; ask again in a moment\n", beginning.id());
    assert_eq!(status, starting);
    let mut down = Process::start(of(home.path(), "down"));
    eventually("it is told to stop", || down.complaints().contains("stopping ballast").then_some(()));
    pipe.write_all(&certificate).unwrap();
    drop(pipe);
    let stopped = down.line();
    assert!(stopped.starts_with("stopped in "), "{stopped}");
    assert_eq!(down.end().0, 0);
    assert_eq!(beginning.end(), (0, String::new()));
}

#[test]
fn one_that_ends_leaves_the_next_alone() {
    let home = tempfile::tempdir().unwrap();
    let mut first = up(home.path());
    // Somebody who does not read is given time to do so: there is more to read than fits on the way.
    let watcher = first.follow("configmaps", &[".metadata.name"]);
    watcher.line();
    watcher.signal("STOP");
    let large = |number| {
        let text = "x".repeat(1_000_000);
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c{number}}}\ndata: {{text: {text}}}\n")
    };
    first.kubectl_with(&["create", "-f", "-"], &(0..8).map(large).collect::<Vec<_>>().join("---\n")).ok();
    first.up.signal("TERM");
    let next = loop {
        let next = Process::start(of(home.path(), "up --no-node --listen 127.0.0.1:0"));
        if next.next_line().is_some() {
            break next;
        }
        let why = "another ballast keeps its cluster in ";
        eventually("it says why not", || next.complaints().contains(why).then_some(()));
    };
    assert_eq!(first.up.end().0, 0);
    let text = said(&mut of(home.path(), "status"), "").ok();
    assert!(text.contains(&format!("process {}\n", next.id())), "{text}");
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
