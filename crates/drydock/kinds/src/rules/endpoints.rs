//! Where a Service's connections go: Endpoints and EndpointSlices.

use std::net::IpAddr;

use drydock_schema::{FieldError, FieldErrorKind};
use serde_json::{Value, json};

use super::{PLAIN, Rules, address, duplicate, immutable, not_supported};
use crate::{json, meta, names, path::Path};

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const ADDRESS_TYPES: &[&str] = &["FQDN", "IPv4", "IPv6"];
/// The most that a slice may hold.
const ENDPOINTS_OF_SLICE: usize = 1000;
const ADDRESSES_OF_ENDPOINT: usize = 100;
const PORTS_OF_SLICE: usize = 20_000;
const TOPOLOGY_LABELS: usize = 16;
const HINTS: usize = 8;

pub(crate) const ENDPOINTS: Rules = Rules {
    default: |object| {
        for subset in json::list_mut(object, "subsets") {
            for port in json::list_mut(subset, "ports") {
                json::default_text(port, "protocol", "TCP");
            }
        }
    },
    validate: |object, errors| subsets(json::list(object, "subsets"), &Path::new("subsets"), errors),
    validate_update: |new, old, errors| {
        // What is as it was is not looked at again.
        if !json::same(&new["subsets"], &old["subsets"]) {
            subsets(json::list(new, "subsets"), &Path::new("subsets"), errors);
        }
    },
    warnings: |object, _| endpoints_warnings(object),
    ..PLAIN
};

pub(crate) const ENDPOINT_SLICE: Rules = Rules {
    default: |object| {
        json::default(object, "endpoints", Value::Null);
        json::default(object, "ports", Value::Null);
        for port in json::list_mut(object, "ports") {
            json::default(port, "name", "");
            json::default(port, "protocol", "TCP");
        }
        for endpoint in json::list_mut(object, "endpoints") {
            json::default(endpoint, "conditions", json!({}));
        }
    },
    validate: |object, errors| slice(object, true, errors),
    validate_update: |new, old, errors| {
        slice(new, !json::same(&new["endpoints"], &old["endpoints"]), errors);
        immutable(new, old, "/addressType", "addressType", errors);
    },
    warnings: slice_warnings,
    ..PLAIN
};

/// By whom Endpoints are managed: the controller's own are not looked at.
const MANAGED_BY: (&str, &[&str]) = ("endpoints.kubernetes.io/managed-by", &["endpoint-controller"]);
const SLICE_MANAGED_BY: (&str, &[&str]) = (
    "endpointslice.kubernetes.io/managed-by",
    &["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"],
);

fn is_managed(object: &Value, (label, controllers): (&str, &[&str])) -> bool {
    controllers.contains(&json::text(&object["metadata"]["labels"], label))
}

fn endpoints_warnings(object: &Value) -> Vec<String> {
    let (list, mut warnings) = (Path::new("subsets"), Vec::new());
    if is_managed(object, MANAGED_BY) {
        return warnings;
    }
    for (index, subset) in json::list(object, "subsets").iter().enumerate() {
        let at = list.index(index);
        for field in ["addresses", "notReadyAddresses"] {
            let list = at.field(field);
            for (index, address) in json::list(subset, field).iter().enumerate() {
                let at = list.index(index);
                address::warnings(json::text(address, "ip"), &at.field("ip"), &mut warnings);
            }
        }
    }
    warnings
}

fn slice_warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let (list, mut warnings) = (Path::new("endpoints"), Vec::new());
    if old.is_none() && json::text(object, "addressType") == "FQDN" {
        warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
    }
    if is_managed(object, SLICE_MANAGED_BY) {
        return warnings;
    }
    for (index, endpoint) in json::list(object, "endpoints").iter().enumerate() {
        let at = list.index(index);
        let list = at.field("addresses");
        let addresses = json::list(endpoint, "addresses").iter().filter_map(Value::as_str);
        for (index, text) in addresses.enumerate() {
            address::warnings(text, &list.index(index), &mut warnings);
        }
    }
    warnings
}

