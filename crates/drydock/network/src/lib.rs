//! Services and their names on a node.
//!
//! A client like any other: it follows Services and EndpointSlices, listens on every cluster address that leads
//! somewhere, and answers for the names of the cluster.
//!
//! ```text
//! API ── follow ─▶ view ─┬─▶ routes ─▶ proxy ─▶ tcp, udp     10.96.12.7:11211 ─▶ a pod's address
//!                        │            └───▶ direct        the same, by the kernel
//!                        └─▶ names  ─▶ dns                   memcached.default.svc.cluster.local
//! ```
//!
//! [`run`] works in whatever network namespace its thread is in, which is the node's: there the addresses of
//! Services are local, and the pods are neighbours. Where it is told that the namespace is the node's own, it has the
//! kernel lead connections by rules that go with the namespace; otherwise nothing is written to the system. Nothing is
//! left behind.
//!
//! # Guarantees
//! - A Service without a ready endpoint refuses connections, as Kubernetes does, instead of accepting them for
//!   nobody.
//! - A connection that is open stays, whatever becomes of its Service.
//! - Everything works where the kernel refuses its part, only slower.
//! - A name that is none is answered at once.
//!
//! # What differs from Kubernetes
//! Pods see the node as the peer of a connection that came through a Service. IPv4 only. External addresses and
//! traffic policies are not looked at: there is one node.

mod balance;
mod direct;
mod dns;
mod follow;
mod names;
mod netfilter;
mod proxy;
mod tcp;
mod udp;
mod view;
mod wire;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use proxy::{Backend, Front, Route, routes};
pub use view::{Endpoint, Protocol, Service, ServiceName, ServicePort, View};

/// The domain of the cluster when nothing else is said.
pub const DOMAIN: &str = "cluster.local";

/// Where names are asked for when nothing else is said: kubeadm's choice.
pub const DNS_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);

/// How the network of a node is to be.
#[derive(Clone, Debug)]
pub struct NetworkOptions {
    /// Where DNS is served; `None` for no DNS.
    pub dns: Option<SocketAddr>,
    /// The domain of the cluster.
    pub domain: String,
    /// Who is asked for names outside the cluster; without any, there are none.
    pub upstream: Vec<SocketAddr>,
    /// The address on which node ports are served; `None` for no node ports.
    pub node_ports: Option<Ipv4Addr>,
    /// Ports of the node that lead to one place each, whatever Services there are; `None` for none.
    pub host_ports: Option<watch::Receiver<Vec<(Front, SocketAddr)>>>,
    /// The node's own address among the pods, for the kernel to lead connections by itself where it can: then rules
    /// are written in the network namespace, which must be the node's own. `None` for none.
    pub direct: Option<Ipv4Addr>,
    /// Where the Service `default/kubernetes` leads, instead of its endpoints. Those of them that are at the address of
    /// `node_ports` are listened on, and lead there too.
    pub api_server: Option<ApiServer>,
}

/// Where an API server is to be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiServer {
    /// At an address.
    Address(SocketAddr),
    /// At a socket among the files, which is reached from any network namespace.
    Socket(PathBuf),
}

impl Default for NetworkOptions {
    fn default() -> Self {
        Self {
            dns: Some(SocketAddr::from((DNS_ADDRESS, 53))),
            domain: DOMAIN.into(),
            upstream: Vec::new(),
            node_ports: None,
            host_ports: None,
            direct: None,
            api_server: None,
        }
    }
}

/// Why there is no network.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// DNS can't be served.
    #[error("can't serve DNS on {address}")]
    Dns {
        /// Where it was to be.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The domain is none.
    #[error("{0:?} is no domain")]
    Domain(String),
}

/// Serves Services and DNS until told to stop.
///
/// The client needs to list and watch Services and EndpointSlices: the role `system:node-proxier`.
///
/// # Errors
/// DNS can't be served at its address, or the domain is none. Whatever happens later is tried again.
pub async fn run(
    client: Client,
    options: NetworkOptions,
    shutdown: CancellationToken,
) -> Result<(), NetworkError> {
    let (publish, view) = watch::channel(Arc::new(View::default()));
    let following = async {
        follow::follow(client, publish).await;
        Ok(())
    };
    let work = async { tokio::try_join!(following, serve(view, options)).map(drop) };
    shutdown.run_until_cancelled(work).await.unwrap_or(Ok(()))
}

/// Serves what a view shows, as it changes, until it is dropped.
///
/// # Errors
/// Those of [`run`].
pub async fn serve(view: watch::Receiver<Arc<View>>, options: NetworkOptions) -> Result<(), NetworkError> {
    let zone =
        names::Zone::new(&options.domain).ok_or_else(|| NetworkError::Domain(options.domain.clone()))?;
    let dns = async {
        match options.dns {
            None => std::future::pending().await,
            Some(address) => {
                let served = dns::serve(address, zone, options.upstream.clone(), view.clone()).await;
                served.map_err(|source| NetworkError::Dns { address, source })
            }
        }
    };
    let proxied = async {
        proxy::serve(view.clone(), &options).await;
        Ok(())
    };
    tokio::try_join!(dns, proxied).map(drop)
}
