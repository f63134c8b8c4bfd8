//! A volume: what it holds, and how that comes to be there.
//!
//! ```text
//! VOLUME/
//!   ballast-volume.json   the marker: which server's data, written by which version
//!   data/                 the server's own
//!   .preparing-…/         what was not finished, and is thrown away
//! ```
//!
//! The marker is there before the data and says whether the data is whole. So every moment to be killed at leaves one
//! of these, and nothing else:
//!
//! | marker | data | what it means |
//! | --- | --- | --- |
//! | none | none | nothing was done yet |
//! | not whole | none | being prepared: it is begun again |
//! | not whole | there | prepared, and not yet said so |
//! | whole | there | in use |
//! | whole | none | **lost**: never made anew by itself |
//! | none | there | somebody else's |

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::flavour::Flavour;
use crate::version::Version;

const MARKER: &str = "ballast-volume.json";
const DATA: &str = "data";
const PREPARING: &str = ".preparing-";
/// What the marker's writer understands.
const FORMAT: u32 = 1;
/// How long one who ended a moment ago may hold the volume still.
const HANDOVER: Duration = Duration::from_secs(5);

/// Why a volume can't be used. Nothing on it was changed.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// It is not there, or not for this user to use.
    #[error(
        "the volume {path:?} can't be used by user {user} (it belongs to {owner}, mode {mode:o}): set the pod's securityContext.fsGroup or runAsUser"
    )]
    Denied {
        /// Where it is.
        path: PathBuf,
        /// Who asks.
        user: u32,
        /// Whose it is.
        owner: u32,
        /// Its permissions.
        mode: u32,
    },
    /// Something on it can't be read or written.
    #[error("{what} {path:?}")]
    Disk {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// Another process uses it.
    #[error("the volume {0:?} is in use by another agent")]
    InUse(PathBuf),
    /// The marker can't be understood.
    #[error(
        "{0:?} says nothing that this version of Ballast understands: the volume was written by a later one, or is damaged"
    )]
    Marker(PathBuf),
    /// It holds something that Ballast did not make.
    #[error("the volume {path:?} holds {found:?}, which Ballast did not make: give an empty volume")]
    Foreign {
        /// Where it is.
        path: PathBuf,
        /// What is there.
        found: String,
    },
    /// The data that was there is gone.
    #[error(
        "the volume {path:?} held the data of {flavour} {version}, and {missing:?} is gone: restore it, or give an empty volume"
    )]
    Lost {
        /// Where it is.
        path: PathBuf,
        /// Whose data it was.
        flavour: Flavour,
        /// What wrote it last.
        version: Version,
        /// What is not there.
        missing: PathBuf,
    },
}

/// What is written on a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Marker {
    format: u32,
    pub(crate) flavour: Flavour,
    pub(crate) version: Version,
    /// The name that an etcd member has in its cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) member: Option<String>,
    whole: bool,
    /// Whether this version has opened the data of an older series, and is not done with that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) upgrading: bool,
}

impl Marker {
    pub(crate) fn new(flavour: Flavour, version: Version, member: Option<String>) -> Marker {
        Marker { format: FORMAT, flavour, version, member, whole: false, upgrading: false }
    }
}

/// What was found on a volume.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No data, and none was ever there.
    Nothing,
    /// Data, by this marker.
    Data(Marker),
}

/// A volume that is this process's alone for as long as this lives.
#[derive(Debug)]
pub(crate) struct Volume {
    root: PathBuf,
    _lock: File,
}

