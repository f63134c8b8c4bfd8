use std::sync::Arc;

use super::*;
use crate::view::{Protocol, ServicePort};

fn endpoint(last: u8, hostname: Option<&str>, ready: bool) -> Endpoint {
    Endpoint {
        address: Ipv4Addr::new(10, 0, 0, last),
        hostname: hostname.map(Into::into),
        ready,
        draining: false,
        ports: vec![("memcache".into(), Protocol::Tcp, 11211)],
    }
}

fn view() -> View {
    let port = |port| ServicePort { name: "memcache".into(), port, node_port: 0, protocol: Protocol::Tcp };
    let endpoints =
        vec![endpoint(1, Some("m-0"), true), endpoint(2, None, true), endpoint(3, Some("m-2"), false)];
    let address = vec![Ipv4Addr::new(10, 96, 0, 7)];
    let alias = |name: &str| Service { external_name: Some(name.into()), ..Service::default() };
    let services = [
        ("web", Service { addresses: address, ports: vec![port(80)], ..Service::default() }),
        ("m", Service { ports: vec![port(11211)], endpoints, ..Service::default() }),
        ("empty", Service { ports: vec![port(1)], ..Service::default() }),
        ("far", alias("example.com")),
        ("near", alias("web.a.svc.cluster.local")),
        ("round", alias("round.a.svc.cluster.local")),
    ];
    let services = services.map(|(name, service)| (ServiceName::new("a", name), Arc::new(service)));
    View { services: services.into() }
}

#[track_caller]
fn check(question: &str, expected: &[&str]) {
    let (kind, name) = question.split_once(' ').unwrap();
    let zone = Zone::new("cluster.local").unwrap();
    let kind = match kind {
        "A" => Kind::A,
        "AAAA" => Kind(28),
        "NS" => Kind::NS,
        "PTR" => Kind::PTR,
        "SOA" => Kind::SOA,
        "SRV" => Kind::SRV,
        _ => Kind::TXT,
    };
    let found: Vec<String> = match zone.find(&view(), name, kind, 0) {
        Found::Records(answers, more) => {
            let more = more.iter().map(|record| format!("+ {record}"));
            answers.iter().map(Record::to_string).chain(more).collect()
        }
        other => vec![format!("{other:?}")],
    };
    assert_eq!(found, expected, "{question}");
}

#[test]
fn services_have_addresses() {
    check("A web.a.svc.cluster.local", &["web.a.svc.cluster.local A 10.96.0.7"]);
    check("A WEB.a.SVC.cluster.local", &["WEB.a.SVC.cluster.local A 10.96.0.7"]);
    check("AAAA web.a.svc.cluster.local", &["Nothing"]);
    check("A none.a.svc.cluster.local", &["Unknown"]);
    check("A web.b.svc.cluster.local", &["Unknown"]);
    check("A a.svc.cluster.local", &["Nothing"]);
    check("A b.svc.cluster.local", &["Unknown"]);
    check("A svc.cluster.local", &["Nothing"]);
    check("A x.web.a.svc.cluster.local", &["Unknown"]);
}

#[test]
fn headless_services_have_the_addresses_of_ready_endpoints_and_their_names() {
    check(
        "A m.a.svc.cluster.local",
        &["m.a.svc.cluster.local A 10.0.0.1", "m.a.svc.cluster.local A 10.0.0.2"],
    );
    check("A m-0.m.a.svc.cluster.local", &["m-0.m.a.svc.cluster.local A 10.0.0.1"]);
    check("A 10-0-0-2.m.a.svc.cluster.local", &["10-0-0-2.m.a.svc.cluster.local A 10.0.0.2"]);
    check("A m-2.m.a.svc.cluster.local", &["Unknown"]);
    check("A empty.a.svc.cluster.local", &["Unknown"]);
}

#[test]
fn the_first_of_several_answers_takes_turns() {
    let zone = Zone::new("cluster.local.").unwrap();
    let first = |turn| match zone.find(&view(), "m.a.svc.cluster.local", Kind::A, turn) {
        Found::Records(answers, _) => answers[0].to_string(),
        other => format!("{other:?}"),
    };
    assert_eq!(
        [0, 1, 2].map(first),
        ["1", "2", "1"].map(|last| format!("m.a.svc.cluster.local A 10.0.0.{last}"))
    );
}

#[test]
fn named_ports_are_told() {
    check(
        "SRV _memcache._tcp.web.a.svc.cluster.local",
        &[
            "_memcache._tcp.web.a.svc.cluster.local SRV 0 100 80 web.a.svc.cluster.local",
            "+ web.a.svc.cluster.local A 10.96.0.7",
        ],
    );
    check(
        "SRV _memcache._tcp.m.a.svc.cluster.local",
        &[
            "_memcache._tcp.m.a.svc.cluster.local SRV 0 50 11211 m-0.m.a.svc.cluster.local",
            "_memcache._tcp.m.a.svc.cluster.local SRV 0 50 11211 10-0-0-2.m.a.svc.cluster.local",
            "+ 10-0-0-2.m.a.svc.cluster.local A 10.0.0.2",
            "+ m-0.m.a.svc.cluster.local A 10.0.0.1",
        ],
    );
    check("SRV _memcache._udp.m.a.svc.cluster.local", &["Unknown"]);
    check("SRV _http._tcp.web.a.svc.cluster.local", &["Unknown"]);
    check("A _memcache._tcp.web.a.svc.cluster.local", &["Nothing"]);
    check("A _tcp.web.a.svc.cluster.local", &["Nothing"]);
}

#[test]
fn other_names_of_the_cluster() {
    check("A 10-1-2-3.a.pod.cluster.local", &["10-1-2-3.a.pod.cluster.local A 10.1.2.3"]);
    check("A x.a.pod.cluster.local", &["Unknown"]);
    check("A 10-1-2-3.b.pod.cluster.local", &["Unknown"]);
    check("TXT dns-version.cluster.local", &["dns-version.cluster.local TXT 1.1.0"]);
    check("SOA cluster.local", &["cluster.local SOA dns.cluster.local hostmaster.cluster.local 5"]);
    check("PTR 7.0.96.10.in-addr.arpa", &["7.0.96.10.in-addr.arpa PTR web.a.svc.cluster.local"]);
    check("PTR 1.0.0.10.in-addr.arpa", &["1.0.0.10.in-addr.arpa PTR m-0.m.a.svc.cluster.local"]);
    check("PTR 3.0.0.10.in-addr.arpa", &["Elsewhere"]);
}

#[test]
fn names_that_stand_for_others_are_followed_within_the_cluster() {
    check("A far.a.svc.cluster.local", &["far.a.svc.cluster.local CNAME example.com"]);
    check(
        "A near.a.svc.cluster.local",
        &["near.a.svc.cluster.local CNAME web.a.svc.cluster.local", "web.a.svc.cluster.local A 10.96.0.7"],
    );
    check("A round.a.svc.cluster.local", &["round.a.svc.cluster.local CNAME round.a.svc.cluster.local"]);
}

#[test]
fn other_domains_are_others() {
    check("A example.com", &["Elsewhere"]);
    check("A notcluster.local", &["Elsewhere"]);
    assert!(Zone::new("").is_none());
}
