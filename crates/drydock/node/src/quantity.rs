//! Amounts as Kubernetes writes them: `500m`, `64Mi`, `1.5`, `2e3`.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Billionths of a unit: the finest that Kubernetes knows.
const NANO: i128 = 1_000_000_000;

/// An amount in billionths of its unit; none when it is no quantity.
pub(crate) fn nanos(text: &str) -> Option<i128> {
    let split =
        text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let scale: i128 = match suffix {
        "" => NANO,
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000_000,
        "k" => NANO * 1_000,
        "M" => NANO * 1_000_000,
        "G" => NANO * 1_000_000_000,
        "T" => NANO * 1_000_000_000_000,
        "P" => NANO * 1_000_000_000_000_000,
        "E" => NANO * 1_000_000_000_000_000_000,
        "Ki" => NANO << 10,
        "Mi" => NANO << 20,
        "Gi" => NANO << 30,
        "Ti" => NANO << 40,
        "Pi" => NANO << 50,
        "Ei" => NANO << 60,
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let factor = 10i128.checked_pow(power.unsigned_abs())?;
            if power < 0 { NANO / factor } else { NANO.checked_mul(factor)? }
        }
    };
    let (negative, number) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = if whole.is_empty() { 0 } else { whole.parse::<i128>().ok()?.checked_mul(scale)? };
    let mut place = scale;
    for digit in fraction.chars() {
        place /= 10;
        value += place * i128::from(digit.to_digit(10)?);
    }
    Some(if negative { -value } else { value })
}

/// Whole units, rounded up.
pub(crate) fn units(quantity: &Quantity) -> Option<u64> {
    u64::try_from(ceiling(nanos(&quantity.0)?, NANO)).ok()
}

/// Thousandths, rounded up.
pub(crate) fn millis(quantity: &Quantity) -> Option<u64> {
    u64::try_from(ceiling(nanos(&quantity.0)?, 1_000_000)).ok()
}

/// How often a divisor goes into an amount, rounded up: what `resourceFieldRef` gives.
pub(crate) fn divided(amount: i128, divisor: &str) -> Option<i128> {
    let divisor = match nanos(divisor)? {
        0 => NANO,
        divisor => divisor,
    };
    Some(ceiling(amount, divisor))
}

fn ceiling(value: i128, by: i128) -> i128 {
    value.div_euclid(by) + i128::from(value.rem_euclid(by) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<i128>) {
        assert_eq!(nanos(text), expected, "{text}");
    }

    #[test]
    fn amounts_are_read_in_every_form() {
        check("1", Some(NANO));
        check("500m", Some(NANO / 2));
        check("1.5", Some(NANO * 3 / 2));
        check(".5", Some(NANO / 2));
        check("64Mi", Some(NANO * 64 * 1024 * 1024));
        check("2e3", Some(NANO * 2000));
        check("1E", Some(NANO * 1_000_000_000_000_000_000));
        check("-1k", Some(-NANO * 1000));
        for bad in ["", "m", "1x", "1.5.5", "abc"] {
            check(bad, None);
        }
    }

    #[test]
    fn a_divisor_rounds_up() {
        assert_eq!(divided(nanos("250m").unwrap(), "1"), Some(1));
        assert_eq!(divided(nanos("250m").unwrap(), "1m"), Some(250));
        assert_eq!(divided(nanos("64Mi").unwrap(), "1Mi"), Some(64));
        assert_eq!(divided(nanos("64Mi").unwrap(), "0"), Some(64 * 1024 * 1024));
    }
}
