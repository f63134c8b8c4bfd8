//! Pods as they are written, and what is kept of that.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use super::{ClaimVolumes, Conditions, Container, ContainerPort, Phase, PodSpec, PodStatus, Ready};
use crate::objects::meta::Pairs;
use crate::objects::meta::nullable;
use crate::objects::placement::{Affinity, Amounts, Placement, SpreadConstraint, Toleration};

/// What a container that asks for nothing is taken to need when nodes are compared: Kubernetes' numbers, in
/// thousandths of a core and bytes.
const LIKELY: [(&str, i64); 2] = [("cpu", 100), ("memory", 200 << 20)];

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    node_name: Box<str>,
    hostname: Box<str>,
    subdomain: Box<str>,
    scheduler_name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    volumes: Vec<Volume>,
    #[serde(deserialize_with = "nullable")]
    scheduling_gates: Vec<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "nullable")]
    containers: Vec<WrittenContainer>,
    #[serde(deserialize_with = "nullable")]
    init_containers: Vec<WrittenContainer>,
    resources: Resources,
    overhead: Amounts,
    #[serde(deserialize_with = "nullable")]
    node_selector: Pairs,
    #[serde(deserialize_with = "nullable")]
    affinity: Affinity,
    #[serde(deserialize_with = "nullable")]
    tolerations: Vec<Toleration>,
    #[serde(deserialize_with = "nullable")]
    topology_spread_constraints: Vec<SpreadConstraint>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Volume {
    name: Box<str>,
    persistent_volume_claim: Option<ClaimSource>,
    ephemeral: Option<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimSource {
    claim_name: Box<str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WrittenContainer {
    restart_policy: Box<str>,
    #[serde(deserialize_with = "nullable")]
    ports: Vec<ContainerPort>,
    resources: Resources,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: Amounts,
}

impl From<Spec> for PodSpec {
    fn from(spec: Spec) -> Self {
        let (requests, likely) = (spec.requests(), spec.likely());
        let placement = Placement {
            node_selector: spec.node_selector,
            affinity: spec.affinity,
            tolerations: spec.tolerations,
            topology_spread_constraints: spec.topology_spread_constraints,
        };
        let slim = |all: Vec<WrittenContainer>| {
            let one =
                |one: WrittenContainer| Container { restart_policy: one.restart_policy, ports: one.ports };
            all.into_iter().map(one).collect()
        };
        let (mut claims, mut ephemeral) = (ClaimVolumes::new(), Vec::new());
        for volume in spec.volumes {
            match (volume.persistent_volume_claim, volume.ephemeral) {
                (Some(source), _) => claims.push((volume.name, source.claim_name)),
                (None, Some(_)) => ephemeral.push(volume.name),
                (None, None) => {}
            }
        }
        PodSpec {
            node_name: spec.node_name,
            hostname: spec.hostname,
            subdomain: spec.subdomain,
            claims,
            ephemeral,
            containers: slim(spec.containers),
            init_containers: slim(spec.init_containers),
            for_scheduler: &*spec.scheduler_name == "default-scheduler" && spec.scheduling_gates.is_empty(),
            requests,
            likely,
            placement: (placement != Placement::default()).then(|| Box::new(placement)),
        }
    }
}

impl Spec {
    /// The most that it needs at any time: of its containers together, and of each init container with the
    /// sidecars before it; what is said for the pod as a whole stands above that.
    fn requests(&self) -> Amounts {
        let mut together = Amounts::default();
        let mut sidecars = Amounts::default();
        let mut most = Amounts::default();
        for container in &self.init_containers {
            if &*container.restart_policy == "Always" {
                sidecars.add(&container.resources.requests);
                most.at_least(&sidecars);
            } else {
                let mut alone = sidecars.clone();
                alone.add(&container.resources.requests);
                most.at_least(&alone);
            }
        }
        self.containers.iter().for_each(|container| together.add(&container.resources.requests));
        together.add(&sidecars);
        most.at_least(&together);
        for (name, amount) in self.resources.requests.iter() {
            most.update(name, |_| amount);
        }
        most.add(&self.overhead);
        most
    }

    fn likely(&self) -> [i64; 2] {
        LIKELY.map(|(name, least)| {
            let asked = self.resources.requests.get(name);
            if asked > 0 {
                return asked + self.overhead.get(name);
            }
            let amounts = self.containers.iter().map(|container| container.resources.requests.get(name));
            amounts.map(|amount| if amount == 0 { least } else { amount }).sum::<i64>()
                + self.overhead.get(name)
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    phase: Phase,
    #[serde(rename = "podIP")]
    pod_ip: Box<str>,
    #[serde(rename = "podIPs", deserialize_with = "addresses")]
    pod_ips: Vec<Box<str>>,
    #[serde(deserialize_with = "conditions")]
    conditions: Told,
    #[serde(deserialize_with = "nullable")]
    container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "nullable")]
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    name: Box<str>,
    restart_count: i32,
    state: State,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct State {
    terminated: Option<Terminated>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Terminated {
    exit_code: i32,
    finished_at: Option<Timestamp>,
}

#[derive(Default)]
struct Told {
    ready: Option<Ready>,
    unscheduled: Option<Box<(String, Option<Timestamp>)>>,
    all: Conditions,
}

impl From<Status> for PodStatus {
    fn from(status: Status) -> Self {
        let all = || status.container_statuses.iter().chain(&status.init_container_statuses);
        let ends = status.container_statuses.iter().map(|one| one.state.terminated.as_ref()?.finished_at);
        let ended_at = ends.collect::<Option<Vec<_>>>().and_then(|times| times.into_iter().max());
        let ended =
            all().filter_map(|one| Some((one.name.clone(), one.state.terminated.as_ref()?.exit_code)));
        PodStatus {
            phase: status.phase,
            pod_ip: status.pod_ip,
            pod_ips: status.pod_ips,
            ready: status.conditions.ready,
            unscheduled: status.conditions.unscheduled,
            restarts: status.container_statuses.iter().map(|one| one.restart_count).max().unwrap_or(0),
            all_restarts: all().map(|one| one.restart_count).sum(),
            ended: ended.collect(),
            ended_at,
            conditions: status.conditions.all,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(default)]
    last_transition_time: Option<Timestamp>,
    #[serde(borrow, default)]
    message: Cow<'a, str>,
}

fn conditions<'de, D: Deserializer<'de>>(input: D) -> Result<Told, D::Error> {
    let written = Option::<Vec<Condition<'de>>>::deserialize(input)?.unwrap_or_default();
    let all = written.iter().map(|condition| (&*condition.r#type, &*condition.status)).collect();
    let mut told = Told { all, ..Told::default() };
    for condition in written {
        let since = condition.last_transition_time;
        match &*condition.r#type {
            "Ready" => told.ready = Some(Ready { is: condition.status == "True", since }),
            "PodScheduled" if condition.status == "False" => {
                told.unscheduled = Some(Box::new((condition.message.into_owned(), since)));
            }
            _ => {}
        }
    }
    Ok(told)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(spec: &str, expected: &str) {
        let spec: PodSpec = serde_json::from_str(spec).unwrap();
        let shown: Vec<String> =
            spec.requests.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        assert_eq!(format!("{} likely {:?}", shown.join(" "), spec.likely), expected);
    }

    #[test]
    fn a_pod_needs_the_most_of_its_containers_together_and_each_init_container() {
        check(
            r#"{"containers":[{"resources":{"requests":{"cpu":"100m","memory":"1Ki"}}},{"resources":{"requests":{"cpu":"0.2"}}}]}"#,
            "cpu=300 memory=1024 likely [300, 209716224]",
        );
        check(
            r#"{"containers":[{"resources":{"requests":{"cpu":"1"}}}],
                "initContainers":[{"restartPolicy":"Always","resources":{"requests":{"cpu":"500m"}}},{"resources":{"requests":{"cpu":2}}}],
                "overhead":{"cpu":"10m"}}"#,
            "cpu=2510 likely [1010, 209715200]",
        );
        check(
            r#"{"containers":[{"resources":{"requests":{"cpu":"1","x.io/gpu":"1"}}}],"resources":{"requests":{"cpu":"3"}}}"#,
            "cpu=3000 x.io/gpu=1 likely [3000, 209715200]",
        );
    }
}
