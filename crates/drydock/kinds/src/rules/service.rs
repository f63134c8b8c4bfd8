//! Services.

use drydock_schema::FieldError;
use serde_json::{Value, json};

use super::{PLAIN, Rules, address, duplicate, in_order, is_annotated, not_supported, showing};
use crate::{json, meta, names, path::Path};

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

pub(crate) const SERVICE: Rules = Rules {
    default: default_service,
    create: create_service,
    update: keep_addresses,
    validate: validate_service,
    validate_update: update_service,
    warnings: |object, _| service_warnings(object),
    status_warnings,
    ..PLAIN
};

fn default_service(object: &mut Value) {
    let Some(spec) = json::object_at(object, "spec") else { return };
    json::default_text(spec, "sessionAffinity", "None");
    match json::text(spec, "sessionAffinity") {
        "None" => {
            json::remove(spec, "sessionAffinityConfig");
        }
        "ClientIP" if spec["sessionAffinityConfig"]["clientIP"].get("timeoutSeconds").is_none() => {
            json::set(spec, "sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10800}}));
        }
        _ => {}
    }
    json::default_text(spec, "type", "ClusterIP");
    for port in json::list_mut(spec, "ports") {
        json::default_text(port, "protocol", "TCP");
        let number = port.get("port").cloned().unwrap_or_default();
        if port.get("targetPort").is_none_or(|target| *target == 0 || *target == "" || target.is_null()) {
            json::set(port, "targetPort", number);
        }
        if port["nodePort"] == 0 {
            json::remove(port, "nodePort");
        }
    }
    let kind = json::text(spec, "type").to_owned();
    if is_reached_from_outside(spec) {
        json::default_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind != "ExternalName" {
        json::default_text(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        json::default(spec, "allocateLoadBalancerNodePorts", true);
    }
}

fn create_service(object: &mut Value) {
    json::set(object, "status", json!({"loadBalancer": {}}));
    // One address is written twice: alone, and as the first of all.
    if let Some(spec) = object.get_mut("spec")
        && !json::text(spec, "clusterIP").is_empty()
        && json::list(spec, "clusterIPs").is_empty()
    {
        let address = spec["clusterIP"].clone();
        json::set(spec, "clusterIPs", json!([address]));
    }
    if let Some(spec) = object.get_mut("spec")
        && json::text(spec, "type") != "ExternalName"
    {
        json::default(spec, "ipFamilies", json!(["IPv4"]));
        json::default_text(spec, "ipFamilyPolicy", "SingleStack");
    }
}

/// Whether Services of this type have ports of the nodes.
fn has_node_ports(spec: &Value) -> bool {
    matches!(json::text(spec, "type"), "NodePort" | "LoadBalancer")
}

/// Whether such a Service is given ports of the nodes where it names none.
fn is_given_node_ports(spec: &Value) -> bool {
    let spared = json::text(spec, "type") == "LoadBalancer"
        && spec["allocateLoadBalancerNodePorts"].as_bool() == Some(false);
    has_node_ports(spec) && !spared
}

/// Whether somebody outside of the cluster is led to the Service.
fn is_reached_from_outside(spec: &Value) -> bool {
    let addressed = json::text(spec, "type") == "ClusterIP" && !json::list(spec, "externalIPs").is_empty();
    has_node_ports(spec) || addressed
}

/// Whether a load balancer asks the nodes about the Service at a port of its own.
fn has_health_port(spec: &Value) -> bool {
    json::text(spec, "type") == "LoadBalancer" && json::text(spec, "externalTrafficPolicy") == "Local"
}

/// An update that makes another type of the Service, and leaves alone what only the former type had, means that this goes.
fn drop_what_another_type_had(new: &mut Value, old: &Value) {
    let former = &old["spec"];
    let Some(spec) = new.get_mut("spec") else { return };
    let is = |spec: &Value, kind| json::text(spec, "type") == kind;
    let no_more = |has: &dyn Fn(&Value) -> bool| has(former) && !has(spec);
    let mut fields = Vec::new();
    if no_more(&|spec| !is(spec, "ExternalName")) {
        fields.extend(["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]);
    }
    if no_more(&has_health_port) {
        fields.push("healthCheckNodePort");
    }
    if no_more(&|spec| is(spec, "LoadBalancer")) {
        fields.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if no_more(&is_reached_from_outside) {
        fields.push("externalTrafficPolicy");
    }
    let numbers = |spec: &Value| -> Vec<Value> {
        let numbers = json::list(spec, "ports").iter().filter_map(|port| port.get("nodePort"));
        numbers.filter(|number| **number != 0).cloned().collect()
    };
    let ports_go =
        no_more(&has_node_ports) && numbers(spec).iter().all(|number| numbers(former).contains(number));
    let balances = is(spec, "LoadBalancer");
    for field in fields {
        if spec.get(field) == former.get(field) {
            json::remove(spec, field);
        }
    }
    if ports_go {
        for port in json::list_mut(spec, "ports") {
            json::remove(port, "nodePort");
        }
    }
    if let Some(status) = json::object_at(new, "status").filter(|_| !balances) {
        json::set(status, "loadBalancer", json!({}));
    }
}

/// An update that does not name the addresses and ports that the service was given keeps them.
fn keep_addresses(new: &mut Value, old: &Value) {
    drop_what_another_type_had(new, old);
    let old = &old["spec"];
    let Some(spec) = new.get_mut("spec") else { return };
    if json::text(spec, "type") == "ExternalName" {
        return;
    }
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if let Some(value) = old.get(field) {
            json::default(spec, field, value.clone());
        }
    }
    // Who changes the one address means the first of all, too.
    let address = json::text(spec, "clusterIP").to_owned();
    if address != json::text(old, "clusterIP") && spec["clusterIPs"] == old["clusterIPs"] {
        let all = if address.is_empty() { Value::Null } else { json!([address]) };
        json::set(spec, "clusterIPs", all);
    }
    json::default(spec, "ipFamilies", json!(["IPv4"]));
    json::default_text(spec, "ipFamilyPolicy", "SingleStack");
    if is_given_node_ports(old) && is_given_node_ports(spec) {
        let number = |port: &Value| port["nodePort"].as_u64().filter(|number| *number != 0);
        let taken: Vec<u64> = json::list(spec, "ports").iter().filter_map(number).collect();
        for port in json::list_mut(spec, "ports") {
            let same = json::list(old, "ports").iter().find(|had| had.get("name") == port.get("name"));
            if let Some(had) =
                same.and_then(number).filter(|had| number(port).is_none() && !taken.contains(had))
            {
                json::set(port, "nodePort", json!(had));
            }
        }
    }
}

fn is_headless(spec: &Value) -> bool {
    json::text(spec, "clusterIP") == "None"
}

fn validate_service(object: &Value, errors: &mut Vec<FieldError>) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let kind = json::text(spec, "type");
    let ports = json::list(spec, "ports");
    if ports.is_empty() && !is_headless(spec) && kind != "ExternalName" {
        errors.push(FieldError::required(path.field("ports"), ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(spec) => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid("spec.clusterIPs[0]", "None", detail));
        }
        "ExternalName" => validate_external_name(spec, &path, errors),
        _ => {}
    }
    validate_ports(spec, &path.field("ports"), errors);
    meta::validate_labels(json::map(spec, "selector"), &path.field("selector"), errors);
    let affinity = json::text(spec, "sessionAffinity");
    if !["ClientIP", "None"].contains(&affinity) {
        errors.push(not_supported(path.field("sessionAffinity"), affinity, &["ClientIP", "None"]));
    }
    if kind != "ExternalName" {
        validate_addresses(spec, &path, errors);
    }
    if !TYPES.contains(&kind) {
        errors.push(not_supported(path.field("type"), kind, TYPES));
    }
    let internal = json::text(spec, "internalTrafficPolicy");
    if !internal.is_empty() && !["Cluster", "Local"].contains(&internal) {
        errors.push(not_supported(path.field("internalTrafficPolicy"), internal, &["Cluster", "Local"]));
    }
    let external = json::text(spec, "externalTrafficPolicy");
    if !external.is_empty() {
        let outside =
            matches!(kind, "NodePort" | "LoadBalancer") || !json::list(spec, "externalIPs").is_empty();
        let at = path.field("externalTrafficPolicy");
        if !outside {
            let detail = "may only be set for externally-accessible services";
            errors.push(FieldError::invalid(at, external, detail));
        } else if !["Cluster", "Local"].contains(&external) {
            errors.push(not_supported(at, external, &["Cluster", "Local"]));
        }
    }
}

fn validate_external_name(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if spec.get(field).is_some() {
            errors.push(FieldError::forbidden(path.field(field), "may not be set for ExternalName services"));
        }
    }
    let name = json::text(spec, "externalName").trim_end_matches('.');
    let at = path.field("externalName");
    if name.is_empty() {
        errors.push(FieldError::required(at, ""));
    } else {
        errors.extend(names::dns_subdomain(name).into_iter().map(|m| FieldError::invalid(at, name, m)));
    }
}

fn validate_ports(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let ports = json::list(spec, "ports");
    let mut seen = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let at = path.index(index);
        let name = json::text(port, "name");
        if name.is_empty() && ports.len() > 1 {
            errors.push(FieldError::required(at.field("name"), ""));
        } else if !name.is_empty() {
            let wrong = names::dns_label(name);
            errors.extend(wrong.into_iter().map(|m| FieldError::invalid(at.field("name"), name, m)));
            if seen.contains(&name) {
                errors.push(duplicate(at.field("name"), name));
            }
            seen.push(name);
        }
        let number = port["port"].as_i64().unwrap_or_default();
        errors.extend(
            names::port_number(number).into_iter().map(|m| FieldError::invalid(at.field("port"), number, m)),
        );
        let protocol = json::text(port, "protocol");
        if !PROTOCOLS.contains(&protocol) {
            errors.push(not_supported(at.field("protocol"), protocol, PROTOCOLS));
        }
        let target = at.field("targetPort");
        match &port["targetPort"] {
            Value::String(name) => {
                let wrong = names::port_name(name);
                errors.extend(wrong.into_iter().map(|m| FieldError::invalid(target, name.as_str(), m)));
            }
            other => {
                let number = other.as_i64().unwrap_or_default();
                errors.extend(
                    names::port_number(number).into_iter().map(|m| FieldError::invalid(target, number, m)),
                );
            }
        }
        if json::text(spec, "type") == "ClusterIP" && port["nodePort"].as_i64().unwrap_or_default() != 0 {
            let detail = "may not be used when `type` is 'ClusterIP'";
            errors.push(FieldError::forbidden(at.field("nodePort"), detail));
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let same = |other: &&Value| other["port"] == port["port"] && other["protocol"] == port["protocol"];
        if ports[..index].iter().any(|other| same(&other)) {
            let (nothing, zero) = (Value::Null, Value::from(0));
            let shown = in_order(&[
                ("Name", &Value::from("")),
                ("Protocol", &port["protocol"]),
                ("AppProtocol", &nothing),
                ("Port", &port["port"]),
                ("TargetPort", &zero),
                ("NodePort", &zero),
            ]);
            errors.push(showing(duplicate(path.index(index), port.clone()), shown));
        }
    }
}

fn validate_addresses(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let list = path.field("clusterIPs");
    let (address, all) = (json::text(spec, "clusterIP"), json::list(spec, "clusterIPs"));
    let mut refuse =
        |detail: &str| errors.push(FieldError::invalid(list, spec["clusterIPs"].clone(), detail));
    match all.first() {
        Some(_) if address.is_empty() => refuse("must be empty when `clusterIP` is not specified"),
        Some(first) if first != address => refuse("first value must match `clusterIP`"),
        _ => {}
    }
    if all.len() > 2 {
        refuse("may only hold up to 2 values");
    }
    let headless = all.first().is_some_and(|first| first == "None");
    if headless && all.len() > 1 {
        refuse("'None' must be the first and only value");
        return;
    }
    let mut families = Vec::new();
    for (index, address) in all.iter().enumerate().filter(|_| !headless) {
        let text = address.as_str().unwrap_or_default();
        families.extend(address::parse(text, &list.index(index), errors).map(|address| address.is_ipv4()));
    }
    if let [first, second, ..] = *families
        && families.len() == all.len()
        && first == second
    {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid(list, spec["clusterIPs"].clone(), detail));
    }
}

fn update_service(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let kind = |service: &Value| json::text(&service["spec"], "type").to_owned();
    let address = |service: &Value| json::text(&service["spec"], "clusterIP").to_owned();
    if kind(new) != "ExternalName"
        && kind(old) != "ExternalName"
        && address(old) != address(new)
        && !address(old).is_empty()
    {
        let all = new["spec"].get("clusterIPs").cloned().unwrap_or_default();
        if address(new).is_empty() {
            let detail = "primary clusterIP can not be unset";
            errors.push(FieldError::invalid("spec.clusterIPs[0]", all, detail));
        } else {
            let detail = "may not change once set";
            errors.push(FieldError::invalid("spec.clusterIPs[0]", all, detail));
        }
    }
    validate_service(new, errors);
}

const HINTS: &str = "service.kubernetes.io/topology-aware-hints";

fn service_warnings(object: &Value) -> Vec<String> {
    let (spec, path, mut warnings) = (&object["spec"], Path::new("spec"), Vec::new());
    if is_annotated(object, HINTS) {
        warnings.push(format!(
            "annotation {HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    let is_external = json::text(spec, "type") == "ExternalName";
    if !is_headless(spec) && !json::text(spec, "clusterIP").is_empty() {
        each_text(spec, "clusterIPs", &path, address::warnings, &mut warnings);
    }
    if is_headless(spec) && json::text(spec, "type") == "ClusterIP" {
        warnings.extend(ignored_without_address(spec));
    }
    each_text(spec, "externalIPs", &path, address::warnings, &mut warnings);
    address::warnings(json::text(spec, "loadBalancerIP"), &path.field("loadBalancerIP"), &mut warnings);
    each_text(spec, "loadBalancerSourceRanges", &path, address::range_warnings, &mut warnings);
    if is_external && !json::list(spec, "externalIPs").is_empty() {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !is_external && !json::text(spec, "externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    warnings
}

/// What a Service has no use for that has no address of its own. `SessionAffinity` is spelled as Kubernetes does.
fn ignored_without_address(spec: &Value) -> impl Iterator<Item = String> {
    let fields = [
        ("loadBalancerIP", !json::text(spec, "loadBalancerIP").is_empty()),
        ("externalIPs", !json::list(spec, "externalIPs").is_empty()),
        ("SessionAffinity", json::text(spec, "sessionAffinity") != "None"),
    ];
    let given = fields.into_iter().filter(|(_, given)| *given);
    given.map(|(field, _)| format!("spec.{field} is ignored for headless services"))
}

fn each_text(
    spec: &Value,
    field: &str,
    path: &Path<'_>,
    warn: fn(&str, &Path<'_>, &mut Vec<String>),
    warnings: &mut Vec<String>,
) {
    let at = path.field(field);
    for (index, text) in json::list(spec, field).iter().filter_map(Value::as_str).enumerate() {
        warn(text, &at.index(index), warnings);
    }
}

fn status_warnings(object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let (path, balancer) = (Path::new("status.loadBalancer.ingress"), &object["status"]["loadBalancer"]);
    for (index, ingress) in json::list(balancer, "ingress").iter().enumerate() {
        address::warnings(json::text(ingress, "ip"), &path.index(index), &mut warnings);
    }
    warnings
}
