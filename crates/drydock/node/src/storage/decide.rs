//! What is to be done for claims and volumes. Pure: the same objects, the same answer.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{FINALIZER, PROVISIONED_BY, PROVISIONER};
use crate::quantity;

const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The one parameter that a class may have: whether its volumes are as large as they say and no larger.
const HARD_SIZE: &str = "hardSize";

/// Something to be done.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// A claim needs a volume.
    Provision(Arc<PersistentVolumeClaim>, Arc<StorageClass>),
    /// A claim wants its volume to be larger.
    Grow(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>),
    /// A volume is nobody's any more, and shall go.
    Remove(Arc<PersistentVolume>),
    /// A volume that was to go shall stay.
    LetGo(Arc<PersistentVolume>),
}

impl Work {
    /// Whom it is for.
    pub fn uid(&self) -> String {
        let meta = match self {
            Self::Provision(claim, _) | Self::Grow(claim, _) => &claim.metadata,
            Self::Remove(volume) | Self::LetGo(volume) => &volume.metadata,
        };
        meta.uid.clone().unwrap_or_default()
    }

    /// What its outcome depends on of what people write. Once that is another, an earlier failure says nothing.
    pub fn asked(&self) -> Asked {
        match self {
            Self::Provision(claim, class) => {
                Asked { claim: claim.spec.clone(), class: class.metadata.resource_version.clone() }
            }
            Self::Grow(claim, _) => Asked { claim: claim.spec.clone(), class: None },
            Self::Remove(_) | Self::LetGo(_) => Asked::default(),
        }
    }
}

/// See [`Work::asked`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Asked {
    claim: Option<PersistentVolumeClaimSpec>,
    /// The version of the claim's class.
    class: Option<String>,
}

/// Everything there is.
pub(crate) struct View<'a> {
    /// This node.
    pub node: &'a str,
    pub claims: &'a [Arc<PersistentVolumeClaim>],
    pub volumes: &'a [Arc<PersistentVolume>],
    pub classes: &'a [Arc<StorageClass>],
}

/// Decides.
pub(crate) fn decide(view: &View<'_>) -> Vec<Work> {
    let claims = view.claims.iter().filter_map(|claim| for_claim(claim, view));
    let volumes = view.volumes.iter().filter(|volume| is_ours(volume)).filter_map(for_volume);
    claims.chain(volumes).collect()
}

fn annotation<'a>(meta: &'a kube::core::ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Whether a volume was made here.
pub(crate) fn is_ours(volume: &PersistentVolume) -> bool {
    annotation(&volume.metadata, PROVISIONED_BY) == Some(PROVISIONER)
}

/// The name of the volume that is made for a claim. The API's uids are what it is made of; anything else gets none.
pub(crate) fn volume_name(claim: &PersistentVolumeClaim) -> Option<String> {
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    is_plain(uid).then(|| format!("pvc-{uid}"))
}

/// Whether a text can be part of a path and lead nowhere else.
pub(crate) fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text.len() < 64
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// How much a claim asks for.
pub(crate) fn requested(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage")
}

/// How much a volume says it holds.
pub(crate) fn capacity(volume: &PersistentVolume) -> Option<&Quantity> {
    volume.spec.as_ref()?.capacity.as_ref()?.get("storage")
}

fn for_claim(claim: &Arc<PersistentVolumeClaim>, view: &View<'_>) -> Option<Work> {
    let (spec, status) = (claim.spec.as_ref()?, claim.status.as_ref());
    if claim.metadata.deletion_timestamp.is_some() {
        return None;
    }
    if let Some(name) = spec.volume_name.as_deref().filter(|name| !name.is_empty()) {
        if status.and_then(|status| status.phase.as_deref()) != Some("Bound") {
            return None;
        }
        let named = |volume: &&Arc<PersistentVolume>| volume.metadata.name.as_deref() == Some(name);
        let volume = view.volumes.iter().find(named).filter(|volume| is_ours(volume))?;
        let wanted = requested(claim).and_then(quantity::units);
        let has =
            status.and_then(|status| status.capacity.as_ref()?.get("storage")).and_then(quantity::units);
        return (wanted > has).then(|| Work::Grow(claim.clone(), volume.clone()));
    }
    if annotation(&claim.metadata, STORAGE_PROVISIONER) != Some(PROVISIONER) {
        return None;
    }
    let class = spec.storage_class_name.as_deref()?;
    let class = view.classes.iter().find(|known| known.metadata.name.as_deref() == Some(class))?;
    let placed = match annotation(&claim.metadata, SELECTED_NODE) {
        Some(node) => node == view.node,
        None => class.volume_binding_mode.as_deref() != Some("WaitForFirstConsumer"),
    };
    let made = volume_name(claim);
    let there = view.volumes.iter().any(|volume| volume.metadata.name == made);
    let ours = class.provisioner == PROVISIONER && placed && made.is_some() && !there;
    ours.then(|| Work::Provision(claim.clone(), class.clone()))
}

