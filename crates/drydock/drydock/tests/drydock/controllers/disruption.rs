//! Budgets: what they allow, by what controls the pods, and what is told of it.

use drydock::{Drydock, Fault, Verb};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod, ServiceAccount};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::controllers::daemons::{add_node, declare};
use crate::controllers::support::{Cluster, eventually, object};

/// Which may take one pod of an application at a time.
async fn keep(cluster: &Cluster, name: &str, app: &str) {
    let budget = json!({
        "metadata": { "name": name },
        "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": app } } },
    });
    let budgets: Api<PodDisruptionBudget> = cluster.in_default();
    budgets.create(&PostParams::default(), &object(budget)).await.unwrap();
}

/// A pod that nothing controls.
async fn bare_pod(cluster: &Cluster, name: &str, app: &str) {
    pod(cluster, json!({ "name": name, "labels": { "app": app } })).await;
}

/// A pod that this controls.
async fn pod_of(cluster: &Cluster, name: &str, app: &str, owner: Value) {
    pod(cluster, json!({ "name": name, "labels": { "app": app }, "ownerReferences": [owner] })).await;
}

/// A pod, as soon as the namespace has an account for it.
async fn pod(cluster: &Cluster, metadata: Value) {
    let pod = json!({
        "metadata": metadata,
        "spec": { "containers": [{ "name": "c", "image": "i:1" }] },
    });
    let (pods, pod): (Api<Pod>, Pod) = (cluster.in_default(), object(pod));
    eventually("a pod", || async { pods.create(&PostParams::default(), &pod).await.ok() }).await;
}

/// Waits until the status of a budget is so.
async fn allows(
    cluster: &Cluster,
    name: &str,
    what: &str,
    so: impl Fn(&PodDisruptionBudgetStatus) -> bool,
) -> PodDisruptionBudgetStatus {
    let budgets: Api<PodDisruptionBudget> = cluster.in_default();
    eventually(what, || async {
        let status = budgets.get(name).await.ok()?.status?;
        so(&status).then_some(status)
    })
    .await
}

/// What is said of why evictions are allowed or not.
fn said(status: &PodDisruptionBudgetStatus) -> String {
    let all = status.conditions.iter().flatten();
    all.map(|one| format!("{} {}", one.reason, one.message)).collect::<Vec<_>>().join(", ")
}

/// What was told with this reason.
async fn told(cluster: &Cluster, reason: &str) -> Vec<Event> {
    let selector = ListParams::default().fields(&format!("reason={reason}"));
    cluster.in_default::<Event>().list(&selector).await.unwrap().items
}

const MISCALCULATED: &str = "CalculateExpectedPodCountFailed";

/// Things that have a size, and one of them.
async fn define_things(cluster: &Cluster) {
    let whole = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let definition = json!({
        "metadata": { "name": "things.x.io" },
        "spec": {
            "group": "x.io", "scope": "Namespaced",
            "names": { "plural": "things", "singular": "thing", "kind": "Thing" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": whole },
                "subresources": {
                    "scale": { "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" },
                },
            }],
        },
    });
    let definitions: Api<CustomResourceDefinition> = cluster.all();
    definitions.create(&PostParams::default(), &object(definition)).await.unwrap();
}

/// Makes one thing of this size, as soon as that can be done, and gives who controls its pods.
async fn thing(cluster: &Cluster, replicas: i32) -> Value {
    let resource = ApiResource {
        group: "x.io".into(),
        version: "v1".into(),
        api_version: "x.io/v1".into(),
        kind: "Thing".into(),
        plural: "things".into(),
    };
    let things: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), "default", &resource);
    let thing = DynamicObject::new("t", &resource).data(json!({ "spec": { "replicas": replicas } }));
    let made =
        eventually("a thing", || async { things.create(&PostParams::default(), &thing).await.ok() }).await;
    json!({ "apiVersion": "x.io/v1", "kind": "Thing", "name": "t", "uid": made.uid(), "controller": true })
}

/// Has the kinds of the cluster not be read by the one who follows them.
fn unread() -> Fault {
    Fault::internal_error().verb(Verb::Get).user("system:kube-controller-manager").always()
}

