//! Pods, as far as controllers look at them.

mod conditions;
mod written;

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use super::meta::Meta;
use super::placement::{Amounts, Placement, Toleration};
pub use conditions::Conditions;

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Metadata.
    pub metadata: Meta,
    /// What was asked for.
    pub spec: PodSpec,
    /// What is.
    pub status: PodStatus,
}

/// `spec` of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "written::Spec")]
pub struct PodSpec {
    /// The node it was given; empty while it waits for one.
    pub node_name: Box<str>,
    /// The host name it asked for.
    pub hostname: Box<str>,
    /// The domain of that host name.
    pub subdomain: Box<str>,
    /// Volumes that are claims.
    pub claims: ClaimVolumes,
    /// The names of volumes that are claims made for this pod alone.
    pub ephemeral: Vec<Box<str>>,
    /// Containers.
    pub containers: Vec<Container>,
    /// Init containers; those that are restarted always are sidecars.
    pub init_containers: Vec<Container>,
    /// Whether it is for the scheduler of this cluster, and nothing holds it back.
    pub for_scheduler: bool,
    /// What it needs of a node.
    pub requests: Amounts,
    /// What it is taken to need when nodes are compared: something, also when it asks for nothing.
    pub likely: [i64; 2],
    /// Where it may and would rather be, if it says anything about that.
    pub placement: Option<Box<Placement>>,
}

/// The names of volumes that are claims, each with that of the claim.
pub type ClaimVolumes = Vec<(Box<str>, Box<str>)>;

/// A container: its ports.
#[derive(Clone, Debug, Default)]
pub struct Container {
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Box<str>,
    /// Ports.
    pub ports: Vec<ContainerPort>,
}

/// A port of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// Its name.
    pub name: Box<str>,
    /// Its number.
    pub container_port: i32,
    /// The port of the node that leads to it; zero for none.
    pub host_port: i32,
    /// The address of the node that the port is on; empty for all.
    #[serde(rename = "hostIP")]
    pub host_ip: Box<str>,
    /// `TCP` when not said.
    pub protocol: Box<str>,
}

/// `status` of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "written::Status")]
pub struct PodStatus {
    /// Where it is in its life.
    pub phase: Phase,
    /// Its address.
    pub pod_ip: Box<str>,
    /// Its addresses, one per family.
    pub pod_ips: Vec<Box<str>>,
    /// The condition `Ready`.
    pub ready: Option<Ready>,
    /// Why it was not given a node: the message of the condition `PodScheduled` when that is false, and
    /// since when.
    pub unscheduled: Option<Box<(String, Option<Timestamp>)>>,
    /// The highest number of restarts of any container.
    pub restarts: i32,
    /// The restarts of all containers together.
    pub all_restarts: i32,
    /// Containers that have ended, with their exit codes.
    pub ended: Vec<(Box<str>, i32)>,
    /// When the last container ended, if all have.
    pub ended_at: Option<Timestamp>,
    /// All conditions, with their status.
    pub conditions: Conditions,
}

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Phase {
    /// Accepted, not all containers started.
    #[default]
    #[serde(alias = "")]
    Pending,
    /// Running.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
    /// Nobody knows.
    #[serde(other)]
    Unknown,
}

/// The condition `Ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Whether it is ready.
    pub is: bool,
    /// Since when.
    pub since: Option<Timestamp>,
}

impl PodSpec {
    /// Which taints do not keep it away.
    pub fn tolerations(&self) -> &[Toleration] {
        self.placement.as_ref().map_or(&[], |placement| &placement.tolerations)
    }
}

impl Pod {
    /// The names of all its claims, and whether each was made for it alone.
    pub fn claims(&self) -> Vec<(String, bool)> {
        let named = self.spec.claims.iter().map(|(_, claim)| (claim.to_string(), false));
        let own = self.spec.ephemeral.iter().map(|volume| (format!("{}-{volume}", self.metadata.name), true));
        named.chain(own).collect()
    }

    /// Whether it has ended, well or badly.
    pub fn finished(&self) -> bool {
        matches!(self.status.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Whether it waits for the scheduler to give it a node.
    pub fn waits_for_node(&self) -> bool {
        self.spec.for_scheduler && self.spec.node_name.is_empty() && self.active()
    }

    /// The ports it takes of its node.
    pub fn host_ports(&self) -> impl Iterator<Item = &ContainerPort> {
        let sidecars = self.spec.init_containers.iter().filter(|one| &*one.restart_policy == "Always");
        let all = self.spec.containers.iter().chain(sidecars);
        all.flat_map(|container| &container.ports).filter(|port| port.host_port > 0)
    }

    /// Whether it counts as a replica: neither ended nor being deleted.
    pub fn active(&self) -> bool {
        !self.finished() && !self.metadata.deleting()
    }

    /// Whether its node is done with it, or nobody waits for that: only others may still hold it.
    pub fn shut_down(&self) -> bool {
        self.metadata.deleting() && self.metadata.deletion_grace_period_seconds == Some(0)
    }

    /// Whether it is ready.
    pub fn ready(&self) -> bool {
        self.status.ready.is_some_and(|ready| ready.is)
    }

    /// How long until it has been ready for `min_ready`: zero when it is available now, `None` when it is
    /// not ready.
    pub fn available_in(&self, min_ready: Duration, now: Timestamp) -> Option<Duration> {
        let ready = self.status.ready.filter(|ready| ready.is)?;
        if min_ready.is_zero() {
            return Some(Duration::ZERO);
        }
        let passed = ready
            .since
            .and_then(|since| Duration::try_from(now.duration_since(since)).ok())
            .unwrap_or_default();
        Some(min_ready.saturating_sub(passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_available_when_it_has_been_ready_long_enough() {
        let pod: Pod = serde_json::from_str(
            r#"{"metadata":{"name":"p"},"status":{"phase":"Running","podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}],
                "conditions":[{"type":"Initialized","status":"True"},{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}],
                "containerStatuses":[{"restartCount":2},{"restartCount":5}]}}"#,
        )
        .unwrap();
        let now: Timestamp = "2026-01-01T00:00:04Z".parse().unwrap();
        assert_eq!(pod.available_in(Duration::ZERO, now), Some(Duration::ZERO));
        assert_eq!(pod.available_in(Duration::from_secs(10), now), Some(Duration::from_secs(6)));
        assert_eq!(pod.available_in(Duration::from_secs(3), now), Some(Duration::ZERO));
        assert_eq!((pod.status.restarts, pod.status.phase), (5, Phase::Running));
    }
}
