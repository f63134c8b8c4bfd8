//! What holds for the house as a whole: the map of its rooms, the size of its files, what is left lying about.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Past that many lines a file is two ideas.
const LINES: usize = 600;

/// Notes to oneself, and ways around a lint or a test, in two parts so that this file has none.
const LEFT: [[&str; 2]; 5] =
    [["TO", "DO"], ["FIX", "ME"], ["#[ign", "ore"], ["#[al", "low("], ["#![al", "low("]];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below the crates that are called so, or end so.
fn files(ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![root().join("crates")];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if path.to_str().unwrap().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found
}

fn in_the_house(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()
}

#[test]
fn the_map_has_every_room_and_no_other() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let named = map.lines().filter_map(|line| line.strip_prefix("| `crates/")?.split_once('`'));
    let named: BTreeSet<String> = named.map(|(name, _)| format!("crates/{name}")).collect();
    let there: BTreeSet<String> =
        files("/Cargo.toml").iter().map(|file| in_the_house(file.parent().unwrap())).collect();
    let absent: Vec<&String> = there.difference(&named).collect();
    assert!(absent.is_empty(), "not on the map: {absent:?}");
    let stale: Vec<&String> = named.difference(&there).collect();
    assert!(stale.is_empty(), "on the map, and not there: {stale:?}");
}

#[test]
fn no_file_is_two_ideas_and_nothing_is_left_lying_about() {
    let sources = files(".rs");
    assert!(sources.len() > 300, "{}", sources.len());
    let mut wrong = Vec::new();
    for source in sources {
        let (text, name) = (fs::read_to_string(&source).unwrap(), in_the_house(&source));
        let lines = text.lines().count();
        if lines > LINES {
            wrong.push(format!("{name} has {lines} lines"));
        }
        let left = LEFT.iter().map(|parts| parts.concat()).filter(|word| text.contains(word.as_str()));
        wrong.extend(left.map(|word| format!("{name} has a {word}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
