//! The ConfigMap that holds a script which stands in the spec.

use std::collections::BTreeMap;

use ballast_operator::View;
use k8s_openapi::api::core::v1::ConfigMap;

use super::{agent::SCRIPT_FILE, owned, script_name};
use crate::{resource::MySQL, validate::Instance};

pub(crate) fn script(view: &View<MySQL>, instance: &Instance, text: &str) -> ConfigMap {
    ConfigMap {
        metadata: owned(view, script_name(&instance.name), &instance.name, None),
        data: Some(BTreeMap::from([(SCRIPT_FILE.to_owned(), text.to_owned())])),
        ..ConfigMap::default()
    }
}
