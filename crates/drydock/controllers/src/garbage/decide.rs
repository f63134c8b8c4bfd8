//! What becomes of one object, given what the server just said of it and of its owners. Pure.

use crate::machinery::rest::Propagation;
use crate::objects::meta::{Meta, OwnerReference};

use super::graph::{FOREGROUND, ORPHAN};

/// What the server says of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It is there.
    Solid,
    /// It is there, and waits for its dependents to go.
    Waiting,
    /// There is none with that uid.
    Absent,
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// It stays.
    Keep,
    /// It stays, with only these owners.
    KeepOwners(Vec<OwnerReference>),
    /// It goes, at the version that was seen.
    Delete(Propagation),
    /// It goes after its dependents; but one of those waits for its own, which may be a circle, so it blocks
    /// nobody any more.
    UnblockAndDelete(Vec<OwnerReference>),
}

/// Decides. `dependents` says whether others depend on it, and `waiting` whether one of those waits for its
/// own dependents.
pub fn decide(live: &Meta, owners: &[Owner], dependents: bool, waiting: bool) -> Decision {
    if live.owner_references.is_empty() {
        return Decision::Keep;
    }
    if owners.contains(&Owner::Solid) {
        if owners.iter().all(|owner| *owner == Owner::Solid) {
            return Decision::Keep;
        }
        // What is gone, and what would wait for this one for ever, is dropped.
        let pairs = live.owner_references.iter().zip(owners);
        return Decision::KeepOwners(
            pairs
                .filter(|(_, owner)| **owner == Owner::Solid)
                .map(|(reference, _)| reference.clone())
                .collect(),
        );
    }
    if owners.contains(&Owner::Waiting) && dependents {
        if waiting && live.owner_references.iter().any(|owner| owner.block_owner_deletion == Some(true)) {
            let unblocked = live.owner_references.iter().cloned();
            return Decision::UnblockAndDelete(
                unblocked
                    .map(|owner| OwnerReference { block_owner_deletion: Some(false), ..owner })
                    .collect(),
            );
        }
        return Decision::Delete(Propagation::Foreground);
    }
    // What was asked for when it was deleted before is kept to.
    Decision::Delete(if live.has_finalizer(ORPHAN) {
        Propagation::Orphan
    } else if live.has_finalizer(FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(owners: &[Owner], dependents: bool, waiting: bool, finalizers: &[&str], expected: &str) {
        let references = (0..owners.len())
            .map(|at| OwnerReference {
                uid: format!("o{at}").into(),
                block_owner_deletion: Some(true),
                ..OwnerReference::default()
            })
            .collect();
        let finalizers = finalizers.iter().map(|finalizer| (*finalizer).into()).collect();
        let live = Meta { owner_references: references, finalizers, ..Meta::default() };
        let names =
            |owners: &[OwnerReference]| owners.iter().map(|owner| &*owner.uid).collect::<Vec<_>>().join(",");
        let told = match decide(&live, owners, dependents, waiting) {
            Decision::Keep => "keep".to_owned(),
            Decision::KeepOwners(owners) => format!("keep with {}", names(&owners)),
            Decision::Delete(propagation) => format!("delete {propagation:?}"),
            Decision::UnblockAndDelete(owners) => format!("unblock {} and delete", names(&owners)),
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn one_living_owner_is_enough_to_stay_and_the_others_are_dropped() {
        check(&[], false, false, &[], "keep");
        check(&[Owner::Solid], false, false, &[], "keep");
        check(&[Owner::Solid, Owner::Absent], false, false, &[], "keep with o0");
        check(&[Owner::Waiting, Owner::Solid, Owner::Absent], true, false, &[], "keep with o1");
    }

    #[test]
    fn without_a_living_owner_it_goes_as_was_asked() {
        check(&[Owner::Absent], true, false, &[], "delete Background");
        check(&[Owner::Absent], true, false, &["orphan"], "delete Orphan");
        check(&[Owner::Absent], true, false, &["foregroundDeletion"], "delete Foreground");
        check(&[Owner::Waiting], false, false, &[], "delete Background");
    }

    #[test]
    fn under_an_owner_that_waits_it_waits_for_its_own() {
        check(&[Owner::Waiting, Owner::Absent], true, false, &[], "delete Foreground");
        check(&[Owner::Waiting], true, true, &[], "unblock o0 and delete");
    }
}
