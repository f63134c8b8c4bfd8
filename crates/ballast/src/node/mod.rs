//! `ballast node`: the process that runs pods. `ballast up` starts it, and nobody else does.
//!
//! ```text
//! up ── handover (standard input) ─▶ node ── enters namespaces ─▶ runs pods, Services, DNS
//!  ▲                                  │
//!  └── reports (standard output) ─────┘
//! ```
//!
//! **What always holds.** The node has a network of its own. It is as alive as the one who started it: when its
//! standard input ends, it does. Told to stop it has its pods end and leaves nothing; left alone, it leaves the pods
//! of a cluster that is kept to the next node, and nothing of one that is not.
//!
//! **Not here.** Everything that a node does: that is in the node's own rooms.

pub mod handover;
pub mod images;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drydock_network::{ApiServer, DNS_ADDRESS, Front, NetworkOptions, Protocol};
use drydock_node::{HostPort, Node, Options, SaveError, Server};
use drydock_sandbox::{Cidr, EnterError, Entered, Entry, Host, Network};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::configuration::Environment;
use crate::failure::{Explain as _, Failure};
use crate::image;

use handover::{Handover, Report, Sockets};
use images::Made;

/// An earlier node of the same cluster may still be ending: it ends within this.
const PATIENCE: Duration = Duration::from_secs(15);
/// What containers get at most to end by themselves when the cluster stops, all at once.
const GRACE: Duration = Duration::from_secs(5);
/// How often to look whether it has.
const LOOK: Duration = Duration::from_millis(20);
/// How often a node that stops says so. Much to save takes its time; only one that hangs is silent.
const WORD: Duration = Duration::from_secs(5);
/// Clusters of root's that run on one machine at a time; each has a link and a range of its own.
const NETWORKS: u8 = 12;

/// Runs pods until told to stop.
///
/// # Errors
/// The machine does not let it. What it is was reported already.
pub fn run(environment: &Environment) -> Result<ExitCode, Failure> {
    match run_reporting(environment) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(failure) => {
            report(&Report::Failed { message: failure.to_string() });
            Ok(ExitCode::FAILURE)
        }
    }
}

fn run_reporting(environment: &Environment) -> Result<(), Failure> {
    let handover = Handover::receive(&mut input()?).what("only `ballast up` starts a node")?;
    let store = image::store(environment, handover.strict_images)?;
    // Namespaces are entered by a process that has one thread. All others begin here.
    let entered = enter(&handover)?;
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .what("can't start threads")?;
    let worked = executor.block_on(work(handover, entered, store));
    executor.shutdown_background();
    worked
}

async fn work(handover: Handover, entered: Entered, store: drydock_images::Store) -> Result<(), Failure> {
    let sockets = Sockets::open(&handover.sockets).what("can't open the sockets' directory")?;
    let options = drydock_sandbox::Options {
        networks: (0..NETWORKS).map(network).collect(),
        service_cidr: Some(handover.services),
        outlive: handover.kept,
        copy_trees: false,
        program: None,
    };
    let host = Host::open(entered, options).what("the machine can't run pods")?;
    let clear = || match handover.kept {
        true => Ok(()),
        false => drydock_node::clear(&handover.files).what("not all files of pods are gone"),
    };
    clear()?;
    let ended = attend(&handover, &sockets, &host, store).await;
    let stay = match &ended {
        Ok(End::Told) => false,
        Ok(End::Abandoned | End::Unsaved(_)) => true,
        // What an earlier node left is not this one's to end because it fails: the next one has it.
        Err(_) => {
            drydock_node::holds_memory(&handover.files) || !host.adopt().is_ok_and(|pods| pods.is_empty())
        }
    };
    if !(stay && handover.kept) {
        host.close().await.what("not everything of the pods is gone")?;
        clear()?;
    }
    match ended? {
        End::Unsaved(error) => Err(error).what("the pods have ended"),
        End::Told | End::Abandoned => Ok(()),
    }
}

/// Why a node ends.
enum End {
    /// It was told to.
    Told,
    /// It was told to, and what volumes hold in memory could not be saved: that stays for the next node.
    Unsaved(SaveError),
    /// Whoever started it is gone.
    Abandoned,
}

