//! The resources in a file.

use std::io::{self, Read};

use serde_json::Value;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{Error, UserMessageFormatter};

use crate::configuration::Source;
use crate::failure::{Advise as _, Explain as _, Failure, one_line};

/// What only the server says about an object. A file that was read from a cluster has it; nobody wants it.
const SERVERS_OWN: [&str; 8] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// One resource as somebody wrote it, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The file, and which of its documents: `a.yaml, document 2`.
    pub place: String,
    /// What it says, without what only a server says.
    pub value: Value,
}

impl Document {
    /// A field of text, empty when it is not there.
    pub fn text(&self, pointer: &str) -> &str {
        self.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// A document that says what it is, under a name that can be asked for.
    pub(super) fn addressable(self) -> Result<Self, Failure> {
        let place = &self.place;
        for (field, pointer) in
            [("apiVersion", "/apiVersion"), ("kind", "/kind"), ("metadata.name", "/metadata/name")]
        {
            if self.text(pointer).is_empty() {
                return Err(Failure::new(format!("{place}: {field} is not set")));
            }
        }
        for pointer in ["/metadata/name", "/metadata/namespace"] {
            let name = self.text(pointer);
            let strange = |c: &char| !c.is_ascii_alphanumeric() && !".-_:~".contains(*c);
            if matches!(name, "." | "..") {
                return Err(Failure::new(format!("{place}: invalid resource name {name:?}")));
            }
            if let Some(strange) = name.chars().find(strange) {
                return Err(Failure::new(format!(
                    "{place}: invalid resource name {name:?}: may not contain {strange:?}"
                )));
            }
        }
        Ok(self)
    }
}

/// Reads all resources of a file; the items of a list are resources.
///
/// # Errors
/// The file can't be read, or is not YAML, or there is nothing in it.
pub fn read(source: &Source) -> Result<Vec<Document>, Failure> {
    let text = match source {
        Source::File(path) => std::fs::read(path),
        Source::Input => {
            let mut text = Vec::new();
            io::stdin().read_to_end(&mut text).map(|_| text)
        }
    };
    let text = text
        .what(format!("can't read {source}"))
        .advise("name a file that is there, or - for standard input")?;
    let text = String::from_utf8(text).what(format!("{source} is not text"))?;
    parse(&text, &source.to_string())
}

fn parse(text: &str, name: &str) -> Result<Vec<Document>, Failure> {
    let all: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| Failure::new(format!("{name} {}", why(&error))))?;
    let all: Vec<Value> = all.into_iter().filter(|value| !value.is_null()).collect();
    let several = all.len() > 1;
    let mut documents = Vec::new();
    for (number, value) in all.into_iter().enumerate() {
        let place = if several { format!("{name}, document {}", number + 1) } else { name.to_owned() };
        for value in items(value) {
            documents.push(Document { place: place.clone(), value: bare(value) });
        }
    }
    if documents.is_empty() {
        return Err(Failure::new(format!("there is nothing in {name}")));
    }
    Ok(documents)
}

/// Why the parser gave up, in words for who wrote the file.
fn why(error: &Error) -> String {
    if let Error::Budget { breach: BudgetBreach::Depth { depth }, .. } = error.without_snippet() {
        return format!("nests deeper than {} levels", depth - 1);
    }
    // What follows the first line is a picture of the place.
    let said = one_line(&error.render_with_formatter(&UserMessageFormatter));
    if said.contains("too large or too complex") {
        return "is too large once its aliases are followed".to_owned();
    }
    format!("is not YAML: {}", said.trim_start_matches("error: "))
}

/// The items of a list, or the one object.
fn items(mut value: Value) -> Vec<Value> {
    let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    match value.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if is_list => items,
        Some(other) => {
            value["items"] = other;
            vec![value]
        }
        None => vec![value],
    }
}

fn bare(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in SERVERS_OWN {
            metadata.remove(field);
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let said = match parse(text, "a.yaml") {
            Ok(documents) => documents.iter().map(|one| format!("{}: {}\n", one.place, one.value)).collect(),
            Err(failure) => format!("{failure}\n"),
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn every_document_and_every_item_is_a_resource() {
        check("kind: A", "a.yaml: {\"kind\":\"A\"}\n");
        check(
            "---\nkind: A\n---\n# nothing\n---\nkind: B\n",
            "a.yaml, document 1: {\"kind\":\"A\"}\na.yaml, document 2: {\"kind\":\"B\"}\n",
        );
        check(
            "kind: List\nitems: [{kind: A}, {kind: B}]",
            "a.yaml: {\"kind\":\"A\"}\na.yaml: {\"kind\":\"B\"}\n",
        );
        check("{\"kind\": \"A\"}", "a.yaml: {\"kind\":\"A\"}\n");
    }

    #[test]
    fn what_only_a_server_says_is_left_out() {
        check(
            "kind: A\nmetadata: {name: a, uid: x, resourceVersion: '1', managedFields: []}\nstatus: {x: 1}",
            "a.yaml: {\"kind\":\"A\",\"metadata\":{\"name\":\"a\"}}\n",
        );
    }

    #[test]
    fn what_can_not_be_read_is_said_in_words_for_who_wrote_it() {
        let deep = format!("a: {}{}", "[".repeat(99), "]".repeat(99));
        let bomb = (1..9).fold("a0: &a0 [x]\n".to_owned(), |text, level| {
            let again = vec![format!("*a{}", level - 1); 9].join(",");
            format!("{text}a{level}: &a{level} [{again}]\n")
        });
        for (text, expected) in [
            (
                "a: 1\na: 2\n",
                "a.yaml is not YAML: line 2 column 1: duplicate mapping key: a not allowed here\n",
            ),
            (&deep, "a.yaml nests deeper than 64 levels\n"),
            (&bomb, "a.yaml is too large once its aliases are followed\n"),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn a_file_without_resources_is_said_to_be_one() {
        check("", "there is nothing in a.yaml\n");
        check("---\n", "there is nothing in a.yaml\n");
    }
}
