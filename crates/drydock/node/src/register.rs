//! The node's own object, and the lease that says that it lives.

use std::collections::BTreeMap;
use std::time::Duration;

use drydock_sandbox::{Abilities, Ability};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    Node, NodeAddress, NodeCondition, NodeFeatures, NodeStatus, NodeSystemInfo, ObjectReference,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::Shared;
use crate::events::Kind;
use crate::machine::{Left, Machine};
use crate::pods::status::time;

/// How often a kubelet renews its lease, and how long the lease says that it lives.
const RENEWED: Duration = Duration::from_secs(10);
const LIVES: i32 = 40;
/// How often the object is written although nothing in it changed.
const REPORTED: SignedDuration = SignedDuration::from_secs(300);
const LEASES: &str = "kube-node-lease";

/// Below these a node is under pressure; what a kubelet takes.
const LEAST_MEMORY: u64 = 100 << 20;
const LEAST_DISK: f64 = 0.1;
const LEAST_PROCESSES: f64 = 0.05;

/// The condition that is true where limits are only numbers.
const LIMITS: &str = "LimitsNotEnforced";

/// What the object is made of.
pub(crate) struct Facts<'a> {
    pub name: &'a str,
    pub address: String,
    pub labels: &'a BTreeMap<String, String>,
    pub machine: &'a Machine,
    pub left: Left,
    pub abilities: &'a Abilities,
    pub max_pods: u32,
}