#[tokio::test]
async fn nothing_is_decided_at_a_start_before_the_kinds_are_known() {
    let before = Cluster::of(Drydock::builder().controllers(false)).await;
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db" },
        "spec": {
            "replicas": 2, "serviceName": "db",
            "selector": { "matchLabels": { "app": "db" } },
            "template": {
                "metadata": { "labels": { "app": "db" } },
                "spec": { "containers": [{ "name": "c", "image": "i:1" }] },
            },
        },
    });
    let accounts: Api<ServiceAccount> = before.in_default();
    let account = json!({ "metadata": { "name": "default" } });
    accounts.create(&PostParams::default(), &object(account)).await.unwrap();
    let sets: Api<StatefulSet> = before.in_default();
    let set = sets.create(&PostParams::default(), &object(set)).await.unwrap();
    let owner = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": set.uid(), "controller": true });
    pod_of(&before, "db-0", "db", owner).await;
    keep(&before, "db", "db").await;

    let snapshot = before.drydock.snapshot(before.drydock.revision()).unwrap();
    let cluster = Cluster::of(Drydock::builder().from_snapshot(snapshot)).await;
    let unread = cluster.drydock.faults().order(unread());
    eventually("asked again and again", || async { (unread.count() > 3).then_some(()) }).await;
    unread.lift();
    let status = allows(&cluster, "db", "two expected", |status| status.expected_pods == 2).await;
    assert_eq!(said(&status), "InsufficientPods ");
    assert!(told(&cluster, MISCALCULATED).await.is_empty());
    let asked = cluster.drydock.requests().entries();
    let own = asked
        .iter()
        .filter(|one| one.user.ends_with(":disruption-controller") && one.path.starts_with("/api"));
    let kinds: Vec<&str> =
        own.map(|one| &*one.path).filter(|path| matches!(*path, "/api" | "/apis")).collect();
    assert!(kinds.is_empty(), "{kinds:?}");
}

#[tokio::test]
async fn a_kind_that_has_just_come_is_looked_for() {
    let cluster = Cluster::start().await;
    eventually("the kinds are known", || async {
        let asked = cluster.drydock.requests().entries();
        asked.iter().any(|one| one.path == "/apis" && one.status == 200).then_some(())
    })
    .await;
    let unread = cluster.drydock.faults().order(unread());
    define_things(&cluster).await;
    let owner = thing(&cluster, 3).await;
    unread.happened().await;
    pod_of(&cluster, "t-0", "t", owner).await;
    keep(&cluster, "t", "t").await;
    allows(&cluster, "t", "three expected", |status| status.expected_pods == 3).await;
    assert!(told(&cluster, MISCALCULATED).await.is_empty());
}

#[tokio::test]
async fn a_kind_that_is_not_there_is_said_until_it_comes() {
    let cluster = Cluster::start().await;
    let owner =
        json!({ "apiVersion": "x.io/v1", "kind": "Thing", "name": "t", "uid": "none", "controller": true });
    pod_of(&cluster, "t-0", "t", owner).await;
    keep(&cluster, "t", "t").await;
    let status = allows(&cluster, "t", "it is said", |status| !said(status).is_empty()).await;
    assert_eq!(said(&status), r#"SyncFailed no matches for kind "Thing" in version "x.io/v1""#);
    define_things(&cluster).await;
    let found = r#"SyncFailed found no controllers for pod "t-0""#;
    allows(&cluster, "t", "it is looked for", |status| said(status) == found).await;
}

#[tokio::test]
async fn nothing_may_go_while_a_size_can_not_be_read() {
    let cluster = Cluster::start().await;
    cluster.run_pods();
    define_things(&cluster).await;
    let owner = thing(&cluster, 1).await;
    pod_of(&cluster, "t-0", "t", owner).await;
    keep(&cluster, "t", "t").await;
    allows(&cluster, "t", "one may go", |status| status.disruptions_allowed == 1).await;
    let unread = Fault::internal_error().verb(Verb::Get).resource("x.io/things/scale").always();
    let unread = cluster.drydock.faults().order(unread);
    let note = Patch::Merge(json!({ "metadata": { "labels": { "note": "1" } } }));
    cluster.in_default::<Pod>().patch("t-0", &PatchParams::default(), &note).await.unwrap();
    let status = allows(&cluster, "t", "none may", |status| status.disruptions_allowed == 0).await;
    assert!(said(&status).starts_with("SyncFailed "), "{}", said(&status));
    eventually("it is told", || async { told(&cluster, MISCALCULATED).await.pop() }).await;
    unread.lift();
    allows(&cluster, "t", "one may go again", |status| status.disruptions_allowed == 1).await;
}

#[tokio::test]
async fn pods_of_kinds_without_a_size_are_said_and_nobody_is_asked() {
    let cluster = Cluster::start().await;
    for node in ["a", "b"] {
        add_node(&cluster, node).await;
    }
    declare(&cluster, "i:1").await;
    let job = json!({
        "metadata": { "name": "j" },
        "spec": {
            "parallelism": 2, "completions": 2,
            "template": {
                "metadata": { "labels": { "app": "j" } },
                "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i:1" }] },
            },
        },
    });
    cluster.in_default::<Job>().create(&PostParams::default(), &object(job)).await.unwrap();
    let pods: Api<Pod> = cluster.in_default();
    eventually("two each", || async { (cluster.names(&pods).await.len() == 4).then_some(()) }).await;
    for (name, kind) in [("d", "daemonsets.apps"), ("j", "jobs.batch")] {
        keep(&cluster, name, name).await;
        let why = format!("{kind} does not implement the scale subresource");
        let status = allows(&cluster, name, "it is said", |status| !said(status).is_empty()).await;
        assert_eq!(said(&status), format!("SyncFailed {why}"));
        let event = eventually("it is told", || async {
            let all = told(&cluster, MISCALCULATED).await;
            all.into_iter().find(|one| one.involved_object.name.as_deref() == Some(name))
        })
        .await;
        let expected = format!("Failed to calculate the number of expected pods: {why}");
        assert_eq!(event.message.as_deref(), Some(&*expected));
    }
    let asked = cluster.drydock.requests().entries();
    assert!(asked.iter().all(|one| !one.resource.ends_with("/scale")));
}

