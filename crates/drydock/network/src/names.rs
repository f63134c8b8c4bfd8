//! The names of the cluster, as Kubernetes' DNS specification has them. Pure: a view and a question, the answer.
//!
//! | name | what it is |
//! | --- | --- |
//! | `SERVICE.NAMESPACE.svc.DOMAIN` | the Service's address; without one, those of its ready endpoints |
//! | `_PORT._PROTOCOL.SERVICE.NAMESPACE.svc.DOMAIN` | SRV: the port's number, and whom to ask for it |
//! | `HOSTNAME.SERVICE.NAMESPACE.svc.DOMAIN` | one endpoint of a Service without address |
//! | `1-2-3-4.NAMESPACE.pod.DOMAIN` | the address 1.2.3.4 |
//! | `4.3.2.1.in-addr.arpa` | the name of that Service or endpoint |

use std::net::Ipv4Addr;

use crate::view::{Endpoint, Service, ServiceName, View};
use crate::wire::{Data, Kind, Record};

/// How long an answer may be kept, in seconds: short, since endpoints come and go.
pub(crate) const TTL: u32 = 5;

/// The version of the specification that is followed.
const VERSION: &str = "1.1.0";

/// What a question comes to.
#[derive(Debug, PartialEq)]
pub(crate) enum Found {
    /// These answers, and beside them what the client will ask for next.
    Records(Vec<Record>, Vec<Record>),
    /// There is such a name, with nothing of that kind.
    Nothing,
    /// There is no such name.
    Unknown,
    /// Somebody else's name.
    Elsewhere,
}

/// The cluster's part of all names.
#[derive(Clone, Debug)]
pub(crate) struct Zone {
    domain: String,
}

impl Zone {
    /// The zone of a domain, if it is one.
    pub(crate) fn new(domain: &str) -> Option<Self> {
        let domain = domain.trim_end_matches('.').to_ascii_lowercase();
        let good = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        (domain.len() < 200 && domain.split('.').all(good)).then_some(Self { domain })
    }

    /// What goes with the answer that there is no answer, so that it may be kept.
    pub(crate) fn authority(&self) -> Record {
        let (server, person) = (format!("dns.{}", self.domain), format!("hostmaster.{}", self.domain));
        Record { name: self.domain.clone(), data: Data::Soa(server, person, TTL) }
    }

    /// Answers a question. `turn` decides which of several answers comes first.
    pub(crate) fn find(&self, view: &View, name: &str, kind: Kind, turn: usize) -> Found {
        let text = name.to_ascii_lowercase();
        if let Some(digits) = text.strip_suffix(".in-addr.arpa") {
            return self.reverse(view, name, digits, kind);
        }
        let Some(prefix) = text.strip_suffix(self.domain.as_str()) else { return Found::Elsewhere };
        let labels: Vec<&str> = match prefix.strip_suffix('.') {
            None if prefix.is_empty() => Vec::new(),
            None => return Found::Elsewhere,
            Some(prefix) => prefix.split('.').collect(),
        };
        let asked = Asked { zone: self, view, name, kind, turn };
        match labels.as_slice() {
            [] => asked.apex(),
            ["dns-version"] => asked.only(Kind::TXT, [Data::Txt(VERSION)]),
            ["dns" | "svc" | "pod"] => Found::Nothing,
            [namespace, "svc" | "pod"] => asked.namespace(namespace),
            [address, namespace, "pod"] => asked.pod(address, namespace),
            [service, namespace, "svc"] => asked.service(service, namespace),
            [port, protocol, service, namespace, "svc"]
                if port.starts_with('_') && protocol.starts_with('_') =>
            {
                asked.port(&port[1..], &protocol[1..], service, namespace)
            }
            [host, service, namespace, "svc"] => asked.endpoint(host, service, namespace),
            _ => Found::Unknown,
        }
    }

