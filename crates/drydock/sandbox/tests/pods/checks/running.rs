//! How programs are started, and how they end.

use std::path::Path;
use std::time::{Duration, Instant};

use drydock_sandbox::{Mount, MountKind, PodConfig, Rlimit};

use super::{Check, Place, checks, exec, output};

checks![
    a_container_runs_as_pid_one_of_its_own_namespaces,
    exit_codes_and_signals_are_told_apart,
    a_command_that_can_not_run_says_why_in_kubernetes_words,
    a_container_that_failed_to_start_leaves_nothing,
    a_container_beside_another_sees_its_processes_and_goes_with_it,
    signals_reach_the_main_process,
    a_program_that_is_ended_takes_along_what_it_started,
    a_program_starts_whatever_its_container_made_of_the_file_of_users,
    a_pod_outlives_a_moment_without_files,
    orphans_are_reaped_by_the_pods_init_when_namespaces_are_shared,
    queues_and_shared_memory_are_a_pods_own,
    a_stopped_pod_is_gone,
    a_hundred_pods_start_quickly,
];

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

async fn a_container_beside_another_sees_its_processes_and_goes_with_it(place: &Place) {
    let pod = place.pod("looked-into").await;
    let main = pod.start(place.container("main", &["sleep", "611"])).await.unwrap();
    let beside = |id: &str, script: &str| {
        let mut config = place.container(id, &["sh", "-c", script]);
        config.beside = Some("main".to_owned());
        config
    };
    let looks = pod
        .start(beside("looks", "test $$ -gt 1 && tr '\\0' ' ' < /proc/1/cmdline; sleep 612 & exit 3"))
        .await;
    let exit = looks.unwrap().wait().await.unwrap();
    let seen = std::fs::read_to_string(place.log("looks")).unwrap();
    assert!(seen.contains("sleep 611") && exit.code == 3, "{seen} {exit:?}");
    let (_, left, _) = output(&main, exec(&["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])).await;
    assert!(!left.contains("sleep 612"), "what it left goes with it: {left}");
    // A file of its own tree, and none of the other's.
    let stays = pod.start(beside("stays", "echo mine > /mine; exec sleep 613")).await.unwrap();
    assert_eq!(output(&main, exec(&["sh", "-c", "test -e /mine"])).await.0, 1);
    main.signal(9).await.unwrap();
    assert_eq!(stays.wait().await.unwrap().signal, Some(9));
    // Its processes end before it does: until it is known to have, a start there fails for want of a first process.
    main.wait().await.unwrap();
    let refused = pod.start(beside("late", "true")).await.err().unwrap().to_string();
    assert!(refused.contains("the container main does not run"), "{refused}");
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
    // As long as Kubernetes' may be, and how often it was started.
    let longest = format!("{}.{}", "x".repeat(63), i32::MAX);
    let (exit, _) = place.script(&pod, &longest, "exit 4").await;
    assert_eq!(exit.code, 4);
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
    // One that has no name; those around it are the C library's own, or none.
    let script = "trap 'exit 6' 37; echo ready; while true; do sleep 0.01; done";
    let container = pod.start(place.container("d", &["sh", "-c", script])).await.unwrap();
    place.until("the trap is set", async || place.lines("d").contains("ready")).await;
    for none in [-1, 0, 32, 33, 65] {
        assert!(container.signal(none).await.is_err(), "{none}");
    }
    container.signal(37).await.unwrap();
    assert_eq!(container.wait().await.unwrap().code, 6);
    pod.stop().await.unwrap();
}

async fn a_program_that_is_ended_takes_along_what_it_started(place: &Place) {
    let pod = place.pod("family").await;
    let container = pod.start(place.container("c", &["sleep", "600"])).await.unwrap();
    let started = async || {
        let all = exec(&["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]);
        output(&container, all).await.1.contains("sleep 614 ")
    };
    let mut parent = container.exec(exec(&["sh", "-c", "sleep 614 & wait"])).await.unwrap();
    place.until("the child is there", async || started().await).await;
    parent.signal(9).await.unwrap();
    assert_eq!(parent.wait().await.unwrap().signal, Some(9));
    place.until("the child is gone", async || !started().await).await;
    pod.stop().await.unwrap();
}

async fn a_program_starts_whatever_its_container_made_of_the_file_of_users(place: &Place) {
    let pod = place.pod("homeless").await;
    let script = "busybox rm /etc/passwd; busybox mkfifo /etc/passwd; echo made; exec sleep 600";
    let container = pod.start(place.container("c", &["sh", "-c", script])).await.unwrap();
    place.until("the pipe is made", async || place.lines("c").contains("made")).await;
    let home = output(&container, exec(&["sh", "-c", "echo $HOME"]));
    let home = tokio::time::timeout(Duration::from_secs(20), home).await;
    assert_eq!(home.map(|(_, home, _)| home).as_deref(), Ok("/\n"));
    pod.stop().await.unwrap();
}

async fn a_pod_outlives_a_moment_without_files(place: &Place) {
    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
    let pod = place.pod("poor").await;
    let container = pod.start(place.container("c", &["sleep", "600"])).await.unwrap();
    let record = std::fs::read(place.directory.join("state/pods/poor/init.json")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    let pid: i32 = record["process"]["pid"].as_i64().unwrap().try_into().unwrap();
    let mut attached = Vec::new();
    for _ in 0..4 {
        attached.push(container.attach(false).await.unwrap());
    }
    let is_open = |fd: &u64| Path::new(&format!("/proc/{pid}/fd/{fd}")).is_symlink();
    let first = (0..).find(|fd| !is_open(fd));
    assert!(first > Some(8), "it sees less than it has open: {first:?}");
    let (init, no_more) = (Pid::from_raw(pid), Rlimit { current: first, ..getrlimit(Resource::Nofile) });
    let before = prlimit(init, Resource::Nofile, no_more).unwrap();
    let mut asked = std::pin::pin!(container.exec(exec(&["true"])));
    // Long enough to fail.
    let patience = Duration::from_millis(200);
    let waits = tokio::time::timeout(patience, &mut asked).await;
    assert!(waits.is_err(), "{:?}", waits.map(|answered| answered.err()));
    prlimit(init, Resource::Nofile, before).unwrap();
    assert_eq!(asked.await.unwrap().wait().await.unwrap().code, 0);
    drop(attached);
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

async fn queues_and_shared_memory_are_a_pods_own(place: &Place) {
    let (one, other) = (place.pod("one").await, place.pod("other").await);
    let script = "touch /dev/mqueue/queue; echo here > /dev/shm/segment; echo made; exec sleep 600";
    let first = one.start(place.container("first", &["sh", "-c", script])).await.unwrap();
    place.until("the queue is made", async || place.lines("first").contains("made")).await;
    // A segment of System V's, by somebody who is in the pod.
    let pid = first.pid().to_string();
    let mut inside = std::process::Command::new("nsenter");
    inside.args(["--ipc", "--target", &pid, "ipcmk", "--shmem", "4096"]);
    let made = inside.output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let look = "ls /dev/mqueue; wc -l < /proc/sysvipc/shm; cat /dev/shm/* 2>/dev/null; stat -f -c '%T %b %S' /dev/shm";
    let (_, text) = place.script(&one, "beside", look).await;
    assert_eq!(
        text, "queue\n2\nhere\ntmpfs 16384 4096\n",
        "containers of a pod share all: a heading and a segment"
    );
    let (_, text) = place.script(&other, "elsewhere", look).await;
    assert_eq!(text, "1\ntmpfs 16384 4096\n", "another pod has none");
    let mounted = || std::fs::read_to_string("/proc/self/mountinfo").unwrap().contains("/one/shm ");
    assert!(mounted());
    for pod in [one, other] {
        pod.stop().await.unwrap();
    }
    assert!(!mounted());
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
