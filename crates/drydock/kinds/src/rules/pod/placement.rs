//! What is wrong with where a pod is to run.

use drydock_schema::FieldError;
use serde_json::{Value, json};

use crate::{
    json, names,
    path::Path,
    rules::{duplicate, not_supported, selector},
};

pub(super) const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
pub(super) const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn tolerations(tolerations: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let at = path.index(index);
        let (key, operator) = (json::text(toleration, "key"), json::text(toleration, "operator"));
        let effect = json::text(toleration, "effect");
        if !key.is_empty() {
            let wrong = names::qualified_name(key);
            errors
                .extend(wrong.into_iter().map(|message| FieldError::invalid(at.field("key"), key, message)));
        }
        if key.is_empty() && operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(at.field("operator"), operator, detail));
        }
        if toleration["tolerationSeconds"].is_i64() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(at.field("effect"), effect, detail));
        }
        match operator {
            "Equal" | "" => {
                let value = json::text(toleration, "value");
                let wrong = names::label_value(value);
                if !wrong.is_empty() {
                    errors.push(FieldError::invalid(at.field("operator"), value, wrong.join(";")));
                }
            }
            "Exists" => {
                let value = json::text(toleration, "value");
                if !value.is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    errors.push(FieldError::invalid(at.field("operator"), value, detail));
                }
            }
            other => errors.push(not_supported(at.field("operator"), other, &["Equal", "Exists"])),
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if !effect.is_empty() && !effects.contains(&effect) {
            errors.push(not_supported(at.field("effect"), effect, &effects));
        }
    }
}

/// What is wrong with the terms that choose nodes, and with those that choose other pods: what people
/// write to keep replicas apart.
pub(super) fn affinity(affinity: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    node_affinity(&affinity["nodeAffinity"], &path.field("nodeAffinity"), errors);
    for kind in ["podAffinity", "podAntiAffinity"] {
        let at = path.field(kind);
        let required = at.field(REQUIRED);
        for (index, term) in json::list(&affinity[kind], REQUIRED).iter().enumerate() {
            affinity_term(term, &required.index(index), errors);
        }
        let preferred = at.field(PREFERRED);
        for (index, term) in json::list(&affinity[kind], PREFERRED).iter().enumerate() {
            let item = preferred.index(index);
            weight(term, &item, errors);
            affinity_term(&term["podAffinityTerm"], &item.field("podAffinityTerm"), errors);
        }
    }
}

fn weight(term: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let weight = term["weight"].as_i64().unwrap_or_default();
    if !(1..=100).contains(&weight) {
        errors.push(FieldError::invalid(path.field("weight"), weight, "must be in the range 1-100"));
    }
}

fn affinity_term(term: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    selector::validate(&term["labelSelector"], &path.field("labelSelector"), errors);
    label_keys(term, path, errors);
    let key = json::text(term, "topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(path.field("topologyKey"), "can not be empty"));
    }
    for message in names::qualified_name(key) {
        errors.push(FieldError::invalid(path.field("topologyKey"), key, message));
    }
}

fn node_affinity(affinity: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if affinity[REQUIRED].is_object() {
        node_selector(&affinity[REQUIRED], &path.field(REQUIRED), errors);
    }
    let at = path.field(PREFERRED);
    for (index, term) in json::list(affinity, PREFERRED).iter().enumerate() {
        let item = at.index(index);
        weight(term, &item, errors);
        node_term(&term["preference"], false, &item.field("preference"), errors);
    }
}

/// What is wrong with the terms of which a node must fulfil one, also those of a volume.
pub(crate) fn node_selector(selector: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let (at, terms) = (path.field("nodeSelectorTerms"), json::list(selector, "nodeSelectorTerms"));
    if terms.is_empty() {
        errors.push(FieldError::required(at, "must have at least one node selector term"));
    }
    for (index, term) in terms.iter().enumerate() {
        node_term(term, true, &at.index(index), errors);
    }
}

