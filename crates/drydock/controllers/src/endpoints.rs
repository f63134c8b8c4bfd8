//! Endpoints: for each Service with a selector, the addresses of its pods by the ports they answer on.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;

use crate::machinery::awaited::{Awaited, LOOK_AGAIN};
use crate::machinery::cache::{Cache, Kind, Progress};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::rest::{Error, Rest, json_bytes};
use crate::objects::meta::{Meta, Pairs};
use crate::objects::pod::Pod;
use crate::objects::resource::Key;
use crate::objects::service::{EndpointAddress, Endpoints, Service, Subset, SubsetPort};
use crate::service_pods::{hostname, labels, listen, reference, selected, target_port};

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// More addresses than this do not fit; the slices have them all.
const CAPACITY: usize = 1000;

/// What the Endpoints of a Service shall be.
#[derive(Debug, PartialEq)]
pub struct Desired {
    /// Its labels.
    pub labels: Pairs,
    /// Its addresses.
    pub subsets: Vec<Subset>,
    /// Whether some had to be left out.
    pub truncated: bool,
}

/// Decides what the Endpoints of a Service shall be, given the pods it selects.
pub fn desired(service: &Service, pods: &[Arc<Pod>]) -> Desired {
    let publish_all = service.spec.publish_not_ready_addresses;
    // The ports each address answers on; then the addresses each set of ports has.
    let mut by_ports: BTreeMap<Vec<SubsetPort>, Subset> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| publish_all || !pod.metadata.deleting()) {
        let mut ports: Vec<SubsetPort> = service
            .spec
            .ports
            .iter()
            .filter_map(|port| {
                Some(SubsetPort {
                    name: port.name.clone(),
                    port: target_port(pod, port)?,
                    protocol: port.protocol.clone(),
                    app_protocol: port.app_protocol.clone(),
                })
            })
            .collect();
        // A headless Service may have no ports; any other has nothing to say of a pod without them.
        if ports.is_empty() && !(service.spec.ports.is_empty() && service.spec.headless()) {
            continue;
        }
        ports.sort();
        let address = EndpointAddress {
            ip: pod.status.pod_ip.clone(),
            hostname: hostname(pod, service).unwrap_or_default(),
            node_name: Some(pod.spec.node_name.clone()).filter(|name| !name.is_empty()),
            target_ref: Some(reference(pod)),
        };
        let subset = by_ports.entry(ports).or_default();
        if publish_all || pod.ready() {
            subset.addresses.push(address);
        } else {
            subset.not_ready_addresses.push(address);
        }
    }
    let mut subsets: Vec<_> = by_ports
        .into_iter()
        .map(|(ports, mut subset)| {
            subset.addresses.sort();
            subset.not_ready_addresses.sort();
            Subset { ports, ..subset }
        })
        .collect();
    let truncated = truncate(&mut subsets);
    Desired { labels: labels(service, &[(MANAGED_BY, "endpoint-controller")]), subsets, truncated }
}

/// Leaves out what does not fit, ready addresses last. Says whether it did.
fn truncate(subsets: &mut Vec<Subset>) -> bool {
    let total: usize = subsets.iter().map(|one| one.addresses.len() + one.not_ready_addresses.len()).sum();
    if total <= CAPACITY {
        return false;
    }
    let mut room = CAPACITY;
    for subset in subsets.iter_mut() {
        subset.addresses.truncate(room);
        room -= subset.addresses.len();
    }
    for subset in subsets.iter_mut() {
        subset.not_ready_addresses.truncate(room);
        room -= subset.not_ready_addresses.len();
    }
    subsets.retain(|subset| !subset.addresses.is_empty() || !subset.not_ready_addresses.is_empty());
    true
}

/// The controller.
pub struct Controller {
    rest: Rest,
    services: Arc<Cache<Service>>,
    pods: Arc<Cache<Pod>>,
    endpoints: Arc<Cache<Endpoints>>,
    awaited: Awaited<Key>,
    /// Services that have gone, and whose Endpoints go now.
    gone: Arc<Mutex<HashSet<Key>>>,
}

