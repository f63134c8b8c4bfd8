//! What a set remembers of its templates: which revision it is at, which ones go, and what they are called. Pure.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Remembers;
use crate::objects::stateful::Revision;
use crate::objects::template::{REPLACES, Template};

/// How long the part of a revision's name before the hash may be.
const LONGEST_PREFIX: usize = 223;

/// What is to be done so that there is a revision of the template.
#[derive(Debug, PartialEq, Eq)]
pub enum Choice<'a> {
    /// The latest is it.
    Latest(&'a Revision),
    /// An earlier one is it, and becomes the latest under this number.
    Again(&'a Revision, i64),
    /// There is none; this will be its number.
    New(i64),
}

impl PartialEq for Revision {
    fn eq(&self, other: &Self) -> bool {
        self.metadata.uid == other.metadata.uid && self.metadata.name == other.metadata.name
    }
}

impl Eq for Revision {}

/// The revision of the template, among those there are, in the order of their numbers.
pub fn choose<'a>(template: &Template, sorted: &'a [Arc<Revision>]) -> Choice<'a> {
    let next = sorted.last().map_or(1, |latest| latest.revision + 1);
    match sorted.iter().rposition(|revision| revision.template == *template) {
        Some(at) if at + 1 == sorted.len() => Choice::Latest(&sorted[at]),
        Some(at) => Choice::Again(&sorted[at], next),
        None => Choice::New(next),
    }
}

/// The order of revisions: by number, then age, then name.
pub fn order(one: &Revision, other: &Revision) -> Ordering {
    let order = |revision: &Revision| (revision.revision, revision.metadata.creation_timestamp);
    order(one).cmp(&order(other)).then_with(|| one.metadata.name.cmp(&other.metadata.name))
}

/// The oldest revisions beyond the limit, of those that neither the set nor a pod is at.
pub fn beyond_limit<'a>(
    set: &impl Remembers,
    sorted: &'a [Arc<Revision>],
    live: &[&str],
) -> Vec<&'a Revision> {
    let Some(limit) = set.history_limit().and_then(|limit| usize::try_from(limit).ok()) else {
        return Vec::new();
    };
    let past = sorted.iter().filter(|revision| !live.contains(&&*revision.metadata.name));
    let past: Vec<&Revision> = past.map(|revision| &**revision).collect();
    let excess = past.len().saturating_sub(limit);
    past.into_iter().take(excess).collect()
}

/// What a revision remembers: a patch that puts the template back.
pub fn data(template: &Template) -> Value {
    let mut template = template.value();
    if let Some(fields) = template.as_object_mut() {
        fields.insert(REPLACES.into(), "replace".into());
    }
    json!({ "spec": { "template": template } })
}

/// The hash of what a StatefulSet's revision remembers: Kubernetes' own, so that the same template has the same name on both.
pub fn hash(data: &Value, collisions: i32) -> String {
    // As Go writes JSON: sorted, and without what could end a script.
    let text = data.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e");
    let bytes = text.bytes().chain(collisions.to_string().into_bytes());
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte));
    // Letters and digits that spell no words and are not mistaken for one another.
    const SAFE: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    hash.to_string().bytes().map(|digit| char::from(SAFE[usize::from(digit) % SAFE.len()])).collect()
}

/// The name of a revision.
pub fn name(set: &str, hash: &str) -> String {
    format!("{}-{hash}", &set[..set.len().min(LONGEST_PREFIX)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::stateful::StatefulSet;

    fn set(image: &str) -> StatefulSet {
        let text = format!(
            r#"{{"metadata":{{"name":"web"}},"spec":{{"revisionHistoryLimit":2,"template":{{"metadata":{{"labels":{{"app":"web"}}}},"spec":{{"containers":[{{"name":"c","image":"{image}"}}]}}}}}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn revision(name: &str, number: i64, image: &str) -> Revision {
        let data = data(&set(image).spec.template);
        serde_json::from_value(json!({ "metadata": { "name": name }, "revision": number, "data": data }))
            .unwrap()
    }

    #[track_caller]
    fn check(image: &str, known: &[(&str, i64, &str)], expected: &str) {
        let known = known.iter().map(|(name, number, image)| revision(name, *number, image));
        let mut sorted: Vec<_> = known.map(Arc::new).collect();
        sorted.sort_by(|one, other| order(one, other));
        let told = match choose(&set(image).spec.template, &sorted) {
            Choice::Latest(one) => format!("latest {}", one.metadata.name),
            Choice::Again(one, number) => format!("{} again as {number}", one.metadata.name),
            Choice::New(number) => format!("new {number}"),
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn a_template_that_was_there_before_is_found_again() {
        check("i:1", &[], "new 1");
        check("i:1", &[("a", 1, "i:1")], "latest a");
        check("i:3", &[("a", 1, "i:1"), ("b", 2, "i:2")], "new 3");
        check("i:1", &[("b", 2, "i:2"), ("a", 1, "i:1")], "a again as 3");
    }

    #[test]
    fn the_oldest_go_that_nothing_is_at() {
        let known = (1..=5).map(|number| revision(&format!("r{number}"), number, &format!("i:{number}")));
        let sorted: Vec<_> = known.map(Arc::new).collect();
        let go = |live: &[&str]| -> Vec<String> {
            let gone = beyond_limit(&set("i:5"), &sorted, live);
            gone.iter().map(|one| one.metadata.name.to_string()).collect()
        };
        assert_eq!(go(&["r5"]), ["r1", "r2"]);
        assert_eq!(go(&["r5", "r1"]), ["r2"]);
        assert!(go(&["r5", "r1", "r2"]).is_empty());
    }
}
