//! A pod's quality of service, and what follows from it when memory is short.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::observed::init_containers;
use crate::quantity;

/// How much a pod was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quality {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl Quality {
    pub fn name(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

/// The quality that the containers' requests and limits make.
pub(crate) fn of(spec: &PodSpec) -> Quality {
    let mut any = false;
    let mut guaranteed = true;
    for container in spec.containers.iter().chain(init_containers(spec)) {
        for resource in ["cpu", "memory"] {
            let (request, limit) = (amount(container, false, resource), amount(container, true, resource));
            any |= request > 0 || limit > 0;
            guaranteed &= limit > 0 && (request == limit || request == 0);
        }
    }
    match (any, guaranteed) {
        (false, _) => Quality::BestEffort,
        (true, true) => Quality::Guaranteed,
        (true, false) => Quality::Burstable,
    }
}

/// How readily the kernel ends a container's processes: the numbers that a kubelet gives.
pub(crate) fn oom_score(spec: &PodSpec, container: &Container, machine_memory: u64) -> i32 {
    match of(spec) {
        Quality::Guaranteed => -997,
        Quality::BestEffort => 1000,
        Quality::Burstable => {
            let request = amount(container, false, "memory") / 1_000_000_000;
            let share = 1000 * request / i128::from(machine_memory.max(1));
            i32::try_from((1000 - share).clamp(3, 999)).unwrap_or(999)
        }
    }
}

fn amount(container: &Container, limit: bool, resource: &str) -> i128 {
    let resources = container.resources.as_ref();
    let map = resources
        .and_then(|resources| if limit { resources.limits.as_ref() } else { resources.requests.as_ref() });
    map.and_then(|map| map.get(resource)).and_then(|quantity| quantity::nanos(&quantity.0)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(resources: serde_json::Value, expected: Quality) {
        let spec = json!({"containers": [{"name": "a", "resources": resources}]});
        assert_eq!(of(&serde_json::from_value(spec).unwrap()), expected, "{resources}");
    }

    #[test]
    fn quality_follows_from_requests_and_limits() {
        check(json!({}), Quality::BestEffort);
        check(json!({"requests": {"cpu": "0"}}), Quality::BestEffort);
        check(json!({"requests": {"cpu": "1"}}), Quality::Burstable);
        check(json!({"limits": {"cpu": "1", "memory": "1Gi"}}), Quality::Guaranteed);
        let limits =
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}});
        check(limits, Quality::Burstable);
    }
}
