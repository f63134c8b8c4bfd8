//! What is known of Services: each with its endpoints, in the form that routes and names are made from.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;

/// The label of a slice that names its Service.
const SERVICE: &str = "kubernetes.io/service-name";

/// How long a client keeps its endpoint when the Service does not say: three hours, as in Kubernetes.
const AFFINITY: Duration = Duration::from_secs(10_800);

/// A Service's place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
}

impl ServiceName {
    /// The Service of this name in this namespace.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// What is spoken on a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// What a port's `protocol` says; `None` for what is not carried.
    fn read(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("" | "TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some(_) => None,
        }
    }

    /// The word in names: `tcp`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// A Service and where it leads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Service {
    /// Its cluster addresses; none when it is headless.
    pub addresses: Vec<Ipv4Addr>,
    /// Another name that it stands for.
    pub external_name: Option<Box<str>>,
    /// For how long a client stays with its endpoint.
    pub affinity: Option<Duration>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// Where it leads.
    pub endpoints: Vec<Endpoint>,
}

/// A port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name; empty when it is the only one and has none.
    pub name: Box<str>,
    /// Its number.
    pub port: u16,
    /// The node's port that leads to it; zero for none.
    pub node_port: u16,
    /// What is spoken.
    pub protocol: Protocol,
}

/// One place a Service leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its name within a headless Service.
    pub hostname: Option<Box<str>>,
    /// Whether it takes connections.
    pub ready: bool,
    /// Whether it is on its way out and still answers: better than nothing.
    pub draining: bool,
    /// Its ports: the Service's name of each, and the number.
    pub ports: Vec<(Box<str>, Protocol, u16)>,
}

impl Service {
    /// Whether it has no address of its own and names its endpoints instead.
    pub fn is_headless(&self) -> bool {
        self.addresses.is_empty() && self.external_name.is_none()
    }

    /// The endpoints that are ready; when none is, those that still answer.
    pub fn usable(&self) -> impl Iterator<Item = &Endpoint> {
        let any_ready = self.endpoints.iter().any(|endpoint| endpoint.ready);
        self.endpoints.iter().filter(move |one| if any_ready { one.ready } else { one.draining })
    }
}

/// All Services, as last seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// The Services.
    pub services: BTreeMap<ServiceName, Arc<Service>>,
}

/// The objects that a view is made of.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    services: BTreeMap<ServiceName, Service>,
    /// Endpoints, by Service and slice.
    slices: BTreeMap<(ServiceName, Box<str>), Vec<Endpoint>>,
    view: View,
    stale: BTreeSet<ServiceName>,
}

impl Objects {
    pub(crate) fn set_service(&mut self, object: &core::Service) {
        let name = name_of(&object.metadata);
        self.services.insert(name.clone(), read_service(object));
        self.stale.insert(name);
    }

    pub(crate) fn remove_service(&mut self, object: &core::Service) {
        self.forget_service(name_of(&object.metadata));
    }

    pub(crate) fn set_slice(&mut self, object: &discovery::EndpointSlice) {
        if let Some(key) = slice_key(object) {
            self.stale.insert(key.0.clone());
            self.slices.insert(key, read_slice(object));
        }
    }

    pub(crate) fn remove_slice(&mut self, object: &discovery::EndpointSlice) {
        if let Some(key) = slice_key(object) {
            self.forget_slice(key);
        }
    }

    fn forget_service(&mut self, name: ServiceName) {
        self.services.remove(&name);
        self.stale.insert(name);
    }

    fn forget_slice(&mut self, key: (ServiceName, Box<str>)) {
        self.slices.remove(&key);
        self.stale.insert(key.0);
    }

    /// Forgets the Services that are not among these.
    pub(crate) fn keep_services(&mut self, seen: &[core::Service]) {
        let seen: BTreeSet<_> = seen.iter().map(|object| name_of(&object.metadata)).collect();
        let gone: Vec<_> = self.services.keys().filter(|name| !seen.contains(name)).cloned().collect();
        gone.into_iter().for_each(|name| self.forget_service(name));
    }

