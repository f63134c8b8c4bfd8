//! What a pod and its containers do, one sentence each.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use drydock_sandbox::{
    Capabilities, Container, ContainerConfig, ExecConfig, Exit, Host, Limits, Mount, MountKind, Piece, Pod,
    PodConfig, Rlimit, User, Users,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::Setting;

/// Where a check works.
pub(crate) struct Place {
    pub(crate) host: Host,
    pub(crate) directory: PathBuf,
}

impl Place {
    pub(crate) async fn pod(&self, name: &str) -> Pod {
        self.host.create_pod(PodConfig::named(name)).await.unwrap()
    }

    pub(crate) fn container(&self, id: &str, args: &[&str]) -> ContainerConfig {
        let mut config = ContainerConfig::new(id, self.directory.join("tree"), args);
        // Checks use the same few names.
        let _none = std::fs::remove_file(self.log(id));
        config.log = Some(self.log(id));
        config
    }

    pub(crate) fn log(&self, id: &str) -> PathBuf {
        self.directory.join("logs").join(format!("{id}.log"))
    }

    /// Runs a script to its end; gives back its exit and what it wrote, without the stamps.
    pub(crate) async fn script(&self, pod: &Pod, id: &str, script: &str) -> (Exit, String) {
        self.to_the_end(pod, self.container(id, &["sh", "-c", script])).await
    }

    pub(crate) async fn to_the_end(&self, pod: &Pod, config: ContainerConfig) -> (Exit, String) {
        let id = config.id.clone();
        let exit = pod.start(config).await.unwrap().wait().await.unwrap();
        (exit, self.lines(&id))
    }

