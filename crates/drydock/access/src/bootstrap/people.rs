//! What people and their tools get: the roles that are meant to be bound, and what everyone has.

use super::{READ, Row, WRITE, allow, row, visit};

pub(super) const ROLES: &[Row] = &[
    row("cluster-admin", &[allow("*", "*", "*"), visit("*", "*")]),
    row(
        "system:aggregate-to-admin",
        &[
            allow("create", "authorization.k8s.io", "localsubjectaccessreviews"),
            allow(
                "create delete deletecollection get list patch update watch",
                "rbac.authorization.k8s.io",
                "rolebindings roles",
            ),
        ],
    ),
    row(
        "system:aggregate-to-edit",
        &[
            allow(READ, "core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
            allow("impersonate", "core", "serviceaccounts"),
            allow(WRITE, "core", "pods pods/attach pods/exec pods/portforward pods/proxy"),
            allow("create", "core", "pods/eviction"),
            allow(
                WRITE,
                "core",
                "configmaps events persistentvolumeclaims replicationcontrollers replicationcontrollers/scale \
                    secrets serviceaccounts services services/proxy",
            ),
            allow("create", "core", "serviceaccounts/token"),
            allow(
                WRITE,
                "apps",
                "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale \
                    statefulsets statefulsets/scale",
            ),
            allow(WRITE, "autoscaling", "horizontalpodautoscalers"),
            allow(WRITE, "batch", "cronjobs jobs"),
            allow(
                WRITE,
                "extensions",
                "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies \
                    replicasets replicasets/scale replicationcontrollers/scale",
            ),
            allow(WRITE, "policy", "poddisruptionbudgets"),
            allow(WRITE, "networking.k8s.io", "ingresses networkpolicies"),
            allow(
                "create delete deletecollection get list patch update watch",
                "coordination.k8s.io",
                "leases",
            ),
            allow(WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
        ],
    ),
    row(
        "system:aggregate-to-view",
        &[
            allow(
                READ,
                "core",
                "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods \
                    replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status",
            ),
            allow(
                READ,
                "core",
                "bindings events limitranges namespaces/status pods/log pods/status \
                    replicationcontrollers/status resourcequotas resourcequotas/status",
            ),
            allow(READ, "core", "namespaces"),
            allow(READ, "discovery.k8s.io", "endpointslices"),
            allow(
                READ,
                "apps",
                "controllerrevisions daemonsets daemonsets/status deployments deployments/scale \
                    deployments/status replicasets replicasets/scale replicasets/status statefulsets \
                    statefulsets/scale statefulsets/status",
            ),
            allow(READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
            allow(READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
            allow(
                READ,
                "extensions",
                "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses \
                    ingresses/status networkpolicies replicasets replicasets/scale replicasets/status \
                    replicationcontrollers/scale",
            ),
            allow(READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
            allow(READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
            allow(READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
        ],
    ),
    row(
        "system:basic-user",
        &[
            allow("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
            allow("create", "authentication.k8s.io", "selfsubjectreviews"),
        ],
    ),
    row(
        "system:discovery",
        &[visit(
            "get",
            "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/",
        )],
    ),
    row("system:public-info-viewer", &[visit("get", "/healthz /livez /readyz /version /version/")]),
    row(
        "system:monitoring",
        &[
            visit("get", "/healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/*"),
            allow("get", "core", "nodes/metrics"),
        ],
    ),
    row(
        "system:service-account-issuer-discovery",
        &[visit(
            "get",
            "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks \
                    /openid/v1/jwks/",
        )],
    ),
    row(
        "system:auth-delegator",
        &[
            allow("create", "authentication.k8s.io", "tokenreviews"),
            allow("create", "authorization.k8s.io", "subjectaccessreviews"),
        ],
    ),
];
