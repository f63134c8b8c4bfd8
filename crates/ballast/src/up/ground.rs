//! Where a node keeps what it runs: beside a cluster that is kept, or in one of a row of places that are used
//! again, so that what a crash leaves is found by whoever comes next.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    /// Held for as long as the place is taken. A kept cluster's store has a lock of its own.
    _lock: Option<File>,
}

impl Ground {
    /// Takes one.
    ///
    /// # Errors
    /// It can't be made.
    pub fn take(place: &Place, passing: &Path) -> Result<Self, Failure> {
        let (root, lock) = match place {
            Place::Directory(directory) => (directory.join("node"), None),
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
        self.root.join("state")
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

fn sockets(root: &Path) -> PathBuf {
    root.join("sockets")
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

/// Makes the directories, without the sockets of an earlier process.
fn prepare(root: &Path) -> io::Result<Sockets> {
    private(root)?;
    let directory = sockets(root);
    remove(&directory)?;
    private(&directory)?;
    Sockets::open(&directory)
}

/// The first place that nobody has.
fn free(under: &Path) -> io::Result<(PathBuf, File)> {
    for number in 0..PLACES {
        let root = under.join(number.to_string());
        private(&root)?;
        let lock = File::options().create(true).truncate(false).write(true).open(root.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => return Ok((root, lock)),
            Err(fs::TryLockError::WouldBlock) => {}
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::other("all places are taken"))
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
    fn a_kept_cluster_has_its_node_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::Directory(directory.path().to_owned());
        let ground = Ground::take(&place, Path::new("/nonexistent")).unwrap();
        assert_eq!(ground.state(), directory.path().join("node/state"));
        assert!(ground.kept());
    }
}