impl Volume {
    pub(crate) fn open(root: &Path) -> Result<Volume, VolumeError> {
        let disk = |error| VolumeError::Disk { what: "can't open the volume", path: root.to_owned(), error };
        let lock = File::open(root).map_err(|error| denied(root).unwrap_or_else(|| disk(error)))?;
        if rustix::fs::access(root, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_err() {
            return Err(denied(root).unwrap_or_else(|| disk(io::ErrorKind::PermissionDenied.into())));
        }
        let deadline = Instant::now() + HANDOVER;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Volume { root: root.to_owned(), _lock: lock }),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => sleep(HANDOVER / 100),
                Err(TryLockError::WouldBlock) => return Err(VolumeError::InUse(root.to_owned())),
                Err(TryLockError::Error(error)) => return Err(disk(error)),
            }
        }
    }

    /// Where the server's data is.
    pub(crate) fn data(&self) -> PathBuf {
        self.root.join(DATA)
    }

    /// What is on it.
    pub(crate) fn look(&self) -> Result<Found, VolumeError> {
        let marker = self.marker()?;
        let data = self.data();
        match marker {
            None => self.strangers().map(|()| Found::Nothing),
            Some(marker) => {
                let proof = data.join(marker.flavour.proof());
                match (marker.whole, proof.exists()) {
                    (_, true) => Ok(Found::Data(marker)),
                    (false, false) => Ok(Found::Nothing),
                    (true, false) => Err(VolumeError::Lost {
                        path: self.root.clone(),
                        flavour: marker.flavour,
                        version: marker.version,
                        missing: proof,
                    }),
                }
            }
        }
    }

    /// Makes the data where there is none. `make` gets a path at which nothing is; what it makes there is the data
    /// when it succeeds, and nothing is when it does not.
    pub(crate) fn prepare<E: From<VolumeError>>(
        &self,
        marker: &Marker,
        make: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        self.sweep()?;
        self.write(marker)?;
        let place = tempfile::Builder::new()
            .prefix(PREPARING)
            .tempdir_in(&self.root)
            .map_err(|error| self.disk("can't write to", &self.root, error))?;
        let made = place.path().join(DATA);
        make(&made)?;
        let sync = || -> io::Result<()> {
            let directory = File::open(&self.root)?;
            rustix::fs::syncfs(&directory)?;
            fs::rename(&made, self.data())?;
            directory.sync_all()
        };
        sync().map_err(|error| self.disk("can't keep", &made, error).into())
    }

    /// Says on the volume that the data is whole, and what writes it from here on.
    pub(crate) fn confirm(&self, marker: &Marker) -> Result<(), VolumeError> {
        self.throw_away()?;
        let whole = Marker { whole: true, ..marker.clone() };
        if self.marker()?.as_ref() == Some(&whole) {
            return Ok(());
        }
        self.write(&whole)
    }

    /// Closes the data to everybody else. A kubelet that gives a volume to a group opens all of it, at each start, and
    /// PostgreSQL does not run on what others can open.
    pub(crate) fn close(&self) -> Result<(), VolumeError> {
        let data = self.data();
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700))
            .map_err(|error| self.disk("can't set the permissions of", &data, error))
    }

    /// Whether a server has made its data.
    pub(crate) fn has_data(&self, flavour: Flavour) -> bool {
        self.data().join(flavour.proof()).exists()
    }

    fn marker(&self) -> Result<Option<Marker>, VolumeError> {
        let path = self.root.join(MARKER);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.disk("can't read", &path, error)),
        };
        match serde_json::from_slice::<Marker>(&bytes) {
            Ok(marker) if marker.format == FORMAT => Ok(Some(marker)),
            _ => Err(VolumeError::Marker(path)),
        }
    }

    /// Whole or not at all, and on disk.
    fn write(&self, marker: &Marker) -> Result<(), VolumeError> {
        let path = self.root.join(MARKER);
        let write = || -> io::Result<()> {
            let mut part = tempfile::Builder::new().prefix(PREPARING).tempfile_in(&self.root)?;
            part.write_all(&serde_json::to_vec(marker)?)?;
            part.as_file().sync_all()?;
            part.persist(&path)?;
            File::open(&self.root)?.sync_all()
        };
        write().map_err(|error| self.disk("can't write", &path, error))
    }

    /// What is on a volume without a marker, beside what file systems have of their own.
    fn strangers(&self) -> Result<(), VolumeError> {
        for name in self.names()? {
            if !name.starts_with('.') && name != "lost+found" {
                return Err(VolumeError::Foreign { path: self.root.clone(), found: name });
            }
        }
        Ok(())
    }

    /// Throws away what was not finished, or is left of what was.
    fn throw_away(&self) -> Result<(), VolumeError> {
        for name in self.names()?.into_iter().filter(|name| name.starts_with(PREPARING)) {
            let path = self.root.join(name);
            let gone = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            gone.map_err(|error| self.disk("can't remove", &path, error))?;
        }
        Ok(())
    }

    /// Makes room for new data.
    fn sweep(&self) -> Result<(), VolumeError> {
        self.throw_away()?;
        // A directory that a server has put nothing into yet. One with something in it stays, and is in the way.
        match fs::remove_dir(self.data()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.disk("the data is not whole, and is not made anew over", &self.data(), error))
            }
            _ => Ok(()),
        }
    }

    fn names(&self) -> Result<Vec<String>, VolumeError> {
        let read = || -> io::Result<Vec<String>> {
            fs::read_dir(&self.root)?
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                .collect()
        };
        read().map_err(|error| self.disk("can't read", &self.root, error))
    }

    fn disk(&self, what: &'static str, path: &Path, error: io::Error) -> VolumeError {
        VolumeError::Disk { what, path: path.to_owned(), error }
    }
}

/// Makes a directory that nobody else looks into.
pub(crate) fn own_directory(path: &Path) -> Result<(), VolumeError> {
    fs::DirBuilder::new().mode(0o700).create(path).map_err(|error| VolumeError::Disk {
        what: "can't make",
        path: path.to_owned(),
        error,
    })
}

/// Whose it is, where it is somebody's.
fn denied(root: &Path) -> Option<VolumeError> {
    let found = fs::metadata(root).ok().filter(fs::Metadata::is_dir)?;
    Some(VolumeError::Denied {
        path: root.to_owned(),
        user: rustix::process::geteuid().as_raw(),
        owner: found.uid(),
        mode: found.mode() & 0o7777,
    })
}

#[cfg(test)]
#[path = "volume_tests.rs"]
mod tests;
