//! A cluster in memory and the network of its node, in a network namespace that is made for the test: traffic to
//! Services of a real API goes to where EndpointSlices say.

#![expect(clippy::unwrap_used, reason = "what helps a test fails like a test")]

mod support;

use std::process::Command;

use drydock::Drydock;
use drydock_network::{NetworkOptions, run};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use nix::sched::{CloneFlags, unshare};
use serde_json::json;
use support::{A, until};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Runs a test on a thread in a network namespace of its own, where all addresses of Services are local.
fn in_namespace(test: impl AsyncFnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            // A process with threads can't make a user namespace that would allow it; the node's own tests do.
            return eprintln!("not root, so there is no network namespace: {error}");
        }
        for arguments in ["link set lo up", "route add local 10.96.0.0/12 dev lo"] {
            assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success());
        }
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test());
    });
    thread.join().unwrap();
}

async fn answer(to: (&str, u16)) -> Option<u8> {
    TcpStream::connect(to).await.ok()?.read_u8().await.ok()
}

async fn ask(name: &str) -> String {
    let (code, answers) = support::ask(([10, 96, 0, 10], 53).into(), name, A).await;
    answers.into_iter().next().unwrap_or_else(|| format!("code {code}"))
}

#[test]
fn services_of_the_api_lead_to_their_endpoints_and_have_names() {
    in_namespace(async || {
        let drydock = Drydock::builder().controllers(false).start().await.unwrap();
        let client = drydock.client();
        let stop = CancellationToken::new();
        let options = NetworkOptions { node_ports: Some([0, 0, 0, 0].into()), ..NetworkOptions::default() };
        let identity = drydock::Identity::user("system:kube-proxy", [""; 0]);
        let network = tokio::spawn(run(drydock.client_as(identity), options, stop.clone()));

        let services: Api<Service> = Api::namespaced(client.clone(), "default");
        let service = json!({ "metadata": { "name": "m" }, "spec": {
            "type": "NodePort", "clusterIP": "10.96.7.7",
            "ports": [{ "port": 11211, "targetPort": 11211, "nodePort": 30111 }] } });
        services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
        let slices: Api<EndpointSlice> = Api::namespaced(client, "default");
        let slice = |ready: &[bool]| {
            let endpoint = |(at, ready): (usize, &bool)| json!({ "addresses": [format!("10.111.0.{}", at + 1)], "conditions": { "ready": ready } });
            let endpoints: Vec<_> = ready.iter().enumerate().map(endpoint).collect();
            json!({
                "metadata": { "name": "m-x", "labels": { "kubernetes.io/service-name": "m" } },
                "addressType": "IPv4", "endpoints": endpoints, "ports": [{ "port": 11211, "protocol": "TCP" }],
            })
        };
        for last in 1..=2u8 {
            let listener =
                TcpListener::bind(("10.111.0.".to_owned() + &last.to_string(), 11211)).await.unwrap();
            tokio::spawn(async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    stream.writable().await.unwrap();
                    stream.try_write(&[last]).unwrap();
                }
            });
        }
        let first: EndpointSlice = serde_json::from_value(slice(&[true, false])).unwrap();
        slices.create(&PostParams::default(), &first).await.unwrap();
        assert_eq!(until(async || answer(("10.96.7.7", 11211)).await).await, 1);
        assert_eq!(answer(("127.0.0.1", 30111)).await, Some(1));
        assert_eq!(ask("m.default.svc.cluster.local").await, "10.96.7.7");
        assert_eq!(ask("kubernetes.default.svc.cluster.local").await, "10.96.0.1");

        let patch = Patch::Merge(slice(&[false, true]));
        slices.patch("m-x", &PatchParams::default(), &patch).await.unwrap();
        until(async || answer(("10.96.7.7", 11211)).await.filter(|who| *who == 2)).await;

        services.delete("m", &DeleteParams::default()).await.unwrap();
        until(async || TcpStream::connect("10.96.7.7:11211").await.is_err().then_some(())).await;
        until(async || (ask("m.default.svc.cluster.local").await == "code 3").then_some(())).await;
        stop.cancel();
        network.await.unwrap().unwrap();
    });
}
