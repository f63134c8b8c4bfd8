//! How a pod learns who it is.

use serde_json::{Value, json};

use crate::json;

/// Where a container finds its token.
const PLACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Mounts the token of its service account into every container of a new pod, from a volume whose
/// name ends with `suffix`. A pod that does not want it, and a container that has something else in
/// that place, are left alone. Whether the service account wants it is for the caller to ask.
pub fn mount_token(pod: &mut Value, suffix: &str) {
    let Some(spec) = pod.get_mut("spec") else { return };
    if spec["automountServiceAccountToken"].as_bool() == Some(false) {
        return;
    }
    let volume = format!("kube-api-access-{suffix}");
    let mut used = false;
    for field in ["initContainers", "containers"] {
        for container in json::list_mut(spec, field) {
            let mut mounts = json::list(container, "volumeMounts").to_vec();
            if mounts.iter().any(|mount| json::text(mount, "mountPath") == PLACE) {
                continue;
            }
            mounts.push(json!({"name": volume, "readOnly": true, "mountPath": PLACE}));
            json::set(container, "volumeMounts", mounts);
            used = true;
        }
    }
    if used {
        let mut volumes = json::list(spec, "volumes").to_vec();
        volumes.push(token_volume(&volume));
        json::set(spec, "volumes", volumes);
    }
}

/// The token, the authority that the server is known by, and the namespace. The odd lifetime is how
/// a token that was mounted by the server is told from one that was asked for.
fn token_volume(name: &str) -> Value {
    let namespace =
        json!({"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
    json!({
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [namespace]}},
            ],
        },
    })
}
