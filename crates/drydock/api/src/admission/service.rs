//! A Service gets its address, and its ports of the node where its type has them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use drydock_schema::FieldError;
use serde_json::{Value, json};

use super::addresses::{Reserved, addresses_of, ports_of};
use crate::{call::Call, failure::Failure};

/// Reserves what the Service needs and does not have.
pub(super) fn allocate(
    call: &Call<'_>,
    old: Option<&Value>,
    service: &mut Value,
    reserved: &mut Reserved,
) -> Result<(), Failure> {
    let kind = service["spec"]["type"].as_str().unwrap_or("ClusterIP").to_owned();
    if kind == "ExternalName" {
        return Ok(());
    }
    families(service);
    address(call, old, service, reserved)?;
    if kind == "NodePort" || kind == "LoadBalancer" {
        ports(call, old, service, reserved)?;
    }
    Ok(())
}

/// One family: this is a cluster with one kind of address.
fn families(service: &mut Value) {
    let headless_without_selector =
        service["spec"]["clusterIP"] == "None" && service["spec"].get("selector").is_none();
    if service["spec"].get("ipFamilies").is_none() {
        service["spec"]["ipFamilies"] = json!(["IPv4"]);
    }
    if service["spec"].get("ipFamilyPolicy").is_none() {
        let policy = if headless_without_selector { "RequireDualStack" } else { "SingleStack" };
        service["spec"]["ipFamilyPolicy"] = policy.into();
    }
}

fn address(
    call: &Call<'_>,
    old: Option<&Value>,
    service: &mut Value,
    reserved: &mut Reserved,
) -> Result<(), Failure> {
    let given = service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
    if given == "None" {
        service["spec"]["clusterIPs"] = json!(["None"]);
        return Ok(());
    }
    let wanted: Option<Ipv4Addr> = match given.as_str() {
        "" => None,
        text => match text.parse() {
            Ok(address) => Some(address),
            Err(_) => return Ok(()), // Its own validation says what is wrong with it.
        },
    };
    let kept = wanted.is_some_and(|wanted| old.is_some_and(|old| addresses_of(old).any(|own| own == wanted)));
    if !kept {
        let taken = call.api.addresses().take_address(call.api.store(), wanted, reserved);
        let address = taken.map_err(|refused| {
            let detail = format!("failed to allocate IP {given}: {refused}");
            invalid(call, service, FieldError::invalid("spec.clusterIPs", json!([given]), detail))
        })?;
        service["spec"]["clusterIP"] = address.to_string().into();
    }
    let address = service["spec"]["clusterIP"].clone();
    service["spec"]["clusterIPs"] = json!([address]);
    Ok(())
}

/// Ports of the nodes, for those that have none and those that name one. What a new Service serves at one port of its own
/// by several protocols is served at one of the nodes' as well; one that changes may say so.
fn ports(
    call: &Call<'_>,
    old: Option<&Value>,
    service: &mut Value,
    reserved: &mut Reserved,
) -> Result<(), Failure> {
    let kept: Vec<u16> = old.map(|old| ports_of(old).collect()).unwrap_or_default();
    let spared = service["spec"]["type"] == "LoadBalancer"
        && service["spec"]["allocateLoadBalancerNodePorts"].as_bool() == Some(false);
    let (mut given, mut named) = (BTreeMap::new(), BTreeSet::new());
    let count = service["spec"]["ports"].as_array().map_or(0, Vec::len);
    for index in 0..count {
        let own = service["spec"]["ports"][index]["port"].as_u64();
        let wanted = node_port(&service["spec"]["ports"][index]);
        let has = |port: u16| kept.contains(&port) || old.is_some() && !named.insert(port);
        if wanted.is_none() && spared || wanted.is_some_and(has) {
            continue;
        }
        let shared = given.get(&own).copied().filter(|shared| wanted.is_none_or(|wanted| wanted == *shared));
        let port = match shared {
            Some(port) => port,
            None => {
                // Whoever comes later may say which.
                let later = || ports_with(service, own).find_map(node_port);
                let wanted = wanted.or_else(|| later().filter(|_| old.is_none()));
                let taken = call.api.addresses().take_port(call.api.store(), wanted, reserved);
                taken.map_err(|refused| {
                    let path = format!("spec.ports[{index}].nodePort");
                    let wanted = wanted.unwrap_or_default();
                    invalid(call, service, FieldError::invalid(path, wanted, refused.to_string()))
                })?
            }
        };
        service["spec"]["ports"][index]["nodePort"] = port.into();
        if old.is_none() {
            given.entry(own).or_insert(port);
        }
    }
    Ok(())
}

/// The ports of a Service that have this number.
fn ports_with(service: &Value, number: Option<u64>) -> impl Iterator<Item = &Value> {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    ports.filter(move |port| port["port"].as_u64() == number)
}

/// The port of the nodes that one of a Service's names.
fn node_port(port: &Value) -> Option<u16> {
    port["nodePort"].as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0)
}

fn invalid(call: &Call<'_>, service: &Value, error: FieldError) -> Failure {
    Failure::Invalid {
        kind: crate::object::kind_of(&call.kind),
        name: crate::object::meta(service, "name").to_owned(),
        errors: vec![error],
    }
}
