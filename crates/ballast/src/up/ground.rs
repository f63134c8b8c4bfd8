//! Where a node keeps what it runs: beside a cluster that is kept, or in one of a row of places that are used
//! again. Whoever comes next takes a place that a crash left something in before any other, and sweeps it.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drydock::OpenError;
use drydock_sandbox::Host;

use crate::configuration::Place;
use crate::failure::{Explain as _, Failure};
use crate::node::handover::Sockets;

/// More clusters than anyone runs on one machine at a time.
const PLACES: u32 = 1000;

/// A directory that only this cluster's node uses.
#[derive(Debug)]
pub struct Ground {
    root: PathBuf,
    kept: bool,
    sockets: Arc<Sockets>,
    /// Held for as long as the place is taken. The directory of a kept cluster is taken as a whole.
    _lock: Option<File>,
}

impl Ground {
    /// Takes one.
    ///
    /// # Errors
    /// It can't be made.
    pub fn take(place: &Place, passing: &Path) -> Result<Self, Failure> {
        let (root, lock) = match place {
            Place::Directory(directory) => (of_kept(directory), None),
            Place::Memory => {
                let (root, lock) =
                    free(passing).what(format_args!("can't use {} for pods", passing.display()))?;
                (root, Some(lock))
            }
        };
        let kept = lock.is_none();
        let what = format!("can't use {} for pods", root.display());
        let sockets = prepare(&root).what(what)?;
        Ok(Ground { root, kept, sockets: Arc::new(sockets), _lock: lock })
    }

    /// The sockets between this process and the node.
    pub fn sockets(&self) -> Arc<Sockets> {
        Arc::clone(&self.sockets)
    }

    /// Where they are.
    pub fn sockets_directory(&self) -> PathBuf {
        sockets(&self.root)
    }

    /// Where the node writes down what it runs.
    pub fn state(&self) -> PathBuf {
        state(&self.root)
    }

    /// Where volumes and logs are.
    pub fn files(&self) -> PathBuf {
        self.root.join("files")
    }

    /// Whether the next cluster here is the same one.
    pub fn kept(&self) -> bool {
        self.kept
    }
}

/// Takes the directory of a kept cluster, which is made where it isn't there, for as long as what is given is held.
///
/// # Errors
/// Another process has it, or it can't be made or locked.
pub fn take_whole(directory: &Path) -> Result<File, OpenError> {
    let failed = |source| OpenError::Io { path: directory.to_owned(), doing: "take it", source };
    let taken = make_lasting(directory).and_then(|()| lock(directory)).map_err(failed)?;
    taken.ok_or_else(|| OpenError::InUse(directory.to_owned()))
}

/// Whether pods of a kept cluster, whose process was killed, may run on.
pub fn is_left(directory: &Path) -> bool {
    Host::is_recorded(&state(&of_kept(directory)))
}

fn of_kept(directory: &Path) -> PathBuf {
    directory.join("node")
}

fn sockets(root: &Path) -> PathBuf {
    root.join("sockets")
}

fn state(root: &Path) -> PathBuf {
    root.join("state")
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Makes a directory and those above it, so that it is there after a power failure, too.
fn make_lasting(directory: &Path) -> io::Result<()> {
    let missing: Vec<_> = directory.ancestors().take_while(|path| !path.exists()).collect();
    private(directory).map_err(|error| match error.kind() {
        // A file of that name, which says more than that something is there.
        io::ErrorKind::AlreadyExists => rustix::io::Errno::NOTDIR.into(),
        _ => error,
    })?;
    missing.iter().filter_map(|made| made.parent()).try_for_each(|parent| File::open(parent)?.sync_all())
}

/// Makes the directories, without the sockets of an earlier process.
fn prepare(root: &Path) -> io::Result<Sockets> {
    private(root)?;
    let directory = sockets(root);
    remove(&directory)?;
    private(&directory)?;
    Sockets::open(&directory)
}

/// A place that nobody has: the first in which a node's end left something, or else the first.
fn free(under: &Path) -> io::Result<(PathBuf, File)> {
    let places = || (0..PLACES).map(|number| under.join(number.to_string()));
    for root in places().take_while(|root| root.exists()) {
        if let Some(lock) = lock(&root)?
            && Host::is_abandoned(&state(&root))
        {
            return Ok((root, lock));
        }
    }
    for root in places() {
        private(&root)?;
        if let Some(lock) = lock(&root)? {
            return Ok((root, lock));
        }
    }
    Err(io::Error::other("all places are taken"))
}

/// Takes a place, if nobody has it.
fn lock(root: &Path) -> io::Result<Option<File>> {
    let lock =
        File::options().create(true).truncate(false).write(true).mode(0o600).open(root.join("lock"))?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passing_places_are_used_again() {
        let directory = tempfile::tempdir().unwrap();
        let take = || Ground::take(&Place::Memory, directory.path()).unwrap();
        let (first, second) = (take(), take());
        assert_ne!(first.state(), second.state());
        let place = first.state();
        drop(first);
        assert_eq!(take().state(), place);
        assert!(!second.kept());
    }

    #[test]
    fn what_a_crash_left_is_taken_before_what_is_free() {
        let directory = tempfile::tempdir().unwrap();
        let take = || Ground::take(&Place::Memory, directory.path()).unwrap();
        let (first, second, third) = (take(), take(), take());
        let place = second.state();
        fs::create_dir(&place).unwrap();
        fs::write(place.join("host.json"), "").unwrap();
        assert_ne!(take().state(), place, "who is there has it");
        drop((first, second, third));
        let node = File::create(place.join("lock")).unwrap();
        node.try_lock().unwrap();
        assert_ne!(take().state(), place, "its node clears up by itself");
        drop(node);
        assert_eq!(take().state(), place);
        fs::remove_file(place.join("host.json")).unwrap();
        assert_ne!(take().state(), place, "nothing is left");
    }

    #[test]
    fn a_kept_cluster_has_its_node_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::Directory(directory.path().to_owned());
        let ground = Ground::take(&place, Path::new("/nonexistent")).unwrap();
        assert_eq!(ground.state(), directory.path().join("node/state"));
        assert!(ground.kept());
    }
}
