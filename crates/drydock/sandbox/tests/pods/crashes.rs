//! The owner of pods is killed; the next one takes them over, or removes them.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, ExitCode, Stdio};
use std::time::{Duration, Instant};

use drydock_sandbox::{Host, PodConfig, Process};

use crate::Setting;
use crate::checks::Place;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn place(host: Host, directory: &Path) -> Place {
    Place { host, directory: directory.to_owned() }
}

/// Makes pods, says who runs in them, makes another for each name that it is given, and waits to be killed.
pub(crate) fn own(setting: Setting, directory: &Path) -> ExitCode {
    let place = place(crate::open(setting, directory, false), directory);
    runtime().block_on(async {
        let pod = place
            .host
            .create_pod(PodConfig { note: "mine".to_owned(), ..PodConfig::named("pod") })
            .await
            .unwrap();
        let talks = "i=0; while true; do i=$((i+1)); echo line $i; sleep 0.01; done";
        let talker = pod.start(place.container("talks", &["sh", "-c", talks])).await.unwrap();
        let ends = pod.start(place.container("ends", &["sh", "-c", "sleep 0.5; exit 9"])).await.unwrap();
        println!("{} {}", talker.pid(), ends.pid());
        for name in std::io::stdin().lines() {
            let name = name.unwrap();
            let pod = place.pod(&name).await;
            println!("{}", pod.start(place.container(&name, &["sleep", "1000"])).await.unwrap().pid());
        }
        std::future::pending::<()>().await;
    });
    ExitCode::SUCCESS
}

