//! Lists of amounts: `limits`, `requests`, `capacity`.

use drydock_schema::FieldError;
use serde_json::Value;

use super::not_supported;
use crate::{json, names, path::Path, quantity::Quantity};

/// Rounds a list of amounts up to thousandths, the finest that resources are counted in.
pub(crate) fn canonical(list: &mut Value) {
    for value in list.as_object_mut().into_iter().flat_map(|list| list.values_mut()) {
        if let Some(Ok(quantity)) = value.as_str().map(Quantity::parse) {
            *value = quantity.rounded_to_milli().to_string().into();
        }
    }
}

/// Rounds limits and requests.
pub(crate) fn canonical_requirements(resources: &mut Value) {
    for field in ["limits", "requests"] {
        if let Some(list) = resources.get_mut(field) {
            canonical(list);
        }
    }
}

/// What is limited and not asked for is asked for up to the limit.
pub(crate) fn requests_from_limits(container: &mut Value) {
    let Some(resources) = container.get_mut("resources") else { return };
    let Some(limits) = json::map(resources, "limits").cloned() else { return };
    let Some(requests) = json::object_at(resources, "requests") else { return };
    for (name, limit) in limits {
        json::default(requests, &name, limit);
    }
}

/// What is worth saying about an amount of bytes that is not a whole one.
pub(crate) fn warn_of_fraction(amounts: &Value, name: &str, path: &Path<'_>, warnings: &mut Vec<String>) {
    let Some(amount) = get(amounts, name) else { return };
    if amount.millis() % 1000 != 0 {
        let at = path.key(name);
        warnings.push(format!("{at}: fractional byte value \"{amount}\" is invalid, must be an integer"));
    }
}

/// What has limits and requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// One container.
    Container,
    /// All containers of a pod together.
    Pod,
}

/// What a container can be given.
const OF_CONTAINERS: &[&str] = &["cpu", "memory", "ephemeral-storage"];
/// What is counted by a name without a domain, in containers or elsewhere.
const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];
/// What of these comes in whole numbers only.
const WHOLE: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const HUGE_PAGES: &str = "hugepages-";
const QUOTA: &str = "requests.";

/// What is wrong with limits and requests.
pub(crate) fn validate(resources: &Value, owner: Owner, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for field in ["limits", "requests"] {
        let at = path.field(field);
        for (name, value) in json::map(resources, field).into_iter().flatten() {
            let at = at.key(name);
            resource_name(name, owner, &at, errors);
            amount(value, &at, errors);
            let Some(quantity) = parse(value) else { continue };
            if is_whole(name) && quantity.millis() % 1000 != 0 {
                errors.push(FieldError::invalid(at, quantity.to_string(), "must be an integer"));
            }
            if name.starts_with(HUGE_PAGES) && !is_multiple(name, quantity) {
                let detail = format!("{quantity} is not positive integer multiple of {name}");
                errors.push(FieldError::invalid(at, quantity.to_string(), detail));
            }
        }
    }
    requests(resources, path, errors);
    let names = || {
        ["limits", "requests"].into_iter().flat_map(|field| json::map(resources, field).into_iter().flatten())
    };
    if names().any(|(name, _)| name.starts_with(HUGE_PAGES))
        && !names().any(|(name, _)| matches!(name.as_str(), "cpu" | "memory"))
    {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
}

/// Nothing is asked for beyond its limit, and what can't be shared is asked for exactly.
fn requests(resources: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (name, request) in json::map(resources, "requests").into_iter().flatten() {
        let shared = is_native(name) && !name.starts_with(HUGE_PAGES);
        let Some(limit) = resources["limits"].get(name) else {
            if !shared {
                let detail = "Limit must be set for non overcommitable resources";
                errors.push(FieldError::required(path.field("limits"), detail));
            }
            continue;
        };
        let (Some(request), Some(limit)) = (parse(request), parse(limit)) else { continue };
        let detail = if request != limit && !shared {
            format!("must be equal to {name} limit of {limit}")
        } else if request > limit {
            format!("must be less than or equal to {name} limit of {limit}")
        } else {
            continue;
        };
        errors.push(FieldError::invalid(path.field("requests"), request.to_string(), detail));
    }
}

fn resource_name(name: &str, owner: Owner, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let before = errors.len();
    errors.extend(names::qualified_name(name).into_iter().map(|m| FieldError::invalid(path, name, m)));
    let plain = !name.contains('/');
    let huge = name.starts_with(HUGE_PAGES);
    if errors.len() == before
        && plain
        && !STANDARD.contains(&name)
        && !huge
        && !name.strip_prefix(QUOTA).is_some_and(|rest| rest.starts_with(HUGE_PAGES))
    {
        let detail = "must be a standard resource type or fully qualified";
        errors.push(FieldError::invalid(path, name, detail));
    }
    match owner {
        Owner::Container if plain && !OF_CONTAINERS.contains(&name) && !huge => {
            errors.push(FieldError::invalid(path, name, "must be a standard resource for containers"));
        }
        Owner::Container if !is_native(name) && !is_extended(name) => {
            let detail = "doesn't follow extended resource name standard";
            errors.push(FieldError::invalid(path, name, detail));
        }
        Owner::Pod if errors.len() == before && !matches!(name, "cpu" | "memory") && !huge => {
            errors.push(not_supported(path, name, &["cpu", HUGE_PAGES, "memory"]));
        }
        Owner::Container | Owner::Pod => {}
    }
}

/// Kubernetes' own: without a domain, or in its domain.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Somebody's own, by a name that can also stand in a quota.
fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with(QUOTA)
        && names::qualified_name(&format!("{QUOTA}{name}")).is_empty()
}

fn is_whole(name: &str) -> bool {
    WHOLE.contains(&name) || is_extended(name)
}

/// A whole number of pages of the size in the resource's name.
fn is_multiple(name: &str, quantity: Quantity) -> bool {
    let page = name.strip_prefix(HUGE_PAGES).and_then(|size| Quantity::parse(size).ok());
    page.is_some_and(|page| page.units() > 0 && page.is_whole() && quantity.units() % page.units() == 0)
}

fn parse(value: &Value) -> Option<Quantity> {
    Quantity::parse(value.as_str()?).ok()
}

/// What is wrong with one amount.
pub(crate) fn amount(value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match Quantity::parse(&text) {
        Ok(quantity) if quantity.is_negative() => {
            errors.push(FieldError::invalid(path, text, "must be greater than or equal to 0"));
        }
        Ok(_) => {}
        Err(error) => errors.push(FieldError::invalid(path, text, error.to_string())),
    }
}

/// The amount of a resource in a list, if it is there and not zero.
pub(crate) fn get(list: &Value, name: &str) -> Option<Quantity> {
    list.get(name).and_then(parse).filter(|quantity| quantity.millis() != 0)
}
