//! What a pod and its containers do, one sentence each.

mod files;
mod limits;
mod network;
mod running;
mod streams;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use drydock_sandbox::{Container, ContainerConfig, ExecConfig, Exit, Host, Pod, PodConfig};
use tokio::io::AsyncReadExt;

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

    pub(crate) async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let start = Instant::now();
        while !holds().await {
            assert!(start.elapsed() < Duration::from_secs(20), "waited too long: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

type Check = for<'a> fn(&'a Place) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The checks of a module, in order.
macro_rules! checks {
    ($($name:ident),* $(,)?) => {
        pub(super) const CHECKS: &[(&str, Check)] = &[$((stringify!($name), |place| Box::pin($name(place)))),*];
    };
}
use checks;

const CHECKS: [&[(&str, Check)]; 5] =
    [running::CHECKS, files::CHECKS, streams::CHECKS, network::CHECKS, limits::CHECKS];

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
    for (name, check) in CHECKS.concat().iter().filter(|(name, _)| chosen(name)) {
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
