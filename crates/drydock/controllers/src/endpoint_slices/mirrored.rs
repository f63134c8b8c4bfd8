//! The slices of a Service without a selector: the Endpoints that somebody wrote for it.
//!
//! Endpoints that say so by a label, or by whose annotation a leader is elected, have none; nor has a Service without
//! Endpoints, or one with a selector.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::{ByPorts, MANAGED_BY, Plan, SERVICE_NAME, Shape, Slices};
use crate::machinery::awaited::LOOK_AGAIN;
use crate::machinery::cache::{Cache, Kind};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::recorder::{Recorder, Severity};
use crate::machinery::rest::{Error, Rest};
use crate::objects::meta::OwnerReference;
use crate::objects::resource::Key;
use crate::objects::service::{
    Endpoint, EndpointAddress, EndpointConditions, EndpointSlice, Endpoints, Service, SlicePort, SubsetPort,
};

const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

/// What is not taken over: it is about the Endpoints alone.
const THEIR_OWN: [&str; 2] =
    ["endpoints.kubernetes.io/last-change-trigger-time", "kubectl.kubernetes.io/last-applied-configuration"];

/// Addresses that are taken over for one set of ports, and so the endpoints of a slice: Kubernetes' number.
const MOST: usize = 1000;

/// Whether slices are made of these.
fn is_mirrored(endpoints: &Endpoints) -> bool {
    let meta = &endpoints.metadata;
    meta.labels.get(SKIP) != Some("true") && meta.annotations.get(LEADER).is_none()
}

/// Which address of Endpoints: they may be given twice for different objects.
type Which = (Box<str>, Box<str>);

/// Ports that the same addresses answer on, and these: each address, and whether it is ready.
type Shared = (Vec<SlicePort>, Vec<(EndpointAddress, bool)>);

/// What Endpoints say, each set of addresses once, the ready ones first.
fn repacked(endpoints: &Endpoints) -> Vec<Shared> {
    let mut known: BTreeMap<Which, &EndpointAddress> = BTreeMap::new();
    let mut by_port: BTreeMap<Option<SlicePort>, BTreeMap<Which, bool>> = BTreeMap::new();
    for subset in &endpoints.subsets {
        let ports: Vec<_> = subset.ports.iter().map(|port| Some(slice_port(port))).collect();
        for port in if ports.is_empty() { vec![None] } else { ports } {
            let addresses = by_port.entry(port).or_default();
            let ready = subset.addresses.iter().map(|address| (address, true));
            for (address, ready) in ready.chain(subset.not_ready_addresses.iter().map(|one| (one, false))) {
                let uid = address.target_ref.as_ref().map(|target| target.uid.clone());
                let which = (address.ip.clone(), uid.unwrap_or_default());
                known.entry(which.clone()).or_insert(address);
                // Who is not ready in one place is not.
                addresses.entry(which).and_modify(|is| *is &= ready).or_insert(ready);
            }
        }
    }
    let mut by_addresses: BTreeMap<BTreeMap<Which, bool>, Vec<SlicePort>> = BTreeMap::new();
    for (port, addresses) in by_port {
        by_addresses.entry(addresses).or_default().extend(port);
    }
    let found = |addresses: BTreeMap<Which, bool>| {
        let mut all: Vec<_> = addresses
            .into_iter()
            .filter_map(|(which, ready)| Some(((*known.get(&which)?).clone(), ready)))
            .collect();
        all.sort_by_key(|(_, ready)| !ready);
        all
    };
    by_addresses.into_iter().map(|(addresses, ports)| (ports, found(addresses))).collect()
}

fn slice_port(port: &SubsetPort) -> SlicePort {
    SlicePort {
        name: Some(port.name.clone()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone()),
        app_protocol: port.app_protocol.clone(),
    }
}

/// The address that is meant. Its numbers may be written with zeros before them.
fn meant(address: &str) -> Option<IpAddr> {
    let plain = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let plain = || address.split('.').map(plain).collect::<Vec<_>>().join(".");
    let read: Option<IpAddr> = address.parse().ok().or_else(|| plain().parse().ok());
    read.map(|address| address.to_canonical())
}

