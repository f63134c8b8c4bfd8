//! What becomes of pods and what they see, as recorded on a real cluster with a kubelet, played to `ballast up`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::machine::own_network;
use crate::support::user::User;
use drydock_conformance::{Case, Runs, play, surprises};
use kube::config::{KubeConfigOptions, Kubeconfig};

/// What the cases run.
const IMAGES: [&str; 1] = ["busybox:1.37"];

/// The cases that need a node.
fn cases() -> Vec<PathBuf> {
    let directory = crate::support::root().join("crates/drydock/conformance/cases/workload");
    let mut cases: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
}

/// A client that passes refusals on: those are answers, too.
async fn client(kubeconfig: &Path) -> kube::Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

/// Plays a case; what is wrong with the answers.
async fn played(client: &kube::Client, path: &Path) -> Option<String> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let case = Case::parse(&fs::read_to_string(path).unwrap()).unwrap();
    let mismatches = play(client, &case, name.trim_end_matches(".txt")).await;
    let mismatches = mismatches.unwrap_or_else(|error| panic!("{name}: {error}"));
    let runs = match User::is_me() {
        User::Root => Runs::Root,
        User::Plain => Runs::Plain,
    };
    surprises(&format!("workload/{name}"), runs, &mismatches)
}

#[test]
fn pods_fare_as_on_a_real_node() {
    own_network(&IMAGES);
    let cluster = User::is_me().up(&["--memory"]);
    // On this thread, which alone is in the network where the cluster is.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let surprises: Vec<String> = runtime.block_on(async {
        let client = client(&cluster.kubeconfig).await;
        // All at once: they wait most of the time.
        let cases = cases();
        assert!(cases.len() > 10, "{cases:?}");
        let playing = cases.iter().map(|path| played(&client, path));
        futures::future::join_all(playing).await.into_iter().flatten().collect()
    });
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}
