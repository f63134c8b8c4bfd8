//! The slices of a Service with a selector: the addresses of its pods, in pieces of at most a hundred.

use std::net::IpAddr;
use std::sync::Arc;

use super::{ByPorts, MANAGED_BY, Plan, SERVICE_NAME, Shape, Slices};
use crate::machinery::awaited::LOOK_AGAIN;
use crate::machinery::cache::{Cache, Kind};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::rest::{Error, Rest};
use crate::objects::meta::OwnerReference;
use crate::objects::node::Node;
use crate::objects::pod::Pod;
use crate::objects::resource::Key;
use crate::objects::service::{Endpoint, EndpointConditions, EndpointSlice, Service, SlicePort};
use crate::service_pods::{hostname, labels, listen, reference, selected, selecting, target_port};

const ZONE: &str = "topology.kubernetes.io/zone";
const MANAGER: &str = "endpointslice-controller.k8s.io";

/// Endpoints per slice: Kubernetes' number.
const FULL: usize = 100;

/// Decides what to do about the slices of a Service, given the pods it selects, where their nodes are and the slices there
/// are.
fn plan(
    service: &Service,
    pods: &[Arc<Pod>],
    zone: impl Fn(&str) -> Option<Box<str>>,
    slices: &[Arc<EndpointSlice>],
) -> Plan {
    let mut wanted = ByPorts::new();
    for family in families(service) {
        let before = wanted.len();
        for pod in pods {
            if let Some(mut endpoint) = endpoint(service, pod, family) {
                endpoint.zone = zone(&pod.spec.node_name);
                wanted.entry((family.into(), ports(service, pod))).or_default().push(endpoint);
            }
        }
        if wanted.len() == before {
            // A Service without endpoints has one slice that says so.
            wanted.insert((family.into(), Vec::new()), Vec::new());
        }
    }
    let shape = Shape {
        service: service.metadata.key(),
        owner: OwnerReference::to_controller(Service::resource(), &service.metadata),
        labels: labels(service, &[(SERVICE_NAME, &service.metadata.name), (MANAGED_BY, MANAGER)]),
        annotations: None,
        most: FULL,
    };
    shape.plan(wanted, slices)
}

fn families(service: &Service) -> Vec<&str> {
    if service.spec.ip_families.is_empty() {
        return vec!["IPv4"];
    }
    service.spec.ip_families.iter().map(|family| &**family).collect()
}

fn ports(service: &Service, pod: &Pod) -> Vec<SlicePort> {
    let mut ports: Vec<_> = service
        .spec
        .ports
        .iter()
        .filter_map(|port| {
            Some(SlicePort {
                name: Some(port.name.clone()),
                port: Some(target_port(pod, port)?),
                protocol: Some(port.protocol.clone()),
                app_protocol: port.app_protocol.clone(),
            })
        })
        .collect();
    ports.sort();
    ports
}

fn endpoint(service: &Service, pod: &Pod, family: &str) -> Option<Endpoint> {
    let fits = |address: &str| match address.parse() {
        Ok(IpAddr::V4(_)) => family == "IPv4",
        Ok(IpAddr::V6(_)) => family == "IPv6",
        Err(_) => false,
    };
    let addresses: Vec<_> = pod.status.pod_ips.iter().filter(|address| fits(address)).cloned().collect();
    if addresses.is_empty() {
        return None;
    }
    let (serving, terminating) = (pod.ready(), pod.metadata.deleting());
    Some(Endpoint {
        addresses,
        conditions: EndpointConditions {
            ready: Some(service.spec.publish_not_ready_addresses || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        },
        hostname: hostname(pod, service),
        node_name: Some(pod.spec.node_name.clone()).filter(|name| !name.is_empty()),
        zone: None,
        target_ref: Some(reference(pod)),
    })
}

/// Where a node is.
fn zone(node: &Node) -> Option<Box<str>> {
    node.metadata.labels.get(ZONE).filter(|zone| !zone.is_empty()).map(Into::into)
}

/// What the controller listens to.
type Informers<'a> = (
    &'a mut Informer<Service>,
    &'a mut Informer<Pod>,
    &'a mut Informer<Node>,
    &'a mut Informer<EndpointSlice>,
);

/// The controller.
pub struct Controller {
    services: Arc<Cache<Service>>,
    pods: Arc<Cache<Pod>>,
    nodes: Arc<Cache<Node>>,
    slices: Slices,
}

impl Controller {
    /// The controller, listening to these informers.
    pub fn new(rest: Rest, (services, pods, nodes, slices): Informers<'_>, queue: &Arc<Queue<Key>>) -> Self {
        listen(services, pods, queue);
        let (keys, all, known) = (queue.clone(), pods.cache.clone(), services.cache.clone());
        nodes.on_change(move |change| {
            let zone = |node: Option<&Arc<Node>>| node.and_then(|node| zone(node));
            if zone(change.before) != zone(change.after)
                && let Some(node) = change.latest()
            {
                let there = all.all(|pod| *pod.spec.node_name == *node.metadata.name);
                there.iter().flat_map(|pod| selecting(&known, pod)).for_each(|service| keys.add(service));
            }
        });
        Self {
            services: services.cache.clone(),
            pods: pods.cache.clone(),
            nodes: nodes.cache.clone(),
            slices: Slices::of(rest, MANAGER, slices, queue),
        }
    }