fn subsets(subsets: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (index, subset) in subsets.iter().enumerate() {
        let at = path.index(index);
        let lists = ["addresses", "notReadyAddresses"];
        if lists.iter().all(|list| json::list(subset, list).is_empty()) {
            let detail = "must specify `addresses` or `notReadyAddresses`";
            errors.push(FieldError::required(at, detail));
        }
        for field in lists {
            let list = at.field(field);
            for (index, address) in json::list(subset, field).iter().enumerate() {
                subset_address(address, &list.index(index), errors);
            }
        }
        let ports = json::list(subset, "ports");
        let list = at.field("ports");
        for (index, port) in ports.iter().enumerate() {
            subset_port(port, ports.len() > 1, &list.index(index), errors);
        }
    }
}

fn subset_address(address: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let ip = json::text(address, "ip");
    address::parse(ip, &path.field("ip"), errors);
    let hostname = json::text(address, "hostname");
    if !hostname.is_empty() {
        refuse(names::dns_label(hostname), hostname, &path.field("hostname"), errors);
    }
    if let Some(node) = address["nodeName"].as_str() {
        refuse(names::dns_subdomain(node), node, &path.field("nodeName"), errors);
    }
    address::serving(ip, &path.field("ip"), errors);
}

fn subset_port(port: &Value, named: bool, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let name = json::text(port, "name");
    if !name.is_empty() {
        refuse(names::dns_label(name), name, &path.field("name"), errors);
    } else if named {
        errors.push(FieldError::required(path.field("name"), ""));
    }
    let number = port["port"].as_i64().unwrap_or_default();
    for message in names::port_number(number) {
        errors.push(FieldError::invalid(path.field("port"), number, message));
    }
    protocol(port, path, errors);
}

fn protocol(port: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match json::text(port, "protocol") {
        "" => errors.push(FieldError::required(path.field("protocol"), "")),
        known if PROTOCOLS.contains(&known) => {}
        other => errors.push(not_supported(path.field("protocol"), other, PROTOCOLS)),
    }
    if let Some(application) = port["appProtocol"].as_str() {
        refuse(names::qualified_name(application), application, &path.field("appProtocol"), errors);
    }
}

fn refuse(messages: Vec<String>, value: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    errors.extend(messages.into_iter().map(|message| FieldError::invalid(path, value, message)));
}

/// `Too many: 9: must have at most 8 items`.
fn too_many(path: &Path<'_>, count: usize, most: usize) -> FieldError {
    let detail = format!("must have at most {most} items");
    FieldError::new(FieldErrorKind::TooMany, path, Some(count.into()), detail)
}

fn slice(object: &Value, endpoints_too: bool, errors: &mut Vec<FieldError>) {
    let kind = json::text(object, "addressType");
    if kind.is_empty() {
        errors.push(FieldError::required("addressType", ""));
    } else if !ADDRESS_TYPES.contains(&kind) {
        errors.push(not_supported("addressType", kind, ADDRESS_TYPES));
    }
    slice_ports(json::list(object, "ports"), &Path::new("ports"), errors);
    if endpoints_too {
        slice_endpoints(json::list(object, "endpoints"), kind, &Path::new("endpoints"), errors);
    }
}

fn slice_ports(ports: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if ports.len() > PORTS_OF_SLICE {
        errors.push(too_many(path, ports.len(), PORTS_OF_SLICE));
        return;
    }
    let mut seen = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let at = path.index(index);
        let name = json::text(port, "name");
        if !name.is_empty() {
            refuse(names::dns_label(name), name, &at.field("name"), errors);
        }
        if seen.contains(&name) {
            errors.push(duplicate(at.field("name"), name));
        } else {
            seen.push(name);
        }
        protocol(port, &at, errors);
    }
}

