//! What every cluster has before anybody asks for anything.

use std::net::{Ipv4Addr, SocketAddr};

use drydock_access::{RBAC_GROUP, bootstrap};
use serde_json::{Value, json};

use crate::{Api, call::Call, delete::DeleteOptions, failure::Failure};

/// Why a cluster could not be begun.
#[derive(Debug, thiserror::Error)]
#[error("the object {object} that every cluster has could not be made: {failure}")]
pub struct BootstrapError {
    /// Which object.
    object: String,
    /// Why not.
    failure: Failure,
}

impl BootstrapError {
    /// Whether it is for want of room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.failure, Failure::Full(_))
    }
}

impl Api {
    /// Makes the namespaces, the default roles and bindings and the Service `kubernetes`, where they
    /// are not there already. What somebody changed is left as it is. Definitions that an earlier
    /// process left unsettled are settled.
    ///
    /// # Errors
    /// When the store can't be written.
    pub async fn bootstrap(&self) -> Result<(), BootstrapError> {
        let namespaces = ["kube-system", "kube-public", "kube-node-lease", "default"].map(|name| {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            ("", "namespaces", namespace)
        });
        self.ensure_all(namespaces).await?;
        let of =
            |plural, objects: Vec<Value>| objects.into_iter().map(move |object| (RBAC_GROUP, plural, object));
        let rules = of("clusterroles", bootstrap::cluster_roles())
            .chain(of("clusterrolebindings", bootstrap::cluster_role_bindings()))
            .chain(of("roles", bootstrap::roles()))
            .chain(of("rolebindings", bootstrap::role_bindings()));
        self.ensure_all(rules).await?;
        self.ensure("", "services", kubernetes_service()).await?;
        self.settle_definitions().await;
        // Where an earlier process was reached.
        self.advertise(None).await
    }

    /// The API is served at `address`, which is known at once to whoever asks for it; the future leads Pods there
    /// too, and [advertises](Api::advertise) the address unless it is this machine's alone. The first address counts.
    ///
    /// # Errors
    /// When the store can't be written.
    pub fn served_at(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = Result<(), BootstrapError>> + Send + use<> {
        let first = self.served().set(address).is_ok();
        let api = self.clone();
        async move {
            if !first {
                return Ok(());
            }
            api.lead_pods_to(address.port()).await?;
            if address.ip().is_loopback() { Ok(()) } else { api.advertise(Some(address)).await }
        }
    }

    /// Tells those within the cluster where the API is reached, by the Endpoints and the EndpointSlice of the Service
    /// `kubernetes`; or nowhere, which is also what a real server tells that only its own machine reaches.
    ///
    /// # Errors
    /// When the store can't be written.
    pub async fn advertise(&self, at: Option<SocketAddr>) -> Result<(), BootstrapError> {
        for (group, plural, fields, object) in endpoints(at.unwrap_or_else(nowhere)) {
            let Some(kind) = self.registry().find(group, "v1", plural) else { continue };
            let key = drydock_store::Key::new(format!("{group}/{plural}"), NAMESPACE, NAME);
            let there = self.store().get(&key);
            let told = match (there, at) {
                (None, None) => Ok(()),
                (None, Some(_)) => self.create_as_system(&kind, object).await,
                (Some(_), None) => {
                    let options = DeleteOptions::default();
                    let gone = async |call: Call<'_>| call.delete_object(&options).await.map(|_| ());
                    self.as_system(&kind, NAMESPACE, NAME, gone).await
                }
                (Some(_), Some(_)) => {
                    let told = async |call: Call<'_>| {
                        let change = |live: &Value| {
                            let mut next = live.clone();
                            fields.iter().for_each(|field| next[field] = object[field].clone());
                            Ok(call.manage(Some(live), next, None))
                        };
                        call.update(None, change).await.map(|_| ())
                    };
                    self.as_system(&kind, NAMESPACE, NAME, told).await
                }
            };
            told.map_err(|failure| BootstrapError { object: key.to_string(), failure })?;
        }
        Ok(())
    }

    async fn lead_pods_to(&self, port: u16) -> Result<(), BootstrapError> {
        let Some(kind) = self.registry().find("", "v1", "services") else { return Ok(()) };
        let led = self.as_system(&kind, NAMESPACE, NAME, async |call| {
            let change = |live: &Value| {
                let mut service = live.clone();
                if let Some(target) = service.pointer_mut("/spec/ports/0/targetPort") {
                    *target = port.into();
                }
                Ok(call.manage(Some(live), service, None))
            };
            call.update(None, change).await.map(|_| ())
        });
        led.await.map_err(|failure| BootstrapError { object: format!("{NAMESPACE}/{NAME}"), failure })
    }

    /// Makes many objects at once, so that a store on disk writes them together.
    async fn ensure_all(
        &self,
        objects: impl IntoIterator<Item = (&'static str, &'static str, Value)>,
    ) -> Result<(), BootstrapError> {
        let made = objects.into_iter().map(|(group, plural, object)| self.ensure(group, plural, object));
        futures::future::try_join_all(made).await.map(|_| ())
    }

    async fn ensure(&self, group: &str, plural: &str, object: Value) -> Result<(), BootstrapError> {
        let metadata = &object["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let key = drydock_store::Key::new(format!("{group}/{plural}"), namespace.as_str(), name.as_str());
        if self.store().get(&key).is_some() {
            return Ok(());
        }
        let Some(kind) = self.registry().find(group, "v1", plural) else { return Ok(()) };
        self.create_as_system(&kind, object)
            .await
            .map_err(|failure| BootstrapError { object: key.to_string(), failure })
    }
}

/// The Service of the API, and the endpoints that carry its name.
const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";

fn nowhere() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::UNSPECIFIED, UNSERVED_PORT))
}

/// Where the API is, in the two forms: the group, the plural and what of it may change.
fn endpoints(at: SocketAddr) -> [(&'static str, &'static str, &'static [&'static str], Value); 2] {
    let (address, port) =
        (at.ip().to_string(), json!({"name": "https", "port": at.port(), "protocol": "TCP"}));
    let subset = json!({"addresses": [{"ip": address}], "ports": [port]});
    // Mirrored it would be there twice.
    let labels = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
    let metadata = |labels: Value| json!({"name": NAME, "namespace": NAMESPACE, "labels": labels});
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": metadata(labels), "subsets": [subset],
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": metadata(json!({"kubernetes.io/service-name": NAME})),
        "addressType": if at.is_ipv6() { "IPv6" } else { "IPv4" },
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
        "ports": [port],
    });
    [
        ("", "endpoints", &["subsets"], endpoints),
        ("discovery.k8s.io", "endpointslices", &["endpoints", "ports"], slice),
    ]
}

/// Where Pods would find an API that nobody serves.
const UNSERVED_PORT: u16 = 443;

/// How Pods reach the API.
fn kubernetes_service() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "10.96.0.1",
            "sessionAffinity": "None",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": UNSERVED_PORT}],
        },
    })
}
