//! The directories that volumes are.
//!
//! A volume's directory is named after the volume, whose name was checked; what pods write into it is never followed
//! out of it. What goes is renamed first, so that half a volume is never taken for one.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use drydock_sandbox::remove_all;
use parking_lot::Mutex;

use super::decide::is_plain;
use super::holders::Holders;

/// What is on its way out begins with this, which no volume's name does.
const GOING: &str = ".going-";

/// All volumes' directory, and what keeps those apart who use it at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    path: PathBuf,
    pub holders: Holders,
    turns: Arc<Mutex<BTreeMap<PathBuf, Turn>>>,
    closed: Arc<AtomicBool>,
}

/// Held by whoever does something to a volume.
type Turn = Arc<Mutex<()>>;

/// Where a volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// What pods see.
    pub data: PathBuf,
    /// What belongs to it beside that.
    pub aside: PathBuf,
}

impl Root {
    /// The one in a directory.
    pub fn below(directory: &Path) -> Self {
        Self {
            path: directory.join("volumes"),
            holders: Holders::default(),
            turns: Arc::default(),
            closed: Arc::default(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Does something to a volume while nobody else does. Blocks.
    pub fn alone<T>(&self, place: &Place, work: impl FnOnce() -> T) -> T {
        let turn = Arc::clone(self.turns.lock().entry(place.data.clone()).or_default());
        let _held = turn.lock();
        work()
    }

    /// From here on nothing is brought into memory any more. Who has begun to has the volume's turn.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Makes it, for its owner alone, and ends what an earlier run began to remove.
    pub fn prepare(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(GOING)) {
                // It is in nobody's way: what can't be removed now is tried again by the next run.
                if let Err(error) = remove_all(&entry.path()) {
                    tracing::warn!(%error, volume = ?entry.file_name(), "what is left of a volume stays");
                }
            }
        }
        Ok(())
    }

    /// Where a volume is; none when its name is none that was given here.
    pub fn place(&self, name: &str) -> Option<Place> {
        let plain = name.strip_prefix("pvc-").is_some_and(is_plain);
        plain.then(|| Place { data: self.path.join(name), aside: self.path.join(format!(".{name}")) })
    }

    /// The volumes that have something beside them.
    pub fn with_aside(&self) -> Vec<Place> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let names =
            entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix('.')?.to_owned()));
        names.filter_map(|name| self.place(&name)).collect()
    }

    /// Removes what is at a place.
    pub fn remove(&self, place: &Place) -> io::Result<()> {
        for path in [&place.data, &place.aside] {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let going = self.path.join(format!("{GOING}{name}"));
            remove_all(&going)?;
            match fs::rename(path, &going) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                renamed => {
                    renamed?;
                    remove_all(&going)?;
                }
            }
        }
        self.turns.lock().remove(&place.data);
        Ok(())
    }
}

/// Makes a directory that all in a pod may write to: nobody knows who that will be.
pub(crate) fn make(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o777).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => {
            made?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
            // It is said to be there: it must be there after whatever comes.
            match path.parent() {
                Some(parent) => fs::File::open(parent)?.sync_all(),
                None => Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_names_that_were_given_here_have_a_place() {
        let root = Root::below(Path::new("/x"));
        let place = root.place("pvc-0a-1").unwrap();
        assert_eq!(place.data, Path::new("/x/volumes/pvc-0a-1"));
        for name in ["", "pvc-", "pvc-..", "pvc-a/b", "../pvc-a", ".going-pvc-a", "data"] {
            assert_eq!(root.place(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_removal_follows_no_link() {
        let machine = tempfile::tempdir().unwrap();
        let kept = machine.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "1").unwrap();
        let root = Root::below(machine.path());
        root.prepare().unwrap();
        let place = root.place("pvc-1").unwrap();
        make(&place.data).unwrap();
        make(&place.data).unwrap();
        fs::create_dir(place.data.join("sub")).unwrap();
        symlink(&kept, place.data.join("sub/link")).unwrap();
        symlink("../../kept", place.data.join("link")).unwrap();
        root.remove(&place).unwrap();
        root.remove(&place).unwrap();
        assert_eq!(fs::read_to_string(kept.join("file")).unwrap(), "1");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_removal_that_was_cut_short_is_ended_by_the_next_run() {
        let machine = tempfile::tempdir().unwrap();
        let root = Root::below(machine.path());
        root.prepare().unwrap();
        fs::create_dir_all(root.path().join(".going-pvc-1/half")).unwrap();
        make(&root.place("pvc-2").unwrap().data).unwrap();
        root.prepare().unwrap();
        let left: Vec<_> =
            fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["pvc-2"]);
        let mode = fs::metadata(root.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
