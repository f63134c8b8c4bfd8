//! The claims of the two volumes: the data's and the backups'. Made here and not by the StatefulSet, whose claims can't
//! grow.

use std::collections::BTreeMap;

use ballast_operator::{KindRef, Object, View, resources::parse};
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{backup_claim_name, data_claim_name, kept};
use crate::{MADE_FOR, OPENED, resource::MySQL, server, validate::Instance};

/// The claim of the data's volume. It says for whom it was made: whoever takes it up later finds data in it. And it says
/// whether a server was started on it, for the pod in which that was seen may be another's by the time it matters.
pub(crate) fn data_claim(view: &View<MySQL>, instance: &Instance) -> PersistentVolumeClaim {
    let name = data_claim_name(&instance.name);
    let live = view.children.object(&KindRef::of::<PersistentVolumeClaim>(), &name);
    let opened = live.is_some_and(|live| is_opened(live)) || server::ran(view) == Some(true);
    let mut claim = claim(view, instance, name, &instance.size, instance.class.as_deref());
    if let Some(annotations) = claim.metadata.annotations.as_mut().filter(|_| opened) {
        annotations.insert(OPENED.to_owned(), "true".to_owned());
    }
    claim
}

/// Whether a server was ever started on a volume, as far as its claim says.
pub(crate) fn is_opened(claim: &Object) -> bool {
    claim.value()["metadata"]["annotations"][OPENED] == "true"
}

/// The claim of the backups' volume.
pub(crate) fn backup_claim(view: &View<MySQL>, instance: &Instance) -> PersistentVolumeClaim {
    let name = backup_claim_name(&instance.name);
    claim(view, instance, name, &instance.backup_size, instance.backup_class.as_deref())
}

fn claim(
    view: &View<MySQL>,
    instance: &Instance,
    name: String,
    size: &str,
    class: Option<&str>,
) -> PersistentVolumeClaim {
    let live = view.children.get::<PersistentVolumeClaim>(&name).and_then(Result::ok);
    let made_for = made_for(view, &name);
    // A volume never shrinks, grows only once it is there, and is of the class that it was made with.
    let bound = live.as_ref().is_some_and(is_bound);
    let size = match live.as_ref().and_then(requested) {
        Some(asked) if !bound || parse(&asked.0) > parse(size) => asked,
        _ => Quantity(size.to_owned()),
    };
    let class = match &live {
        Some(live) => {
            live.spec.as_ref().and_then(|spec| spec.storage_class_name.clone()).filter(|_| class.is_some())
        }
        None => class.map(str::to_owned),
    };
    let mut metadata = kept(view, name, &instance.name, None);
    metadata.annotations = Some(BTreeMap::from([(MADE_FOR.to_owned(), made_for)]));
    PersistentVolumeClaim {
        metadata,
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: class,
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), size)])),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

/// For which instance a volume was made, by its uid; for this one where it is yet to be. One that somebody else made, and
/// had taken up, goes by its own uid: nobody here knows what is in it.
pub(crate) fn made_for(view: &View<MySQL>, claim: &str) -> String {
    let live = view.children.get::<PersistentVolumeClaim>(claim).and_then(Result::ok);
    let made_for = match live {
        Some(PersistentVolumeClaim { metadata, .. }) => {
            metadata.annotations.and_then(|mut all| all.remove(MADE_FOR)).or(metadata.uid)
        }
        None => view.resource.metadata.uid.clone(),
    };
    made_for.unwrap_or_default()
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

/// How much a claim asks for.
pub(crate) fn requested(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage").cloned()
}