/// The object without its status.
pub(crate) fn node(facts: &Facts<'_>) -> Node {
    let mut labels: BTreeMap<String, String> = [
        ("kubernetes.io/hostname", facts.name),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", drydock_images::architecture()),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", drydock_images::architecture()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect();
    labels.extend(facts.labels.clone());
    let mut node = Node::default();
    node.metadata.name = Some(facts.name.to_owned());
    node.metadata.labels = Some(labels);
    node
}

/// Its status. Conditions keep their time while they say the same.
pub(crate) fn status(facts: &Facts<'_>, old: &[NodeCondition], now: Timestamp) -> NodeStatus {
    let Machine { cores, memory, disk, kernel, os_image, machine_id, boot_id } = facts.machine;
    let amounts: BTreeMap<String, Quantity> = [
        ("cpu", cores.to_string()),
        ("memory", format!("{}Ki", memory / 1024)),
        ("ephemeral-storage", format!("{}Ki", disk / 1024)),
        ("pods", facts.max_pods.to_string()),
    ]
    .into_iter()
    .map(|(name, amount)| (name.to_owned(), Quantity(amount)))
    .collect();
    let address =
        |kind: &str, address: &str| NodeAddress { type_: kind.to_owned(), address: address.to_owned() };
    NodeStatus {
        addresses: Some(vec![address("InternalIP", &facts.address), address("Hostname", facts.name)]),
        allocatable: Some(amounts.clone()),
        capacity: Some(amounts),
        conditions: Some(conditions(facts, old, now)),
        features: Some(NodeFeatures { supplemental_groups_policy: Some(true) }),
        node_info: Some(NodeSystemInfo {
            architecture: drydock_images::architecture().to_owned(),
            boot_id: boot_id.clone(),
            container_runtime_version: concat!("drydock://", env!("CARGO_PKG_VERSION")).to_owned(),
            kernel_version: kernel.clone(),
            kube_proxy_version: String::new(),
            kubelet_version: KUBELET.to_owned(),
            machine_id: machine_id.clone(),
            operating_system: "linux".to_owned(),
            os_image: os_image.clone(),
            system_uuid: machine_id.clone(),
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}

/// The Kubernetes whose kubelet this one behaves like.
const KUBELET: &str = "v1.34.11+drydock";

fn conditions(facts: &Facts<'_>, old: &[NodeCondition], now: Timestamp) -> Vec<NodeCondition> {
    let left = &facts.left;
    let share = |left: u64, of: u64| left as f64 / of.max(1) as f64;
    let memory = left.memory < LEAST_MEMORY;
    let disk = share(left.disk, left.disk_of) < LEAST_DISK;
    let processes =
        share(left.processes_of.saturating_sub(left.processes), left.processes_of) < LEAST_PROCESSES;
    let pressure = |kind: &str, under: bool, bad: (&str, &str), good: (&str, &str)| {
        let (reason, text) = if under { bad } else { good };
        (kind.to_owned(), under, format!("KubeletHas{reason}"), format!("kubelet has {text}"))
    };
    let missing = not_enforced(facts.abilities);
    let limits = if missing.is_empty() {
        (LIMITS.to_owned(), false, "LimitsEnforced".to_owned(), "limits are enforced".to_owned())
    } else {
        (LIMITS.to_owned(), true, "NotGranted".to_owned(), missing.join("; "))
    };
    [
        pressure(
            "MemoryPressure",
            memory,
            ("InsufficientMemory", "insufficient memory available"),
            ("SufficientMemory", "sufficient memory available"),
        ),
        pressure(
            "DiskPressure",
            disk,
            ("DiskPressure", "disk pressure"),
            ("NoDiskPressure", "no disk pressure"),
        ),
        pressure(
            "PIDPressure",
            processes,
            ("InsufficientPID", "insufficient PID available"),
            ("SufficientPID", "sufficient PID available"),
        ),
        limits,
        ("Ready".to_owned(), true, "KubeletReady".to_owned(), "kubelet is posting ready status".to_owned()),
    ]
    .into_iter()
    .map(|(kind, holds, reason, message)| {
        let status = if holds { "True" } else { "False" };
        let before = old.iter().find(|condition| condition.type_ == kind && condition.status == status);
        NodeCondition {
            last_heartbeat_time: Some(time(now)),
            last_transition_time: before
                .and_then(|condition| condition.last_transition_time.clone())
                .or_else(|| Some(time(now))),
            message: Some(message),
            reason: Some(reason),
            status: status.to_owned(),
            type_: kind,
        }
    })
    .collect()
}

/// The limits that this machine does not hold, and why.
fn not_enforced(abilities: &Abilities) -> Vec<String> {
    [
        ("memory", &abilities.memory_limits),
        ("cpu", &abilities.cpu_limits),
        ("processes", &abilities.pid_limits),
    ]
    .into_iter()
    .filter_map(|(what, ability)| match ability {
        Ability::Yes => None,
        Ability::No(why) => Some(format!("{what}: {why}")),
    })
    .collect()
}

/// What a kubelet says of a condition that was not so before.
fn news(condition: &NodeCondition, old: &[NodeCondition]) -> Option<&'static str> {
    if old.iter().any(|old| old.type_ == condition.type_ && old.status == condition.status) {
        return None;
    }
    match (condition.type_.as_str(), condition.status == "True") {
        ("MemoryPressure", true) => Some("NodeHasInsufficientMemory"),
        ("MemoryPressure", false) => Some("NodeHasSufficientMemory"),
        ("DiskPressure", true) => Some("NodeHasDiskPressure"),
        ("DiskPressure", false) => Some("NodeHasNoDiskPressure"),
        ("PIDPressure", true) => Some("NodeHasInsufficientPID"),
        ("PIDPressure", false) => Some("NodeHasSufficientPID"),
        ("Ready", true) => Some("NodeReady"),
        _ => None,
    }
}

/// Whether the node is to take no more pods.
fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true))
}

/// Whether the object has all of these conditions, by type and status. It does not where it was removed, or where the
/// node was given up since nothing was heard of it.
fn says(node: &Node, conditions: &[(String, String)]) -> bool {
    let said = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().all(|(kind, status)| said.iter().any(|one| one.type_ == *kind && one.status == *status))
}

