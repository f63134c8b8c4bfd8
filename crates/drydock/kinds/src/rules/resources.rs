//! Lists of amounts: `limits`, `requests`, `capacity`.

use drydock_schema::FieldError;
use serde_json::Value;

use crate::{json, path::Path, quantity::Quantity};

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

/// What is wrong with limits and requests.
pub(crate) fn validate(resources: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for field in ["limits", "requests"] {
        let at = path.field(field);
        for (name, value) in json::map(resources, field).into_iter().flatten() {
            amount(value, &at.key(name), errors);
        }
    }
    for (name, request) in json::map(resources, "requests").into_iter().flatten() {
        let limit = resources["limits"].get(name).and_then(parse);
        if let (Some(request), Some(limit)) = (parse(request), limit)
            && request > limit
        {
            let detail = format!("must be less than or equal to {name} limit of {limit}");
            errors.push(FieldError::invalid(path.field("requests"), request.to_string(), detail));
        }
    }
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
