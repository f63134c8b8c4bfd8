//! Types, bounds, enumerations, patterns, formats, required fields, and the ways to combine them.
//!
//! The order of the checks, and which of two failing alternatives is reported, follow Kubernetes:
//! a failure is worded by the first keyword that fails, and of several alternatives the one that
//! got furthest explains itself.

use serde_json::{Number, Value};

use super::{ROOT, child, old_field, old_item};
use crate::{Checks, FieldError, FieldErrorKind, Schema, Type, formats};

pub(super) fn check(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut findings = Findings::default();
    node(schema, new, Some(old).flatten(), "", &mut findings);
    findings.errors
}

/// What was found, and how many checks passed on the way.
#[derive(Default)]
struct Findings {
    errors: Vec<FieldError>,
    passed: usize,
}

impl Findings {
    fn add(&mut self, error: FieldError) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Findings) {
        self.passed += other.passed;
        other.errors.into_iter().for_each(|error| self.add(error));
    }

    fn fail(&mut self, kind: FieldErrorKind, path: &str, value: impl Into<Value>, detail: impl Into<String>) {
        let path = if path.is_empty() { ROOT } else { path };
        self.add(FieldError::new(kind, path, Some(value.into()), detail));
    }
}

/// A child, whose failures are forgiven when it is what it was before.
fn ratcheted(schema: &Schema, new: &Value, old: Option<&Value>, path: &str, findings: &mut Findings) {
    let mut own = Findings::default();
    node(schema, new, old, path, &mut own);
    if !own.errors.is_empty() && old == Some(new) {
        own.errors.clear();
    }
    findings.merge(own);
}

fn node(schema: &Schema, value: &Value, old: Option<&Value>, path: &str, findings: &mut Findings) {
    if value.is_null() {
        let expected = type_name(schema);
        if !expected.is_empty() && !schema.nullable {
            findings.fail(FieldErrorKind::TypeInvalid, path, "null", of_type(path, &expected, "null"));
        }
        allowed(schema, value, path, findings);
        return;
    }
    if !type_name(schema).is_empty() || schema.format.is_some() {
        match wrong_type(schema, value) {
            None => findings.passed += 1,
            Some((expected, found)) => {
                findings.fail(FieldErrorKind::TypeInvalid, path, found, of_type(path, &expected, found));
            }
        }
        findings.passed += 1;
    }
    combinations(&schema.checks, value, old, path, findings);
    findings.passed += 2;
    match value {
        Value::String(text) => {
            string(&schema.checks, text, path, findings);
            findings.passed += 1;
            if let Some(format) = schema.format.as_deref().filter(|format| formats::is_known(format)) {
                if !formats::matches(format, text) {
                    findings.fail(
                        FieldErrorKind::TypeInvalid,
                        path,
                        text.as_str(),
                        of_type(path, format, text),
                    );
                }
                findings.passed += 1;
            }
        }
        Value::Number(number) => {
            bounds(&schema.checks, number, path, findings);
            findings.passed += 2;
        }
        Value::Array(items) => {
            list(schema, items, old, path, findings);
            findings.passed += 2;
        }
        Value::Object(_) | Value::Bool(_) | Value::Null => {}
    }
    allowed(schema, value, path, findings);
    findings.passed += 1;
    if let Value::Object(fields) = value {
        object(schema, fields, old, path, findings);
        findings.passed += 1;
    }
    findings.passed += 1;
}

fn of_type(path: &str, expected: &str, found: &str) -> String {
    format!("{path} in body must be of type {expected}: {}", Value::from(found))
}

fn type_name(schema: &Schema) -> String {
    match schema.kind {
        Type::IntOrString => "integer,string".to_owned(),
        kind => kind.as_str().to_owned(),
    }
}

/// From here on a float can't tell a whole number from its neighbour.
const LAST_EXACT: f64 = 9_007_199_254_740_991.0;

/// The expected and the found type, when they differ.
fn wrong_type(schema: &Schema, value: &Value) -> Option<(String, &'static str)> {
    let (found, its_format, whole) = match value {
        Value::Null => ("null", "", false),
        Value::Bool(_) => ("boolean", "", false),
        Value::String(_) => ("string", "", false),
        Value::Array(_) => ("array", "", false),
        Value::Object(_) => ("object", "", false),
        Value::Number(number) if number.is_i64() => ("integer", "int64", true),
        Value::Number(number) => {
            let whole = |float: f64| float.fract() == 0.0 && float.abs() <= LAST_EXACT;
            ("number", "float64", number.as_f64().is_some_and(whole))
        }
    };
    let fits = match schema.kind {
        Type::Any => true,
        Type::Integer => whole,
        Type::Number => matches!(value, Value::Number(_)),
        Type::IntOrString if schema.format.as_deref() == Some("quantity") => {
            matches!(value, Value::Number(_) | Value::String(_))
        }
        Type::IntOrString => whole || value.is_string(),
        kind => kind.as_str() == found,
    };
    // A format is another name for the type of what is neither a string nor a list.
    if let Some(format) = schema.format.as_deref().filter(|format| formats::is_known(format)) {
        let is_text = matches!(value, Value::String(_) | Value::Array(_));
        if !is_text && !fits {
            return Some((format.to_owned(), its_format));
        }
        if is_text && !matches!(schema.kind, Type::Integer | Type::Number | Type::IntOrString) {
            return None;
        }
    }
    (!fits).then(|| (type_name(schema), found))
}