#[tokio::test]
async fn a_pod_that_nobody_deleted_after_its_eviction_was_granted_is_told() {
    let cluster = Cluster::start().await;
    let budget = json!({
        "metadata": { "name": "b" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "b" } } },
    });
    let budgets: Api<PodDisruptionBudget> = cluster.in_default();
    budgets.create(&PostParams::default(), &object(budget)).await.unwrap();
    bare_pod(&cluster, "p", "b").await;
    allows(&cluster, "b", "one expected", |status| status.expected_pods == 1).await;
    let granted = jiff::Timestamp::now() - jiff::SignedDuration::from_mins(3);
    let granted = granted.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let evicted = Patch::Merge(json!({ "status": { "disruptedPods": { "p": granted } } }));
    budgets.patch_status("b", &PatchParams::default(), &evicted).await.unwrap();
    let event = eventually("it is told", || async { told(&cluster, "NotDeleted").await.pop() }).await;
    let words = "Pod was expected by PDB default/default to be deleted but it wasn't";
    assert_eq!(event.message.as_deref(), Some(words));
    assert_eq!(
        (event.involved_object.kind.as_deref(), event.type_.as_deref()),
        (Some("Pod"), Some("Warning"))
    );
    allows(&cluster, "b", "it is forgotten", |status| status.disrupted_pods.is_none()).await;
}

#[tokio::test]
async fn a_pod_that_several_budgets_select_is_told_once_for_each_set_of_them() {
    let cluster = Cluster::start().await;
    bare_pod(&cluster, "alone", "other").await;
    bare_pod(&cluster, "early", "b").await;
    for name in ["b", "a", "other"] {
        keep(&cluster, name, if name == "other" { "other" } else { "b" }).await;
    }
    bare_pod(&cluster, "late", "b").await;
    let told_of = |counts: [i32; 2]| {
        let cluster = &cluster;
        eventually("both are told", move || async move {
            let all = told(cluster, "MultiplePodDisruptionBudgets").await;
            let count = |pod: &str| {
                let mut of = all.iter().filter(|one| one.involved_object.name.as_deref() == Some(pod));
                of.next().and_then(|one| one.count).unwrap_or(0)
            };
            ([count("early"), count("late")] == counts).then_some(all)
        })
    };
    let events = told_of([1, 1]).await;
    let mut messages: Vec<&str> = events.iter().filter_map(|one| one.message.as_deref()).collect();
    messages.sort_unstable();
    assert_eq!(
        messages,
        [
            r#"Pod "default"/"early" matches multiple PodDisruptionBudgets.  Chose "a" arbitrarily."#,
            r#"Pod "default"/"late" matches multiple PodDisruptionBudgets.  Chose "a" arbitrarily."#,
        ]
    );
    let note = Patch::Merge(json!({ "metadata": { "labels": { "note": "1" } } }));
    cluster.in_default::<Pod>().patch("early", &PatchParams::default(), &note).await.unwrap();
    keep(&cluster, "c", "b").await;
    told_of([2, 2]).await;
}
