//! What becomes of a definition: its defaults, the names it gets, whether it is served.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::json;

/// Sets what was not given.
pub fn default(crd: &mut Value) {
    let stored = storage_version(crd);
    if let Some(spec) = crd.get_mut("spec") {
        if let Some(names) = json::object_at(spec, "names") {
            let kind = json::text(names, "kind").to_owned();
            json::default_text(names, "singular", &kind.to_lowercase());
            if !kind.is_empty() {
                json::default_text(names, "listKind", &format!("{kind}List"));
            }
        }
        json::default(spec, "conversion", json!({"strategy": "None"}));
        if spec["preserveUnknownFields"] == json!(false) {
            json::remove(spec, "preserveUnknownFields");
        }
        for version in json::list_mut(spec, "versions") {
            json::default(version, "served", false);
            json::default(version, "storage", false);
        }
    }
    if let Some(status) = json::object_at(crd, "status") {
        json::default(status, "acceptedNames", json!({"plural": "", "kind": ""}));
        json::default(status, "conditions", Value::Null);
        if json::list(status, "storedVersions").is_empty()
            && let Some(stored) = stored
        {
            json::set(status, "storedVersions", json!([stored]));
        }
    }
}

/// The version in which objects are stored.
fn storage_version(crd: &Value) -> Option<String> {
    json::list(&crd["spec"], "versions")
        .iter()
        .find(|version| version["storage"].as_bool() == Some(true))
        .map(|version| json::text(version, "name").to_owned())
}

/// A definition that is stored anew remembers every version it was ever stored in.
pub(crate) fn remember_storage_version(crd: &mut Value) {
    let Some(stored) = storage_version(crd) else { return };
    let Some(status) = json::object_at(crd, "status") else { return };
    let mut versions = json::list(status, "storedVersions").to_vec();
    if !versions.iter().any(|version| version.as_str() == Some(&stored)) {
        versions.push(stored.into());
    }
    json::set(status, "storedVersions", versions);
}

/// The condition of this type.
#[must_use]
pub fn condition<'a>(crd: &'a Value, kind: &str) -> Option<&'a Value> {
    json::list(&crd["status"], "conditions").iter().find(|condition| json::text(condition, "type") == kind)
}

fn is_true(crd: &Value, kind: &str) -> bool {
    condition(crd, kind).is_some_and(|condition| json::text(condition, "status") == "True")
}

/// The kinds of the definition are served.
#[must_use]
pub fn is_established(crd: &Value) -> bool {
    is_true(crd, "Established")
}

/// Decides which names the definition gets beside `others`, and says so in its status. A definition
/// whose names are its own is established in the same step. `others` may hold `crd` itself.
pub fn settle<'a>(crd: &mut Value, others: impl Iterator<Item = &'a Value>, now: Timestamp) {
    let claimed = Claimed::by(crd, others);
    let wanted = crd["spec"]["names"].clone();
    let mut accepted = crd["status"]["acceptedNames"].clone();
    if !accepted.is_object() {
        accepted = json!({"plural": "", "kind": ""});
    }
    let mut conflict = None;
    for (field, reason, taken) in [
        ("plural", "PluralConflict", &claimed.resources),
        ("singular", "SingularConflict", &claimed.resources),
        ("shortNames", "ShortNamesConflict", &claimed.resources),
        ("kind", "KindConflict", &claimed.kinds),
        ("listKind", "ListKindConflict", &claimed.kinds),
    ] {
        match conflicts(&wanted[field], &accepted[field], taken) {
            Some(message) => conflict = Some((reason, message)),
            None => take(&mut accepted, &wanted, field),
        }
    }
    take(&mut accepted, &wanted, "categories");
    let Some(status) = json::object_at(crd, "status") else { return };
    json::set(status, "acceptedNames", accepted);
    match conflict {
        Some((reason, message)) => {
            set_condition(crd, "NamesAccepted", "False", reason, &message, now);
            if condition(crd, "Established").is_none() {
                set_condition(crd, "Established", "False", "NotAccepted", "not all names are accepted", now);
            }
        }
        None => {
            set_condition(crd, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now);
            if !is_established(crd) {
                let message = "the initial names have been accepted";
                set_condition(crd, "Established", "True", "InitialNamesAccepted", message, now);
            }
        }
    }
}

fn take(accepted: &mut Value, wanted: &Value, field: &str) {
    match wanted.get(field) {
        Some(value) => json::set(accepted, field, value.clone()),
        None => {
            json::remove(accepted, field);
        }
    }
}

