//! Pods of a cluster in memory, run for real.
//!
//! Namespaces can be entered only by a process without threads, and from inside no package archive is reached. So
//! this is a program of its own: the driver runs itself for root and for a plain user, once to have the images
//! made and then for each part of the tests, to enter and run them one after the other on a node of its own. Where
//! it is not root itself, it says what it leaves out.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failure here is the answer")]

mod claims;
mod cluster;
mod configuration;
mod crash;
mod ending;
mod life;
mod memory;
mod probes;
mod remote;
mod trouble;
mod user;

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Instant;

use drydock_images::{Config, Contents, Pull, Reference, Store, silently, write_oci_archive};
use drydock_sandbox::{Entry, Host, Network, Options, enter, hook};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Runtime;

use cluster::Cluster;
use user::User;

/// What the tests run.
const IMAGES: [&str; 2] = ["busybox:latest", "memcached:1.6"];
/// The first of them again, with a signal of its own that asks it to stop.
const SIGNALLED: &str = "signalled:1";

/// Each user's tests are played by so many nodes at once: they mostly wait.
const PARTS: usize = 3;

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
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["make-images"] => make_images(),
        ["inside", part, filter] => inside(part.parse().unwrap(), filter),
        ["first", directory] => crash::first(Path::new(directory)),
        ["second", directory] => crash::second(Path::new(directory)),
        _ if words.contains(&"--list") => ExitCode::SUCCESS,
        _ => drive(words.iter().find(|word| !word.starts_with('-'))),
    }
}

/// Runs the tests as each user, all parts at the same time.
fn drive(filter: Option<&&str>) -> ExitCode {
    let users = User::all();
    for user in &users {
        let made = user.command().arg("make-images").status().unwrap();
        assert!(made.success(), "the images could not be made by {}", user.name());
    }
    let parts = users.iter().flat_map(|user| (0..PARTS).map(move |part| (user, part)));
    let running: Vec<_> = parts
        .map(|(user, part)| {
            let mut command = user.command();
            command.args(["inside", &part.to_string(), filter.unwrap_or(&"")]);
            let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            (user, std::thread::spawn(|| child.wait_with_output().unwrap()))
        })
        .collect();
    let mut fine = true;
    for (user, said) in running {
        let said = said.join().unwrap();
        println!("\nas {}", user.name());
        println!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        fine &= said.status.success();
    }
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn inside(part: usize, filter: &str) -> ExitCode {
    let survives = "a_pod_survives_the_death_of_its_node";
    if part == 0 && survives.contains(filter) {
        let fine = crash::drive();
        println!("test {survives} ... {}", if fine { "ok" } else { "FAILED" });
        if !fine {
            return ExitCode::FAILURE;
        }
    }
    let directory = tempfile::tempdir_in(User::is_me().home()).unwrap();
    let (runtime, host) = open(&directory.path().join("state"), false, false);
    runtime.block_on(async {
        let host = host();
        let code = run(part, filter, &host, directory.path().join("node")).await;
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
    // Inside a user namespace everyone looks like root: where the driver said is where it is.
    let home = PathBuf::from(std::env::var_os("HOME").unwrap());
    Store::open(&home.join("images"), drydock_images::Options::default()).unwrap()
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
    let busybox = store().resolve_image(IMAGES[0], Pull::Never, &silently).unwrap();
    let config = Config { stop_signal: Some("SIGRTMIN+3".to_owned()), ..busybox.config };
    let mut archive = tempfile::NamedTempFile::new().unwrap();
    let name = Reference::parse(SIGNALLED).unwrap();
    write_oci_archive(&mut archive, &Contents::Tree(&busybox.tree), &config, &name).unwrap();
    store().import(archive.path(), None, &silently).unwrap();
    ExitCode::SUCCESS
}

async fn run(part: usize, filter: &str, host: &Host, directory: PathBuf) -> ExitCode {
    let filter_env = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter_env).init();
    let cluster = Arc::new(Cluster::start(host.clone(), store(), directory).await);
    let tests = [
        life::all(),
        configuration::all(),
        claims::all(),
        memory::all(),
        probes::all(),
        remote::all(),
        trouble::all(),
        ending::all(),
    ]
    .concat();
    let mut failed = 0;
    let mine = tests.into_iter().skip(part).step_by(PARTS);
    for (name, test) in mine.filter(|(name, _)| name.contains(filter)) {
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
