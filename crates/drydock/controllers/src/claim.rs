//! Which objects a controller may call its own: the three-way agreement between selector, labels and
//! controller reference that ReplicaSets have with pods and Deployments with ReplicaSets. Pure.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::machinery::cache::Object;
use crate::objects::meta::{Meta, OwnerReference};
use crate::objects::selector::LabelSelector;

/// What becomes of the candidates.
#[derive(Debug)]
pub struct Claim<T> {
    /// Its own, and stay so.
    pub own: Vec<Arc<T>>,
    /// Without a controller, and selected: to be taken.
    pub adopt: Vec<Arc<T>>,
    /// Its own, and no longer selected: to be let go.
    pub release: Vec<Arc<T>>,
}

/// Sorts the candidates: those that `owner` manages, and those of its namespace that nobody manages. An
/// owner that is being deleted neither takes nor lets go, and nothing that is being deleted is taken.
pub fn claim<T: Object>(
    owner: &Meta,
    selector: &LabelSelector,
    candidates: impl IntoIterator<Item = Arc<T>>,
) -> Claim<T> {
    let mut claim = Claim { own: Vec::new(), adopt: Vec::new(), release: Vec::new() };
    for candidate in candidates {
        let meta = candidate.meta();
        let selected = !selector.is_empty() && selector.matches(&meta.labels);
        match meta.controller() {
            Some(controller) if controller.uid != owner.uid => {}
            Some(_) if selected => claim.own.push(candidate),
            Some(_) if owner.deleting() => {}
            Some(_) => claim.release.push(candidate),
            None if selected && !owner.deleting() && !meta.deleting() => claim.adopt.push(candidate),
            None => {}
        }
    }
    claim
}

/// The strategic merge patch that makes `owner` the controller, if the object still has this uid.
pub fn adoption(owner: OwnerReference, uid: &str) -> Value {
    json!({ "metadata": { "ownerReferences": [owner], "uid": uid } })
}

/// The strategic merge patch that removes `owner` from the object, if it still has this uid.
pub fn release(owner: &str, uid: &str) -> Value {
    json!({ "metadata": { "ownerReferences": [{ "$patch": "delete", "uid": owner }], "uid": uid } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::pod::Pod;

    fn pod(name: &str, app: &str, owner: &str, deleting: bool) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.name = name.into();
        pod.metadata.labels = [("app", app)].into_iter().collect();
        if !owner.is_empty() {
            let owner = OwnerReference { uid: owner.into(), controller: Some(true), ..Default::default() };
            pod.metadata.owner_references.push(owner);
        }
        pod.metadata.deletion_timestamp = deleting.then(|| "2026-01-01T00:00:00Z".parse().unwrap());
        Arc::new(pod)
    }

    #[track_caller]
    fn check(owner_deleting: bool, expected: &str) {
        let mut owner = Meta { uid: "me".into(), ..Default::default() };
        owner.deletion_timestamp = owner_deleting.then(|| "2026-01-01T00:00:00Z".parse().unwrap());
        let selector =
            LabelSelector { match_labels: [("app", "x")].into_iter().collect(), ..Default::default() };
        let candidates = [
            pod("mine", "x", "me", false),
            pod("mine-relabelled", "y", "me", false),
            pod("orphan", "x", "", false),
            pod("orphan-of-another-app", "y", "", false),
            pod("orphan-going", "x", "", true),
            pod("anothers", "x", "other", false),
        ];
        let claim = claim(&owner, &selector, candidates);
        let names =
            |pods: &[Arc<Pod>]| pods.iter().map(|pod| &*pod.metadata.name).collect::<Vec<_>>().join(",");
        let told = format!(
            "own {} adopt {} release {}",
            names(&claim.own),
            names(&claim.adopt),
            names(&claim.release)
        );
        assert_eq!(told, expected);
    }

    #[test]
    fn what_is_selected_is_kept_or_taken_and_the_rest_let_go() {
        check(false, "own mine adopt orphan release mine-relabelled");
    }

    #[test]
    fn an_owner_that_is_being_deleted_takes_and_releases_nothing() {
        check(true, "own mine adopt  release ");
    }
}