/// The names that other definitions of the group have.
#[derive(Default)]
struct Claimed {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl Claimed {
    fn by<'a>(crd: &Value, others: impl Iterator<Item = &'a Value>) -> Self {
        let mut claimed = Self::default();
        let same_group = |other: &&Value| other["spec"]["group"] == crd["spec"]["group"];
        let another = |other: &&Value| other["metadata"]["name"] != crd["metadata"]["name"];
        for other in others.filter(same_group).filter(another) {
            let names = &other["status"]["acceptedNames"];
            for field in ["plural", "singular"] {
                claimed.resources.insert(json::text(names, field).to_owned());
            }
            let short = json::list(names, "shortNames").iter().filter_map(Value::as_str);
            claimed.resources.extend(short.map(str::to_owned));
            for field in ["kind", "listKind"] {
                claimed.kinds.insert(json::text(names, field).to_owned());
            }
        }
        claimed
    }
}

fn conflicts(wanted: &Value, accepted: &Value, taken: &BTreeSet<String>) -> Option<String> {
    if wanted == accepted {
        return None;
    }
    let in_use = |name: &str| format!("{name:?} is already in use");
    match wanted {
        Value::String(name) => taken.contains(name).then(|| in_use(name)),
        Value::Array(names) => {
            let had: Vec<_> = accepted.as_array().into_iter().flatten().collect();
            let mut messages: Vec<_> = names
                .iter()
                .filter(|name| !had.contains(name))
                .filter_map(Value::as_str)
                .filter(|name| taken.contains(*name))
                .map(in_use)
                .collect();
            match messages.len() {
                0 => None,
                1 => messages.pop(),
                _ => Some(format!("[{}]", messages.join(", "))),
            }
        }
        _ => None,
    }
}

fn set_condition(crd: &mut Value, kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) {
    let Some(target) = crd.get_mut("status") else { return };
    let mut conditions = json::list(target, "conditions").to_vec();
    let mut new = json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    match conditions.iter_mut().find(|condition| json::text(condition, "type") == kind) {
        Some(old) => {
            if json::text(old, "status") == status {
                json::set(&mut new, "lastTransitionTime", old["lastTransitionTime"].clone());
            }
            *old = new;
        }
        None => conditions.push(new),
    }
    json::set(target, "conditions", conditions);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str, short: &[&str]) -> Value {
        let mut crd = json!({
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {
                "group": "example.com",
                "names": {"plural": plural, "kind": kind, "shortNames": short},
                "versions": [{"name": "v1", "served": true, "storage": true}],
            },
        });
        default(&mut crd);
        crd
    }

    #[track_caller]
    fn check(crd: &Value, expected: &[&str]) {
        let conditions: Vec<_> = json::list(&crd["status"], "conditions")
            .iter()
            .map(|c| {
                format!(
                    "{}={} {}: {}",
                    json::text(c, "type"),
                    json::text(c, "status"),
                    json::text(c, "reason"),
                    json::text(c, "message")
                )
            })
            .collect();
        assert_eq!(conditions, expected);
    }

    #[test]
    fn a_definition_with_names_of_its_own_is_established() {
        let mut crd = definition("widgets", "Widget", &["wd"]);
        settle(&mut crd, std::iter::empty(), Timestamp::UNIX_EPOCH);
        check(
            &crd,
            &[
                "NamesAccepted=True NoConflicts: no conflicts found",
                "Established=True InitialNamesAccepted: the initial names have been accepted",
            ],
        );
        assert_eq!(
            crd["status"]["acceptedNames"],
            json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": ["wd"]})
        );
        assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
    }

    #[test]
    fn a_name_that_another_has_is_not_given_twice() {
        let mut first = definition("widgets", "Widget", &["wd"]);
        settle(&mut first, std::iter::empty(), Timestamp::UNIX_EPOCH);
        let mut second = definition("wadgets", "Widget", &["wd"]);
        settle(&mut second, [&first].into_iter(), Timestamp::UNIX_EPOCH);
        check(
            &second,
            &[
                "NamesAccepted=False ListKindConflict: \"WidgetList\" is already in use",
                "Established=False NotAccepted: not all names are accepted",
            ],
        );
    }

    #[test]
    fn settling_twice_changes_nothing() {
        let mut crd = definition("widgets", "Widget", &[]);
        settle(&mut crd, std::iter::empty(), Timestamp::UNIX_EPOCH);
        let once = crd.clone();
        settle(&mut crd, [&once].into_iter(), Timestamp::MAX);
        assert_eq!(crd, once);
    }
}
