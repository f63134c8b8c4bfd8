//! Through the API: what comes of asking a server whose address leads nowhere from here.
//!
//! The API server is the real one, in memory; of the node there is as much as a connection needs, and it behaves as
//! it is told to.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use ballast_engines::{Place, Reach, memcached::Memcached};
use ballast_memcached::Told;
use drydock::{Drydock, Identity, NodeStream, Nodes};
use futures::{SinkExt as _, StreamExt as _, future::BoxFuture};
use http::{Request, Response, StatusCode, header};
use http_body_util::Empty;
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
    upgrade::Upgraded,
};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, handshake::derive_accept_key, protocol::Role},
};

const PORT: u16 = 11211;

/// How the server in the pod is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// As it should be.
    Well,
    /// It takes the connection and says nothing.
    Hangs,
    /// It takes the connection and ends it.
    Goes,
    /// Nobody listens.
    Away,
    /// The node can't say.
    Amiss,
    /// The node dies in the middle of an answer.
    Cut,
}

/// A node that forwards ports to a server that there is not.
#[derive(Clone)]
struct Stand {
    peer: Peer,
    open: Arc<AtomicUsize>,
}

impl Nodes for Stand {
    fn connect<'a>(&'a self, node: &'a str) -> BoxFuture<'a, io::Result<Box<dyn NodeStream>>> {
        assert_eq!(node, "the-node");
        let (ours, theirs) = tokio::io::duplex(4096);
        tokio::spawn(self.clone().serve(theirs));
        Box::pin(async { Ok(Box::new(ours) as Box<dyn NodeStream>) })
    }
}

impl Stand {
    async fn serve(self, stream: tokio::io::DuplexStream) {
        let service = service_fn(move |request| {
            let stand = self.clone();
            async move { Ok::<_, io::Error>(stand.answer(request)) }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        connection.with_upgrades().await.unwrap();
    }

    fn answer(self, mut request: Request<Incoming>) -> Response<Empty<Bytes>> {
        let path = request.uri().path_and_query().unwrap().to_string();
        assert_eq!(path, format!("/portForward/default/cache-0?port={PORT}"));
        let key = derive_accept_key(request.headers()[header::SEC_WEBSOCKET_KEY].as_bytes());
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            self.open.fetch_add(1, Ordering::SeqCst);
            let stream = TokioIo::new(upgraded.await.unwrap());
            self.forward(WebSocketStream::from_raw_socket(stream, Role::Server, None).await).await;
            self.open.fetch_sub(1, Ordering::SeqCst);
        });
        Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_ACCEPT, key)
            .header(header::SEC_WEBSOCKET_PROTOCOL, "v4.channel.k8s.io")
            .body(Empty::new())
            .unwrap()
    }

    /// Channel 0 is for data, channel 1 for what went wrong. Both begin with the port's number.
    async fn forward(&self, mut socket: WebSocketStream<TokioIo<Upgraded>>) {
        let say = |channel: u8, bytes: &[u8]| Message::binary([&[channel], bytes].concat());
        for channel in [0, 1] {
            socket.send(say(channel, &PORT.to_le_bytes())).await.unwrap();
        }
        let connecting = format!("failed to connect to localhost:{PORT} inside namespace");
        match self.peer {
            Peer::Well => {
                assert_eq!(socket.next().await.unwrap().unwrap(), say(0, b"version\r\nstats\r\n"));
                socket.send(say(0, b"VERSION 1.6.38\r\nSTAT get_hits 3\r\nEN")).await.unwrap();
                socket.send(say(0, b"D\r\n")).await.unwrap();
            }
            Peer::Hangs => {}
            Peer::Goes => return socket.close(None).await.unwrap(),
            Peer::Away => {
                let said = format!("{connecting}: dial tcp4 127.0.0.1:{PORT}: connect: connection refused");
                socket.send(say(1, said.as_bytes())).await.unwrap();
                return socket.close(None).await.unwrap();
            }
            Peer::Amiss => {
                socket.send(say(1, format!("{connecting}: no such namespace").as_bytes())).await.unwrap();
                return socket.close(None).await.unwrap();
            }
            Peer::Cut => {
                socket.next().await;
                return socket.send(say(0, b"VERSION 1.6.38\r\nSTAT ")).await.unwrap();
            }
        }
        // Until the other side is gone.
        while let Some(Ok(_)) = socket.next().await {}
    }
}