async fn attend(
    handover: &Handover,
    sockets: &Sockets,
    host: &Host,
    store: drydock_images::Store,
) -> Result<End, Failure> {
    let client = drydock::client_at(sockets.api_as_node(), "ballast-node");
    let images = Made { store, maker: sockets.images() };
    let options = Options {
        cluster_dns: Some(DNS_ADDRESS),
        server: Some(Server { socket: sockets.node(), token: None }),
        ..Options::new(&handover.name, client.clone(), host.clone(), Arc::new(images), &handover.files)
    };
    let node = Node::start(options).what("the node can't start")?;
    let (registered, ender) = (node.registered(), node.ender());
    let stop = CancellationToken::new();
    let _ends = stop.clone().drop_guard();
    let network = NetworkOptions {
        api_server: Some(ApiServer::Socket(sockets.api())),
        node_ports: Some(host.address()),
        host_ports: Some(fronts(node.host_ports())),
        direct: Some(host.address()),
        ..NetworkOptions::default()
    };
    let mut network = tokio::spawn(drydock_network::run(client, network, stop.clone()));
    let mut pods = tokio::spawn(node.run(stop.clone()));
    let abilities = host.abilities();
    let ready = Report::Ready {
        pods: host.range().to_string(),
        address: host.address(),
        reachable: host.machine_address().is_some(),
        services: host.has_services_route(),
        root: abilities.root,
    };
    tokio::spawn(async move {
        registered.await;
        report(&ready);
    });
    let end = tokio::select! {
        end = lifeline() => end,
        ended = &mut network => {
            ended.what("the network's task")?.what("no network for pods")?;
            Err(Failure::new("the network ended by itself"))
        }
        ended = &mut pods => {
            ended.what("the pods' task")?;
            Err(Failure::new("the node ended by itself"))
        }
    };
    let end = match end {
        Ok(End::Told) => {
            tokio::spawn(stopping());
            Ok(ender.end(GRACE, handover.kept).await.err().map_or(End::Told, End::Unsaved))
        }
        other => other,
    };
    stop.cancel();
    if end.is_ok() {
        let _ = tokio::join!(network, pods);
    }
    end
}

/// The ports of the node that lead to pods, as the network takes them.
fn fronts(
    mut ports: watch::Receiver<BTreeMap<String, Vec<HostPort>>>,
) -> watch::Receiver<Vec<(Front, SocketAddr)>> {
    let (tell, told) = watch::channel(Vec::new());
    let front = |port: &HostPort| {
        let protocol = if port.datagrams { Protocol::Udp } else { Protocol::Tcp };
        (Front { protocol, address: port.at }, SocketAddr::V4(port.to))
    };
    tokio::spawn(async move {
        while ports.changed().await.is_ok() {
            let all = ports.borrow_and_update().values().flatten().map(front).collect();
            if tell.send(all).is_err() {
                return;
            }
        }
    });
    told
}

/// Standard input without anything that reads ahead.
fn input() -> Result<File, Failure> {
    Ok(io::stdin().as_fd().try_clone_to_owned().what("no standard input")?.into())
}

/// Waits for a word, or for the end of whoever started this process.
async fn lifeline() -> Result<End, Failure> {
    let input = pipe::Receiver::from_file(input()?).what("standard input is no pipe")?;
    let mut lines = BufReader::new(input).lines();
    match lines.next_line().await {
        Ok(Some(_)) => Ok(End::Told),
        Ok(None) | Err(_) => Ok(End::Abandoned),
    }
}

/// Says until the end of this process that it comes.
async fn stopping() {
    loop {
        report(&Report::Stopping);
        tokio::time::sleep(WORD).await;
    }
}

/// Enters, also where an earlier node has not quite ended.
fn enter(handover: &Handover) -> Result<Entered, Failure> {
    let entry = Entry { state_dir: handover.state.clone(), resume: handover.kept };
    let deadline = Instant::now() + PATIENCE;
    loop {
        match drydock_sandbox::enter(&entry) {
            Err(EnterError::InUse(_)) if Instant::now() < deadline => std::thread::sleep(LOOK),
            Err(error @ EnterError::NoUserNamespace(_)) => {
                return Err(Failure::new(error).advise("run no pods with --no-node"));
            }
            other => return other.what("pods can't have a network of their own"),
        }
    }
}

/// The network of one of several nodes of a machine.
fn network(number: u8) -> Network {
    let base = std::net::Ipv4Addr::new(10, 244 + number, 0, 0);
    Network { pod_cidr: Cidr { base, prefix: 16 }, uplink: Some(format!("ballast{number}")) }
}

/// The addresses of which a node has one, by which pods may call the API.
pub fn addresses() -> Vec<IpAddr> {
    (0..NETWORKS).map(|number| network(number).node_address().into()).collect()
}

fn report(report: &Report) {
    let mut output = io::stdout().lock();
    // Where nobody reads any more, standard input has ended too.
    let _ = writeln!(output, "{}", report.to_line()).and_then(|()| output.flush());
}