    pub(crate) fn lines(&self, id: &str) -> String {
        let text = std::fs::read_to_string(self.log(id)).unwrap();
        text.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap().to_owned() + "\n").collect()
    }

    async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let start = Instant::now();
        while !holds().await {
            assert!(start.elapsed() < Duration::from_secs(20), "waited too long: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

type Check = for<'a> fn(&'a Place) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

macro_rules! checks {
    ($($name:ident),* $(,)?) => {
        const CHECKS: &[(&str, Check)] = &[$((stringify!($name), |place| Box::pin($name(place)))),*];
    };
}

checks![
    a_container_runs_as_pid_one_of_its_own_namespaces,
    exit_codes_and_signals_are_told_apart,
    a_command_that_can_not_run_says_why_in_kubernetes_words,
    a_container_that_failed_to_start_leaves_nothing,
    signals_reach_the_main_process,
    orphans_are_reaped_by_the_pods_init_when_namespaces_are_shared,
    writes_stay_in_the_container,
    a_read_only_root_takes_no_writes_but_volumes_do,
    links_in_a_tree_do_not_lead_out_of_it,
    a_container_runs_as_its_user,
    capabilities_are_bounded,
    a_device_made_by_a_container_is_none,
    exec_runs_in_the_container_with_its_own_streams,
    exec_with_a_terminal_has_one_that_can_be_resized,
    attached_clients_write_and_read,
    pods_talk_to_each_other_and_to_the_node_by_address,
    a_connection_is_made_inside_the_pod,
    memory_beyond_the_limit_ends_the_container,
    a_fork_bomb_stays_in_its_container,
    use_of_memory_is_counted,
    logs_go_on_in_a_new_file_when_asked,
    a_stopped_pod_is_gone,
    a_hundred_pods_start_quickly,
];

pub(crate) fn run(setting: Setting, directory: &Path) -> ExitCode {
    let host = crate::open(setting, directory, false);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let place = Place { host: host.clone(), directory: directory.to_owned() };
    println!("  {:?}", host.abilities());
    if host.abilities().root && host.abilities().memory_limits.is_yes() {
        assert!(!crate::cgroups(directory).is_empty(), "cgroups are looked for where they are");
    }
    let mut failed = false;
    // What a tree is made of matters to few of them.
    let chosen = |name: &str| {
        !setting.copy_trees || ["writes", "read_only", "links", "user"].iter().any(|word| name.contains(word))
    };
    for (name, check) in CHECKS.iter().filter(|(name, _)| chosen(name)) {
        let start = Instant::now();
        let passed =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(check(&place))));
        failed |= passed.is_err();
        let word = if passed.is_ok() { "ok" } else { "FAILED" };
        println!("  {} ... {word} ({} ms)", name.replace('_', " "), start.elapsed().as_millis());
    }
    runtime.block_on(async {
        host.close().await.unwrap();
    });
    let left: Vec<String> = std::fs::read_dir(directory.join("state"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "lock")
        .collect();
    assert!(left.is_empty(), "{left:?}");
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

async fn a_container_runs_as_pid_one_of_its_own_namespaces(place: &Place) {
    let pod = place.pod("own").await;
    let script = "echo $$; hostname; cat /etc/hostname; grep -c : /proc/net/dev; set -- /proc/[0-9]*; echo $#; pwd; \
                  grep own /etc/hosts; echo $HOME; echo $PATH; ls -d /dev/null /dev/shm /dev/pts/ptmx; ls / | wc -l";
    let (exit, text) = place.script(&pod, "c", script).await;
    let address = pod.address();
    // Two links, lo and eth0; one process, the shell.
    let expected = format!(
        "1\nown\nown\n2\n1\n/\n{address}\town\n/root\n\
         /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n/dev/null\n/dev/pts/ptmx\n/dev/shm\n8\n"
    );
    assert_eq!(text, expected);
    assert_eq!(exit.code, 0);
    assert!(exit.started <= exit.finished);
    pod.stop().await.unwrap();
}

async fn exit_codes_and_signals_are_told_apart(place: &Place) {
    let pod = place.pod("codes").await;
    let (exit, text) = place.script(&pod, "seven", "echo out; echo err >&2; exit 7").await;
    assert_eq!((exit.code, exit.signal, exit.oom_killed), (7, None, false));
    assert!(text.contains("out\n") && text.contains("err\n"));
    let log = std::fs::read_to_string(place.log("seven")).unwrap();
    assert!(log.lines().any(|line| line.ends_with(" stderr F err")), "{log}");

    let container = pod.start(place.container("killed", &["sleep", "600"])).await.unwrap();
    container.signal(9).await.unwrap();
    let exit = container.wait().await.unwrap();
    assert_eq!((exit.code, exit.signal), (137, Some(9)));
    assert_eq!(container.exit(), Some(exit));
    assert_eq!(container.wait().await.unwrap().code, 137, "an end can be asked for again");
    container.remove().await.unwrap();
    assert_eq!(pod.containers().unwrap().len(), 1);
    pod.stop().await.unwrap();
}

async fn a_command_that_can_not_run_says_why_in_kubernetes_words(place: &Place) {
    let pod = place.pod("words").await;
    for (args, message, reason) in [
        (&["nope"][..], "exec: \"nope\": executable file not found in $PATH", "RunContainerError"),
        (&["/nope"], "exec: \"/nope\": stat /nope: no such file or directory", "RunContainerError"),
        (&["/etc/plain"], "exec: \"/etc/plain\": permission denied", "RunContainerError"),
        (&["/etc"], "exec: \"/etc\": is a directory", "RunContainerError"),
        (&["/etc/garbage"], "exec /etc/garbage: exec format error", "RunContainerError"),
        (&[], "no command specified", "CreateContainerError"),
    ] {
        let Err(drydock_sandbox::Error::Start(error)) = pod.start(place.container("c", args)).await else {
            panic!("{args:?} started");
        };
        assert_eq!((error.to_string().as_str(), error.reason()), (message, reason));
    }
    let mut config = place.container("c", &["true"]);
    config.mounts.push(Mount {
        destination: "/data".into(),
        what: MountKind::Bind { source: "/no/such/volume".into(), read_only: false },
    });
    let error = pod.start(config).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "error mounting \"/no/such/volume\" to rootfs at \"/data\": no such file or directory"
    );
    let mut config = place.container("c", &["true"]);
    config.rlimits.push(Rlimit { name: "wishes".to_owned(), soft: Some(3), hard: Some(3) });
    assert_eq!(pod.start(config).await.err().unwrap().to_string(), "rlimit wishes: there is none");

    let container = pod.start(place.container("lives", &["sleep", "600"])).await.unwrap();
    let error = container.exec(exec(&["nope"])).await.err().unwrap();
    assert_eq!(error.to_string(), "exec: \"nope\": executable file not found in $PATH");
    pod.stop().await.unwrap();
}

