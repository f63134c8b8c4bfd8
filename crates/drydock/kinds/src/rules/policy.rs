//! Disruption budgets.

use drydock_schema::FieldError;
use serde_json::{Value, json};

use super::{
    PLAIN, Rules, at_most_all, in_order, not_negative, not_supported, number_or_percent, selector, showing,
};
use crate::{json, path::Path};

pub(crate) const BUDGET: Rules = Rules {
    create: |object| {
        let status =
            json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
        json::set(object, "status", status);
    },
    validate: validate_budget,
    validate_update: |new, _, errors| validate_budget(new, errors),
    validate_status: |new, _, errors| {
        let path = Path::new("status");
        for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            not_negative(&new["status"], field, &path, errors);
        }
    },
    ..PLAIN
};

fn validate_budget(object: &Value, errors: &mut Vec<FieldError>) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    if spec.get("minAvailable").is_some() && spec.get("maxUnavailable").is_some() {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(showing(FieldError::invalid(path, spec.clone(), detail), internal(spec)));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        if let Some(value) = spec.get(field) {
            number_or_percent(value, &path.field(field), errors);
            at_most_all(value, &path.field(field), errors);
        }
    }
    selector::validate(&spec["selector"], &path.field("selector"), errors);
    let policy = json::text(spec, "unhealthyPodEvictionPolicy");
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    if !policy.is_empty() && !policies.contains(&policy) {
        errors.push(not_supported(path.field("unhealthyPodEvictionPolicy"), policy, &policies));
    }
}

/// The specification in the internal form, which is what Kubernetes shows.
fn internal(spec: &Value) -> String {
    in_order(&[
        ("MinAvailable", &spec["minAvailable"]),
        ("Selector", &spec["selector"]),
        ("MaxUnavailable", &spec["maxUnavailable"]),
        ("UnhealthyPodEvictionPolicy", &spec["unhealthyPodEvictionPolicy"]),
    ])
}
