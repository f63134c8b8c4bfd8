//! Applies one layer, a tar stream, to a tree.
//!
//! **Guarantees.** Nothing outside the tree is read, written, linked to or removed, whatever the stream holds:
//! parents are resolved inside the tree, the last component is never followed, what is in the way is removed
//! before something new is made. There are no devices or pipes afterwards, and no file with a setuid or setgid
//! bit. Directories can be entered and files read by their owner, so that a plain user can remove them again.
//! Owners are kept where this process may set them.
//!
//! **Assumptions.** Nobody else changes the tree meanwhile. After an error it is to be thrown away.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid};

use crate::rooted::{self, Missing};
use crate::tarball::{self, Header, Kind};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Other names that begin like this are another program's bookkeeping.
const WHITEOUT_META: &[u8] = b".wh..wh.";

/// How much one image may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes, unpacked, all layers together.
    pub bytes: u64,
    /// Files, directories and links, all layers together.
    pub entries: u64,
}

impl Default for Limits {
    /// Well above the largest images in use; a bomb is stopped before it fills a disk.
    fn default() -> Self {
        Limits { bytes: 16 << 30, entries: 2_000_000 }
    }
}

/// Why a layer can't be applied.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The stream is no tar stream, or ends in its midst.
    #[error("the layer is damaged")]
    Damaged(#[from] io::Error),
    /// An entry that reaches for something outside the tree.
    #[error("the layer's entry {path:?} is refused: {what}")]
    Refused {
        /// What the entry calls itself.
        path: PathBuf,
        /// What is wrong with that.
        what: &'static str,
    },
    /// An entry that can't be made.
    #[error("the layer's entry {path:?} can't be unpacked")]
    Entry {
        /// What the entry calls itself.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// More entries than are allowed.
    #[error("the image holds more than {0} files")]
    TooMany(u64),
}

/// How the stream is to be read.
pub(crate) struct Rules<'a> {
    /// Whether names that begin with `.wh.` remove what earlier layers brought.
    pub(crate) whiteouts: bool,
    /// Whether a directory of the stream leaves a link to a directory of the tree in place. A package that still
    /// ships `/lib` is meant for `/usr/lib` where the one is a link to the other; a layer means what it says.
    pub(crate) through_links: bool,
    /// Which paths are wanted at all.
    pub(crate) wanted: &'a dyn Fn(&Path) -> bool,
}

/// How many entries may still come.
pub(crate) struct Budget {
    allowed: u64,
    left: u64,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Budget {
        Budget { allowed: limits.entries, left: limits.entries }
    }
}

/// Applies `stream` to `tree`.
pub(crate) fn apply(
    tree: &Path,
    stream: impl Read,
    rules: &Rules<'_>,
    budget: &mut Budget,
) -> Result<(), LayerError> {
    let mut layer =
        Layer { tree, rules, fresh: HashSet::new(), privileged: rustix::process::geteuid().is_root() };
    tarball::each(stream, |header, body| {
        budget.left = budget.left.checked_sub(1).ok_or(LayerError::TooMany(budget.allowed))?;
        layer.entry(&header, body)
    })
}

struct Layer<'a> {
    tree: &'a Path,
    rules: &'a Rules<'a>,
    /// What this layer brought, with all directories above: an opaque mark of the same layer spares it.
    fresh: HashSet<PathBuf>,
    privileged: bool,
}

