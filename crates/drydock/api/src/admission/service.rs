//! A Service gets its address, and its ports of the node where its type has them.

use std::net::Ipv4Addr;

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

fn ports(
    call: &Call<'_>,
    old: Option<&Value>,
    service: &mut Value,
    reserved: &mut Reserved,
) -> Result<(), Failure> {
    let kept: Vec<u16> = old.map(|old| ports_of(old).collect()).unwrap_or_default();
    let count = service["spec"]["ports"].as_array().map_or(0, Vec::len);
    for index in 0..count {
        let given =
            service["spec"]["ports"][index]["nodePort"].as_u64().and_then(|port| u16::try_from(port).ok());
        let wanted = given.filter(|port| *port != 0);
        if wanted.is_some_and(|port| kept.contains(&port)) {
            continue;
        }
        let taken = call.api.addresses().take_port(call.api.store(), wanted, reserved);
        let port = taken.map_err(|refused| {
            let path = format!("spec.ports[{index}].nodePort");
            invalid(call, service, FieldError::invalid(path, wanted.unwrap_or_default(), refused.to_string()))
        })?;
        service["spec"]["ports"][index]["nodePort"] = port.into();
    }
    Ok(())
}

fn invalid(call: &Call<'_>, service: &Value, error: FieldError) -> Failure {
    Failure::Invalid {
        kind: crate::object::kind_of(&call.kind),
        name: crate::object::meta(service, "name").to_owned(),
        errors: vec![error],
    }
}
