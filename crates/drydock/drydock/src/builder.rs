//! How a cluster is to be.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use drydock_access::{Identity, Tokens};
use drydock_api::{Api, Clock, Nodes, RequestLog, Unreachable};
use drydock_store::{OpenError, Options, Revision, Snapshot, Store};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::credentials::{CredentialError, Credentials};
use crate::faults::Faults;
use crate::link::Link;
use crate::{ADMIN, Drydock};

/// How many requests the log keeps when nothing else is said: as many as a test looks through.
const REQUESTS: usize = 4096;

/// Where a store begins.
const EMPTY: Revision = Revision(1);

/// Why the cluster did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory holds no usable store.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// There was a store, and its log is gone.
    #[error("{}: it is gone, and with it every object of the cluster whose keys are in {}", log.display(), keys.display())]
    Lost {
        /// What is gone.
        log: PathBuf,
        /// What is left.
        keys: PathBuf,
    },
    /// There are no keys and certificates.
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    /// What every cluster has could not be put into it.
    #[error(transparent)]
    Bootstrap(#[from] drydock_api::BootstrapError),
}

enum Memory {
    Empty,
    Kept(PathBuf),
    Snapshot(Snapshot),
}

/// How a cluster is to be. Unless it is said otherwise: in memory, with controllers.
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    memory: Memory,
    history: Option<usize>,
    controllers: bool,
    scheduler: bool,
    requests: usize,
    tokens: Vec<(String, Identity)>,
    clock: Clock,
    nodes: Arc<dyn Nodes>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            memory: Memory::Empty,
            history: None,
            controllers: true,
            scheduler: true,
            requests: REQUESTS,
            tokens: Vec::new(),
            clock: Arc::new(Timestamp::now),
            nodes: Arc::new(Unreachable),
        }
    }
}

impl Builder {
    /// Keeps everything in this directory, which is made when it isn't there: objects, keys, certificates.
    pub fn data_dir(self, directory: impl Into<PathBuf>) -> Builder {
        Builder { memory: Memory::Kept(directory.into()), ..self }
    }

    /// Begins as another cluster was when `snapshot` was taken, in memory. Tokens of that one are not known here.
    pub fn from_snapshot(self, snapshot: Snapshot) -> Builder {
        Builder { memory: Memory::Snapshot(snapshot), ..self }
    }

    /// How many writes back clients can resume and snapshots be taken; `usize::MAX` for all of them.
    pub fn history(self, events: usize) -> Builder {
        Builder { history: Some(events), ..self }
    }

    /// Whether the built-in controllers run.
    pub fn controllers(self, run: bool) -> Builder {
        Builder { controllers: run, ..self }
    }

    /// Whether pods are given to nodes, when controllers run. Without, a pod stays as it was created, and
    /// nothing is said about why it waits: what a cluster without a scheduler is compared with.
    pub fn scheduler(self, run: bool) -> Builder {
        Builder { scheduler: run, ..self }
    }

    /// How many requests the log keeps.
    pub fn requests(self, kept: usize) -> Builder {
        Builder { requests: kept, ..self }
    }

    /// Who presents `token` is `identity`.
    pub fn token(mut self, token: impl Into<String>, identity: Identity) -> Builder {
        self.tokens.push((token.into(), identity));
        self
    }

    /// Where the API takes the time from that it writes into objects and judges tokens by.
    pub fn clock(self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Builder {
        Builder { clock: Arc::new(clock), ..self }
    }

    /// How nodes are reached for logs, exec, attach and port-forward; without this, they aren't.
    pub fn nodes(self, nodes: impl Nodes + 'static) -> Builder {
        Builder { nodes: Arc::new(nodes), ..self }
    }

    /// Starts the cluster. When this returns, it answers.
    ///
    /// # Errors
    /// The data directory can't be used, or there is no randomness for keys.
    pub async fn start(self) -> Result<Drydock, StartError> {
        let now = (self.clock)();
        let options = match self.history {
            None => Options::default(),
            Some(usize::MAX) => Options::unlimited(),
            Some(history) => Options { history, ..Options::default() },
        };
        let (store, credentials) = match self.memory {
            Memory::Empty => (Store::in_memory(options), Credentials::in_memory(now)?),
            Memory::Snapshot(snapshot) => {
                (Store::from_snapshot(snapshot, options), Credentials::in_memory(now)?)
            }
            // The store first: it is what makes sure that nobody else is in the directory.
            Memory::Kept(directory) => {
                let (objects, keys) = (directory.join("store"), directory.join("keys"));
                // And the log before any key: keys without one are those of a cluster that was lost. Its pods may
                // still run, and would be ended as nobody's; its volumes would never be found again.
                let log = objects.join("log");
                if is_there(&keys)? && !is_there(&log)? {
                    return Err(StartError::Lost { log, keys });
                }
                let store = Store::open(&objects, options)?;
                let credentials = match Credentials::kept(&keys, now)? {
                    Some(kept) => kept,
                    None => {
                        // Nothing is written before there are keys: whoever wrote had some.
                        if store.revision() > EMPTY {
                            let keys = keys.display();
                            tracing::warn!(%keys, "the cluster's keys were gone, and are made anew: no kubeconfig and no token from before is accepted any more");
                        }
                        Credentials::make(&keys, now)?
                    }
                };
                (store, credentials)
            }
        };
        let Credentials { authority, signing_key, admin_token } = credentials;
        let mut tokens = Tokens::new(signing_key).with_static(&admin_token, Identity::admin(ADMIN));
        for (token, identity) in self.tokens {
            tokens = tokens.with_static(&token, identity);
        }
        let (requests, faults) = (Arc::new(RequestLog::new(self.requests)), Faults::default());
        let options = drydock_api::Options {
            clock: Arc::clone(&self.clock),
            tokens: Arc::new(tokens),
            interceptor: Some(Arc::new(faults.clone())),
            log: Arc::clone(&requests),
            nodes: self.nodes,
            root_ca: Some(authority.pem().to_owned()),
        };
        let api = Api::new(store.clone(), options);
        api.bootstrap().await?;
        let link = Link {
            api,
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
            stopped: CancellationToken::new(),
        };
        let (expiry, stopping) = (link.api.clone(), link.stopping.clone());
        link.tasks.spawn(async move { stopping.run_until_cancelled(expiry.expire_events()).await });
        if self.controllers {
            let options = drydock_controllers::Options {
                root_ca: Some(authority.pem().to_owned()),
                scheduler: self.scheduler,
                clock: self.clock,
                ..drydock_controllers::Options::default()
            };
            let clients = link.clone();
            let controllers = drydock_controllers::run(
                move |name| clients.client(controller(name), drydock_controllers::WATCHER),
                options,
                link.stopping.clone(),
            );
            let stopped = link.stopped.clone();
            link.tasks.spawn(async move { stopped.run_until_cancelled(controllers).await });
        }
        Ok(Drydock { link, store, requests, faults, authority, admin_token, served: OnceLock::new() })
    }
}

/// What can't be looked at may well be there.
fn is_there(path: &Path) -> Result<bool, OpenError> {
    path.try_exists().map_err(|source| OpenError::Io { path: path.to_owned(), doing: "look at it", source })
}

/// Who a controller is: a ServiceAccount of its own, to which the default roles are bound.
fn controller(name: &str) -> Identity {
    match name {
        drydock_controllers::WATCHER => Identity::user("system:kube-controller-manager", [""; 0]),
        drydock_controllers::SCHEDULER => Identity::user("system:kube-scheduler", [""; 0]),
        name => Identity::service_account("kube-system", name, ""),
    }
}
