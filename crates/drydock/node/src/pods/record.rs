//! What the sandbox keeps for the node, so that the next run knows what it finds.

use std::path::{Path, PathBuf};

use drydock_sandbox as sandbox;
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

/// Removes the files of a pod of which nothing runs: volumes, and with `logs` its logs. Claims are others' to have.
pub(crate) async fn remove_files(shared: &Shared, uid: &str, logs: Option<&Path>) {
    shared.storage.holders.remove(uid);
    let (places, directory) = (shared.volume_places(uid), shared.pod_directory(uid));
    let logs = logs.map(Path::to_owned);
    let removed = tokio::task::spawn_blocking(move || {
        volumes::remove(&places)?;
        volumes::atomic::remove(&directory)?;
        logs.map_or(Ok(()), |logs| volumes::atomic::remove(&logs))
    });
    if let Ok(Err(error)) = removed.await {
        tracing::warn!(%error, pod = uid, "a pod's files are not gone");
    }
}