fn allowed(schema: &Schema, value: &Value, path: &str, findings: &mut Findings) {
    let allowed = &schema.checks.allowed;
    let same = |one: &Value| match (one, value) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (one, other) => one == other,
    };
    if allowed.is_empty() || allowed.iter().any(same) {
        return;
    }
    let quoted: Vec<String> = allowed
        .iter()
        .map(|value| match value {
            Value::String(text) => Value::from(text.as_str()).to_string(),
            other => Value::from(other.to_string()).to_string(),
        })
        .collect();
    findings.fail(
        FieldErrorKind::NotSupported,
        path,
        value.clone(),
        format!("supported values: {}", quoted.join(", ")),
    );
}

fn string(checks: &Checks, text: &str, path: &str, findings: &mut Findings) {
    let length = text.chars().count() as u64;
    if let Some(most) = checks.max_length.filter(|most| length > *most) {
        let unit = if most == 1 { "byte" } else { "bytes" };
        let path = if path.is_empty() { ROOT } else { path };
        let detail = format!("may not be more than {most} {unit}");
        findings.add(FieldError::new(FieldErrorKind::TooLong, path, None, detail));
    } else if let Some(least) = checks.min_length.filter(|least| length < *least) {
        let detail = format!("{path} in body should be at least {least} chars long");
        findings.fail(FieldErrorKind::Invalid, path, text, detail);
    } else if let Some(pattern) = checks.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        let detail = format!("{path} in body should match '{pattern}'");
        findings.fail(FieldErrorKind::Invalid, path, text, detail);
    }
}

/// Whole numbers are compared as such, with a bound cut to a whole number.
#[expect(clippy::cast_possible_truncation, reason = "bounds beyond i64 are saturated, as Go does")]
fn bounds(checks: &Checks, number: &Number, path: &str, findings: &mut Findings) {
    let value = number.as_f64().unwrap_or_default();
    let integer = number.as_i64().or_else(|| number.as_u64().map(|_| i64::MAX));
    let shown = |bound: f64| integer.map_or_else(|| go_float(bound), |_| (bound as i64).to_string());
    let below = |bound: f64, strictly: bool| match integer {
        Some(integer) => integer < bound as i64 || (strictly && integer == bound as i64),
        None => value < bound || (strictly && value == bound),
    };
    let above = |bound: f64, strictly: bool| match integer {
        Some(integer) => integer > bound as i64 || (strictly && integer == bound as i64),
        None => value > bound || (strictly && value == bound),
    };
    let mut fail = |text: &str, bound: f64| {
        let detail = format!("{path} in body should be {text} {}", shown(bound));
        findings.fail(FieldErrorKind::Invalid, path, number.clone(), detail);
    };
    if let Some(factor) = checks.multiple_of.filter(|factor| *factor > 0.0) {
        let fits = match integer {
            Some(integer) => (factor as i64) != 0 && integer % (factor as i64) == 0,
            None => (value / factor).fract().abs() < 1e-9,
        };
        if !fits {
            fail("a multiple of", factor);
        }
    }
    if let Some(bound) = checks.minimum.filter(|bound| below(*bound, checks.exclusive_minimum)) {
        fail(if checks.exclusive_minimum { "greater than" } else { "greater than or equal to" }, bound);
    }
    if let Some(bound) = checks.maximum.filter(|bound| above(*bound, checks.exclusive_maximum)) {
        fail(if checks.exclusive_maximum { "less than" } else { "less than or equal to" }, bound);
    }
}