async fn a_container_that_failed_to_start_leaves_nothing(place: &Place) {
    let pod = place.pod("again").await;
    assert!(pod.start(place.container("c", &["nope"])).await.is_err());
    assert!(pod.containers().unwrap().is_empty());
    let (exit, _) = place.script(&pod, "c", "exit 3").await;
    assert_eq!(exit.code, 3);
    assert!(place.host.create_pod(PodConfig::named("again")).await.is_err(), "names are unique");
    assert!(place.host.create_pod(PodConfig::named("../x")).await.is_err(), "names are no paths");
    pod.stop().await.unwrap();
}

async fn signals_reach_the_main_process(place: &Place) {
    let pod = place.pod("signals").await;
    let script = "trap 'echo bye; exit 5' TERM; echo ready; while true; do sleep 0.01; done";
    let container = pod.start(place.container("c", &["sh", "-c", script])).await.unwrap();
    place.until("the trap is set", async || place.lines("c").contains("ready")).await;
    container.signal(15).await.unwrap();
    assert_eq!(container.wait().await.unwrap().code, 5);
    assert!(container.signal(15).await.is_err(), "it has ended");
    pod.stop().await.unwrap();
}

async fn orphans_are_reaped_by_the_pods_init_when_namespaces_are_shared(place: &Place) {
    let config = PodConfig { share_process_namespace: true, ..PodConfig::named("shared") };
    let pod = place.host.create_pod(config).await.unwrap();
    let first = pod.start(place.container("one", &["sleep", "600"])).await.unwrap();
    let script = "(sleep 0.01 &) ; sleep 0.2; echo $$ > /dev/null; grep -l '^State:.Z' /proc/[0-9]*/status; \
                  grep -h Name: /proc/1/status";
    let (_, text) = place.script(&pod, "two", script).await;
    assert_eq!(text, "Name:\tdrydock-init\n", "no zombies, and PID 1 is the pod's");
    // What a container leaves running ends with it.
    place.script(&pod, "three", "sleep 601 & exit 0").await;
    let (_, text) =
        place.script(&pod, "four", "cat /proc/[0-9]*/cmdline 2>/dev/null | grep -c 601; true").await;
    assert_eq!(text, "1\n", "the filter finds only its own shell's script");
    first.signal(9).await.unwrap();
    pod.stop().await.unwrap();
}

async fn writes_stay_in_the_container(place: &Place) {
    let pod = place.pod("layers").await;
    place.script(&pod, "one", "echo mine > /etc/plain; touch /new").await;
    let (_, text) = place.script(&pod, "two", "cat /etc/plain; ls /new").await;
    assert!(text.starts_with("not a program\n") && text.contains("No such file"), "{text}");
    assert!(!place.directory.join("tree/new").exists());
    pod.stop().await.unwrap();
}

async fn a_read_only_root_takes_no_writes_but_volumes_do(place: &Place) {
    let pod = place.pod("readonly").await;
    let volume = place.directory.join("volume");
    std::fs::create_dir_all(&volume).unwrap();
    std::fs::write(volume.join("file"), "old").unwrap();
    let mut config = place.container(
        "c",
        &["sh", "-c", "exec 2>&1; touch /x; echo new > /data/file; touch /fixed/file; cat /one/file; touch /mem/x && stat -f -c %T /mem"],
    );
    config.read_only_root = true;
    let bind = |destination: &str, source: &Path, read_only| Mount {
        destination: destination.into(),
        what: MountKind::Bind { source: source.to_owned(), read_only },
    };
    config.mounts = vec![
        bind("/data", &volume, false),
        bind("/fixed", &volume, true),
        bind("/one/file", &volume.join("file"), true),
        Mount { destination: "/mem".into(), what: MountKind::Tmpfs { size: Some(1 << 20), mode: 0o777 } },
    ];
    let (_, text) = place.to_the_end(&pod, config).await;
    assert_eq!(
        text,
        "touch: /x: Read-only file system\ntouch: /fixed/file: Read-only file system\nnew\ntmpfs\n",
    );
    assert_eq!(std::fs::read_to_string(volume.join("file")).unwrap(), "new\n");

    let shared = pod.memory_volume("shared", Some(1 << 20)).unwrap();
    for (id, script) in [("writes", "echo here > /shared/x"), ("reads", "cat /shared/x")] {
        let mut config = place.container(id, &["sh", "-c", script]);
        config.mounts = vec![bind("/shared", &shared, false)];
        place.to_the_end(&pod, config).await;
    }
    assert_eq!(place.lines("reads"), "here\n");
    pod.stop().await.unwrap();
    assert!(!std::fs::read_to_string("/proc/self/mountinfo").unwrap().contains("shared"));
}

