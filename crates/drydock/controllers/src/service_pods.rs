//! What Endpoints and EndpointSlices have in common: which pods answer for a Service, on which ports, and
//! which Services a changed pod concerns.

use std::sync::Arc;

use crate::machinery::cache::{Cache, Change};
use crate::machinery::informer::Informer;
use crate::machinery::queue::Queue;
use crate::objects::meta::Pairs;
use crate::objects::pod::Pod;
use crate::objects::resource::Key;
use crate::objects::service::{ObjectReference, Service, ServicePort};
use crate::objects::workload::IntOrPercent;

const HEADLESS: &str = "service.kubernetes.io/headless";

/// Has the keys of Services put on the queue when they or their pods change.
pub fn listen(services: &mut Informer<Service>, pods: &mut Informer<Pod>, queue: &Arc<Queue<Key>>) {
    services.queue_each(queue);
    let (keys, known) = (queue.clone(), services.cache.clone());
    pods.on_change(move |change| {
        if !concerns_services(change) {
            return;
        }
        change.both().flat_map(|pod| selecting(&known, pod)).for_each(|service| keys.add(service));
    });
}

/// The Services that a pod answers for.
pub fn selecting(services: &Cache<Service>, pod: &Pod) -> impl Iterator<Item = Key> + use<> {
    let found = services.selecting(&pod.metadata.namespace, &pod.metadata.labels, |_| true);
    found.into_iter().map(|service| service.metadata.key())
}

/// Whether anything changed that a Service could tell. A pod without an address is none of its business.
fn concerns_services(change: &Change<'_, Pod>) -> bool {
    let published = |pod: &&Arc<Pod>| !pod.status.pod_ip.is_empty();
    match (change.before.filter(published), change.after.filter(published)) {
        (None, None) => false,
        (Some(before), Some(after)) => {
            before.status.pod_ip != after.status.pod_ip
                || before.status.pod_ips != after.status.pod_ips
                || before.ready() != after.ready()
                || before.finished() != after.finished()
                || before.metadata.deleting() != after.metadata.deleting()
                || before.metadata.labels != after.metadata.labels
                || before.metadata.uid != after.metadata.uid
                || before.spec.node_name != after.spec.node_name
        }
        _ => true,
    }
}

/// The pods a Service selects that have an address and have not ended, by name.
pub fn selected(pods: &Cache<Pod>, service: &Service) -> Vec<Arc<Pod>> {
    pods.labelled(&service.metadata.namespace, &service.spec.selector, |pod| {
        !pod.status.pod_ip.is_empty() && !pod.finished()
    })
}

/// The port of the pod that a port of the Service leads to; a name is looked up in the pod.
pub fn target_port(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let protocol = |given: &str| if given.is_empty() { "TCP".to_owned() } else { given.to_owned() };
    match &port.target_port {
        None => Some(port.port),
        Some(IntOrPercent::Int(number)) => Some(*number),
        Some(IntOrPercent::Percent(name)) => {
            let sidecars = pod.spec.init_containers.iter().filter(|one| &*one.restart_policy == "Always");
            pod.spec
                .containers
                .iter()
                .chain(sidecars)
                .flat_map(|container| &container.ports)
                .find(|own| own.name == *name && protocol(&own.protocol) == protocol(&port.protocol))
                .map(|own| own.container_port)
        }
    }
}

/// The host name under which a headless Service publishes the pod.
pub fn hostname(pod: &Pod, service: &Service) -> Option<Box<str>> {
    let named = !pod.spec.hostname.is_empty() && *pod.spec.subdomain == *service.metadata.name;
    named.then(|| pod.spec.hostname.clone())
}

/// The labels of what is made for a Service: its own, and these.
pub fn labels(service: &Service, more: &[(&str, &str)]) -> Pairs {
    let mut labels = service.metadata.labels.clone();
    labels.remove(HEADLESS);
    let headless = service.spec.headless().then_some((HEADLESS, ""));
    for (name, value) in headless.iter().chain(more) {
        labels.set(name, value);
    }
    labels
}

/// The reference to a pod in an endpoint.
pub fn reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: "Pod".into(),
        namespace: (&*pod.metadata.namespace).into(),
        name: (&*pod.metadata.name).into(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::objects::pod::{Container, ContainerPort, Phase, Ready};

    /// `name ip ready|unready|terminating|ended [port]`: one pod of app `web` with the port named `http`.
    pub fn pod(line: &str) -> Arc<Pod> {
        let words: Vec<_> = line.split_whitespace().collect();
        let mut pod = Pod::default();
        pod.metadata.name = words[0].into();
        pod.metadata.namespace = "n".into();
        pod.metadata.uid = words[0].into();
        pod.metadata.labels = [("app", "web")].into_iter().collect();
        pod.spec.node_name = "node".into();
        pod.status.phase = Phase::Running;
        pod.status.pod_ip = words[1].trim_matches('-').into();
        pod.status.pod_ips = vec![pod.status.pod_ip.clone()];
        pod.status.ready = Some(Ready { is: words[2] != "unready", since: None });
        if words[2] == "terminating" {
            pod.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".parse().unwrap());
        }
        if words[2] == "ended" {
            pod.status.phase = Phase::Succeeded;
        }
        let number = words.get(3).map_or(8080, |port| port.parse().unwrap());
        let port = ContainerPort {
            name: "http".into(),
            container_port: number,
            protocol: "TCP".into(),
            ..ContainerPort::default()
        };
        pod.spec.containers.push(Container { restart_policy: "".into(), ports: vec![port] });
        Arc::new(pod)
    }

    #[test]
    fn a_named_port_is_looked_up_in_the_pod() {
        let pod = pod("a 10.0.0.1 ready 9000");
        let port = |target: Option<IntOrPercent>| ServicePort {
            port: 80,
            target_port: target,
            ..Default::default()
        };
        assert_eq!(target_port(&pod, &port(None)), Some(80));
        assert_eq!(target_port(&pod, &port(Some(IntOrPercent::Int(81)))), Some(81));
        assert_eq!(target_port(&pod, &port(Some(IntOrPercent::Percent("http".into())))), Some(9000));
        assert_eq!(target_port(&pod, &port(Some(IntOrPercent::Percent("other".into())))), None);
    }

    #[test]
    fn a_pod_without_an_address_concerns_no_service() {
        let (pending, ready) = (pod("a - unready"), pod("a 10.0.0.1 ready"));
        assert!(!concerns_services(&Change { before: None, after: Some(&pending) }));
        assert!(concerns_services(&Change { before: Some(&pending), after: Some(&ready) }));
        assert!(!concerns_services(&Change { before: Some(&ready), after: Some(&ready) }));
        assert!(concerns_services(&Change { before: Some(&ready), after: None }));
    }
}