impl Controller {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        services: &mut Informer<Service>,
        pods: &mut Informer<Pod>,
        endpoints: &mut Informer<Endpoints>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        // Before whoever looks for it.
        let gone = Arc::<Mutex<HashSet<Key>>>::default();
        let known = gone.clone();
        services.on_change(move |change| {
            if let (Some(service), None) = (&change.before, &change.after) {
                known.lock().insert(service.metadata.key());
            }
        });
        listen(services, pods, queue);
        endpoints.queue_each(queue);
        Self {
            rest,
            services: services.cache.clone(),
            pods: pods.cache.clone(),
            endpoints: endpoints.cache.clone(),
            awaited: Awaited::default(),
            gone,
        }
    }

    /// Brings the Endpoints of one Service up to date.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        if self.awaited.holds(key) {
            return Ok(Next::After(LOOK_AGAIN));
        }
        let held = self.endpoints.get(key);
        let Some(service) = self.services.get(key) else {
            self.awaited.forget(key);
            // Those of a Service go with it, whoever wrote them. Others that were made by hand may be of one that comes yet,
            // or elect a leader, and stay.
            let follows = self.gone.lock().contains(key);
            let goes = |held: &Arc<Endpoints>| follows || held.metadata.labels.get(MANAGED_BY).is_some();
            if let Some(own) = held.filter(goes) {
                self.delete(key, &own.metadata).await?;
            }
            self.gone.lock().remove(key);
            return Ok(Next::OnChange);
        };
        self.gone.lock().remove(key);
        if !service.spec.selects() {
            return Ok(Next::OnChange);
        }
        let desired = desired(&service, &selected(&self.pods, &service));
        match held {
            Some(held) if matches(&held, &desired) => {}
            Some(held) => {
                let written =
                    self.rest.replace(Endpoints::resource(), key, None, body(&held.metadata, desired)?);
                self.note(key, written.await?.version());
            }
            None => {
                let metadata =
                    Meta { name: key.name.clone(), namespace: key.namespace.clone(), ..Meta::default() };
                match self.rest.create(Endpoints::resource(), &key.namespace, body(&metadata, desired)?).await
                {
                    Ok(written) => self.note(key, written.version()),
                    Err(error) if error.namespace_terminating() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Next::OnChange)
    }

    async fn delete(&self, key: &Key, own: &Meta) -> Result<(), Error> {
        match self.rest.delete(Endpoints::resource(), key, &own.uid, None, None).await {
            Err(error) if !error.not_found() && !error.conflict() => Err(error),
            _ => Ok(()),
        }
    }

    fn note(&self, key: &Key, version: u64) {
        let endpoints: Arc<dyn Progress> = self.endpoints.clone();
        self.awaited.note(key, &endpoints, version);
    }
}

fn matches(held: &Endpoints, desired: &Desired) -> bool {
    held.subsets == desired.subsets
        && held.metadata.labels == desired.labels
        && held.metadata.annotations.get(OVER_CAPACITY).is_some() == desired.truncated
}

fn body(held: &Meta, desired: Desired) -> Result<Vec<u8>, Error> {
    let mut metadata = held.clone();
    metadata.labels = desired.labels;
    metadata.annotations.remove(OVER_CAPACITY);
    if desired.truncated {
        metadata.annotations.set(OVER_CAPACITY, "truncated");
    }
    json_bytes(
        &json!({ "apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": desired.subsets }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service_pods::tests::pod;

    fn service(spec: &str) -> Service {
        let text =
            format!(r#"{{"metadata":{{"name":"web","namespace":"n","labels":{{"a":"1"}}}},"spec":{spec}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn tell(desired: &Desired) -> String {
        let ips = |all: &[EndpointAddress]| all.iter().map(|one| &*one.ip).collect::<Vec<_>>().join(",");
        let lines: Vec<_> = desired
            .subsets
            .iter()
            .map(|subset| {
                let ports: Vec<_> = subset.ports.iter().map(|port| port.port.to_string()).collect();
                format!(
                    "[{}] ready {} not {}",
                    ports.join(","),
                    ips(&subset.addresses),
                    ips(&subset.not_ready_addresses)
                )
            })
            .collect();
        lines.join("\n")
    }

    #[track_caller]
    fn check(spec: &str, pods: &[&str], expected: &str) {
        let pods: Vec<_> = pods.iter().map(|line| pod(line)).collect();
        assert_eq!(tell(&desired(&service(spec), &pods)), expected);
    }

    const PODS: [&str; 4] =
        ["a 10.0.0.2 ready", "b 10.0.0.1 ready", "c 10.0.0.3 unready", "d 10.0.0.4 terminating"];

    #[test]
    fn ready_and_unready_addresses_are_told_apart_and_ending_ones_left_out() {
        let spec = r#"{"clusterIP":"10.96.0.1","selector":{"app":"web"},"ports":[{"port":80,"targetPort":"http","protocol":"TCP"}]}"#;
        check(spec, &PODS, "[8080] ready 10.0.0.1,10.0.0.2 not 10.0.0.3");
    }

    #[test]
    fn a_service_may_publish_everything_as_ready() {
        let spec = r#"{"clusterIP":"None","publishNotReadyAddresses":true,"selector":{"app":"web"},"ports":[{"port":80}]}"#;
        check(spec, &PODS, "[80] ready 10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4 not ");
    }

    #[test]
    fn pods_with_different_ports_are_different_subsets() {
        let spec =
            r#"{"clusterIP":"10.96.0.1","selector":{"app":"web"},"ports":[{"port":80,"targetPort":"http"}]}"#;
        check(
            spec,
            &["a 10.0.0.1 ready 1", "b 10.0.0.2 ready 2"],
            "[1] ready 10.0.0.1 not \n[2] ready 10.0.0.2 not ",
        );
    }

    #[test]
    fn only_a_headless_service_has_addresses_without_ports() {
        check(
            r#"{"clusterIP":"None","selector":{"app":"web"}}"#,
            &["a 10.0.0.1 ready"],
            "[] ready 10.0.0.1 not ",
        );
        check(r#"{"clusterIP":"10.96.0.1","selector":{"app":"web"}}"#, &["a 10.0.0.1 ready"], "");
    }

    #[test]
    fn labels_are_those_of_the_service_and_of_the_controller() {
        let told = format!("{:?}", desired(&service(r#"{"clusterIP":"None"}"#), &[]).labels);
        assert_eq!(
            told,
            r#"{"a": "1", "endpoints.kubernetes.io/managed-by": "endpoint-controller", "service.kubernetes.io/headless": ""}"#
        );
    }
}