async fn links_in_a_tree_do_not_lead_out_of_it(place: &Place) {
    let pod = place.pod("links").await;
    let volume = place.directory.join("escape");
    std::fs::create_dir_all(&volume).unwrap();
    std::fs::write(volume.join("inside"), "").unwrap();
    let mut config = place.container("c", &["ls", "/etc/escaped/deep"]);
    config.mounts = vec![Mount {
        destination: "/opt/escape/deep".into(),
        what: MountKind::Bind { source: volume, read_only: false },
    }];
    let (_, text) = place.to_the_end(&pod, config).await;
    assert_eq!(text, "inside\n");
    assert!(!Path::new("/etc/escaped").exists());
    pod.stop().await.unwrap();
}

async fn a_container_runs_as_its_user(place: &Place) {
    let pod = place.pod("users").await;
    let mut config = place.container(
        "c",
        &["sh", "-c", "id -u; id -g; id -G; echo $HOME; touch /work/x && stat -c %u /work/x"],
    );
    config.user = User { uid: 1234, gid: 1234, groups: vec![77] };
    config.cwd = "/work".to_owned();
    let container_text = place.to_the_end(&pod, config.clone()).await.1;
    let groups = match place.host.abilities().users {
        Users::One => "1234",
        Users::All | Users::Below(_) => "1234 77",
    };
    assert_eq!(container_text, format!("1234\n1234\n{groups}\n/home/app\n1234\n"));

    config.id = "lives".to_owned();
    config.args = vec!["sleep".to_owned(), "600".to_owned()];
    config.log = Some(place.log("lives"));
    let container = pod.start(config).await.unwrap();
    let (code, out, _) = output(&container, exec(&["id", "-u"])).await;
    assert_eq!((code, out.as_str()), (0, "1234\n"), "so do programs beside it");
    pod.stop().await.unwrap();
}

async fn a_device_made_by_a_container_is_none(place: &Place) {
    if !place.host.abilities().root {
        return;
    }
    let pod = place.pod("devices").await;
    let volume = place.directory.join("devices");
    std::fs::create_dir_all(&volume).unwrap();
    let script = "exec 2>&1; for d in / /dev /data; do mknod $d/zero2 c 1 5 && head -c 1 $d/zero2; done; head -c 1 /dev/zero | wc -c";
    let mut config = place.container("c", &["sh", "-c", script]);
    config.mounts = vec![Mount {
        destination: "/data".into(),
        what: MountKind::Bind { source: volume.clone(), read_only: false },
    }];
    let (_, text) = place.to_the_end(&pod, config).await;
    assert_eq!(text.matches("Permission denied").count(), 3, "{text}");
    assert!(text.ends_with("1\n"), "the given ones are: {text}");
    std::fs::remove_dir_all(volume).unwrap();
    pod.stop().await.unwrap();
}

async fn capabilities_are_bounded(place: &Place) {
    let pod = place.pod("powers").await;
    let script = "grep -E 'Cap(Bnd|Eff|Prm)|NoNew' /proc/self/status";
    let mut config = place.container("some", &["sh", "-c", script]);
    config.capabilities = Capabilities::NONE.with("NET_BIND_SERVICE").with("KILL");
    config.no_new_privileges = true;
    let (_, text) = place.to_the_end(&pod, config).await;
    let mask = "0000000000000420";
    assert_eq!(text, format!("CapPrm:\t{mask}\nCapEff:\t{mask}\nCapBnd:\t{mask}\nNoNewPrivs:\t1\n"));

    let mut config = place.container("none", &["sh", "-c", script]);
    config.user = User { uid: 1234, gid: 1234, groups: Vec::new() };
    let (_, text) = place.to_the_end(&pod, config).await;
    let nothing = "0000000000000000";
    assert!(text.starts_with(&format!("CapPrm:\t{nothing}\nCapEff:\t{nothing}\n")), "{text}");
    assert!(text.ends_with("CapBnd:\t00000000a80425fb\nNoNewPrivs:\t0\n"), "{text}");
    pod.stop().await.unwrap();
}

