//! A Kubernetes for one machine: start one in a test, or serve one.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use k8s_openapi::api::core::v1::Namespace;
//!
//! let drydock = drydock::Drydock::builder().start().await?;
//! let namespaces: kube::Api<Namespace> = kube::Api::all(drydock.client());
//! assert!(namespaces.list(&Default::default()).await?.items.len() >= 4);
//! # Ok(())
//! # }
//! ```
//!
//! **Guarantees.** Clusters in one process share nothing: as many as there are tests can run side by side.
//! Clients reach the API through HTTP connections in memory, with RBAC and everything else in force; no port is
//! opened and no file written unless it is asked for. Dropping a [`Drydock`] stops all that runs on its behalf.
//!
//! **What it does not do.** It runs no pods: that is the node's, a process of its own.

mod builder;
mod certificates;
mod credentials;
mod faults;
mod kubeconfig;
mod link;
mod private;
mod serve;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use tokio::net::{TcpListener, UnixListener};

use certificates::Authority;
use link::Link;

pub use builder::{Builder, StartError};
pub use certificates::CertificateError;
pub use credentials::CredentialError;
pub use drydock_access::Identity;
pub use drydock_api::{LogEntry, NodeStream, Nodes, RequestLog, VERSION, Verb};
pub use drydock_store::{Compacted, OpenError, Revision, Snapshot};
pub use faults::{Fault, Faults, Order};
pub use link::client_at;
pub use private::FileError;

/// The user whom [`Drydock::client`] and the kubeconfig speak for.
pub const ADMIN: &str = "kubernetes-admin";

/// How long a stop waits: first for requests to be answered, then for watches to be told of the end.
const GRACE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];

/// A cluster that runs.
pub struct Drydock {
    link: Link,
    store: drydock_store::Store,
    requests: Arc<RequestLog>,
    faults: Faults,
    authority: Authority,
    admin_token: String,
    served: OnceLock<SocketAddr>,
}

