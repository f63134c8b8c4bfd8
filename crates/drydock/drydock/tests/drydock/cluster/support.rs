//! Short words for the tests of the facade.

use std::collections::BTreeMap;

use drydock::Drydock;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams};

/// A cluster in memory without controllers: what is written is what the test wrote.
pub async fn quiet() -> Drydock {
    Drydock::builder().controllers(false).start().await.unwrap()
}

pub fn config_maps(drydock: &Drydock) -> Api<ConfigMap> {
    Api::namespaced(drydock.client(), "default")
}

pub fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("key".into(), value.into())])),
        ..ConfigMap::default()
    }
}

pub async fn create(api: &Api<ConfigMap>, name: &str) -> kube::Result<ConfigMap> {
    api.create(&PostParams::default(), &config_map(name, "1")).await
}

pub async fn names(api: &Api<ConfigMap>) -> Vec<String> {
    let list = api.list(&Default::default()).await.unwrap();
    list.items
        .into_iter()
        .filter_map(|object| object.metadata.name)
        .filter(|name| name != "kube-root-ca.crt")
        .collect()
}

pub fn value(object: &ConfigMap) -> &str {
    object.data.as_ref().and_then(|data| data.get("key")).map_or("", String::as_str)
}

pub fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("not an answer: {other}"),
    }
}
