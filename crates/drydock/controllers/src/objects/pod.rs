//! Pods, as far as controllers look at them.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use super::meta::{Meta, nullable};

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
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node it was given; empty while it waits for one.
    pub node_name: Box<str>,
    /// The host name it asked for.
    pub hostname: Box<str>,
    /// The domain of that host name.
    pub subdomain: Box<str>,
    /// Containers.
    #[serde(deserialize_with = "nullable")]
    pub containers: Vec<Container>,
    /// Init containers; those that are restarted always are sidecars.
    #[serde(deserialize_with = "nullable")]
    pub init_containers: Vec<Container>,
}

/// A container: its ports.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Box<str>,
    /// Ports.
    #[serde(deserialize_with = "nullable")]
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
    /// `TCP` when not said.
    pub protocol: Box<str>,
}

/// `status` of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// Where it is in its life.
    pub phase: Phase,
    /// Its address.
    #[serde(rename = "podIP")]
    pub pod_ip: Box<str>,
    /// Its addresses, one per family.
    #[serde(rename = "podIPs", deserialize_with = "addresses")]
    pub pod_ips: Vec<Box<str>>,
    /// The condition `Ready`.
    #[serde(rename = "conditions", deserialize_with = "ready")]
    pub ready: Option<Ready>,
    /// The highest number of restarts of any container.
    #[serde(rename = "containerStatuses", deserialize_with = "restarts")]
    pub restarts: i32,
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition<'a> {
    #[serde(borrow)]
    r#type: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    status: std::borrow::Cow<'a, str>,
    #[serde(default)]
    last_transition_time: Option<Timestamp>,
}

fn ready<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Ready>, D::Error> {
    let conditions = Option::<Vec<Condition<'de>>>::deserialize(input)?.unwrap_or_default();
    Ok(conditions
        .iter()
        .find(|condition| condition.r#type == "Ready")
        .map(|condition| Ready { is: condition.status == "True", since: condition.last_transition_time }))
}

fn restarts<'de, D: Deserializer<'de>>(input: D) -> Result<i32, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Status {
        #[serde(default)]
        restart_count: i32,
    }
    let statuses = Option::<Vec<Status>>::deserialize(input)?.unwrap_or_default();
    Ok(statuses.iter().map(|status| status.restart_count).max().unwrap_or(0))
}

fn addresses<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<Box<str>>, D::Error> {
    #[derive(Deserialize)]
    struct Address {
        #[serde(default)]
        ip: Box<str>,
    }
    let all = Option::<Vec<Address>>::deserialize(input)?.unwrap_or_default();
    Ok(all.into_iter().map(|address| address.ip).collect())
}

impl Pod {
    /// Whether it has ended, well or badly.
    pub fn finished(&self) -> bool {
        matches!(self.status.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Whether it counts as a replica: neither ended nor being deleted.
    pub fn active(&self) -> bool {
        !self.finished() && !self.metadata.deleting()
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
