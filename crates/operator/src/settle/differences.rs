//! The plain differences between two values, for people.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Difference;

/// Every field in which a value is not what is wanted, whoever owns it. Items of lists are matched by what names
/// them, so that one changed condition reads as one changed condition.
pub fn differences(live: Option<&Value>, want: Option<&Value>, path: &str) -> Vec<Difference> {
    match (live, want) {
        (Some(Value::Object(live)), Some(Value::Object(want))) => {
            let gone = live.keys().filter(|name| !want.contains_key(*name));
            let names = want.keys().chain(gone);
            names
                .flat_map(|name| differences(live.get(name), want.get(name), &format!("{path}.{name}")))
                .collect()
        }
        (Some(Value::Array(live)), Some(Value::Array(want)))
            if live.iter().chain(want).all(Value::is_object) =>
        {
            let (live, wanted) = (by_name(live), by_name(want));
            let gone = live.keys().filter(|name| !wanted.contains_key(*name));
            let names = wanted.keys().chain(gone);
            names
                .flat_map(|name| {
                    differences(
                        live.get(name).copied(),
                        wanted.get(name).copied(),
                        &format!("{path}[{name}]"),
                    )
                })
                .collect()
        }
        (live, want) if live == want => Vec::new(),
        (live, want) => vec![Difference { path: path.to_owned(), is: live.cloned(), becomes: want.cloned() }],
    }
}

fn by_name(list: &[Value]) -> BTreeMap<String, &Value> {
    list.iter().enumerate().map(|(place, item)| (identity(item, place), item)).collect()
}

/// How an item of a list is called: by the field that names it, or by its place.
pub(super) fn identity(item: &Value, place: usize) -> String {
    for key in ["name", "uid", "type", "containerPort", "port", "mountPath", "topologyKey"] {
        if let Some(value) = item.get(key) {
            return format!("{key}={value}");
        }
    }
    if item.is_object() || item.is_array() { place.to_string() } else { format!("={item}") }
}
