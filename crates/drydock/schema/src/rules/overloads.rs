//! What functions and operators there are, and what they take and give.
//!
//! A function without a signature here is taken with any arguments, and its result as anything.

use std::collections::BTreeMap;

use super::types::Known;

/// Names that stand for types and for families of functions.
pub(super) const DECLARED: &[&str] = &[
    "bool",
    "bytes",
    "double",
    "duration",
    "dyn",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "timestamp",
    "type",
    "uint",
    "optional",
    "optional_type",
    "sets",
    "ip",
    "cidr",
    "format",
    "jsonpatch",
    "google",
    "strings",
    "lists",
    "semver",
    "quantity",
    "url",
    "authorizer",
];

/// Every function that a rule may call, by its last name.
pub(super) const FUNCTIONS: &[&str] = &[
    "add",
    "asApproximateFloat",
    "asInteger",
    "bool",
    "byte",
    "bytes",
    "charAt",
    "cidr",
    "compareTo",
    "contains",
    "containsCIDR",
    "containsIP",
    "date",
    "datetime",
    "distinct",
    "dns1035Label",
    "dns1035LabelPrefix",
    "dns1123Label",
    "dns1123LabelPrefix",
    "dns1123Subdomain",
    "dns1123SubdomainPrefix",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "equivalent",
    "escapeKey",
    "family",
    "find",
    "findAll",
    "first",
    "flatten",
    "format",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getEscapedPath",
    "getFullYear",
    "getHost",
    "getHostname",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getPort",
    "getQuery",
    "getScheme",
    "getSeconds",
    "hasValue",
    "indexOf",
    "int",
    "intersects",
    "ip",
    "isCIDR",
    "isCanonical",
    "isGlobalUnicast",
    "isGreaterThan",
    "isIP",
    "isInteger",
    "isLessThan",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isLoopback",
    "isQuantity",
    "isSemver",
    "isSorted",
    "isURL",
    "isUnspecified",
    "join",
    "labelValue",
    "last",
    "lastIndexOf",
    "lowerAscii",
    "major",
    "masked",
    "matches",
    "max",
    "min",
    "minor",
    "named",
    "none",
    "of",
    "ofNonZeroValue",
    "optFlatMap",
    "optMap",
    "or",
    "orValue",
    "patch",
    "prefixLength",
    "qualifiedName",
    "quantity",
    "quote",
    "range",
    "replace",
    "reverse",
    "semver",
    "sign",
    "size",
    "slice",
    "sort",
    "sortBy",
    "split",
    "startsWith",
    "string",
    "sub",
    "substring",
    "sum",
    "timestamp",
    "trim",
    "type",
    "uint",
    "unwrap",
    "unwrapOpt",
    "upperAscii",
    "uri",
    "url",
    "uuid",
    "validate",
    "value",
];

