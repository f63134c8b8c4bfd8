//! Texts of tests.

use serde_json::Value;

/// All documents of a YAML text.
pub fn documents(yaml: &str) -> Vec<Value> {
    match serde_saphyr::from_multiple::<Value>(yaml) {
        Ok(documents) => documents.into_iter().filter(|document| !document.is_null()).collect(),
        Err(error) => panic!("the YAML of a test can't be read: {error}\n{yaml}"),
    }
}

/// A value as YAML, for golden texts.
pub fn yaml(value: &impl serde::Serialize) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|error| panic!("no YAML: {error}"))
}

/// Asserts that two texts are the same but for indentation and surrounding space.
pub fn same_text(actual: &str, expected: &str) {
    let (actual, expected) = (dedent(actual), dedent(expected));
    assert!(actual == expected, "\n--- actual ---\n{actual}\n--- expected ---\n{expected}\n");
}

fn dedent(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let indent = |line: &&str| line.len() - line.trim_start().len();
    let margin = lines.iter().filter(|line| !line.is_empty()).map(indent).min().unwrap_or(0);
    let cut: Vec<&str> = lines.iter().map(|line| line.get(margin..).unwrap_or_default()).collect();
    cut.join("\n").trim_matches('\n').to_owned()
}
