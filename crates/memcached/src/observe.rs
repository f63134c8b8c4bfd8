//! What the view shows of a cache: how far the rollout is, which nodes there are, what is wrong.
//!
//! Everything here is read from what Kubernetes reports of the Deployment and its pods. A report that is older than
//! the Deployment it speaks of is not evidence.

use ballast_operator::{Class, KindRef, Object, Operator as _, View, compare};
use k8s_openapi::api::{
    apps::v1::{Deployment, DeploymentCondition},
    core::v1::{ContainerStatus, Pod},
};

use crate::{Cache, Memcached, MemcachedOperator, desired::CONTAINER};

/// How far the nodes are from what is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rollout {
    /// The Deployment is not there, or does not say what is wanted, or its controller has not looked at it yet, or
    /// nodes are being started, replaced or stopped. To whoever waits it is all the same.
    Underway,
    /// The server does not take the Deployment as it is wanted, and will not until somebody changes something.
    Refused {
        /// What it says.
        message: String,
    },
    /// Kubernetes gave up on it.
    Stuck {
        /// What the Deployment says.
        message: String,
    },
    /// Every node is up and as wanted.
    Complete,
}

/// Something that will not pass by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// One word for programs.
    pub(crate) reason: &'static str,
    /// A sentence for people.
    pub(crate) message: String,
}

impl Trouble {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Trouble { reason, message: message.into() }
    }
}

/// What the view shows.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) rollout: Rollout,
    /// How many pods there are.
    pub(crate) replicas: i32,
    /// How many of them answer.
    pub(crate) ready: i32,
    /// The names of the pods, sorted.
    pub(crate) nodes: Vec<String>,
    /// Why pods wait for a machine, where they do.
    pub(crate) unschedulable: Option<String>,
    /// What is wrong with the Deployment or its pods.
    pub(crate) trouble: Option<Trouble>,
}

pub(crate) fn observe(
    view: &View<Memcached>,
    cache: &Cache,
    live: Option<&Deployment>,
    want: &Object,
) -> Observed {
    let mut pods: Vec<Pod> = view.children.list();
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none() && !is_finished(pod));
    let mut nodes: Vec<String> = pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
    nodes.sort();
    let status = live.and_then(|deployment| deployment.status.as_ref());
    let rollout = rollout(view, cache, live, want);
    let trouble = live.and_then(replica_failure).or_else(|| stuck(&rollout)).or_else(|| pod_trouble(&pods));
    Observed {
        replicas: status.and_then(|status| status.replicas).unwrap_or(0),
        ready: status.and_then(|status| status.ready_replicas).unwrap_or(0),
        unschedulable: pods.iter().find_map(unschedulable),
        nodes,
        rollout,
        trouble,
    }
}

fn rollout(view: &View<Memcached>, cache: &Cache, live: Option<&Deployment>, want: &Object) -> Rollout {
    let live = match live {
        Some(live) if says_what_is_wanted(view, cache, want) => live,
        _ => return refused(view, want).map_or(Rollout::Underway, |message| Rollout::Refused { message }),
    };
    let status = live.status.clone().unwrap_or_default();
    if status.observed_generation.is_none() || status.observed_generation < live.metadata.generation {
        return Rollout::Underway;
    }
    let all = |count: Option<i32>| count.unwrap_or(0) == cache.size;
    if all(status.replicas) && all(status.updated_replicas) && all(status.available_replicas) {
        return Rollout::Complete;
    }
    match condition(live, "Progressing") {
        Some(progress) if progress.status == "False" => {
            Rollout::Stuck { message: progress.message.clone().unwrap_or_default() }
        }
        _ => Rollout::Underway,
    }
}

/// What the server said when the Deployment was last applied, where that is its last word.
fn refused(view: &View<Memcached>, want: &Object) -> Option<String> {
    let failed = view.last_outcome.as_ref()?.failed.as_ref()?;
    let lasts = failed.failure.class != Class::Retry && failed.is_apply_of(want);
    lasts.then(|| failed.failure.message.clone())
}

/// Whether the live Deployment's spec has the wanted values. Who owns them does not matter for what the nodes are.
fn says_what_is_wanted(view: &View<Memcached>, cache: &Cache, want: &Object) -> bool {
    let Some(live) = view.children.object(&KindRef::of::<Deployment>(), &cache.name) else { return false };
    let differences = compare(live.value(), want.value(), MemcachedOperator::FIELD_MANAGER, None);
    !differences
        .into_iter()
        .flatten()
        .any(|difference| difference.path.starts_with(".spec") && difference.is != difference.becomes)
}

fn condition<'d>(deployment: &'d Deployment, type_: &str) -> Option<&'d DeploymentCondition> {
    deployment.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

/// Kubernetes could not even make the pods: a quota, an admission policy.
fn replica_failure(deployment: &Deployment) -> Option<Trouble> {
    let failure = condition(deployment, "ReplicaFailure").filter(|failure| failure.status == "True")?;
    Some(Trouble::new("ReplicaFailure", failure.message.clone().unwrap_or_default()))
}

fn stuck(rollout: &Rollout) -> Option<Trouble> {
    match rollout {
        Rollout::Stuck { message } => Some(Trouble::new("ProgressDeadlineExceeded", message.clone())),
        _ => None,
    }
}

/// The first pod that fails, in the order of names, stands for all.
fn pod_trouble(pods: &[Pod]) -> Option<Trouble> {
    let failing: Vec<Trouble> = pods.iter().filter_map(trouble_of).collect();
    let first = failing.first()?;
    let message = format!("{} of {} pods fail: {}", failing.len(), pods.len(), first.message);
    Some(Trouble::new(first.reason, message))
}

fn trouble_of(pod: &Pod) -> Option<Trouble> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let status = pod.status.as_ref()?;
    let container = status.container_statuses.iter().flatten().find(|status| status.name == CONTAINER)?;
    let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref()).unwrap_or_default();
    match reason {
        // The two take turns while the kubelet tries again; their texts too. One word for both, or the status would
        // be written at every turn.
        "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "InvalidImageName" => {
            let image = &container.image;
            Some(Trouble::new(
                "ImagePullFailed",
                format!("{name}: the image {image} can't be pulled; `kubectl describe pod {name}` says why"),
            ))
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            let text =
                waiting.and_then(|waiting| waiting.message.as_deref()).unwrap_or("it says nothing more");
            Some(Trouble::new("ContainerNotStarted", format!("{name}: {reason}: {text}")))
        }
        _ => crash_loop(container).map(|how| {
            Trouble::new(
                "CrashLoop",
                format!("{name} keeps crashing: {how}; `kubectl logs -p {name}` says why"),
            )
        }),
    }
}

/// How a container that keeps ending ended last. One that runs again and is not ready yet still counts: between two
/// crashes nothing is healed.
fn crash_loop(container: &ContainerStatus) -> Option<String> {
    if container.ready || container.restart_count == 0 {
        return None;
    }
    let ended = |state: Option<&k8s_openapi::api::core::v1::ContainerState>| {
        state.and_then(|state| state.terminated.as_ref()).cloned()
    };
    let last = ended(container.state.as_ref()).or_else(|| ended(container.last_state.as_ref()))?;
    let reason = last.reason.unwrap_or_else(|| "it ended".to_owned());
    Some(format!("{reason}, exit code {}", last.exit_code))
}

fn unschedulable(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let waits = conditions.into_iter().find(|condition| {
        condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
    })?;
    Some(waits.message.clone().unwrap_or_else(|| "no machine takes them".to_owned()))
}

/// A pod that ended for good, such as an evicted one, is no node. It stays until someone removes it.
fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}
