//! The book's page has every field, every reason that a condition can have, and no example that is not taken.
#![expect(clippy::unwrap_used, reason = "in a test a failure is the answer")]

use ballast_mysql::{MySQL, MySQLBackup};
use ballast_staging::{documents, schema::Definition};
use kube_core::CustomResourceExt;
use serde_json::Value;

const PAGE: &str = include_str!("../../../docs/mysql.md");

/// Everything that says what is wrong.
const SOURCES: [&str; 9] = [
    include_str!("../src/backup/plan.rs"),
    include_str!("../src/backups.rs"),
    include_str!("../src/configure.rs"),
    include_str!("../src/plan.rs"),
    include_str!("../src/restore.rs"),
    include_str!("../src/retire.rs"),
    include_str!("../src/server.rs"),
    include_str!("../src/status.rs"),
    include_str!("../src/upgrade.rs"),
];

/// The names of fields, those within others included.
fn fields(schema: &Value, into: &mut Vec<String>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    for (name, below) in properties {
        into.push(name.clone());
        fields(below, into);
    }
}

fn fields_of<R: CustomResourceExt>(part: &str) -> Vec<String> {
    let mut definition = serde_json::to_value(R::crd()).unwrap();
    let schema = definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties").unwrap();
    if let Some(below) = schema[part]["properties"].as_object_mut() {
        // Those of Kubernetes' own types are Kubernetes' to explain.
        for known in ["affinity", "tolerations", "resources", "conditions", "schedule"] {
            below.get_mut(known).into_iter().for_each(|field| *field = Value::Null);
        }
    }
    let mut found = Vec::new();
    fields(&schema[part], &mut found);
    found
}

#[test]
fn every_field_is_in_the_book() {
    let mut all: Vec<String> = Vec::new();
    for part in ["spec", "status"] {
        all.extend(fields_of::<MySQL>(part));
        all.extend(fields_of::<MySQLBackup>(part));
    }
    assert!(all.len() > 40, "{all:?}");
    let words: Vec<&str> = PAGE.split('`').flat_map(|text| text.split(['.', ' ', ','])).collect();
    let missing: Vec<&String> = all.iter().filter(|name| !words.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_reason_that_something_is_wrong_is_in_the_book() {
    let mut reasons = Vec::new();
    for source in SOURCES {
        let mut pieces =
            source.split("Trouble::new(").skip(1).chain(source.split("ConditionStatus::").skip(1));
        reasons.extend(pieces.by_ref().filter_map(|piece| {
            let reason = piece.split('"').nth(1)?;
            let is_next = piece.find('"')? < 30;
            let is_word = reason.chars().all(|letter| letter.is_ascii_alphabetic());
            (is_next && is_word && reason.starts_with(|first: char| first.is_ascii_uppercase()))
                .then_some(reason)
        }));
    }
    reasons.retain(|reason| !["True", "False", "Unknown"].contains(reason));
    reasons.sort_unstable();
    reasons.dedup();
    assert!(reasons.len() > 25, "{reasons:?}");
    let missing: Vec<&&str> =
        reasons.iter().filter(|reason| !PAGE.contains(&format!("`{reason}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn what_is_printed_is_taken() {
    let mut checked = 0;
    for block in PAGE.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        // The one about restoring shows only what matters.
        let whole = if block.starts_with("spec:") {
            format!(
                "apiVersion: operators.example.com/v1alpha1\nkind: MySQL\nmetadata: {{name: shop}}\n{block}"
            )
        } else {
            block.to_owned()
        };
        for document in documents(&whole) {
            let definition = match document["kind"].as_str() {
                Some("MySQL") => Definition::of::<MySQL>(),
                Some("MySQLBackup") => Definition::of::<MySQLBackup>(),
                other => panic!("{other:?}"),
            };
            assert_eq!(definition.refusals(&document), "", "{whole}");
            checked += 1;
        }
    }
    assert_eq!(checked, 3);
}
