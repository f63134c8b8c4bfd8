//! What is wrong with what a job says of failures and successes.

use drydock_schema::{FieldError, FieldErrorKind};
use serde_json::Value;

use crate::{
    json, names,
    path::Path,
    rules::{duplicate, in_order, not_negative, not_supported, showing},
};

/// The most rules of each sort, and the most patterns and exit codes in one.
const MOST_RULES: usize = 20;
const MOST_CODES: usize = 255;

/// An error that does not show the value.
pub(super) fn wrong(path: impl Into<String>, detail: &str) -> FieldError {
    FieldError::new(FieldErrorKind::Invalid, path, None, detail)
}

fn too_many(path: impl Into<String>, found: usize, most: usize) -> FieldError {
    let detail = format!("must have at most {most} items");
    FieldError::new(FieldErrorKind::TooMany, path, Some(found.into()), detail)
}

/// `valid values: ["a" "b"]`, as Go prints lists.
fn valid(values: &[&str]) -> String {
    let values: Vec<_> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("valid values: [{}]", values.join(" "))
}

fn one_of(object: &Value, field: &str, known: &[&str], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match json::text(object, field) {
        "" => errors.push(FieldError::required(path.field(field), valid(known))),
        value if !known.contains(&value) => errors.push(not_supported(path.field(field), value, known)),
        _ => {}
    }
}

pub(super) fn failure(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let at = path.field("rules");
    let rules = json::list(&spec["podFailurePolicy"], "rules");
    if rules.len() > MOST_RULES {
        errors.push(too_many(at, rules.len(), MOST_RULES));
    }
    let pod = &spec["template"]["spec"];
    let containers = json::list(pod, "containers").iter().chain(json::list(pod, "initContainers"));
    let names: Vec<&str> = containers.map(|container| json::text(container, "name")).collect();
    for (index, rule) in rules.iter().enumerate() {
        let at = at.index(index);
        if json::text(rule, "action") == "FailIndex" {
            if spec.get("backoffLimitPerIndex").is_none() {
                let detail = "requires the backoffLimitPerIndex to be set";
                errors.push(FieldError::invalid(at.field("action"), "FailIndex", detail));
            }
        } else {
            one_of(rule, "action", &["Count", "FailIndex", "FailJob", "Ignore"], &at, errors);
        }
        let (codes, conditions) = (&rule["onExitCodes"], json::list(rule, "onPodConditions"));
        if codes.is_object() {
            exit_codes(codes, &names, &at.field("onExitCodes"), errors);
        }
        patterns(conditions, &at.field("onPodConditions"), errors);
        let (both, none) = (
            "specifying both OnExitCodes and OnPodConditions is not supported",
            "specifying one of OnExitCodes and OnPodConditions is required",
        );
        match (codes.is_object(), !conditions.is_empty()) {
            (true, true) => errors.push(wrong(at, both)),
            (false, false) => errors.push(wrong(at, none)),
            _ => {}
        }
    }
}

fn patterns(conditions: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if conditions.len() > MOST_RULES {
        errors.push(too_many(path, conditions.len(), MOST_RULES));
    }
    for (index, pattern) in conditions.iter().enumerate() {
        let at = path.index(index);
        let kind = json::text(pattern, "type");
        let messages = names::qualified_name(kind).into_iter();
        errors.extend(messages.map(|message| FieldError::invalid(at.field("type"), kind, message)));
        one_of(pattern, "status", &["False", "True", "Unknown"], &at, errors);
    }
}

