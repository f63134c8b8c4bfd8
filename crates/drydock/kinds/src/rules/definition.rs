//! Custom resource definitions, as objects.

use serde_json::json;

use super::{PLAIN, Rules};
use crate::{crd, json};

pub(crate) const DEFINITION: Rules = Rules {
    default: crd::default,
    create: |object| {
        json::set(object, "status", json!({"acceptedNames": {"plural": "", "kind": ""}, "conditions": null}));
        crd::remember_storage_version(object);
    },
    update: |new, _| crd::remember_storage_version(new),
    validate: crd::validate,
    validate_update: crd::validate_update,
    ..PLAIN
};