fn endpoint(address: EndpointAddress, ready: bool) -> Option<(&'static str, Endpoint)> {
    let meant = meant(&address.ip)?;
    let endpoint = Endpoint {
        addresses: vec![meant.to_string().into()],
        conditions: EndpointConditions { ready: Some(ready), ..EndpointConditions::default() },
        hostname: Some(address.hostname).filter(|name| !name.is_empty()),
        node_name: address.node_name,
        zone: None,
        target_ref: address.target_ref,
    };
    Some((if meant.is_ipv4() { "IPv4" } else { "IPv6" }, endpoint))
}

/// What could not be taken over.
#[derive(Debug, Default, PartialEq, Eq)]
struct Skipped {
    /// Addresses that are none.
    invalid: usize,
    /// Addresses that were too many, and those that are none.
    all: usize,
}

/// Decides what to do about the slices of Endpoints, given those there are.
fn plan(endpoints: &Endpoints, slices: &[Arc<EndpointSlice>]) -> (Plan, Skipped) {
    let (mut wanted, mut skipped) = (ByPorts::new(), Skipped::default());
    for (ports, addresses) in repacked(endpoints) {
        let (total, mut taken) = (addresses.len(), 0);
        for (address, ready) in addresses {
            if taken == MOST {
                break;
            }
            let Some((family, endpoint)) = endpoint(address, ready) else {
                skipped.invalid += 1;
                continue;
            };
            wanted.entry((family.into(), ports.clone())).or_default().push(endpoint);
            taken += 1;
        }
        skipped.all += total - taken;
    }
    let meta = &endpoints.metadata;
    let (mut labels, mut annotations) = (meta.labels.clone(), meta.annotations.clone());
    labels.set(SERVICE_NAME, &meta.name);
    labels.set(MANAGED_BY, MANAGER);
    THEIR_OWN.iter().for_each(|own| annotations.remove(own));
    let shape = Shape {
        service: meta.key(),
        owner: OwnerReference::to_controller(Endpoints::resource(), meta),
        labels,
        annotations: Some(annotations),
        most: MOST,
    };
    let mut plan = shape.plan(wanted, slices);
    if meta.deleting() {
        plan.create.clear();
    }
    (plan, skipped)
}

