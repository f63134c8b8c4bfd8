//! What a node may use: of which resources, and how amounts of them are written.
//!
//! Fewer amounts are taken than Kubernetes can read: no exponents beyond one digit, nothing finer than a millionth, no
//! more than a machine can have. Of what is taken every server makes the same number, at once.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::{Problem, Resources, validate::problem};

/// The resources that can be asked for. Others, such as huge pages and devices, are of no use to memcached.
pub(crate) const RESOURCE_NAMES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// How an amount is written, for the schema. [`parse`] says the same.
pub(crate) const AMOUNT: &str = "^(([0-9]{1,15}([.][0-9]{0,3})?|[.][0-9]{1,3})([mk]|[eE][+]?[0-9])?\
     |[0-9]{1,12}([.][0-9]{0,3})?Ki|[0-9]{1,6}([.][0-9]{0,3})?[MGT]i?)$";
/// Longer than any amount: what is longer is refused before it is looked at.
pub(crate) const MAX_AMOUNT: usize = 32;

pub(crate) const RESOURCE_UNKNOWN: &str = "only cpu, memory and ephemeral-storage can be given";
pub(crate) const NOT_AN_AMOUNT: &str =
    "an amount is a number with an optional suffix, such as 500m, 1.5, 128Mi or 2G";

pub(crate) fn request_above_limit(name: &str) -> String {
    format!("requests.{name} must be at most limits.{name}")
}

/// Everything that is wrong with what a node may use.
pub(crate) fn problems(resources: &Resources) -> Vec<Problem> {
    let mut problems = side("spec.resources.limits", resources.limits.as_ref());
    problems.extend(side("spec.resources.requests", resources.requests.as_ref()));
    for name in RESOURCE_NAMES {
        let amount = |side: &Option<BTreeMap<String, Quantity>>| parse(&side.as_ref()?.get(name)?.0);
        if let (Some(request), Some(limit)) = (amount(&resources.requests), amount(&resources.limits))
            && request > limit
        {
            problems.push(problem("spec.resources", request_above_limit(name)));
        }
    }
    problems
}

fn side(path: &'static str, amounts: Option<&BTreeMap<String, Quantity>>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, amount) in amounts.into_iter().flatten() {
        if !RESOURCE_NAMES.contains(&name.as_str()) {
            problems.push(problem(path, format!("{name}: {RESOURCE_UNKNOWN}")));
        }
        if parse(&amount.0).is_none() {
            problems.push(problem(path, format!("{name}: {:?}: {NOT_AN_AMOUNT}", amount.0)));
        }
    }
    problems
}

/// An amount in millionths. `None` where it is none, or none that is taken.
fn parse(text: &str) -> Option<u128> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    // By how much a suffix multiplies, in thousandths, and with how many digits before the point it is taken.
    let (thousandths, digits) = match suffix {
        "m" => (1, 15),
        "" => (1000, 15),
        "k" => (1_000_000, 15),
        "Ki" => (1000 << 10, 12),
        "M" => (10_u128.pow(9), 6),
        "Mi" => (1000 << 20, 6),
        "G" => (10_u128.pow(12), 6),
        "Gi" => (1000 << 30, 6),
        "T" => (10_u128.pow(15), 6),
        "Ti" => (1000 << 40, 6),
        other => {
            let exponent = other.strip_prefix(['e', 'E'])?;
            let exponent = exponent.strip_prefix('+').unwrap_or(exponent);
            let digit = exponent.parse::<u8>().ok().filter(|_| exponent.len() == 1)?;
            (1000 * 10_u128.pow(digit.into()), 15)
        }
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // A number may begin with its point, but not where it counts large things.
    let begins = !whole.is_empty() || (digits == 15 && !fraction.is_empty());
    if !begins || whole.len() > digits || fraction.len() > 3 || fraction.contains('.') {
        return None;
    }
    let thousands: u128 = format!("{whole}{fraction:0<3}").parse().ok()?;
    Some(thousands * thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_kubernetes_reads_them() {
        for (text, millionths) in [
            ("0", Some(0)),
            ("1", Some(1_000_000)),
            ("1.", Some(1_000_000)),
            (".5", Some(500_000)),
            ("1500m", Some(1_500_000)),
            ("0.001m", Some(1)),
            ("1Ki", Some(1_024_000_000)),
            ("129e6", Some(129_000_000_000_000)),
            ("129E+6", Some(129_000_000_000_000)),
            ("129M", Some(129_000_000_000_000)),
            ("", None),
            (".", None),
            ("1.2.3", None),
            ("-1", None),
            ("+1", None),
            ("1e999999999", None),
            ("1e-3", None),
            ("1e", None),
            ("1n", None),
            ("1E", None),
            ("lots", None),
            ("1000000Ti", None),
        ] {
            assert_eq!(parse(text), millionths, "{text:?}");
        }
    }
}
