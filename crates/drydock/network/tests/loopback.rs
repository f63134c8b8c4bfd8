//! Services and names with real sockets, on loopback addresses that nobody else uses.

#![expect(clippy::unwrap_used, reason = "what helps a test fails like a test")]

mod support;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use drydock_network::{Endpoint, NetworkOptions, Protocol, Service, ServiceName, ServicePort, View, serve};
use support::{A, answer, ask, question, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What an answer can begin with.
const NO_ERROR: u8 = 0;
const FAILED: u8 = 2;
const NO_SUCH_NAME: u8 = 3;

/// The port of every endpoint and Service here.
const PORT: u16 = 11211;

fn address(net: u8, last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 77, net, last)
}

fn endpoint(net: u8, last: u8, ready: bool) -> Endpoint {
    Endpoint {
        address: address(net, last),
        hostname: None,
        ready,
        draining: false,
        ports: vec![("t".into(), Protocol::Tcp, PORT), ("u".into(), Protocol::Udp, PORT)],
    }
}

/// One Service, `a/s`, at `.100` of its net.
fn view(net: u8, endpoints: &[Endpoint], affinity: Option<Duration>) -> Arc<View> {
    let port = |name: &str, protocol| ServicePort { name: name.into(), port: PORT, node_port: 0, protocol };
    let service = Service {
        addresses: vec![address(net, 100)],
        external_name: None,
        affinity,
        ports: vec![port("t", Protocol::Tcp), port("u", Protocol::Udp)],
        endpoints: endpoints.to_vec(),
    };
    Arc::new(View { services: [(ServiceName::new("a", "s"), Arc::new(service))].into() })
}

/// The network of one test.
struct Network {
    net: u8,
    view: watch::Sender<Arc<View>>,
    _serving: Aborted,
}

struct Aborted(JoinHandle<()>);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Network {
    fn start(net: u8, upstream: Vec<SocketAddr>, first: Arc<View>) -> Self {
        let (view, seen) = watch::channel(first);
        let dns = Some(SocketAddr::from((address(net, 53), 5300)));
        let options = NetworkOptions { dns, upstream, ..NetworkOptions::default() };
        let serving = tokio::spawn(async move { serve(seen, options).await.unwrap() });
        Self { net, view, _serving: Aborted(serving) }
    }

    fn service(&self) -> SocketAddr {
        (address(self.net, 100), PORT).into()
    }

    fn dns(&self) -> SocketAddr {
        (address(self.net, 53), 5300).into()
    }
}

/// A server that says its own number and repeats what it is told.
async fn echo(net: u8, last: u8) {
    let listener = TcpListener::bind((address(net, last), PORT)).await.unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                stream.write_all(&[last]).await?;
                let (mut reader, mut writer) = stream.split();
                tokio::io::copy(&mut reader, &mut writer).await?;
                writer.shutdown().await
            });
        }
    });
    let socket = UdpSocket::bind((address(net, last), PORT)).await.unwrap();
    tokio::spawn(async move {
        let mut buffer = vec![0; 9000];
        loop {
            let (length, peer) = socket.recv_from(&mut buffer).await.unwrap();
            buffer[0] = last;
            socket.send_to(&buffer[..length], peer).await.unwrap();
        }
    });
}

/// Which endpoint answered, after it has repeated a lot.
async fn talk(to: SocketAddr) -> io::Result<u8> {
    let mut stream = TcpStream::connect(to).await?;
    let said = vec![7; 300_000];
    let (mut reader, mut writer) = stream.split();
    let write = async {
        writer.write_all(&said).await?;
        writer.shutdown().await
    };
    let mut heard = Vec::new();
    tokio::try_join!(write, reader.read_to_end(&mut heard))?;
    let who = heard.first().copied().ok_or(io::ErrorKind::UnexpectedEof)?;
    assert_eq!(heard[1..], said);
    Ok(who)
}

async fn refused(to: SocketAddr) -> Option<()> {
    (TcpStream::connect(to).await.err()?.kind() == io::ErrorKind::ConnectionRefused).then_some(())
}

