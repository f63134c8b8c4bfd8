//! The budget that lets one node go at a time.

use ballast_operator::View;
use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::{label_selector, metadata};
use crate::{Cache, Memcached};

/// One node at a time, also when there is only one: a drain of the machine must not hang on a cache.
pub(crate) fn disruption_budget(view: &View<Memcached>, cache: &Cache) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: metadata(view, cache),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(label_selector(cache)),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}
