//! Namespaces begin and end, and roles are put together.

use drydock::Drydock;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};

use crate::controllers::support::{Cluster, eventually, object};

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
async fn the_secret_of_an_account_has_the_certificate_however_soon_it_is_made() {
    let cluster = Cluster::of(Drydock::builder().controllers(false)).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), "default");
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), "default");
    let now = PostParams::default();
    accounts.create(&now, &object(json!({ "metadata": { "name": "sa" } }))).await.unwrap();
    let token = json!({ "type": "kubernetes.io/service-account-token", "metadata": {
        "name": "token", "annotations": { "kubernetes.io/service-account.name": "sa" } } });
    let made = secrets.create(&now, &object(token)).await.unwrap();
    assert_eq!(made.data.unwrap()["ca.crt"].0, cluster.drydock.ca_pem().as_bytes());
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
