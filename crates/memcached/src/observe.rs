//! What the view shows of a cache: how far the rollout is, which nodes there are, what is wrong.
//!
//! Everything here is read from what Kubernetes reports of the Deployment and its pods, and from what the pods
//! themselves answered. A report that is older than the Deployment it speaks of is not evidence.

use ballast_operator::{Class, KindRef, Object, Operator as _, Trouble, View, compare, pod};
use jiff::SignedDuration;
use k8s_openapi::api::{
    apps::v1::{Deployment, DeploymentCondition},
    core::v1::Pod,
};

use crate::{Cache, Memcached, MemcachedOperator, desired::CONTAINER, servers::Servers};

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
    /// A node of the new version does not serve, and the others are left alone.
    Stopped {
        /// Which node, and what is wrong with it.
        message: String,
    },
    /// Every node is up and as wanted.
    Complete,
}

fn with_a_way_out(trouble: Trouble, way: Option<String>) -> Trouble {
    match way {
        Some(way) => Trouble { message: format!("{}. {}", trouble.message, capital(&way)), ..trouble },
        None => trouble,
    }
}

fn capital(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters
        .next()
        .map(|first| format!("{}{}", first.to_ascii_uppercase(), letters.as_str()))
        .unwrap_or_default()
}

/// What the view shows.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) rollout: Rollout,
    /// How many pods there are.
    pub(crate) replicas: i32,
    /// The names of the pods, sorted.
    pub(crate) nodes: Vec<String>,
    /// Why pods wait for a machine, where they do.
    pub(crate) unschedulable: Option<String>,
    /// What is wrong with the Deployment or its pods.
    pub(crate) trouble: Option<Trouble>,
}

/// Whether pods are missing here that the Deployment speaks of, or are not up here and are by what it says: and for how
/// long at least.
pub(crate) fn behind(view: &View<Memcached>, live: Option<&Deployment>) -> Option<SignedDuration> {
    let live = live?;
    let (status, template) = (live.status.as_ref()?, live.spec.as_ref()?.template.spec.as_ref()?);
    if status.observed_generation != live.metadata.generation {
        return None;
    }
    let mut pods: Vec<Pod> = view.children.list();
    pods.retain(|found| !pod::is_finished(found));
    let fewer =
        |seen: usize, said: Option<i32>| i32::try_from(seen).is_ok_and(|seen| seen < said.unwrap_or(0));
    let image = pod::image_in(template, CONTAINER);
    let new = pods.iter().filter(|found| pod::image(found, CONTAINER) == image).count();
    let ready = pods.iter().filter(|found| pod::is_ready(found)).count();
    let behind = fewer(new, status.updated_replicas) || fewer(ready, status.ready_replicas);
    let said_at = condition(live, "Progressing").and_then(|progress| progress.last_update_time.as_ref())?;
    behind.then(|| view.now.duration_since(said_at.0))
}

/// The pods that are to stay.
pub(crate) fn pods(view: &View<Memcached>) -> Vec<Pod> {
    let mut pods: Vec<Pod> = view.children.list();
    pods.retain(|found| !pod::is_going(found) && !pod::is_finished(found));
    pods
}

pub(crate) fn observe(
    view: &View<Memcached>,
    cache: &Cache,
    live: Option<&Deployment>,
    want: &Object,
    servers: &Servers,
) -> Observed {
    let pods = pods(view);
    let mut nodes: Vec<String> = pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
    nodes.sort();
    let status = live.and_then(|deployment| deployment.status.as_ref());
    let rollout = match servers.stopped_by(cache) {
        Some(message) => Rollout::Stopped { message },
        // The Deployment's report can be older than its pods: one that was just removed is still in it.
        None => match rollout(view, cache, live, want) {
            Rollout::Complete if servers.asked() < cache.size => Rollout::Underway,
            other => other,
        },
    };
    let failing = stuck(&rollout)
        .or_else(|| pod::trouble(&pods, CONTAINER))
        .or_else(|| server_trouble(&rollout, servers))
        .map(|trouble| with_a_way_out(trouble, servers.way_back(cache)));
    Observed {
        replicas: status.and_then(|status| status.replicas).unwrap_or(0),
        unschedulable: pods.iter().find_map(pod::unschedulable),
        nodes,
        rollout,
        trouble: live.and_then(replica_failure).or(failing),
    }
}

/// What the servers themselves show to be wrong.
fn server_trouble(rollout: &Rollout, servers: &Servers) -> Option<Trouble> {
    if let Rollout::Stopped { message } = rollout {
        return Some(Trouble::new("UpgradeStopped", format!("the upgrade is stopped: {message}")));
    }
    let faults: Vec<String> = servers.iter().filter_map(crate::servers::Server::fault).collect();
    let first = faults.first()?;
    let asked = servers.asked();
    let message = if faults.len() > 1 && servers.serving() == 0 {
        format!(
            "no server serves, and none is replaced for it: {first}; look at the machines and the network, or delete the pods"
        )
    } else {
        format!("{} of {asked} servers do not serve: {first}", faults.len())
    };
    Some(Trouble::new("NotServing", message))
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
    if all(status.replicas) && all(status.updated_replicas) && all(status.ready_replicas) {
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
