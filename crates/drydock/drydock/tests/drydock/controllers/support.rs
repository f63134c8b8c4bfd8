//! A cluster with controllers, and short words for what tests do with it.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use drydock::Drydock;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

/// A cluster with controllers.
pub struct Cluster {
    pub drydock: Drydock,
    pub client: Client,
}

impl Cluster {
    pub async fn start() -> Self {
        Self::of(Drydock::builder()).await
    }

    pub async fn of(builder: drydock::Builder) -> Self {
        let drydock = builder.start().await.unwrap();
        let client = drydock.client();
        Self { drydock, client }
    }

    pub fn all<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        Api::all(self.client.clone())
    }

    pub fn in_default<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Runs pods that are not being deleted, one address each.
    pub fn run_pods(&self) {
        let pods: Api<Pod> = self.all();
        let client = self.client.clone();
        tokio::spawn(async move {
            let next = AtomicU32::new(1);
            let changes = watcher(pods, watcher::Config::default()).applied_objects();
            let mut changes = std::pin::pin!(changes);
            while let Some(pod) = changes.next().await {
                let Ok(pod) = pod else { return };
                let runs = pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some());
                if runs || pod.metadata.deletion_timestamp.is_some() {
                    continue;
                }
                let address = format!("10.1.0.{}", next.fetch_add(1, Ordering::Relaxed));
                let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
                let status = json!({ "status": {
                    "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }],
                    "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": jiff::Timestamp::now() }],
                } });
                let _ =
                    pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(status)).await;
            }
        });
    }

    pub async fn deploy(&self, replicas: i32, image: &str) {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "web" },
            "spec": {
                "replicas": replicas,
                "selector": { "matchLabels": { "app": "web" } },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "containers": [{ "name": "web", "image": image, "ports": [{ "name": "http", "containerPort": 8080 }] }] },
                },
            },
        });
        let parameters = PatchParams::apply("test").force();
        self.in_default::<Deployment>().patch("web", &parameters, &Patch::Apply(deployment)).await.unwrap();
    }

    /// Waits until the Deployment says that it is rolled out.
    pub async fn rolled_out(&self, replicas: i32) -> Deployment {
        let deployments = self.in_default::<Deployment>();
        eventually("rolled out", || async {
            let deployment = deployments.get("web").await.ok()?;
            let status = deployment.status.clone().unwrap_or_default();
            let done = status.observed_generation == deployment.metadata.generation
                && status.updated_replicas.unwrap_or(0) == replicas
                && status.replicas.unwrap_or(0) == replicas
                && status.available_replicas.unwrap_or(0) == replicas;
            done.then_some(deployment)
        })
        .await
    }

    pub async fn names<K>(&self, api: &Api<K>) -> BTreeSet<String>
    where
        K: kube::Resource + Clone + k8s_openapi::serde::de::DeserializeOwned + std::fmt::Debug,
    {
        api.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect()
    }

    pub async fn define_things(&self) -> Api<DynamicObject> {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "things.x.io" },
            "spec": {
                "group": "x.io", "scope": "Namespaced",
                "names": { "plural": "things", "singular": "thing", "kind": "Thing" },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }],
            },
        });
        let definitions: Api<CustomResourceDefinition> = self.all();
        definitions
            .create(&PostParams::default(), &serde_json::from_value(definition).unwrap())
            .await
            .unwrap();
        eventually("established", || async {
            let status = definitions.get("things.x.io").await.ok()?.status?;
            let established =
                status.conditions?.into_iter().any(|one| one.type_ == "Established" && one.status == "True");
            established.then_some(())
        })
        .await;
        let resource = ApiResource {
            group: "x.io".into(),
            version: "v1".into(),
            api_version: "x.io/v1".into(),
            kind: "Thing".into(),
            plural: "things".into(),
        };
        Api::namespaced_with(self.client.clone(), "default", &resource)
    }
}

/// Waits until something is so.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut probe: impl FnMut() -> F) -> T {
    let wait = async {
        loop {
            if let Some(found) = probe().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    match tokio::time::timeout(Duration::from_secs(20), wait).await {
        Ok(found) => found,
        Err(_) => panic!("never: {what}"),
    }
}

pub fn object<K: k8s_openapi::serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}
