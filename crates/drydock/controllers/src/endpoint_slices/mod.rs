//! EndpointSlices: the same as Endpoints in pieces, so that one address that changes does not make everybody read all
//! of them anew.
//!
//! Those of a Service with a selector are made of its pods, by [`selected`]; those of one without are made of the
//! Endpoints that somebody wrote for it, by [`mirrored`]. Who reads Services reads slices only.
//!
//! # Guarantees
//! - An endpoint stays in the slice that it is in, as long as it answers on the same ports.
//! - A slice that another one manages, by its label, is left alone.

pub mod mirrored;
pub mod selected;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use crate::machinery::awaited::Awaited;
use crate::machinery::cache::{Cache, Kind, Progress};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::rest::{Error, Rest, json_bytes};
use crate::objects::meta::{Meta, OwnerReference, Pairs};
use crate::objects::resource::Key;
use crate::objects::service::{Endpoint, EndpointSlice, SlicePort};

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

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

/// What all slices of a Service have in common.
struct Shape {
    /// The Service.
    service: Key,
    /// What they are made of, and go with.
    owner: OwnerReference,
    /// Their labels.
    labels: Pairs,
    /// Their annotations; nobody cares which where there is nothing to take over.
    annotations: Option<Pairs>,
    /// How many endpoints one has at the most.
    most: usize,
}

/// Endpoints by the family of their addresses and the ports they answer on.
type ByPorts = BTreeMap<(Box<str>, Vec<SlicePort>), Vec<Endpoint>>;

impl Shape {
    /// Decides what to do about the slices there are. A family and ports without endpoints have one slice that says so.
    fn plan(&self, wanted: ByPorts, slices: &[Arc<EndpointSlice>]) -> Plan {
        let (mut plan, mut foreign) = (Plan::default(), Vec::new());
        let mut held: BTreeMap<_, Vec<Arc<EndpointSlice>>> = BTreeMap::new();
        for slice in slices {
            if slice.metadata.owner_references.iter().any(|owner| owner.uid == self.owner.uid) {
                let mut ports = slice.ports.clone();
                ports.sort();
                held.entry((slice.address_type.clone(), ports)).or_default().push(slice.clone());
            } else {
                foreign.push(slice.clone());
            }
        }
        for (of, endpoints) in wanted {
            let slices = held.remove(&of).unwrap_or_default();
            self.fill(of, endpoints, slices, &mut plan);
        }
        plan.delete.extend(held.into_values().flatten());
        self.reuse(&mut plan);
        plan.delete.extend(foreign);
        plan
    }

    /// Lets what would go become what would come, so that nobody is told of an address twice or not at all meanwhile.
    fn reuse(&self, plan: &mut Plan) {
        for new in std::mem::take(&mut plan.create) {
            match plan.delete.iter().position(|old| old.address_type == new.address_type) {
                Some(at) => {
                    let mut metadata = plan.delete.remove(at).metadata.clone();
                    metadata.labels = self.labels.clone();
                    metadata.annotations = self.annotations.clone().unwrap_or(metadata.annotations);
                    plan.update.push(EndpointSlice { metadata, ..new });
                }
                None => plan.create.push(new),
            }
        }
    }

