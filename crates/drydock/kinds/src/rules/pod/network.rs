//! What is wrong with how a pod is reached, and how it finds others.

use drydock_schema::FieldError;
use serde_json::Value;

use crate::{json, names, path::Path, rules::address};

/// As many name servers as the C library asks.
const NAME_SERVERS: usize = 3;
const SEARCHES: usize = 32;
const SEARCH_CHARACTERS: usize = 2048;

/// On the host's network a container's port is the host's. A template may leave it unsaid.
pub(super) fn host_network(spec: &Value, template: bool, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if spec["hostNetwork"].as_bool() != Some(true) {
        return;
    }
    let containers = path.field("containers");
    for (index, container) in json::list(spec, "containers").iter().enumerate() {
        let at = containers.index(index);
        let ports = at.field("ports");
        for (index, port) in json::list(container, "ports").iter().enumerate() {
            let host = port["hostPort"].as_i64().unwrap_or_default();
            if (!template || host != 0) && host != port["containerPort"].as_i64().unwrap_or_default() {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.push(FieldError::invalid(ports.index(index).field("hostPort"), host, detail));
            }
        }
    }
}

/// What is wrong with a pod's own settings for names.
pub(super) fn dns(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let config = &spec["dnsConfig"];
    let servers = json::list(config, "nameservers");
    if json::text(spec, "dnsPolicy") == "None" {
        if !config.is_object() {
            let detail = "must provide `dnsConfig` when `dnsPolicy` is None";
            errors.push(FieldError::required(path, detail));
            return;
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.push(FieldError::required(path.field("nameservers"), detail));
            return;
        }
    }
    let at = path.field("nameservers");
    if servers.len() > NAME_SERVERS {
        let detail = format!("must not have more than {NAME_SERVERS} nameservers");
        errors.push(FieldError::invalid(at, config["nameservers"].clone(), detail));
    }
    for (index, server) in servers.iter().enumerate() {
        address::parse(server.as_str().unwrap_or_default(), &at.index(index), errors);
    }
    let at = path.field("searches");
    let searches: Vec<_> =
        json::list(config, "searches").iter().map(|name| name.as_str().unwrap_or_default()).collect();
    if searches.len() > SEARCHES {
        let detail = format!("must not have more than {SEARCHES} search paths");
        errors.push(FieldError::invalid(at, config["searches"].clone(), detail));
    }
    if searches.join(" ").len() > SEARCH_CHARACTERS {
        let detail = format!(
            "must not have more than {SEARCH_CHARACTERS} characters (including spaces) in the search list"
        );
        errors.push(FieldError::invalid(at, config["searches"].clone(), detail));
    }
    for (index, search) in searches.into_iter().enumerate().filter(|(_, search)| *search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        for message in names::dns_subdomain_with_underscore(search) {
            errors.push(FieldError::invalid(at.index(index), search, message));
        }
    }
    let at = path.field("options");
    for (index, option) in json::list(config, "options").iter().enumerate() {
        if json::text(option, "name").is_empty() {
            errors.push(FieldError::required(at.index(index), "must not be empty"));
        }
    }
}

/// What is wrong with names that a pod knows by itself.
pub(super) fn aliases(aliases: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (index, alias) in aliases.iter().enumerate() {
        let at = path.index(index);
        address::parse(json::text(alias, "ip"), &at.field("ip"), errors);
        let list = at.field("hostnames");
        for (index, name) in json::list(alias, "hostnames").iter().enumerate() {
            for message in names::dns_subdomain(name.as_str().unwrap_or_default()) {
                errors.push(FieldError::invalid(list.index(index), name.clone(), message));
            }
        }
    }
}