/// Finds the pods again, with their logs and exit codes.
pub(crate) fn adopt(setting: Setting, directory: &Path) -> ExitCode {
    // One that was being made, of which nothing was written down yet.
    std::fs::create_dir_all(directory.join("state/pods/other/containers")).unwrap();
    let place = place(crate::open(setting, directory, true), directory);
    runtime().block_on(async {
        let pods = place.host.adopt().unwrap();
        let [pod] = pods.as_slice() else { panic!("one pod was made, {} were found", pods.len()) };
        assert!(pod.is_alive());
        assert_eq!((pod.id(), pod.config().note.as_str()), ("pod", "mine"));
        let containers = pod.containers().unwrap();
        let find = |id: &str| containers.iter().find(|container| container.id() == id).unwrap().clone();
        assert_eq!(find("ends").wait().await.unwrap().code, 9, "also when it ended while nobody looked");
        assert_eq!(find("ends").config().unwrap().args[0], "sh");
        let lines = place.lines("talks").lines().count();
        let start = Instant::now();
        while place.lines("talks").lines().count() <= lines {
            assert!(start.elapsed() < Duration::from_secs(10), "the log goes on");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (_, text) = place.script(pod, "new", "echo started in an adopted pod").await;
        assert_eq!(text, "started in an adopted pod\n");
        let other = place.pod("other").await;
        assert_ne!(other.address(), pod.address());
        let (exit, _) = place.script(&other, "ping", &format!("nc -w 1 {} 1; exit 3", pod.address())).await;
        assert_eq!(exit.code, 3);
        // Of two starts that were broken off, one never came to run, and of the other nobody was told that it does.
        std::fs::create_dir_all(directory.join("state/pods/pod/containers/begun")).unwrap();
        let unknown = pod.start(place.container("unknown", &["sleep", "1000"])).await.unwrap();
        for id in ["begun", "unknown"] {
            assert!(pod.start(place.container(id, &["true"])).await.is_err(), "{id} is taken");
            pod.clear(id).await.unwrap();
            let (_, text) = place.script(pod, id, "echo begun anew").await;
            assert_eq!(text, "begun anew\n", "{id}");
        }
        assert!(Process::of(unknown.pid()).is_err(), "it has ended");
        find("talks").signal(9).await.unwrap();
        assert_eq!(find("talks").wait().await.unwrap().signal, Some(9));
        place.host.close().await.unwrap();
    });
    ExitCode::SUCCESS
}

/// Starts anew, which ends what an earlier run left.
pub(crate) fn sweep(setting: Setting, directory: &Path) -> ExitCode {
    let host = crate::open(setting, directory, false);
    assert!(host.adopt().unwrap().is_empty());
    runtime().block_on(async { host.close().await.unwrap() });
    ExitCode::SUCCESS
}

/// Begins a pod anew, of which what is written down can't be read.
pub(crate) fn anew(setting: Setting, directory: &Path) -> ExitCode {
    let place = place(crate::open(setting, directory, true), directory);
    runtime().block_on(async {
        for pod in place.host.adopt().unwrap() {
            assert!(!pod.is_alive(), "nobody could say so");
            pod.stop().await.unwrap();
        }
        let pod = place.pod("pod").await;
        let (_, text) = place.script(&pod, "new", "echo begun anew").await;
        assert_eq!(text, "begun anew\n");
        place.host.close().await.unwrap();
    });
    ExitCode::SUCCESS
}

struct Owner {
    node: Child,
    says: std::io::Lines<BufReader<ChildStdout>>,
    state: PathBuf,
    /// Everything that runs for it: containers, inits, the keeper.
    processes: Vec<Process>,
    keeper: Process,
}

fn start_owner(setting: Setting, directory: &Path) -> Owner {
    let mut command = setting.command("own", directory);
    let mut node = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut says = BufReader::new(node.stdout.take().unwrap()).lines();
    let line = says.next().unwrap().unwrap();
    let mut processes: Vec<Process> =
        line.split_whitespace().map(|pid| Process::of(pid.parse().unwrap()).unwrap()).collect();
    assert_eq!(processes.len(), 2, "the owner says who runs: {line:?}");
    let state = directory.join("state");
    let keeper = recorded(&state, "host.json", "keeper");
    processes.push(keeper.clone());
    processes.push(recorded(&state, "pods/pod/init.json", "process"));
    assert!(processes.iter().all(Process::alive));
    Owner { node, says, state, processes, keeper }
}

fn recorded(state: &Path, path: &str, field: &str) -> Process {
    let text = std::fs::read_to_string(state.join(path)).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(value[field].clone()).unwrap()
}

impl Owner {
    /// Has another pod made.
    fn make(&mut self, name: &str) {
        writeln!(self.node.stdin.as_ref().unwrap(), "{name}").unwrap();
        let pid = self.says.next().expect("the owner lives and says who runs").unwrap();
        self.processes.push(Process::of(pid.parse().unwrap()).unwrap());
        self.processes.push(recorded(&self.state, &format!("pods/{name}/init.json"), "process"));
    }

    /// Kills the keeper and nobody else.
    fn kill_keeper(&mut self) {
        assert!(self.keeper.kill(Duration::from_secs(5)));
        self.processes.retain(|process| *process != self.keeper);
    }

    /// Waits for another keeper than the one that was killed.
    fn await_keeper(&mut self) {
        let (start, killed) = (Instant::now(), self.keeper.clone());
        while self.keeper == killed || !self.keeper.alive() {
            assert!(start.elapsed() < Duration::from_secs(10), "no keeper follows the one that was killed");
            std::thread::sleep(Duration::from_millis(5));
            self.keeper = recorded(&self.state, "host.json", "keeper");
        }
        self.processes.push(self.keeper.clone());
    }

    fn kill(&mut self) {
        self.node.kill().unwrap();
        self.node.wait().unwrap();
    }

    fn wait_until_gone(&self) -> bool {
        let start = Instant::now();
        while self.processes.iter().any(Process::alive) {
            if start.elapsed() > Duration::from_secs(10) {
                println!(
                    "  still there: {:?}",
                    self.processes.iter().filter(|one| one.alive()).collect::<Vec<_>>()
                );
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

pub(crate) fn mortal(setting: Setting, directory: &Path) -> bool {
    let mut owner = start_owner(setting, directory);
    owner.kill();
    ended_with_owner(setting, directory, &owner)
}

fn ended_with_owner(setting: Setting, directory: &Path, owner: &Owner) -> bool {
    let gone = owner.wait_until_gone();
    let left: Vec<_> =
        std::fs::read_dir(directory.join("state")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"], "the keeper has removed what was made");
    setting.command("sweep", directory).status().unwrap().success() && gone
}

/// Whether somebody wants a pod at that very moment or nobody does, and also when it was an earlier node's.
pub(crate) fn keeper_killed(setting: Setting, directory: &Path) -> bool {
    let mut owner = start_owner(setting, directory);
    // It has ended by itself by then, or has not.
    owner.processes.remove(1);
    owner.kill_keeper();
    owner.make("second");
    owner.await_keeper();
    owner.kill_keeper();
    owner.await_keeper();
    owner.make("third");
    assert!(owner.processes.iter().all(Process::alive), "pods outlive their keeper");
    owner.kill();
    if setting.outlive {
        assert!(owner.processes.iter().all(Process::alive), "pods outlive their owner");
        let adopted = setting.command("keep", directory).status().unwrap().success();
        return adopted && owner.wait_until_gone();
    }
    ended_with_owner(setting, directory, &owner)
}

/// Takes over the keeper with the pods, and it is killed.
pub(crate) fn keep(setting: Setting, directory: &Path) -> ExitCode {
    let place = place(crate::open(setting, directory, true), directory);
    runtime().block_on(async {
        let state = directory.join("state");
        let keeper = recorded(&state, "host.json", "keeper");
        assert!(keeper.kill(Duration::from_secs(5)));
        place.until("another keeper", async || recorded(&state, "host.json", "keeper") != keeper).await;
        let (_, text) = place.script(&place.pod("fourth").await, "new", "echo made").await;
        assert_eq!(text, "made\n");
        assert_eq!(place.host.adopt().unwrap().iter().filter(|pod| pod.is_alive()).count(), 4);
        place.host.close().await.unwrap();
    });
    ExitCode::SUCCESS
}

pub(crate) fn adopted(setting: Setting, directory: &Path) -> bool {
    let mut owner = start_owner(setting, directory);
    owner.kill();
    assert!(owner.processes.iter().all(Process::alive), "pods outlive their owner");
    let adopted = setting.command("adopt", directory).status().unwrap().success();
    adopted && owner.wait_until_gone()
}

pub(crate) fn adopted_without_keeper(setting: Setting, directory: &Path) -> bool {
    let mut owner = start_owner(setting, directory);
    owner.kill();
    assert!(owner.keeper.kill(Duration::from_secs(5)));
    let adopted = setting.command("adopt", directory).status().unwrap().success();
    adopted && owner.wait_until_gone()
}

pub(crate) fn swept(setting: Setting, directory: &Path) -> bool {
    let mut owner = start_owner(setting, directory);
    owner.kill();
    let swept = setting.command("sweep", directory).status().unwrap().success();
    swept && owner.wait_until_gone()
}

/// Damage in a record that an owner wrote, and what comes of it.
fn damaged(setting: Setting, directory: &Path, record: &str, then: &str) -> bool {
    let mut owner = start_owner(setting, directory);
    owner.kill();
    std::fs::write(directory.join("state").join(record), "{\"keeper\": {").unwrap();
    let done = setting.command(then, directory).status().unwrap().success();
    done && owner.wait_until_gone()
}

pub(crate) fn host_damaged(setting: Setting, directory: &Path) -> bool {
    damaged(setting, directory, "host.json", "sweep")
}

pub(crate) fn pod_damaged(setting: Setting, directory: &Path) -> bool {
    ["pods/pod/pod.json", "pods/pod/init.json"]
        .into_iter()
        .all(|record| damaged(setting, directory, record, "anew"))
}
