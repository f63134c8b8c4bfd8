//! Nobody grants what they do not hold.

use drydock_access::{Identity, RbacWrite};
use serde_json::Value;

use crate::{call::Call, failure::Failure, object::meta};

/// Refuses a role or binding that gives more than its writer has.
pub(super) fn check_escalation(call: &Call<'_>, object: &Value, old: Option<&Value>) -> Result<(), Failure> {
    if call.identity.is_in(Identity::MASTERS) {
        return Ok(());
    }
    let write = RbacWrite {
        identity: call.identity,
        resource: &call.kind.plural,
        namespace: call.namespace(),
        path_name: call.name(),
        object,
        old,
    };
    call.api.policy().guard(&write).map_err(|refusal| match Failure::from(refusal) {
        Failure::Forbidden { resource, name, why, causes } if name.is_empty() => {
            Failure::Forbidden { resource, name: meta(object, "name").to_owned(), why, causes }
        }
        other => other,
    })
}
