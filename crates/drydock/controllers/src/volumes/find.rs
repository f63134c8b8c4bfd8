//! Which volume a claim gets. Pure.

use std::sync::Arc;

use crate::objects::meta::Meta;
use crate::objects::storage::{Claim, Volume, same_mode};

/// Who looks for a volume.
#[derive(Clone, Copy, Debug)]
pub enum For<'a> {
    /// The binder: any will do.
    Anyone,
    /// The binder, for a claim whose pod is not placed yet: only one that is meant for it.
    Later,
    /// The scheduler: one that this node reaches.
    Node(&'a Meta),
}

/// The volume that is meant for the claim, otherwise the smallest that will do: with the fewest ways to mount it, then
/// by size, then by name.
pub fn find<'a>(
    claim: &Claim,
    volumes: impl IntoIterator<Item = &'a Arc<Volume>>,
    who: For<'_>,
) -> Option<&'a Arc<Volume>> {
    let (mut meant, mut best) = (None, None::<&Arc<Volume>>);
    for volume in volumes.into_iter().filter(|volume| could(claim, volume)) {
        let reached = match who {
            For::Node(node) => volume.reached_from(node),
            For::Anyone | For::Later => true,
        };
        if volume.is_for(claim) {
            meant = Some(volume).filter(|_| reached);
            break;
        }
        if matches!(who, For::Later) || !reached || !fits(claim, volume) {
            continue;
        }
        let rank = |one: &Arc<Volume>| (one.spec.access_modes.len(), one.capacity());
        if best.is_none_or(|best| (rank(volume), &volume.metadata.name) < (rank(best), &best.metadata.name)) {
            best = Some(volume);
        }
    }
    meant.or(best)
}

/// What holds for a volume that is meant for the claim, too.
fn could(claim: &Claim, volume: &Volume) -> bool {
    (volume.spec.claim_ref.is_none() || volume.is_for(claim))
        && volume.capacity() >= claim.requested()
        && same_mode(&claim.spec.volume_mode, &volume.spec.volume_mode)
        && has_modes(claim, volume)
        && !volume.metadata.deleting()
}

/// What holds for one that is anybody's.
fn fits(claim: &Claim, volume: &Volume) -> bool {
    &*volume.status.phase == "Available"
        && claim.spec.selector.as_ref().is_none_or(|selector| selector.matches(&volume.metadata.labels))
        && volume.class() == claim.class()
}

fn has_modes(claim: &Claim, volume: &Volume) -> bool {
    claim.spec.access_modes.iter().all(|mode| volume.spec.access_modes.contains(mode))
}