fn exit_codes(codes: &Value, names: &[&str], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    one_of(codes, "operator", &["In", "NotIn"], path, errors);
    if let Some(name) = codes["containerName"].as_str().filter(|name| !names.contains(name)) {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.push(FieldError::invalid(path.field("containerName"), name, detail));
    }
    let (at, values) = (path.field("values"), json::list(codes, "values"));
    if values.is_empty() {
        let given = codes.get("values").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(at, given, "at least one value is required"));
    } else if values.len() > MOST_CODES {
        errors.push(too_many(at, values.len(), MOST_CODES));
    }
    let numbers: Vec<i64> = values.iter().map(|value| value.as_i64().unwrap_or_default()).collect();
    for (index, number) in numbers.iter().enumerate() {
        if *number == 0 && json::text(codes, "operator") == "In" {
            let detail = "must not be 0 for the In operator";
            errors.push(FieldError::invalid(at.index(index), *number, detail));
        }
        if numbers[..index].contains(number) {
            errors.push(duplicate(at.index(index), *number));
        }
    }
    if !numbers.is_sorted() {
        errors.push(FieldError::invalid(at, values.to_vec(), "must be ordered"));
    }
}

pub(super) fn success(spec: &Value, indexed: bool, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let policy = &spec["successPolicy"];
    if !indexed {
        let rules: Vec<String> = json::list(policy, "rules")
            .iter()
            .map(|rule| {
                let (indexes, count) = (&rule["succeededIndexes"], &rule["succeededCount"]);
                in_order(&[("SucceededIndexes", indexes), ("SucceededCount", count)])
            })
            .collect();
        let error = FieldError::invalid(path, policy.clone(), "requires indexed completion mode");
        errors.push(showing(error, format!("{{\"Rules\":[{}]}}", rules.join(","))));
        return;
    }
    let (at, rules) = (path.field("rules"), json::list(policy, "rules"));
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.push(FieldError::required(at, detail));
    }
    if rules.len() > MOST_RULES {
        errors.push(too_many(at, rules.len(), MOST_RULES));
    }
    let completions = spec["completions"].as_i64().unwrap_or_default();
    for (index, rule) in rules.iter().enumerate() {
        let at = at.index(index);
        let (indexes, count) = (rule["succeededIndexes"].as_str(), rule["succeededCount"].as_i64());
        if indexes.is_none() && count.is_none() {
            let detail = "at least one of succeededCount or succeededIndexes must be specified";
            errors.push(FieldError::required(at, detail));
        }
        let total = indexes.map(|indexes| match total_of(indexes, completions) {
            Ok(total) => total,
            Err(why) => {
                let detail = format!("error parsing succeededIndexes: {why}");
                errors.push(FieldError::invalid(at.field("succeededIndexes"), indexes, detail));
                0
            }
        });
        let Some(count) = count else { continue };
        not_negative(rule, "succeededCount", &at, errors);
        let bounds = [
            (Some(completions), "the number of specified completions"),
            (total, "the number of indexes in the specified succeededIndexes field"),
        ];
        for (most, what) in bounds {
            if let Some(most) = most.filter(|most| count > *most) {
                let detail = format!("must be less than or equal to {most} ({what})");
                errors.push(FieldError::invalid(at.field("succeededCount"), count, detail));
            }
        }
    }
}

/// How many indexes a text like `1,3-5` has.
pub(super) fn total_of(text: &str, completions: i64) -> Result<i64, String> {
    let (mut total, mut last) = (0, None);
    for range in text.split(',').filter(|_| !text.is_empty()) {
        let limits: Vec<&str> = range.split('-').collect();
        if limits.len() > 2 {
            return Err(format!(
                "the fragment {range:?} violates the requirement that an index interval can have at most two parts \
                 separated by '-'"
            ));
        }
        let read = |part: &str| {
            let number = part
                .parse::<i64>()
                .map_err(|_| format!("cannot convert string to integer for index: {part:?}"))?;
            if number >= completions {
                return Err(format!("too large index: {part:?}"));
            }
            Ok(number)
        };
        let first = read(limits[0])?;
        let end = limits.get(1).map_or(Ok(first), |part| read(part))?;
        if limits.len() == 2 && first >= end {
            return Err(format!("non-increasing order, previous: {first}, current: {end}"));
        }
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}
