//! What of an answer is looked at.
//!
//! A pointer is a JSON pointer in which `*` stands for every item of a list, and `[type=Ready]` for those with this
//! text in this field. Its last part may be a set of fields: `/items/*/{reason,message}` is a row for every item.
//! Rows that say the same are one, since how often something was said is a matter of timing.

use serde_json::Value;

use crate::play::yaml;

/// Whether any of the values that `pointer` means is `wanted`.
#[must_use]
pub fn has(value: &Value, pointer: &str, wanted: &Value) -> bool {
    find(value, pointer).contains(&wanted)
}

/// The parts of the answers that the pointers mean, as text; everything where there are none.
#[must_use]
pub fn show(values: &[Value], pointers: &[&str]) -> String {
    let pick = |value: &Value| -> String {
        if pointers.is_empty() {
            return yaml(value);
        }
        pointers.iter().map(|pointer| line(value, pointer)).collect()
    };
    values.iter().map(pick).collect::<Vec<_>>().join("---\n")
}

/// The texts of warnings, a line for each, or that there are none.
#[must_use]
pub fn warnings(texts: &Value) -> String {
    match texts.as_array().map(Vec::as_slice).unwrap_or_default() {
        [] => "Warning: absent\n".to_owned(),
        texts => {
            let lines: String = texts.iter().map(|text| format!("- {}\n", self::text(Some(text)))).collect();
            format!("Warning:\n{lines}")
        }
    }
}

fn line(value: &Value, pointer: &str) -> String {
    if !pointer.contains(['*', '{', '[']) {
        let found = value.pointer(pointer).map_or_else(|| "absent".to_owned(), Value::to_string);
        return format!("{pointer}: {found}\n");
    }
    let (items, fields) = match pointer.split_once("/{") {
        Some((items, fields)) => (items, fields.trim_end_matches('}').split(',').collect()),
        None => (pointer, Vec::new()),
    };
    let mut rows: Vec<String> = Vec::new();
    for item in find(value, items) {
        let row = match fields.is_empty() {
            true => text(Some(item)),
            false => fields
                .iter()
                .map(|field| text(item.pointer(&format!("/{field}"))))
                .collect::<Vec<_>>()
                .join(" | "),
        };
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    let rows: String = rows.iter().map(|row| format!("- {row}\n")).collect();
    format!("{pointer}:\n{rows}")
}

fn text(value: Option<&Value>) -> String {
    match value {
        None => "absent".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn find<'a>(value: &'a Value, pointer: &str) -> Vec<&'a Value> {
    let Some(rest) = pointer.strip_prefix('/') else { return vec![value] };
    let (part, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    let chosen = part.strip_prefix('[').and_then(|part| part.strip_suffix(']')?.split_once('='));
    match (part, chosen) {
        ("*", _) => items.iter().flat_map(|item| find(item, rest)).collect(),
        (_, Some((field, text))) => {
            items.iter().filter(|item| item[field] == text).flat_map(|item| find(item, rest)).collect()
        }
        _ => value.pointer(&format!("/{part}")).into_iter().flat_map(|found| find(found, rest)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(pointer: &str, expected: &str) {
        let value = json!({"items": [
            {"reason": "Pulled", "count": 1, "source": {"component": "kubelet"}},
            {"reason": "Started", "count": 2},
            {"reason": "Pulled", "count": 3},
        ]});
        assert_eq!(show(&[value], &[pointer]), expected);
    }

    #[test]
    fn one_value_is_shown_as_json() {
        check("/items/0/reason", "/items/0/reason: \"Pulled\"\n");
        check("/items/3/reason", "/items/3/reason: absent\n");
    }

    #[test]
    fn a_star_shows_every_item_and_the_same_only_once() {
        check("/items/*/reason", "/items/*/reason:\n- Pulled\n- Started\n");
        check("/items/*/nothing", "/items/*/nothing:\n");
    }

    #[test]
    fn a_set_of_fields_is_a_row() {
        check(
            "/items/*/{reason,source/component}",
            "/items/*/{reason,source/component}:\n- Pulled | kubelet\n- Started | absent\n- Pulled | absent\n",
        );
    }

    #[test]
    fn any_item_may_have_what_is_awaited() {
        let value = json!({"items": [{"reason": "Pulled"}, {"reason": "Started"}]});
        assert!(has(&value, "/items/*/reason", &json!("Started")));
        assert!(!has(&value, "/items/*/reason", &json!("Killing")));
        assert!(!has(&value, "/things/*/reason", &json!("Started")));
        assert!(has(&value, "/items/[reason=Started]/reason", &json!("Started")));
        assert!(!has(&value, "/items/[reason=Started]/reason", &json!("Pulled")));
    }
}
