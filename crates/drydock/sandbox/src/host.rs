//! The host: what all pods of a node share, and what is left of an earlier run.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::{TcpSocket, TcpStream};

use crate::abilities::Abilities;
use crate::cgroup::Cgroups;
use crate::config::{Cidr, PodConfig};
use crate::enter::{self, Entered, Users};
use crate::error::Error;
use crate::keeping::Keeping;
use crate::network::{self, Addresses};
use crate::pod::Pod;
use crate::process::Process;
use crate::protocol::{KeeperRequest, PodAnswer, PodNetwork, PodSetup};
use crate::state::{self, HostRecord, Layout, PodRecord, UplinkRecord};
use crate::sweep;
use crate::wire::Line;

/// What a host is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// The pods' network: the first of these whose link no other host of this machine has.
    pub networks: Vec<Network>,
    /// Addresses that are the node's own, all of them: what it listens on for services.
    pub service_cidr: Option<Cidr>,
    /// Pods outlive this process, to be adopted by the next. Otherwise they end with it, however it ends.
    pub outlive: bool,
    /// Copy a tree for each container, even where it could be layered.
    pub copy_trees: bool,
    /// The program to run as the keeper; it must call [`crate::hook`]. None is this program.
    pub program: Option<PathBuf>,
}

/// A network that pods can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// The pods' addresses.
    pub pod_cidr: Cidr,
    /// The name of the link that joins this machine and the pods; only root can have one.
    pub uplink: Option<String>,
}

impl Network {
    /// The address that the node itself has in it.
    pub fn node_address(&self) -> Ipv4Addr {
        network::node_address(self.pod_cidr)
    }
}

const BRIDGE: &str = "pods";

/// A node's machine.
///
/// # Guarantees
///
/// Everything it makes is recorded before it is made, so [`Host::open`] after a crash finds and removes, or takes
/// over, exactly that. After [`Host::close`] nothing is left but the empty state directory.
#[derive(Clone)]
pub struct Host {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub layout: Layout,
    /// A short name for the state directory, whatever its path.
    pub directory: fs::File,
    pub abilities: Abilities,
    pub layered: bool,
    pub cgroups: Option<Cgroups>,
    pub addresses: Mutex<Addresses>,
    pub range: Cidr,
    bridge: u32,
    outside: Option<OwnedFd>,
    uplink: Option<UplinkRecord>,
    keeping: Arc<Keeping>,
    _lock: fs::File,
}

impl Host {
    /// Whether a state directory records a host that was not closed, and no node is there any more to close it.
    pub fn is_abandoned(state_dir: &Path) -> bool {
        Self::is_recorded(state_dir) && enter::lock(state_dir).is_ok()
    }

    /// Whether a state directory records a host that was not closed.
    pub fn is_recorded(state_dir: &Path) -> bool {
        Layout { root: state_dir.to_owned() }.host().exists()
    }

