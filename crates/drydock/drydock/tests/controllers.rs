//! The built-in controllers on a cluster in memory, with a kubelet that does nothing but say that pods run.

#![expect(clippy::unwrap_used, clippy::panic, reason = "what helps a test fails like a test")]

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use drydock::{Drydock, Fault, Verb};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, Event, Namespace, Pod, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

/// A cluster with controllers.
struct Cluster {
    drydock: Drydock,
    client: Client,
}

impl Cluster {
    async fn start() -> Self {
        let drydock = Drydock::builder().start().await.unwrap();
        let client = drydock.client();
        Self { drydock, client }
    }

    fn all<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        Api::all(self.client.clone())
    }

    fn in_default<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Runs pods that are not being deleted, one address each.
    fn run_pods(&self) {
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

    async fn deploy(&self, replicas: i32, image: &str) {
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
    async fn rolled_out(&self, replicas: i32) -> Deployment {
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

    async fn names<K>(&self, api: &Api<K>) -> BTreeSet<String>
    where
        K: kube::Resource + Clone + k8s_openapi::serde::de::DeserializeOwned + std::fmt::Debug,
    {
        api.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect()
    }

    async fn define_things(&self) -> Api<DynamicObject> {
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
async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut probe: impl FnMut() -> F) -> T {
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

fn object<K: k8s_openapi::serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

#[tokio::test]
async fn every_namespace_gets_its_account_and_the_certificate() {
    let cluster = Cluster::start().await;
    let namespaces: Api<Namespace> = cluster.all();
    namespaces
        .create(&PostParams::default(), &object(json!({ "metadata": { "name": "new" } })))
        .await
        .unwrap();
    for namespace in ["default", "kube-system", "new"] {
        let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), namespace);
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), namespace);
        eventually("the account", || async { accounts.get("default").await.ok() }).await;
        let map = eventually("the certificate", || async { maps.get("kube-root-ca.crt").await.ok() }).await;
        assert_eq!(map.data.unwrap()["ca.crt"], cluster.drydock.ca_pem());
        accounts.delete("default", &DeleteParams::default()).await.unwrap();
        eventually("the account again", || async { accounts.get("default").await.ok() }).await;
    }
}

#[tokio::test]
async fn a_deployment_rolls_out_scales_and_rolls_back() {
    let cluster = Cluster::start().await;
    cluster.run_pods();
    cluster.deploy(3, "web:1").await;
    let first = cluster.rolled_out(3).await;
    assert_eq!(first.annotations()["deployment.kubernetes.io/revision"], "1");
    let conditions = first.status.unwrap().conditions.unwrap();
    let told: BTreeSet<_> = conditions
        .iter()
        .map(|one| format!("{}={} {}", one.type_, one.status, one.reason.clone().unwrap_or_default()))
        .collect();
    assert_eq!(
        told.into_iter().collect::<Vec<_>>(),
        ["Available=True MinimumReplicasAvailable", "Progressing=True NewReplicaSetAvailable"]
    );
    let sets: Api<ReplicaSet> = cluster.in_default();
    let old = cluster.names(&sets).await;
    assert_eq!(old.len(), 1);

    cluster.deploy(3, "web:2").await;
    assert_eq!(cluster.rolled_out(3).await.annotations()["deployment.kubernetes.io/revision"], "2");
    assert_eq!(cluster.names(&sets).await.len(), 2);

    cluster.deploy(5, "web:2").await;
    cluster.rolled_out(5).await;
    cluster.deploy(1, "web:2").await;
    cluster.rolled_out(1).await;

    cluster.deploy(1, "web:1").await;
    assert_eq!(cluster.rolled_out(1).await.annotations()["deployment.kubernetes.io/revision"], "3");
    assert_eq!(cluster.names(&sets).await.len(), 2, "a rollback uses the set that is there");
    let back = sets.get(old.first().unwrap()).await.unwrap();
    assert_eq!(back.annotations()["deployment.kubernetes.io/revision-history"], "1");
    let pods = cluster.in_default::<Pod>().list(&ListParams::default()).await.unwrap();
    assert_eq!(pods.items.len(), 1);
    assert!(pods.items[0].name_any().starts_with(&format!("{}-", back.name_any())));
}

