//! Equality and order of JSON values where `1` and `1.0` are the same number.

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// Whether two values are the same, numbers by their amount.
pub(crate) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(l), Value::Number(r)) => order_numbers(l, r) == Ordering::Equal,
        (Value::Array(l), Value::Array(r)) => l.len() == r.len() && l.iter().zip(r).all(|(l, r)| equal(l, r)),
        (Value::Object(l), Value::Object(r)) => {
            l.len() == r.len() && l.iter().zip(r).all(|((lk, lv), (rk, rv))| lk == rk && equal(lv, rv))
        }
        (left, right) => left == right,
    }
}

/// A total order over values: numbers, strings, booleans, lists, objects, null.
pub(crate) fn order(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(l), Value::Number(r)) => order_numbers(l, r),
        (Value::String(l), Value::String(r)) => l.cmp(r),
        (Value::Bool(l), Value::Bool(r)) => l.cmp(r),
        (Value::Array(l), Value::Array(r)) => l
            .iter()
            .zip(r)
            .map(|(l, r)| order(l, r))
            .find(|o| o.is_ne())
            .unwrap_or_else(|| l.len().cmp(&r.len())),
        (Value::Object(l), Value::Object(r)) => l
            .iter()
            .zip(r)
            .map(|((lk, lv), (rk, rv))| lk.cmp(rk).then_with(|| order(lv, rv)))
            .find(|o| o.is_ne())
            .unwrap_or_else(|| l.len().cmp(&r.len())),
        (left, right) => rank(left).cmp(&rank(right)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn order_numbers(left: &Number, right: &Number) -> Ordering {
    if let (Some(l), Some(r)) = (left.as_i64(), right.as_i64()) {
        return l.cmp(&r);
    }
    if let (Some(l), Some(r)) = (left.as_u64(), right.as_u64()) {
        return l.cmp(&r);
    }
    let (l, r) = (left.as_f64().unwrap_or(0.0), right.as_f64().unwrap_or(0.0));
    l.partial_cmp(&r).unwrap_or(Ordering::Equal)
}
