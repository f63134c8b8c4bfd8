//! One pod.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::{TcpSocket, TcpStream};

use crate::config::{ContainerConfig, PodConfig};
use crate::container::Container;
use crate::error::{Error, is_shortage};
use crate::host::{Host, blocking};
use crate::protocol::{ContainerSetup, Done, InitRequest, Started};
use crate::removal::remove_all;
use crate::state::{self, InitRecord, PodRecord};
use crate::sweep;
use crate::wire::Line;

/// A pod of a host. Clones are the same pod; dropping one does nothing to it.
#[derive(Clone)]
pub struct Pod {
    pub(crate) inner: Arc<PodInner>,
}

pub(crate) struct PodInner {
    pub host: Host,
    pub record: PodRecord,
}

impl Pod {
    pub(crate) fn new(host: Host, record: PodRecord) -> Self {
        Self { inner: Arc::new(PodInner { host, record }) }
    }

    /// Its name.
    pub fn id(&self) -> &str {
        &self.inner.record.config.id
    }

    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        self.inner.record.address
    }

    /// What it was made from.
    pub fn config(&self) -> &PodConfig {
        &self.inner.record.config
    }

    /// Whether its init runs, as far as can be seen now. A pod whose init is gone has no process, and can only be
    /// stopped.
    pub fn is_alive(&self) -> bool {
        let path = self.inner.host.inner.layout.init_record(self.id());
        match state::read::<InitRecord>(&path) {
            Ok(record) => record.process.alive(),
            Err(error) => is_shortage(&error),
        }
    }

    /// Starts a container and gives it back once its program runs.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] when its configuration can't be carried out. Nothing of it is left then.
    pub async fn start(&self, config: ContainerConfig) -> Result<Container, Error> {
        let host = &self.inner.host.inner;
        let id = config.id.clone();
        if !state::is_name(&id, state::LONGEST_CONTAINER) {
            return Err(Error::Name(format!("{id:?} can't be a container's name")));
        }
        let directory = host.layout.container(self.id(), &id);
        if directory.exists() {
            return Err(Error::Name(format!("there is a container {id} in pod {} already", self.id())));
        }
        let failed = || Error::machine(format!("preparing container {id}"));
        std::fs::create_dir_all(&directory).map_err(failed())?;
        state::write(&directory.join("config.json"), &config).map_err(failed())?;
        let group = match &host.cgroups {
            Some(groups) => groups.container(self.id(), &id, &config.limits).map_err(failed()),
            None => Ok(crate::cgroup::Group::default()),
        };
        let started = match group {
            Ok(group) => self.start_in(config, directory, group).await,
            Err(error) => Err(error),
        };
        if started.is_err() {
            self.discard(&id).await?;
        }
        started
    }

    async fn start_in(
        &self,
        config: ContainerConfig,
        directory: PathBuf,
        group: crate::cgroup::Group,
    ) -> Result<Container, Error> {
        let host = &self.inner.host.inner;
        let id = config.id.clone();
        let pids_held =
            host.cgroups.as_ref().is_some_and(|groups| groups.limits(crate::cgroup::Controller::Pids));
        let etc = host.layout.pod(self.id()).join("etc");
        let setup = ContainerSetup {
            etc: ["hostname", "hosts", "resolv.conf"]
                .into_iter()
                .map(|name| (name.to_owned(), etc.join(name)))
                .filter(|(_, path)| path.exists())
                .collect(),
            shm: host.layout.shm(self.id()),
            group,
            overlay: host.layered,
            user_namespace: !host.abilities.root,
            one_user: host.one_user(),
            pids_without_cgroup: config.limits.pids.filter(|_| !pids_held),
            directory,
            config,
        };
        let (answer, _): (Started, _) = self.ask(&InitRequest::Start(Box::new(setup))).await?;
        match answer {
            Started::Yes { pid, started } => Ok(Container::new(self.clone(), id, pid, started)),
            Started::No(error) => Err(error.into()),
            Started::Absent => Err(Error::Name(format!("there is no container {id}"))),
        }
    }

    /// The containers that were started here, those that have ended included.
    ///
    /// # Errors
    ///
    /// When the state directory can't be read.
    pub fn containers(&self) -> Result<Vec<Container>, Error> {
        let layout = &self.inner.host.inner.layout;
        let failed = || Error::machine(format!("reading the containers of pod {}", self.id()));
        let mut containers = Vec::new();
        for id in state::names(&layout.containers(self.id())).map_err(failed())? {
            let path = layout.container(self.id(), &id).join("running.json");
            if let Ok(record) = state::read::<state::RunningRecord>(&path) {
                containers.push(Container::new(self.clone(), id, record.process.pid, record.started));
            } else if let Ok(exit) = state::read::<crate::config::Exit>(&path.with_file_name("exit.json")) {
                containers.push(Container::new(self.clone(), id, 0, exit.started));
            }
        }
        Ok(containers)
    }

    /// Connects to a port of the pod as a program in it would: to its loopback.
    ///
    /// # Errors
    ///
    /// When nobody listens, or the pod is gone.
    pub async fn connect(&self, port: u16) -> Result<TcpStream, Error> {
        match self.dial(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await {
            // Some programs listen on the pod's address only.
            Err(Error::Unreached { source, .. }) if source.kind() == io::ErrorKind::ConnectionRefused => {
                self.dial(SocketAddr::from((self.address(), port))).await
            }
            other => other,
        }
    }

    /// Connects to an address from within the pod.
    ///
    /// # Errors
    ///
    /// [`Error::Unreached`] when nobody there takes the connection; others when the pod is gone, or can't be asked.
    pub async fn dial(&self, address: SocketAddr) -> Result<TcpStream, Error> {
        let address = match address {
            SocketAddr::V6(v6) if *v6.ip() == Ipv6Addr::LOCALHOST => {
                SocketAddr::from((Ipv4Addr::LOCALHOST, v6.port()))
            }
            other => other,
        };
        let (done, files): (Done, _) = self.ask(&InitRequest::Socket).await?;
        let failed = || Error::machine(format!("making a socket in pod {}", self.id()));
        let socket = match (done, files.into_iter().next()) {
            (Done::Yes, Some(socket)) => socket,
            (Done::Failed(why), _) => return Err(failed()(io::Error::other(why))),
            _ => return Err(failed()(io::Error::other("no socket came"))),
        };
        let socket = TcpSocket::from_std_stream(std::net::TcpStream::from(socket));
        let connected = socket.connect(address).await;
        connected.map_err(|source| Error::Unreached { pod: self.id().to_owned(), address, source })
    }

    /// Ends every process of the pod at once, and removes all that was made for it.
    ///
    /// Who wants its containers to end by themselves signals them and waits before.
    ///
    /// # Errors
    ///
    /// When something does not go away; it may be called again.
    pub async fn stop(&self) -> Result<(), Error> {
        let pod = self.clone();
        blocking(move || {
            let host = &pod.inner.host.inner;
            sweep::pod(&host.layout, pod.id(), Some(&pod.inner.record.link))
        })
        .await?;
        self.inner.host.inner.addresses.lock().give_back(self.address());
        Ok(())
    }

    /// Removes what is left under a name that is about to be used. Whoever began to start a container may have been
    /// killed before it ran, or before anybody was told that it does: nobody knows of it then, and it ends.
    ///
    /// # Errors
    ///
    /// When the machine refuses.
    pub async fn clear(&self, id: &str) -> Result<(), Error> {
        if !self.inner.host.inner.layout.container(self.id(), id).exists() {
            return Ok(());
        }
        let (_, _): (Done, _) = self.ask(&InitRequest::Forget { id: id.to_owned() }).await?;
        let Some(left) = self.containers()?.into_iter().find(|left| left.id() == id) else {
            return self.discard(id).await;
        };
        if left.exit().is_none() {
            left.signal(nix::sys::signal::Signal::SIGKILL as i32).await?;
            left.wait().await?;
        }
        left.remove().await
    }

    /// Removes what was made for a container that does not run.
    pub(crate) async fn discard(&self, id: &str) -> Result<(), Error> {
        let (pod, id) = (self.clone(), id.to_owned());
        blocking(move || {
            let host = &pod.inner.host.inner;
            if let Some(groups) = &host.cgroups {
                for directory in groups.existing(pod.id(), &id).all() {
                    sweep::group(&directory)?;
                }
            }
            remove_all(&host.layout.container(pod.id(), &id))
                .map_err(Error::machine(format!("removing the files of container {id}")))
        })
        .await
    }

    /// Asks the pod's init something that has one answer.
    pub(crate) async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        request: &InitRequest,
    ) -> Result<(T, Vec<OwnedFd>), Error> {
        let answered = self.call(request).await?.answer().await;
        answered.map_err(|error| self.unanswered(error))?.ok_or_else(|| Error::Gone(self.id().to_owned()))
    }

    pub(crate) async fn call(&self, request: &InitRequest) -> Result<Line, Error> {
        self.call_with(request, &[]).await
    }

    pub(crate) async fn call_with(
        &self,
        request: &InitRequest,
        files: &[std::os::fd::BorrowedFd<'_>],
    ) -> Result<Line, Error> {
        let path = self.inner.host.inner.path(&format!("pods/{}/init.sock", self.id()));
        Line::call(&path, request, files).await.map_err(|error| self.unanswered(error))
    }

    /// Why the init did not answer: nobody listens, or not to the end, or what it says is no answer. Anything else is
    /// this machine's trouble, and the pod may be well.
    pub(crate) fn unanswered(&self, error: io::Error) -> Error {
        use io::ErrorKind::{
            BrokenPipe, ConnectionRefused, ConnectionReset, InvalidData, NotFound, UnexpectedEof,
        };
        match error.kind() {
            BrokenPipe | ConnectionRefused | ConnectionReset | InvalidData | NotFound | UnexpectedEof => {
                Error::Gone(self.id().to_owned())
            }
            _ => Error::machine(format!("asking the init of pod {}", self.id()))(error),
        }
    }
}