/// Why a volume that a claim names can't be its, in Kubernetes' words.
pub fn mismatch(claim: &Claim, volume: &Volume) -> Option<String> {
    if volume.metadata.deleting() {
        return Some(format!("the volume is marked for deletion {:?}", volume.metadata.name));
    }
    let why = if volume.capacity() < claim.requested() {
        "requested PV is too small"
    } else if volume.class() != claim.class() {
        "storageClassName does not match"
    } else if !same_mode(&claim.spec.volume_mode, &volume.spec.volume_mode) {
        "incompatible volumeMode"
    } else if !has_modes(claim, volume) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn volume(name: &str, size: &str, more: Value) -> Arc<Volume> {
        let mut volume = json!({
            "metadata": { "name": name },
            "spec": { "capacity": { "storage": size }, "accessModes": ["ReadWriteOnce"] },
            "status": { "phase": "Available" },
        });
        for (field, value) in more.as_object().unwrap() {
            match field.as_str() {
                "labels" => volume["metadata"]["labels"] = value.clone(),
                "phase" => volume["status"]["phase"] = value.clone(),
                field => volume["spec"][field] = value.clone(),
            }
        }
        Arc::new(serde_json::from_value(volume).unwrap())
    }

    fn claim(more: Value) -> Claim {
        let mut claim = json!({
            "metadata": { "namespace": "n", "name": "c", "uid": "u" },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        });
        for (field, value) in more.as_object().unwrap() {
            claim["spec"][field] = value.clone();
        }
        serde_json::from_value(claim).unwrap()
    }

    #[track_caller]
    fn check(wish: Value, volumes: &[Arc<Volume>], who: For<'_>, expected: Option<&str>) {
        let found = find(&claim(wish), volumes, who).map(|volume| volume.metadata.name.to_string());
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn the_smallest_volume_that_will_do_is_taken() {
        let volumes = [
            volume("large", "3Gi", json!({})),
            volume("middle", "2Gi", json!({})),
            volume("small", "1Mi", json!({})),
            volume("taken", "1Gi", json!({"claimRef": {"namespace": "n", "name": "other"}})),
            volume("released", "1Gi", json!({"phase": "Released"})),
            volume("classy", "1Gi", json!({"storageClassName": "fast"})),
            volume("block", "1Gi", json!({"volumeMode": "Block"})),
            volume("shared", "1Gi", json!({"accessModes": ["ReadWriteOnce", "ReadWriteMany"]})),
            volume("blue", "9Gi", json!({"labels": {"colour": "blue"}, "accessModes": ["ReadOnlyMany"]})),
        ];
        check(json!({}), &volumes, For::Anyone, Some("middle"));
        check(json!({"storageClassName": ""}), &volumes, For::Anyone, Some("middle"));
        check(json!({"storageClassName": "fast"}), &volumes, For::Anyone, Some("classy"));
        check(json!({"volumeMode": "Block"}), &volumes, For::Anyone, Some("block"));
        check(json!({"accessModes": ["ReadWriteMany"]}), &volumes, For::Anyone, Some("shared"));
        let blue = json!({"selector": {"matchLabels": {"colour": "blue"}}, "accessModes": ["ReadOnlyMany"]});
        check(blue, &volumes, For::Anyone, Some("blue"));
        check(json!({"resources": {"requests": {"storage": "4Gi"}}}), &volumes, For::Anyone, None);
        check(json!({}), &volumes, For::Later, None);
    }

    #[test]
    fn a_volume_that_is_meant_for_the_claim_goes_before_all_others() {
        let volumes = [
            volume("small", "1Gi", json!({})),
            volume("mine", "3Gi", json!({"claimRef": {"namespace": "n", "name": "c"}, "phase": "Pending"})),
        ];
        check(json!({}), &volumes, For::Anyone, Some("mine"));
        check(json!({}), &volumes, For::Later, Some("mine"));
        let of_another =
            volume("mine", "3Gi", json!({"claimRef": {"namespace": "n", "name": "c", "uid": "earlier"}}));
        check(json!({}), &[of_another], For::Anyone, None);
    }

    #[test]
    fn the_scheduler_takes_what_the_node_reaches() {
        let on = |node: &str| json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "host", "operator": "In", "values": [node]}]}]}}});
        let volumes = [volume("there", "1Gi", on("b")), volume("here", "2Gi", on("a"))];
        let node: Meta = serde_json::from_value(json!({"name": "a", "labels": {"host": "a"}})).unwrap();
        check(json!({}), &volumes, For::Node(&node), Some("here"));
        check(json!({}), &volumes, For::Anyone, Some("there"));
    }

    #[test]
    fn a_volume_that_was_asked_for_by_name_must_fit() {
        let check = |wish: Value, more: Value, expected: Option<&str>| {
            assert_eq!(mismatch(&claim(wish), &volume("v", "1Gi", more)).as_deref(), expected);
        };
        check(json!({}), json!({}), None);
        let large = json!({"resources": {"requests": {"storage": "2Gi"}}});
        check(large, json!({}), Some("requested PV is too small"));
        check(json!({}), json!({"storageClassName": "x"}), Some("storageClassName does not match"));
        check(json!({}), json!({"volumeMode": "Block"}), Some("incompatible volumeMode"));
        check(json!({}), json!({"accessModes": ["ReadOnlyMany"]}), Some("incompatible accessMode"));
    }
}
