//! `LabelSelector` objects in specifications.

use drydock_schema::FieldError;
use serde_json::Value;

use crate::{json, meta, names, path::Path};

/// What is wrong with a selector; a missing one is not wrong here.
pub(crate) fn validate(selector: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    meta::validate_labels(json::map(selector, "matchLabels"), &path.field("matchLabels"), errors);
    let list = path.field("matchExpressions");
    for (index, expression) in json::list(selector, "matchExpressions").iter().enumerate() {
        let at = list.index(index);
        let values = json::list(expression, "values");
        match json::text(expression, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(at.field("values"), detail));
            }
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(at.field("values"), detail));
            }
            "Exists" | "DoesNotExist" => {}
            other => {
                errors.push(FieldError::invalid(
                    at.field("operator"),
                    other,
                    "not a valid selector operator",
                ));
            }
        }
        let key = json::text(expression, "key");
        for message in names::qualified_name(key) {
            errors.push(FieldError::invalid(at.field("key"), key, message));
        }
        for (index, value) in values.iter().enumerate() {
            let list = at.field("values");
            for message in names::label_value(value.as_str().unwrap_or_default()) {
                errors.push(FieldError::invalid(list.index(index), value.clone(), message));
            }
        }
    }
}

/// Nothing is selected by it, or everything.
pub(crate) fn is_empty(selector: &Value) -> bool {
    json::map(selector, "matchLabels").is_none_or(serde_json::Map::is_empty)
        && json::list(selector, "matchExpressions").is_empty()
}
