//! kube-rs' own machinery, unmodified.

use std::sync::Arc;
use std::time::Duration;

use drydock::{Drydock, Identity};
use futures::{StreamExt, TryStreamExt, future, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{Controller, WatchStreamExt, reflector, watcher};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;

use crate::cluster::support::*;

#[tokio::test]
async fn a_fresh_cluster_has_what_every_cluster_has() {
    let drydock = quiet().await;
    let client = drydock.client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let found: Vec<_> =
        namespaces.list(&ListParams::default()).await.unwrap().iter().map(|n| n.name_any()).collect();
    assert_eq!(found, ["default", "kube-node-lease", "kube-public", "kube-system"]);
    let services: Api<Service> = Api::default_namespaced(client.clone());
    assert_eq!(services.get("kubernetes").await.unwrap().spec.unwrap().ports.unwrap()[0].port, 443);
    let roles: Api<ClusterRole> = Api::all(client.clone());
    for role in ["cluster-admin", "admin", "edit", "view", "system:basic-user"] {
        roles.get(role).await.unwrap();
    }
    assert_eq!(client.apiserver_version().await.unwrap().major, "1");
}

#[tokio::test]
async fn clusters_side_by_side_share_nothing() {
    let clusters = future::join_all((0..16).map(|_| quiet())).await;
    future::join_all(clusters.iter().map(|drydock| async {
        let api = config_maps(drydock);
        create(&api, "same-name").await.unwrap();
        assert_eq!(names(&api).await, ["same-name"]);
    }))
    .await;
}

#[tokio::test]
async fn many_requests_go_through_one_client_at_once() {
    let drydock = quiet().await;
    let api = config_maps(&drydock);
    let made = stream::iter(0..300).map(|number| {
        let api = api.clone();
        async move { create(&api, &format!("cm-{number:03}")).await }
    });
    made.buffer_unordered(50).try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(names(&api).await.len(), 300);
    assert!(drydock.requests().count() >= 301);
}

#[tokio::test]
async fn a_client_may_do_what_its_identity_may() {
    let drydock = quiet().await;
    let jane: Api<Secret> =
        Api::default_namespaced(drydock.client_as(Identity::user("jane", ["developers"])));
    let error = jane.list(&ListParams::default()).await.unwrap_err();
    assert_eq!(code(&error), 403);
    let last = drydock.requests().entries().pop().unwrap();
    assert_eq!((last.user.as_str(), last.verb.as_str(), last.status), ("jane", "list", 403));
}

#[tokio::test]
async fn a_dropped_cluster_answers_no_more() {
    let drydock = quiet().await;
    let api = config_maps(&drydock);
    create(&api, "a").await.unwrap();
    let watch = api.watch(&Default::default(), "0").await.unwrap();
    drop(drydock);
    assert!(create(&api, "b").await.is_err());
    let ended = tokio::time::timeout(Duration::from_secs(5), watch.collect::<Vec<_>>()).await;
    assert!(ended.is_ok(), "the watch has ended");
}

/// Makes a Secret for each ConfigMap, as any controller does.
async fn mirror(object: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let secrets: Api<Secret> = Api::default_namespaced((*client).clone());
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": object.name_any(), "ownerReferences": [object.controller_owner_ref(&()).unwrap()]},
        "stringData": {"key": value(&object)},
    });
    secrets.patch(&object.name_any(), &PatchParams::apply("mirror").force(), &Patch::Apply(&secret)).await?;
    Ok(Action::await_change())
}

fn mirrored(name: &str) -> impl Fn(Option<&Secret>) -> bool + use<> {
    let name = name.to_owned();
    move |secret: Option<&Secret>| {
        secret
            .and_then(|secret| secret.data.as_ref()?.get("key").cloned())
            .is_some_and(|data| data.0 == name.as_bytes())
    }
}

