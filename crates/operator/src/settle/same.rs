//! When two values are the same to the server.
//!
//! The server writes quantities its own way and fills in defaults. Equality here forgives exactly that: it
//! normalises quantities where quantities stand, and a few defaults inside values that are owned whole.

use serde_json::Value;

/// Fields that the server fills in inside values that are owned whole: (where, field, default).
const DEFAULTS_IN_ATOMS: &[(&str, &str, &str)] =
    &[("fieldRef", "apiVersion", "v1"), ("resourceFieldRef", "divisor", "0")];

/// Fields whose values, or whose entries' values, are quantities.
const QUANTITIES: &[&str] = &["limits", "requests", "capacity", "sizeLimit", "divisor", "hard", "overhead"];

/// Whether the live value is what the wanted one becomes on the server. `place` is the name of the field, with
/// that of the one around it: `limits.cpu`.
pub(super) fn values(place: &str, live: &Value, want: &Value) -> bool {
    match (live, want) {
        (Value::Object(live), Value::Object(want)) => {
            let field = place.rsplit('.').next().unwrap_or_default();
            want.iter().all(|(name, wanted)| {
                live.get(name).is_some_and(|live| values(&format!("{field}.{name}"), live, wanted))
            }) && live.iter().all(|(name, value)| want.contains_key(name) || is_default(field, name, value))
        }
        (Value::Array(live), Value::Array(want)) => {
            live.len() == want.len() && live.iter().zip(want).all(|(live, want)| values(place, live, want))
        }
        (Value::Number(live), Value::Number(want)) => live == want || live.as_f64() == want.as_f64(),
        (live, want) if live == want => true,
        (live, want) => {
            place.split('.').any(|part| QUANTITIES.contains(&part))
                && quantity(live).is_some_and(|live| Some(live) == quantity(want))
        }
    }
}

fn is_default(field: &str, name: &str, value: &Value) -> bool {
    value.as_str().is_some_and(|value| DEFAULTS_IN_ATOMS.contains(&(field, name, value)))
}

/// A quantity as a count of 10⁻⁹, exact. `None` when it is none, or finer or larger than that can say.
fn quantity(value: &Value) -> Option<i128> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let end = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    // `1e3` is a number with an exponent, `1E` an exa.
    let (factor, exponent): (i128, i32) = match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        other => (1, other.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let (sign, digits) = match number.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let shift = 9 + exponent - i32::try_from(fraction.len()).ok()?;
    let scaled = mantissa.checked_mul(factor)?;
    let value = if shift >= 0 {
        scaled.checked_mul(10i128.checked_pow(shift.unsigned_abs())?)?
    } else {
        let divisor = 10i128.checked_pow(shift.unsigned_abs())?;
        // Finer than a billionth: the server rounds up.
        (scaled + divisor - 1) / divisor
    };
    Some(sign * value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_the_same_however_they_are_written() {
        for (a, b) in
            [("500m", "0.5"), ("1Gi", "1024Mi"), ("1", "1000m"), ("1e3", "1k"), ("0", "0m"), ("2E", "2000P")]
        {
            assert!(values("limits.cpu", &json!(a), &json!(b)), "{a} and {b}");
        }
        for (a, b) in [("500m", "0.6"), ("1G", "1Gi"), ("64Mi", "64M"), ("x", "y"), ("", "0")] {
            assert!(!values("limits.cpu", &json!(a), &json!(b)), "{a} and {b}");
        }
        assert!(values("limits.cpu", &json!("1"), &json!(1)), "a number is a quantity too");
    }

    #[test]
    fn only_quantities_are_read_as_quantities() {
        assert!(!values("labels.version", &json!("1000m"), &json!("1")));
    }

    #[test]
    fn an_atom_may_have_the_servers_defaults_and_nothing_else() {
        assert!(values(
            "fieldRef",
            &json!({"fieldPath": "a", "apiVersion": "v1"}),
            &json!({"fieldPath": "a"})
        ));
        assert!(!values(
            "fieldRef",
            &json!({"fieldPath": "a", "apiVersion": "v2"}),
            &json!({"fieldPath": "a"})
        ));
        assert!(!values("matchLabels", &json!({"a": "1", "b": "2"}), &json!({"a": "1"})));
    }
}
