//! The values that fields of built-in types may have, as far as Kubernetes lists them.
//!
//! The published definitions leave them out; a running API server has them, and `kubectl explain` shows them.
//! They are for readers only: what a value may be is checked, and refused in Kubernetes' words, by the rules of
//! the kinds.

use serde_json::{Value, json};

use crate::json;

/// Values, split by commas, and the fields that have them; `[]` after a field stands for the
/// items of a list or map. Types are named without what their packages have in common.
const ENUMS: &[(&str, &[&str])] = &[
    (
        "OnDelete,RollingUpdate",
        &["apps.v1.DaemonSetUpdateStrategy.type", "apps.v1.StatefulSetUpdateStrategy.type"],
    ),
    ("Recreate,RollingUpdate", &["apps.v1.DeploymentStrategy.type"]),
    ("OrderedReady,Parallel", &["apps.v1.StatefulSetSpec.podManagementPolicy"]),
    ("Allow,Forbid,Replace", &["batch.v1.CronJobSpec.concurrencyPolicy"]),
    ("Indexed,NonIndexed", &["batch.v1.JobSpec.completionMode"]),
    ("Failed,TerminatingOrFailed", &["batch.v1.JobSpec.podReplacementPolicy"]),
    ("In,NotIn", &["batch.v1.PodFailurePolicyOnExitCodesRequirement.operator"]),
    ("Count,FailIndex,FailJob,Ignore", &["batch.v1.PodFailurePolicyRule.action"]),
    ("Localhost,RuntimeDefault,Unconfined", &["core.v1.AppArmorProfile.type", "core.v1.SeccompProfile.type"]),
    ("None,ReadOnly,ReadWrite", &["core.v1.AzureDiskVolumeSource.cachingMode"]),
    ("Dedicated,Managed,Shared", &["core.v1.AzureDiskVolumeSource.kind"]),
    (
        "Always,IfNotPresent,Never",
        &[
            "core.v1.Container.imagePullPolicy",
            "core.v1.EphemeralContainer.imagePullPolicy",
            "core.v1.ImageVolumeSource.pullPolicy",
        ],
    ),
    (
        "FallbackToLogsOnError,File",
        &[
            "core.v1.Container.terminationMessagePolicy",
            "core.v1.EphemeralContainer.terminationMessagePolicy",
        ],
    ),
    (
        "SCTP,TCP,UDP",
        &[
            "core.v1.ContainerPort.protocol",
            "core.v1.EndpointPort.protocol",
            "core.v1.PortStatus.protocol",
            "core.v1.ServicePort.protocol",
            "discovery.v1.EndpointPort.protocol",
            "networking.v1.IngressPortStatus.protocol",
        ],
    ),
    (
        "SIGABRT,SIGALRM,SIGBUS,SIGCHLD,SIGCLD,SIGCONT,SIGFPE,SIGHUP,SIGILL,SIGINT,SIGIO,SIGIOT,\
         SIGKILL,SIGPIPE,SIGPOLL,SIGPROF,SIGPWR,SIGQUIT,SIGRTMAX,SIGRTMAX-1,SIGRTMAX-10,SIGRTMAX-11,\
         SIGRTMAX-12,SIGRTMAX-13,SIGRTMAX-14,SIGRTMAX-2,SIGRTMAX-3,SIGRTMAX-4,SIGRTMAX-5,SIGRTMAX-6,\
         SIGRTMAX-7,SIGRTMAX-8,SIGRTMAX-9,SIGRTMIN,SIGRTMIN+1,SIGRTMIN+10,SIGRTMIN+11,SIGRTMIN+12,\
         SIGRTMIN+13,SIGRTMIN+14,SIGRTMIN+15,SIGRTMIN+2,SIGRTMIN+3,SIGRTMIN+4,SIGRTMIN+5,SIGRTMIN+6,\
         SIGRTMIN+7,SIGRTMIN+8,SIGRTMIN+9,SIGSEGV,SIGSTKFLT,SIGSTOP,SIGSYS,SIGTERM,SIGTRAP,SIGTSTP,\
         SIGTTIN,SIGTTOU,SIGURG,SIGUSR1,SIGUSR2,SIGVTALRM,SIGWINCH,SIGXCPU,SIGXFSZ",
        &["core.v1.ContainerStatus.stopSignal", "core.v1.Lifecycle.stopSignal"],
    ),
    ("HTTP,HTTPS", &["core.v1.HTTPGetAction.scheme"]),
    (
        ",BlockDevice,CharDevice,Directory,DirectoryOrCreate,File,FileOrCreate,Socket",
        &["core.v1.HostPathVolumeSource.type"],
    ),
    ("InProgress,Infeasible,Pending", &["core.v1.ModifyVolumeStatus.status"]),
    ("Active,Terminating", &["core.v1.NamespaceStatus.phase"]),
    ("DoesNotExist,Exists,Gt,In,Lt,NotIn", &["core.v1.NodeSelectorRequirement.operator"]),
    ("Pending,Running,Terminated", &["core.v1.NodeStatus.phase"]),
    (
        "ReadOnlyMany,ReadWriteMany,ReadWriteOnce,ReadWriteOncePod",
        &[
            "core.v1.PersistentVolumeClaimSpec.accessModes[]",
            "core.v1.PersistentVolumeClaimStatus.accessModes[]",
            "core.v1.PersistentVolumeSpec.accessModes[]",
        ],
    ),
    (
        "Block,Filesystem",
        &["core.v1.PersistentVolumeClaimSpec.volumeMode", "core.v1.PersistentVolumeSpec.volumeMode"],
    ),
    (
        "ControllerResizeInProgress,ControllerResizeInfeasible,NodeResizeInProgress,\
         NodeResizeInfeasible,NodeResizePending",
        &["core.v1.PersistentVolumeClaimStatus.allocatedResourceStatuses[]"],
    ),
    ("Bound,Lost,Pending", &["core.v1.PersistentVolumeClaimStatus.phase"]),
    (
        "Delete,Recycle,Retain",
        &[
            "core.v1.PersistentVolumeSpec.persistentVolumeReclaimPolicy",
            "storage.v1.StorageClass.reclaimPolicy",
        ],
    ),
    ("Available,Bound,Failed,Pending,Released", &["core.v1.PersistentVolumeStatus.phase"]),
    ("Always,OnRootMismatch", &["core.v1.PodSecurityContext.fsGroupChangePolicy"]),
    ("Merge,Strict", &["core.v1.PodSecurityContext.supplementalGroupsPolicy"]),
    ("ClusterFirst,ClusterFirstWithHostNet,Default,None", &["core.v1.PodSpec.dnsPolicy"]),
    ("Never,PreemptLowerPriority", &["core.v1.PodSpec.preemptionPolicy"]),
    ("Always,Never,OnFailure", &["core.v1.PodSpec.restartPolicy"]),
    ("Failed,Pending,Running,Succeeded,Unknown", &["core.v1.PodStatus.phase"]),
    ("BestEffort,Burstable,Guaranteed", &["core.v1.PodStatus.qosClass"]),
    ("Default,Unmasked", &["core.v1.SecurityContext.procMount"]),
    (
        "Cluster,Local",
        &["core.v1.ServiceSpec.externalTrafficPolicy", "core.v1.ServiceSpec.internalTrafficPolicy"],
    ),
    (",IPv4,IPv6", &["core.v1.ServiceSpec.ipFamilies[]"]),
    ("PreferDualStack,RequireDualStack,SingleStack", &["core.v1.ServiceSpec.ipFamilyPolicy"]),
    ("ClientIP,None", &["core.v1.ServiceSpec.sessionAffinity"]),
    ("ClusterIP,ExternalName,LoadBalancer,NodePort", &["core.v1.ServiceSpec.type"]),
    ("NoExecute,NoSchedule,PreferNoSchedule", &["core.v1.Taint.effect", "core.v1.Toleration.effect"]),
    ("Equal,Exists", &["core.v1.Toleration.operator"]),
    (
        "Honor,Ignore",
        &[
            "core.v1.TopologySpreadConstraint.nodeAffinityPolicy",
            "core.v1.TopologySpreadConstraint.nodeTaintsPolicy",
        ],
    ),
    ("DoNotSchedule,ScheduleAnyway", &["core.v1.TopologySpreadConstraint.whenUnsatisfiable"]),
    ("Bidirectional,HostToContainer,None", &["core.v1.VolumeMount.mountPropagation"]),
    ("Exact,ImplementationSpecific,Prefix", &["networking.v1.HTTPIngressPath.pathType"]),
    ("FQDN,IPv4,IPv6", &["discovery.v1.EndpointSlice.addressType"]),
    ("AlwaysAllow,IfHealthyBudget", &["policy.v1.PodDisruptionBudgetSpec.unhealthyPodEvictionPolicy"]),
    ("Immediate,WaitForFirstConsumer", &["storage.v1.StorageClass.volumeBindingMode"]),
    (
        "FieldValueDuplicate,FieldValueForbidden,FieldValueInvalid,FieldValueRequired",
        &["apiextensions.v1.ValidationRule.reason"],
    ),
];

/// Adds the values of its fields to the definition `name`, and to their descriptions.
pub(super) fn add(name: &str, definition: &mut Value) {
    let Some(Value::Object(properties)) = definition.get_mut("properties") else { return };
    for (values, places) in ENUMS {
        for (owner, field) in places.iter().filter_map(|place| place.rsplit_once('.')) {
            let is_it = name.strip_suffix(owner).is_some_and(|package| package.ends_with('.'));
            let Some(property) = properties.get_mut(field.trim_end_matches("[]")).filter(|_| is_it) else {
                continue;
            };
            let values: Vec<&str> = values.split(',').collect();
            if field.ends_with("[]") {
                let items = if property.get("items").is_some() { "items" } else { "additionalProperties" };
                if let Some(items) = property.get_mut(items) {
                    json::set(items, "enum", json!(values));
                }
                continue;
            }
            let mut description = format!("{}\n\nPossible enum values:", json::text(property, "description"));
            for value in &values {
                description.push_str(&format!("\n - `\"{value}\"`"));
            }
            json::set(property, "description", description);
            json::set(property, "enum", json!(values));
        }
    }
}
