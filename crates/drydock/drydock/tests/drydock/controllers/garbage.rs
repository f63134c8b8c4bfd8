//! What is owned goes with its owner.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::controllers::support::{Cluster, eventually, object};

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