/// Signatures: what a function is called on, what it is given, what it gives. `A` and `B` are any type,
/// the same wherever they stand in one signature; `N` is any number, `O` anything that has an order.
const SIGNATURES: &[(&str, &[&str])] = &[
    (
        "_+_",
        &[
            "int, int: int",
            "uint, uint: uint",
            "double, double: double",
            "string, string: string",
            "bytes, bytes: bytes",
            "list(A), list(A): list(A)",
            "timestamp, duration: timestamp",
            "duration, timestamp: timestamp",
            "duration, duration: duration",
        ],
    ),
    (
        "_-_",
        &[
            "int, int: int",
            "uint, uint: uint",
            "double, double: double",
            "timestamp, timestamp: duration",
            "timestamp, duration: timestamp",
            "duration, duration: duration",
        ],
    ),
    ("_*_", &["int, int: int", "uint, uint: uint", "double, double: double"]),
    ("_/_", &["int, int: int", "uint, uint: uint", "double, double: double"]),
    ("_%_", &["int, int: int", "uint, uint: uint"]),
    ("-_", &["int: int", "double: double"]),
    ("!_", &["bool: bool"]),
    ("_==_", &["A, A: bool"]),
    ("_!=_", &["A, A: bool"]),
    ("_<_", &["N, N: bool", "O, O: bool"]),
    ("_<=_", &["N, N: bool", "O, O: bool"]),
    ("_>_", &["N, N: bool", "O, O: bool"]),
    ("_>=_", &["N, N: bool", "O, O: bool"]),
    ("_?_:_", &["bool, A, A: A"]),
    ("_[_]", &["list(A), int: A", "map(A, B), A: B"]),
    ("@in", &["A, list(A): bool", "A, map(A, B): bool"]),
    (
        "size",
        &[
            "string: int",
            "bytes: int",
            "list(A): int",
            "map(A, B): int",
            "string.: int",
            "bytes.: int",
            "list(A).: int",
            "map(A, B).: int",
        ],
    ),
    ("matches", &["string, string: bool", "string. string: bool"]),
    ("startsWith", &["string. string: bool"]),
    ("endsWith", &["string. string: bool"]),
    ("contains", &["string. string: bool"]),
    (
        "string",
        &[
            "bool: string",
            "int: string",
            "uint: string",
            "double: string",
            "string: string",
            "bytes: string",
            "timestamp: string",
            "duration: string",
        ],
    ),
    ("int", &["int: int", "uint: int", "double: int", "string: int", "timestamp: int", "duration: int"]),
    ("double", &["int: double", "uint: double", "double: double", "string: double"]),
    ("bool", &["bool: bool", "string: bool"]),
    ("timestamp", &["string: timestamp", "timestamp: timestamp", "int: timestamp"]),
    ("duration", &["string: duration", "duration: duration", "int: duration"]),
    ("sum", &["list(int).: int", "list(uint).: uint", "list(double).: double", "list(duration).: duration"]),
    ("min", &["list(O).: O"]),
    ("max", &["list(O).: O"]),
    ("isSorted", &["list(O).: bool"]),
    ("indexOf", &["string. string: int", "string. string, int: int", "list(A). A: int"]),
    ("lastIndexOf", &["string. string: int", "string. string, int: int", "list(A). A: int"]),
    ("lowerAscii", &["string.: string"]),
    ("upperAscii", &["string.: string"]),
    ("trim", &["string.: string"]),
    ("charAt", &["string. int: string"]),
    ("replace", &["string. string, string: string", "string. string, string, int: string"]),
    ("split", &["string. string: list(string)", "string. string, int: list(string)"]),
    ("substring", &["string. int: string", "string. int, int: string"]),
    ("join", &["list(string).: string", "list(string). string: string"]),
    ("find", &["string. string: string"]),
    ("findAll", &["string. string: list(string)", "string. string, int: list(string)"]),
];

/// No signature of a function takes these arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoOverload;

/// What a call gives.
pub(super) fn resolve<'a>(
    function: &str,
    target: Option<&Known<'a>>,
    arguments: &[Known<'a>],
) -> Result<Known<'a>, NoOverload> {
    let Some((_, signatures)) = SIGNATURES.iter().find(|(name, _)| *name == function) else {
        return Ok(Known::Other);
    };
    let results: Vec<Known<'a>> =
        signatures.iter().filter_map(|signature| apply(signature, target, arguments)).collect();
    match results.as_slice() {
        [] => Err(NoOverload),
        [first, rest @ ..] if rest.iter().all(|other| other.to_string() == first.to_string()) => {
            Ok(first.clone())
        }
        _ => Ok(Known::Other),
    }
}

type Bindings<'a> = BTreeMap<char, Known<'a>>;