fn slice_endpoints(endpoints: &[Value], kind: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if endpoints.len() > ENDPOINTS_OF_SLICE {
        errors.push(too_many(path, endpoints.len(), ENDPOINTS_OF_SLICE));
        return;
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let at = path.index(index);
        let list = at.field("addresses");
        let addresses = json::list(endpoint, "addresses");
        if addresses.is_empty() {
            errors.push(FieldError::required(list, "must contain at least 1 address"));
        } else if addresses.len() > ADDRESSES_OF_ENDPOINT {
            errors.push(too_many(&list, addresses.len(), ADDRESSES_OF_ENDPOINT));
        }
        for (index, address) in addresses.iter().enumerate() {
            let text = address.as_str().unwrap_or_default();
            slice_address(text, kind, &list, &list.index(index), errors);
        }
        if let Some(node) = endpoint["nodeName"].as_str() {
            refuse(names::dns_subdomain(node), node, &at.field("nodeName"), errors);
        }
        let topology = json::map(endpoint, "deprecatedTopology");
        let labels = at.field("deprecatedTopology");
        if let Some(topology) = topology.filter(|topology| topology.len() > TOPOLOGY_LABELS) {
            errors.push(too_many(&labels, topology.len(), TOPOLOGY_LABELS));
        }
        meta::validate_labels(topology, &labels, errors);
        if let Some(hostname) = endpoint["hostname"].as_str() {
            refuse(names::dns_label(hostname), hostname, &at.field("hostname"), errors);
        }
        let hinted = at.field("hints");
        for (field, rule) in
            [("forZones", names::label_value as fn(&str) -> Vec<String>), ("forNodes", names::dns_subdomain)]
        {
            hints(json::list(&endpoint["hints"], field), rule, &hinted.field(field), errors);
        }
    }
}

/// An address of the slice's type. What is of another type is refused at the list, not at the item.
fn slice_address(text: &str, kind: &str, list: &Path<'_>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match kind {
        "IPv4" | "IPv6" => {
            let before = errors.len();
            let address = address::parse(text, path, errors);
            if let (Some(address), "IPv6") = (address, kind) {
                canonical(address, text, path, errors);
            }
            if errors.len() > before {
                return;
            }
            if address.is_some_and(|address| address.is_ipv4() != (kind == "IPv4")) {
                errors.push(FieldError::invalid(list, text, format!("must be an {kind} address")));
            }
            address::serving(text, path, errors);
        }
        "FQDN" => domain(text, path, errors),
        _ => {}
    }
}

fn canonical(address: IpAddr, text: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let detail = match text.parse::<IpAddr>() {
        Err(_) => "must not have leading 0s".to_owned(),
        Ok(IpAddr::V6(given)) if given.to_ipv4_mapped().is_some() => {
            "must not be an IPv4-mapped IPv6 address".to_owned()
        }
        Ok(_) if address.to_string() != text => {
            format!("must be in canonical form ({:?})", address.to_string())
        }
        Ok(_) => return,
    };
    errors.push(FieldError::invalid(path, text, detail));
}

fn domain(text: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if text.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let wrong = names::dns_subdomain(name);
    if !wrong.is_empty() {
        errors.push(FieldError::invalid(path, name, wrong.join(",")));
    } else if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.push(FieldError::invalid(path, name, detail));
    } else if let Some((label, wrong)) =
        name.split('.').map(|label| (label, names::dns_label(label))).find(|(_, wrong)| !wrong.is_empty())
    {
        errors.push(FieldError::invalid(path, label, wrong.join(",")));
    }
}

fn hints(hints: &[Value], rule: fn(&str) -> Vec<String>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if hints.len() > HINTS {
        errors.push(too_many(path, hints.len(), HINTS));
        return;
    }
    let mut seen = Vec::new();
    for (index, hint) in hints.iter().enumerate() {
        let item = path.index(index);
        let (at, name) = (item.field("name"), json::text(hint, "name"));
        if seen.contains(&name) {
            errors.push(duplicate(at, name));
        } else {
            seen.push(name);
        }
        refuse(rule(name), name, &at, errors);
    }
}
