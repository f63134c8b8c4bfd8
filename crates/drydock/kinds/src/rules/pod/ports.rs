//! Ports of a pod's containers that are in each other's way, and yet not refused.

use std::collections::{BTreeMap, btree_map::Entry};

use serde_json::Value;

use super::warnings::each_container;
use crate::{json, path::Path};

/// A port, and where it is.
struct Port<'a> {
    place: String,
    name: &'a str,
    number: i64,
    protocol: &'a str,
    host_port: i64,
    host_address: &'a str,
}

impl<'a> Port<'a> {
    fn new(port: &'a Value, place: String) -> Self {
        Self {
            place,
            name: json::text(port, "name"),
            number: port["containerPort"].as_i64().unwrap_or_default(),
            protocol: json::text(port, "protocol"),
            host_port: port["hostPort"].as_i64().unwrap_or_default(),
            host_address: json::text(port, "hostIP"),
        }
    }

    /// What an earlier definition of the same port is called in this one's eyes.
    fn clash(&self, other: &Port<'_>) -> Option<&'static str> {
        let one_everywhere = self.host_address.is_empty() != other.host_address.is_empty();
        if (self.host_address, self.host_port) == (other.host_address, other.host_port) {
            Some("duplicate")
        } else if self.host_port == 0 || other.host_port == 0 {
            Some("overlapping")
        } else if self.host_port == other.host_port && one_everywhere {
            Some("dangerously ambiguous")
        } else {
            None
        }
    }
}

/// What is worth saying about the ports of all containers together: first of numbers, then of names.
pub(super) fn warnings(spec: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    let mut ports = Vec::new();
    each_container(spec, path, |container, at| {
        let list = at.field("ports");
        for (index, port) in json::list(container, "ports").iter().enumerate() {
            ports.push(Port::new(port, list.index(index).to_string()));
        }
    });
    numbers(&ports, warnings);
    names(&ports, warnings);
}

fn numbers(ports: &[Port<'_>], warnings: &mut Vec<String>) {
    let mut known: BTreeMap<(i64, &str), Vec<&Port<'_>>> = BTreeMap::new();
    for port in ports {
        let Port { place, name, number, protocol, host_port, host_address } = port;
        if !host_address.is_empty() && *host_port == 0 {
            warnings.push(format!(
                "{place}: hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{number} \
                 Protocol:{protocol} HostIP:{host_address}}}"
            ));
        }
        let others = known.entry((*number, protocol)).or_default();
        for other in others.iter() {
            if let Some(clash) = port.clash(other) {
                warnings.push(format!("{place}: {clash} port definition with {}", other.place));
            }
        }
        others.push(port);
    }
}

fn names(ports: &[Port<'_>], warnings: &mut Vec<String>) {
    let mut known = BTreeMap::new();
    for port in ports.iter().filter(|port| !port.name.is_empty()) {
        match known.entry(port.name) {
            Entry::Vacant(entry) => {
                entry.insert(&port.place);
            }
            Entry::Occupied(entry) => {
                let other = entry.get();
                warnings.push(format!(
                    "{}: duplicate port name {:?} with {other}, services and probes that select ports by name will \
                     use {other}",
                    port.place, port.name
                ));
            }
        }
    }
}
