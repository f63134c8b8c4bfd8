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
    nodes: Vec<String>,
    addresses: BTreeMap<String, usize>,
    containers: BTreeMap<String, usize>,
    /// What the numbered words of shown texts are called, by what they were called before.
    shown: BTreeMap<String, String>,
}

impl Normaliser {
    /// A normaliser that writes the given texts back as their placeholders.
    #[must_use]
    pub fn new(names: Vec<(String, String)>) -> Self {
        Self {
            names,
            uids: BTreeMap::new(),
            revisions: BTreeMap::new(),
            nodes: Vec::new(),
            addresses: BTreeMap::new(),
            containers: BTreeMap::new(),
            shown: BTreeMap::new(),
        }
    }

    /// From now on puts aside what differs between runs of pods too: these nodes' names, addresses, containers
    /// and the times at the beginning of lines.
    pub fn run_pods_on(&mut self, nodes: Vec<String>) {
        self.nodes = nodes;
    }

    /// Normalises an answer in place.
    pub fn apply(&mut self, value: &mut Value) {
        settle_causes(value);
        self.visit("", value);
    }

    /// Counts numbered words by what is shown of them: how many revisions, events or addresses there were beside
    /// that is a matter of timing. A list has a revision of its own where anybody wrote anything meanwhile.
    #[must_use]
    pub fn count_shown(&mut self, text: &str) -> String {
        let mut parts = text.split('<');
        let mut counted = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let numbered = part.split_once('>').and_then(|(word, rest)| {
                let (what, number) = word.split_once(' ')?;
                number.bytes().all(|byte| byte.is_ascii_digit()).then_some((word, what, rest))
            });
            match numbered {
                Some((word, what, rest)) => {
                    let next =
                        self.shown.keys().filter(|known| known.starts_with(&format!("{what} "))).count();
                    let name =
                        self.shown.entry(word.to_owned()).or_insert_with(|| format!("<{what} {}>", next + 1));
                    counted.push_str(name);
                    counted.push_str(rest);
                }
                None => {
                    counted.push('<');
                    counted.push_str(part);
                }
            }
        }
        counted
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
            "containerID" if !self.nodes.is_empty() && !text.is_empty() => {
                word(&mut self.containers, "container", text)
            }
            "imageID" if !self.nodes.is_empty() && !text.is_empty() => "<image>".to_owned(),
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
        if self.nodes.is_empty() { text } else { self.rename_words(&text) }
    }

    /// Placeholders for nodes and addresses, and for times at the beginning of lines.
    fn rename_words(&mut self, text: &str) -> String {
        let mut renamed = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let line = match line.split_once(' ') {
                Some((first, rest)) if is_time(first) => format!("<time> {rest}"),
                _ => line.to_owned(),
            };
            let mut rest = line.as_str();
            while let Some(start) = rest.find(in_word) {
                renamed.push_str(&rest[..start]);
                let end = rest[start..].find(|c| !in_word(c)).map_or(rest.len(), |length| start + length);
                // A sentence may end in a name.
                let (name, stop) = match rest[start..end].strip_suffix('.') {
                    Some(name) => (name, "."),
                    None => (&rest[start..end], ""),
                };
                renamed.push_str(&self.rename_word(name));
                renamed.push_str(stop);
                rest = &rest[end..];
            }
            renamed.push_str(rest);
        }
        renamed
    }

    fn rename_word(&mut self, name: &str) -> String {
        match name.parse::<std::net::Ipv4Addr>() {
            _ if self.nodes.iter().any(|node| node == name) => "<node>".to_owned(),
            Ok(address) if !address.is_loopback() && !address.is_unspecified() => {
                word(&mut self.addresses, "address", name)
            }
            // What the API server calls the volume of an account's token.
            _ => match name.strip_prefix("kube-api-access-") {
                Some(_) => "kube-api-access-<5>".to_owned(),
                None => name.to_owned(),
            },
        }
    }
}

/// What names and addresses are made of.
fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '.'
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
    #[test]
    fn nodes_addresses_and_containers_are_put_aside_where_pods_run() {
        let mut normaliser = Normaliser::new(Vec::new());
        let given = json!({
            "message": "assigned a/b to anvil.", "podIP": "10.1.2.3", "containerID": "x://1",
            "log": "2026-01-02T03:04:05.5Z anvil-2 at 10.1.2.3:80\n127.0.0.1 and 10.1.2.4\n",
        });
        let mut value = given.clone();
        normaliser.apply(&mut value);
        assert_eq!(value, given);
        normaliser.run_pods_on(vec!["anvil".into()]);
        normaliser.apply(&mut value);
        assert_eq!(
            value,
            json!({
                "message": "assigned a/b to <node>.", "podIP": "<address 1>", "containerID": "<container 1>",
                "log": "<time> anvil-2 at <address 1>:80\n127.0.0.1 and <address 2>\n",
            })
        );
    }

    #[test]
    fn words_are_counted_by_what_is_shown() {
        let mut normaliser = Normaliser::new(Vec::new());
        assert_eq!(normaliser.count_shown("a < b, <uid 7>, <uid 3>"), "a < b, <uid 1>, <uid 2>");
        assert_eq!(normaliser.count_shown("<address 2> <time> <uid 3>"), "<address 1> <time> <uid 2>");
    }
}
