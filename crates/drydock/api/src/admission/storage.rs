//! What claims and volumes get from the cluster: the default class, protection while they are in use, and the rule
//! for who may grow.

use drydock_kinds::{Kind, quantity::Quantity};
use drydock_store::{Key, Page, Range};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::is;
use crate::{
    call::Call,
    failure::Failure,
    object::{self, meta},
};

const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

/// The annotations by which a class is the default, today's and that of long ago.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// How a claim named its class before there was a field for it.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// A new claim or volume goes only when nothing uses it any more; a controller finds out.
pub(super) fn protect(kind: &Kind, object: &mut Value) {
    let finalizer = if is(kind, "", "persistentvolumeclaims") {
        CLAIM_PROTECTION
    } else if is(kind, "", "persistentvolumes") {
        VOLUME_PROTECTION
    } else {
        return;
    };
    let mut finalizers: Vec<String> = object::finalizers(object).into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|own| own == finalizer) {
        finalizers.push(finalizer.to_owned());
        object::set_finalizers(object, &finalizers);
    }
}

/// A claim that names no class gets the default one, if there is one: of several the youngest, then the first by name.
pub(super) fn default_class(call: &Call<'_>, claim: &mut Value) {
    let named = claim["spec"].get("storageClassName").is_some_and(|class| !class.is_null())
        || claim["metadata"]["annotations"].get(OLD_CLASS).is_some();
    if named || !claim["spec"].is_object() {
        return;
    }
    let range = Range { resource: "storage.k8s.io/storageclasses".into(), namespace: None };
    let classes = call.api.store().list(&range, Page::default()).map(|list| list.items).unwrap_or_default();
    let defaults = classes.iter().filter_map(|stored| object::read_stored(stored).ok()).filter(|class| {
        DEFAULT_CLASS.iter().any(|annotation| class["metadata"]["annotations"][annotation] == "true")
    });
    let age = |class: &Value| meta(class, "creationTimestamp").to_owned();
    let youngest = defaults.min_by(|one, other| {
        age(other).cmp(&age(one)).then_with(|| meta(one, "name").cmp(meta(other, "name")))
    });
    if let Some(class) = youngest {
        claim["spec"]["storageClassName"] = meta(&class, "name").into();
    }
}

/// Refuses a claim to grow that can't.
pub(super) fn check_growth(call: &Call<'_>, old: &Value, new: &Value) -> Result<(), Failure> {
    let size = |claim: &Value| {
        let text = claim["spec"]["resources"]["requests"]["storage"].as_str().unwrap_or("0");
        Quantity::parse(text).map_or(0, |quantity| quantity.millis())
    };
    if call.subresource().is_some() || size(new) <= size(old) {
        return Ok(());
    }
    let refused =
        |why: &str| Err(Failure::forbidden(object::resource_of(&call.kind), meta(new, "name"), why));
    if old["status"]["phase"] != "Bound" {
        return refused("Only bound persistent volume claims can be expanded");
    }
    let class = |claim: &Value| {
        let annotated = claim["metadata"]["annotations"][OLD_CLASS].as_str();
        annotated.or(claim["spec"]["storageClassName"].as_str()).unwrap_or_default().to_owned()
    };
    let grows = class(new) == class(old) && !class(new).is_empty() && {
        let key = Key::new("storage.k8s.io/storageclasses", "", class(new).as_str());
        let found = call.api.store().get(&key).and_then(|stored| object::read_stored(&stored).ok());
        found.is_some_and(|class| class["allowVolumeExpansion"].as_bool() == Some(true))
    };
    if grows {
        return Ok(());
    }
    refused(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    )
}

/// Notes when the phase of a volume changed.
pub(super) fn time_phase(old: Option<&Value>, volume: &mut Value, now: Timestamp) {
    let same = old.is_some_and(|old| old["status"]["phase"] == volume["status"]["phase"]);
    let before = old.map(|old| old["status"]["lastPhaseTransitionTime"].clone()).unwrap_or_default();
    if !volume["status"].is_object() || volume["status"]["lastPhaseTransitionTime"] != before {
        return;
    }
    if !same {
        volume["status"]["lastPhaseTransitionTime"] = json!(object::time(now));
    }
}
