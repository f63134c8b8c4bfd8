//! Which pods have which volumes, whatever the API says of either.
//!
//! A pod has a volume from before its containers can see it until none of them is left. Claims are known by names, which
//! another claim may have the next moment; a volume's name is its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use drydock_sandbox::{MountKind, Pod};
use parking_lot::Mutex;

/// See the module: the pods' uids, by the volumes' names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holders(Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>);

impl Holders {
    /// Lets a pod have a volume, or with `alone` only when no other has it. Whether it does.
    pub fn add(&self, volume: &str, pod: &str, alone: bool) -> bool {
        let mut all = self.0.lock();
        let pods = all.entry(volume.to_owned()).or_default();
        // What was running already keeps what it has.
        let free = !alone || pods.is_empty() || pods.contains(pod);
        if free {
            pods.insert(pod.to_owned());
        }
        free
    }

    /// Pods that an earlier run left have what their containers mount.
    pub fn adopt(&self, volumes: &Path, pods: &BTreeMap<String, Pod>) {
        for (uid, pod) in pods {
            let containers = pod.containers().unwrap_or_default();
            let configs = containers.iter().filter_map(|container| container.config().ok());
            for mount in configs.flat_map(|config| config.mounts) {
                let (MountKind::Bind { source, .. } | MountKind::Part { source, .. }) = mount.what;
                if let Some(volume) = source.strip_prefix(volumes).ok().and_then(Path::to_str) {
                    self.add(volume, uid, false);
                }
            }
        }
    }

    /// Whether a pod has a volume.
    pub fn has(&self, volume: &str) -> bool {
        self.0.lock().contains_key(volume)
    }

    /// The volumes that a pod has.
    pub fn of(&self, pod: &str) -> BTreeSet<String> {
        let all = self.0.lock();
        all.iter().filter(|(_, pods)| pods.contains(pod)).map(|(volume, _)| volume.clone()).collect()
    }

    /// A pod has of its volumes only these any more.
    pub fn keep(&self, pod: &str, volumes: &BTreeSet<String>) {
        self.0.lock().retain(|volume, pods| {
            if !volumes.contains(volume) {
                pods.remove(pod);
            }
            !pods.is_empty()
        });
    }

    /// A pod has nothing any more.
    pub fn remove(&self, pod: &str) {
        self.keep(pod, &BTreeSet::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_one_pods_alone_or_everybodys() {
        let holders = Holders::default();
        assert!(holders.add("shared", "a", false) && holders.add("shared", "b", false));
        assert!(holders.add("own", "a", true) && holders.add("own", "a", true));
        assert!(!holders.add("own", "b", true));
        holders.remove("a");
        assert!(!holders.has("own") && holders.has("shared"));
        assert!(holders.add("own", "b", true));
        holders.remove("b");
        assert!(!holders.has("own") && !holders.has("shared"));
    }
}
