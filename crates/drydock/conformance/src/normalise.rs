//! Puts aside what differs from run to run, and nothing else.

use std::collections::BTreeMap;

use serde_json::Value;

/// Replaces uids, revisions, times, addresses and generated names by words that say which is which.
///
/// The same uid or revision becomes the same word throughout a case, so that "the revision did not
/// move" stays visible.
#[derive(Debug)]
pub struct Normaliser {
    /// Literal texts to replace, longest first: the case's namespace and word.
    names: Vec<(String, String)>,
    uids: BTreeMap<String, usize>,
    revisions: BTreeMap<String, usize>,
}

impl Normaliser {
    /// A normaliser that writes the given texts back as their placeholders.
    #[must_use]
    pub fn new(names: Vec<(String, String)>) -> Self {
        Self { names, uids: BTreeMap::new(), revisions: BTreeMap::new() }
    }

    /// Normalises an answer in place.
    pub fn apply(&mut self, value: &mut Value) {
        settle_causes(value);
        self.visit("", value);
    }

    fn visit(&mut self, key: &str, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let generate_name = fields.get("generateName").and_then(Value::as_str).map(str::to_owned);
                if let (Some(prefix), Some(name)) = (generate_name, fields.get_mut("name"))
                    && let Some(rest) = name.as_str().and_then(|name| name.strip_prefix(&prefix))
                {
                    *name = Value::String(format!("{prefix}<{}>", rest.len()));
                }
                let renamed: Vec<(String, Value)> = std::mem::take(fields)
                    .into_iter()
                    .map(|(name, mut field)| {
                        self.visit(&name, &mut field);
                        (self.rename(&name), field)
                    })
                    .collect();
                fields.extend(renamed);
            }
            Value::Array(items) if key == "managedFields" => {
                // What controllers write into the status meanwhile is a matter of timing.
                items.retain(|entry| entry["manager"] != "kube-controller-manager");
                items.iter_mut().for_each(|item| self.visit(key, item));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.visit(key, item)),
            Value::String(text) => *text = self.text(key, text),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text(&mut self, key: &str, text: &str) -> String {
        match key {
            "resourceVersion" if !text.is_empty() && text != "0" => {
                word(&mut self.revisions, "revision", text)
            }
            "continue" if !text.is_empty() => "<continue>".to_owned(),
            "clusterIP" | "clusterIPs" if text.starts_with("10.") => "<address>".to_owned(),
            "storageVersionHash" | "hash" => "<hash>".to_owned(),
            "token" => "<token>".to_owned(),
            _ if is_time(text) => "<time>".to_owned(),
            _ => self.rename(text),
        }
    }

    /// Placeholders for the case's own names and for every uid in `text`.
    fn rename(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (from, to) in &self.names {
            text = text.replace(from, to);
        }
        let mut at = 0;
        while let Some(window) = text.get(at..).filter(|rest| rest.len() >= UID_LENGTH) {
            match window.get(..UID_LENGTH).filter(|candidate| is_uid(candidate)) {
                Some(uid) => {
                    let name = word(&mut self.uids, "uid", uid);
                    text.replace_range(at..at + UID_LENGTH, &name);
                    at += name.len();
                }
                None => at += window.chars().next().map_or(1, char::len_utf8),
            }
        }
        text
    }
}

/// Kubernetes walks maps in random order, so that several causes come in any order: sorts them, and takes
/// the same list out of the message.
fn settle_causes(status: &mut Value) {
    let Some(causes) = status.pointer_mut("/details/causes").and_then(Value::as_array_mut) else { return };
    if causes.len() < 2 {
        return;
    }
    causes.sort_by_key(Value::to_string);
    if let Some(Value::String(message)) = status.get_mut("message")
        && let Some(at) = message.find('[')
    {
        message.replace_range(at.., "[…]");
    }
}

fn word(known: &mut BTreeMap<String, usize>, what: &str, text: &str) -> String {
    let next = known.len() + 1;
    format!("<{what} {}>", known.entry(text.to_owned()).or_insert(next))
}

/// `2006-01-02T15:04:05Z`, also with a fraction.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20
        && bytes[4] == b'-'
        && bytes[7] == b'-'
        && bytes[10] == b'T'
        && bytes[13] == b':'
        && bytes.last() == Some(&b'Z')
}

const UID_LENGTH: usize = 36;

fn is_uid(text: &str) -> bool {
    text.len() == UID_LENGTH
        && text.char_indices().all(|(at, c)| match at {
            8 | 13 | 18 | 23 => c == '-',
            _ => c.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_is_put_aside_and_identity_stays_visible() {
        let mut normaliser = Normaliser::new(vec![("ns-x7".into(), "{ns}".into())]);
        let mut value = json!({
            "metadata": {
                "generateName": "a-", "name": "a-k8zq4", "namespace": "ns-x7", "resourceVersion": "17",
                "uid": "7f2b0a4e-6f1c-4a7f-9d55-0123456789ab", "creationTimestamp": "2026-01-02T03:04:05Z",
            },
            "message": "object 7f2b0a4e-6f1c-4a7f-9d55-0123456789ab in ns-x7",
        });
        normaliser.apply(&mut value);
        assert_eq!(
            value,
            json!({
                "metadata": {
                    "generateName": "a-", "name": "a-<5>", "namespace": "{ns}", "resourceVersion": "<revision 1>",
                    "uid": "<uid 1>", "creationTimestamp": "<time>",
                },
                "message": "object <uid 1> in {ns}",
            })
        );
        let mut later = json!({"metadata": {"resourceVersion": "18"}});
        normaliser.apply(&mut later);
        assert_eq!(later, json!({"metadata": {"resourceVersion": "<revision 2>"}}));
    }
}
