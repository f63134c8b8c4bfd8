//! The part of JSONPath that printer columns use: `.spec.size`, `.metadata.labels['a\.b']`,
//! `.items[0]`, `.items[-1]`, `.items[*]`, `.conditions[?(@.type=="Ready")].status`.

use serde_json::Value;

/// One step from a value to others.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Range(Option<i64>, Option<i64>),
    Every,
    Filter(Vec<Step>, Comparison, Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Exists,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Everything that `path` leads to. A path that can't be understood leads nowhere.
#[must_use]
pub(crate) fn find<'a>(object: &'a Value, path: &str) -> Vec<&'a Value> {
    let Some(steps) = parse(path) else { return Vec::new() };
    walk(vec![object], &steps)
}

/// A value as text: strings as they are, the rest as JSON.
#[must_use]
pub(crate) fn print(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
    }
}

fn walk<'a>(mut values: Vec<&'a Value>, steps: &[Step]) -> Vec<&'a Value> {
    for step in steps {
        values = values.into_iter().flat_map(|value| take(value, step)).collect();
    }
    values
}

fn take<'a>(value: &'a Value, step: &Step) -> Vec<&'a Value> {
    let items = || value.as_array().map(Vec::as_slice).unwrap_or_default();
    match step {
        Step::Field(name) => value.get(name).into_iter().collect(),
        Step::Index(index) => {
            position(*index, items().len()).and_then(|i| items().get(i)).into_iter().collect()
        }
        Step::Range(from, to) => {
            let length = items().len();
            let bound = |index: &Option<i64>, otherwise: usize| match index {
                Some(index) => position(*index, length).unwrap_or(length).min(length),
                None => otherwise,
            };
            let (from, to) = (bound(from, 0), bound(to, length));
            if from < to { items()[from..to].iter().collect() } else { Vec::new() }
        }
        Step::Every => match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(fields) => fields.values().collect(),
            _ => Vec::new(),
        },
        Step::Filter(path, comparison, expected) => items()
            .iter()
            .filter(|item| {
                walk(vec![item], path).first().is_some_and(|found| compare(found, *comparison, expected))
            })
            .collect(),
    }
}

fn position(index: i64, length: usize) -> Option<usize> {
    if index >= 0 {
        return usize::try_from(index).ok();
    }
    length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)
}

fn compare(found: &Value, comparison: Comparison, expected: &Value) -> bool {
    let ordering = || match (found, expected) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => found.as_f64().zip(expected.as_f64()).and_then(|(a, b)| a.partial_cmp(&b)),
    };
    match comparison {
        Comparison::Exists => true,
        Comparison::Equal => found == expected,
        Comparison::NotEqual => found != expected,
        Comparison::Less => ordering().is_some_and(std::cmp::Ordering::is_lt),
        Comparison::LessOrEqual => ordering().is_some_and(std::cmp::Ordering::is_le),
        Comparison::Greater => ordering().is_some_and(std::cmp::Ordering::is_gt),
        Comparison::GreaterOrEqual => ordering().is_some_and(std::cmp::Ordering::is_ge),
    }
}

fn parse(path: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    while let Some(first) = rest.chars().next() {
        match first {
            '.' => {
                rest = &rest[1..];
                if rest.starts_with('[') {
                    continue;
                }
                let (name, after) = field_name(rest);
                if name == "*" {
                    steps.push(Step::Every);
                } else if !name.is_empty() {
                    steps.push(Step::Field(name));
                }
                rest = after;
            }
            '[' => {
                let (inside, after) = bracket(rest)?;
                steps.push(subscript(inside)?);
                rest = after;
            }
            _ => {
                let (name, after) = field_name(rest);
                steps.push(Step::Field(name));
                rest = after;
            }
        }
    }
    Some(steps)
}

/// A name up to the next dot or bracket; a backslash takes the next character as it is.
fn field_name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '.' | '[' => return (name, &text[index..]),
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            other => name.push(other),
        }
    }
    (name, "")
}

/// What stands between the bracket at the beginning and its end, and what follows.
fn bracket(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    let mut quote = None;
    let mut escaped = false;
    for (index, character) in text.char_indices() {
        if escaped {
            escaped = false;
            continue;
        }
        match (quote, character) {
            (_, '\\') => escaped = true,
            (Some(open), _) if character == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Some((&text[1..index], &text[index + 1..]));
                }
            }
            (None, _) => {}
        }
    }
    None
}

fn subscript(inside: &str) -> Option<Step> {
    let inside = inside.trim();
    if inside == "*" {
        return Some(Step::Every);
    }
    if let Some(filter) = inside.strip_prefix("?(").and_then(|filter| filter.strip_suffix(')')) {
        return filter_step(filter);
    }
    if let Some(name) = quoted(inside) {
        return Some(Step::Field(name));
    }
    if let Some((from, to)) = inside.split_once(':') {
        let number = |text: &str| if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) };
        return Some(Step::Range(number(from)?, number(to)?));
    }
    inside.parse().ok().map(Step::Index)
}

fn filter_step(filter: &str) -> Option<Step> {
    const OPERATORS: &[(&str, Comparison)] = &[
        ("==", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::GreaterOrEqual),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ];
    let operator = OPERATORS.iter().find_map(|(text, comparison)| {
        filter.split_once(text).map(|(left, right)| (left, *comparison, right))
    });
    let (left, comparison, right) = operator.unwrap_or((filter, Comparison::Exists, ""));
    let path = parse(left.trim().strip_prefix('@')?)?;
    let right = right.trim();
    let expected = match quoted(right) {
        Some(text) => Value::from(text),
        None => serde_json::from_str(right).unwrap_or_default(),
    };
    Some(Step::Filter(path, comparison, expected))
}

fn quoted(text: &str) -> Option<String> {
    let inner = |quote: char| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    let inner = inner('\'').or_else(|| inner('"'))?;
    let mut unescaped = String::new();
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        if character == '\\' {
            unescaped.extend(characters.next());
        } else {
            unescaped.push(character);
        }
    }
    Some(unescaped)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(path: &str, expected: &[Value]) {
        let object = json!({
            "metadata": {"labels": {"a.b/c": "label"}},
            "spec": {"size": 3, "names": ["x", "y", "z"]},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "weight": 1},
                {"type": "Other", "status": "False", "weight": 5},
            ]},
        });
        let found: Vec<_> = find(&object, path).into_iter().cloned().collect();
        assert_eq!(found, expected, "{path}");
    }

    #[test]
    fn a_path_leads_to_values() {
        check(".spec.size", &[json!(3)]);
        check(".spec.missing.deeper", &[]);
        check(".spec.names[0]", &[json!("x")]);
        check(".spec.names[-1]", &[json!("z")]);
        check(".spec.names[*]", &[json!("x"), json!("y"), json!("z")]);
        check(".spec.names[0:2]", &[json!("x"), json!("y")]);
        check(".metadata.labels['a\\.b/c']", &[json!("label")]);
        check(".metadata.labels.a\\.b/c", &[json!("label")]);
        check(".status.conditions[?(@.type==\"Ready\")].status", &[json!("True")]);
        check(".status.conditions[?(@.type=='Other')].status", &[json!("False")]);
        check(".status.conditions[?(@.weight>2)].type", &[json!("Other")]);
    }

    #[test]
    fn a_path_that_is_none_leads_nowhere() {
        check(".spec.names[", &[]);
        check(".spec.names[x]", &[]);
    }
}