fn for_volume(volume: &Arc<PersistentVolume>) -> Option<Work> {
    let held = volume.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
    let policy = volume.spec.as_ref()?.persistent_volume_reclaim_policy.as_deref();
    if policy != Some("Delete") {
        return held.then(|| Work::LetGo(volume.clone()));
    }
    let phase = volume.status.as_ref()?.phase.as_deref();
    matches!(phase, Some("Released" | "Failed")).then(|| Work::Remove(volume.clone()))
}

/// How large a volume is to be, and whether it must be no larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub bytes: u64,
    pub hard: bool,
}

/// How large a volume in memory may be: half of it, as of every file system there.
pub(crate) fn most_in_memory(memory: u64) -> u64 {
    memory / 2
}

/// Why a volume in memory can't be as large.
pub(crate) fn too_large(bytes: u64, most: u64) -> String {
    format!("{bytes} bytes are more than {most}, half of the node's memory, where volumes of a hard size are")
}

/// What a claim asks for, or why it can't have it. `disk` is the size of the file system that volumes are on, `memory`
/// that of the machine's.
pub(crate) fn size(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    disk: u64,
    memory: u64,
) -> Result<Size, String> {
    let spec = claim.spec.clone().unwrap_or_default();
    if spec.volume_mode.as_deref() == Some("Block") {
        return Err("block volumes are not supported".to_owned());
    }
    if spec.data_source.is_some() || spec.data_source_ref.is_some() {
        return Err("a volume can't be made from another".to_owned());
    }
    if spec.selector.is_some() {
        return Err("claim Selector is not supported".to_owned());
    }
    if class.mount_options.as_ref().is_some_and(|options| !options.is_empty()) {
        return Err("mount options are not supported".to_owned());
    }
    let mut hard = false;
    for (name, value) in class.parameters.iter().flatten() {
        match (name.as_str(), value.as_str()) {
            (HARD_SIZE, "true") => hard = true,
            (HARD_SIZE, "false") => {}
            (HARD_SIZE, other) => return Err(format!("{HARD_SIZE} is true or false, not {other:?}")),
            (other, _) => return Err(format!("there is no parameter {other:?}, only {HARD_SIZE}")),
        }
    }
    let bytes = requested(claim).and_then(quantity::units).ok_or("the claim asks for no storage")?;
    if hard && bytes > most_in_memory(memory) {
        return Err(too_large(bytes, most_in_memory(memory)));
    }
    on_disk(bytes, disk)?;
    Ok(Size { bytes, hard })
}

