//! EndpointSlices: the same as Endpoints in pieces of at most a hundred, so that one pod that changes does
//! not make everybody read all of them anew.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::json;

use crate::machinery::awaited::{Awaited, LOOK_AGAIN};
use crate::machinery::cache::{Cache, Kind, Progress};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::rest::{Error, Rest, json_bytes};
use crate::objects::meta::{Meta, OwnerReference, Pairs};
use crate::objects::pod::Pod;
use crate::objects::resource::Key;
use crate::objects::service::{Endpoint, EndpointConditions, EndpointSlice, Service, SlicePort};
use crate::service_pods::{hostname, listen, reference, selected, target_port};

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const HEADLESS: &str = "service.kubernetes.io/headless";
const MANAGER: &str = "endpointslice-controller.k8s.io";

/// Endpoints per slice: Kubernetes' number.
const FULL: usize = 100;

/// What to do about the slices of a Service.
#[derive(Debug, Default)]
pub struct Plan {
    /// Slices to create; they have no name yet.
    pub create: Vec<EndpointSlice>,
    /// Slices to replace.
    pub update: Vec<EndpointSlice>,
    /// Slices to delete.
    pub delete: Vec<Arc<EndpointSlice>>,
}

/// Decides what to do about the slices of a Service, given the pods it selects and the slices there are.
pub fn plan(service: &Service, pods: &[Arc<Pod>], slices: &[Arc<EndpointSlice>]) -> Plan {
    let families = families(service);
    let mut plan = Plan::default();
    for slice in slices.iter().filter(|slice| !families.contains(&&*slice.address_type)) {
        plan.delete.push(slice.clone());
    }
    for family in families {
        let own: Vec<_> = slices.iter().filter(|slice| *slice.address_type == *family).cloned().collect();
        plan_family(service, pods, &own, family, &mut plan);
    }
    plan
}

fn families(service: &Service) -> Vec<&str> {
    if service.spec.ip_families.is_empty() {
        return vec!["IPv4"];
    }
    service.spec.ip_families.iter().map(|family| &**family).collect()
}

fn plan_family(
    service: &Service,
    pods: &[Arc<Pod>],
    slices: &[Arc<EndpointSlice>],
    family: &str,
    plan: &mut Plan,
) {
    let mut wanted: BTreeMap<Vec<SlicePort>, Vec<Endpoint>> = BTreeMap::new();
    for pod in pods {
        if let Some(endpoint) = endpoint(service, pod, family) {
            wanted.entry(ports(service, pod)).or_default().push(endpoint);
        }
    }
    if wanted.is_empty() {
        // A Service without endpoints has one slice that says so.
        wanted.insert(Vec::new(), Vec::new());
    }
    let mut held: BTreeMap<Vec<SlicePort>, Vec<Arc<EndpointSlice>>> = BTreeMap::new();
    for slice in slices {
        let owned = slice.metadata.owner_references.iter().any(|owner| owner.uid == service.metadata.uid);
        if owned {
            let mut ports = slice.ports.clone();
            ports.sort();
            held.entry(ports).or_default().push(slice.clone());
        } else {
            plan.delete.push(slice.clone());
        }
    }
    for (ports, endpoints) in wanted {
        let slices = held.remove(&ports).unwrap_or_default();
        fill(service, family, &ports, endpoints, slices, plan);
    }
    plan.delete.extend(held.into_values().flatten());
}

/// Puts the endpoints of one set of ports into slices: each stays where it is, the new ones go where there is
/// room, and what is left over becomes new slices.
fn fill(
    service: &Service,
    family: &str,
    ports: &[SlicePort],
    endpoints: Vec<Endpoint>,
    slices: Vec<Arc<EndpointSlice>>,
    plan: &mut Plan,
) {
    let labels = labels(service);
    let identity = |endpoint: &Endpoint| {
        let uid = endpoint.target_ref.as_ref().map(|target| target.uid.clone());
        (uid, endpoint.addresses.clone())
    };
    let mut left: BTreeMap<_, _> =
        endpoints.into_iter().map(|endpoint| (identity(&endpoint), endpoint)).collect();
    let nothing = left.is_empty();
    let mut kept = Vec::with_capacity(slices.len());
    for slice in &slices {
        let staying: Vec<_> = slice.endpoints.iter().filter_map(|own| left.remove(&identity(own))).collect();
        kept.push(staying);
    }
    let mut left = left.into_values();
    // The fullest first, so that few slices change.
    let mut order: Vec<usize> = (0..kept.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(kept[*at].len()));
    for at in order {
        let room = FULL.saturating_sub(kept[at].len());
        kept[at].extend(left.by_ref().take(room));
    }
    let mut placeholder = nothing;
    for (slice, endpoints) in slices.into_iter().zip(kept) {
        if endpoints.is_empty() && !std::mem::take(&mut placeholder) {
            plan.delete.push(slice);
        } else if endpoints != slice.endpoints || labels != slice.metadata.labels {
            let mut changed = (*slice).clone();
            changed.metadata.labels = labels.clone();
            changed.endpoints = endpoints;
            plan.update.push(changed);
        }
    }
    let rest: Vec<_> = left.collect();
    let empty: &[Endpoint] = &[];
    for endpoints in rest.chunks(FULL).chain(placeholder.then_some(empty)) {
        let metadata = Meta {
            generate_name: Some(format!("{}-", service.metadata.name).into()),
            namespace: service.metadata.namespace.clone(),
            labels: labels.clone(),
            owner_references: vec![OwnerReference::to_controller(Service::resource(), &service.metadata)],
            ..Meta::default()
        };
        let (ports, endpoints) = (ports.to_vec(), endpoints.to_vec());
        plan.create.push(EndpointSlice { metadata, address_type: family.into(), endpoints, ports });
    }
}