    fn reverse(&self, view: &View, name: &str, digits: &str, kind: Kind) -> Found {
        let digits: Vec<&str> = digits.split('.').rev().collect();
        let Ok(address) = digits.join(".").parse::<Ipv4Addr>() else { return Found::Elsewhere };
        let mut names = Vec::new();
        for (service_name, service) in &view.services {
            let own = self.of_service(service_name);
            if service.addresses.contains(&address) {
                names.push(own);
            } else if service.is_headless() {
                let endpoints = service.endpoints.iter().filter(|one| one.ready && one.address == address);
                names.extend(endpoints.map(|one| format!("{}.{own}", host_of(one))));
            }
        }
        match (names.is_empty(), kind) {
            (true, _) => Found::Elsewhere,
            (false, Kind::PTR | Kind::ANY) => {
                let record = |target| Record { name: name.to_owned(), data: Data::Ptr(target) };
                Found::Records(names.into_iter().map(record).collect(), Vec::new())
            }
            _ => Found::Nothing,
        }
    }

    fn of_service(&self, name: &ServiceName) -> String {
        format!("{}.{}.svc.{}", name.name, name.namespace, self.domain)
    }
}

/// The name of an endpoint within its Service: what the pod calls itself, else its address.
fn host_of(endpoint: &Endpoint) -> String {
    match &endpoint.hostname {
        Some(hostname) => hostname.to_string(),
        None => endpoint.address.to_string().replace('.', "-"),
    }
}

/// A question within the zone.
struct Asked<'a> {
    zone: &'a Zone,
    view: &'a View,
    name: &'a str,
    kind: Kind,
    turn: usize,
}

