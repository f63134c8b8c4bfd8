//! What a container may use: of which resources, and how amounts of them are written.
//!
//! Fewer amounts are taken than Kubernetes can read: no exponents beyond one digit, nothing finer than a millionth, no
//! more than a machine can have. Of what is taken every server makes the same number, at once. Each rule stands here
//! twice: as a schema, and as code for `validate`; tests of the operators hold both to the same answer.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::ResourceRequirements, apimachinery::pkg::api::resource::Quantity};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The resources that can be asked for. Others, such as huge pages and devices, are of no use to the services here.
const NAMES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// How an amount is written, for a schema. [`parse`] says the same.
pub const AMOUNT: &str = "^(([0-9]{1,15}([.][0-9]{0,3})?|[.][0-9]{1,3})([mk]|[eE][+]?[0-9])?\
     |[0-9]{1,12}([.][0-9]{0,3})?Ki|[0-9]{1,6}([.][0-9]{0,3})?[MGT]i?)$";
/// Longer than any amount: what is longer is refused before it is looked at.
pub const MAX_AMOUNT: usize = 32;

/// What is said of what is no amount.
pub const NOT_AN_AMOUNT: &str =
    "an amount is a number with an optional suffix, such as 500m, 1.5, 128Mi or 2G";
const UNKNOWN: &str = "only cpu, memory and ephemeral-storage can be given";

fn request_above_limit(name: &str) -> String {
    format!("requests.{name} must be at most limits.{name}")
}

/// What a container asks for and may use.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Resources {
    /// What it may use at most, by resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<BTreeMap<String, Quantity>>,
    /// What it is sure to get, by resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<BTreeMap<String, Quantity>>,
}

impl From<Resources> for ResourceRequirements {
    fn from(resources: Resources) -> Self {
        ResourceRequirements { limits: resources.limits, requests: resources.requests, claims: None }
    }
}

impl Resources {
    /// These requests and limits, each as name and amount.
    pub fn of(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> Self {
        let amounts = |pairs: &[(&str, &str)]| {
            let pair = |(name, amount): &(&str, &str)| ((*name).to_owned(), Quantity((*amount).to_owned()));
            Some(pairs.iter().map(pair).collect())
        };
        Resources { requests: amounts(requests), limits: amounts(limits) }
    }

    /// Everything that is wrong with them: where, below the field itself, and what.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = side("limits", self.limits.as_ref());
        problems.extend(side("requests", self.requests.as_ref()));
        for name in NAMES {
            let amount = |side: &Option<BTreeMap<String, Quantity>>| parse(&side.as_ref()?.get(name)?.0);
            if let (Some(request), Some(limit)) = (amount(&self.requests), amount(&self.limits))
                && request > limit
            {
                problems.push(("", request_above_limit(name)));
            }
        }
        problems
    }

    /// The schema of such a field.
    pub fn schema() -> Value {
        // Three names at most are right; a few more are let through to the rule that says which.
        let amounts = |description: &str| {
            json!({
                "type": "object",
                "description": description,
                "maxProperties": 16,
                "additionalProperties": {"x-kubernetes-int-or-string": true, "maxLength": MAX_AMOUNT},
                "x-kubernetes-validations": [
                    {
                        "rule": format!("self.all(name, name in {NAMES:?})").replace('"', "'"),
                        "message": UNKNOWN,
                    },
                    {
                        "rule": format!("self.all(name, string(self[name]).matches('{AMOUNT}'))"),
                        "message": NOT_AN_AMOUNT,
                    },
                ],
            })
        };
        let rules: Vec<Value> = NAMES.iter().map(|name| at_most_the_limit(name)).collect();
        json!({
            "type": "object",
            "properties": {
                "limits": amounts("What it may use at most, by resource: `memory: 128Mi`. Of cpu, memory and ephemeral-storage."),
                "requests": amounts("What it is sure to get, by resource: `cpu: 100m`. Of cpu, memory and ephemeral-storage."),
            },
            "x-kubernetes-validations": rules,
        })
    }
}

/// All rules of an object are evaluated, whatever the others said. What is no amount must not reach `quantity`: an
/// exponent of a few digits keeps the API server busy for hours.
fn at_most_the_limit(name: &str) -> Value {
    let [request, limit] = ["requests", "limits"].map(|side| format!("string(self.{side}['{name}'])"));
    json!({
        "rule": format!(
            "!has(self.requests) || !has(self.limits) || !('{name}' in self.requests) || !('{name}' in self.limits) \
             || !{request}.matches('{AMOUNT}') || !{limit}.matches('{AMOUNT}') \
             || quantity({request}).compareTo(quantity({limit})) <= 0"
        ),
        "message": request_above_limit(name),
    })
}

fn side(path: &'static str, amounts: Option<&BTreeMap<String, Quantity>>) -> Vec<(&'static str, String)> {
    let mut problems = Vec::new();
    for (name, amount) in amounts.into_iter().flatten() {
        if !NAMES.contains(&name.as_str()) {
            problems.push((path, format!("{name}: {UNKNOWN}")));
        }
        if parse(&amount.0).is_none() {
            problems.push((path, format!("{name}: {:?}: {NOT_AN_AMOUNT}", amount.0)));
        }
    }
    problems
}

/// An amount in millionths. `None` where it is none, or none that is taken.
pub fn parse(text: &str) -> Option<u128> {
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
