//! Amounts as objects write them: `500m`, `64Mi`, `1e3`.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Suffixes, each with what one of it is in thousandths.
const SUFFIXES: [(&str, f64); 14] = [
    ("Ki", 1024e3),
    ("Mi", 1_048_576e3),
    ("Gi", 1_073_741_824e3),
    ("Ti", 1_099_511_627_776e3),
    ("Pi", 1_125_899_906_842_624e3),
    ("Ei", 1_152_921_504_606_847e6),
    ("n", 1e-6),
    ("u", 1e-3),
    ("m", 1.0),
    ("k", 1e6),
    ("M", 1e9),
    ("G", 1e12),
    ("T", 1e15),
    ("P", 1e18),
];

/// The amount in thousandths, rounded up. What is no amount is none: the server lets no such thing in.
pub fn thousandths(text: &str) -> i64 {
    let (number, unit) = SUFFIXES
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|number| (number, *unit)))
        .unwrap_or((text, 1e3));
    // Amounts of a machine are far below 2^53, up to where this is exact.
    #[expect(clippy::cast_possible_truncation, reason = "a cast of a float stops at the bounds")]
    let whole = (number.parse::<f64>().unwrap_or(0.0) * unit).ceil() as i64;
    whole
}

/// The amount in whole units, rounded up.
pub fn units(text: &str) -> i64 {
    let thousandths = thousandths(text);
    thousandths / 1000 + i64::from(thousandths % 1000 > 0)
}

/// An amount that may also be written as a number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quantity(pub Box<str>);

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Ok(Self(match Value::deserialize(input)? {
            Value::String(text) => text.into(),
            other => other.to_string().into(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, milli: i64, whole: i64) {
        assert_eq!((thousandths(text), units(text)), (milli, whole), "{text}");
    }

    #[test]
    fn amounts_are_read_in_all_their_forms() {
        check("500m", 500, 1);
        check("2", 2000, 2);
        check("0.1", 100, 1);
        check("1e3", 1_000_000, 1000);
        check("64Mi", 67_108_864_000, 67_108_864);
        check("1.5Gi", 1_610_612_736_000, 1_610_612_736);
        check("12k", 12_000_000, 12_000);
        check("100u", 1, 1);
        check("", 0, 0);
    }
}
