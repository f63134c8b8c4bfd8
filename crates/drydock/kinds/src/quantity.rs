//! Amounts: `500m`, `64Mi`, `1e3`.
//!
//! Kubernetes stores an amount in one canonical form: no fraction, and the largest suffix that needs
//! none. `0.1` becomes `100m`, `1024Mi` becomes `1Gi`.

use std::fmt;

/// How an amount is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// `1500m`, `12k`.
    Decimal,
    /// `64Mi`.
    Binary,
    /// `1e3`.
    Exponent,
}

/// An amount, in whole billionths.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// A text that is no amount; the message is Kubernetes' own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// It does not look like a number with a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The suffix is none.
    #[error("unable to parse quantity's suffix")]
    Suffix,
    /// It is larger than any amount can be.
    #[error("unable to parse numeric part of quantity")]
    TooLarge,
}

const NANO: i128 = 1_000_000_000;
/// The most there can be of what is counted in 1024s, as with Kubernetes: more is taken for that.
const MOST: i128 = i64::MAX as i128 * NANO;

/// Suffixes of thousands, each with the power of ten of billionths.
const DECIMAL: &[(&str, u32)] = &[
    ("n", 0),
    ("u", 3),
    ("m", 6),
    ("", 9),
    ("k", 12),
    ("M", 15),
    ("G", 18),
    ("T", 21),
    ("P", 24),
    ("E", 27),
];
/// Suffixes of 1024s, each with the power of 1024.
const BINARY: &[(&str, u32)] = &[("Ki", 1), ("Mi", 2), ("Gi", 3), ("Ti", 4), ("Pi", 5), ("Ei", 6)];

impl Quantity {
    /// Reads an amount.
    ///
    /// # Errors
    /// The text is no amount.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let number = text.strip_prefix(['+', '-']).unwrap_or(text);
        let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
        let (digits, suffix) = number.split_at(end);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(QuantityError::Format);
        }
        let (scale, format) = scale(suffix)?;
        let mut nanos = magnitude(whole, fraction, scale)?;
        if text.starts_with('-') {
            nanos = -nanos;
        }
        if format == Format::Binary {
            nanos = nanos.min(MOST);
        }
        Ok(Self { nanos, format })
    }

    /// Rounded up to thousandths, the finest that resources are counted in.
    #[must_use]
    pub fn rounded_to_milli(self) -> Self {
        let milli = NANO / 1000;
        let nanos = self.nanos.div_euclid(milli) * milli;
        let nanos = if nanos == self.nanos { nanos } else { nanos + milli };
        Self { nanos, ..self }
    }

    /// Below zero.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// A whole number of units.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.nanos % NANO == 0
    }

    /// In whole units, rounded up.
    #[must_use]
    pub fn units(&self) -> i128 {
        -(-self.nanos).div_euclid(NANO)
    }

    /// In thousandths, rounded up.
    #[must_use]
    pub fn millis(&self) -> i128 {
        -(-self.nanos).div_euclid(NANO / 1000)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

/// What one unit with this suffix is, in billionths.
enum Scale {
    Ten(i32),
    Binary(u32),
}

fn scale(suffix: &str) -> Result<(Scale, Format), QuantityError> {
    if let Some((_, power)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
        return Ok((Scale::Ten(i32::try_from(*power).unwrap_or_default()), Format::Decimal));
    }
    if let Some((_, power)) = BINARY.iter().find(|(known, _)| *known == suffix) {
        return Ok((Scale::Binary(*power), Format::Binary));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
    let exponent: i32 = exponent.parse().map_err(|_| QuantityError::Suffix)?;
    Ok((Scale::Ten(exponent.saturating_add(9)), Format::Exponent))
}

/// The digits in billionths, rounded up where they are finer.
fn magnitude(whole: &str, fraction: &str, scale: Scale) -> Result<i128, QuantityError> {
    let too_large = || QuantityError::TooLarge;
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let mut value: i128 = if digits.is_empty() { 0 } else { digits.parse().map_err(|_| too_large())? };
    let mut power = -i32::try_from(fraction.len()).map_err(|_| too_large())?;
    match scale {
        Scale::Ten(exponent) => power = power.saturating_add(exponent),
        Scale::Binary(exponent) => {
            value = value.checked_mul(1024_i128.pow(exponent)).ok_or_else(too_large)?;
            power = power.saturating_add(9);
        }
    }
    if value == 0 {
        return Ok(0);
    }
    let factor = |power: u32| 10_i128.checked_pow(power).ok_or_else(too_large);
    if power >= 0 {
        return value.checked_mul(factor(power.unsigned_abs())?).ok_or_else(too_large);
    }
    match factor(power.unsigned_abs()) {
        Ok(divisor) => Ok(value / divisor + i128::from(value % divisor != 0)),
        Err(_) => Ok(1),
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let small = self.nanos.unsigned_abs() < 1024 * NANO.unsigned_abs();
        match self.format {
            Format::Binary if !small && self.is_whole() => {
                let mut value = self.nanos / NANO;
                let mut suffix = "";
                for (next, _) in BINARY {
                    if value % 1024 != 0 {
                        break;
                    }
                    value /= 1024;
                    suffix = next;
                }
                write!(f, "{value}{suffix}")
            }
            Format::Decimal | Format::Binary => {
                let (value, power) = self.thousands(27);
                let suffix =
                    DECIMAL.iter().find(|(_, known)| *known == power).map_or("", |(suffix, _)| suffix);
                write!(f, "{value}{suffix}")
            }
            Format::Exponent => {
                let (value, power) = self.thousands(u32::MAX);
                match i64::from(power) - 9 {
                    0 => write!(f, "{value}"),
                    exponent => write!(f, "{value}e{exponent}"),
                }
            }
        }
    }
}

impl Quantity {
    /// The largest power of a thousand that leaves a whole number, and that number.
    fn thousands(&self, most: u32) -> (i128, u32) {
        let (mut value, mut power) = (self.nanos, 0);
        while value % 1000 == 0 && power < most {
            value /= 1000;
            power += 3;
        }
        (value, power)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let canonical = match Quantity::parse(text) {
            Ok(quantity) => quantity.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(canonical, expected, "{text}");
    }

    #[test]
    fn an_amount_has_one_form() {
        for (text, expected) in [
            ("0", "0"),
            ("0.1", "100m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("64Mi", "64Mi"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("100e3", "100e3"),
            ("12E6", "12e6"),
            ("-5", "-5"),
            ("100000000", "100M"),
            ("1E", "1E"),
            ("0.0000000001", "1n"),
            ("+2", "2"),
            ("123456789012345678", "123456789012345678"),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn what_is_no_amount_is_said() {
        check(
            "",
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        );
        check("5Mb", "unable to parse quantity's suffix");
        check(
            "1.2.3",
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        );
    }
}