#[tokio::test]
async fn a_kube_controller_keeps_what_it_owns() {
    let drydock = quiet().await;
    let client = drydock.client();
    let (maps, secrets) = (config_maps(&drydock), Api::<Secret>::default_namespaced(client.clone()));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let controller = Controller::new(maps.clone(), watcher::Config::default())
        .owns(secrets.clone(), watcher::Config::default())
        .graceful_shutdown_on(async move { stopped.await.unwrap_or(()) })
        .run(mirror, |_, error, _| panic!("{error}"), Arc::new(client))
        .for_each(|_| future::ready(()));
    let running = tokio::spawn(controller);

    create(&maps, "a").await.unwrap();
    let first = await_condition(secrets.clone(), "a", mirrored("1")).await.unwrap().unwrap();
    maps.patch("a", &PatchParams::default(), &Patch::Merge(json!({"data": {"key": "2"}}))).await.unwrap();
    await_condition(secrets.clone(), "a", mirrored("2")).await.unwrap();
    secrets.delete("a", &DeleteParams::default()).await.unwrap();
    await_condition(secrets.clone(), "a", conditions::is_deleted(&first.uid().unwrap())).await.unwrap();
    await_condition(secrets.clone(), "a", mirrored("2")).await.unwrap();

    stop.send(()).unwrap();
    running.await.unwrap();
}

#[tokio::test]
async fn a_reflector_holds_what_is_there() {
    for strategy in [
        watcher::Config::default(),
        watcher::Config::default().streaming_lists(),
        watcher::Config::default().page_size(2),
    ] {
        let drydock = quiet().await;
        let api = config_maps(&drydock);
        for name in ["a", "b", "c"] {
            create(&api, name).await.unwrap();
        }
        let (reader, writer) = reflector::store();
        let stream = reflector(writer, watcher(api.clone(), strategy)).applied_objects().boxed();
        let running = tokio::spawn(stream.for_each(|object| async { drop(object.unwrap()) }));
        reader.wait_until_ready().await.unwrap();
        assert_eq!(reader.len(), 3);
        api.patch("a", &PatchParams::default(), &Patch::Merge(json!({"data": {"key": "2"}}))).await.unwrap();
        api.delete("b", &DeleteParams::default()).await.unwrap();
        create(&api, "d").await.unwrap();
        await_condition(api.clone(), "d", |object: Option<&ConfigMap>| object.is_some()).await.unwrap();
        let held = || {
            let mut held: Vec<_> =
                reader.state().iter().map(|o| format!("{}={}", o.name_any(), value(o))).collect();
            held.sort();
            held.join(" ")
        };
        // The reflector has its own watch: it is waited for until it says what the API says.
        tokio::time::timeout(Duration::from_secs(10), async {
            while held() != "a=2 c=1 d=1" {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await
        .unwrap_or_else(|_| panic!("the reflector holds {}", held()));
        running.abort();
    }
}

#[tokio::test]
async fn a_watch_that_resumes_from_a_forgotten_revision_lists_anew() {
    let drydock = quiet().await;
    let api = config_maps(&drydock);
    create(&api, "a").await.unwrap();
    drydock.compact(drydock.revision());
    let mut watch = api.watch(&Default::default(), "2").await.unwrap().boxed();
    match watch.try_next().await {
        Ok(Some(kube::api::WatchEvent::Error(status))) => assert_eq!(status.code, 410),
        Err(error) => assert_eq!(code(&error), 410),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn controllers_run_as_ordinary_clients() {
    let drydock = Drydock::builder().start().await.unwrap();
    let client = drydock.client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let made = Namespace {
        metadata: ObjectMeta { name: Some("work".into()), ..Default::default() },
        ..Default::default()
    };
    namespaces.create(&Default::default(), &made).await.unwrap();
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::namespaced(client.clone(), "work");
    await_condition(accounts, "default", |found: Option<&k8s_openapi::api::core::v1::ServiceAccount>| {
        found.is_some()
    })
    .await
    .unwrap();
    let requests = drydock.requests().entries();
    let maker = requests.iter().find(|entry| {
        entry.verb.as_str() == "create"
            && entry.resource.ends_with("serviceaccounts")
            && entry.namespace == "work"
    });
    assert!(maker.unwrap().user.starts_with("system:serviceaccount:kube-system:"), "{maker:?}");
    drydock.shutdown().await;
}