/// What the controller listens to.
type Informers<'a> =
    (&'a mut Informer<Endpoints>, &'a mut Informer<Service>, &'a mut Informer<EndpointSlice>);

/// The controller.
pub struct Controller {
    recorder: Recorder,
    endpoints: Arc<Cache<Endpoints>>,
    services: Arc<Cache<Service>>,
    slices: Slices,
}

impl Controller {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        recorder: Recorder,
        (endpoints, services, slices): Informers<'_>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        endpoints.queue_each(queue);
        services.queue_each(queue);
        Self {
            recorder,
            endpoints: endpoints.cache.clone(),
            services: services.cache.clone(),
            slices: Slices::of(rest, MANAGER, slices, queue),
        }
    }

    /// Brings the slices of one Service up to date.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(held) = self.slices.held(key) else { return Ok(Next::After(LOOK_AGAIN)) };
        let by_hand = self.services.get(key).is_some_and(|service| service.spec.selector.is_empty());
        let Some(endpoints) = self.endpoints.get(key).filter(|it| by_hand && is_mirrored(it)) else {
            return self.slices.carry_out(key, Plan { delete: held, ..Plan::default() }).await;
        };
        let (plan, Skipped { invalid, all }) = plan(&endpoints, &held);
        if invalid > 0 {
            let message = format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
            self.recorder.record(&*endpoints, Severity::Warning, "InvalidIPAddress", message);
        }
        if all > invalid {
            let message = format!(
                "A max of {MOST} addresses can be mirrored to EndpointSlices per Endpoints subset. \
                 {all} addresses were skipped"
            );
            self.recorder.record(&*endpoints, Severity::Warning, "TooManyAddressesToMirror", message);
        }
        self.slices.carry_out(key, plan).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn endpoints(subsets: Value) -> Endpoints {
        serde_json::from_value(json!({
            "metadata": {
                "name": "db", "namespace": "n", "uid": "e",
                "labels": { "a": "1", "endpointslice.kubernetes.io/managed-by": "me" },
                "annotations": {
                    "b": "2",
                    "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z",
                    "kubectl.kubernetes.io/last-applied-configuration": "{}",
                },
            },
            "subsets": subsets,
        }))
        .unwrap()
    }

    /// `IP… / IP… : PORT…`, the ready ones first.
    fn subset(line: &str) -> Value {
        let (addresses, ports) = line.split_once(':').unwrap();
        let (ready, unready) = addresses.split_once('/').unwrap_or((addresses, ""));
        let all = |words: &str| {
            words.split_whitespace().map(|ip| json!({ "ip": ip.replace('_', ":") })).collect::<Vec<_>>()
        };
        let ports = ports
            .split_whitespace()
            .map(|port| json!({ "port": port.parse::<i32>().unwrap(), "protocol": "TCP" }));
        json!({ "addresses": all(ready), "notReadyAddresses": all(unready), "ports": ports.collect::<Vec<_>>() })
    }

    fn tell(plan: &Plan) -> String {
        let slice = |slice: &EndpointSlice| {
            let ports: Vec<_> = slice.ports.iter().filter_map(|port| Some(port.port?.to_string())).collect();
            let is = |one: &Endpoint| if one.conditions.ready == Some(true) { "" } else { " unready" };
            let endpoint = |one: &Endpoint| format!("{}{}", one.addresses.join("+"), is(one));
            let endpoints: Vec<_> = slice.endpoints.iter().map(endpoint).collect();
            format!(
                "{} {} [{}]: {}",
                slice.metadata.name,
                slice.address_type,
                ports.join(" "),
                endpoints.join(", ")
            )
        };
        let created = plan.create.iter().map(|one| format!("create{}", slice(one)));
        let updated = plan.update.iter().map(|one| format!("update {}", slice(one)));
        let deleted = plan.delete.iter().map(|one| format!("delete {}", one.metadata.name));
        created.chain(updated).chain(deleted).collect::<Vec<_>>().join("\n")
    }

    #[track_caller]
    fn check(lines: &[&str], expected: &[&str]) {
        let (plan, _) = plan(&endpoints(lines.iter().map(|line| subset(line)).collect()), &[]);
        assert_eq!(tell(&plan), expected.join("\n"));
    }

    /// The slices after a plan for nothing that was there.
    fn carried_out(plan: Plan) -> Vec<Arc<EndpointSlice>> {
        let named = |(at, mut slice): (usize, EndpointSlice)| {
            slice.metadata.name = format!("db-{at}").into();
            Arc::new(slice)
        };
        plan.create.into_iter().enumerate().map(named).collect()
    }

    #[test]
    fn each_family_and_set_of_ports_is_a_slice() {
        check(
            &["10.0.0.1 10.0.0.2 / 10.0.0.3 : 80 443"],
            &["create IPv4 [80 443]: 10.0.0.1, 10.0.0.2, 10.0.0.3 unready"],
        );
        check(&["10.0.0.1 fd00__1 : 80"], &["create IPv4 [80]: 10.0.0.1", "create IPv6 [80]: fd00::1"]);
        check(
            &["10.0.0.1 : 80", "10.0.0.2 : 81"],
            &["create IPv4 [80]: 10.0.0.1", "create IPv4 [81]: 10.0.0.2"],
        );
        check(&["10.0.0.1 :"], &["create IPv4 []: 10.0.0.1"]);
        check(&[], &[]);
    }

    #[test]
    fn the_same_addresses_on_other_ports_are_one_slice() {
        check(&["10.0.0.1 : 80", "10.0.0.1 : 443"], &["create IPv4 [80 443]: 10.0.0.1"]);
        // Who is not ready in one place is not.
        check(&["10.0.0.1 : 80", "/ 10.0.0.1 : 80"], &["create IPv4 [80]: 10.0.0.1 unready"]);
    }

    #[test]
    fn addresses_are_said_as_they_are_meant() {
        check(&["010.0.00.1 : 80"], &["create IPv4 [80]: 10.0.0.1"]);
        check(&["__ffff_10.0.0.1 : 80"], &["create IPv4 [80]: 10.0.0.1"]);
        let (plan, skipped) = plan(&endpoints(json!([subset("10.0.0.1 10..1 x : 80")])), &[]);
        assert_eq!(tell(&plan), "create IPv4 [80]: 10.0.0.1");
        assert_eq!(skipped, Skipped { invalid: 2, all: 2 });
    }

    #[test]
    fn a_thousand_are_taken_over_and_the_ready_ones_first() {
        let many = |from: u32, to: u32| {
            (from..to).map(|at| format!("10.1.{}.{}", at / 256, at % 256)).collect::<Vec<_>>().join(" ")
        };
        let line = format!("{} / {} : 80", many(100, 1050), many(0, 100));
        let (plan, skipped) = plan(&endpoints(json!([subset(&line)])), &[]);
        let all = &plan.create[0].endpoints;
        assert_eq!((plan.create.len(), all.len()), (1, 1000));
        assert_eq!(all.iter().filter(|one| one.conditions.ready == Some(true)).count(), 950);
        assert_eq!(skipped, Skipped { invalid: 0, all: 50 });
    }

    #[test]
    fn a_slice_goes_with_the_endpoints_and_says_what_they_say() {
        let (plan, _) = plan(&endpoints(json!([subset("10.0.0.1 : 80")])), &[]);
        assert_eq!(
            serde_json::to_string(&plan.create[0].metadata).unwrap(),
            r#"{"generateName":"db-","namespace":"n","labels":{"a":"1","endpointslice.kubernetes.io/managed-by":"endpointslicemirroring-controller.k8s.io","kubernetes.io/service-name":"db"},"annotations":{"b":"2"},"ownerReferences":[{"apiVersion":"v1","kind":"Endpoints","name":"db","uid":"e","controller":true,"blockOwnerDeletion":true}]}"#
        );
        assert_eq!(
            serde_json::to_string(&plan.create[0].endpoints[0]).unwrap(),
            r#"{"addresses":["10.0.0.1"],"conditions":{"ready":true}}"#
        );
    }

    #[test]
    fn what_changes_changes_its_slice_and_nothing_else() {
        let told = |endpoints: &Endpoints, slices: &[Arc<EndpointSlice>]| tell(&plan(endpoints, slices).0);
        let first = endpoints(json!([subset("10.0.0.1 fd00__1 : 80")]));
        let slices = carried_out(plan(&first, &[]).0);
        assert_eq!(told(&first, &slices), "");
        let more = endpoints(json!([subset("10.0.0.1 10.0.0.2 fd00__1 : 80")]));
        assert_eq!(told(&more, &slices), "update db-0 IPv4 [80]: 10.0.0.1, 10.0.0.2");
        let less = endpoints(json!([subset("fd00__1 : 80")]));
        assert_eq!(told(&less, &slices), "delete db-0");
        let mut noted = first.clone();
        noted.metadata.annotations.set("b", "3");
        assert_eq!(plan(&noted, &slices).0.update.len(), 2);
        let mut another = first.clone();
        another.metadata.uid = "another".into();
        let (plan, _) = plan(&another, &slices);
        assert_eq!((plan.create.len(), plan.delete.len()), (2, 2));
    }

    #[test]
    fn endpoints_may_ask_for_no_slices() {
        let with =
            |more: Value| -> Endpoints { serde_json::from_value(json!({ "metadata": more })).unwrap() };
        assert!(is_mirrored(&with(json!({}))));
        assert!(!is_mirrored(&with(json!({ "labels": { SKIP: "true" } }))));
        assert!(is_mirrored(&with(json!({ "labels": { SKIP: "yes" } }))));
        assert!(!is_mirrored(&with(json!({ "annotations": { LEADER: "{}" } }))));
    }
}
