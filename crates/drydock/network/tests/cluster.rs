//! A cluster in memory and the network of its node, in a network namespace that is made for the test: traffic to
//! Services of a real API goes to where EndpointSlices say.

#![expect(clippy::unwrap_used, reason = "what helps a test fails like a test")]

mod support;

use std::net::Ipv4Addr;
use std::process::Command;

use drydock::Drydock;
use drydock_network::{NetworkError, NetworkOptions, run};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use nix::sched::{CloneFlags, unshare};
use serde_json::json;
use support::{A, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Everywhere, for ports of the node; as good as any for who connections that the kernel leads seem to come from: in
/// this namespace none leaves.
const ANYWHERE: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

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

/// Says its number to whoever connects to it, and keeps the connection until the other end is closed.
async fn endpoint(last: u8) {
    let listener = TcpListener::bind((format!("10.111.0.{last}"), 11211)).await.unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                stream.write_u8(last).await.unwrap();
                let (mut reader, mut writer) = stream.split();
                tokio::io::copy(&mut reader, &mut writer).await
            });
        }
    });
}

fn service() -> Service {
    let service = json!({ "metadata": { "name": "m" }, "spec": {
        "type": "NodePort", "clusterIP": "10.96.7.7",
        "ports": [{ "port": 11211, "targetPort": 11211, "nodePort": 30111 }] } });
    serde_json::from_value(service).unwrap()
}

fn slice(ready: &[bool]) -> EndpointSlice {
    let endpoint = |(at, ready): (usize, &bool)| json!({ "addresses": [format!("10.111.0.{}", at + 1)], "conditions": { "ready": ready } });
    let endpoints: Vec<_> = ready.iter().enumerate().map(endpoint).collect();
    let slice = json!({
        "metadata": { "name": "m-x", "labels": { "kubernetes.io/service-name": "m" } },
        "addressType": "IPv4", "endpoints": endpoints, "ports": [{ "port": 11211, "protocol": "TCP" }],
    });
    serde_json::from_value(slice).unwrap()
}

async fn ask(name: &str) -> String {
    let (code, answers) = support::ask(([10, 96, 0, 10], 53).into(), name, A).await;
    answers.into_iter().next().unwrap_or_else(|| format!("code {code}"))
}

/// A cluster and its network.
struct Network {
    drydock: Drydock,
    stop: CancellationToken,
    running: JoinHandle<Result<(), NetworkError>>,
}

impl Network {
    async fn start(direct: Option<Ipv4Addr>) -> Self {
        let drydock = Drydock::builder().controllers(false).start().await.unwrap();
        let stop = CancellationToken::new();
        let options = NetworkOptions { node_ports: Some(ANYWHERE), direct, ..NetworkOptions::default() };
        let identity = drydock::Identity::user("system:kube-proxy", [""; 0]);
        let running = tokio::spawn(run(drydock.client_as(identity), options, stop.clone()));
        Self { drydock, stop, running }
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.drydock.client(), "default")
    }

    async fn lead(&self, ready: &[bool]) {
        let slices: Api<EndpointSlice> = Api::namespaced(self.drydock.client(), "default");
        let wanted = slice(ready);
        if slices.get_opt("m-x").await.unwrap().is_none() {
            slices.create(&PostParams::default(), &wanted).await.unwrap();
        } else {
            slices.patch("m-x", &PatchParams::default(), &Patch::Merge(wanted)).await.unwrap();
        }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.running.await.unwrap().unwrap();
    }
}

async fn lead_and_name(direct: Option<Ipv4Addr>) {
    let network = Network::start(direct).await;
    network.services().create(&PostParams::default(), &service()).await.unwrap();
    for last in 1..=2u8 {
        endpoint(last).await;
    }
    network.lead(&[true, false]).await;
    assert_eq!(until(async || answer(("10.96.7.7", 11211)).await).await, 1);
    assert_eq!(answer(("127.0.0.1", 30111)).await, Some(1));
    assert_eq!(ask("m.default.svc.cluster.local").await, "10.96.7.7");
    assert_eq!(ask("kubernetes.default.svc.cluster.local").await, "10.96.0.1");

    network.lead(&[false, true]).await;
    until(async || answer(("10.96.7.7", 11211)).await.filter(|who| *who == 2)).await;

    network.services().delete("m", &DeleteParams::default()).await.unwrap();
    until(async || TcpStream::connect("10.96.7.7:11211").await.is_err().then_some(())).await;
    until(async || (ask("m.default.svc.cluster.local").await == "code 3").then_some(())).await;
    network.stop().await;
}

#[test]
fn services_of_the_api_lead_to_their_endpoints_and_have_names() {
    in_namespace(async || lead_and_name(None).await);
}

#[test]
fn they_do_so_too_where_the_kernel_leads() {
    in_namespace(async || lead_and_name(Some(ANYWHERE)).await);
}

#[test]
fn the_kernel_leads_to_endpoints_in_turn_and_what_is_open_outlives_the_network() {
    in_namespace(async || {
        if !std::path::Path::new("/proc/sys/net/netfilter/nf_conntrack_max").exists() {
            return eprintln!("this kernel leads nobody");
        }
        let network = Network::start(Some(ANYWHERE)).await;
        network.services().create(&PostParams::default(), &service()).await.unwrap();
        for last in 1..=3u8 {
            endpoint(last).await;
        }
        network.lead(&[true, true, true]).await;
        until(async || answer(("10.96.7.7", 11211)).await).await;
        let mut counts = [0; 4];
        for _ in 0..12 {
            counts[usize::from(answer(("10.96.7.7", 11211)).await.unwrap())] += 1;
        }
        assert_eq!(counts, [0, 4, 4, 4]);

        let mut open = TcpStream::connect("10.96.7.7:11211").await.unwrap();
        open.read_u8().await.unwrap();
        // Nobody is ready any more: new ones are refused, what is open stays.
        network.lead(&[false, false, false]).await;
        let refused = |error: std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
        until(async || TcpStream::connect("10.96.7.7:11211").await.is_err_and(refused).then_some(())).await;
        network.stop().await;
        open.write_u8(7).await.unwrap();
        assert_eq!(open.read_u8().await.unwrap(), 7);
    });
}