impl Asked<'_> {
    fn wants(&self, kind: Kind) -> bool {
        self.kind == kind || self.kind == Kind::ANY
    }

    /// A name that has answers of one kind only.
    fn only(&self, kind: Kind, answers: impl IntoIterator<Item = Data>) -> Found {
        if !self.wants(kind) {
            return Found::Nothing;
        }
        let record = |data| Record { name: self.name.to_owned(), data };
        let mut answers: Vec<Record> = answers.into_iter().map(record).collect();
        let first = self.turn.checked_rem(answers.len()).unwrap_or(0);
        answers.rotate_left(first);
        Found::Records(answers, Vec::new())
    }

    fn addresses(&self, addresses: impl IntoIterator<Item = Ipv4Addr>) -> Found {
        self.only(Kind::A, addresses.into_iter().map(Data::A))
    }

    fn apex(&self) -> Found {
        match self.kind {
            Kind::NS => self.only(Kind::NS, [Data::Ns(format!("dns.{}", self.zone.domain))]),
            _ => self.only(Kind::SOA, [self.zone.authority().data]),
        }
    }

    fn namespace(&self, namespace: &str) -> Found {
        let known = self.view.services.keys().any(|name| &*name.namespace == namespace);
        if known { Found::Nothing } else { Found::Unknown }
    }

    fn pod(&self, address: &str, namespace: &str) -> Found {
        match (address.replace('-', ".").parse::<Ipv4Addr>(), self.namespace(namespace)) {
            (Ok(address), Found::Nothing) => self.addresses([address]),
            _ => Found::Unknown,
        }
    }

    fn get(&self, service: &str, namespace: &str) -> Option<(ServiceName, &Service)> {
        let name = ServiceName::new(namespace, service);
        let service = self.view.services.get(&name)?;
        Some((name, service))
    }

    fn service(&self, service: &str, namespace: &str) -> Found {
        let Some((name, service)) = self.get(service, namespace) else { return Found::Unknown };
        if let Some(external) = &service.external_name {
            return self.alias(external);
        }
        if service.is_headless() && !service.endpoints.iter().any(|one| one.ready) {
            return Found::Unknown;
        }
        if self.kind == Kind::SRV {
            return self.ports(&name, service, |_, _| true);
        }
        if service.is_headless() {
            let ready = service.endpoints.iter().filter(|one| one.ready);
            return self.addresses(ready.map(|one| one.address));
        }
        self.addresses(service.addresses.iter().copied())
    }

    /// Another name; what that one means is added when it is a Service of this cluster, too.
    fn alias(&self, external: &str) -> Found {
        let target = external.trim_end_matches('.').to_ascii_lowercase();
        let mut records = vec![Record { name: self.name.to_owned(), data: Data::Cname(target.clone()) }];
        if self.kind != Kind::CNAME
            && self.service_at(&target).is_some_and(|service| service.external_name.is_none())
            && let Found::Records(more, _) = self.zone.find(self.view, &target, self.kind, self.turn)
        {
            records.extend(more);
        }
        Found::Records(records, Vec::new())
    }

    /// The Service that a name is, if it is one.
    fn service_at(&self, name: &str) -> Option<&Service> {
        let prefix = name.strip_suffix(self.zone.domain.as_str())?.strip_suffix(".svc.")?;
        let (service, namespace) = prefix.split_once('.')?;
        self.get(service, namespace).map(|(_, service)| service)
    }

    fn port(&self, port: &str, protocol: &str, service: &str, namespace: &str) -> Found {
        let Some((name, service)) = self.get(service, namespace) else { return Found::Unknown };
        let matches = |name: &str, word: &str| name == port && word == protocol;
        if !service.ports.iter().any(|one| matches(&one.name, one.protocol.word())) {
            return Found::Unknown;
        }
        if self.wants(Kind::SRV) { self.ports(&name, service, matches) } else { Found::Nothing }
    }

    /// The ports of a Service that pass the filter, as SRV records with the addresses of those they name.
    fn ports(&self, name: &ServiceName, service: &Service, filter: impl Fn(&str, &str) -> bool) -> Found {
        let own = self.zone.of_service(name);
        let mut targets: Vec<(u16, String, Ipv4Addr)> = Vec::new();
        for port in service.ports.iter().filter(|port| filter(&port.name, port.protocol.word())) {
            if !service.is_headless() {
                targets.extend(service.addresses.iter().map(|address| (port.port, own.clone(), *address)));
                continue;
            }
            for endpoint in service.endpoints.iter().filter(|one| one.ready) {
                let same = |(name, protocol, _): &&(Box<str>, _, u16)| {
                    *name == port.name && *protocol == port.protocol
                };
                if let Some((_, _, number)) = endpoint.ports.iter().find(same) {
                    targets.push((*number, format!("{}.{own}", host_of(endpoint)), endpoint.address));
                }
            }
        }
        if targets.is_empty() {
            return Found::Unknown;
        }
        let weight = u16::try_from(100 / targets.len()).unwrap_or(1).max(1);
        let srv = |(port, target, _): &(u16, String, Ipv4Addr)| Record {
            name: self.name.to_owned(),
            data: Data::Srv(weight, *port, target.clone()),
        };
        let records = targets.iter().map(srv).collect();
        targets.sort_by(|a, b| a.1.cmp(&b.1).then(a.2.cmp(&b.2)));
        targets.dedup_by(|a, b| a.1 == b.1 && a.2 == b.2);
        let address = |(_, name, address): (u16, String, Ipv4Addr)| Record { name, data: Data::A(address) };
        Found::Records(records, targets.into_iter().map(address).collect())
    }

    /// One endpoint of a headless Service, or the protocols of a Service.
    fn endpoint(&self, host: &str, service: &str, namespace: &str) -> Found {
        let Some((_, service)) = self.get(service, namespace) else { return Found::Unknown };
        if let Some(protocol) = host.strip_prefix('_') {
            let known = service.ports.iter().any(|port| port.protocol.word() == protocol);
            return if known { Found::Nothing } else { Found::Unknown };
        }
        let own: Vec<Ipv4Addr> = service
            .endpoints
            .iter()
            .filter(|one| service.is_headless() && one.ready && host_of(one).eq_ignore_ascii_case(host))
            .map(|one| one.address)
            .collect();
        if own.is_empty() { Found::Unknown } else { self.addresses(own) }
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
