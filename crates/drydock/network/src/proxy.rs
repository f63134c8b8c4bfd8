//! The addresses and ports of Services, and where each leads.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::balance::Balancer;
use crate::direct::Direct;
use crate::view::{Protocol, Service, ServiceName, View};
use crate::{ApiServer, NetworkOptions, tcp, udp};

/// How soon a port that could not be had is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Where clients come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Front {
    /// What is spoken.
    pub protocol: Protocol,
    /// The address and port.
    pub address: SocketAddrV4,
}

/// Where a client is led.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// To an address.
    Address(SocketAddr),
    /// To a socket among the files.
    Socket(Arc<Path>),
}

/// Where a front leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// The places, each as good as the others.
    pub backends: Vec<Backend>,
    /// For how long a client stays with its place.
    pub affinity: Option<Duration>,
}

/// Everything that is to be listened on, and where it leads. Ports that lead nowhere are not listened on: the
/// system refuses connections to them by itself.
pub fn routes(view: &View, options: &NetworkOptions) -> BTreeMap<Front, Route> {
    let mut all = BTreeMap::new();
    for (name, service) in &view.services {
        for front in advertised(name, service, options) {
            let route = Route { backends: backends(name, service, 0, options), affinity: None };
            all.insert(front, route);
        }
        for (at, port) in service.ports.iter().enumerate() {
            let backends = backends(name, service, at, options);
            if backends.is_empty() {
                continue;
            }
            let route = Route { backends, affinity: service.affinity };
            let own = service.addresses.iter().map(|address| SocketAddrV4::new(*address, port.port));
            let node = options.node_ports.filter(|_| port.node_port > 0);
            let node = node.map(|address| SocketAddrV4::new(address, port.node_port));
            for address in own.chain(node) {
                all.insert(Front { protocol: port.protocol, address }, route.clone());
            }
        }
    }
    all
}

/// Where this node is said to have the API.
fn advertised<'a>(
    name: &ServiceName,
    service: &'a Service,
    options: &'a NetworkOptions,
) -> impl Iterator<Item = Front> + 'a {
    let api = is_api(name) && options.api_server.is_some();
    let here = move |endpoint: &&crate::Endpoint| api && options.node_ports == Some(endpoint.address);
    service.endpoints.iter().filter(here).flat_map(|endpoint| {
        endpoint.ports.iter().map(|(_, protocol, port)| Front {
            protocol: *protocol,
            address: SocketAddrV4::new(endpoint.address, *port),
        })
    })
}

fn is_api(name: &ServiceName) -> bool {
    (&*name.namespace, &*name.name) == ("default", "kubernetes")
}

fn backends(name: &ServiceName, service: &Service, at: usize, options: &NetworkOptions) -> Vec<Backend> {
    if is_api(name)
        && let Some(api_server) = &options.api_server
    {
        return vec![match api_server {
            ApiServer::Address(address) => Backend::Address(*address),
            ApiServer::Socket(path) => Backend::Socket(path.as_path().into()),
        }];
    }
    let port = &service.ports[at];
    let backend = |endpoint: &crate::Endpoint| {
        let own = endpoint
            .ports
            .iter()
            .find(|(name, protocol, _)| *name == port.name && *protocol == port.protocol);
        Some(Backend::Address(SocketAddr::from((endpoint.address, own?.2))))
    };
    service.usable().filter_map(backend).collect()
}

/// A front that is listened on.
struct Open {
    balancer: Arc<Balancer>,
    task: AbortHandle,
}

/// Listens on what a view says is to be listened on, as it changes.
pub(crate) async fn serve(mut view: watch::Receiver<Arc<View>>, options: &NetworkOptions) {
    let mut open: HashMap<Front, Open> = HashMap::new();
    // Both end when this future is dropped: what listens, and what was accepted.
    let mut tasks = JoinSet::new();
    let stop = CancellationToken::new();
    let _ends = stop.clone().drop_guard();
    let mut direct = Direct::open(options.direct);
    let mut ports = options.host_ports.clone();
    loop {
        let mut wanted = routes(&view.borrow_and_update().clone(), options);
        for (front, to) in ports.iter_mut().flat_map(|ports| ports.borrow_and_update().clone()) {
            wanted.insert(front, Route { backends: vec![Backend::Address(to)], affinity: None });
        }
        open.retain(|front, one| {
            let keep = wanted.contains_key(front) && !one.task.is_finished();
            if !keep {
                one.task.abort();
            }
            keep
        });
        while tasks.try_join_next().is_some() {}
        direct.set(&wanted);
        let mut missing = false;
        for (front, route) in wanted {
            if let Some(one) = open.get(&front) {
                one.balancer.set(&route);
                continue;
            }
            let balancer = Arc::new(Balancer::new(route));
            match listen(front, &balancer, &mut tasks, &stop).await {
                Ok(task) => {
                    open.insert(front, Open { balancer, task });
                }
                Err(error) => {
                    missing = true;
                    tracing::warn!(address = %front.address, %error, "a service can't be served");
                }
            }
        }
        tokio::select! {
            changed = view.changed() => if changed.is_err() {
                // Nothing changes any more; what is there is served on.
                std::future::pending::<()>().await;
            },
            () = change(&mut ports) => {}
            () = tokio::time::sleep(AGAIN), if missing => {}
        }
    }
}