#[tokio::test]
async fn connections_are_balanced_over_ready_endpoints() {
    let net = 1;
    for last in 1..=3 {
        echo(net, last).await;
    }
    let all = [endpoint(net, 1, true), endpoint(net, 2, false), endpoint(net, 3, true)];
    let network = Network::start(net, Vec::new(), view(net, &all, None));
    until(async || talk(network.service()).await.ok()).await;
    let mut counts = [0; 4];
    for _ in 0..10 {
        counts[usize::from(talk(network.service()).await.unwrap())] += 1;
    }
    assert_eq!(counts, [0, 5, 0, 5]);
}

#[tokio::test]
async fn a_service_without_endpoints_refuses_and_open_connections_stay() {
    let net = 2;
    echo(net, 1).await;
    let network = Network::start(net, Vec::new(), view(net, &[endpoint(net, 1, true)], None));
    let mut open = until(async || TcpStream::connect(network.service()).await.ok()).await;
    assert_eq!(open.read_u8().await.unwrap(), 1);
    network.view.send_replace(view(net, &[endpoint(net, 1, false)], None));
    until(async || refused(network.service()).await).await;
    open.write_all(b"x").await.unwrap();
    assert_eq!(open.read_u8().await.unwrap(), b'x');
    network.view.send_replace(view(net, &[endpoint(net, 1, true)], None));
    until(async || talk(network.service()).await.ok()).await;
    drop(network);
    assert_eq!(open.read(&mut [0]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn what_an_endpoint_says_before_it_hangs_up_is_heard_by_a_client_that_still_talks() {
    let net = 10;
    let listener = TcpListener::bind((address(net, 1), PORT)).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(b"enough").await.unwrap();
        }
    });
    let network = Network::start(net, Vec::new(), view(net, &[endpoint(net, 1, true)], None));
    until(async || TcpStream::connect(network.service()).await.ok()).await;
    for round in 0..50 {
        let mut stream = TcpStream::connect(network.service()).await.unwrap();
        let written = stream.write_all(&[b'x'; 256 << 10]).await.map_err(|error| error.kind());
        let mut told = String::new();
        let heard = stream.read_to_string(&mut told).await.map_err(|error| error.kind());
        assert_eq!((written, heard, told.as_str()), (Ok(()), Ok(6), "enough"), "round {round}");
    }
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_is_passed_over() {
    let net = 3;
    echo(net, 2).await;
    let both = [endpoint(net, 1, true), endpoint(net, 2, true)];
    let network = Network::start(net, Vec::new(), view(net, &both, None));
    until(async || talk(network.service()).await.ok()).await;
    for _ in 0..4 {
        assert_eq!(talk(network.service()).await.unwrap(), 2);
    }
}

#[tokio::test]
async fn a_client_stays_with_its_endpoint_where_the_service_says_so() {
    let net = 4;
    for last in 1..=3 {
        echo(net, last).await;
    }
    let all = [1, 2, 3].map(|last| endpoint(net, last, true));
    let network = Network::start(net, Vec::new(), view(net, &all, Some(Duration::from_secs(60))));
    let first = until(async || talk(network.service()).await.ok()).await;
    for _ in 0..5 {
        assert_eq!(talk(network.service()).await.unwrap(), first);
    }
    let others: Vec<_> = all.into_iter().filter(|one| one.address != address(net, first)).collect();
    network.view.send_replace(view(net, &others, Some(Duration::from_secs(60))));
    let second = until(async || talk(network.service()).await.ok().filter(|who| *who != first)).await;
    assert_eq!(talk(network.service()).await.unwrap(), second);
}

/// The middle of many times that it takes to connect and be told something.
async fn typical(to: SocketAddr) -> Duration {
    let mut times = Vec::new();
    for _ in 0..200 {
        let begun = Instant::now();
        TcpStream::connect(to).await.unwrap().read_u8().await.unwrap();
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::test]
async fn a_service_adds_little_to_a_connection() {
    let net = 11;
    echo(net, 1).await;
    let network = Network::start(net, Vec::new(), view(net, &[endpoint(net, 1, true)], None));
    until(async || talk(network.service()).await.ok()).await;
    let (direct, through) = (typical((address(net, 1), PORT).into()).await, typical(network.service()).await);
    eprintln!("{direct:?} directly, {through:?} through the service");
    // What it really adds is a matter of a benchmark; here a busy machine must not be taken for a fault.
    assert!(through < direct + Duration::from_millis(5));
}

#[tokio::test]
async fn datagrams_go_to_one_endpoint_and_back() {
    let net = 5;
    for last in 1..=2 {
        echo(net, last).await;
    }
    let both = [1, 2].map(|last| endpoint(net, last, true));
    let network = Network::start(net, Vec::new(), view(net, &both, None));
    let say = async |socket: &UdpSocket, length: usize| {
        let mut heard = vec![0; 9000];
        let asked = async {
            socket.send(&vec![9; length]).await?;
            socket.recv(&mut heard).await
        };
        let got = tokio::time::timeout(Duration::from_millis(500), asked).await.ok()?.ok()?;
        (got == length).then_some(heard[0])
    };
    let mut answered = Vec::new();
    for _ in 0..2 {
        let client = UdpSocket::bind((address(net, 200), 0)).await.unwrap();
        client.connect(network.service()).await.unwrap();
        let who = until(async || say(&client, 100).await).await;
        for length in [1, 4096, 8000] {
            assert_eq!(say(&client, length).await, Some(who));
        }
        answered.push(who);
    }
    answered.sort_unstable();
    assert_eq!(answered, [1, 2]);
}

#[tokio::test]
async fn names_are_answered_over_udp_and_tcp() {
    let net = 6;
    let network = Network::start(net, Vec::new(), view(net, &[endpoint(net, 1, true)], None));
    let own = (NO_ERROR, vec!["127.77.6.100".to_owned()]);
    assert_eq!(ask(network.dns(), "s.a.svc.cluster.local", A).await, own);
    let none = (NO_ERROR, Vec::new());
    assert_eq!(ask(network.dns(), "s.a.svc.cluster.local", 28).await, none);
    let unknown = (NO_SUCH_NAME, Vec::new());
    assert_eq!(ask(network.dns(), "t.a.svc.cluster.local", A).await, unknown);
    assert_eq!(ask(network.dns(), "example.com", A).await, unknown);

    let mut stream = TcpStream::connect(network.dns()).await.unwrap();
    for _ in 0..2 {
        let bytes = question("s.a.svc.cluster.local", A);
        stream.write_u16(u16::try_from(bytes.len()).unwrap()).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let mut heard = vec![0; usize::from(stream.read_u16().await.unwrap())];
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(answer(&heard), own);
    }
}

#[tokio::test]
async fn what_is_no_question_harms_nobody_and_long_answers_are_cut() {
    let net = 7;
    let many: Vec<Endpoint> = (1..=90).map(|last| endpoint(net, last, true)).collect();
    let headless = View::clone(&view(net, &many, None));
    let services = headless.services.into_iter().map(|(name, service)| {
        let service = Service { addresses: Vec::new(), ..Service::clone(&service) };
        (name, Arc::new(service))
    });
    let network = Network::start(net, Vec::new(), Arc::new(View { services: services.collect() }));
    let unknown = (NO_SUCH_NAME, Vec::new());
    assert_eq!(ask(network.dns(), "x.a.svc.cluster.local", A).await, unknown);
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(network.dns()).await.unwrap();
    for garbage in
        [&b""[..], b"x", &[0; 3], &[0xff; 12], &[1; 700], b"\x12\x34\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00"]
    {
        socket.send(garbage).await.unwrap();
    }
    let mut stream = TcpStream::connect(network.dns()).await.unwrap();
    stream.write_all(&[0, 3, 1, 2]).await.unwrap();
    drop(stream);
    let long = ask(network.dns(), "s.a.svc.cluster.local", A).await;
    // As many as go into 512 bytes.
    assert_eq!((long.0, long.1.len()), (NO_ERROR, 29));
}

#[tokio::test]
async fn names_outside_are_asked_of_others_where_there_are_any() {
    let net = 8;
    let outside = Network::start(9, Vec::new(), view(9, &[], None));
    let nobody = SocketAddr::from((address(net, 1), 5300));
    let network = Network::start(net, vec![nobody, outside.dns()], view(net, &[], None));
    // The other one knows a name backwards that this one does not.
    let known = (NO_ERROR, vec!["s.a.svc.cluster.local".to_owned()]);
    assert_eq!(ask(network.dns(), "100.9.77.127.in-addr.arpa", 12).await, known);
    let alone = Network::start(10, vec![nobody], view(10, &[], None));
    let failed = (FAILED, Vec::new());
    assert_eq!(ask(alone.dns(), "example.com", A).await, failed);
}