/// Values of a preference need not be possible: then nothing is preferred.
fn node_term(term: &Value, check_values: bool, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let expressions = path.field("matchExpressions");
    for (index, requirement) in json::list(term, "matchExpressions").iter().enumerate() {
        let at = expressions.index(index);
        let values = json::list(requirement, "values");
        match json::text(requirement, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(at.field("values"), detail));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(at.field("values"), detail));
            }
            "Gt" | "Lt" if values.len() != 1 => {
                let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                errors.push(FieldError::required(at.field("values"), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => {
                let detail = "not a valid selector operator";
                errors.push(FieldError::invalid(at.field("operator"), other, detail));
            }
        }
        let key = json::text(requirement, "key");
        for message in names::qualified_name(key) {
            errors.push(FieldError::invalid(at.field("key"), key, message));
        }
        let list = at.field("values");
        for (index, value) in values.iter().enumerate().filter(|_| check_values) {
            for message in names::label_value(value.as_str().unwrap_or_default()) {
                errors.push(FieldError::invalid(list.index(index), value.clone(), message));
            }
        }
    }
    let fields = path.field("matchFields");
    for (index, requirement) in json::list(term, "matchFields").iter().enumerate() {
        node_field(requirement, &fields.index(index), errors);
    }
}

/// The one field that nodes are chosen by is their name.
fn node_field(requirement: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let (key, values) = (json::text(requirement, "key"), json::list(requirement, "values"));
    match json::text(requirement, "operator") {
        "In" | "NotIn" if values.len() != 1 => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.push(FieldError::required(path.field("values"), detail));
        }
        "In" | "NotIn" => {}
        other => {
            let detail = "not a valid selector operator";
            errors.push(FieldError::invalid(path.field("operator"), other, detail));
        }
    }
    if key != "metadata.name" {
        errors.push(FieldError::invalid(path.field("key"), key, "not a valid field selector key"));
        return;
    }
    let list = path.field("values");
    for (index, value) in values.iter().enumerate() {
        for message in names::dns_subdomain(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(list.index(index), value.clone(), message));
        }
    }
}

/// What is wrong with how a pod is to be spread among its like.
pub(super) fn spread(constraints: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    const ACTIONS: &[&str] = &["DoNotSchedule", "ScheduleAnyway"];
    let positive = |number: i64, path: &Path<'_>, errors: &mut Vec<FieldError>| {
        if number <= 0 {
            errors.push(FieldError::invalid(path, number, "must be greater than zero"));
        }
    };
    for (index, constraint) in constraints.iter().enumerate() {
        let at = path.index(index);
        let key = json::text(constraint, "topologyKey");
        let action = json::text(constraint, "whenUnsatisfiable");
        positive(constraint["maxSkew"].as_i64().unwrap_or_default(), &at.field("maxSkew"), errors);
        if key.is_empty() {
            errors.push(FieldError::required(at.field("topologyKey"), "can not be empty"));
        }
        if !ACTIONS.contains(&action) {
            errors.push(not_supported(at.field("whenUnsatisfiable"), action, ACTIONS));
        }
        let again = constraints.iter().skip(index + 1).any(|other| {
            json::text(other, "topologyKey") == key && json::text(other, "whenUnsatisfiable") == action
        });
        if again {
            let pair = at.field("{topologyKey, whenUnsatisfiable}");
            errors.push(duplicate(pair, format!("{{{key}, {action}}}")));
        }
        if let Some(domains) = constraint["minDomains"].as_i64() {
            positive(domains, &at.field("minDomains"), errors);
            if action != "DoNotSchedule" {
                let detail =
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.push(FieldError::invalid(at.field("minDomains"), domains, detail));
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            let policy = constraint[field].as_str();
            if let Some(policy) = policy.filter(|policy| !["Honor", "Ignore"].contains(policy)) {
                errors.push(not_supported(at.field(field), policy, &["Honor", "Ignore"]));
            }
        }
        label_keys(constraint, &at, errors);
        selector::validate(&constraint["labelSelector"], &at.field("labelSelector"), errors);
    }
}