/// A number as Go prints it: the exponent from 1e+21 on.
fn go_float(number: f64) -> String {
    if number.abs() >= 1e21 || (number != 0.0 && number.abs() < 1e-4) {
        let text = format!("{number:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    number.to_string()
}

fn list(schema: &Schema, items: &[Value], old: Option<&Value>, path: &str, findings: &mut Findings) {
    if let Some(known) = &schema.items {
        for (index, item) in items.iter().enumerate() {
            ratcheted(known, item, old_item(schema, old, item), &format!("{path}[{index}]"), findings);
        }
    }
    let count = items.len() as u64;
    if let Some(least) = schema.checks.min_items.filter(|least| count < *least) {
        let detail = format!("{path} in body should have at least {least} items");
        findings.fail(FieldErrorKind::Invalid, path, count, detail);
    }
    if let Some(most) = schema.checks.max_items.filter(|most| count > *most) {
        findings.fail(FieldErrorKind::TooMany, path, count, at_most(most));
    }
}

fn at_most(most: u64) -> String {
    format!("must have at most {most} {}", if most == 1 { "item" } else { "items" })
}

fn object(
    schema: &Schema,
    fields: &serde_json::Map<String, Value>,
    old: Option<&Value>,
    path: &str,
    findings: &mut Findings,
) {
    let count = fields.len() as u64;
    if let Some(least) = schema.checks.min_properties.filter(|least| count < *least) {
        let detail = format!("{path} in body should have at least {least} properties");
        findings.fail(FieldErrorKind::Invalid, path, count, detail);
    }
    if let Some(most) = schema.checks.max_properties.filter(|most| count > *most) {
        findings.fail(FieldErrorKind::TooMany, path, count, at_most(most));
    }
    for (name, field) in fields {
        let field_path = child(path, name);
        if let Some(known) = schema.properties.get(name) {
            // What a client can't see change is not compared: both sides were converted.
            let is_type = path.is_empty() && (name == "apiVersion" || name == "kind");
            let old = if is_type { None } else { old_field(schema, old, name) };
            ratcheted(known, field, old, &field_path, findings);
        } else if schema.checks.closed {
            let detail = format!("{path}.{name} in body is a forbidden property");
            findings.fail(FieldErrorKind::Invalid, path, name.as_str(), detail);
        } else if let Some(known) = &schema.additional {
            ratcheted(known, field, old_field(schema, old, name), &field_path, findings);
        }
    }
    for name in &schema.required {
        if !fields.contains_key(name) {
            findings.add(FieldError::required(child(path, name), ""));
        }
    }
}

/// `anyOf`, `oneOf`, `allOf`, `not`. Their own errors blame the whole object.
fn combinations(checks: &Checks, value: &Value, old: Option<&Value>, path: &str, findings: &mut Findings) {
    let try_each = |alternatives: &[std::sync::Arc<Schema>]| -> Vec<Findings> {
        let attempt = |schema: &std::sync::Arc<Schema>| {
            let mut own = Findings::default();
            node(schema, value, old, path, &mut own);
            own
        };
        alternatives.iter().map(attempt).collect()
    };
    let complain = |findings: &mut Findings, text: &str| {
        let path = Value::from(path).to_string();
        findings.add(FieldError::invalid(ROOT, "", format!("{path} must {text}")));
    };
    if !checks.any_of.is_empty() {
        let results = try_each(&checks.any_of);
        match results.iter().position(|result| result.errors.is_empty()) {
            Some(index) => findings.merge(results.into_iter().nth(index).unwrap_or_default()),
            None => {
                complain(findings, "validate at least one schema (anyOf)");
                findings.merge(furthest(results));
            }
        }
    }
    if !checks.one_of.is_empty() {
        let results = try_each(&checks.one_of);
        match results.iter().filter(|result| result.errors.is_empty()).count() {
            1 => findings
                .merge(results.into_iter().find(|result| result.errors.is_empty()).unwrap_or_default()),
            0 => {
                complain(findings, "validate one and only one schema (oneOf). Found none valid");
                findings.merge(furthest(results));
            }
            several => complain(
                findings,
                &format!("validate one and only one schema (oneOf). Found {several} valid alternatives"),
            ),
        }
    }
    if !checks.all_of.is_empty() {
        let results = try_each(&checks.all_of);
        let valid = results.iter().filter(|result| result.errors.is_empty()).count();
        let total = results.len();
        results.into_iter().for_each(|result| findings.merge(result));
        if valid != total {
            let none = if valid == 0 { ". None validated" } else { "" };
            complain(findings, &format!("validate all the schemas (allOf){none}"));
        }
    }
    if let Some(schema) = &checks.not {
        let mut own = Findings::default();
        node(schema, value, old, path, &mut own);
        if own.errors.is_empty() {
            complain(findings, "not validate the schema (not)");
        }
    }
}

/// The first of those that passed most checks.
fn furthest(results: Vec<Findings>) -> Findings {
    results
        .into_iter()
        .reduce(|best, next| if next.passed > best.passed { next } else { best })
        .unwrap_or_default()
}
