//! What people look into pods with, by the real kubectl: logs, exec, attach, port-forward; as root, and as a plain
//! user.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::forward::Forward;
use crate::support::machine::own_network;
use crate::support::user::User;
use crate::support::{Cluster, Process, eventually};

const IMAGES: [&str; 1] = ["busybox"];

/// One that speaks in two containers and was started again, one that goes on speaking, one that serves.
const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: talks, labels: {app: talks}}
spec:
  initContainers: [{name: before, image: busybox, command: [echo, from before]}]
  containers:
  - {name: one, image: busybox, command: [sh, -c, "for i in 1 2 3; do echo line $i; done; sleep 86400"]}
  - {name: two, image: busybox, command: [sh, -c, "echo from two; sleep 86400"]}
---
apiVersion: v1
kind: Pod
metadata: {name: again}
spec:
  volumes: [{name: data, emptyDir: {}}]
  containers:
  - name: main
    image: busybox
    command: [sh, -c, "echo >> /data/begun; n=$(wc -l < /data/begun); echo life $n; test $n -gt 1 && sleep 86400; exit 1"]
    volumeMounts: [{name: data, mountPath: /data}]
---
apiVersion: v1
kind: Pod
metadata: {name: counts}
spec:
  restartPolicy: Never
  containers: [{name: main, image: busybox, command: [sh, -c, "i=0; until test -e /stop; do i=$((i+1)); echo $i; sleep 0.1; done; echo end"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: serves, labels: {app: serves}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: busybox
    command: [sh, -c, "mkdir /www; echo served > /www/index.html; exec httpd -f -p 8080 -h /www"]
    ports: [{name: http, containerPort: 8080}]
    readinessProbe: {httpGet: {port: http}}
---
apiVersion: v1
kind: Service
metadata: {name: serves}
spec: {selector: {app: serves}, ports: [{name: web, port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Pod
metadata: {name: echoes}
spec:
  containers: [{name: main, image: busybox, stdin: true, command: [sh, -c, "while read x; do echo heard $x; done"]}]
"#;

/// Runs kubectl with a terminal, which `script` makes; types something once a word is shown. What was shown, and
/// kubectl's code.
fn on_a_terminal(cluster: &Cluster, words: &str, word: &str, typed: &str) -> (String, i32) {
    let kubectl = cluster.command();
    let program = kubectl.get_program().display();
    let line = format!("stty cols 97 rows 31; timeout --foreground 60 {program} {words}");
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    script.envs(kubectl.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut shown = String::new();
    let mut typed = Some(typed);
    let mut piece = [0; 1024];
    while let Ok(count @ 1..) = output.read(&mut piece) {
        shown.push_str(&String::from_utf8_lossy(&piece[..count]));
        if let Some(typed) = typed.take_if(|_| shown.contains(word)) {
            input.write_all(typed.as_bytes()).unwrap();
        }
    }
    (shown, child.wait().unwrap().code().unwrap())
}

/// Logs, in all the ways of asking for them.
fn logs(cluster: &Cluster) {
    let log = |words: &str| cluster.kubectl(&format!("logs {words}")).ok();
    assert_eq!(log("talks -c one"), "line 1\nline 2\nline 3\n");
    assert_eq!(log("talks -c one --tail=1"), "line 3\n");
    assert_eq!(log("talks -c one --limit-bytes=4"), "line");
    assert_eq!(log("talks -c one --since=1h"), "line 1\nline 2\nline 3\n");
    eventually("the first of many lines is too old to be shown", || {
        let shown = log("counts --since=1s");
        (!shown.is_empty() && !shown.starts_with("1\n")).then_some(())
    });
    assert_eq!(log("talks -c before"), "from before\n");
    let defaulted = cluster.kubectl("logs talks");
    assert!(
        defaulted.stderr.contains("Defaulted container \"one\" out of: one, two, before (init)"),
        "{defaulted}"
    );
    let all = log("talks --all-containers --prefix");
    for line in ["[pod/talks/before] from before", "[pod/talks/one] line 3", "[pod/talks/two] from two"] {
        assert!(all.contains(line), "{all}");
    }
    assert!(log("-l app=talks -c two").contains("from two"));
    let stamped = log("talks -c two --timestamps");
    let (time, rest) = stamped.split_once(' ').unwrap();
    assert!(time.contains('T') && time.ends_with('Z') && rest == "from two\n", "{stamped}");
    assert_eq!(log(&format!("talks -c two --since-time={time}")), "from two\n");
    assert_eq!(log("talks -c two --since-time=2999-01-01T00:00:00Z"), "");

    cluster.becomes("pod/again", ".status.containerStatuses[0].restartCount", "1");
    eventually("the second life has begun", || (log("again") == "life 2\n").then_some(()));
    assert_eq!(log("again --previous"), "life 1\n");
    let refused = cluster.kubectl("logs talks -c one --previous").refused();
    assert!(
        refused.contains("previous terminated container \"one\" in pod \"talks\" not found"),
        "{refused}"
    );
    let refused = cluster.kubectl("logs talks -c three").refused();
    assert!(refused.contains("container three is not valid for pod talks"), "{refused}");
}

/// A log that is followed comes as it is written, and ends with its container.
fn followed(cluster: &Cluster) {
    let mut command = cluster.command();
    command.args(["logs", "-f", "counts", "--tail=1"]);
    let mut following = Process::start(command);
    let first: u32 = following.line().parse().unwrap();
    for number in first + 1..first + 5 {
        assert_eq!(following.line(), number.to_string());
    }
    cluster.kubectl("exec counts -- touch /stop").ok();
    let (code, rest) = following.end();
    assert!(code == 0 && rest.ends_with("end"), "{code} {rest}");
}

/// exec with and without a terminal.
fn exec(cluster: &Cluster) {
    let run = |words: &[&str], typed: &str| cluster.kubectl_with(&[&["exec"], words].concat(), typed);
    let said = run(&["serves", "--", "sh", "-c", "echo out; echo err >&2; exit 7"], "");
    assert_eq!((said.code(), said.stdout.as_str()), (7, "out\n"));
    assert!(said.stderr.starts_with("err\n"), "{said}");
    let many = "x".repeat(1 << 20);
    assert_eq!(run(&["-i", "serves", "--", "cat"], &many).ok(), many);
    assert_eq!(run(&["talks", "-c", "two", "--", "hostname"], "").ok(), "talks\n");
    let refused = run(&["serves", "--", "nope"], "").refused();
    assert!(refused.contains("\"nope\": executable file not found in $PATH"), "{refused}");

    let (shown, code) = on_a_terminal(cluster, "exec -it serves -- sh", "# ", "stty size; tty; exit 5\n");
    assert!(shown.contains("31 97\r\n") && shown.contains("/dev/pts/"), "{shown:?}");
    assert_eq!(code, 5, "{shown:?}");
    // What is typed interrupts what runs, as on any terminal. It runs in short turns: a shell that is about to wait
    // when the signal comes hears of it only afterwards.
    let script = r#"trap "echo stopped; exit 6" INT; echo waits; while true; do sleep 0.1; done"#;
    let waits = format!("exec -it serves -- sh -c '{script}'");
    let (shown, code) = on_a_terminal(cluster, &waits, "waits", "\u{3}");
    assert!(shown.contains("stopped") && code == 6, "{code} {shown:?}");
}

/// attach to what a container reads and writes.
fn attached(cluster: &Cluster) {
    let mut command = cluster.command();
    command
        .args(["attach", "-i", "echoes"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child: Child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    // The way in is there before the way out: what is said too early is answered to nobody.
    let mut line = String::new();
    let typing = std::thread::spawn(move || {
        while writeln!(input, "me").is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "heard me\n");
    child.kill().unwrap();
    child.wait().unwrap();
    typing.join().unwrap();
}

/// port-forward to a pod, a Service by its port's name, and to where nobody listens.
/// A container that is added to a pod to look into it, and talked to.
fn debugged(cluster: &Cluster) {
    let script =
        "read x; echo heard $x; tr '\\0' ' ' < /proc/1/cmdline; echo; test -e /www || echo another tree";
    let words = [
        "debug",
        "serves",
        "-i",
        "--image=busybox",
        "--target=main",
        "-c",
        "looks",
        "--",
        "sh",
        "-c",
        script,
    ];
    let said = cluster.kubectl_with(&words, "you\n").ok();
    for part in ["heard you\n", "httpd -f -p 8080 -h /www", "another tree"] {
        assert!(said.contains(part), "{part:?} is not in {said:?}");
    }
    let ended = ".status.ephemeralContainerStatuses[?(@.name==\"looks\")].state.terminated.exitCode";
    cluster.becomes("pod/serves", ended, "0");
    assert_eq!(cluster.field("pod/serves", ".status.containerStatuses[0].restartCount"), "0");
    assert!(cluster.kubectl("logs serves -c looks").ok().contains("heard you\n"));
    let described = cluster.kubectl("describe pod serves").ok();
    assert!(described.contains("Ephemeral Containers:\n  looks:\n"), "{described}");
    let (shown, code) =
        on_a_terminal(cluster, "debug serves -it --image=busybox -- sh", "/ #", "tty; exit 0\n");
    assert!(shown.contains("/dev/pts/") && code == 0, "{shown}");
}

fn forwarded(cluster: &Cluster) {
    for (what, port) in [("pod/serves", "8080"), ("service/serves", "80"), ("service/serves", "web")] {
        let forward = Forward::to(cluster, what, port);
        for _ in 0..3 {
            let mut stream = forward.connect();
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.ends_with("served\n"), "{what}: {answer}");
        }
    }
    let forward = Forward::to(cluster, "pod/serves", "9");
    let mut answer = String::new();
    forward.connect().read_to_string(&mut answer).ok();
    assert_eq!(answer, "", "nobody listens there");
}

fn looked_into(user: User) {
    let cluster = user.up(&["--memory", "--no-operators"]);
    cluster.apply(PODS).ok();
    for pod in ["talks", "counts", "serves", "echoes"] {
        cluster.kubectl(&format!("wait --for=condition=Ready pod/{pod} --timeout=30s")).ok();
    }
    logs(&cluster);
    followed(&cluster);
    exec(&cluster);
    attached(&cluster);
    debugged(&cluster);
    forwarded(&cluster);
}

#[test]
fn pods_are_looked_into() {
    own_network(&IMAGES);
    User::all().into_iter().for_each(looked_into);
}