#[tokio::test]
async fn what_was_done_is_told_in_events() {
    let cluster = Cluster::start().await;
    cluster.deploy(1, "web:1").await;
    let events: Api<Event> = cluster.in_default();
    let told = eventually("three events", || async {
        let all = events.list(&ListParams::default()).await.ok()?.items;
        let told: BTreeSet<_> = all
            .iter()
            .map(|one| {
                format!(
                    "{} {}",
                    one.involved_object.kind.clone().unwrap_or_default(),
                    one.reason.clone().unwrap_or_default()
                )
            })
            .collect();
        (told.len() == 3).then_some(told)
    })
    .await;
    assert_eq!(
        told.into_iter().collect::<Vec<_>>(),
        ["Deployment ScalingReplicaSet", "Pod FailedScheduling", "ReplicaSet SuccessfulCreate"]
    );
}

#[tokio::test]
async fn a_recreating_deployment_has_no_old_pod_beside_a_new_one() {
    let cluster = Cluster::start().await;
    cluster.run_pods();
    cluster.deploy(2, "web:1").await;
    let strategy = json!({ "spec": { "strategy": { "type": "Recreate", "rollingUpdate": null } } });
    let deployments: Api<Deployment> = cluster.in_default();
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(strategy)).await.unwrap();
    cluster.rolled_out(2).await;
    let pods: Api<Pod> = cluster.in_default();
    let old: BTreeSet<_> = cluster.names(&pods).await;
    let changes = watcher(pods.clone(), watcher::Config::default()).applied_objects();
    let image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "web", "image": "web:2" }] } } } });
    deployments.patch("web", &PatchParams::default(), &Patch::Strategic(image)).await.unwrap();
    let mut changes = std::pin::pin!(changes);
    loop {
        let pod = changes.try_next().await.unwrap().unwrap();
        if !old.contains(&pod.name_any()) {
            break;
        }
    }
    assert!(cluster.names(&pods).await.is_disjoint(&old));
    cluster.rolled_out(2).await;
}

#[tokio::test]
async fn a_set_takes_pods_that_fit_and_replaces_those_that_do_not() {
    let cluster = Cluster::start().await;
    cluster.run_pods();
    let pods: Api<Pod> = cluster.in_default();
    let set = json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } },
        },
    });
    cluster.in_default::<ReplicaSet>().create(&PostParams::default(), &object(set)).await.unwrap();
    let owned = |count: usize| {
        let pods = &pods;
        move || async move {
            let all = pods.list(&ListParams::default()).await.ok()?.items;
            let owned = all.iter().filter(|pod| !pod.owner_references().is_empty());
            let names: BTreeSet<_> = owned.map(ResourceExt::name_any).collect();
            (names.len() == 2 && all.len() == count).then_some(names)
        }
    };
    eventually("two pods", owned(2)).await;
    let container = json!([{ "name": "c", "image": "i" }]);
    let stray = json!({ "metadata": { "name": "stray", "labels": { "app": "web" } }, "spec": { "containers": container } });
    pods.create(&PostParams::default(), &object(stray)).await.unwrap();
    let two = eventually("one too many, and one of them gone", owned(2)).await;
    let relabelled = two.first().unwrap();
    let label = json!({ "metadata": { "labels": { "app": "other" } } });
    pods.patch(relabelled, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    eventually("let go and replaced", owned(3)).await;
    assert!(pods.get(relabelled).await.unwrap().owner_references().is_empty());
}

/// Orders faults of the watch by which the controllers know of pods.
fn of_pod_watches(fault: Fault) -> Fault {
    fault.verb(Verb::Watch).resource("pods").user("system:kube-controller-manager")
}

#[tokio::test]
async fn pods_are_not_created_twice_while_the_first_ones_are_not_seen() {
    let cluster = Cluster::start().await;
    let pods: Api<Pod> = cluster.in_default();
    cluster.deploy(1, "web:1").await;
    eventually("the first pod", || async { (cluster.names(&pods).await.len() == 1).then_some(()) }).await;
    let stale = cluster.drydock.faults().order(of_pod_watches(Fault::watch_stale()));
    cluster.deploy(3, "web:1").await;
    eventually("three pods", || async { (cluster.names(&pods).await.len() == 3).then_some(()) }).await;
    // Something about the set changes; whoever decides on what is seen of its pods would make more.
    let sets: Api<ReplicaSet> = cluster.in_default();
    let set = cluster.names(&sets).await.first().unwrap().clone();
    let note = Patch::Merge(json!({ "metadata": { "annotations": { "note": "1" } } }));
    sets.patch(&set, &PatchParams::default(), &note).await.unwrap();
    cluster.deploy(4, "web:1").await;
    eventually("the wish for a fourth", || async {
        (sets.get(&set).await.ok()?.spec?.replicas == Some(4)).then_some(())
    })
    .await;
    assert_eq!(cluster.names(&pods).await.len(), 3);
    stale.lift();
    eventually("four pods", || async { (cluster.names(&pods).await.len() == 4).then_some(()) }).await;
}