    /// Brings the slices of one Service up to date.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(held) = self.slices.held(key) else { return Ok(Next::After(LOOK_AGAIN)) };
        let Some(service) = self.services.get(key).filter(|service| service.spec.selects()) else {
            // The slices of a Service that is gone are its dependents, and go with it.
            return Ok(Next::OnChange);
        };
        if service.metadata.deleting() {
            return Ok(Next::OnChange);
        }
        let zone = |node: &str| zone(&*self.nodes.get(&Key::new("", node))?);
        let plan = plan(&service, &selected(&self.pods, &service), zone, &held);
        self.slices.carry_out(key, plan).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service_pods::tests::pod;

    /// Where all nodes are somewhere.
    fn plan(service: &Service, pods: &[Arc<Pod>], slices: &[Arc<EndpointSlice>]) -> Plan {
        super::plan(service, pods, |node| Some(format!("zone of {node}").into()), slices)
    }

    fn service() -> Service {
        serde_json::from_str(
            r#"{"metadata":{"name":"web","namespace":"n","uid":"s","labels":{"a":"1"}},"spec":{"clusterIP":"10.96.0.1",
                "selector":{"app":"web"},"ipFamilies":["IPv4"],"ports":[{"port":80,"targetPort":"http","protocol":"TCP"}]}}"#,
        )
        .unwrap()
    }

    fn tell(plan: &Plan) -> String {
        let slice = |slice: &EndpointSlice| {
            let ports: Vec<_> =
                slice.ports.iter().filter_map(|port| port.port).map(|port| port.to_string()).collect();
            let endpoint = |one: &Endpoint| {
                let is = |flag: Option<bool>, name| if flag == Some(true) { name } else { "" };
                let of = one.conditions;
                format!(
                    "{}:{}{}{}",
                    one.addresses.join("+"),
                    is(of.ready, "r"),
                    is(of.serving, "s"),
                    is(of.terminating, "t")
                )
            };
            let endpoints: Vec<_> = slice.endpoints.iter().map(endpoint).collect();
            format!("{} [{}] {}", slice.metadata.name, ports.join(","), endpoints.join(" "))
        };
        let created = plan.create.iter().map(|one| format!("create{}", slice(one)));
        let updated = plan.update.iter().map(|one| format!("update {}", slice(one)));
        let deleted = plan.delete.iter().map(|one| format!("delete {}", one.metadata.name));
        created.chain(updated).chain(deleted).collect::<Vec<_>>().join("\n")
    }

    /// Carries a plan out on paper.
    fn carry_out(plan: Plan, mut slices: Vec<Arc<EndpointSlice>>) -> Vec<Arc<EndpointSlice>> {
        slices.retain(|slice| plan.delete.iter().all(|gone| gone.metadata.name != slice.metadata.name));
        for changed in plan.update {
            slices.retain(|slice| slice.metadata.name != changed.metadata.name);
            slices.push(Arc::new(changed));
        }
        for mut new in plan.create {
            new.metadata.name = format!("web-{}", slices.len()).into();
            slices.push(Arc::new(new));
        }
        slices
    }

    #[test]
    fn a_service_without_pods_has_one_empty_slice() {
        let first = plan(&service(), &[], &[]);
        assert_eq!(tell(&first), "create [] ");
        let slices = carry_out(first, Vec::new());
        assert_eq!(tell(&plan(&service(), &[], &slices)), "");
        let then = plan(&service(), &[pod("a 10.0.0.1 ready")], &slices);
        assert_eq!(tell(&then), "update web-0 [8080] 10.0.0.1:rs");
    }

    #[test]
    fn conditions_tell_ready_serving_and_terminating_apart() {
        let pods = [pod("a 10.0.0.1 ready"), pod("b 10.0.0.2 unready"), pod("c 10.0.0.3 terminating")];
        assert_eq!(tell(&plan(&service(), &pods, &[])), "create [8080] 10.0.0.1:rs 10.0.0.2: 10.0.0.3:st");
    }

    #[test]
    fn an_endpoint_is_where_its_node_is() {
        let plan = plan(&service(), &[pod("a 10.0.0.1 ready")], &[]);
        assert_eq!(plan.create[0].endpoints[0].zone.as_deref(), Some("zone of node"));
    }

    #[test]
    fn endpoints_stay_in_their_slice_and_slices_are_filled_before_new_ones_are_made() {
        let pods: Vec<_> = (0..150).map(|at| pod(&format!("p{at:03} 10.0.1.{at} ready"))).collect();
        let slices = carry_out(plan(&service(), &pods, &[]), Vec::new());
        assert_eq!(slices.iter().map(|slice| slice.endpoints.len()).collect::<Vec<_>>(), [100, 50]);
        assert_eq!(tell(&plan(&service(), &pods, &slices)), "");
        let fewer: Vec<_> = pods[..140].iter().chain(&[pod("new 10.0.2.1 ready")]).cloned().collect();
        let changed = plan(&service(), &fewer, &slices);
        assert_eq!((changed.create.len(), changed.update.len(), changed.delete.len()), (0, 1, 0));
        assert_eq!(changed.update[0].endpoints.len(), 41);
    }

    #[test]
    fn slices_of_another_service_of_the_same_name_are_replaced() {
        let slices = carry_out(plan(&service(), &[], &[]), Vec::new());
        let mut again = service();
        again.metadata.uid = "another".into();
        assert_eq!(tell(&plan(&again, &[], &slices)), "create [] \ndelete web-0");
    }

    #[test]
    fn a_slice_is_owned_and_labelled() {
        let plan = plan(&service(), &[], &[]);
        let meta = serde_json::to_string(&plan.create[0].metadata).unwrap();
        assert_eq!(
            meta,
            r#"{"generateName":"web-","namespace":"n","labels":{"a":"1","endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"web"},"ownerReferences":[{"apiVersion":"v1","kind":"Service","name":"web","uid":"s","controller":true,"blockOwnerDeletion":true}]}"#
        );
    }
}
