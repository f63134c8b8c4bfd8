//! The one text that all runs of a life must end in.
//!
//! Two clusters that lived through the same differ in what is random and in what is counted: identifiers, times,
//! addresses, random suffixes of names, revisions, minted secrets. Those are replaced by words that keep what they
//! say: an owner's uid becomes the owner, a generation becomes whether the status speaks of the latest one.
//! Conditions are in the order in which they first came up, and are put in that of their types.
//!
//! **What is left out on purpose.** Who else owns which fields: of `managedFields` only what the operators themselves
//! own is kept, without the time. ReplicaSets that hold nothing any more: they are a Deployment's history, and how
//! many rollouts there were depends on who was faster.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use ballast_operator::Object;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::State;

/// Annotations that count what happened.
const COUNTS: &[&str] = &["deployment.kubernetes.io/revision", "deployment.kubernetes.io/revision-history"];
/// What the server or a client puts into metadata that says nothing about what is wanted.
const FORGOTTEN: &[&str] = &["uid", "resourceVersion", "generation", "creationTimestamp", "selfLink"];
/// The start of the names of the volumes that admission adds for tokens; five random letters follow.
const TOKEN_VOLUME: &str = "kube-api-access-";

/// What stands for any time.
const TIME: &str = "(time)";

/// The state as text: one YAML document per object, in order. Of who owns which field it has only these managers.
pub fn canonical(state: &State, managers: &[&str]) -> String {
    let words = Words::of(state);
    let kept = state.objects().iter().filter(|object| !is_history(object));
    let mut documents: Vec<String> = kept.map(|object| render(&words.object(object, managers))).collect();
    documents.sort();
    documents.join("---\n")
}

/// A value as YAML.
fn render(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|error| format!("# no YAML: {error}\n{value:#}\n"))
}

fn is_history(object: &Object) -> bool {
    let none = |pointer| object.value().pointer(pointer).and_then(Value::as_i64).unwrap_or(0) == 0;
    object.kind() == "ReplicaSet"
        && object.controller().is_some_and(|owner| owner.kind == "Deployment")
        && none("/spec/replicas")
        && none("/status/replicas")
}

/// What stands for what is random.
struct Words {
    /// Random names, longest first, so that no name is taken for a part of another.
    names: Vec<(String, String)>,
    uids: BTreeMap<String, String>,
}