#[tokio::test]
async fn a_lost_watch_loses_no_change() {
    for fault in [Fault::watch_cut(), Fault::watch_end(), Fault::watch_expired()] {
        let cluster = Cluster::start().await;
        cluster.run_pods();
        let order = cluster.drydock.faults().order(of_pod_watches(fault.nth(2)));
        cluster.deploy(3, "web:1").await;
        cluster.rolled_out(3).await;
        assert_eq!(order.count(), 1);
    }
}

#[tokio::test]
async fn pods_that_can_not_be_created_are_told_and_tried_again() {
    let cluster = Cluster::start().await;
    cluster.run_pods();
    let failing = Fault::internal_error().verb(Verb::Create).resource("pods").always();
    let order = cluster.drydock.faults().order(failing);
    cluster.deploy(2, "web:1").await;
    let deployments: Api<Deployment> = cluster.in_default();
    let failure = |wanted: bool| {
        let deployments = &deployments;
        move || async move {
            let conditions = deployments.get("web").await.ok()?.status?.conditions.unwrap_or_default();
            let told = conditions.into_iter().find(|one| one.type_ == "ReplicaFailure");
            (told.is_some() == wanted).then_some(told)
        }
    };
    let told = eventually("the failure", failure(true)).await.unwrap();
    assert_eq!(told.reason.as_deref(), Some("FailedCreate"));
    order.lift();
    cluster.rolled_out(2).await;
    eventually("its end", failure(false)).await;
}