fn apply<'a>(signature: &str, target: Option<&Known<'a>>, arguments: &[Known<'a>]) -> Option<Known<'a>> {
    let (takes, gives) = signature.rsplit_once(": ")?;
    let (on, takes) = match takes.split_once('.') {
        Some((on, rest)) => (Some(on), rest.trim_start()),
        None => (None, takes),
    };
    let mut bindings = Bindings::new();
    match (on, target) {
        (Some(on), Some(target)) if unify(on, target, &mut bindings) => {}
        (None, None) => {}
        _ => return None,
    }
    let takes = parts(takes);
    let fits = takes.len() == arguments.len()
        && takes.iter().zip(arguments).all(|(pattern, argument)| unify(pattern, argument, &mut bindings));
    fits.then(|| substitute(gives, &bindings))
}

/// `a, map(b, c)` in its two parts.
fn parts(list: &str) -> Vec<&str> {
    let (mut found, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, c) in list.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !list.trim().is_empty() {
        found.push(list[start..].trim());
    }
    found
}

fn inner<'p>(pattern: &'p str, name: &str) -> Option<&'p str> {
    pattern.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')
}

/// Whether a type fits a pattern; what stands for any type is bound on the way.
fn unify<'a>(pattern: &str, known: &Known<'a>, bindings: &mut Bindings<'a>) -> bool {
    if matches!(known, Known::Other) {
        return true;
    }
    match pattern {
        "N" => matches!(known, Known::Int | Known::Uint | Known::Double),
        "O" if !known.has_order() => false,
        "A" | "B" | "O" => {
            let name = pattern.chars().next().unwrap_or_default();
            let bound = bindings.entry(name).or_insert_with(|| known.clone());
            let both = bound.meet(known);
            let fits = both.is_some();
            if let Some(both) = both {
                *bound = both;
            }
            fits
        }
        _ => match known {
            Known::List(items) => inner(pattern, "list").is_some_and(|own| unify(own, items, bindings)),
            Known::Map(keys, values) => inner(pattern, "map").is_some_and(|own| match *parts(own) {
                [key, value] => unify(key, keys, bindings) && unify(value, values, bindings),
                _ => false,
            }),
            Known::Null => matches!(pattern, "timestamp" | "duration"),
            other => other.to_string() == pattern,
        },
    }
}

fn substitute<'a>(pattern: &str, bindings: &Bindings<'a>) -> Known<'a> {
    if let Some(items) = inner(pattern, "list") {
        return Known::List(Box::new(substitute(items, bindings)));
    }
    match pattern {
        "bool" => Known::Bool,
        "int" => Known::Int,
        "uint" => Known::Uint,
        "double" => Known::Double,
        "string" => Known::String,
        "bytes" => Known::Bytes,
        "timestamp" => Known::Timestamp,
        "duration" => Known::Duration,
        name => name.chars().next().and_then(|name| bindings.get(&name)).cloned().unwrap_or(Known::Other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_gives_what_its_signature_says() {
        let list = |items| Known::List(Box::new(items));
        for (function, target, arguments, expected) in [
            ("_+_", None, vec![Known::Int, Known::Int], Some("int")),
            ("_+_", None, vec![Known::Int, Known::String], None),
            ("_+_", None, vec![list(Known::Other), list(Known::Bool)], Some("list(bool)")),
            ("_+_", None, vec![Known::Other, Known::Other], Some("dyn")),
            ("_<_", None, vec![Known::Int, Known::Double], Some("bool")),
            ("_<_", None, vec![Known::Int, Known::String], None),
            ("_==_", None, vec![Known::Timestamp, Known::Null], Some("bool")),
            ("_==_", None, vec![Known::String, Known::Null], None),
            ("_?_:_", None, vec![Known::Other, Known::Int, Known::Int], Some("int")),
            ("sum", Some(list(Known::String)), vec![], None),
            ("min", Some(list(Known::String)), vec![], Some("string")),
            ("size", Some(Known::String), vec![], Some("int")),
            ("size", None, vec![Known::Int], None),
            ("quantity", None, vec![Known::Int], Some("dyn")),
        ] {
            let found = resolve(function, target.as_ref(), &arguments).ok().map(|known| known.to_string());
            assert_eq!(found.as_deref(), expected, "{function} {arguments:?}");
        }
    }
}