    /// Opens the host in the namespaces that were entered.
    ///
    /// When those are an earlier run's, its pods run on and are found by [`Host::adopt`]. Otherwise whatever an
    /// earlier run left is ended and removed first.
    ///
    /// # Errors
    ///
    /// When the machine refuses the bridge, the link or the keeper. A cgroup or overlay that it refuses is not an
    /// error but in [`Host::abilities`].
    pub fn open(entered: Entered, options: Options) -> Result<Self, Error> {
        let Entered { state_dir, resumed, root, users, outside, files, lock } = entered;
        let layout = Layout { root: state_dir };
        if !resumed {
            sweep::everything(&layout, outside.as_ref())?;
        }
        sweep::unrecorded(&layout)?;
        fs::create_dir_all(layout.pods()).map_err(Error::machine("making the pods' directory"))?;
        let earlier: Option<HostRecord> = resumed.then(|| state::read(&layout.host()).ok()).flatten();
        // So is its network: whoever comes back keeps what the machine knows.
        let networks: Vec<Network> = match &earlier {
            Some(record) => {
                let uplink = record.uplink.as_ref().map(|link| link.name.clone());
                vec![Network { pod_cidr: record.pod_cidr, uplink }]
            }
            None => options.networks,
        };
        // An earlier run's are where that run was, which may be elsewhere than this one.
        let cgroups = match earlier.as_ref().and_then(|record| record.cgroups.clone()) {
            Some(groups) => Ok(groups),
            None => Cgroups::open(&cgroup_name(&layout.root), root),
        };
        let mut record = HostRecord {
            keeper: earlier.as_ref().and_then(|record| record.keeper.clone()).filter(Process::alive),
            cgroups: cgroups.as_ref().ok().cloned(),
            uplink: earlier.as_ref().and_then(|record| record.uplink.clone()),
            pod_cidr: networks.first().ok_or_else(no_network)?.pod_cidr,
        };
        let write = |record: &HostRecord| {
            state::write(&layout.host(), record).map_err(Error::machine("writing the host's record"))
        };
        write(&record)?;
        let bridge = match (&outside, earlier.is_some()) {
            (Some(outside), false) => join(&mut record, networks, options.service_cidr, outside, &write)?,
            _ => network::bridge(BRIDGE, record.pod_cidr, options.service_cidr)
                .map_err(Error::machine("making the pods' bridge"))?,
        };
        let range = record.pod_cidr;
        let abilities = Abilities::find(&layout.root, root, users, &cgroups);
        let uplink = record.uplink.clone();
        let keeping = Keeping::start(layout.clone(), options.program, options.outlive, files, record)?;
        let taken: Vec<Ipv4Addr> = layout
            .pod_records()
            .map_err(Error::machine("reading the pods' records"))?
            .into_iter()
            .filter(|record| !record.config.host_network)
            .map(|record| record.address)
            .collect();
        let directory =
            fs::File::open(&layout.root).map_err(Error::machine("opening the state directory"))?;
        let inner = Inner {
            directory,
            layered: abilities.overlay.is_yes() && !options.copy_trees,
            abilities,
            cgroups: cgroups.ok(),
            addresses: Mutex::new(Addresses::new(range, taken)),
            range,
            bridge,
            outside,
            uplink,
            keeping,
            _lock: lock,
            layout,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What this machine grants.
    pub fn abilities(&self) -> &Abilities {
        &self.inner.abilities
    }

    /// The pods' addresses.
    pub fn range(&self) -> Cidr {
        self.inner.range
    }

    /// The node's own address, which every pod reaches.
    pub fn address(&self) -> Ipv4Addr {
        network::node_address(self.inner.range)
    }

    /// The machine's address on the link, where there is one: what pods and node reach it by.
    pub fn machine_address(&self) -> Option<Ipv4Addr> {
        self.inner.uplink.as_ref().map(|_| network::machine_address(self.inner.range))
    }

    /// Whether the machine sends what goes to services here. Of several hosts on a machine, the first has them.
    pub fn has_services_route(&self) -> bool {
        self.inner.uplink.as_ref().is_some_and(|uplink| uplink.services)
    }

    /// Connects to an address of the machine, its loopback included, from outside the node's network.
    ///
    /// # Errors
    ///
    /// Only root can: a user namespace has no way back.
    pub async fn connect_outside(&self, address: SocketAddr) -> Result<TcpStream, Error> {
        let Some(outside) = &self.inner.outside else {
            return Err(Error::Unsupported(
                "the machine's own network can't be reached without root".to_owned(),
            ));
        };
        let what = || format!("connecting to {address}");
        let socket = network::inside(outside, || match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        });
        let socket = socket.and_then(|made| made).map_err(Error::machine(what()))?;
        socket.connect(address).await.map_err(Error::machine(what()))
    }

    /// Makes a pod: its namespaces, its address and its init, and nothing in it yet.
    ///
    /// # Errors
    ///
    /// What was made is removed again.
    pub async fn create_pod(&self, config: PodConfig) -> Result<Pod, Error> {
        let inner = &self.inner;
        if !state::is_name(&config.id, state::LONGEST_POD) {
            return Err(Error::Name(format!("{:?} can't be a pod's name", config.id)));
        }
        let directory = inner.layout.pod(&config.id);
        if directory.exists() {
            return Err(Error::Name(format!("there is a pod {} already", config.id)));
        }
        let address = if config.host_network { Some(self.address()) } else { inner.addresses.lock().take() };
        let address = address
            .ok_or_else(|| Error::Unsupported(format!("all addresses of {} are taken", inner.range)))?;
        let made = self.make(config, address).await;
        if made.is_err() {
            inner.addresses.lock().give_back(address);
        }
        made
    }

    async fn make(&self, config: PodConfig, address: Ipv4Addr) -> Result<Pod, Error> {
        let inner = &self.inner;
        let id = config.id.clone();
        let hostname = config.hostname.clone();
        let share_process_namespace = config.share_process_namespace;
        let link = format!("v{:08x}", u32::from(address));
        if !config.host_network {
            // The address is free: what is called by it still is that of a pod whose record could not be read.
            sweep::link(&link)?;
        }
        let network = (!config.host_network).then(|| PodNetwork {
            link: link.clone(),
            bridge: inner.bridge,
            address,
            prefix: inner.range.prefix,
            gateway: self.address(),
        });
        let cgroups = inner.cgroups.as_ref().map(|groups| groups.existing(&id, "").all()).unwrap_or_default();
        let record = PodRecord { config, address, link, cgroups };
        let written = write_pod(&inner.layout, &record)
            .and_then(|()| match &inner.cgroups {
                Some(groups) => groups.pod(&id, &record.config.limits).map(drop),
                None => Ok(()),
            })
            .map_err(Error::machine(format!("preparing pod {id}")));
        let pod = Pod::new(self.clone(), record);
        if let Err(error) = written {
            pod.stop().await?;
            return Err(error);
        }
        let setup = PodSetup {
            directory: inner.layout.pod(&id),
            shm: inner.layout.shm(&id),
            id: id.clone(),
            hostname,
            network,
            share_process_namespace,
        };
        let request = KeeperRequest::Pod(Box::new(setup));
        let answer = async { self.ask_keeper(&request).await?.answer::<PodAnswer>().await };
        let error = match answer.await {
            Ok(Some((PodAnswer::Up, _))) => return Ok(pod),
            Ok(Some((PodAnswer::Failed { step, errno }, _))) => Error::Machine {
                what: format!("pod {id}: {step}"),
                source: io::Error::from_raw_os_error(errno),
            },
            Ok(None) => Error::Gone(id),
            Err(source) => Error::Machine { what: "asking the keeper".to_owned(), source },
        };
        pod.stop().await?;
        Err(error)
    }

    /// Asks the keeper, and where it was killed the next one.
    async fn ask_keeper(&self, request: &KeeperRequest) -> io::Result<Line> {
        let path = self.inner.path("keeper.sock");
        match Line::call(&path, request, &[]).await {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) =>
            {
                let keeping = Arc::clone(&self.inner.keeping);
                blocking(move || keeping.ensure()).await.map_err(io::Error::other)?;
                Line::call(&path, request, &[]).await
            }
            other => other,
        }
    }

