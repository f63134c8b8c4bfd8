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
use crate::own::Owner;
use meta::Meta;
use resource::Resource;
use selector::LabelSelector;

macro_rules! kinds {
    ($($type:ty, $by_controller:literal, [$($resource:literal),*];)*) => {
        $(
            impl Object for $type {
                const BY_CONTROLLER: bool = $by_controller;

                fn meta(&self) -> &Meta {
                    &self.metadata
                }
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

// The kinds that are cached with more than their metadata: the type, whether its objects are looked up by
// the controller that manages them, and where it lives in the API.
kinds! {
    pod::Pod, true, ["", "v1", "Pod", "pods", true];
    node::Node, false, ["", "v1", "Node", "nodes", false];
    workload::Deployment, false, ["apps", "v1", "Deployment", "deployments", true];
    workload::ReplicaSet, true, ["apps", "v1", "ReplicaSet", "replicasets", true];
    stateful::StatefulSet, false, ["apps", "v1", "StatefulSet", "statefulsets", true];
    daemon::DaemonSet, false, ["apps", "v1", "DaemonSet", "daemonsets", true];
    stateful::Revision, true, ["apps", "v1", "ControllerRevision", "controllerrevisions", true];
    storage::Claim, false, ["", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true];
    storage::Volume, false, ["", "v1", "PersistentVolume", "persistentvolumes", false];
    storage::Class, false, ["storage.k8s.io", "v1", "StorageClass", "storageclasses", false];
    job::Job, true, ["batch", "v1", "Job", "jobs", true];
    job::CronJob, false, ["batch", "v1", "CronJob", "cronjobs", true];
    workload::Budget, false, ["policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true];
    service::Service, false, ["", "v1", "Service", "services", true];
    service::Endpoints, false, ["", "v1", "Endpoints", "endpoints", true];
    service::EndpointSlice, false, ["discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true];
    service::Namespace, false, ["", "v1", "Namespace", "namespaces", false];
    service::ServiceAccount, false, ["", "v1", "ServiceAccount", "serviceaccounts", true];
    service::ConfigMap, false, ["", "v1", "ConfigMap", "configmaps", true];
    service::ClusterRole, false, ["rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false];
    service::Definition, false, ["apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false];
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
