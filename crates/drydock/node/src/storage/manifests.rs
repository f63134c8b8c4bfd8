//! What a cluster needs so that a node can serve claims: classes, and permissions beyond a kubelet's.

use serde_json::{Value, json};

use super::{PROVISIONER, hard};

/// The class that claims get which say none: directories, as large as the disk lets them be.
pub const STANDARD_CLASS: &str = "standard";
/// The class of volumes that are full when they hold what they say.
pub const HARD_CLASS: &str = "hard-size";

/// The classes, to be made where they are not there: people change them.
pub fn classes() -> Vec<Value> {
    let class = |name: &str, annotations: Value, parameters: Value| {
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name, "annotations": annotations},
            "provisioner": PROVISIONER,
            "parameters": parameters,
            "reclaimPolicy": "Delete",
            "allowVolumeExpansion": true,
            "volumeBindingMode": "WaitForFirstConsumer",
        })
    };
    vec![
        class(STANDARD_CLASS, json!({"storageclass.kubernetes.io/is-default-class": "true"}), json!({})),
        class(HARD_CLASS, json!({"kubernetes.io/description": hard::CAVEAT}), json!({"hardSize": "true"})),
    ]
}

/// The role of who makes volumes, and its binding to a group of nodes.
pub fn permissions(group: &str) -> Vec<Value> {
    let name = "drydock:volumes";
    let rule = |api_group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [api_group], "resources": resources, "verbs": verbs});
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [
            rule("", &["persistentvolumes"], &["get", "list", "watch", "create", "patch", "delete"]),
            rule("", &["persistentvolumeclaims"], &["get", "list", "watch"]),
            rule("", &["persistentvolumeclaims/status"], &["patch"]),
            rule("storage.k8s.io", &["storageclasses"], &["get", "list", "watch"]),
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    });
    vec![role, binding]
}