    /// Forgets the slices that are not among these.
    pub(crate) fn keep_slices(&mut self, seen: &[discovery::EndpointSlice]) {
        let seen: BTreeSet<_> = seen.iter().filter_map(slice_key).collect();
        let gone: Vec<_> = self.slices.keys().filter(|key| !seen.contains(key)).cloned().collect();
        gone.into_iter().for_each(|key| self.forget_slice(key));
    }

    /// The view with everything taken in; only what changed is made anew.
    pub(crate) fn view(&mut self) -> View {
        for name in std::mem::take(&mut self.stale) {
            let Some(service) = self.services.get(&name) else {
                self.view.services.remove(&name);
                continue;
            };
            let mut service = service.clone();
            let first = (name.clone(), Box::default());
            let own = self.slices.range(first..).take_while(|((owner, _), _)| *owner == name);
            service.endpoints = own.flat_map(|(_, endpoints)| endpoints.iter().cloned()).collect();
            self.view.services.insert(name, Arc::new(service));
        }
        self.view.clone()
    }
}

fn name_of(meta: &kube::core::ObjectMeta) -> ServiceName {
    let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
    ServiceName { namespace: text(&meta.namespace), name: text(&meta.name) }
}

fn slice_key(object: &discovery::EndpointSlice) -> Option<(ServiceName, Box<str>)> {
    let own = name_of(&object.metadata);
    let service = object.metadata.labels.as_ref()?.get(SERVICE)?;
    Some((ServiceName { namespace: own.namespace, name: service.as_str().into() }, own.name))
}

fn port_number(number: i32) -> u16 {
    u16::try_from(number).unwrap_or_default()
}

fn read_service(object: &core::Service) -> Service {
    let Some(spec) = &object.spec else { return Service::default() };
    if spec.type_.as_deref() == Some("ExternalName") {
        let external_name = spec.external_name.as_deref().map(Into::into);
        return Service { external_name, ..Service::default() };
    }
    let own = spec.cluster_ip.iter();
    let mut addresses: Vec<Ipv4Addr> =
        spec.cluster_ips.iter().flatten().chain(own).filter_map(|address| address.parse().ok()).collect();
    addresses.sort();
    addresses.dedup();
    let port = |port: &core::ServicePort| {
        Some(ServicePort {
            name: port.name.as_deref().unwrap_or_default().into(),
            port: port_number(port.port),
            node_port: port.node_port.map(port_number).unwrap_or_default(),
            protocol: Protocol::read(port.protocol.as_deref())?,
        })
    };
    let sticky = (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
        let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
        let seconds = config.and_then(|config| config.timeout_seconds).and_then(|s| u64::try_from(s).ok());
        seconds.map_or(AFFINITY, Duration::from_secs)
    });
    Service {
        addresses,
        external_name: None,
        affinity: sticky,
        ports: spec.ports.iter().flatten().filter_map(port).collect(),
        endpoints: Vec::new(),
    }
}

fn read_slice(object: &discovery::EndpointSlice) -> Vec<Endpoint> {
    if object.address_type != "IPv4" {
        return Vec::new();
    }
    let ports: Vec<_> = object
        .ports
        .iter()
        .flatten()
        .filter_map(|port| {
            let name = port.name.as_deref().unwrap_or_default().into();
            Some((name, Protocol::read(port.protocol.as_deref())?, port_number(port.port?)))
        })
        .collect();
    let endpoint = |endpoint: &discovery::Endpoint| {
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        Some(Endpoint {
            address: endpoint.addresses.first()?.parse().ok()?,
            hostname: endpoint.hostname.as_deref().map(Into::into),
            // What is not said is taken to be well.
            ready: conditions.ready.unwrap_or(true),
            draining: conditions.serving.unwrap_or(false) && conditions.terminating.unwrap_or(false),
            ports: ports.clone(),
        })
    };
    object.endpoints.iter().filter_map(endpoint).collect()
}
