//! Where containers' logs are, and how they are read.

pub(crate) mod lines;
pub(crate) mod rotate;
pub(crate) mod stream;

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;

/// The directory of a pod's logs: `namespace_name_uid`.
pub(crate) fn pod_directory(logs: &Path, pod: &Pod) -> PathBuf {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let meta = &pod.metadata;
    logs.join(format!("{}_{}_{}", text(&meta.namespace), text(&meta.name), text(&meta.uid)))
}

/// The log of one start of a container.
pub(crate) fn file(logs: &Path, pod: &Pod, container: &str, restart: i32) -> PathBuf {
    pod_directory(logs, pod).join(container).join(format!("{restart}.log"))
}
