//! The table of built-in kinds: one row each, with what makes it special.

use super::Row;
use crate::{
    Subresource,
    kind::STORED_VERBS,
    names,
    rules::{self, PLAIN},
    table,
};

const ROW: Row = Row {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    verbs: STORED_VERBS,
    definition: "",
    status: false,
    scale: false,
    other: &[],
    generation: false,
    counts: &[],
    name: names::dns_subdomain_rule,
    rules: PLAIN,
    fields: &[],
    printer: table::NAME_AND_AGE,
    keeps_status: false,
    unconditional_update: true,
    create_on_update: false,
    returns_deleted: false,
    deprecation: None,
};

/// A kind that is answered, not stored.
const REVIEW: Row = Row { namespaced: false, verbs: &["create"], name: names::any_rule, ..ROW };

/// A kind that nothing here would act on, so that there are none: `kubectl apply --prune` looks for some all the
/// same, and prunes nothing where it is told that it may not look.
const ABSENT: Row = Row { verbs: &["get", "list", "watch"], ..ROW };

const fn subresource(name: &'static str, kind: &'static str, verbs: &'static [&'static str]) -> Subresource {
    Subresource { name, group: "", version: "", kind, verbs }
}

/// What can be asked of a server behind the API server.
const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];

/// The built-in kinds, core group first.
pub(super) static ROWS: &[Row] = &[
    Row {
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        definition: "io.k8s.api.core.v1.ConfigMap",
        rules: rules::config::CONFIG_MAP,
        printer: table::core::CONFIG_MAP,
        ..ROW
    },
    Row {
        kind: "Endpoints",
        create_on_update: true,
        plural: "endpoints",
        singular: "endpoints",
        short_names: &["ep"],
        definition: "io.k8s.api.core.v1.Endpoints",
        rules: rules::endpoints::ENDPOINTS,
        printer: table::core::ENDPOINTS,
        deprecation: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        ..ROW
    },
    Row {
        kind: "Event",
        create_on_update: true,
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        definition: "io.k8s.api.core.v1.Event",
        name: names::path_segment,
        rules: rules::event::CORE,
        fields: rules::event::FIELDS,
        printer: table::event::CORE,
        ..ROW
    },
    Row {
        kind: "Namespace",
        returns_deleted: true,
        plural: "namespaces",
        singular: "namespace",
        short_names: &["ns"],
        namespaced: false,
        verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
        definition: "io.k8s.api.core.v1.Namespace",
        status: true,
        other: &[subresource("finalize", "Namespace", &["update"])],
        name: names::dns_label_rule,
        rules: rules::core::NAMESPACE,
        fields: &["status.phase"],
        printer: table::core::NAMESPACE,
        ..ROW
    },
    Row {
        kind: "Node",
        keeps_status: true,
        plural: "nodes",
        singular: "node",
        short_names: &["no"],
        namespaced: false,
        definition: "io.k8s.api.core.v1.Node",
        status: true,
        rules: rules::core::NODE,
        fields: &["spec.unschedulable"],
        printer: table::node::NODE,
        ..ROW
    },
    Row {
        kind: "ReplicationController",
        plural: "replicationcontrollers",
        singular: "replicationcontroller",
        short_names: &["rc"],
        categories: &["all"],
        definition: "io.k8s.api.core.v1.ReplicationController",
        ..ABSENT
    },
    Row {
        kind: "PersistentVolumeClaim",
        returns_deleted: true,
        plural: "persistentvolumeclaims",
        singular: "persistentvolumeclaim",
        short_names: &["pvc"],
        definition: "io.k8s.api.core.v1.PersistentVolumeClaim",
        status: true,
        rules: rules::storage::CLAIM,
        printer: table::core::CLAIM,
        ..ROW
    },
    Row {
        kind: "PersistentVolume",
        returns_deleted: true,
        plural: "persistentvolumes",
        singular: "persistentvolume",
        short_names: &["pv"],
        namespaced: false,
        definition: "io.k8s.api.core.v1.PersistentVolume",
        status: true,
        rules: rules::storage::VOLUME,
        printer: table::core::VOLUME,
        ..ROW
    },
    Row {
        kind: "Pod",
        returns_deleted: true,
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        definition: "io.k8s.api.core.v1.Pod",
        status: true,
        other: &[
            subresource("attach", "PodAttachOptions", &["create", "get"]),
            subresource("binding", "Binding", &["create"]),
            subresource("ephemeralcontainers", "Pod", &["get", "patch", "update"]),
            Subresource {
                name: "eviction",
                group: "policy",
                version: "v1",
                kind: "Eviction",
                verbs: &["create"],
            },
            subresource("exec", "PodExecOptions", &["create", "get"]),
            subresource("log", "Pod", &["get"]),
            subresource("portforward", "PodPortForwardOptions", &["create", "get"]),
            subresource("proxy", "PodProxyOptions", PROXY),
        ],
        generation: true,
        rules: rules::pod::POD,
        fields: rules::pod::FIELDS,
        printer: table::pod::POD,
        ..ROW
    },
    Row {
        kind: "Secret",
        plural: "secrets",
        singular: "secret",
        definition: "io.k8s.api.core.v1.Secret",
        rules: rules::config::SECRET,
        fields: &["type"],
        printer: table::core::SECRET,
        ..ROW
    },
    Row {
        kind: "ServiceAccount",
        returns_deleted: true,
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        definition: "io.k8s.api.core.v1.ServiceAccount",
        other: &[Subresource {
            name: "token",
            group: "authentication.k8s.io",
            version: "v1",
            kind: "TokenRequest",
            verbs: &["create"],
        }],
        rules: rules::core::SERVICE_ACCOUNT,
        printer: table::core::SERVICE_ACCOUNT,
        ..ROW
    },
    Row {
        kind: "Service",
        create_on_update: true,
        returns_deleted: true,
        plural: "services",
        singular: "service",
        short_names: &["svc"],
        categories: &["all"],
        definition: "io.k8s.api.core.v1.Service",
        status: true,
        other: &[subresource("proxy", "ServiceProxyOptions", PROXY)],
        name: names::dns_1035_rule,
        rules: rules::service::SERVICE,
        fields: &["spec.clusterIP", "spec.type"],
        printer: table::core::SERVICE,
        ..ROW
    },
    Row {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        unconditional_update: false,
        plural: "customresourcedefinitions",
        singular: "customresourcedefinition",
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
        status: true,
        generation: true,
        rules: rules::definition::DEFINITION,
        printer: table::core::DEFINITION,
        ..ROW
    },
    Row {
        group: "apps",
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        singular: "controllerrevision",
        definition: "io.k8s.api.apps.v1.ControllerRevision",
        rules: rules::workload::REVISION,
        printer: table::workload::REVISION,
        ..ROW
    },
    Row {
        group: "apps",
        kind: "DaemonSet",
        plural: "daemonsets",
        singular: "daemonset",
        short_names: &["ds"],
        categories: &["all"],
        definition: "io.k8s.api.apps.v1.DaemonSet",
        status: true,
        generation: true,
        rules: rules::workload::DAEMON_SET,
        printer: table::workload::DAEMON_SET,
        ..ROW
    },
    Row {
        group: "apps",
        kind: "Deployment",
        plural: "deployments",
        singular: "deployment",
        short_names: &["deploy"],
        categories: &["all"],
        definition: "io.k8s.api.apps.v1.Deployment",
        status: true,
        scale: true,
        generation: true,
        counts: &["annotations"],
        rules: rules::workload::DEPLOYMENT,
        printer: table::workload::DEPLOYMENT,
        ..ROW
    },
    Row {
        group: "apps",
        kind: "ReplicaSet",
        plural: "replicasets",
        singular: "replicaset",
        short_names: &["rs"],
        categories: &["all"],
        definition: "io.k8s.api.apps.v1.ReplicaSet",
        status: true,
        scale: true,
        generation: true,
        rules: rules::workload::REPLICA_SET,
        fields: &["status.replicas"],
        printer: table::workload::REPLICA_SET,
        ..ROW
    },
    Row {
        group: "apps",
        kind: "StatefulSet",
        plural: "statefulsets",
        singular: "statefulset",
        short_names: &["sts"],
        categories: &["all"],
        definition: "io.k8s.api.apps.v1.StatefulSet",
        status: true,
        scale: true,
        generation: true,
        rules: rules::workload::STATEFUL_SET,
        printer: table::workload::STATEFUL_SET,
        ..ROW
    },
    Row {
        group: "authentication.k8s.io",
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        definition: "io.k8s.api.authentication.v1.SelfSubjectReview",
        ..REVIEW
    },
    Row {
        group: "authentication.k8s.io",
        kind: "TokenReview",
        plural: "tokenreviews",
        singular: "tokenreview",
        definition: "io.k8s.api.authentication.v1.TokenReview",
        ..REVIEW
    },
    Row {
        group: "authorization.k8s.io",
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        singular: "localsubjectaccessreview",
        namespaced: true,
        definition: "io.k8s.api.authorization.v1.LocalSubjectAccessReview",
        ..REVIEW
    },
    Row {
        group: "authorization.k8s.io",
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        definition: "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
        ..REVIEW
    },
    Row {
        group: "authorization.k8s.io",
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        singular: "selfsubjectrulesreview",
        definition: "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
        ..REVIEW
    },
    Row {
        group: "authorization.k8s.io",
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        definition: "io.k8s.api.authorization.v1.SubjectAccessReview",
        ..REVIEW
    },
    Row {
        group: "batch",
        kind: "CronJob",
        plural: "cronjobs",
        singular: "cronjob",
        short_names: &["cj"],
        categories: &["all"],
        definition: "io.k8s.api.batch.v1.CronJob",
        status: true,
        generation: true,
        rules: rules::batch::CRON_JOB,
        printer: table::workload::CRON_JOB,
        ..ROW
    },
    Row {
        group: "batch",
        kind: "Job",
        plural: "jobs",
        singular: "job",
        categories: &["all"],
        definition: "io.k8s.api.batch.v1.Job",
        status: true,
        generation: true,
        rules: rules::batch::JOB,
        fields: &["status.successful"],
        printer: table::workload::JOB,
        ..ROW
    },
    Row {
        group: "networking.k8s.io",
        kind: "Ingress",
        plural: "ingresses",
        singular: "ingress",
        short_names: &["ing"],
        definition: "io.k8s.api.networking.v1.Ingress",
        ..ABSENT
    },
    Row {
        group: "coordination.k8s.io",
        kind: "Lease",
        create_on_update: true,
        unconditional_update: false,
        plural: "leases",
        singular: "lease",
        definition: "io.k8s.api.coordination.v1.Lease",
        rules: rules::core::LEASE,
        printer: table::core::LEASE,
        ..ROW
    },
    Row {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        singular: "endpointslice",
        definition: "io.k8s.api.discovery.v1.EndpointSlice",
        generation: true,
        counts: &["labels"],
        rules: rules::endpoints::ENDPOINT_SLICE,
        printer: table::core::ENDPOINT_SLICE,
        ..ROW
    },
    Row {
        group: EVENTS,
        kind: "Event",
        create_on_update: true,
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        definition: "io.k8s.api.events.v1.Event",
        rules: rules::event::NEW,
        fields: rules::event::FIELDS,
        printer: table::event::NEW,
        ..ROW
    },
    Row {
        group: "policy",
        kind: "PodDisruptionBudget",
        unconditional_update: false,
        plural: "poddisruptionbudgets",
        singular: "poddisruptionbudget",
        short_names: &["pdb"],
        definition: "io.k8s.api.policy.v1.PodDisruptionBudget",
        status: true,
        generation: true,
        rules: rules::policy::BUDGET,
        printer: table::core::BUDGET,
        ..ROW
    },
    Row {
        group: RBAC,
        kind: "ClusterRoleBinding",
        create_on_update: true,
        plural: "clusterrolebindings",
        singular: "clusterrolebinding",
        namespaced: false,
        definition: "io.k8s.api.rbac.v1.ClusterRoleBinding",
        name: names::path_segment,
        rules: rules::rbac::CLUSTER_ROLE_BINDING,
        printer: table::core::CLUSTER_ROLE_BINDING,
        ..ROW
    },
    Row {
        group: RBAC,
        kind: "ClusterRole",
        create_on_update: true,
        plural: "clusterroles",
        singular: "clusterrole",
        namespaced: false,
        definition: "io.k8s.api.rbac.v1.ClusterRole",
        name: names::path_segment,
        rules: rules::rbac::CLUSTER_ROLE,
        printer: table::core::ROLE,
        ..ROW
    },
    Row {
        group: RBAC,
        kind: "RoleBinding",
        create_on_update: true,
        plural: "rolebindings",
        singular: "rolebinding",
        definition: "io.k8s.api.rbac.v1.RoleBinding",
        name: names::path_segment,
        rules: rules::rbac::ROLE_BINDING,
        printer: table::core::ROLE_BINDING,
        ..ROW
    },
    Row {
        group: RBAC,
        kind: "Role",
        create_on_update: true,
        plural: "roles",
        singular: "role",
        definition: "io.k8s.api.rbac.v1.Role",
        name: names::path_segment,
        rules: rules::rbac::ROLE,
        printer: table::core::ROLE,
        ..ROW
    },
    Row {
        group: "storage.k8s.io",
        kind: "StorageClass",
        returns_deleted: true,
        plural: "storageclasses",
        singular: "storageclass",
        short_names: &["sc"],
        namespaced: false,
        definition: "io.k8s.api.storage.v1.StorageClass",
        rules: rules::storage::CLASS,
        printer: table::core::STORAGE_CLASS,
        ..ROW
    },
];

const RBAC: &str = "rbac.authorization.k8s.io";
pub(super) const EVENTS: &str = "events.k8s.io";
