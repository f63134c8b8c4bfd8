//! How much a pod has written where a limit was given: `emptyDir.sizeLimit`.
//!
//! Looked at as often as a kubelet does, and only for pods that have such a limit. What is in memory has a hard size
//! instead and is not looked at.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Volume};

use super::worker::Worker;
use crate::quantity;

/// How often a kubelet looks.
pub(super) const PERIOD: Duration = Duration::from_secs(10);
/// Pods of this priority or a higher one are what the cluster itself runs on, and stay.
const CRITICAL: i32 = 2_000_000_000;
/// What the system counts files in.
const BLOCK: u64 = 512;

/// The volumes with a limit, and that in bytes.
fn limited(pod: &Pod) -> impl Iterator<Item = (&Volume, u64)> {
    let spec = pod.spec.as_ref().filter(|spec| spec.priority.is_none_or(|priority| priority < CRITICAL));
    spec.into_iter().flat_map(|spec| spec.volumes.iter().flatten()).filter_map(|volume| {
        let empty = volume.empty_dir.as_ref().filter(|empty| empty.medium.as_deref() != Some("Memory"))?;
        let limit = empty.size_limit.as_ref().and_then(quantity::units).filter(|limit| *limit > 0)?;
        Some((volume, limit))
    })
}

/// Which volume holds more than it may, in a kubelet's words. Blocks.
fn exceeded(pod: &Pod, volumes: &Path) -> Option<String> {
    let (volume, _) = limited(pod).find(|(volume, limit)| used(&volume.name, volumes) > *limit)?;
    let limit = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
    Some(format!("Usage of EmptyDir volume {:?} exceeds the limit {:?}. ", volume.name, limit.0))
}

/// What a directory takes on its disk, following no link. What goes while it is counted does not count.
fn used(volume: &str, volumes: &Path) -> u64 {
    let mut sum = 0;
    let mut left = vec![volumes.join(volume)];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            // A file of several names takes its place once.
            sum += found.blocks() * BLOCK / if found.is_dir() { 1 } else { found.nlink().max(1) };
            if found.is_dir() {
                left.push(entry.path());
            }
        }
    }
    sum
}

impl Worker {
    /// Whether there is anything to look at.
    pub(super) fn is_limited(&self) -> bool {
        self.observed.volumes_ready && self.observed.failed.is_none() && limited(&self.pod).next().is_some()
    }

    /// Looks at what the pod has written.
    pub(super) async fn measure(&mut self) {
        let (pod, volumes) = (self.pod.clone(), self.shared.volume_places(&self.uid).disk);
        let counting = tokio::task::spawn_blocking(move || exceeded(&pod, &volumes));
        self.observed.exceeded = counting.await.unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_is_held_against_the_limit_of_its_volume() {
        let directory = tempfile::tempdir().unwrap();
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [], "volumes": [
            {"name": "free", "emptyDir": {}},
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Ki"}},
            {"name": "small", "emptyDir": {"sizeLimit": "64Ki"}},
        ]}}))
        .unwrap();
        for volume in ["free", "memory", "small"] {
            fs::create_dir_all(directory.path().join(volume).join("below")).unwrap();
        }
        let write =
            |path: &str, length: usize| fs::write(directory.path().join(path), vec![1; length]).unwrap();
        let look = || exceeded(&pod, directory.path());
        write("free/below/a", 200 << 10);
        write("memory/below/a", 200 << 10);
        write("small/below/a", 20 << 10);
        std::os::unix::fs::symlink(directory.path().join("free"), directory.path().join("small/away"))
            .unwrap();
        assert_eq!(look(), None);
        write("small/below/b", 60 << 10);
        let words = "Usage of EmptyDir volume \"small\" exceeds the limit \"64Ki\". ";
        assert_eq!(look().as_deref(), Some(words));
    }
}
