//! Nothing is made in a namespace that is not there or is going.

use crate::{
    call::Call,
    failure::{Cause, Failure, GroupResource},
    object,
};

/// Namespaces that can't be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Refuses a new object in a namespace that is not there or is going.
pub(super) fn check_creation(call: &Call<'_>, name: &str) -> Result<(), Failure> {
    let namespace = call.namespace();
    if namespace.is_empty() || call.kind.is_virtual() {
        return Ok(());
    }
    let key = drydock_store::Key::new("/namespaces", "", namespace);
    let Some(found) = call.api.store().get(&key) else {
        return Err(Failure::NotFound(GroupResource::new("", "namespaces"), namespace.to_owned()));
    };
    if found.facets.field("status.phase") != Some("Terminating") {
        return Ok(());
    }
    Err(Failure::Forbidden {
        resource: Some(object::resource_of(&call.kind)),
        name: name.to_owned(),
        why: format!("unable to create new content in namespace {namespace} because it is being terminated"),
        causes: vec![Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".into(),
        }],
    })
}

/// Refuses to delete a namespace that the cluster can't be without.
pub(crate) fn check_deletion(name: &str) -> Result<(), Failure> {
    if IMMORTAL.contains(&name) {
        let resource = GroupResource::new("", "namespaces");
        return Err(Failure::forbidden(resource, name, "this namespace may not be deleted"));
    }
    Ok(())
}