/// Keys whose values are taken from the pod itself, to choose with.
fn label_keys(term: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let at = path.field(field);
        let keys = json::list(term, field);
        if !keys.is_empty() && !term["labelSelector"].is_object() {
            let detail = "must not be specified when labelSelector is not set";
            errors.push(FieldError::forbidden(at, detail));
            continue;
        }
        for (index, key) in keys.iter().enumerate() {
            for message in names::qualified_name(key.as_str().unwrap_or_default()) {
                errors.push(FieldError::invalid(at.index(index), key.clone(), message));
            }
        }
    }
    let keys = json::list(term, "matchLabelKeys");
    // The selector has what was made of these keys: who finds one there a second time wrote it too. That is told where
    // Kubernetes tells it, at a place that is not there.
    let selector = &term["labelSelector"];
    let mut seen: Vec<&str> =
        json::map(selector, "matchLabels").into_iter().flatten().map(|(key, _)| &**key).collect();
    for requirement in json::list(selector, "matchExpressions") {
        let key = json::text(requirement, "key");
        let index = keys.iter().rposition(|one| one == key);
        if let Some(index) = index.filter(|_| seen.contains(&key)) {
            let detail = "exists in both matchLabelKeys and labelSelector";
            errors.push(FieldError::invalid(path.index(index), key, detail));
        }
        seen.push(key);
    }
    let at = path.field("matchLabelKeys");
    for (index, key) in keys.iter().enumerate() {
        if json::list(term, "mismatchLabelKeys").contains(key) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.push(FieldError::invalid(at.index(index), key.clone(), detail));
        }
    }
}

/// What is wrong with what holds a pod back from a node.
pub(super) fn gates(gates: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut seen = Vec::new();
    for (index, gate) in gates.iter().enumerate() {
        let (at, name) = (path.index(index), json::text(gate, "name"));
        errors.extend(names::qualified_name(name).into_iter().map(|m| FieldError::invalid(at, name, m)));
        if seen.contains(&name) {
            errors.push(duplicate(at, name));
        }
        seen.push(name);
    }
}

/// What is wrong with a change of where a pod may go that is still held back: there may only be fewer places.
pub(super) fn narrowed(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let empty = serde_json::Map::new();
    let [new_selector, old_selector] =
        [new, old].map(|spec| json::map(spec, "nodeSelector").unwrap_or(&empty));
    if old_selector.iter().any(|(key, value)| new_selector.get(key) != Some(value)) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.push(FieldError::invalid("spec.nodeSelector", new["nodeSelector"].clone(), detail));
    }
    let [new, old] =
        [new, old].map(|spec| json::list(&spec["affinity"]["nodeAffinity"][REQUIRED], "nodeSelectorTerms"));
    if old.is_empty() {
        return;
    }
    let path = format!("spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
    if old.len() != new.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.push(FieldError::invalid(path, new.to_vec(), detail));
        return;
    }
    for (index, (new, old)) in new.iter().zip(old).enumerate() {
        if !is_narrower(new, old) {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.push(FieldError::invalid(format!("{path}[{index}]"), new.clone(), detail));
        }
    }
}

/// Whether a term asks for all that the old one asks for, in the same order, and at most for more. One that asks for
/// nothing matches nothing.
fn is_narrower(new: &Value, old: &Value) -> bool {
    let lists =
        ["matchExpressions", "matchFields"].map(|field| (json::list(new, field), json::list(old, field)));
    let begins_alike = |(new, old): &(&[Value], &[Value])| {
        new.len() >= old.len() && new.iter().zip(*old).all(|(new, old)| json::same(new, old))
    };
    let was_empty = lists.iter().all(|(_, old)| old.is_empty());
    lists.iter().all(begins_alike) && (!was_empty || lists.iter().all(|(new, _)| new.is_empty()))
}

/// Puts back where a pod may go, but for what is said of other pods.
pub(super) fn with_old(munged: &mut Value, old: &Value) {
    json::put_back(munged, old, "nodeSelector");
    if !munged["affinity"].is_object() && !old["affinity"].is_object() {
        return;
    }
    let mut affinity = if munged["affinity"].is_object() { munged["affinity"].take() } else { json!({}) };
    json::put_back(&mut affinity, &old["affinity"], "nodeAffinity");
    let is_new = old.get("affinity").is_none() && affinity.as_object().is_none_or(serde_json::Map::is_empty);
    if is_new {
        json::remove(munged, "affinity");
    } else {
        json::set(munged, "affinity", affinity);
    }
}
