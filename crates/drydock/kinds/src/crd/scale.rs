//! Numbers that the scale subresource reads must be numbers, whatever the schema says.

use drydock_schema::FieldError;
use serde_json::Value;

use crate::ScalePaths;

/// What is wrong with the fields that `scale` points at. An update of the status looks only at the
/// status.
pub(crate) fn validate(scale: &ScalePaths, object: &Value, status_only: bool, errors: &mut Vec<FieldError>) {
    let mut paths = vec![&scale.status];
    if !status_only {
        paths.insert(0, &scale.spec);
    }
    for path in paths {
        let problem = match at(object, path) {
            Err(problem) => Some((0, problem)),
            Ok(None | Some(Value::Null)) => None,
            Ok(Some(value)) => match value.as_i64() {
                Some(number) if number < 0 => Some((number, "should be a non-negative integer".to_owned())),
                Some(number) if number > i64::from(i32::MAX) => {
                    Some((number, format!("should be less than or equal to {}", i32::MAX)))
                }
                Some(_) => None,
                None => Some((0, wrong_type(path, value, "int64"))),
            },
        };
        errors.extend(problem.map(|(number, detail)| FieldError::invalid(path.as_str(), number, detail)));
    }
    if let Some(path) = &scale.selector {
        let problem = match at(object, path) {
            Err(problem) => Some(problem),
            Ok(Some(value)) if !value.is_string() && !value.is_null() => {
                Some(wrong_type(path, value, "string"))
            }
            Ok(_) => None,
        };
        errors.extend(problem.map(|detail| FieldError::invalid(path.as_str(), "", detail)));
    }
}

/// The value at a path of plain fields; something on the way that has no fields is an error.
fn at<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let fields: Vec<_> = path.trim_start_matches('.').split('.').collect();
    let mut value = object;
    for (index, field) in fields.iter().enumerate() {
        match value {
            Value::Object(map) => match map.get(*field) {
                Some(next) => value = next,
                None => return Ok(None),
            },
            Value::Null => return Ok(None),
            other => {
                let path = format!(".{}", fields[..=index].join("."));
                return Err(wrong_type(&path, other, "map[string]interface{}"));
            }
        }
    }
    Ok(Some(value))
}

fn wrong_type(path: &str, value: &Value, expected: &str) -> String {
    let kind = match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    format!("{path} accessor error: {} is of the type {kind}, expected {expected}", printed(value))
}

/// A value as Go prints it.
fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(printed).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields: Vec<_> =
                fields.iter().map(|(name, value)| format!("{name}:{}", printed(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(object: Value, expected: &[&str]) {
        let scale =
            ScalePaths { spec: ".spec.crew".to_owned(), status: ".status.crew".to_owned(), selector: None };
        let mut errors = Vec::new();
        validate(&scale, &object, false, &mut errors);
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected);
    }

    #[test]
    fn a_number_of_replicas_is_one() {
        check(json!({"spec": {"crew": 3}}), &[]);
        check(json!({"spec": {"crew": null}}), &[]);
        check(
            json!({"spec": {"crew": 1_000_000_000_000_i64}}),
            &[".spec.crew: Invalid value: 1000000000000: should be less than or equal to 2147483647"],
        );
        check(
            json!({"spec": {"crew": "three"}}),
            &[
                ".spec.crew: Invalid value: 0: .spec.crew accessor error: three is of the type string, expected int64",
            ],
        );
        check(
            json!({"spec": [1]}),
            &[
                ".spec.crew: Invalid value: 0: .spec.crew accessor error: [1] is of the type []interface {}, expected \
               map[string]interface{}",
            ],
        );
    }
}