/// Why the API is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listener has no address.
    #[error("the listener has no address")]
    Listener(#[source] std::io::Error),
    /// There is no certificate to serve with.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// Why there is no kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// There is nothing to point it at.
    #[error("the API is not served on any address")]
    NotServed,
    /// It could not be written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Drydock {
    /// Says how the cluster is to be, and starts it.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A client that may do anything.
    pub fn client(&self) -> kube::Client {
        self.client_as(Identity::admin(ADMIN))
    }

    /// A client that is `identity`, and may do what RBAC lets it.
    pub fn client_as(&self, identity: Identity) -> kube::Client {
        self.link.client(identity, "drydock")
    }

    /// The last requests, and how many there were.
    pub fn requests(&self) -> &RequestLog {
        &self.requests
    }

    /// What is to go wrong.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The revision of the latest write.
    pub fn revision(&self) -> Revision {
        self.store.revision()
    }

    /// Everything as it was right after the write with this revision, to [start](Builder::from_snapshot) another
    /// cluster from.
    ///
    /// # Errors
    /// The revision is older than the history goes back.
    pub fn snapshot(&self, at: Revision) -> Result<Snapshot, Compacted> {
        self.store.snapshot(at)
    }

    /// Forgets the history up to `floor`, so that a client that resumes from before it is told 410.
    pub fn compact(&self, floor: Revision) {
        self.store.compact(floor);
    }

    /// Waits until the data directory can no longer be written, because it is not known any more what it holds, and
    /// says why. Nothing is acknowledged from then on; what was is there at the next start.
    pub async fn broken(&self) -> Arc<std::io::Error> {
        self.store.broken().await
    }

    /// From now on the API's `/readyz` answers for this, too.
    pub fn check(&self, name: &'static str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.link.api.check(name, Arc::new(check));
    }

    /// Serves the API over TLS on `listener` until the cluster is stopped, and gives the address. May be called
    /// for several listeners; the kubeconfig is about the first.
    ///
    /// # Errors
    /// The listener has no address, or no certificate could be made for it.
    pub fn serve(&self, listener: TcpListener) -> Result<SocketAddr, ServeError> {
        let address = listener.local_addr().map_err(ServeError::Listener)?;
        let tls = self.authority.server(&[address.ip()], Timestamp::now())?;
        let served = *self.served.get_or_init(|| address);
        let led = self.link.api.served_at(reached(served));
        self.link.tasks.spawn(async move {
            if let Err(error) = led.await {
                tracing::warn!(%error, "Pods are not led to where the API is served");
            }
        });
        self.link.tasks.spawn(serve::serve(self.link.clone(), listener, Arc::new(tls)));
        tracing::debug!(%address, first = %served, "serving the API");
        Ok(address)
    }

    /// Serves the API over TLS on a socket among the files too, with the certificate of every other listener: for
    /// those who relay connections out of a network that has no way to this one. There the API may go by any of `names`.
    ///
    /// # Errors
    /// No certificate could be made.
    pub fn serve_socket(&self, listener: UnixListener, names: &[IpAddr]) -> Result<(), ServeError> {
        let tls = self.authority.server(names, Timestamp::now())?;
        self.link.tasks.spawn(serve::serve(self.link.clone(), listener, Arc::new(tls)));
        Ok(())
    }

    /// A node leads connections to its own address and the API's port on to the API. That is told in the cluster, unless
    /// the API is [served](Drydock::serve) where others than this machine reach it.
    ///
    /// # Errors
    /// The store can't be written.
    pub async fn led_by_node(&self, node: IpAddr) -> Result<(), drydock_api::BootstrapError> {
        match self.served.get() {
            Some(served) if reached(*served).ip().is_loopback() => {
                self.link.api.advertise(Some(SocketAddr::new(node, served.port()))).await
            }
            _ => Ok(()),
        }
    }

    /// Serves the API on a socket among the files to one user: whoever connects is `identity`, and needs neither
    /// TLS nor a token. Who may open the socket is the caller's to see to.
    pub fn serve_as(&self, listener: UnixListener, identity: Identity) {
        self.link.tasks.spawn(serve::serve_as(self.link.clone(), listener, Arc::new(identity)));
    }

    /// Where the API is served, once it is: `https://127.0.0.1:6443`.
    pub fn url(&self) -> Option<String> {
        self.served.get().map(|address| format!("https://{}", reached(*address)))
    }

    /// The certificate, in PEM, by which clients know the API.
    pub fn ca_pem(&self) -> &str {
        self.authority.pem()
    }

    /// A kubeconfig for the administrator.
    ///
    /// # Errors
    /// The API is not [served](Drydock::serve).
    pub fn kubeconfig(&self) -> Result<String, KubeconfigError> {
        self.kubeconfig_for(ADMIN, &self.admin_token)
    }

    /// A kubeconfig for whoever `token` makes known.
    ///
    /// # Errors
    /// The API is not [served](Drydock::serve).
    pub fn kubeconfig_for(&self, user: &str, token: &str) -> Result<String, KubeconfigError> {
        let url = self.url().ok_or(KubeconfigError::NotServed)?;
        Ok(kubeconfig::render(&url, self.ca_pem(), user, token))
    }

    /// Writes the administrator's kubeconfig, whole or not at all, readable by its owner only.
    ///
    /// # Errors
    /// The API is not [served](Drydock::serve), or the file can't be written.
    pub fn write_kubeconfig(&self, path: &Path) -> Result<(), KubeconfigError> {
        Ok(private::write(path, self.kubeconfig()?.as_bytes())?)
    }

    /// Stops in order: nothing new is accepted, what is under way is answered, watches are ended, the data
    /// directory is let go.
    pub async fn shutdown(self) {
        let Link { tasks, stopping, stopped, .. } = &self.link;
        stopping.cancel();
        tasks.close();
        // Watches go on for as long as the store does, so with watches this takes its whole time.
        if tokio::time::timeout(GRACE[0], tasks.wait()).await.is_err() {
            self.store.close();
            if tokio::time::timeout(GRACE[1], tasks.wait()).await.is_err() {
                tracing::debug!(left = tasks.len(), "connections are cut");
            }
        }
        stopped.cancel();
        self.store.close();
    }
}

/// How a listener is reached from this machine.
fn reached(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

impl Drop for Drydock {
    fn drop(&mut self) {
        self.link.stopping.cancel();
        self.link.stopped.cancel();
        self.link.tasks.close();
        self.store.close();
    }
}

impl std::fmt::Debug for Drydock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Drydock");
        shown.field("revision", &self.revision()).field("served", &self.served.get()).finish_non_exhaustive()
    }
}