    /// The pods that run or have run here, an earlier run's included. [`Pod::is_alive`] tells them apart.
    ///
    /// # Errors
    ///
    /// When the state directory can't be read.
    pub fn adopt(&self) -> Result<Vec<Pod>, Error> {
        let records = self.inner.layout.pod_records().map_err(Error::machine("reading the pods' records"))?;
        Ok(records.into_iter().map(|record| Pod::new(self.clone(), record)).collect())
    }

    /// Ends every pod and the keeper, and removes all that was made.
    ///
    /// # Errors
    ///
    /// When something does not go away; [`Host::open`] tries again.
    pub async fn close(self) -> Result<(), Error> {
        let inner = self.inner;
        inner.keeping.close();
        blocking(move || {
            sweep::everything(&inner.layout, inner.outside.as_ref())?;
            if let Some(groups) = &inner.cgroups {
                groups.step_back();
            }
            Ok(())
        })
        .await
    }
}

fn no_network() -> Error {
    Error::Unsupported("all networks are in use by other hosts of this machine".to_owned())
}

/// Makes the bridge, and the link of the first network whose link is nobody else's.
fn join(
    record: &mut HostRecord,
    networks: Vec<Network>,
    services: Option<Cidr>,
    outside: &OwnedFd,
    write: &dyn Fn(&HostRecord) -> Result<(), Error>,
) -> Result<u32, Error> {
    for Network { pod_cidr, uplink } in networks {
        let failed = |name: &str| Error::machine(format!("making the link {name}"));
        if let Some(name) = &uplink
            && network::has_link(name, outside).map_err(failed(name))?
        {
            continue;
        }
        record.pod_cidr = pod_cidr;
        record.uplink = uplink.clone().map(|name| UplinkRecord { name, index: None, services: false });
        write(record)?;
        let bridge =
            network::bridge(BRIDGE, pod_cidr, services).map_err(Error::machine("making the pods' bridge"))?;
        let Some(name) = uplink else { return Ok(bridge) };
        match network::uplink(&name, bridge, pod_cidr, services, outside) {
            Ok((index, services)) => {
                record.uplink = Some(UplinkRecord { name, index: Some(index), services });
                write(record)?;
                return Ok(bridge);
            }
            Err(error) => {
                // What is called so is somebody else's, who was quicker: not to be removed with this host.
                record.uplink = None;
                write(record)?;
                if error.kind() != io::ErrorKind::AlreadyExists {
                    return Err(failed(&name)(error));
                }
                network::remove_bridge(BRIDGE).map_err(Error::machine("removing the pods' bridge"))?;
            }
        }
    }
    Err(no_network())
}

impl Inner {
    /// A path in the state directory that is short enough for a socket's.
    pub fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.directory.as_raw_fd()))
    }

    pub fn one_user(&self) -> bool {
        self.abilities.users == Users::One
    }
}

/// Runs what waits for the kernel where it holds up nobody.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(Error::Machine { what: "waiting".to_owned(), source: io::Error::other(error) })
    })
}

/// A name that tells this state directory's cgroups from another's.
fn cgroup_name(state: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    // FNV-1a: the same for the same path in every build, which the standard hasher does not promise.
    let hash = state.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("drydock-{hash:016x}")
}

fn write_pod(layout: &Layout, record: &PodRecord) -> io::Result<()> {
    let id = &record.config.id;
    fs::create_dir_all(layout.containers(id))?;
    state::write(&layout.pod_record(id), record)?;
    let etc = layout.pod(id).join("etc");
    fs::create_dir_all(&etc)?;
    let hostname = &record.config.hostname;
    fs::write(etc.join("hostname"), format!("{hostname}\n"))?;
    let hosts = record.config.hosts.clone().unwrap_or_else(|| {
        format!(
            "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n{}\t{hostname}\n",
            record.address
        )
    });
    fs::write(etc.join("hosts"), hosts)?;
    if let Some(resolv_conf) = &record.config.resolv_conf {
        fs::write(etc.join("resolv.conf"), resolv_conf)?;
    }
    Ok(())
}