/// A cluster with one pod on one node.
struct Stage {
    drydock: Drydock,
    open: Arc<AtomicUsize>,
}

impl Stage {
    async fn start(peer: Peer) -> Self {
        let open = Arc::new(AtomicUsize::new(0));
        let stand = Stand { peer, open: Arc::clone(&open) };
        let drydock = Drydock::builder().controllers(false).nodes(stand).start().await.unwrap();
        let client = drydock.client();
        let node: Node = from(json!({"metadata": {"name": "the-node"}}));
        Api::all(client.clone()).create(&PostParams::default(), &node).await.unwrap();
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::namespaced(client.clone(), "default");
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        accounts.patch("default", &PatchParams::apply("test").force(), &Patch::Apply(account)).await.unwrap();
        let pod: Pod = from(json!({
            "metadata": {"name": "cache-0"},
            "spec": {"nodeName": "the-node", "containers": [{"name": "memcached", "image": "memcached"}]},
        }));
        Api::namespaced(client, "default").create(&PostParams::default(), &pod).await.unwrap();
        Stage { drydock, open }
    }

    /// What is told to somebody who goes through the API. Nobody is at the address.
    async fn told(&self, client: kube::Client, pod: &str) -> Told {
        let place =
            Place { namespace: "default".into(), pod: pod.into(), address: "192.0.2.1".into(), port: PORT };
        let began = Instant::now();
        let told = Memcached::new(Reach::outside(client)).ask_server(&place).await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        told
    }
}

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// What is told of such a server, after which no connection is left.
async fn told_of(peer: Peer) -> Told {
    let stage = Stage::start(peer).await;
    let told = stage.told(stage.drydock.client(), "cache-0").await;
    let deadline = Instant::now() + Duration::from_secs(30);
    while stage.open.load(Ordering::SeqCst) > 0 {
        assert!(Instant::now() < deadline, "a connection is left");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    told
}

#[tokio::test]
async fn a_server_that_serves_is_heard_from_afar() {
    let Told::Serves { version, stats } = told_of(Peer::Well).await else { panic!("not heard") };
    assert_eq!((version.as_str(), stats.get_hits), ("1.6.38", 3));
}

#[tokio::test]
async fn what_the_server_does_is_known_from_afar_too() {
    assert_eq!(told_of(Peer::Hangs).await, Told::Silent);
    assert_eq!(told_of(Peer::Goes).await, Told::Refuses);
    assert_eq!(told_of(Peer::Away).await, Told::Refuses);
}

#[tokio::test]
async fn what_the_way_does_is_not_held_against_the_server() {
    let cut = Told::Unreachable { why: "the forwarding was cut off".to_owned() };
    assert_eq!(told_of(Peer::Cut).await, cut, "in the middle of an answer");
    let Told::Unreachable { why } = told_of(Peer::Amiss).await else { panic!("the node failed") };
    assert!(why.ends_with("no such namespace"), "{why}");
}

#[tokio::test]
async fn who_may_not_go_this_way_and_where_nothing_is_are_said() {
    let stage = Stage::start(Peer::Well).await;
    let Told::Unreachable { why } = stage.told(stage.drydock.client(), "cache-1").await else { panic!() };
    assert!(why.ends_with("pods \"cache-1\" not found"), "{why}");
    let nobody = stage.drydock.client_as(Identity::user("nobody", ["system:authenticated"]));
    let Told::Unreachable { why } = stage.told(nobody, "cache-0").await else { panic!() };
    assert!(why.contains("User \"nobody\" cannot get resource \"pods/portforward\""), "{why}");
}
