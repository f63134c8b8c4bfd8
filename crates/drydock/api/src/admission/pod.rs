//! What a new Pod gets from the cluster: its ServiceAccount with a token, tolerations, a priority.

use std::{sync::Arc, time::Duration};

use drydock_store::{Key, Page, Range, Stored};
use futures::StreamExt;
use serde_json::{Map, Value, json};

use super::told_name;
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

/// What a Pod may do to others when it finds no room, unless its class says otherwise.
const PREEMPT: &str = "PreemptLowerPriority";

/// Where a ServiceAccount's token is mounted.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How long a mounted token is good: an hour, and the odd seconds by which the kubelet's own are known.
const TOKEN_SECONDS: u32 = 3607;

/// Sets what a new Pod gets. What is refused first is what the real server looks at first.
pub(super) async fn admit(call: &Call<'_>, pod: &mut Value) -> Result<(), Failure> {
    service_account(call, pod).await?;
    priority(call, pod)?;
    tolerations(pod);
    Ok(())
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
    let refuse =
        |pod: &Value, why: String| Failure::forbidden(object::resource_of(&call.kind), told_name(pod), why);
    let (name, value, policy) = match pod["spec"]["priorityClassName"].as_str().unwrap_or_default() {
        "" => default_class(call)?,
        "system-cluster-critical" => (String::new(), 2_000_000_000, PREEMPT.to_owned()),
        "system-node-critical" => (String::new(), 2_000_001_000, PREEMPT.to_owned()),
        name => {
            let key = Key::new("scheduling.k8s.io/priorityclasses", "", name);
            let Some(found) = call.api.store().get(&key) else {
                return Err(refuse(pod, format!("no PriorityClass with name {name} was found")));
            };
            class(&object::read_stored(&found)?)
        }
    };
    const COMPUTED: &str = "must not be provided in pod spec; priority admission controller computed";
    const GIVEN: &str = "from the given PriorityClass name";
    if let Some(own) = pod["spec"]["priority"].as_i64().filter(|own| *own != value) {
        return Err(refuse(pod, format!("the integer value of priority ({own}) {COMPUTED} {value} {GIVEN}")));
    }
    if let Some(own) = pod["spec"]["preemptionPolicy"].as_str().filter(|own| *own != policy) {
        let what = "the string value of PreemptionPolicy";
        return Err(refuse(pod, format!("{what} ({own}) {COMPUTED} {policy} {GIVEN}")));
    }
    if !name.is_empty() {
        pod["spec"]["priorityClassName"] = name.into();
    }
    pod["spec"]["priority"] = value.into();
    pod["spec"]["preemptionPolicy"] = policy.into();
    Ok(())
}

/// The class of Pods that name none: of those that say they are, the one with the lowest value.
fn default_class(call: &Call<'_>) -> Result<(String, i64, String), Failure> {
    let range = Range { resource: "scheduling.k8s.io/priorityclasses".into(), namespace: None };
    let listing = call.api.store().list(&range, Page::default());
    let mut classes = Vec::new();
    for stored in listing.map(|listing| listing.items).unwrap_or_default() {
        let found = object::read_stored(&stored)?;
        if found["globalDefault"].as_bool() == Some(true) {
            let (_, value, policy) = class(&found);
            classes.push((meta(&found, "name").to_owned(), value, policy));
        }
    }
    let lowest = classes.into_iter().min_by_key(|(_, value, _)| *value);
    Ok(lowest.unwrap_or_else(|| (String::new(), 0, PREEMPT.to_owned())))
}

fn class(class: &Value) -> (String, i64, String) {
    let policy = class["preemptionPolicy"].as_str().unwrap_or(PREEMPT);
    (String::new(), class["value"].as_i64().unwrap_or(0), policy.to_owned())
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
        return Err(Failure::forbidden(object::resource_of(&call.kind), told_name(pod), why));
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
