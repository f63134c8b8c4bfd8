//! What becomes of a volume. Pure.

use super::claim::Told;
use super::{BOUND_BY_CONTROLLER, PROVISIONED_BY};
use crate::objects::storage::{Claim, Volume, same_mode};

/// What is to be done for a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Its phase is this, and nothing else is to be done.
    Phase(&'static str),
    /// The claim is to finish what was begun.
    LeaveToClaim,
    /// Claim and volume can't come together: what is told about the volume, and about the claim.
    Mismatch(Told, Told),
    /// It is bound to a claim that has another.
    Unbind,
    /// Its claim is gone, and so, or otherwise, shall it be.
    Release(Reclaim),
}

/// What becomes of a volume whose claim is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// It stays as it is.
    Keep,
    /// Whoever made it removes it.
    LeaveToProvisioner,
    /// Nobody can do what is asked.
    Fail(Told),
}

/// Decides. `claim` is the one of the name that the volume says, whatever its uid.
pub fn decide(volume: &Volume, claim: Option<&Claim>) -> Plan {
    let Some(of) = &volume.spec.claim_ref else { return Plan::Phase("Available") };
    if of.uid.is_empty() {
        return Plan::Phase("Available");
    }
    let Some(claim) = claim.filter(|claim| claim.metadata.uid == of.uid) else {
        return Plan::Release(reclaim(volume));
    };
    if claim.spec.volume_name.is_empty() {
        if same_mode(&claim.spec.volume_mode, &volume.spec.volume_mode) {
            return Plan::LeaveToClaim;
        }
        let (volume, claim) = (&volume.metadata.name, &claim.metadata.name);
        let on_volume = format!(
            "Cannot bind PersistentVolume to requested PersistentVolumeClaim {claim:?} due to incompatible volumeMode."
        );
        let on_claim = format!(
            "Cannot bind PersistentVolume {volume:?} to requested PersistentVolumeClaim due to incompatible volumeMode."
        );
        return Plan::Mismatch(
            Told::warning("VolumeMismatch", on_volume),
            Told::warning("VolumeMismatch", on_claim),
        );
    }
    if *claim.spec.volume_name == *volume.metadata.name {
        return Plan::Phase("Bound");
    }
    // It was made for a claim that took another in the meantime.
    if provisioner(volume).is_some() && &*volume.spec.reclaim_policy == "Delete" {
        return Plan::Release(reclaim(volume));
    }
    Plan::Unbind
}

fn provisioner(volume: &Volume) -> Option<&str> {
    volume.metadata.annotations.get(PROVISIONED_BY).filter(|name| !name.is_empty())
}

fn reclaim(volume: &Volume) -> Reclaim {
    let name = &volume.metadata.name;
    match &*volume.spec.reclaim_policy {
        "Recycle" => {
            Reclaim::Fail(Told::warning("VolumeFailedRecycle", "No recycler plugin found for the volume!"))
        }
        "Delete" if provisioner(volume).is_some_and(|name| !name.starts_with("kubernetes.io/")) => {
            Reclaim::LeaveToProvisioner
        }
        "Delete" if volume.spec.by_driver => Reclaim::LeaveToProvisioner,
        "Delete" => {
            let message = match &volume.spec.host_path {
                Some(path) if !path.starts_with("/tmp/") => {
                    format!("host_path deleter only supports /tmp/.+ but received provided {path}")
                }
                _ => format!(
                    "error getting deleter volume plugin for volume {name:?}: no volume plugin matched"
                ),
            };
            Reclaim::Fail(Told::warning("VolumeFailedDelete", message))
        }
        _ => Reclaim::Keep,
    }
}

/// Whether the binding of this volume to its claim was the controller's doing.
pub fn bound_by_controller(volume: &Volume) -> bool {
    volume.metadata.annotations.get(BOUND_BY_CONTROLLER).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(spec: Value, claim: Option<(&str, &str)>, expected: &str) {
        let made_by = spec["madeBy"].as_str().unwrap_or_default();
        let volume = json!({
            "metadata": { "name": "v", "annotations": { "pv.kubernetes.io/provisioned-by": made_by } },
            "spec": spec,
        });
        let volume: Volume = serde_json::from_value(volume).unwrap();
        let claim = claim.map(|(uid, volume)| -> Claim {
            let claim = json!({ "metadata": { "name": "c", "uid": uid }, "spec": { "volumeName": volume } });
            serde_json::from_value(claim).unwrap()
        });
        let shown = match decide(&volume, claim.as_ref()) {
            Plan::Phase(phase) => phase.to_owned(),
            Plan::LeaveToClaim => "left to the claim".to_owned(),
            Plan::Mismatch(one, other) => format!("{} / {}", one.message, other.message),
            Plan::Unbind => "unbound".to_owned(),
            Plan::Release(Reclaim::Keep) => "kept".to_owned(),
            Plan::Release(Reclaim::LeaveToProvisioner) => "left to who made it".to_owned(),
            Plan::Release(Reclaim::Fail(told)) => format!("{}: {}", told.reason, told.message),
        };
        assert_eq!(shown, expected);
    }

    fn of(uid: &str, more: Value) -> Value {
        let mut spec = json!({ "claimRef": { "namespace": "n", "name": "c", "uid": uid } });
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        spec
    }

    #[test]
    fn a_volume_is_available_until_a_claim_has_it() {
        check(json!({}), None, "Available");
        check(of("", json!({})), None, "Available");
        check(of("u", json!({})), Some(("u", "")), "left to the claim");
        check(of("u", json!({})), Some(("u", "v")), "Bound");
        check(of("u", json!({})), Some(("u", "w")), "unbound");
        let made = json!({"madeBy": "x.io/disk", "persistentVolumeReclaimPolicy": "Delete"});
        check(of("u", made), Some(("u", "w")), "left to who made it");
        check(
            of("u", json!({"volumeMode": "Block"})),
            Some(("u", "")),
            "Cannot bind PersistentVolume to requested PersistentVolumeClaim \"c\" due to incompatible volumeMode. / \
             Cannot bind PersistentVolume \"v\" to requested PersistentVolumeClaim due to incompatible volumeMode.",
        );
    }

    #[test]
    fn what_becomes_of_a_volume_without_its_claim_is_for_the_policy_to_say() {
        let policy = |policy: &str, more: Value| {
            let mut more = more;
            more["persistentVolumeReclaimPolicy"] = json!(policy);
            of("u", more)
        };
        check(policy("Retain", json!({})), None, "kept");
        check(policy("Retain", json!({"madeBy": "x.io/disk"})), Some(("another", "v")), "kept");
        check(policy("Delete", json!({"madeBy": "x.io/disk"})), None, "left to who made it");
        check(policy("Delete", json!({"csi": {"driver": "x.io"}})), None, "left to who made it");
        check(
            policy("Delete", json!({"local": {"path": "/x"}})),
            None,
            "VolumeFailedDelete: error getting deleter volume plugin for volume \"v\": no volume plugin matched",
        );
        check(
            policy("Delete", json!({"hostPath": {"path": "/x"}})),
            None,
            "VolumeFailedDelete: host_path deleter only supports /tmp/.+ but received provided /x",
        );
        let recycled = "VolumeFailedRecycle: No recycler plugin found for the volume!";
        check(policy("Recycle", json!({"local": {"path": "/x"}})), None, recycled);
    }
}
