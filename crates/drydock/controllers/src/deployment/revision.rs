//! Revisions: the annotations by which a Deployment and its ReplicaSets remember what was rolled out when.

use crate::objects::meta::Pairs;
use crate::objects::workload::{Deployment, ReplicaSet};

/// The revision of a ReplicaSet, and of the Deployment when that set is its current one.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// The revisions a set had before, when it was rolled back to.
pub const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The size of the Deployment when the set was last scaled.
pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// How many pods the Deployment could have then.
pub const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";

/// Annotations of a Deployment that are not handed down.
const OWN: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "deprecated.deployment.rollback.to",
    REVISION,
    HISTORY,
    DESIRED,
    MAXIMUM,
];

/// How long the history may become, in characters: some hundred revisions.
const LONGEST_HISTORY: usize = 2000;

/// The revision of a set; nothing readable is none.
pub fn revision(set: &ReplicaSet) -> i64 {
    set.metadata.annotations.get(REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// A count kept in an annotation.
pub fn count(annotations: &Pairs, name: &str) -> Option<i32> {
    annotations.get(name)?.parse().ok().filter(|count| *count >= 0)
}

/// The annotations of the current set, brought up to date: those of the Deployment are handed down, and its
/// revision is at least `revision`. A set that had one before remembers it.
pub fn hand_down(deployment: &Deployment, annotations: &mut Pairs, revision: i64) {
    for (name, value) in deployment.metadata.annotations.iter().filter(|(name, _)| !OWN.contains(name)) {
        annotations.set(name, value);
    }
    let before = annotations.get(REVISION).map(str::to_owned);
    let known = match &before {
        Some(text) => match text.parse::<i64>() {
            Ok(known) => known,
            // Somebody wrote something else there; it is not overwritten.
            Err(_) if !text.is_empty() => return,
            Err(_) => 0,
        },
        None => 0,
    };
    if known >= revision {
        return;
    }
    annotations.set(REVISION, &revision.to_string());
    if let Some(before) = before {
        let history = annotations.get(HISTORY).unwrap_or_default();
        let longer = remember(history, &before);
        annotations.set(HISTORY, &longer);
    }
}

/// The history with one more revision, without the oldest where it grows too long.
fn remember(history: &str, revision: &str) -> String {
    if history.is_empty() {
        return revision.to_owned();
    }
    let mut longer = format!("{history},{revision}");
    while longer.len() > LONGEST_HISTORY {
        match longer.split_once(',') {
            Some((_, rest)) => longer = rest.to_owned(),
            None => return history.to_owned(),
        }
    }
    longer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(deployment: &[(&str, &str)], set: &[(&str, &str)], revision: i64, expected: &str) {
        let mut owner = Deployment::default();
        owner.metadata.annotations = deployment.iter().copied().collect();
        let mut annotations: Pairs = set.iter().copied().collect();
        hand_down(&owner, &mut annotations, revision);
        let told: Vec<_> = annotations
            .iter()
            .map(|(name, value)| format!("{}={value}", name.rsplit('/').next().unwrap()))
            .collect();
        assert_eq!(told.join(" "), expected);
    }

    #[test]
    fn annotations_are_handed_down_except_the_deployments_own() {
        let own = [("a", "1"), (REVISION, "9"), ("kubectl.kubernetes.io/last-applied-configuration", "{}")];
        check(&own, &[], 1, "a=1 revision=1");
    }

    #[test]
    fn a_set_that_is_rolled_back_to_remembers_its_revisions() {
        check(&[], &[(REVISION, "1")], 4, "revision=4 revision-history=1");
        check(&[], &[(REVISION, "4"), (HISTORY, "1")], 7, "revision=7 revision-history=1,4");
    }

    #[test]
    fn a_revision_never_goes_back_and_a_foreign_one_stays() {
        check(&[], &[(REVISION, "5")], 3, "revision=5");
        check(&[], &[(REVISION, "mine")], 3, "revision=mine");
    }

    #[test]
    fn the_history_drops_its_oldest_when_it_grows_too_long() {
        let long = (1000..1400).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
        let longer = remember(&long, "1400");
        assert!(longer.len() <= LONGEST_HISTORY && longer.ends_with(",1400"));
    }
}
