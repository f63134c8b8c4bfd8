//! Every recorded dialogue, played to an in-memory drydock.

#![expect(clippy::unwrap_used, clippy::panic, reason = "what helps a test fails like a test")]

use std::{collections::BTreeSet, path::Path};

use drydock_conformance::{Case, Runs, play, surprises};

async fn check(file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases").join(file);
    let case = Case::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
    // The dialogues were recorded on a cluster without a scheduler: with one, pods that wait would say why.
    let drydock = drydock::Drydock::builder().scheduler(false).start().await.unwrap();
    let mismatches = play(&drydock.client(), &case, "test").await.unwrap();
    if let Some(surprises) = surprises(file, Runs::Root, &mismatches) {
        panic!("{surprises}");
    }
}

macro_rules! cases {
    ($($name:ident => $file:literal,)*) => {
        $(#[tokio::test]
        async fn $name() {
            check($file).await;
        })*

        #[test]
        fn every_case_is_played() {
            let played = BTreeSet::from([$($file.to_owned()),*]);
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
            let there: BTreeSet<String> = std::fs::read_dir(directory)
                .unwrap()
                .map(Result::unwrap)
                .filter(|entry| entry.file_type().unwrap().is_file())
                .map(|entry| entry.file_name().into_string().unwrap())
                .collect();
            assert_eq!(played, there);
        }
    };
}

cases! {
    access => "access.txt",
    apply => "apply.txt",
    batch => "batch.txt",
    create_and_read => "create-read.txt",
    custom_resources => "custom-resources.txt",
    daemons => "daemons.txt",
    defaults => "defaults.txt",
    delete => "delete.txt",
    discovery => "discovery.txt",
    disruption => "disruption.txt",
    list_and_watch => "list-watch.txt",
    endpoints => "endpoints.txt",
    definitions_that_change => "evolution.txt",
    ephemeral_containers => "ephemeral.txt",
    mirrored_endpoints => "mirrored.txt",
    nodes => "nodes.txt",
    nulls => "nulls.txt",
    patch => "patch.txt",
    bounds_of_patches => "patch-bounds.txt",
    proxy => "proxy.txt",
    refusals => "refusals.txt",
    services => "services.txt",
    services_of_another_type => "service-types.txt",
    gates => "gates.txt",
    claims_of_pods => "pod-claims.txt",
    pod_rules => "pod-rules.txt",
    rules => "rules.txt",
    volume_rules => "volume-rules.txt",
    scale_and_status => "scale-status.txt",
    stateful_sets => "stateful.txt",
    storage => "storage.txt",
    taints => "taints.txt",
    volumes => "volumes.txt",
    warnings => "warnings.txt",
    update => "update.txt",
}

#[tokio::test]
async fn a_run_that_fails_half_way_leaves_nothing_behind() {
    let steps = format!(
        "# Leaves much behind.\n\n{}{}{}{}",
        step("/api/v1/namespaces", "{apiVersion: v1, kind: Namespace, metadata: {name: '{id}-more'}}"),
        step("/api/v1/namespaces/{id}-more/configmaps", &held("ConfigMap")),
        step("/api/v1/namespaces/{ns}/secrets", &held("Secret")),
        "### no request at all\nGET /version\nX-Bad: \u{1}\n",
    );
    let drydock = drydock::Drydock::builder().scheduler(false).start().await.unwrap();
    let client = drydock.client();
    play(&client, &Case::parse(&steps).unwrap(), "half").await.unwrap_err();
    let namespaces = || async {
        let request = http::Request::get("/api/v1/namespaces").body(Vec::new()).unwrap();
        client.request_text(request).await.unwrap()
    };
    let gone = async {
        while namespaces().await.contains("half") {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), gone).await.expect("both namespaces go");
}

fn step(path: &str, body: &str) -> String {
    format!("### POST {path}\nPOST {path}\n\n{body}\n\n")
}

fn held(kind: &str) -> String {
    format!("{{apiVersion: v1, kind: {kind}, metadata: {{name: held, finalizers: [example.com/hold]}}}}")
}
