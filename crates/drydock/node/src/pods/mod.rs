//! The pods of this node: one worker each.

pub(crate) mod backoff;
pub(crate) mod decide;
pub(crate) mod hooks;
pub(crate) mod observed;
pub(crate) mod phase;
pub(crate) mod ports;
pub(crate) mod quality;
pub(crate) mod record;
pub(crate) mod signals;
pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod usage;
pub(crate) mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drydock_sandbox as sandbox;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::Shared;
use record::Note;

/// A pod that the API does not know and that could not be ended is ended again after this.
const AGAIN: Duration = Duration::from_secs(2);

/// A pod's worker, as others see it. The worker ends when this is dropped.
pub(crate) struct Handle {
    pub pod: watch::Sender<Sight>,
    pub live: Arc<Mutex<Live>>,
    _worker: DropGuard,
}

/// The pod as the API last showed it.
#[derive(Clone)]
pub(crate) struct Sight {
    pub pod: Arc<Pod>,
    /// It is gone from the API.
    pub absent: bool,
}

/// What of a pod runs now: what logs, exec and port-forward need.
#[derive(Default)]
pub(crate) struct Live {
    pub sandbox: Option<sandbox::Pod>,
    pub containers: BTreeMap<String, sandbox::Container>,
    /// How often each container was started again.
    pub restarts: BTreeMap<String, i32>,
    /// Why each container waits that does, which the API is told later.
    pub waiting: BTreeMap<String, String>,
}

/// The pods that an earlier run left, by uid.
pub(crate) fn adopted(host: &sandbox::Host) -> Result<BTreeMap<String, sandbox::Pod>, sandbox::Error> {
    let pods = host.adopt()?;
    Ok(pods.into_iter().map(|pod| (pod.id().to_owned(), pod)).collect())
}

/// Watches the pods that are bound to this node, and gives each to its worker.
pub(crate) async fn dispatch(
    shared: &Arc<Shared>,
    mut adopted: BTreeMap<String, sandbox::Pod>,
    shutdown: &CancellationToken,
) {
    let pods: Api<Pod> = Api::all(shared.client.clone());
    let config = watcher::Config::default().fields(&format!("spec.nodeName={}", shared.name));
    let mut changes = std::pin::pin!(watcher(pods, config).default_backoff());
    let mut listed: BTreeSet<String> = BTreeSet::new();
    // Whether the files of those that went while there was no node are found.
    let mut swept = false;
    // Ended with this loop; what is left of an orphan then, the next run finds.
    let mut removals = JoinSet::new();
    while let Some(change) = changes.next().await {
        match change {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(pod)) => {
                listed.insert(uid(&pod));
                show(shared, pod, &mut adopted, shutdown);
            }
            Ok(watcher::Event::InitDone) => {
                forget(shared, &listed);
                if !std::mem::replace(&mut swept, true) {
                    let known = |uid: &str| listed.contains(uid) || adopted.contains_key(uid);
                    for (uid, logs) in record::left(&shared.directory, known) {
                        tracing::info!(pod = %uid, "the files of a pod that the API does not know are removed");
                        let shared = Arc::clone(shared);
                        removals
                            .spawn(async move { record::remove_files(&shared, &uid, logs.as_deref()).await });
                    }
                }
                for orphan in std::mem::take(&mut adopted).into_values() {
                    removals.spawn(remove_orphan(Arc::clone(shared), orphan));
                }
            }
            Ok(watcher::Event::Apply(pod)) => show(shared, pod, &mut adopted, shutdown),
            Ok(watcher::Event::Delete(pod)) => {
                if let Some(handle) = shared.pods.lock().get(&uid(&pod)) {
                    handle.pod.send_modify(|sight| sight.absent = true);
                }
            }
            Err(error) => tracing::warn!(%error, "the pods of this node can't be watched"),
        }
    }
}

fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

fn show(
    shared: &Arc<Shared>,
    pod: Pod,
    adopted: &mut BTreeMap<String, sandbox::Pod>,
    shutdown: &CancellationToken,
) {
    let uid = uid(&pod);
    let mut pods = shared.pods.lock();
    if let Some(handle) = pods.get(&uid) {
        handle.pod.send_replace(Sight { pod: Arc::new(pod), absent: false });
        return;
    }
    if shared.halting.borrow().is_some() {
        return;
    }
    let (pod, sight) = watch::channel(Sight { pod: Arc::new(pod), absent: false });
    let live = Arc::new(Mutex::new(Live::default()));
    let stop = shutdown.child_token();
    let worker = worker::Worker::new(Arc::clone(shared), uid.clone(), sight, Arc::clone(&live));
    let (found, workers) = (adopted.remove(&uid), shared.workers.clone());
    let (shared, token, id) = (Arc::clone(shared), stop.clone(), uid.clone());
    workers.spawn(async move {
        if token.run_until_cancelled(worker.run(found)).await.is_some() {
            shared.pods.lock().remove(&id);
        }
    });
    pods.insert(uid, Handle { pod, live, _worker: stop.drop_guard() });
}

/// Tells the workers of pods that a listing did not have.
fn forget(shared: &Shared, listed: &BTreeSet<String>) {
    for (uid, handle) in shared.pods.lock().iter() {
        if !listed.contains(uid) {
            handle.pod.send_modify(|sight| sight.absent = true);
        }
    }
}

/// Removes a pod that ran here and that the API does not know any more, however long that takes. It keeps what it has
/// until it is gone.
async fn remove_orphan(shared: Arc<Shared>, orphan: sandbox::Pod) {
    let id = orphan.id();
    while let Err(error) = orphan.stop().await {
        tracing::warn!(%error, pod = %id, "a pod is not gone");
        tokio::time::sleep(AGAIN).await;
    }
    tracing::info!(pod = %id, "a pod that the API does not know was removed");
    let note: Option<Note> = serde_json::from_str(&orphan.config().note).ok();
    record::remove_files(&shared, id, note.map(|note| note.logs).as_deref()).await;
}
