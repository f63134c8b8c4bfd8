//! The Secret with the passwords. What is in it is minted, and in no plan.

use ballast_operator::View;
use k8s_openapi::api::core::v1::Secret;

use super::{kept, secret_name};
use crate::{resource::MySQL, validate::Instance};

pub(crate) fn secret(view: &View<MySQL>, instance: &Instance) -> Secret {
    Secret {
        metadata: kept(view, secret_name(&instance.name), &instance.name, None),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}
