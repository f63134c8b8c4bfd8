//! What each controller gets: its ServiceAccount in `kube-system` bears the name of the row.

use super::{EVENTS, READ, Row, allow, row};

pub(super) const ROLES: &[Row] = &[
    row(
        "attachdetach-controller",
        &[
            allow("list watch", "core", "persistentvolumeclaims persistentvolumes"),
            allow(READ, "core", "nodes"),
            allow("patch update", "core", "nodes/status"),
            allow("list watch", "core", "pods"),
            EVENTS,
            allow("create delete get list watch", "storage.k8s.io", "volumeattachments"),
            allow(READ, "storage.k8s.io", "csidrivers"),
            allow(READ, "storage.k8s.io", "csinodes"),
        ],
    ),
    row(
        "certificate-controller",
        &[
            allow("delete get list watch", "certificates.k8s.io", "certificatesigningrequests"),
            allow(
                "update",
                "certificates.k8s.io",
                "certificatesigningrequests/approval certificatesigningrequests/status",
            ),
            allow("approve", "certificates.k8s.io", "signers")
                .named("kubernetes.io/kube-apiserver-client-kubelet"),
            allow("sign", "certificates.k8s.io", "signers").named(
                "kubernetes.io/kube-apiserver-client kubernetes.io/kube-apiserver-client-kubelet \
                    kubernetes.io/kubelet-serving kubernetes.io/legacy-unknown",
            ),
            allow("create", "authorization.k8s.io", "subjectaccessreviews"),
            EVENTS,
        ],
    ),
    row(
        "clusterrole-aggregation-controller",
        &[allow("escalate get list patch update watch", "rbac.authorization.k8s.io", "clusterroles")],
    ),
    row(
        "cronjob-controller",
        &[
            allow("get list update watch", "batch", "cronjobs"),
            allow("create delete get list patch update watch", "batch", "jobs"),
            allow("update", "batch", "cronjobs/status"),
            allow("update", "batch", "cronjobs/finalizers"),
            allow("delete list watch", "core", "pods"),
            EVENTS,
        ],
    ),
    row(
        "daemon-set-controller",
        &[
            allow(READ, "apps extensions", "daemonsets"),
            allow("update", "apps extensions", "daemonsets/status"),
            allow("update", "apps extensions", "daemonsets/finalizers"),
            allow("list watch", "core", "nodes"),
            allow("create delete list patch watch", "core", "pods"),
            allow("create", "core", "pods/binding"),
            allow("create delete get list patch update watch", "apps", "controllerrevisions"),
            EVENTS,
        ],
    ),
    row(
        "deployment-controller",
        &[
            allow("get list update watch", "apps extensions", "deployments"),
            allow("update", "apps extensions", "deployments/status"),
            allow("update", "apps extensions", "deployments/finalizers"),
            allow("create delete get list patch update watch", "apps extensions", "replicasets"),
            allow("get list update watch", "core", "pods"),
            EVENTS,
        ],
    ),
    row(
        "disruption-controller",
        &[
            allow(READ, "apps extensions", "deployments"),
            allow(READ, "apps extensions", "replicasets"),
            allow(READ, "core", "replicationcontrollers"),
            allow(READ, "policy", "poddisruptionbudgets"),
            allow(READ, "apps", "statefulsets"),
            allow("update", "policy", "poddisruptionbudgets/status"),
            allow("patch update", "core", "pods/status"),
            allow("get", "*", "*/scale"),
            EVENTS,
        ],
    ),
    row(
        "endpoint-controller",
        &[
            allow(READ, "core", "pods services"),
            allow("create delete get list update watch", "core", "endpoints"),
            allow("create", "core", "endpoints/restricted"),
            EVENTS,
        ],
    ),
    row(
        "endpointslice-controller",
        &[
            allow(READ, "core", "nodes pods services"),
            allow("update", "core", "services/finalizers"),
            allow("create delete get list update watch", "discovery.k8s.io", "endpointslices"),
            EVENTS,
        ],
    ),
    row(
        "endpointslicemirroring-controller",
        &[
            allow(READ, "core", "endpoints services"),
            allow("update", "core", "services/finalizers"),
            allow("update", "core", "endpoints/finalizers"),
            allow("create delete get list update watch", "discovery.k8s.io", "endpointslices"),
            EVENTS,
        ],
    ),
    row(
        "ephemeral-volume-controller",
        &[
            allow(READ, "core", "pods"),
            allow("update", "core", "pods/finalizers"),
            allow("create get list watch", "core", "persistentvolumeclaims"),
            EVENTS,
        ],
    ),
    row(
        "expand-controller",
        &[
            allow("get list patch update watch", "core", "persistentvolumes"),
            allow("patch update", "core", "persistentvolumeclaims/status"),
            allow(READ, "core", "persistentvolumeclaims"),
            EVENTS,
            allow("get", "core", "services"),
        ],
    ),
    row("generic-garbage-collector", &[allow("delete get list patch update watch", "*", "*"), EVENTS]),
    row(
        "horizontal-pod-autoscaler",
        &[
            allow(READ, "autoscaling", "horizontalpodautoscalers"),
            allow("update", "autoscaling", "horizontalpodautoscalers/status"),
            allow("get update", "*", "*/scale"),
            allow("list watch", "core", "pods"),
            allow("list watch", "metrics.k8s.io", "pods"),
            allow(READ, "custom.metrics.k8s.io", "*"),
            allow(READ, "external.metrics.k8s.io", "*"),
            EVENTS,
        ],
    ),
    row(
        "job-controller",
        &[
            allow("get list patch update watch", "batch", "jobs"),
            allow("update", "batch", "jobs/status"),
            allow("update", "batch", "jobs/finalizers"),
            allow("create delete list patch watch", "core", "pods"),
            EVENTS,
        ],
    ),
    row(
        "legacy-service-account-token-cleaner",
        &[
            allow("get", "core", "configmaps").named("kube-apiserver-legacy-service-account-token-tracking"),
            allow("delete patch", "core", "secrets"),
        ],
    ),
    row(
        "namespace-controller",
        &[
            allow("delete get list watch", "core", "namespaces"),
            allow("update", "core", "namespaces/finalize namespaces/status"),
            allow("delete deletecollection get list watch", "*", "*"),
        ],
    ),
    row(
        "node-controller",
        &[
            allow("delete get list patch update watch", "core", "nodes"),
            allow("patch update", "core", "nodes/status"),
            allow("patch update", "core", "pods/status"),
            allow("delete get list watch", "core", "pods"),
            EVENTS,
        ],
    ),
    row(
        "persistent-volume-binder",
        &[
            allow("create delete get list update watch", "core", "persistentvolumes"),
            allow("update", "core", "persistentvolumes/status"),
            allow("get list update watch", "core", "persistentvolumeclaims"),
            allow("update", "core", "persistentvolumeclaims/status"),
            allow("create delete get list watch", "core", "pods"),
            allow(READ, "storage.k8s.io", "storageclasses"),
            allow("list watch", "core", "nodes"),
            EVENTS,
            allow("watch", "core", "events"),
            allow("get", "core", "services"),
        ],
    ),
    row(
        "pod-garbage-collector",
        &[
            allow("delete list watch", "core", "pods"),
            allow(READ, "core", "nodes"),
            allow("patch", "core", "pods/status"),
        ],
    ),
    row("pv-protection-controller", &[allow("get list update watch", "core", "persistentvolumes"), EVENTS]),
    row(
        "pvc-protection-controller",
        &[
            allow("get list update watch", "core", "persistentvolumeclaims"),
            allow(READ, "core", "pods"),
            EVENTS,
        ],
    ),
    row(
        "replicaset-controller",
        &[
            allow("get list update watch", "apps extensions", "replicasets"),
            allow("update", "apps extensions", "replicasets/status"),
            allow("update", "apps extensions", "replicasets/finalizers"),
            allow("create delete list patch watch", "core", "pods"),
            EVENTS,
        ],
    ),
    row(
        "replication-controller",
        &[
            allow("get list update watch", "core", "replicationcontrollers"),
            allow("update", "core", "replicationcontrollers/status"),
            allow("update", "core", "replicationcontrollers/finalizers"),
            allow("create delete list patch watch", "core", "pods"),
            EVENTS,
        ],
    ),
    row(
        "resource-claim-controller",
        &[
            allow(READ, "core", "pods"),
            allow("update", "core", "pods/finalizers"),
            allow("create delete get list watch", "resource.k8s.io", "resourceclaims"),
            allow("patch update", "resource.k8s.io", "resourceclaims resourceclaims/status"),
            allow("patch update", "core", "pods/status"),
            EVENTS,
        ],
    ),
    row(
        "resourcequota-controller",
        &[allow("list watch", "*", "*"), allow("update", "core", "resourcequotas/status"), EVENTS],
    ),
    row("root-ca-cert-publisher", &[allow("create update", "core", "configmaps"), EVENTS]),
    row(
        "route-controller",
        &[allow("list watch", "core", "nodes"), allow("patch", "core", "nodes/status"), EVENTS],
    ),
    row(
        "selinux-warning-controller",
        &[
            EVENTS,
            allow(READ, "core", "persistentvolumes"),
            allow(READ, "core", "persistentvolumeclaims"),
            allow(READ, "core", "pods"),
            allow(READ, "storage.k8s.io", "csidrivers"),
        ],
    ),
    row("service-account-controller", &[allow("create", "core", "serviceaccounts"), EVENTS]),
    row(
        "service-cidrs-controller",
        &[
            allow("get list patch update watch", "networking.k8s.io", "servicecidrs"),
            allow("patch update", "networking.k8s.io", "servicecidrs/finalizers"),
            allow("patch update", "networking.k8s.io", "servicecidrs/status"),
            allow(READ, "networking.k8s.io", "ipaddresses"),
            EVENTS,
        ],
    ),
    row(
        "service-controller",
        &[
            allow(READ, "core", "services"),
            allow("patch update", "core", "services/status"),
            allow("list watch", "core", "nodes"),
            EVENTS,
        ],
    ),
    row(
        "statefulset-controller",
        &[
            allow("list watch", "core", "pods"),
            allow(READ, "apps", "statefulsets"),
            allow("update", "apps", "statefulsets/status"),
            allow("update", "apps", "statefulsets/finalizers"),
            allow("create delete get patch update", "core", "pods"),
            allow("create delete get list patch update watch", "apps", "controllerrevisions"),
            allow("create get list watch", "core", "persistentvolumeclaims"),
            EVENTS,
            allow("delete update", "core", "persistentvolumeclaims"),
            allow("update", "core", "pods/finalizers"),
        ],
    ),
    row("ttl-after-finished-controller", &[allow("delete get list watch", "batch", "jobs"), EVENTS]),
    row("ttl-controller", &[allow("list patch update watch", "core", "nodes"), EVENTS]),
    row(
        "validatingadmissionpolicy-status-controller",
        &[
            allow(READ, "admissionregistration.k8s.io", "validatingadmissionpolicies"),
            allow("get patch update", "admissionregistration.k8s.io", "validatingadmissionpolicies/status"),
            EVENTS,
        ],
    ),
    row(
        "volumeattributesclass-protection-controller",
        &[
            allow(READ, "core", "persistentvolumeclaims"),
            allow(READ, "core", "persistentvolumes"),
            allow("get list update watch", "storage.k8s.io", "volumeattributesclasses"),
            EVENTS,
        ],
    ),
];