impl Layer<'_> {
    fn entry(&mut self, header: &Header, body: &mut dyn Read) -> Result<(), LayerError> {
        let path = inner_path(&header.path)?;
        let Some(name) = path.file_name() else { return Ok(()) }; // the root itself, which is there
        if !(self.rules.wanted)(&path) {
            return Ok(());
        }
        if self.rules.whiteouts && name.as_bytes().starts_with(WHITEOUT) {
            return self.whiteout(&path, name, header);
        }
        let entry = |error| LayerError::Entry { path: header.path.clone(), error };
        let place = self.place(&path).map_err(entry)?;
        match &header.kind {
            Kind::Special => return Ok(()),
            Kind::Hardlink(target) => return self.hardlink(&place, target, header),
            Kind::Directory => self.directory(&place, header),
            Kind::Symlink(target) => self.symlink(&place, target, header),
            Kind::File => self.file(&place, header, body),
        }
        .map_err(entry)?;
        self.remember(&place);
        Ok(())
    }

    fn place(&self, path: &Path) -> io::Result<PathBuf> {
        match rooted::parent(self.tree, path, Missing::Create)? {
            Some((parent, name)) => Ok(parent.join(name)),
            None => Ok(self.tree.to_owned()),
        }
    }

    fn directory(&self, place: &Path, header: &Header) -> io::Result<()> {
        match fs::symlink_metadata(place) {
            Ok(found) if found.is_dir() => {}
            Ok(found) if found.is_symlink() && self.rules.through_links => {
                let inside = place.strip_prefix(self.tree).unwrap_or(place);
                if rooted::resolve(self.tree, inside).is_ok_and(|target| target.is_dir()) {
                    return Ok(());
                }
                clear(place)?;
                fs::create_dir(place)?;
            }
            Ok(_) => {
                clear(place)?;
                fs::create_dir(place)?;
            }
            Err(_) => fs::create_dir(place)?,
        }
        self.own(place, header)?;
        rooted::chmod_directory(place, header.mode | 0o700)
    }

    fn file(&self, place: &Path, header: &Header, body: &mut dyn Read) -> io::Result<()> {
        clear(place)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(place, flags, Mode::from_raw_mode(0o600))?);
        if io::copy(body, &mut file)? != header.size {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        self.own(place, header)?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(header.mode & 0o777 | 0o400))?;
        if let Some(modified) = UNIX_EPOCH.checked_add(Duration::from_secs(header.modified)) {
            let _ = file.set_modified(modified); // a time the file system can't hold is no reason to refuse
        }
        Ok(())
    }

    fn symlink(&self, place: &Path, target: &Path, header: &Header) -> io::Result<()> {
        clear(place)?;
        std::os::unix::fs::symlink(target, place)?;
        self.own(place, header)
    }

    /// Only what is a regular file of this tree can have a second name.
    fn hardlink(&mut self, place: &Path, target: &Path, header: &Header) -> Result<(), LayerError> {
        let refused = |what| LayerError::Refused { path: header.path.clone(), what };
        let entry = |error| LayerError::Entry { path: header.path.clone(), error };
        let target = inner_path(target).map_err(|_| refused("its link leads out of the image"))?;
        let original = match rooted::parent(self.tree, &target, Missing::Refuse).map_err(entry)? {
            Some((parent, name)) => parent.join(name),
            None => return Err(refused("it is a link to the root")),
        };
        let found = fs::symlink_metadata(&original).map_err(entry)?;
        if !found.is_file() && !found.is_symlink() {
            return Err(refused("it is a hard link to something that is no file"));
        }
        if original != place {
            clear(place).and_then(|()| fs::hard_link(&original, place)).map_err(entry)?;
        }
        self.remember(place);
        Ok(())
    }

    fn whiteout(&self, path: &Path, name: &OsStr, header: &Header) -> Result<(), LayerError> {
        let entry = |error| LayerError::Entry { path: header.path.clone(), error };
        let parent = match rooted::parent(self.tree, path, Missing::Refuse) {
            Ok(Some((parent, _))) => parent,
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()), // nothing there to remove
            Err(error) => return Err(entry(error)),
        };
        if name.as_bytes() == OPAQUE {
            return self.clear_stale(&parent).map_err(entry);
        }
        if name.as_bytes().starts_with(WHITEOUT_META) {
            return Ok(());
        }
        let removed = name.as_bytes().strip_prefix(WHITEOUT).unwrap_or_default();
        if matches!(removed, b"" | b"." | b"..") {
            return Err(LayerError::Refused {
                path: header.path.clone(),
                what: "it removes a directory from within",
            });
        }
        clear(&parent.join(OsStr::from_bytes(removed))).map_err(entry)
    }

    /// Removes what earlier layers brought below `directory`.
    fn clear_stale(&self, directory: &Path) -> io::Result<()> {
        for child in fs::read_dir(directory)? {
            let child = child?;
            if !self.fresh.contains(&child.path()) {
                clear(&child.path())?;
            } else if child.file_type()?.is_dir() {
                self.clear_stale(&child.path())?;
            }
        }
        Ok(())
    }

    fn remember(&mut self, place: &Path) {
        if self.rules.whiteouts {
            let above = place.ancestors().take_while(|ancestor| *ancestor != self.tree);
            self.fresh.extend(above.map(Path::to_owned));
        }
    }

    /// Gives a thing to its owner, where this process may and the owner exists in its user namespace.
    fn own(&self, place: &Path, header: &Header) -> io::Result<()> {
        if !self.privileged
            || (header.uid, header.gid) == (0, 0)
            || header.uid == u32::MAX
            || header.gid == u32::MAX
        {
            return Ok(());
        }
        let (uid, gid) = (Uid::from_raw(header.uid), Gid::from_raw(header.gid));
        match rustix::fs::chownat(CWD, place, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(()) | Err(rustix::io::Errno::PERM | rustix::io::Errno::INVAL) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The path of an entry, inside the tree: no `..` is taken, a leading slash means nothing.
fn inner_path(path: &Path) -> Result<PathBuf, LayerError> {
    let refused = |what| LayerError::Refused { path: path.to_owned(), what };
    if path.as_os_str().as_bytes().contains(&0) {
        return Err(refused("its name has a zero byte"));
    }
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(Ok(name)),
            Component::ParentDir => Some(Err(refused("it leads out of the image"))),
            _ => None,
        })
        .collect()
}

/// Removes whatever is there, and follows no link doing so.
pub(crate) fn clear(place: &Path) -> io::Result<()> {
    match fs::symlink_metadata(place) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(place),
        Ok(_) => fs::remove_file(place),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
