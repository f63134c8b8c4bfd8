//! Pods of a cluster in memory, run for real.
//!
//! Namespaces can be entered only by a process without threads, and from inside no package archive is reached. So
//! this is a program of its own, that first has the images made by itself in another process, then enters, then
//! runs its tests one after the other. Root is needed, and said where it is missing.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failure here is the answer")]

mod cluster;
mod configuration;
mod crash;
mod life;
mod probes;
mod remote;
mod trouble;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;

use drydock_images::{Pull, Reference, Store};
use drydock_sandbox::{Entry, Host, Network, Options, enter, hook};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Runtime;

use cluster::Cluster;

/// What the tests run.
const IMAGES: [&str; 2] = ["busybox:latest", "memcached:1.6"];

type Test = (&'static str, fn(Arc<Cluster>) -> BoxFuture<'static, ()>);

/// Names a test by its function.
#[macro_export]
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        /// The tests of this file.
        pub(crate) fn all() -> Vec<$crate::Test> {
            vec![$((stringify!($name), |cluster| futures::FutureExt::boxed($name(cluster)))),*]
        }
    };
}

fn main() -> ExitCode {
    hook();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|word| word == "--list") {
        return ExitCode::SUCCESS;
    }
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["make-images"] => return make_images(),
        ["first", directory] => return crash::first(Path::new(directory)),
        ["second", directory] => return crash::second(Path::new(directory)),
        _ => {}
    }
    assert!(rustix::process::geteuid().is_root(), "these tests need root, to run pods as any user");
    let made = Command::new(std::env::current_exe().unwrap()).arg("make-images").status().unwrap();
    assert!(made.success(), "the images could not be made");
    let filter = arguments.iter().find(|word| !word.starts_with('-')).cloned().unwrap_or_default();
    let survives = "a_pod_survives_the_death_of_its_node";
    if survives.contains(&filter) {
        let fine = crash::drive();
        println!("test {survives} ... {}", if fine { "ok" } else { "FAILED" });
        if !fine {
            return ExitCode::FAILURE;
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let (runtime, host) = open(&directory.path().join("state"), false, false);
    runtime.block_on(async {
        let host = host();
        let code = run(&filter, &host, directory.path().join("node")).await;
        host.close().await.unwrap();
        code
    })
}

/// Enters namespaces, or those of an earlier run, and then begins to have threads. The host is opened by whoever
/// calls, within the runtime.
fn open(state: &Path, resume: bool, outlive: bool) -> (Runtime, impl FnOnce() -> Host + use<>) {
    let entered = enter(&Entry { state_dir: state.to_owned(), resume }).unwrap();
    assert_eq!(entered.resumed(), resume);
    let options = Options {
        networks: vec![Network { pod_cidr: "10.99.0.0/16".parse().unwrap(), uplink: None }],
        service_cidr: None,
        outlive,
        copy_trees: false,
        program: None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    (runtime, move || Host::open(entered, options).unwrap())
}

fn store() -> Store {
    Store::open(
        &PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("images"),
        drydock_images::Options::default(),
    )
    .unwrap()
}

fn make_images() -> ExitCode {
    for image in IMAGES {
        let reference = Reference::parse(image).unwrap();
        if let Err(error) =
            store().resolve(&reference, Pull::IfNotPresent, &|progress| println!("{image}: {progress}"))
        {
            println!("{image}: {}", error.message());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

async fn run(filter: &str, host: &Host, directory: PathBuf) -> ExitCode {
    let filter_env = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter_env).init();
    let cluster = Arc::new(Cluster::start(host.clone(), store(), directory).await);
    let tests = [life::all(), configuration::all(), probes::all(), remote::all(), trouble::all()].concat();
    let mut failed = 0;
    for (name, test) in tests.into_iter().filter(|(name, _)| name.contains(filter)) {
        let began = Instant::now();
        let outcome = std::panic::AssertUnwindSafe(test(Arc::clone(&cluster))).catch_unwind().await;
        let word = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("test {name} ... {word} ({:.2} s)", began.elapsed().as_secs_f64());
        if outcome.is_err() {
            failed += 1;
            cluster.describe().await;
        }
        cluster.sweep().await;
    }
    let left = host.adopt().unwrap().len();
    println!("{failed} failed, {left} pods left on the machine");
    let cluster = Arc::into_inner(cluster).unwrap();
    cluster.stop().await;
    if failed == 0 && left == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