#[tokio::test]
async fn endpoints_follow_the_pods_of_a_service() {
    let cluster = Cluster::start().await;
    let service = json!({
        "metadata": { "name": "web" },
        "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": "http" }] },
    });
    cluster.in_default::<Service>().create(&PostParams::default(), &object(service)).await.unwrap();
    let slices: Api<EndpointSlice> = cluster.in_default();
    let of_web = ListParams::default().labels("kubernetes.io/service-name=web");
    eventually("an empty slice", || async {
        let all = slices.list(&of_web).await.ok()?.items;
        (all.len() == 1 && all[0].endpoints.is_empty()).then_some(())
    })
    .await;
    cluster.run_pods();
    cluster.deploy(2, "web:1").await;
    cluster.rolled_out(2).await;
    let endpoints: Api<Endpoints> = cluster.in_default();
    eventually("two addresses", || async {
        let subset = endpoints.get("web").await.ok()?.subsets?.into_iter().next()?;
        let port = subset.ports?.first()?.port;
        (subset.addresses?.len() == 2 && port == 8080).then_some(())
    })
    .await;
    let slice = eventually("two endpoints", || async {
        let all = slices.list(&of_web).await.ok()?.items;
        (all.len() == 1 && all[0].endpoints.len() == 2).then(|| all[0].clone())
    })
    .await;
    assert_eq!(slice.labels()["endpointslice.kubernetes.io/managed-by"], "endpointslice-controller.k8s.io");
    assert_eq!(slice.owner_references()[0].kind, "Service");
    cluster.in_default::<Service>().delete("web", &DeleteParams::default()).await.unwrap();
    eventually("nothing of it left", || async {
        let gone = endpoints.get_opt("web").await.ok()?.is_none();
        (gone && slices.list(&of_web).await.ok()?.items.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_budget_counts_what_may_go() {
    let cluster = Cluster::start().await;
    cluster.run_pods();
    cluster.deploy(3, "web:1").await;
    let budget = json!({
        "metadata": { "name": "web" },
        "spec": { "maxUnavailable": "34%", "selector": { "matchLabels": { "app": "web" } } },
    });
    let budgets: Api<PodDisruptionBudget> = cluster.in_default();
    budgets.create(&PostParams::default(), &object(budget)).await.unwrap();
    let counted = |allowed: i32, healthy: i32, expected: i32| {
        let budgets = &budgets;
        move || async move {
            let status = budgets.get("web").await.ok()?.status?;
            let is = (status.disruptions_allowed, status.current_healthy, status.expected_pods);
            (is == (allowed, healthy, expected)).then_some(status)
        }
    };
    let status = eventually("three healthy", counted(2, 3, 3)).await;
    assert_eq!(status.desired_healthy, 1);
    assert_eq!(status.conditions.unwrap()[0].reason, "SufficientPods");
    cluster.deploy(1, "web:1").await;
    eventually("one of one", counted(1, 1, 1)).await;
}

async fn own_two(cluster: &Cluster, things: &Api<DynamicObject>, name: &str) -> BTreeSet<String> {
    let thing = json!({ "apiVersion": "x.io/v1", "kind": "Thing", "metadata": { "name": name } });
    let thing = things.create(&PostParams::default(), &object(thing)).await.unwrap();
    let owner = json!({ "apiVersion": "x.io/v1", "kind": "Thing", "name": name, "uid": thing.uid(), "blockOwnerDeletion": true });
    let maps: Api<ConfigMap> = cluster.in_default();
    let mut names = BTreeSet::new();
    for number in 0..2 {
        let map = json!({ "metadata": { "name": format!("{name}-{number}"), "ownerReferences": [owner] } });
        names.insert(maps.create(&PostParams::default(), &object(map)).await.unwrap().name_any());
    }
    names
}

#[tokio::test]
async fn what_a_custom_resource_owns_goes_after_it_before_it_or_not_at_all() {
    let cluster = Cluster::start().await;
    let things = cluster.define_things().await;
    let maps: Api<ConfigMap> = cluster.in_default();
    for (propagation, stay) in [
        (PropagationPolicy::Background, false),
        (PropagationPolicy::Foreground, false),
        (PropagationPolicy::Orphan, true),
    ] {
        let owned = own_two(&cluster, &things, "owner").await;
        let parameters =
            DeleteParams { propagation_policy: Some(propagation.clone()), ..DeleteParams::default() };
        things.delete("owner", &parameters).await.unwrap();
        eventually("the owner gone", || async {
            things.get_opt("owner").await.ok()?.is_none().then_some(())
        })
        .await;
        if !stay {
            eventually("the owned gone", || async {
                cluster.names(&maps).await.is_disjoint(&owned).then_some(())
            })
            .await;
            continue;
        }
        assert!(cluster.names(&maps).await.is_superset(&owned));
        for name in owned {
            assert!(maps.get(&name).await.unwrap().owner_references().is_empty());
        }
    }
}

#[tokio::test]
async fn foreground_deletion_waits_for_a_dependent_that_waits() {
    let cluster = Cluster::start().await;
    let things = cluster.define_things().await;
    let maps: Api<ConfigMap> = cluster.in_default();
    own_two(&cluster, &things, "owner").await;
    let hold = |finalizers: Value| Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    maps.patch("owner-0", &PatchParams::default(), &hold(json!(["x.io/hold"]))).await.unwrap();
    things.delete("owner", &DeleteParams::foreground()).await.unwrap();
    eventually("the other dependent gone", || async {
        maps.get_opt("owner-1").await.ok()?.is_none().then_some(())
    })
    .await;
    assert!(maps.get("owner-0").await.unwrap().metadata.deletion_timestamp.is_some());
    assert_eq!(things.get("owner").await.unwrap().finalizers(), ["foregroundDeletion"]);
    maps.patch("owner-0", &PatchParams::default(), &hold(Value::Null)).await.unwrap();
    eventually("the owner gone", || async { things.get_opt("owner").await.ok()?.is_none().then_some(()) })
        .await;
}

#[tokio::test]
async fn what_has_an_owner_that_never_was_goes_and_what_can_not_be_verified_stays() {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = cluster.in_default();
    let owned = |name: &str, api_version: &str, kind: &str| {
        let uid = "6c1ff1d2-9c1d-4c8c-8ee4-2b1c8fdd0001";
        let owner = json!({ "apiVersion": api_version, "kind": kind, "name": "nobody", "uid": uid });
        object::<ConfigMap>(json!({ "metadata": { "name": name, "ownerReferences": [owner] } }))
    };
    maps.create(&PostParams::default(), &owned("unverified", "nowhere.io/v1", "Ghost")).await.unwrap();
    maps.create(&PostParams::default(), &owned("absent", "v1", "ConfigMap")).await.unwrap();
    eventually("the absent owner's gone", || async {
        maps.get_opt("absent").await.ok()?.is_none().then_some(())
    })
    .await;
    assert!(maps.get("unverified").await.is_ok());
}

#[tokio::test]
async fn deleting_a_deployment_takes_sets_and_pods_with_it() {
    let cluster = Cluster::start().await;
    cluster.run_pods();
    cluster.deploy(3, "web:1").await;
    cluster.rolled_out(3).await;
    cluster.in_default::<Deployment>().delete("web", &DeleteParams::foreground()).await.unwrap();
    let (sets, pods): (Api<ReplicaSet>, Api<Pod>) = (cluster.in_default(), cluster.in_default());
    eventually("nothing left", || async {
        let gone = cluster.in_default::<Deployment>().get_opt("web").await.ok()?.is_none();
        (gone && cluster.names(&sets).await.is_empty() && cluster.names(&pods).await.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_namespace_goes_when_the_last_thing_in_it_has_gone() {
    let cluster = Cluster::start().await;
    let things = cluster.define_things().await;
    let resource = ApiResource {
        group: "x.io".into(),
        version: "v1".into(),
        api_version: "x.io/v1".into(),
        kind: "Thing".into(),
        plural: "things".into(),
    };
    drop(things);
    let namespaces: Api<Namespace> = cluster.all();
    namespaces.create(&PostParams::default(), &object(json!({ "metadata": { "name": "n" } }))).await.unwrap();
    let things: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), "n", &resource);
    let stuck = json!({ "apiVersion": "x.io/v1", "kind": "Thing", "metadata": { "name": "stuck", "finalizers": ["x.io/hold"] } });
    things.create(&PostParams::default(), &object(stuck)).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "n");
    maps.create(&PostParams::default(), &object(json!({ "metadata": { "name": "m" } }))).await.unwrap();
    namespaces.delete("n", &DeleteParams::default()).await.unwrap();
    let told = eventually("what remains is told", || async {
        let status = namespaces.get("n").await.ok()?.status?;
        let remaining =
            status.conditions?.into_iter().find(|one| one.type_ == "NamespaceContentRemaining")?;
        (remaining.status == "True").then_some(remaining)
    })
    .await;
    assert_eq!(told.reason.as_deref(), Some("SomeResourcesRemain"));
    assert_eq!(
        told.message.as_deref(),
        Some("Some resources are remaining: things.x.io has 1 resource instances")
    );
    assert!(cluster.names(&maps).await.is_empty());
    let refused =
        maps.create(&PostParams::default(), &object(json!({ "metadata": { "name": "late" } }))).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403));
    let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    things.patch("stuck", &PatchParams::default(), &release).await.unwrap();
    eventually("the namespace gone", || async {
        namespaces.get_opt("n").await.ok()?.is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn roles_are_put_together_from_others() {
    let cluster = Cluster::start().await;
    let roles: Api<ClusterRole> = cluster.all();
    let role = |name: &str, labels: Value, verb: &str| {
        object::<ClusterRole>(json!({
            "metadata": { "name": name, "labels": labels },
            "rules": [{ "apiGroups": ["x.io"], "resources": ["things"], "verbs": [verb] }],
        }))
    };
    roles.create(&PostParams::default(), &role("things-view", json!({ "to": "all" }), "get")).await.unwrap();
    let all = json!({
        "metadata": { "name": "all" },
        "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "to": "all" } }] },
        "rules": [],
    });
    roles.create(&PostParams::default(), &object(all)).await.unwrap();
    let verbs = |expected: &'static [&'static str]| {
        let roles = &roles;
        move || async move {
            let rules = roles.get("all").await.ok()?.rules.unwrap_or_default();
            let verbs: Vec<_> = rules.into_iter().flat_map(|rule| rule.verbs).collect();
            (verbs == expected).then_some(())
        }
    };
    eventually("one rule", verbs(&["get"])).await;
    roles
        .create(&PostParams::default(), &role("things-edit", json!({ "to": "all" }), "update"))
        .await
        .unwrap();
    eventually("two rules", verbs(&["update", "get"])).await;
    roles.delete("things-view", &DeleteParams::default()).await.unwrap();
    eventually("one rule again", verbs(&["update"])).await;
}
