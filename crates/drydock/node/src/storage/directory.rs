//! The directories that volumes are.
//!
//! A volume's directory is named after the volume, whose name was checked; what pods write into it is never followed
//! out of it. What goes is renamed first, so that half a volume is never taken for one.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
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
/// And what is on its way in.
const COMING: &str = ".coming-";

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

    /// Makes it, for its owner alone, and removes what an earlier run left half made or half removed.
    pub fn prepare(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            if [GOING, COMING].iter().any(|half| name.as_bytes().starts_with(half.as_bytes())) {
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

/// Makes a directory that all in a pod may write to: nobody knows who that will be. One that is there is left as it is:
/// a pod may have it.
pub(crate) fn make(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        whole(path, |half| fs::set_permissions(half, fs::Permissions::from_mode(0o777)))?;
    }
    // It is said to be there: it must be there after whatever comes.
    match path.parent() {
        Some(parent) => fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Makes a directory and what is to be in it, whole or not at all: it has its name once it is what it is to be. Whoever is
/// killed before has made none.
pub(crate) fn whole(path: &Path, furnish: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let half = path.with_file_name(format!("{COMING}{name}"));
    remove_all(&half)?;
    DirBuilder::new().mode(0o700).create(&half)?;
    furnish(&half)?;
    fs::rename(half, path)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::mem::MaybeUninit;
    use std::os::unix::fs::symlink;

    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
    use rustix::io::Errno;

    use super::*;

    /// What happens to a name in a directory while something is done.
    pub(crate) fn happens(directory: &Path, name: &str, work: impl FnOnce()) -> Vec<ReadFlags> {
        let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
        let flags = WatchFlags::CREATE | WatchFlags::ATTRIB | WatchFlags::MOVED_TO;
        inotify::add_watch(&watch, directory, flags).unwrap();
        work();
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(watch, &mut buffer);
        let mut happened = Vec::new();
        loop {
            match events.next() {
                Err(Errno::WOULDBLOCK) => return happened,
                event => {
                    let event = event.unwrap();
                    if event.file_name().is_some_and(|found| found.to_bytes() == name.as_bytes()) {
                        happened.push(event.events().difference(ReadFlags::ISDIR));
                    }
                }
            }
        }
    }

    #[test]
    fn a_volume_is_there_once_it_is_whole_and_is_then_left_alone() {
        let machine = tempfile::tempdir().unwrap();
        let root = Root::below(machine.path());
        root.prepare().unwrap();
        let path = root.place("pvc-1").unwrap().data;
        // What somebody was killed in.
        fs::create_dir_all(root.path().join(".coming-pvc-1/half")).unwrap();
        let made = happens(root.path(), "pvc-1", || make(&path).unwrap());
        assert_eq!(made, [ReadFlags::MOVED_TO]);
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(), fs::read_dir(&path).unwrap().count()), (0o777, 0));
        // Its pod's doing.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        make(&path).unwrap();
        assert_eq!(mode(), 0o700);
    }

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
    fn what_was_cut_short_is_removed_by_the_next_run() {
        let machine = tempfile::tempdir().unwrap();
        let root = Root::below(machine.path());
        root.prepare().unwrap();
        fs::create_dir_all(root.path().join(".going-pvc-1/half")).unwrap();
        fs::create_dir_all(root.path().join(".coming-pvc-3/half")).unwrap();
        make(&root.place("pvc-2").unwrap().data).unwrap();
        root.prepare().unwrap();
        let left: Vec<_> =
            fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["pvc-2"]);
        let mode = fs::metadata(root.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
