//! What a new Pod gets from the cluster: its ServiceAccount with a token, tolerations, a priority.

use std::{sync::Arc, time::Duration};

use drydock_store::{Key, Range, Stored};
use futures::StreamExt;
use serde_json::{Map, Value, json};

use crate::{
    call::Call,
    failure::Failure,
    object::{self, meta},
};

/// The ServiceAccount `default` is made by a controller right after its namespace: a Pod that comes
/// as fast is not refused but waits, as long as on the real server.
const WAIT_FOR_DEFAULT: Duration = Duration::from_secs(2);

/// How long a Pod stays on a node that is not ready.
const TOLERATION_SECONDS: u32 = 300;

/// Where a ServiceAccount's token is mounted.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How long a mounted token is good: an hour, and the odd seconds by which the kubelet's own are known.
const TOKEN_SECONDS: u32 = 3607;

/// Sets what a new Pod gets.
pub(super) async fn admit(call: &Call<'_>, pod: &mut Value) -> Result<(), Failure> {
    tolerations(pod);
    priority(call, pod)?;
    service_account(call, pod).await
}

fn tolerations(pod: &mut Value) {
    let spec = &mut pod["spec"];
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = spec["tolerations"].as_array().into_iter().flatten().any(|toleration| {
            let own = toleration["key"].as_str().unwrap_or_default();
            let effect = toleration["effect"].as_str().unwrap_or_default();
            (own == key || own.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !tolerated {
            push(
                spec,
                "tolerations",
                json!({
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": TOLERATION_SECONDS,
                }),
            );
        }
    }
}

fn priority(call: &Call<'_>, pod: &mut Value) -> Result<(), Failure> {
    let class = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
    let priority = match class.as_str() {
        "" => 0,
        "system-cluster-critical" => 2_000_000_000_i64,
        "system-node-critical" => 2_000_001_000,
        name => {
            let key = Key::new("scheduling.k8s.io/priorityclasses", "", name);
            let Some(found) = call.api.store().get(&key) else {
                let why = format!("no PriorityClass with name {name} was found");
                return Err(Failure::forbidden(object::resource_of(&call.kind), meta(pod, "name"), why));
            };
            object::read_stored(&found)?["value"].as_i64().unwrap_or(0)
        }
    };
    pod["spec"]["priority"] = priority.into();
    if pod["spec"].get("preemptionPolicy").is_none() {
        pod["spec"]["preemptionPolicy"] = "PreemptLowerPriority".into();
    }
    Ok(())
}

async fn service_account(call: &Call<'_>, pod: &mut Value) -> Result<(), Failure> {
    if pod["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_some() {
        return Ok(());
    }
    let name = match pod["spec"]["serviceAccountName"].as_str().unwrap_or_default() {
        "" => "default".to_owned(),
        name => name.to_owned(),
    };
    pod["spec"]["serviceAccountName"] = name.clone().into();
    pod["spec"]["serviceAccount"] = name.clone().into();
    let Some(account) = find(call, &name).await else {
        let why = format!(
            "error looking up service account {}/{name}: serviceaccount {name:?} not found",
            call.namespace()
        );
        return Err(Failure::forbidden(object::resource_of(&call.kind), meta(pod, "name"), why));
    };
    let account = object::read_stored(&account)?;
    let automount = pod["spec"]["automountServiceAccountToken"]
        .as_bool()
        .or_else(|| account["automountServiceAccountToken"].as_bool())
        .unwrap_or(true);
    if automount {
        mount_token(pod);
    }
    if pod["spec"]["imagePullSecrets"].as_array().is_none_or(Vec::is_empty)
        && let Some(secrets) = account.get("imagePullSecrets")
    {
        pod["spec"]["imagePullSecrets"] = secrets.clone();
    }
    Ok(())
}

async fn find(call: &Call<'_>, name: &str) -> Option<Arc<Stored>> {
    let key = Key::new("/serviceaccounts", call.namespace(), name);
    let store = call.api.store();
    let range = Range { resource: key.resource.clone(), namespace: Some(key.namespace.clone()) };
    // The watch begins before the look, so that nothing is missed in between.
    let mut watch = store.watch(range, store.revision()).ok()?;
    let wait = async {
        loop {
            if let Some(found) = store.get(&key) {
                return Some(found);
            }
            watch.next().await?.ok()?;
        }
    };
    if name != "default" {
        return store.get(&key);
    }
    tokio::time::timeout(WAIT_FOR_DEFAULT, wait).await.ok().flatten()
}

/// Mounts a token into every container that has nothing at its place.
fn mount_token(pod: &mut Value) {
    let has_place = |container: &Value| {
        container["volumeMounts"].as_array().into_iter().flatten().any(|m| m["mountPath"] == TOKEN_PATH)
    };
    let lists = ["initContainers", "containers"];
    let needed = lists
        .iter()
        .flat_map(|list| pod["spec"][*list].as_array().into_iter().flatten())
        .any(|container| !has_place(container));
    if !needed {
        return;
    }
    let id = uuid::Uuid::new_v4().simple().to_string();
    let volume = format!("kube-api-access-{}", &id[..5]);
    for list in lists {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            if !has_place(container) {
                let mount = json!({"name": volume, "readOnly": true, "mountPath": TOKEN_PATH});
                push(container, "volumeMounts", mount);
            }
        }
    }
    push(
        &mut pod["spec"],
        "volumes",
        json!({
            "name": volume,
            "projected": {
                "defaultMode": 420,
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
                    {"configMap": {
                        "name": "kube-root-ca.crt",
                        "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    }},
                    {"downwardAPI": {"items": [{
                        "path": "namespace",
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    }]}},
                ],
            },
        }),
    );
}

fn push(object: &mut Value, field: &str, item: Value) {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    match &mut object[field] {
        Value::Array(list) => list.push(item),
        other => *other = Value::Array(vec![item]),
    }
}