impl Words {
    fn of(state: &State) -> Self {
        let mut names: Vec<(String, String)> = Vec::new();
        for object in state.objects() {
            let prefix = object.value().pointer("/metadata/generateName").and_then(Value::as_str);
            if let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty())
                && object.name().starts_with(prefix)
            {
                names.push((object.name().to_owned(), format!("{prefix}*")));
            }
        }
        names.extend(state.objects().iter().filter_map(|object| template_hash(object)));
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let mut words = Words { names, uids: BTreeMap::new() };
        for object in state.objects() {
            if let Some(uid) = object.uid() {
                let word = format!("(uid of {} {})", object.kind(), words.named(object.name()));
                words.uids.insert(uid.to_owned(), word);
            }
        }
        words
    }

    fn object(&self, object: &Object, managers: &[&str]) -> Value {
        let mut value = object.redacted().into_value();
        if let Some(status) = value.get_mut("status").and_then(Value::as_object_mut) {
            status.remove("collisionCount");
        }
        // A volume remembers at which revision its claim was bound.
        if let Some(claim) = value.pointer_mut("/spec/claimRef").and_then(Value::as_object_mut) {
            claim.remove("resourceVersion");
        }
        let generation = value.pointer("/metadata/generation").and_then(Value::as_i64);
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|field, _| !FORGOTTEN.contains(&field.as_str()));
            own_fields_only(metadata, managers);
            for (name, count) in
                metadata.get_mut("annotations").and_then(Value::as_object_mut).into_iter().flatten()
            {
                if COUNTS.contains(&name.as_str()) {
                    *count = "(count)".into();
                }
            }
        }
        self.value(&mut value, generation);
        value
    }

    /// Replaces what is random, and says whether there was any. A list that has some is put in an order of its own:
    /// it may have been sorted by what was random.
    fn value(&self, value: &mut Value, generation: Option<i64>) -> bool {
        let mut random = false;
        match value {
            Value::String(text) => {
                let word = self.text(text);
                random = word != *text && word != TIME;
                *text = word;
            }
            Value::Array(list) => {
                for value in list.iter_mut() {
                    random |= self.value(value, generation);
                }
                if random {
                    list.sort_by_key(Value::to_string);
                }
            }
            Value::Object(map) => {
                let taken = std::mem::take(map);
                for (name, mut value) in taken {
                    if name == "observedGeneration" && value.is_i64() {
                        let current = value.as_i64() == generation;
                        value = if current { "(current)".into() } else { "(not current)".into() };
                    } else {
                        random |= self.value(&mut value, generation);
                    }
                    if name == "conditions"
                        && let Value::Array(conditions) = &mut value
                    {
                        conditions.sort_by_key(|condition| condition["type"].as_str().map(str::to_owned));
                    }
                    map.insert(self.key(&name), value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        random
    }

    /// A field's name. In `fieldsV1` names hold values: `k:{"uid":"…"}`, `v:"…"`.
    fn key(&self, name: &str) -> String {
        for sort in ["k:", "v:"] {
            if let Some(mut held) = name.strip_prefix(sort).and_then(|held| serde_json::from_str(held).ok()) {
                self.value(&mut held, None);
                return format!("{sort}{held}");
            }
        }
        self.named(name)
    }

    fn text(&self, text: &str) -> String {
        if is_time(text) {
            return TIME.to_owned();
        }
        if text.parse::<IpAddr>().is_ok_and(|address| !address.is_unspecified()) {
            return "(address)".to_owned();
        }
        if let Ok(place) = text.parse::<SocketAddr>()
            && !place.ip().is_unspecified()
        {
            return format!("(address):{}", place.port());
        }
        if let Some(random) = text.strip_prefix(TOKEN_VOLUME)
            && random.len() == 5
        {
            return format!("{TOKEN_VOLUME}*");
        }
        self.identified(&self.named(text))
    }

    /// Random names are replaced, also inside sentences.
    fn named(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, word) in &self.names {
            if text.contains(name.as_str()) {
                text = text.replace(name.as_str(), word);
            }
        }
        text
    }

    /// Identifiers are replaced by whom they identify.
    fn identified(&self, text: &str) -> String {
        let mut said = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = find_uid(rest) {
            let (before, from) = rest.split_at(at);
            let (uid, after) = from.split_at(UID);
            said.push_str(before);
            said.push_str(self.uids.get(uid).map_or("(uid of nothing)", String::as_str));
            rest = after;
        }
        said.push_str(rest);
        said
    }
}

/// The label by which a Deployment tells the pods of its ReplicaSets apart.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// A ReplicaSet's hash, and a word for the template that it stands for. A Deployment that is made anew before the
/// ReplicaSets of its namesake are gone gives the same template another hash, so the hash itself says too much.
fn template_hash(object: &Object) -> Option<(String, String)> {
    let hash = object.label(TEMPLATE_HASH).filter(|_| object.kind() == "ReplicaSet")?.to_owned();
    let mut template = object.value().pointer("/spec/template")?.clone();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(TEMPLATE_HASH);
    }
    // FNV-1a: it only has to be the same in every run.
    let mixed = template.to_string().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |mixed, byte| {
        (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Some((hash, format!("(template {:08x})", mixed as u32)))
}

/// The length of an identifier.
const UID: usize = 36;

/// Where the first identifier in a text begins.
fn find_uid(text: &str) -> Option<usize> {
    text.as_bytes().windows(UID).position(|window| {
        window.iter().enumerate().all(|(place, byte)| match place {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    })
}

fn is_time(text: &str) -> bool {
    text.len() >= "2030-01-01T00:00:00Z".len()
        && text.ends_with('Z')
        && text.as_bytes()[0].is_ascii_digit()
        && text.parse::<Timestamp>().is_ok()
}

/// Leaves of `managedFields` what `managers` own, in an order that does not depend on time.
fn own_fields_only(metadata: &mut Map<String, Value>, managers: &[&str]) {
    let Some(Value::Array(mut entries)) = metadata.remove("managedFields") else { return };
    entries.retain(|entry| entry["manager"].as_str().is_some_and(|manager| managers.contains(&manager)));
    for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
        entry.remove("time");
    }
    entries.sort_by_key(|entry| {
        ["manager", "subresource"].map(|field| entry[field].as_str().map(str::to_owned))
    });
    if !entries.is_empty() {
        metadata.insert("managedFields".into(), entries.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(yaml: &str) -> State {
        let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
        State::of(documents.into_iter().map(|document| Object::new(document).unwrap()))
    }

    /// Both states are the same but for what is random.
    fn check(one: &str, other: &str) {
        let (one, other) = (canonical(&state(one), &["us"]), canonical(&state(other), &["us"]));
        assert!(one == other, "--- one\n{one}\n--- other\n{other}");
    }

    fn check_different(one: &str, other: &str) {
        assert_ne!(canonical(&state(one), &["us"]), canonical(&state(other), &["us"]));
    }

    const ONE: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: cache-7d4b-x2x9k
  generateName: cache-7d4b-
  uid: 11111111-2222-3333-4444-555555555555
  resourceVersion: '17'
  creationTimestamp: 2030-01-01T12:00:00Z
status: {podIP: 10.1.2.3, servers: ['10.1.2.3:11211']}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: told
  generation: 4
  ownerReferences: [{apiVersion: v1, kind: Pod, name: cache-7d4b-x2x9k, uid: 11111111-2222-3333-4444-555555555555}]
  managedFields:
  - {manager: them, operation: Update, time: 2030-01-01T12:00:00Z, fieldsV1: {'f:data': {}}}
  - manager: us
    operation: Apply
    time: 2030-01-01T12:00:00Z
    fieldsV1: {'f:metadata': {'f:ownerReferences': {'k:{\"uid\":\"11111111-2222-3333-4444-555555555555\"}': {}}}}
status: {observedGeneration: 4, nodes: [cache-7d4b-x2x9k], message: 'cache-7d4b-x2x9k is up'}
";

    #[test]
    fn what_is_random_or_counted_does_not_matter() {
        let other = ONE
            .replace("x2x9k", "b5b5b")
            .replace("11111111-2222", "99999999-2222")
            .replace("'17'", "'4711'")
            .replace("12:00:00", "13:30:10")
            .replace("10.1.2.3", "10.9.9.9")
            .replace("generation: 4", "generation: 6")
            .replace("observedGeneration: 4", "observedGeneration: 6")
            .replace("manager: them", "manager: others");
        check(ONE, &other);
    }

    #[test]
    fn a_list_that_is_sorted_by_random_names_is_the_same_in_any_order() {
        let other = ONE
            .replace("nodes: [cache-7d4b-x2x9k]", "nodes: [cache-7d4b-x2x9k, fixed]")
            .replace("podIP: 10.1.2.3,", "podIPs: [10.1.2.3, none],");
        let turned = other
            .replace("[cache-7d4b-x2x9k, fixed]", "[fixed, cache-7d4b-x2x9k]")
            .replace("[10.1.2.3, none]", "[none, 10.1.2.3]");
        check(&other, &turned);
    }

    #[test]
    fn what_says_something_matters() {
        for (from, to) in [
            ("7d4b", "8e5c"),
            ("observedGeneration: 4", "observedGeneration: 3"),
            ("uid: 11111111-2222-3333-4444-555555555555}]", "uid: 99999999-2222-3333-4444-555555555555}]"),
            ("operation: Apply", "operation: Update"),
            ("is up", "is down"),
            ("told", "asked"),
        ] {
            check_different(ONE, &ONE.replace(from, to));
        }
    }

    #[test]
    fn a_second_object_under_another_random_name_is_seen() {
        let twice = format!("{ONE}\n---\n{}", ONE.replace("x2x9k", "b5b5b").replace("11111111", "22222222"));
        check_different(ONE, &twice);
    }

    #[test]
    fn what_a_secret_holds_is_neither_compared_nor_shown() {
        let secret = "{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {password: aHVudGVyMg==}}";
        check(secret, &secret.replace("aHVudGVyMg==", "b3RoZXI="));
        check_different(secret, &secret.replace("password", "pass"));
        assert!(!canonical(&state(secret), &["us"]).contains("aHVudGVyMg"));
    }

    #[test]
    fn conditions_are_the_same_in_any_order() {
        let (a, b) = ("{type: A, status: 'True'}", "{type: B, status: 'True'}");
        let with = |conditions: String| {
            format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: a}}, status: {{conditions: [{conditions}]}}}}"
            )
        };
        check(&with(format!("{a}, {b}")), &with(format!("{b}, {a}")));
        check_different(&with(a.to_owned()), &with(b.to_owned()));
    }

    #[test]
    fn an_empty_replica_set_is_history() {
        let owner =
            "ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: d, uid: u, controller: true}]";
        let old = format!(
            "{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: d-1, {owner}}}, spec: {{replicas: 0}}}}"
        );
        assert_eq!(canonical(&state(&old), &["us"]), "");
        assert_ne!(canonical(&state(&old.replace("replicas: 0", "replicas: 1")), &["us"]), "");
    }
}