fn labels(service: &Service) -> Pairs {
    let mut labels = service.metadata.labels.clone();
    if service.spec.headless() {
        labels.set(HEADLESS, "");
    } else {
        labels.remove(HEADLESS);
    }
    labels.set(SERVICE_NAME, &service.metadata.name);
    labels.set(MANAGED_BY, MANAGER);
    labels
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
        target_ref: Some(reference(pod)),
    })
}

/// The controller.
pub struct Controller {
    rest: Rest,
    services: Arc<Cache<Service>>,
    pods: Arc<Cache<Pod>>,
    slices: Arc<Cache<EndpointSlice>>,
    awaited: Awaited<Key>,
}

impl Controller {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        services: &mut Informer<Service>,
        pods: &mut Informer<Pod>,
        slices: &mut Informer<EndpointSlice>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        listen(services, pods, queue);
        let keys = queue.clone();
        slices.on_change(move |change| {
            if let Some(slice) = change.latest().filter(|slice| own(slice))
                && let Some(service) = slice.metadata.labels.get(SERVICE_NAME)
            {
                keys.add(Key::new(slice.metadata.namespace.clone(), service));
            }
        });
        Self {
            rest,
            services: services.cache.clone(),
            pods: pods.cache.clone(),
            slices: slices.cache.clone(),
            awaited: Awaited::default(),
        }
    }

    /// Brings the slices of one Service up to date.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        if self.awaited.holds(key) {
            return Ok(Next::After(LOOK_AGAIN));
        }
        let Some(service) = self.services.get(key).filter(|service| service.spec.selects()) else {
            // The slices of a Service that is gone are its dependents, and go with it.
            self.awaited.forget(key);
            return Ok(Next::OnChange);
        };
        if service.metadata.deleting() {
            return Ok(Next::OnChange);
        }
        let labels = [(SERVICE_NAME, &*key.name), (MANAGED_BY, MANAGER)].into_iter().collect();
        let slices = self.slices.labelled(&key.namespace, &labels, |slice| !slice.metadata.deleting());
        let plan = plan(&service, &selected(&self.pods, &service), &slices);
        for slice in plan.update {
            let body = body(&slice)?;
            let written =
                self.rest.replace(EndpointSlice::resource(), &slice.metadata.key(), None, body).await?;
            self.note(key, written.version());
        }
        for slice in plan.create {
            match self.rest.create(EndpointSlice::resource(), &key.namespace, body(&slice)?).await {
                Ok(written) => self.note(key, written.version()),
                Err(error) if error.namespace_terminating() => return Ok(Next::OnChange),
                Err(error) => return Err(error),
            }
        }
        for slice in plan.delete {
            let meta = &slice.metadata;
            match self.rest.delete(EndpointSlice::resource(), &meta.key(), &meta.uid, None, None).await {
                Err(error) if !error.not_found() && !error.conflict() => return Err(error),
                _ => {}
            }
        }
        Ok(Next::OnChange)
    }

    fn note(&self, key: &Key, version: u64) {
        let slices: Arc<dyn Progress> = self.slices.clone();
        self.awaited.note(key, &slices, version);
    }
}

fn own(slice: &EndpointSlice) -> bool {
    slice.metadata.labels.get(MANAGED_BY) == Some(MANAGER)
}

fn body(slice: &EndpointSlice) -> Result<Vec<u8>, Error> {
    json_bytes(&json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": slice.metadata,
        "addressType": slice.address_type,
        "endpoints": slice.endpoints,
        "ports": slice.ports,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service_pods::tests::pod;

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
        assert_eq!(tell(&then), "create [8080] 10.0.0.1:rs\ndelete web-0");
    }

    #[test]
    fn conditions_tell_ready_serving_and_terminating_apart() {
        let pods = [pod("a 10.0.0.1 ready"), pod("b 10.0.0.2 unready"), pod("c 10.0.0.3 terminating")];
        assert_eq!(tell(&plan(&service(), &pods, &[])), "create [8080] 10.0.0.1:rs 10.0.0.2: 10.0.0.3:st");
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
