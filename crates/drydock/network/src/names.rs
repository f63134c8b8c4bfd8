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

use hickory_proto::rr::rdata::{A, CNAME, NS, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use crate::view::{Endpoint, Service, ServiceName, View};

/// How long an answer may be kept: short, since endpoints come and go.
const TTL: u32 = 5;

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
    apex: Name,
}

impl Zone {
    /// The zone of a domain, if it is one.
    pub(crate) fn new(domain: &str) -> Option<Self> {
        let domain = domain.trim_end_matches('.').to_ascii_lowercase();
        let apex = Name::from_ascii(format!("{domain}.")).ok().filter(|apex| !apex.is_root())?;
        Some(Self { domain, apex })
    }

    /// What goes with the answer that there is no answer, so that it may be kept.
    pub(crate) fn authority(&self) -> Option<Record> {
        let of = |label: &str| self.apex.prepend_label(label).ok();
        let soa = SOA::new(of("dns")?, of("hostmaster")?, 1, 7200, 1800, 86_400, TTL);
        Some(Record::from_rdata(self.apex.clone(), TTL, RData::SOA(soa)))
    }

    /// Answers a question. `turn` decides which of several answers comes first.
    pub(crate) fn find(&self, view: &View, name: &Name, kind: RecordType, turn: usize) -> Found {
        let text = name.to_ascii().to_ascii_lowercase();
        let text = text.trim_end_matches('.');
        if text.ends_with(".in-addr.arpa") {
            return self.reverse(view, name, text, kind);
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
            ["dns-version"] => {
                asked.only(RecordType::TXT, || vec![RData::TXT(TXT::new(vec![VERSION.to_owned()]))])
            }
            ["dns"] | ["svc"] | ["pod"] => Found::Nothing,
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

    fn reverse(&self, view: &View, name: &Name, text: &str, kind: RecordType) -> Found {
        let digits = text.trim_end_matches(".in-addr.arpa").split('.').rev();
        let Ok(address) = digits.collect::<Vec<_>>().join(".").parse::<Ipv4Addr>() else {
            return Found::Elsewhere;
        };
        let mut names = Vec::new();
        for (service_name, service) in &view.services {
            let own = self.of_service(service_name);
            if service.addresses.contains(&address) {
                names.extend(own);
            } else if service.is_headless() {
                let endpoints = service.endpoints.iter().filter(|one| one.ready && one.address == address);
                names.extend(endpoints.filter_map(|one| own.as_ref()?.prepend_label(host_of(one)).ok()));
            }
        }
        match (names.is_empty(), kind) {
            (true, _) => Found::Elsewhere,
            (false, RecordType::PTR | RecordType::ANY) => {
                let record = |target| Record::from_rdata(name.clone(), TTL, RData::PTR(PTR(target)));
                Found::Records(names.into_iter().map(record).collect(), Vec::new())
            }
            _ => Found::Nothing,
        }
    }

    fn of_service(&self, name: &ServiceName) -> Option<Name> {
        let service = self.apex.prepend_label("svc").ok()?;
        service.prepend_label(&*name.namespace).ok()?.prepend_label(&*name.name).ok()
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
    name: &'a Name,
    kind: RecordType,
    turn: usize,
}

impl Asked<'_> {
    fn wants(&self, kind: RecordType) -> bool {
        self.kind == kind || self.kind == RecordType::ANY
    }

    /// A name that has answers of one kind only.
    fn only(&self, kind: RecordType, answers: impl FnOnce() -> Vec<RData>) -> Found {
        if !self.wants(kind) {
            return Found::Nothing;
        }
        let mut answers = answers();
        let first = self.turn.checked_rem(answers.len()).unwrap_or(0);
        answers.rotate_left(first);
        let record = |data| Record::from_rdata(self.name.clone(), TTL, data);
        Found::Records(answers.into_iter().map(record).collect(), Vec::new())
    }

    fn addresses(&self, addresses: impl IntoIterator<Item = Ipv4Addr>) -> Found {
        self.only(RecordType::A, || addresses.into_iter().map(|one| RData::A(A(one))).collect())
    }

    fn apex(&self) -> Found {
        let authority = self.zone.authority().filter(|_| self.wants(RecordType::SOA));
        match (authority, self.kind) {
            (Some(soa), _) => Found::Records(vec![soa], Vec::new()),
            (None, RecordType::NS) => self.only(RecordType::NS, || {
                self.zone.apex.prepend_label("dns").into_iter().map(|name| RData::NS(NS(name))).collect()
            }),
            _ => Found::Nothing,
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
        if service.is_headless() {
            let ready: Vec<_> = service.endpoints.iter().filter(|one| one.ready).collect();
            return match (ready.is_empty(), self.kind) {
                (true, _) => Found::Unknown,
                (false, RecordType::SRV) => self.ports(&name, service, |_, _| true),
                (false, _) => self.addresses(ready.iter().map(|one| one.address)),
            };
        }
        match self.kind {
            RecordType::SRV => self.ports(&name, service, |_, _| true),
            _ => self.addresses(service.addresses.iter().copied()),
        }
    }

    /// Another name; what that one means is added when it is of this cluster, too.
    fn alias(&self, external: &str) -> Found {
        let Ok(target) = Name::from_ascii(format!("{}.", external.trim_end_matches('.'))) else {
            return Found::Nothing;
        };
        let alias = RData::CNAME(CNAME(target.clone()));
        let mut records = vec![Record::from_rdata(self.name.clone(), TTL, alias)];
        let followed = self.wants(RecordType::A) && !external.eq_ignore_ascii_case(&self.name.to_ascii());
        if followed
            && let Some((_, service)) = self.target(&target)
            && service.external_name.is_none()
            && let Found::Records(more, _) = self.zone.find(self.view, &target, self.kind, self.turn)
        {
            records.extend(more);
        }
        Found::Records(records, Vec::new())
    }

    /// The Service that a name is, if it is one.
    fn target(&self, name: &Name) -> Option<(ServiceName, &Service)> {
        let text = name.to_ascii().to_ascii_lowercase();
        let prefix =
            text.trim_end_matches('.').strip_suffix(self.zone.domain.as_str())?.strip_suffix(".svc.")?;
        let (service, namespace) = prefix.split_once('.')?;
        self.get(service, namespace)
    }

    fn port(&self, port: &str, protocol: &str, service: &str, namespace: &str) -> Found {
        let Some((name, service)) = self.get(service, namespace) else { return Found::Unknown };
        let matches = |name: &str, word: &str| name == port && word == protocol;
        if !service.ports.iter().any(|one| matches(&one.name, one.protocol.word())) {
            return Found::Unknown;
        }
        if self.wants(RecordType::SRV) { self.ports(&name, service, matches) } else { Found::Nothing }
    }

    /// The ports of a Service that pass the filter, as SRV records with the addresses of those they name.
    fn ports(&self, name: &ServiceName, service: &Service, filter: impl Fn(&str, &str) -> bool) -> Found {
        let Some(own) = self.zone.of_service(name) else { return Found::Unknown };
        let mut targets: Vec<(u16, Name, Ipv4Addr)> = Vec::new();
        for port in service.ports.iter().filter(|port| filter(&port.name, port.protocol.word())) {
            if !service.is_headless() {
                targets.extend(service.addresses.iter().map(|address| (port.port, own.clone(), *address)));
                continue;
            }
            for endpoint in service.endpoints.iter().filter(|one| one.ready) {
                let own_port = endpoint
                    .ports
                    .iter()
                    .find(|(name, protocol, _)| *name == port.name && *protocol == port.protocol);
                if let (Some((_, _, number)), Ok(target)) = (own_port, own.prepend_label(host_of(endpoint))) {
                    targets.push((*number, target, endpoint.address));
                }
            }
        }
        if targets.is_empty() {
            return Found::Unknown;
        }
        let weight = u16::try_from(100 / targets.len().max(1)).unwrap_or(1).max(1);
        let srv = |(port, target, _): &(u16, Name, Ipv4Addr)| {
            let data = RData::SRV(SRV::new(0, weight, *port, target.clone()));
            Record::from_rdata(self.name.clone(), TTL, data)
        };
        let records = targets.iter().map(srv).collect();
        targets.sort_by(|a, b| a.1.cmp(&b.1).then(a.2.cmp(&b.2)));
        targets.dedup_by(|a, b| a.1 == b.1 && a.2 == b.2);
        let address = |(_, target, address): (u16, Name, Ipv4Addr)| {
            Record::from_rdata(target, TTL, RData::A(A(address)))
        };
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