    /// Puts the endpoints of one set of ports into slices: each stays where it is, the new ones go where there is
    /// room, and what is left over becomes new slices.
    fn fill(
        &self,
        (family, ports): (Box<str>, Vec<SlicePort>),
        endpoints: Vec<Endpoint>,
        slices: Vec<Arc<EndpointSlice>>,
        plan: &mut Plan,
    ) {
        let identity = |endpoint: &Endpoint| {
            let uid = endpoint.target_ref.as_ref().map(|target| target.uid.clone());
            (uid, endpoint.addresses.clone())
        };
        let mut left: BTreeMap<_, _> =
            endpoints.into_iter().map(|endpoint| (identity(&endpoint), endpoint)).collect();
        let nothing = left.is_empty();
        let mut kept = Vec::with_capacity(slices.len());
        for slice in &slices {
            let staying: Vec<_> =
                slice.endpoints.iter().filter_map(|own| left.remove(&identity(own))).collect();
            kept.push(staying);
        }
        let mut left = left.into_values();
        // The fullest first, so that few slices change.
        let mut order: Vec<usize> = (0..kept.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(kept[*at].len()));
        for at in order {
            let room = self.most.saturating_sub(kept[at].len());
            kept[at].extend(left.by_ref().take(room));
        }
        let mut placeholder = nothing;
        for (slice, endpoints) in slices.into_iter().zip(kept) {
            let annotations = self.annotations.as_ref().unwrap_or(&slice.metadata.annotations);
            if endpoints.is_empty() && !std::mem::take(&mut placeholder) {
                plan.delete.push(slice);
            } else if endpoints != slice.endpoints
                || self.labels != slice.metadata.labels
                || *annotations != slice.metadata.annotations
            {
                let mut changed = (*slice).clone();
                changed.metadata.labels = self.labels.clone();
                changed.metadata.annotations = annotations.clone();
                changed.endpoints = endpoints;
                plan.update.push(changed);
            }
        }
        let rest: Vec<_> = left.collect();
        let empty: &[Endpoint] = &[];
        for endpoints in rest.chunks(self.most).chain(placeholder.then_some(empty)) {
            let metadata = Meta {
                generate_name: Some(format!("{}-", self.service.name).into()),
                namespace: self.service.namespace.clone(),
                labels: self.labels.clone(),
                annotations: self.annotations.clone().unwrap_or_default(),
                owner_references: vec![self.owner.clone()],
                ..Meta::default()
            };
            let (ports, endpoints) = (ports.clone(), endpoints.to_vec());
            plan.create.push(EndpointSlice { metadata, address_type: family.clone(), endpoints, ports });
        }
    }
}

/// The slices that one controller manages.
struct Slices {
    rest: Rest,
    /// The value of the label that says so.
    manager: &'static str,
    known: Arc<Cache<EndpointSlice>>,
    awaited: Awaited<Key>,
}

impl Slices {
    /// Those with this label: a Service is queued when one of its own changes.
    fn of(
        rest: Rest,
        manager: &'static str,
        slices: &mut Informer<EndpointSlice>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        let keys = queue.clone();
        slices.on_change(move |change| {
            for slice in change.both() {
                let labels = &slice.metadata.labels;
                if labels.get(MANAGED_BY) == Some(manager)
                    && let Some(service) = labels.get(SERVICE_NAME)
                {
                    keys.add(Key::new(slice.metadata.namespace.clone(), service));
                }
            }
        });
        Self { rest, manager, known: slices.cache.clone(), awaited: Awaited::default() }
    }

    /// The slices of a Service; none can be told before its last writes are seen.
    fn held(&self, service: &Key) -> Option<Vec<Arc<EndpointSlice>>> {
        if self.awaited.holds(service) {
            return None;
        }
        let labels = [(SERVICE_NAME, &*service.name), (MANAGED_BY, self.manager)].into_iter().collect();
        Some(self.known.labelled(&service.namespace, &labels, |slice| !slice.metadata.deleting()))
    }

    async fn carry_out(&self, service: &Key, plan: Plan) -> Result<Next, Error> {
        for slice in plan.update {
            let (key, body) = (slice.metadata.key(), body(&slice)?);
            let written = self.rest.replace(EndpointSlice::resource(), &key, None, body).await?;
            self.note(service, written.version());
        }
        for slice in plan.create {
            match self.rest.create(EndpointSlice::resource(), &service.namespace, body(&slice)?).await {
                Ok(written) => self.note(service, written.version()),
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

    fn note(&self, service: &Key, version: u64) {
        let slices: Arc<dyn Progress> = self.known.clone();
        self.awaited.note(service, &slices, version);
    }
}

/// A slice as it is written: of nothing Kubernetes says `null`.
fn body(slice: &EndpointSlice) -> Result<Vec<u8>, Error> {
    json_bytes(&json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": slice.metadata,
        "addressType": slice.address_type,
        "endpoints": Some(&slice.endpoints).filter(|all| !all.is_empty()),
        "ports": Some(&slice.ports).filter(|all| !all.is_empty()),
    }))
}
