//! Who holds the names that an instance needs.

use ballast_operator::{KindRef, Scope, Taken, View};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    batch::v1::{CronJob, Job},
    core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service},
};
use kube_core::Resource;

use crate::{LABEL, desired, resource::MySQL};

/// The first name that somebody else holds of those without which there is no server.
pub(crate) fn taken(view: &View<MySQL>) -> Option<Taken> {
    let name = view.name();
    kept::<Secret>(view, &desired::secret_name(name))
        .or_else(|| kept::<PersistentVolumeClaim>(view, &desired::data_claim_name(name)))
        .or_else(|| kept::<PersistentVolumeClaim>(view, &desired::backup_claim_name(name)))
        .or_else(|| view.taken::<Service>(&desired::server_name(name)))
        .or_else(|| view.taken::<StatefulSet>(&desired::server_name(name)))
}

/// The first name that somebody else holds of those that a server which serves goes on without.
pub(crate) fn taken_beside(view: &View<MySQL>) -> Option<Taken> {
    let name = view.name();
    view.taken::<CronJob>(&desired::cron_job_name(name))
        .or_else(|| view.taken::<Job>(&desired::restore_name(name)))
        .or_else(|| view.taken::<Job>(&desired::script_name(name)))
        .or_else(|| view.taken::<Job>(&desired::look_name(name)))
        .or_else(|| view.taken::<ConfigMap>(&desired::script_name(name)))
}

/// What holds data belongs to the instance that is named on it.
fn kept<K>(view: &View<MySQL>, name: &str) -> Option<Taken>
where
    K: Resource<DynamicType = ()>,
    K::Scope: Scope,
{
    let kind = KindRef::of::<K>();
    let found = view.children.object(&kind, name)?;
    if found.label(LABEL) == Some(view.name()) {
        return None;
    }
    Some(Taken::by_a_stranger(format!(
        "the {kind} {name} was not made by a MySQL of this name and is left alone: delete it, give this MySQL another \
         name, or have it taken up with `kubectl label {} {name} {LABEL}={}`",
        kind.plural,
        view.name()
    )))
}
