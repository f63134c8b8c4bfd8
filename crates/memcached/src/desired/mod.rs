//! The objects that a cache consists of: one file each, pure builders. All carry the resource's name.

mod deployment;
mod disruption_budget;
mod service;

use std::collections::BTreeMap;

use ballast_operator::View;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::{Cache, LABEL, Memcached};

pub(crate) use deployment::{CONTAINER, deployment};
pub(crate) use disruption_budget::disruption_budget;
pub(crate) use service::service;

/// The name of the port, in the container and in the Service.
pub(crate) const PORT_NAME: &str = "memcached";
/// The port that memcached listens on.
pub(crate) const PORT: i32 = 11211;

/// The labels by which pods are selected. They can't change in the life of a Deployment.
pub(crate) fn selector(cache: &Cache) -> BTreeMap<String, String> {
    labels(&[("app", "memcached"), (LABEL, &cache.name)])
}

fn label_selector(cache: &Cache) -> LabelSelector {
    LabelSelector { match_labels: Some(selector(cache)), match_expressions: None }
}

/// The labels that everything carries: the selector, and those that dashboards and people look for.
fn all_labels(cache: &Cache) -> BTreeMap<String, String> {
    let mut all = selector(cache);
    all.append(&mut labels(&[
        ("app.kubernetes.io/name", "memcached"),
        ("app.kubernetes.io/instance", &cache.name),
        ("app.kubernetes.io/managed-by", "ballast"),
    ]));
    all
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn metadata(view: &View<Memcached>, cache: &Cache) -> ObjectMeta {
    ObjectMeta {
        name: Some(cache.name.clone()),
        namespace: view.namespace().map(str::to_owned),
        labels: Some(all_labels(cache)),
        owner_references: Some(vec![view.owner_reference()]),
        ..ObjectMeta::default()
    }
}