/// Whether a volume may be as large on such a disk, which it shares with others.
pub(crate) fn on_disk(bytes: u64, disk: u64) -> Result<(), String> {
    if bytes > disk {
        return Err(format!("{bytes} bytes are more than {disk}, the size of the node's disk"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read<K: serde::de::DeserializeOwned>(value: Value) -> Arc<K> {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn class(name: &str, mode: &str) -> Arc<StorageClass> {
        read(json!({"metadata": {"name": name}, "provisioner": PROVISIONER, "volumeBindingMode": mode}))
    }

    fn claim(class: &str, annotations: Value, volume: &str) -> Value {
        let mut all = json!({STORAGE_PROVISIONER: PROVISIONER});
        for (name, value) in annotations.as_object().unwrap() {
            all[name] = value.clone();
        }
        json!({
            "metadata": {"name": "c", "namespace": "n", "uid": "1-2", "annotations": all},
            "spec": {"storageClassName": class, "volumeName": volume, "resources": {"requests": {"storage": "2Gi"}}},
            "status": {"phase": if volume.is_empty() { "Pending" } else { "Bound" }, "capacity": {"storage": "1Gi"}},
        })
    }

    fn volume(phase: &str, policy: &str, by: &str) -> Value {
        json!({
            "metadata": {"name": "pvc-1-2", "uid": "v", "annotations": {PROVISIONED_BY: by}, "finalizers": [FINALIZER]},
            "spec": {"persistentVolumeReclaimPolicy": policy},
            "status": {"phase": phase},
        })
    }

    #[track_caller]
    fn check(claims: &[Value], volumes: &[Value], expected: &[&str]) {
        let claims: Vec<_> = claims.iter().map(|claim| read(claim.clone())).collect();
        let volumes: Vec<_> = volumes.iter().map(|volume| read(volume.clone())).collect();
        let classes = [class("now", "Immediate"), class("later", "WaitForFirstConsumer")];
        let view = View { node: "here", claims: &claims, volumes: &volumes, classes: &classes };
        let shown: Vec<_> = decide(&view)
            .into_iter()
            .map(|work| match work {
                Work::Provision(..) => "provision",
                Work::Grow(..) => "grow",
                Work::Remove(_) => "remove",
                Work::LetGo(_) => "let go",
            })
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_claim_gets_a_volume_once_it_is_this_nodes_turn() {
        check(&[claim("now", json!({}), "")], &[], &["provision"]);
        check(&[claim("later", json!({}), "")], &[], &[]);
        check(&[claim("later", json!({SELECTED_NODE: "here"}), "")], &[], &["provision"]);
        check(&[claim("now", json!({SELECTED_NODE: "there"}), "")], &[], &[]);
        check(&[claim("now", json!({STORAGE_PROVISIONER: "x.io/other"}), "")], &[], &[]);
        check(&[claim("none", json!({}), "")], &[], &[]);
        check(&[claim("now", json!({}), "")], &[volume("Pending", "Delete", PROVISIONER)], &[]);
        let mut going = claim("now", json!({}), "");
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        check(&[going], &[], &[]);
        let mut odd = claim("now", json!({}), "");
        odd["metadata"]["uid"] = json!("../../etc");
        check(&[odd], &[], &[]);
    }

    #[test]
    fn a_volume_grows_goes_or_stays() {
        let bound = [claim("now", json!({}), "pvc-1-2")];
        check(&bound, &[volume("Bound", "Delete", PROVISIONER)], &["grow"]);
        check(&bound, &[volume("Bound", "Delete", "x.io/other")], &[]);
        check(&[], &[volume("Released", "Delete", PROVISIONER)], &["remove"]);
        check(&[], &[volume("Bound", "Delete", PROVISIONER)], &[]);
        check(&[], &[volume("Released", "Retain", PROVISIONER)], &["let go"]);
        check(&[], &[volume("Released", "Delete", "x.io/other")], &[]);
    }

    #[test]
    fn what_can_not_be_had_is_said() {
        let check = |spec: Value, parameters: Value, expected: Result<Size, &str>| {
            let mut claim = claim("now", json!({}), "");
            for (field, value) in spec.as_object().unwrap() {
                claim["spec"][field] = value.clone();
            }
            let class =
                json!({"metadata": {"name": "now"}, "provisioner": PROVISIONER, "parameters": parameters});
            let (claim, class) = (read(claim), read(class));
            let found = size(&claim, &class, 4 << 30, 1 << 30);
            assert_eq!(found.as_ref().map_err(String::as_str), expected.as_ref().map_err(|text| *text));
        };
        check(json!({}), json!({}), Ok(Size { bytes: 2 << 30, hard: false }));
        let left = "2147483648 bytes are more than 536870912, half of the node's memory, where volumes of a hard size are";
        check(json!({}), json!({"hardSize": "true"}), Err(left));
        let small = json!({"resources": {"requests": {"storage": "1Mi"}}});
        check(small, json!({"hardSize": "true"}), Ok(Size { bytes: 1 << 20, hard: true }));
        let large = json!({"resources": {"requests": {"storage": "1Ti"}}});
        let disk = "1099511627776 bytes are more than 4294967296, the size of the node's disk";
        check(large, json!({}), Err(disk));
        check(json!({"volumeMode": "Block"}), json!({}), Err("block volumes are not supported"));
        check(json!({}), json!({"a": "b"}), Err("there is no parameter \"a\", only hardSize"));
        check(json!({}), json!({"hardSize": "1"}), Err("hardSize is true or false, not \"1\""));
    }
}