/// Waits for the next change, where there will be one.
async fn change<T>(of: &mut Option<watch::Receiver<T>>) {
    if let Some(receiver) = of
        && receiver.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

async fn listen(
    front: Front,
    balancer: &Arc<Balancer>,
    tasks: &mut JoinSet<()>,
    stop: &CancellationToken,
) -> io::Result<AbortHandle> {
    let balancer = balancer.clone();
    Ok(match front.protocol {
        Protocol::Tcp => {
            tasks.spawn(tcp::serve(TcpListener::bind(front.address).await?, balancer, stop.clone()))
        }
        Protocol::Udp => tasks.spawn(udp::serve(UdpSocket::bind(front.address).await?, balancer)),
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::view::{Endpoint, ServicePort};

    fn endpoint(last: u8, ready: bool, draining: bool) -> Endpoint {
        Endpoint {
            address: Ipv4Addr::new(10, 0, 0, last),
            hostname: None,
            ready,
            draining,
            ports: vec![("http".into(), Protocol::Tcp, 8080), ("dns".into(), Protocol::Udp, 53)],
        }
    }

    #[track_caller]
    fn check(endpoints: &[Endpoint], options: &NetworkOptions, expected: &[&str]) {
        let service = Service {
            addresses: vec![Ipv4Addr::new(10, 96, 0, 7)],
            ports: vec![
                ServicePort { name: "http".into(), port: 80, node_port: 30080, protocol: Protocol::Tcp },
                ServicePort { name: "dns".into(), port: 53, node_port: 0, protocol: Protocol::Udp },
                ServicePort { name: "other".into(), port: 81, node_port: 0, protocol: Protocol::Tcp },
            ],
            endpoints: endpoints.to_vec(),
            ..Service::default()
        };
        let view = View { services: [(ServiceName::new("default", "kubernetes"), Arc::new(service))].into() };
        let shown: Vec<String> = routes(&view, options)
            .iter()
            .map(|(front, route)| {
                let to: Vec<String> = route
                    .backends
                    .iter()
                    .map(|backend| match backend {
                        Backend::Address(address) => address.to_string(),
                        Backend::Socket(path) => path.display().to_string(),
                    })
                    .collect();
                format!("{} {} -> {}", front.protocol.word(), front.address, to.join(" "))
            })
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_port_leads_to_the_ready_endpoints_that_have_it() {
        let plain = NetworkOptions::default();
        check(
            &[endpoint(1, true, false), endpoint(2, false, true), endpoint(3, true, false)],
            &plain,
            &[
                "tcp 10.96.0.7:80 -> 10.0.0.1:8080 10.0.0.3:8080",
                "udp 10.96.0.7:53 -> 10.0.0.1:53 10.0.0.3:53",
            ],
        );
        // On the way out is better than nothing, not ready is not.
        check(
            &[endpoint(1, false, false), endpoint(2, false, true)],
            &plain,
            &["tcp 10.96.0.7:80 -> 10.0.0.2:8080", "udp 10.96.0.7:53 -> 10.0.0.2:53"],
        );
        check(&[endpoint(1, false, false)], &plain, &[]);
    }

    #[test]
    fn node_ports_and_the_api_server_are_where_they_are_said_to_be() {
        let options = NetworkOptions { node_ports: Some(Ipv4Addr::UNSPECIFIED), ..NetworkOptions::default() };
        check(
            &[endpoint(1, true, false)],
            &options,
            &[
                "tcp 0.0.0.0:30080 -> 10.0.0.1:8080",
                "tcp 10.96.0.7:80 -> 10.0.0.1:8080",
                "udp 10.96.0.7:53 -> 10.0.0.1:53",
            ],
        );
        let api_server = Some(ApiServer::Socket("/run/api.sock".into()));
        let options = NetworkOptions { api_server, ..NetworkOptions::default() };
        let led = ["tcp 10.96.0.7:80", "tcp 10.96.0.7:81", "udp 10.96.0.7:53"]
            .map(|front| format!("{front} -> /run/api.sock"));
        check(&[], &options, &led.each_ref().map(String::as_str));
        // Where this node is said to have it, and not where another is.
        let options = NetworkOptions { node_ports: Some(Ipv4Addr::new(10, 0, 0, 1)), ..options };
        let here =
            ["tcp 10.0.0.1:8080", "tcp 10.0.0.1:30080"].map(|front| format!("{front} -> /run/api.sock"));
        let led =
            [&here[..], &led[..2], &["udp 10.0.0.1:53 -> /run/api.sock".to_owned()], &led[2..]].concat();
        let led: Vec<&str> = led.iter().map(String::as_str).collect();
        check(&[endpoint(1, true, false), endpoint(2, true, false)], &options, &led);
    }
}