fn exec(args: &[&str]) -> ExecConfig {
    ExecConfig { args: args.iter().map(ToString::to_string).collect(), ..ExecConfig::default() }
}

async fn output(container: &Container, config: ExecConfig) -> (i32, String, String) {
    let mut exec = container.exec(config).await.unwrap();
    let (mut out, mut err) = (String::new(), String::new());
    let (mut stdout, mut stderr) = (exec.streams.stdout.take().unwrap(), exec.streams.stderr.take().unwrap());
    let (a, b) = tokio::join!(stdout.read_to_string(&mut out), stderr.read_to_string(&mut err));
    a.and(b).unwrap();
    (exec.wait().await.unwrap().code, out, err)
}

async fn exec_runs_in_the_container_with_its_own_streams(place: &Place) {
    let pod = place.pod("exec").await;
    let mut config = place.container("c", &["sleep", "600"]);
    config.env = vec![("A".to_owned(), "1".to_owned()), ("B".to_owned(), "2".to_owned())];
    config.cwd = "/tmp".to_owned();
    let container = pod.start(config).await.unwrap();
    let mut config = exec(&["sh", "-c", "echo $A$B; pwd; cat /proc/1/cmdline; echo no >&2; exit 3"]);
    config.env = vec![("B".to_owned(), "3".to_owned())];
    let (code, out, err) = output(&container, config).await;
    assert_eq!((code, out.as_str(), err.as_str()), (3, "13\n/tmp\nsleep\x00600\0", "no\n"));

    let mut cat = container.exec(ExecConfig { stdin: true, ..exec(&["cat"]) }).await.unwrap();
    let mut stdin = cat.streams.stdin.take().unwrap();
    stdin.write_all(b"there and back").await.unwrap();
    drop(stdin);
    let mut text = String::new();
    cat.streams.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "there and back");
    assert_eq!(cat.wait().await.unwrap().code, 0);

    let mut slow = container.exec(exec(&["sleep", "600"])).await.unwrap();
    slow.signal(9).await.unwrap();
    assert_eq!(slow.wait().await.unwrap().code, 137);
    slow.signal(9).await.unwrap();

    // The container's end is the end of what runs beside it.
    let mut beside = container.exec(exec(&["sleep", "600"])).await.unwrap();
    container.signal(9).await.unwrap();
    assert_eq!(beside.wait().await.unwrap().signal, Some(9));
    assert!(container.exec(exec(&["true"])).await.is_err(), "it has ended");
    pod.stop().await.unwrap();
}

async fn exec_with_a_terminal_has_one_that_can_be_resized(place: &Place) {
    let pod = place.pod("terminal").await;
    let container = pod.start(place.container("c", &["sleep", "600"])).await.unwrap();
    let script = "tty; echo $TERM; read line; stty size; exit 4";
    let mut shell =
        container.exec(ExecConfig { tty: true, stdin: true, ..exec(&["sh", "-c", script]) }).await.unwrap();
    shell.resize(132, 43).unwrap();
    shell.streams.stdin.as_mut().unwrap().write_all(b"go\n").await.unwrap();
    let mut text = String::new();
    shell.streams.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.retain(|line| *line != "go");
    assert_eq!(lines, ["/dev/pts/0", "xterm", "43 132"]);
    assert_eq!(shell.wait().await.unwrap().code, 4);
    pod.stop().await.unwrap();
}

async fn attached_clients_write_and_read(place: &Place) {
    let pod = place.pod("attach").await;
    for tty in [false, true] {
        let id = if tty { "tty" } else { "pipe" };
        let mut config = place.container(id, &["sh", "-c", "read a; echo got $a"]);
        (config.stdin, config.tty) = (true, tty);
        let container = pod.start(config).await.unwrap();
        let mut attached = container.attach().await.unwrap();
        attached.stdin.as_mut().unwrap().write_all(b"it\n").await.unwrap();
        let mut text = Vec::new();
        while let Some(piece) = attached.next().await.unwrap() {
            match piece {
                Piece::Out(bytes) | Piece::Err(bytes) => text.extend(bytes),
            }
        }
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("got it"), "{text}");
        assert_eq!(container.wait().await.unwrap().code, 0);
        assert!(place.lines(id).contains("got it"));
    }
    pod.stop().await.unwrap();
}

