//! The objects as the controllers see them: only the fields a decision looks at, and whatever must go back
//! to the server unharmed. A cached pod is a tenth of its JSON; a pod template stays the text it came as.

pub mod condition;
pub mod daemon;
pub mod job;
pub mod meta;
pub mod node;
pub mod placement;
pub mod pod;
pub mod quantity;
pub mod resource;
pub mod selector;
pub mod service;
pub mod stateful;
pub mod storage;
pub mod template;
pub mod workload;

use crate::machinery::cache::{Kind, Object};
use crate::machinery::index::By;
use crate::own::Owner;
use meta::{Meta, Pairs};
use resource::Resource;
use selector::LabelSelector;

macro_rules! kinds {
    ($($type:ty, $by:ident $(($selection:expr))?, [$($resource:literal),*];)*) => {
        $(
            impl Object for $type {
                const BY: By = By::$by;

                fn meta(&self) -> &Meta {
                    &self.metadata
                }

                $(fn selection(&self) -> Option<&Pairs> {
                    let selection: fn(&Self) -> Option<&Pairs> = $selection;
                    selection(self)
                })?
            }

            impl Kind for $type {
                fn resource() -> &'static Resource {
                    static RESOURCE: Resource = Resource::fixed($($resource),*);
                    &RESOURCE
                }
            }
        )*
    };
}

// The kinds that are cached with more than their metadata: the type, by what its objects are looked up, in brackets
// what they select if that is looked up too, and where it lives in the API.
kinds! {
    pod::Pod, ControllerAndLabels, ["", "v1", "Pod", "pods", true];
    node::Node, Key, ["", "v1", "Node", "nodes", false];
    node::Lease, Key, ["coordination.k8s.io", "v1", "Lease", "leases", true];
    workload::Deployment, Key, ["apps", "v1", "Deployment", "deployments", true];
    workload::ReplicaSet, Controller, ["apps", "v1", "ReplicaSet", "replicasets", true];
    stateful::StatefulSet, Key, ["apps", "v1", "StatefulSet", "statefulsets", true];
    daemon::DaemonSet, Key, ["apps", "v1", "DaemonSet", "daemonsets", true];
    stateful::Revision, Controller, ["apps", "v1", "ControllerRevision", "controllerrevisions", true];
    storage::Claim, Key, ["", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true];
    storage::Volume, Key, ["", "v1", "PersistentVolume", "persistentvolumes", false];
    storage::Class, Key, ["storage.k8s.io", "v1", "StorageClass", "storageclasses", false];
    job::Job, Controller, ["batch", "v1", "Job", "jobs", true];
    job::CronJob, Key, ["batch", "v1", "CronJob", "cronjobs", true];
    workload::Budget, Key(|it| it.spec.selector.as_ref().map(|selector| &selector.match_labels)), ["policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true];
    service::Service, Key(|it| it.spec.selects().then_some(&it.spec.selector)), ["", "v1", "Service", "services", true];
    service::Endpoints, Key, ["", "v1", "Endpoints", "endpoints", true];
    service::EndpointSlice, Labels, ["discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true];
    service::Namespace, Key, ["", "v1", "Namespace", "namespaces", false];
    service::ServiceAccount, Key, ["", "v1", "ServiceAccount", "serviceaccounts", true];
    service::ConfigMap, Key, ["", "v1", "ConfigMap", "configmaps", true];
    service::ClusterRole, Key, ["rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false];
    service::Definition, Key, ["apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false];
}

macro_rules! owners {
    ($($type:ty),*) => {
        $(impl Owner for $type {
            fn selector(&self) -> &LabelSelector {
                &self.spec.selector
            }
        })*
    };
}

owners!(workload::Deployment, workload::ReplicaSet, stateful::StatefulSet, daemon::DaemonSet, job::Job);

impl Object for service::Bare {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
