//! What a kubelet does: the pods of the API that are bound to this node become processes of this machine, and the
//! API hears of them.
//!
//! ```text
//! API ── watch ─▶ dispatch ─▶ one worker per pod ─▶ sandbox, images, volumes, probes
//!  ▲                              │   decide(pod, observed, now) -> actions
//!  └────── status, events ────────┘
//! ```
//!
//! **What always holds.** What to do is decided by functions of the pod, what was observed, and the time; the
//! driver carries out and observes. One pod's trouble is that pod's: workers share nothing but the machine. A pod
//! is removed from the API only when nothing of it is left here. An API that is away stops no container.
//!
//! **Not here.** Which pod runs where (the scheduler's), Services and DNS (the network's), what an image is made
//! of, how a process gets its namespaces.
//!
//! | module | idea |
//! | --- | --- |
//! | `register`, `machine` | the node's object, its conditions and lease |
//! | `pods` | one worker per pod: deciding, status, starting, stopping |
//! | `container` | from a container of a pod to what the sandbox starts |
//! | `volumes` | files for containers |
//! | `storage` | directories for claims |
//! | `probes` | asking containers how they are |
//! | `logs`, `server` | logs, exec, attach and port-forward for those who ask through the API |
//! | `events` | what people read in `kubectl describe` |

mod container;
mod events;
mod fetch;
mod images;
mod logs;
mod machine;
mod pods;
mod probes;
mod quantity;
mod register;
mod server;
mod storage;
mod volumes;

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use drydock_sandbox::{Host, remove_all};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use container::naming::Cluster;
use events::Recorder;
use machine::Machine;
use pods::Handle;
use pods::decide::LATEST;

pub use images::{ImageError, Images};
pub use pods::ports::HostPort;
pub use storage::{HARD_CLASS, PROVISIONER, STANDARD_CLASS, classes, permissions};

/// Where the time comes from.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How many pods a kubelet takes where nothing is said.
const PODS: u32 = 110;
/// How many processes a pod may have where nothing is said: more than any program has that does not run away.
const PROCESSES: u64 = 4096;
/// How often a kubelet brings volumes up to date that the API fills.
const REFRESH: Duration = Duration::from_secs(60);
/// A status that says how a pod ended is written within this.
const WRITTEN: Duration = Duration::from_secs(1);
/// Images that are made at the same time: more would only share the same disk and the same line.
const PULLS: usize = 4;

/// What a node is made of.
#[derive(Clone)]
pub struct Options {
    /// The node's name in the API.
    pub name: String,
    /// The API, as a user who may do what nodes do.
    pub client: kube::Client,
    /// The machine.
    pub host: Host,
    /// The images.
    pub images: Arc<dyn Images>,
    /// Where volumes and logs are kept; made when it is not there. Must not be seen by anyone else.
    pub directory: PathBuf,
    /// The address of the cluster's name server, where there is one.
    pub cluster_dns: Option<Ipv4Addr>,
    /// The domain of the cluster's names.
    pub cluster_domain: String,
    /// How many pods it takes.
    pub max_pods: u32,
    /// How many processes and threads each of them has at most, where the machine holds such limits.
    pub max_processes: u64,
    /// How often volumes that the API fills are brought up to date.
    pub refresh: Duration,
    /// Further labels of the node.
    pub labels: BTreeMap<String, String>,
    /// Where the API server asks for logs and the like.
    pub server: Option<Server>,
    /// Where the time comes from.
    pub clock: Clock,
}

/// How the API server reaches the node.
#[derive(Clone, Debug)]
pub struct Server {
    /// A socket in the file system, which is reached from every network namespace; made for its owner only.
    pub socket: PathBuf,
    /// What callers must present as their bearer token; nothing, where only the API server can open the socket.
    pub token: Option<String>,
}

impl Options {
    /// A node with nothing but what it needs.
    pub fn new(
        name: impl Into<String>,
        client: kube::Client,
        host: Host,
        images: Arc<dyn Images>,
        directory: impl Into<PathBuf>,
    ) -> Self {
        Self {
            name: name.into(),
            client,
            host,
            images,
            directory: directory.into(),
            cluster_dns: None,
            cluster_domain: "cluster.local".to_owned(),
            max_pods: PODS,
            max_processes: PROCESSES,
            refresh: REFRESH,
            labels: BTreeMap::new(),
            server: None,
            clock: Arc::new(Timestamp::now),
        }
    }
}

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its directory can't be used.
    #[error("using {path:?}")]
    Directory {
        /// Which.
        path: PathBuf,
        /// What the machine said.
        source: io::Error,
    },
    /// Memory can't be mounted for secrets.
    #[error("mounting memory for secrets at {path:?}")]
    Memory {
        /// Where.
        path: PathBuf,
        /// What the machine said.
        source: io::Error,
    },
    /// Nobody can be listened to.
    #[error("listening on {path:?}")]
    Listen {
        /// Where.
        path: PathBuf,
        /// What the machine said.
        source: io::Error,
    },
    /// What an earlier run left can't be read.
    #[error(transparent)]
    Sandbox(#[from] drydock_sandbox::Error),
}

