//! What is written down so that another process can find it again.
//!
//! ```text
//! <state>/host.json                         the keeper, the cgroups, the link to this machine
//! <state>/keeper.sock  keeper.log
//! <state>/pods/<pod>/pod.json               configuration, address
//! <state>/pods/<pod>/init.json  init.sock   the init, by itself
//! <state>/pods/<pod>/etc/                   files that all its containers see
//! <state>/pods/<pod>/containers/<id>/       config.json, running.json, exit.json, upper/ work/ root/
//! ```
//!
//! Files are replaced whole: a reader sees the old or the new one. A record is written before the thing it
//! records is made wherever that is possible, so that nothing exists that no record names.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroups;
use crate::config::{Cidr, PodConfig};
use crate::process::Process;

/// The host as a whole.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HostRecord {
    pub keeper: Option<Process>,
    /// The cgroups that this host made; everything below them is its own.
    pub cgroups: Option<Cgroups>,
    /// The link in the machine's own network namespace.
    pub uplink: Option<UplinkRecord>,
    pub pod_cidr: Cidr,
}

/// A link outside: its name and number, so that another's of the same name is not taken for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UplinkRecord {
    pub name: String,
    pub index: Option<u32>,
    /// What the machine sends to services goes over it.
    #[serde(default)]
    pub services: bool,
}

/// One pod.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PodRecord {
    pub config: PodConfig,
    pub address: Ipv4Addr,
    /// The name of the node's end of the pod's link.
    pub link: String,
    pub cgroups: Vec<PathBuf>,
}

/// A pod's init, written by itself before anyone is told that it runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct InitRecord {
    pub process: Process,
    /// Its descriptor of the node's network namespace, which it keeps from vanishing.
    pub node_network_fd: i32,
}

/// A container that runs or has run; how it ended is beside it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunningRecord {
    pub process: Process,
    pub started: Timestamp,
}

/// Where things are in a state directory.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub root: PathBuf,
}

impl Layout {
    pub fn host(&self) -> PathBuf {
        self.root.join("host.json")
    }

    pub fn keeper_log(&self) -> PathBuf {
        self.root.join("keeper.log")
    }

    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    pub fn pod(&self, id: &str) -> PathBuf {
        self.pods().join(id)
    }

    pub fn pod_record(&self, id: &str) -> PathBuf {
        self.pod(id).join("pod.json")
    }

    pub fn init_record(&self, id: &str) -> PathBuf {
        self.pod(id).join("init.json")
    }

    /// Where the memory that a pod's containers share is mounted.
    pub fn shm(&self, pod: &str) -> PathBuf {
        self.pod(pod).join("shm")
    }

    pub fn containers(&self, pod: &str) -> PathBuf {
        self.pod(pod).join("containers")
    }

    pub fn container(&self, pod: &str, id: &str) -> PathBuf {
        self.containers(pod).join(id)
    }

    /// The records of all pods. One that can't be read is named, not skipped in silence; [`crate::sweep`] has it removed
    /// by the next start.
    pub fn pod_records(&self) -> io::Result<Vec<PodRecord>> {
        let mut records = Vec::new();
        for id in names(&self.pods())? {
            match read(&self.pod_record(&id)) {
                Ok(record) => records.push(record),
                Err(error) => tracing::warn!(pod = id, %error, "a pod's record can't be read"),
            }
        }
        Ok(records)
    }
}

/// The names in a directory, sorted; none when it does not exist.
pub(crate) fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        if let Ok(name) = entry?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Reads a record.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Replaces a record.
pub(crate) fn write(path: &Path, record: &impl Serialize) -> io::Result<()> {
    let beside = path.with_extension("new");
    fs::write(&beside, serde_json::to_vec(record)?)?;
    fs::rename(&beside, path)
}

/// How long the name of a pod may be: it is in the path of a socket, which is short.
pub(crate) const LONGEST_POD: usize = 64;
/// The same of a container, which is in those of files: Kubernetes' longest, and how often it was started.
pub(crate) const LONGEST_CONTAINER: usize = 80;

/// Whether a name may be a file's: no separators, nothing hidden, not too long.
pub(crate) fn is_name(name: &str, longest: usize) -> bool {
    (1..=longest).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}
