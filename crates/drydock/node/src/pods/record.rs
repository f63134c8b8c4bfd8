//! What the sandbox keeps for the node, so that the next run knows what it finds.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use drydock_sandbox::{self as sandbox, remove_all};
use serde::{Deserialize, Serialize};

use crate::{Shared, volumes};

/// Kept with a pod.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    pub logs: PathBuf,
}

/// Kept with a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ContainerNote {
    pub name: String,
    pub restart: i32,
    pub image: String,
    pub image_id: String,
    pub termination_log: PathBuf,
    /// What its image says it is to be asked to stop by.
    pub stop_signal: Option<String>,
}

impl ContainerNote {
    /// What was kept with a container, whoever started it.
    pub fn of(container: &sandbox::Container) -> Option<Self> {
        serde_json::from_str(&container.config().ok()?.note).ok()
    }
}

/// A container's name in the sandbox, which is another at every start.
pub(crate) fn container_id(name: &str, restart: i32) -> String {
    format!("{name}.{restart}")
}

/// The same for the API.
pub(crate) fn shown_id(uid: &str, id: &str) -> String {
    format!("drydock://{uid}/{id}")
}

/// The pods of which there are files that nobody is known by, and their logs.
pub(crate) fn left(directory: &Path, known: impl Fn(&str) -> bool) -> BTreeMap<String, Option<PathBuf>> {
    let entries = |part: &str| {
        let entries = fs::read_dir(directory.join(part)).into_iter().flatten().flatten();
        entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
    };
    let files = ["pods", "memory"].into_iter().flat_map(entries).map(|(uid, _)| (uid, None));
    let logs = entries("logs").filter_map(|(name, path)| {
        let (_, uid) = name.rsplit_once('_')?;
        Some((uid.to_owned(), Some(path)))
    });
    files.chain(logs).filter(|(uid, _)| !known(uid)).collect()
}

/// Removes the files of a pod of which nothing runs: volumes, and with `logs` its logs. Claims are others' to have.
pub(crate) async fn remove_files(shared: &Shared, uid: &str, logs: Option<&Path>) {
    shared.storage.holders.remove(uid);
    let (places, directory) = (shared.volume_places(uid), shared.pod_directory(uid));
    let logs = logs.map(Path::to_owned);
    let removed = tokio::task::spawn_blocking(move || {
        volumes::remove(&places)?;
        remove_all(&directory)?;
        logs.map_or(Ok(()), |logs| remove_all(&logs))
    });
    if let Ok(Err(error)) = removed.await {
        tracing::warn!(%error, pod = uid, "a pod's files are not gone");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_pods_that_nobody_knows_are_found_with_their_logs() {
        let place = tempfile::tempdir().unwrap();
        for path in ["pods/1", "pods/2", "memory/2", "memory/3", "logs/ns_a_1", "logs/ns_b_2", "logs/ns_c_4"]
        {
            fs::create_dir_all(place.path().join(path)).unwrap();
        }
        let found = left(place.path(), |uid| uid == "1");
        let logs = |name: &str| Some(place.path().join("logs").join(name));
        let expected = [("2", logs("ns_b_2")), ("3", None), ("4", logs("ns_c_4"))];
        assert_eq!(found, expected.map(|(uid, logs)| (uid.to_owned(), logs)).into_iter().collect());
    }
}