/// Volumes in memory could not be written to disk.
#[derive(Debug, thiserror::Error)]
#[error("what volumes hold in memory could not be saved, and stays there")]
pub struct SaveError(#[source] io::Error);

/// What all parts of the node share.
pub(crate) struct Shared {
    pub name: String,
    pub client: kube::Client,
    pub host: Host,
    pub images: Arc<dyn Images>,
    pub directory: PathBuf,
    pub logs: PathBuf,
    /// Where volumes are that outlive pods.
    pub storage: storage::directory::Root,
    pub cluster: Cluster,
    pub max_pods: u32,
    pub max_processes: u64,
    pub refresh: Duration,
    pub labels: BTreeMap<String, String>,
    pub clock: Clock,
    pub machine: Machine,
    pub recorder: Recorder,
    pub pulls: tokio::sync::Semaphore,
    /// Whether the API has shown the node's object since the start.
    pub registered: watch::Sender<bool>,
    /// All Services, as last seen.
    pub services: reflector::Store<Service>,
    /// How long containers have when the node stops and takes its pods with it.
    pub halting: watch::Sender<Option<Duration>>,
    /// The workers' tasks, waited for when the node stops.
    pub workers: TaskTracker,
    /// The ports of the node that lead to pods, by the pods' uids.
    pub host_ports: watch::Sender<BTreeMap<String, Vec<HostPort>>>,
    /// The pods' workers, by uid.
    pub pods: Mutex<BTreeMap<String, Handle>>,
}

impl Shared {
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    pub fn host_ip(&self) -> String {
        self.host.address().to_string()
    }

    pub fn pod_directory(&self, uid: &str) -> PathBuf {
        self.directory.join("pods").join(uid)
    }

    pub fn volume_places(&self, uid: &str) -> volumes::Places {
        volumes::Places {
            disk: self.pod_directory(uid).join("volumes"),
            memory: self.directory.join("memory").join(uid),
        }
    }
}

/// A node that is ready to run.
pub struct Node {
    shared: Arc<Shared>,
    events: futures::future::BoxFuture<'static, ()>,
    services: futures::future::BoxFuture<'static, ()>,
    listener: Option<(tokio::net::UnixListener, Server)>,
    adopted: BTreeMap<String, drydock_sandbox::Pod>,
}

impl Node {
    /// Prepares the node's directory and finds the pods that an earlier run left running.
    ///
    /// # Errors
    /// When the directory can't be used, or the socket can't be listened on.
    pub fn start(options: Options) -> Result<Self, StartError> {
        let directory = prepare(&options.directory)?;
        let listener = match options.server {
            Some(server) => Some((listen(&server.socket)?, server)),
            None => None,
        };
        let adopted = pods::adopted(&options.host)?;
        let (recorder, events) =
            Recorder::new(options.client.clone(), options.name.clone(), Arc::clone(&options.clock));
        let (seen, services) = follow_services(options.client.clone());
        let storage = storage::directory::Root::below(&directory);
        storage.holders.adopt(storage.path(), &adopted);
        let shared = Shared {
            machine: Machine::look(&directory),
            logs: directory.join("logs"),
            storage,
            name: options.name,
            client: options.client,
            host: options.host,
            images: options.images,
            cluster: Cluster {
                dns: options.cluster_dns,
                domain: options.cluster_domain,
                machine_resolver: std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
            },
            max_pods: options.max_pods,
            max_processes: options.max_processes,
            refresh: options.refresh,
            labels: options.labels,
            clock: options.clock,
            recorder,
            pulls: tokio::sync::Semaphore::new(PULLS),
            registered: watch::Sender::new(false),
            halting: watch::Sender::new(None),
            host_ports: watch::Sender::default(),
            workers: TaskTracker::new(),
            services: seen,
            pods: Mutex::new(BTreeMap::new()),
            directory,
        };
        Ok(Self { shared: Arc::new(shared), events: Box::pin(events), services, listener, adopted })
    }

    /// Waits until the running node is known to the API as one that takes pods.
    pub fn registered(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut registered = self.shared.registered.subscribe();
        async move {
            // Who is gone before it was known never will be.
            if registered.wait_for(|known| *known).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The ports of the running node that lead to pods, by the pods' uids, as they change.
    pub fn host_ports(&self) -> watch::Receiver<BTreeMap<String, Vec<HostPort>>> {
        self.shared.host_ports.subscribe()
    }

    /// Who can end the pods of the running node.
    pub fn ender(&self) -> Ender {
        Ender { shared: Arc::clone(&self.shared) }
    }

    /// Runs until it is told to stop. Pods are left as they are: whoever opened the host has them ended before by
    /// [`Ender`] and closes it, or leaves them to the next run.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self { shared, events, services, listener, adopted } = self;
        let server = async {
            match listener {
                Some((listener, server)) => server::serve(Arc::clone(&shared), listener, server.token).await,
                None => std::future::pending().await,
            }
        };
        let work = async {
            tokio::join!(
                shared.live(),
                pods::dispatch(&shared, adopted, &shutdown),
                logs::rotate::keep_small(&shared),
                storage::run(&shared),
                events,
                services,
                server,
            );
        };
        shutdown.run_until_cancelled(work).await;
        shared.pods.lock().clear();
        shared.workers.close();
        shared.workers.wait().await;
    }
}

/// Ends the pods of a node that runs, before it is told to stop.
pub struct Ender {
    shared: Arc<Shared>,
}

impl Ender {
    /// Asks all containers to end, as their pods say but within a time that is the same for all, and has the API
    /// told how they did. Those whose turn comes when it is over still get a little. From here on the node begins
    /// nothing. Whatever is left then ends with the host.
    ///
    /// With `keep`, what volumes hold in memory is written to disk.
    ///
    /// # Errors
    /// It was not written, and is lost when the host is closed.
    pub async fn end(self, limit: Duration, keep: bool) -> Result<(), SaveError> {
        self.shared.halting.send_replace(Some(limit));
        self.shared.workers.close();
        if tokio::time::timeout(limit + LATEST + WRITTEN, self.shared.workers.wait()).await.is_err() {
            tracing::warn!("not all containers ended when they were asked to");
        }
        let lost = |error| SaveError(io::Error::other(error));
        let (root, closing) = (self.shared.storage.clone(), self.shared.storage.clone());
        if !keep || !tokio::task::spawn_blocking(move || storage::close(&closing)).await.map_err(lost)? {
            return Ok(());
        }
        // Nobody writes while it is saved.
        for pod in self.shared.host.adopt().map_err(|error| SaveError(io::Error::other(error)))? {
            pod.stop().await.map_err(|error| SaveError(io::Error::other(error)))?;
        }
        match tokio::task::spawn_blocking(move || storage::save(&root)).await {
            Ok(saved) => saved.map_err(SaveError),
            Err(error) => Err(lost(error)),
        }
    }
}

/// All Services, and what keeps the sight of them up to date.
fn follow_services(
    client: kube::Client,
) -> (reflector::Store<Service>, futures::future::BoxFuture<'static, ()>) {
    let (seen, writer) = reflector::store();
    let changes = watcher(kube::Api::<Service>::all(client), watcher::Config::default());
    let following = async move {
        let mut changes = std::pin::pin!(changes.default_backoff().reflect(writer));
        while let Some(change) = changes.next().await {
            if let Err(error) = change {
                tracing::debug!(%error, "services can't be watched");
            }
        }
    };
    (seen, Box::pin(following))
}

/// Whether volumes of a node's directory are in memory, and lost when its host is closed. Blocks.
pub fn holds_memory(directory: &Path) -> bool {
    storage::holds_memory(&storage::directory::Root::below(directory))
}

/// Removes a node's directory, of which no pod is left. For who does not keep it for the next run.
///
/// # Errors
/// When something of it stays.
pub fn clear(directory: &Path) -> Result<(), StartError> {
    let at = |source| StartError::Directory { path: directory.to_owned(), source };
    let memory = directory.join("memory");
    if volumes::is_mounted(&memory) {
        rustix::mount::unmount(&memory, rustix::mount::UnmountFlags::DETACH)
            .map_err(|error| at(error.into()))?;
    }
    storage::drop_memory(&storage::directory::Root::below(directory)).map_err(at)?;
    remove_all(directory).map_err(at)
}

fn prepare(directory: &Path) -> Result<PathBuf, StartError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| StartError::Directory { path, source }
    };
    for part in ["pods", "logs", "memory"] {
        let path = directory.join(part);
        std::fs::create_dir_all(&path).map_err(at(&path))?;
    }
    let directory = directory.canonicalize().map_err(at(directory))?;
    let volumes = storage::directory::Root::below(&directory);
    volumes.prepare().map_err(at(volumes.path()))?;
    let memory = directory.join("memory");
    if !volumes::is_mounted(&memory) {
        volumes::tmpfs(&memory, 0o755, None, None)
            .map_err(|source| StartError::Memory { path: memory, source })?;
    }
    Ok(directory)
}

fn listen(socket: &Path) -> Result<tokio::net::UnixListener, StartError> {
    use std::os::unix::fs::PermissionsExt;
    let at = |source| StartError::Listen { path: socket.to_owned(), source };
    remove_all(socket).map_err(at)?;
    let listener = tokio::net::UnixListener::bind(socket).map_err(at)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600)).map_err(at)?;
    Ok(listener)
}
