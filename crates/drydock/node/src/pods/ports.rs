//! Ports of the node that lead to pods: `hostPort`.
//!
//! The node says which there are; who carries connections follows [`crate::Node::host_ports`]. They are there as long as
//! the pod has its network, as with a kubelet's runtime.

use std::net::{Ipv4Addr, SocketAddrV4};

use k8s_openapi::api::core::v1::{ContainerPort, Pod};

use super::observed::{Sandbox, init_containers, is_sidecar};
use super::worker::Worker;
use crate::container::naming;

/// A port of the node that leads to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// Whether datagrams are led, and not connections.
    pub datagrams: bool,
    /// Where the node is asked.
    pub at: SocketAddrV4,
    /// Where in the pod that leads.
    pub to: SocketAddrV4,
}

/// The ports of a pod. `node` is the node's own address: it stands for all of them where the pod names none. One that is
/// not the node's leads nowhere.
fn of(pod: &Pod, node: Ipv4Addr, address: Ipv4Addr) -> Vec<HostPort> {
    let Some(spec) = pod.spec.as_ref().filter(|_| !naming::is_in_host_network(pod)) else {
        return Vec::new();
    };
    let sidecars = init_containers(spec).iter().filter(|init| is_sidecar(init));
    let containers = spec.containers.iter().chain(sidecars);
    let led = |port: &ContainerPort| {
        let number = |port: i32| u16::try_from(port).ok().filter(|port| *port > 0);
        let datagrams = match port.protocol.as_deref() {
            None | Some("TCP") => false,
            Some("UDP") => true,
            Some(_) => return None,
        };
        let at = match port.host_ip.as_deref().filter(|ip| !ip.is_empty()) {
            None => node,
            Some(ip) => ip.parse().ok().map(|ip: Ipv4Addr| if ip.is_unspecified() { node } else { ip })?,
        };
        let to = SocketAddrV4::new(address, number(port.container_port)?);
        let at = Some(at).filter(|at| *at == node || at.is_loopback())?;
        Some(HostPort { datagrams, at: SocketAddrV4::new(at, number(port.host_port?)?), to })
    };
    containers.flat_map(|container| container.ports.iter().flatten()).filter_map(led).collect()
}

impl Worker {
    /// Says which ports of the node lead to the pod now.
    pub(super) fn show_ports(&self) {
        let ports = match self.observed.sandbox {
            Sandbox::Up(address) => of(&self.pod, self.shared.host.address(), address),
            Sandbox::None | Sandbox::Gone => Vec::new(),
        };
        self.shared.host_ports.send_if_modified(|all| {
            if all.get(&self.uid).map_or(&[][..], Vec::as_slice) == ports {
                return false;
            }
            match ports.is_empty() {
                true => all.remove(&self.uid),
                false => all.insert(self.uid.clone(), ports),
            };
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(ports: &Value, host_network: bool, expected: &[&str]) {
        let pod =
            json!({"spec": {"hostNetwork": host_network, "containers": [{"name": "main", "ports": ports}]}});
        let pod = serde_json::from_value(pod).unwrap();
        let found = of(&pod, Ipv4Addr::new(10, 244, 0, 1), Ipv4Addr::new(10, 244, 0, 7));
        let shown = |port: &HostPort| {
            format!("{} {} -> {}", if port.datagrams { "udp" } else { "tcp" }, port.at, port.to)
        };
        assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), expected, "{ports}");
    }

    #[test]
    fn a_port_is_on_the_nodes_own_address_unless_the_pod_says_another_of_the_nodes() {
        check(&json!([{"containerPort": 80}]), false, &[]);
        let one = json!([{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}]);
        check(&one, false, &["tcp 10.244.0.1:8080 -> 10.244.0.7:80"]);
        check(&one, true, &[]);
        let some = json!([
            {"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "0.0.0.0"},
            {"containerPort": 81, "hostPort": 81, "hostIP": "127.0.0.1"},
            {"containerPort": 82, "hostPort": 82, "hostIP": "192.0.2.1"},
            {"containerPort": 83, "hostPort": 83, "protocol": "SCTP"},
        ]);
        check(&some, false, &["udp 10.244.0.1:53 -> 10.244.0.7:53", "tcp 127.0.0.1:81 -> 10.244.0.7:81"]);
    }
}
