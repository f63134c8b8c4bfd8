//! What follows the pods: endpoints and disruption budgets; and what becomes of those that nobody ends.

use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::controllers::support::{Cluster, eventually, object};

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

#[tokio::test]
async fn a_pod_that_goes_and_never_had_a_node_has_failed() {
    let cluster = Cluster::start().await;
    let pods = cluster.in_default::<Pod>();
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "waits", "finalizers": ["example.com/hold"] },
        "spec": { "containers": [{ "name": "c", "image": "i" }], "schedulingGates": [{ "name": "example.com/gate" }] },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    pods.delete("waits", &DeleteParams::default()).await.unwrap();
    eventually("it has failed", || async {
        let status = pods.get("waits").await.ok()?.status?;
        (status.phase.as_deref() == Some("Failed")).then_some(())
    })
    .await;
    let patch = json!({ "metadata": { "finalizers": null } });
    pods.patch("waits", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    eventually("it is gone", || async { pods.get_opt("waits").await.unwrap().is_none().then_some(()) }).await;
}
