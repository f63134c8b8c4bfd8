//! With the permissions that are shipped, and no others, everything works.

use ballast_memcached::{Memcached, MemcachedOperator};
use ballast_packaging::{NAMESPACE, SERVICE_ACCOUNT, foundation};
use ballast_runtime::{LeaderElection, Manager, NoEngine, Options};
use drydock::{Drydock, Identity};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind, TypeMeta},
};
use serde_json::{Value, json};

use crate::support::*;

async fn apply(drydock: &Drydock, object: &Value) {
    let types: TypeMeta = serde_json::from_value(object.clone()).unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(drydock.client(), namespace, &resource),
        None => Api::all_with(drydock.client(), &resource),
    };
    let name = object["metadata"]["name"].as_str().unwrap();
    api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await.unwrap();
}

fn memcached(spec: Value) -> Memcached {
    let manifest = json!({
        "apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached", "metadata": {"name": "sample"}, "spec": spec,
    });
    serde_json::from_value(manifest).unwrap()
}

#[tokio::test]
async fn the_shipped_permissions_suffice_from_the_lease_to_the_last_event() {
    let drydock = Drydock::builder().requests(100_000).start().await.unwrap();
    let definition = |object: &Value| object["kind"] == "CustomResourceDefinition";
    for object in foundation().iter().filter(|object| !definition(object)) {
        apply(&drydock, object).await;
    }
    install::<Memcached>(&drydock).await;
    let account = Identity::service_account(NAMESPACE, SERVICE_ACCOUNT, "");
    let election =
        LeaderElection { namespace: NAMESPACE.into(), name: "ballast".into(), identity: "first".into() };
    let options = Options { leader_election: Some(election), ..options() };
    let manager = Manager::new(drydock.client_as(account.clone()), options);
    let running = start(manager.register(MemcachedOperator, NoEngine));
    eventually("it leads", async || running.health.is_working().then_some(())).await;

    let caches: Api<Memcached> = Api::namespaced(drydock.client(), "default");
    caches.create(&PostParams::default(), &memcached(json!({"size": 2, "version": "1.6.39"}))).await.unwrap();
    let nodes = async |count: usize| {
        eventually(&format!("{count} nodes are named"), async || {
            (caches.get("sample").await.unwrap().status?.nodes.len() == count).then_some(())
        })
        .await;
    };
    nodes(2).await;
    let scaled = Patch::Merge(json!({"spec": {"size": 3}}));
    caches.patch("sample", &PatchParams::default(), &scaled).await.unwrap();
    nodes(3).await;
    eventually("the event is there", async || {
        let said = events(&drydock, "sample").await;
        said.iter().any(|event| event.contains("Scaling")).then_some(())
    })
    .await;
    caches.delete("sample", &DeleteParams::default()).await.unwrap();
    eventually("it is gone", async || caches.get_opt("sample").await.unwrap().is_none().then_some(())).await;
    running.stop().await.unwrap();

    let entries = drydock.requests().entries();
    let ours: Vec<_> = entries.iter().filter(|entry| entry.user == account.username).collect();
    assert!(ours.len() > 10, "the log shows who asked");
    let refused: Vec<_> = ours.iter().filter(|entry| entry.status == 403).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}