async fn pods_talk_to_each_other_and_to_the_node_by_address(place: &Place) {
    let server = place.pod("server").await;
    let client = place.pod("client").await;
    let mut config = place.container("c", &["httpd", "-f", "-p", "80", "-h", "/etc"]);
    config.user = User { uid: 1234, gid: 1234, groups: Vec::new() };
    server.start(config).await.unwrap();
    let address = server.address();
    let ask = format!("until wget -q -O - http://{address}/plain; do sleep 0.01; done");
    let (_, text) = place.script(&client, "ask", &ask).await;
    assert!(text.ends_with("not a program\n"), "{text}");

    let listener = tokio::net::TcpListener::bind((place.host.address(), 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let say = format!("echo from a pod | nc {} {port}", place.host.address());
    client.start(place.container("say", &["sh", "-c", &say])).await.unwrap();
    let (mut stream, from) = listener.accept().await.unwrap();
    assert_eq!(from.ip(), client.address());
    let mut buffer = [0; 11];
    stream.read_exact(&mut buffer).await.unwrap();
    assert_eq!(&buffer, b"from a pod\n");

    // What neighbours remember of the node stays true when other pods come and go.
    let (_, text) = place.script(&client, "arp", "cat /proc/net/arp").await;
    let node = place.host.address().to_string();
    let node = text.lines().find(|line| line.split_whitespace().next() == Some(&node));
    assert!(node.is_some_and(|line| line.contains("02:64:72:79:00:01")), "{text}");

    // Every address of the services is the node's to listen on.
    let service = tokio::net::TcpListener::bind("10.96.7.8:80").await.unwrap();
    let say = "echo to a service | nc 10.96.7.8 80";
    client.start(place.container("service", &["sh", "-c", say])).await.unwrap();
    let mut text = String::new();
    service.accept().await.unwrap().0.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "to a service\n");

    // As root this machine reaches pods too, and the node reaches what listens on the machine's loopback.
    if place.host.abilities().root {
        let machine = place.host.machine_address().unwrap();
        let (_, text) = place.script(&client, "up", &format!("nc -w 1 {machine} 1 2>&1; echo $?")).await;
        assert!(text.contains("refused") || text == "1\n", "the machine answers: {text}");
        let outside = place.host.connect_outside(std::net::SocketAddr::from((address, 80))).await;
        let mut outside = outside.unwrap();
        outside.write_all(b"GET /plain HTTP/1.0\r\n\r\n").await.unwrap();
        let mut text = String::new();
        outside.read_to_string(&mut text).await.unwrap();
        assert!(text.ends_with("not a program\n"), "{text}");
    }
    server.stop().await.unwrap();
    client.stop().await.unwrap();
}

async fn a_connection_is_made_inside_the_pod(place: &Place) {
    let pod = place.pod("dial").await;
    pod.start(place.container("c", &["httpd", "-f", "-p", "127.0.0.1:8080", "-h", "/"])).await.unwrap();
    let mut text = String::new();
    place
        .until("someone listens", async || match pod.connect(8080).await {
            Ok(mut stream) => {
                stream.write_all(b"GET /etc/plain HTTP/1.0\r\n\r\n").await.unwrap();
                stream.read_to_string(&mut text).await.is_ok()
            }
            Err(_) => false,
        })
        .await;
    assert!(text.ends_with("not a program\n"), "{text}");
    assert!(pod.connect(9).await.is_err());
    pod.stop().await.unwrap();
}

async fn memory_beyond_the_limit_ends_the_container(place: &Place) {
    if !place.host.abilities().memory_limits.is_yes() {
        return;
    }
    let pod = place.pod("memory").await;
    let mut config = place.container("c", &["sh", "-c", "head -c 100000000 /dev/zero | tail"]);
    config.limits = Limits { memory: Some(16 << 20), ..Limits::default() };
    config.args = ["tail", "/dev/zero"].map(str::to_owned).to_vec();
    let (exit, _) = place.to_the_end(&pod, config).await;
    assert_eq!((exit.code, exit.oom_killed), (137, true));
    pod.stop().await.unwrap();
}

async fn a_fork_bomb_stays_in_its_container(place: &Place) {
    if !place.host.abilities().pid_limits.is_yes() {
        return;
    }
    let pod = place.pod("bomb").await;
    let mut config = place.container(
        "c",
        &["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do sleep 600 & done; sleep 600"],
    );
    config.limits.pids = Some(8);
    let container = pod.start(config).await.unwrap();
    let exit = container.wait().await.unwrap();
    assert_ne!(exit.code, 0);
    assert!(place.lines("c").contains("fork"), "{}", place.lines("c"));
    let (exit, _) = place.script(&pod, "other", "sleep 0 & sleep 0 & wait").await;
    assert_eq!(exit.code, 0);
    pod.stop().await.unwrap();
}

async fn use_of_memory_is_counted(place: &Place) {
    let pod = place.pod("usage").await;
    let container = pod.start(place.container("c", &["sleep", "600"])).await.unwrap();
    assert!(container.usage().unwrap().memory > 0);
    pod.stop().await.unwrap();
}

async fn logs_go_on_in_a_new_file_when_asked(place: &Place) {
    let pod = place.pod("rotate").await;
    let container = pod
        .start(place.container("r", &["sh", "-c", "while true; do echo x; sleep 0.01; done"]))
        .await
        .unwrap();
    place.until("the first line", async || place.log("r").exists() && place.lines("r").contains('x')).await;
    std::fs::rename(place.log("r"), place.log("r.old")).unwrap();
    container.reopen_log().await.unwrap();
    place.until("a line in the new file", async || place.lines("r").contains('x')).await;
    pod.stop().await.unwrap();
}

async fn a_stopped_pod_is_gone(place: &Place) {
    let pod = place.pod("gone").await;
    let container = pod.start(place.container("c", &["sh", "-c", "sleep 600 & sleep 600"])).await.unwrap();
    assert!(pod.is_alive());
    let pid = container.pid();
    let name = format!("v{:08x}", u32::from(pod.address()));
    let links = || std::fs::read_to_string("/proc/net/dev").unwrap();
    assert!(links().contains(&name));
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    pod.stop().await.unwrap();
    assert!(!pod.is_alive());
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert!(!links().contains(&name));
    assert!(container.wait().await.is_err());
    assert!(pod.start(place.container("d", &["true"])).await.is_err());
    pod.stop().await.unwrap();
}

async fn a_hundred_pods_start_quickly(place: &Place) {
    let start = Instant::now();
    let mut pods = Vec::new();
    for number in 0..100 {
        let (host, config) = (place.host.clone(), place.container("c", &["sleep", "600"]));
        pods.push(tokio::spawn(async move {
            let mut config = config;
            config.log = None;
            let pod = host.create_pod(PodConfig::named(format!("many-{number}"))).await.unwrap();
            pod.start(config).await.unwrap();
            pod
        }));
    }
    let mut made = Vec::new();
    for pod in pods {
        made.push(pod.await.unwrap());
    }
    let took = start.elapsed();
    println!(
        "    a hundred pods with a container each: {} ms, inits {} kB each",
        took.as_millis(),
        init_memory()
    );
    let start = Instant::now();
    let stops: Vec<_> =
        made.into_iter().map(|pod| tokio::spawn(async move { pod.stop().await.unwrap() })).collect();
    for stop in stops {
        stop.await.unwrap();
    }
    println!("    stopped: {} ms", start.elapsed().as_millis());
}

/// What an init has for itself, in kilobytes: the mean over all.
fn init_memory() -> u64 {
    let sizes: Vec<u64> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            if std::fs::read_to_string(path.join("comm")).ok()?.trim() != "drydock-init" {
                return None;
            }
            let text = std::fs::read_to_string(path.join("smaps_rollup")).ok()?;
            text.lines()
                .find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.trim().parse().ok())
        })
        .collect();
    sizes.iter().sum::<u64>() / (sizes.len() as u64).max(1)
}