impl Shared {
    fn facts(&self) -> Facts<'_> {
        Facts {
            name: &self.name,
            address: self.host_ip(),
            labels: &self.labels,
            machine: &self.machine,
            left: Left::look(&self.directory),
            abilities: self.host.abilities(),
            max_pods: self.max_pods,
        }
    }

    /// Makes the object where it is not there, and writes its status. Gives its uid.
    pub(crate) async fn register(&self) -> Result<String, kube::Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let facts = self.facts();
        let wanted = node(&facts);
        let found = match nodes.create(&PostParams::default(), &wanted).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let labels = json!({"metadata": {"labels": wanted.metadata.labels}});
                nodes.patch(&self.name, &PatchParams::default(), &Patch::Strategic(labels)).await?
            }
            other => other?,
        };
        let old = found.status.and_then(|status| status.conditions).unwrap_or_default();
        let status = status(&facts, &old, (self.clock)());
        let patch = json!({"status": status});
        nodes.patch_status(&self.name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
        let now = status.conditions.iter().flatten();
        now.filter_map(|condition| news(condition, &old)).for_each(|news| self.tell_status(news));
        Ok(found.metadata.uid.unwrap_or_default())
    }

    /// Says in an event of the node what its status is now.
    fn tell_status(&self, status: &'static str) {
        self.tell(status, format!("Node {} status is now: {status}", self.name));
    }

    fn tell(&self, reason: &'static str, message: String) {
        let about = ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(self.name.clone()),
            // A kubelet calls its node so in events, and `kubectl describe` looks for that.
            uid: Some(self.name.clone()),
            ..ObjectReference::default()
        };
        self.recorder.about(about, "kubelet", Kind::Normal, reason, message);
    }

    /// Renews the lease every ten seconds, and reports when something changed or some minutes have passed.
    pub(crate) async fn live(&self) {
        self.tell("Starting", "Starting kubelet.".to_owned());
        let mut pause = Duration::from_millis(200);
        let mut uid = loop {
            match self.register().await {
                Ok(uid) => break uid,
                Err(error) => {
                    tracing::warn!(%error, "the node is not registered yet");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RENEWED);
                }
            }
        };
        self.registered.send_replace(true);
        let mut reported = (self.clock)();
        let mut shown = self.pressures();
        let mut taking = true;
        loop {
            if let Err(error) = self.renew(&uid).await {
                tracing::debug!(%error, "the lease was not renewed");
            }
            tokio::time::sleep(RENEWED).await;
            let now = (self.clock)();
            let pressures = self.pressures();
            let found = self.look().await;
            if let Some(node) = &found
                && taking == is_cordoned(node)
            {
                taking = !taking;
                self.tell_status(if taking { "NodeSchedulable" } else { "NodeNotSchedulable" });
            }
            let told = pressures == shown && found.is_none_or(|node| says(&node, &pressures));
            if !told || now.duration_since(reported) >= REPORTED {
                match self.register().await {
                    Ok(registered) => {
                        uid = registered;
                        (reported, shown) = (now, pressures);
                    }
                    Err(error) => tracing::debug!(%error, "the node's status was not written"),
                }
            }
        }
    }

    fn pressures(&self) -> Vec<(String, String)> {
        let facts = self.facts();
        let list = conditions(&facts, &[], Timestamp::UNIX_EPOCH);
        list.into_iter().map(|condition| (condition.type_, condition.status)).collect()
    }

    /// The object as it is: empty where someone removed it, as a memory cluster that starts anew does. None where nobody can
    /// tell, and nobody would take a report.
    async fn look(&self) -> Option<Node> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        Some(nodes.get_opt(&self.name).await.ok()?.unwrap_or_default())
    }

    async fn renew(&self, uid: &str) -> Result<(), kube::Error> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), LEASES);
        let now = MicroTime((self.clock)());
        let spec =
            json!({"spec": {"holderIdentity": self.name, "leaseDurationSeconds": LIVES, "renewTime": now}});
        match leases.patch(&self.name, &PatchParams::default(), &Patch::Merge(spec)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => return other.map(drop),
        }
        let mut lease = Lease {
            spec: Some(LeaseSpec {
                holder_identity: Some(self.name.clone()),
                lease_duration_seconds: Some(LIVES),
                renew_time: Some(now),
                ..LeaseSpec::default()
            }),
            ..Lease::default()
        };
        lease.metadata.name = Some(self.name.clone());
        lease.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.name.clone(),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        }]);
        leases.create(&PostParams::default(), &lease).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drydock_sandbox::Users;

    fn check(memory: Ability, left: Left, expected: [&str; 5]) {
        let abilities = Abilities {
            root: true,
            users: Users::All,
            overlay: Ability::Yes,
            memory_limits: memory,
            cpu_limits: Ability::Yes,
            pid_limits: Ability::Yes,
        };
        let facts = Facts {
            name: "here",
            address: "10.0.0.1".to_owned(),
            labels: &BTreeMap::new(),
            machine: &Machine { cores: 2, memory: 8 << 30, ..Machine::default() },
            left,
            abilities: &abilities,
            max_pods: 110,
        };
        let status = status(&facts, &[], Timestamp::UNIX_EPOCH);
        let found = status.conditions.unwrap();
        let said = |condition: &NodeCondition| {
            let NodeCondition { type_, status, reason, message, .. } = condition;
            format!("{type_}={status} {}: {}", reason.as_deref().unwrap(), message.as_deref().unwrap())
        };
        assert_eq!(found.iter().map(said).collect::<Vec<_>>(), expected);
        assert_eq!(status.allocatable.unwrap()["memory"].0, "8388608Ki");
        assert_eq!(status.features.unwrap().supplemental_groups_policy, Some(true));
    }

    #[test]
    fn a_node_says_what_it_lacks() {
        let plenty = Left { memory: 4 << 30, disk: 50, disk_of: 100, processes: 10, processes_of: 1000 };
        let healthy = [
            "MemoryPressure=False KubeletHasSufficientMemory: kubelet has sufficient memory available",
            "DiskPressure=False KubeletHasNoDiskPressure: kubelet has no disk pressure",
            "PIDPressure=False KubeletHasSufficientPID: kubelet has sufficient PID available",
            "LimitsNotEnforced=False LimitsEnforced: limits are enforced",
            "Ready=True KubeletReady: kubelet is posting ready status",
        ];
        check(Ability::Yes, plenty.clone(), healthy);
        let mut limits = healthy;
        limits[3] = "LimitsNotEnforced=True NotGranted: memory: no cgroups";
        check(Ability::No("no cgroups".to_owned()), plenty, limits);
        let mut pressed = healthy;
        pressed[0] =
            "MemoryPressure=True KubeletHasInsufficientMemory: kubelet has insufficient memory available";
        pressed[1] = "DiskPressure=True KubeletHasDiskPressure: kubelet has disk pressure";
        pressed[2] = "PIDPressure=True KubeletHasInsufficientPID: kubelet has insufficient PID available";
        let little = Left { memory: 1, disk: 1, disk_of: 100, processes: 999, processes_of: 1000 };
        check(Ability::Yes, little, pressed);
    }

    #[test]
    fn what_was_so_before_is_no_news() {
        let condition = |kind: &str, status: &str| NodeCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            ..NodeCondition::default()
        };
        let under = condition("DiskPressure", "True");
        assert_eq!(news(&under, &[]), Some("NodeHasDiskPressure"));
        assert_eq!(news(&under, &[condition("DiskPressure", "False")]), Some("NodeHasDiskPressure"));
        assert_eq!(news(&under, std::slice::from_ref(&under)), None);
        assert_eq!(news(&condition(LIMITS, "True"), &[]), None, "no kubelet knows it");
    }

    #[test]
    fn a_node_notices_that_something_else_is_said_of_it() {
        let pair = |kind: &str, status: &str| (kind.to_owned(), status.to_owned());
        let own = [pair("DiskPressure", "False"), pair("Ready", "True")];
        let check = |said: &[(&str, &str)], expected: bool| {
            let said = said.iter().map(|(kind, status)| json!({"type": kind, "status": status}));
            let node = json!({"metadata": {}, "status": {"conditions": said.collect::<Vec<_>>()}});
            assert_eq!(says(&serde_json::from_value(node).unwrap(), &own), expected);
        };
        check(&[("DiskPressure", "False"), ("Ready", "True"), ("Another", "True")], true);
        check(&[("DiskPressure", "Unknown"), ("Ready", "Unknown")], false);
        check(&[("DiskPressure", "True"), ("Ready", "True")], false);
        check(&[("Ready", "True")], false);
        assert!(!says(&Node::default(), &own));
    }
}
