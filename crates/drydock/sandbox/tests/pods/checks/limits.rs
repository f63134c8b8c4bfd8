//! How much programs may use.

use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use drydock_sandbox::{Error, Limits};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Check, Place, checks, exec, output};

checks![
    memory_beyond_the_limit_ends_the_container,
    a_fork_bomb_stays_in_its_container,
    time_of_processors_is_limited_where_the_kernel_looks,
    use_of_memory_is_counted,
    pods_may_open_what_the_node_could_before_it_took_more,
    a_pod_is_not_gone_while_the_node_can_open_nothing,
];

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

async fn time_of_processors_is_limited_where_the_kernel_looks(place: &Place) {
    if !place.host.abilities().cpu_limits.is_yes() {
        return;
    }
    let pod = place.pod("time").await;
    let mut config = place.container("c", &["sleep", "600"]);
    config.limits.cpu_millis = Some(250);
    pod.start(config).await.unwrap();
    let record = std::fs::read(place.directory.join("state/host.json")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    let group = Path::new(record["cgroups"]["parents"]["Cpu"].as_str().unwrap()).join("time/c");
    let read = |file: &str| std::fs::read_to_string(group.join(file)).ok();
    let held = read("cpu.max").or_else(|| Some(read("cpu.cfs_quota_us")? + &read("cpu.cfs_period_us")?));
    let held = held.unwrap_or_else(|| panic!("there is no limit in {}", group.display()));
    assert_eq!(held.split_whitespace().collect::<Vec<_>>(), ["25000", "100000"]);
    pod.stop().await.unwrap();
}

async fn use_of_memory_is_counted(place: &Place) {
    let pod = place.pod("usage").await;
    let container = pod.start(place.container("c", &["sleep", "600"])).await.unwrap();
    assert!(container.usage().unwrap().memory > 0);
    pod.stop().await.unwrap();
}

async fn pods_may_open_what_the_node_could_before_it_took_more(place: &Place) {
    let own = getrlimit(Resource::Nofile);
    assert!(own.current == own.maximum && own.maximum > Some(crate::FILES), "{own:?}");
    let expected = format!("{}\n{}\n", crate::FILES, own.maximum.unwrap());
    let pod = place.pod("files").await;
    let script = "ulimit -Sn; ulimit -Hn";
    let (_, said) = place.script(&pod, "c", script).await;
    assert_eq!(said, expected);
    let container = pod.start(place.container("lives", &["sleep", "600"])).await.unwrap();
    assert_eq!(output(&container, exec(&["sh", "-c", script])).await.1, expected);
    pod.stop().await.unwrap();
}

async fn a_pod_is_not_gone_while_the_node_can_open_nothing(place: &Place) {
    let pod = place.pod("lean").await;
    let container = pod.start(place.container("c", &["sleep", "600"])).await.unwrap();
    let mut ended = pin!(container.wait());
    let own = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..own }).unwrap();
    let alive = pod.is_alive();
    let dialled = pod.dial((pod.address(), 80).into()).await.err();
    // Long enough to ask.
    let waited = tokio::time::timeout(Duration::from_millis(200), &mut ended).await;
    let stopped = pod.stop().await;
    setrlimit(Resource::Nofile, own).unwrap();
    assert!(alive && matches!(dialled, Some(Error::Machine { .. })), "{alive} {dialled:?}");
    assert!(waited.is_err(), "{waited:?}");
    assert!(stopped.is_err() && container.exit().is_none());
    container.signal(9).await.unwrap();
    assert_eq!(ended.await.unwrap().signal, Some(9));
    let nobody = pod.dial((pod.address(), 80).into()).await.err();
    assert!(matches!(nobody, Some(Error::Unreached { .. })), "{nobody:?}");
    pod.stop().await.unwrap();
    assert!(!pod.is_alive());
}
