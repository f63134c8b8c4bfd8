//! Where drydock is known to answer otherwise, and why.

use std::collections::BTreeSet;

use crate::Mismatch;

/// One `file: step: reason` a line.
const TABLE: &str = include_str!("../fidelity.txt");

/// Who runs the node that a case is played to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// Root, or nobody: there is no node.
    Root,
    /// A plain user, whom the machine grants less.
    Plain,
}

/// What is wrong with how drydock played the case in `file`: answers that differ without a known reason, and reasons
/// for differences that there are no more. Nothing where all is as known. What a plain user's machine does not grant
/// another's may: there, a difference that is known need not be.
#[must_use]
pub fn surprises(file: &str, runs: Runs, mismatches: &[Mismatch]) -> Option<String> {
    let known = known(TABLE, file);
    let perhaps =
        if runs == Runs::Plain { self::known(TABLE, &format!("plain/{file}")) } else { BTreeSet::new() };
    let differing: BTreeSet<&str> = mismatches.iter().map(|mismatch| mismatch.step.as_str()).collect();
    let told = mismatches
        .iter()
        .filter(|mismatch| ![&known, &perhaps].iter().any(|set| set.contains(mismatch.step.as_str())))
        .map(|mismatch| format!("{file}: {}\n{}\n", mismatch.step, mismatch.diff));
    let stale = known
        .difference(&differing)
        .map(|step| format!("{file}: {step}\nis in fidelity.txt, and does not differ\n"));
    let told: String = told.chain(stale).collect();
    (!told.is_empty()).then_some(told)
}

/// The steps of the case in `file` that are known to differ.
fn known<'a>(table: &'a str, file: &str) -> BTreeSet<&'a str> {
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|row| {
        let (in_file, rest) = row.split_once(": ")?;
        let (step, _reason) = rest.split_once(": ")?;
        (in_file == file).then_some(step)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_of_its_file() {
        let table = "# About.\na.txt: one: why: this\nb.txt: two: why\na.txt: three: why\n";
        assert_eq!(known(table, "a.txt"), BTreeSet::from(["one", "three"]));
        assert_eq!(known(table, "c.txt"), BTreeSet::new());
    }

    #[test]
    fn what_is_not_known_and_what_is_no_more_are_both_told() {
        let mismatch = Mismatch { step: "a new one".to_owned(), diff: "-a\n+b".to_owned() };
        let told = surprises("storage.txt", Runs::Root, &[mismatch]).unwrap();
        assert!(
            told.starts_with("storage.txt: a new one\n-a\n+b\nstorage.txt: a claim from another\n"),
            "{told}"
        );
        let mismatch = Mismatch { step: "a claim from another".to_owned(), diff: String::new() };
        assert_eq!(surprises("storage.txt", Runs::Root, &[mismatch]), None);
        let mismatch = Mismatch { step: "what it saw, group".to_owned(), diff: String::new() };
        assert_eq!(surprises("workload/volumes.txt", Runs::Plain, &[mismatch]), None);
        assert_eq!(surprises("workload/volumes.txt", Runs::Plain, &[]), None);
    }
}
