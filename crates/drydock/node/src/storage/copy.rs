//! A directory once more: what a volume holds, from disk into memory and back.
//!
//! What pods leave is theirs to make: deeper than there are descriptors or stack, longer than a path may be. So nothing
//! here goes by a path, and a directory is let go of before one below it is gone down into: the way back is `..`.
//!
//! **What always holds.** A few files are open at a time, however deep the tree. No link is followed.
//!
//! **Not here.** Trees that change meanwhile: whoever copies one is the only one who uses it, and the copy.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::{self, File, FileTimes};
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Uid};
use rustix::io::Errno;

const OPENED: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = OPENED.union(OFlags::DIRECTORY);
const MADE: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);

/// Copies what is in a directory into an empty one, as far as [`super::hard`] says, and what the directory itself is like.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let at = Pair { from: directory(CWD, from)?, to: directory(CWD, to)? };
    let top = at.to.try_clone()?;
    Copying { top, at, way: Vec::new(), known: HashMap::new() }.run()
}

/// A directory, and what becomes the same.
struct Pair {
    from: File,
    to: File,
}

impl Pair {
    /// A directory of both by its name: one below them, or `..`.
    fn open(&self, name: &CStr) -> io::Result<Self> {
        Ok(Self { from: directory(&self.from, name)?, to: directory(&self.to, name)? })
    }
}

struct Copying {
    /// Where the copy begins.
    top: File,
    at: Pair,
    /// The names that lead from the top to where it is.
    way: Vec<CString>,
    /// What was copied and has further names, by its number: the way to it.
    known: HashMap<u64, Vec<CString>>,
}

impl Copying {
    fn run(mut self) -> io::Result<()> {
        // Of each directory on the way: those in it that are yet to be copied.
        let mut left = vec![self.entries()?];
        while let Some(names) = left.last_mut() {
            if let Some(name) = names.pop() {
                self.at = self.at.open(&name)?;
                self.way.push(name);
                left.push(self.entries()?);
            } else {
                left.pop();
                self.leave()?;
            }
        }
        Ok(())
    }

    /// Ends the directory where it is, whose content is there, and goes up.
    fn leave(&mut self) -> io::Result<()> {
        // Before it is the same: it may be that nobody may look into it then.
        let above = self.way.pop().map(|_| self.at.open(c"..")).transpose()?;
        same(&self.at.from, &self.at.to)?;
        if let Some(above) = above {
            self.at = above;
        }
        Ok(())
    }

    /// Copies what is in the directory where it is. Of the directories in it, which are given back, there is no more than
    /// the name yet.
    fn entries(&mut self) -> io::Result<Vec<CString>> {
        let mut directories = Vec::new();
        for entry in Dir::read_from(&self.at.from)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let found = rustix::fs::statat(&self.at.from, name, AtFlags::SYMLINK_NOFOLLOW)?;
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory => {
                    rustix::fs::mkdirat(&self.at.to, name, Mode::RWXU)?;
                    directories.push(name.to_owned());
                }
                FileType::RegularFile => self.file(name, &found)?,
                FileType::Symlink => self.link(name, &found)?,
                _ => {}
            }
        }
        Ok(directories)
    }

    fn link(&self, name: &CStr, found: &Stat) -> io::Result<()> {
        let to = &self.at.to;
        let target = rustix::fs::readlinkat(&self.at.from, name, Vec::new())?;
        rustix::fs::symlinkat(target, to, name)?;
        let (user, group) = (Uid::from_raw(found.st_uid), Gid::from_raw(found.st_gid));
        let _not_ours = rustix::fs::chownat(to, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW);
        Ok(())
    }

    fn file(&mut self, name: &CStr, found: &Stat) -> io::Result<()> {
        if let Some(first) = self.known.get(&found.st_ino) {
            return self.link_hard(first, name);
        }
        let from = File::from(rustix::fs::openat(&self.at.from, name, OPENED, Mode::empty())?);
        let to = rustix::fs::openat(&self.at.to, name, MADE, Mode::RUSR | Mode::WUSR)?;
        let to = File::from(to);
        content(&from, &to)?;
        same(&from, &to)?;
        if found.st_nlink > 1 {
            let way = self.way.iter().cloned().chain([name.to_owned()]);
            self.known.insert(found.st_ino, way.collect());
        }
        Ok(())
    }

    /// Gives what was copied before a further name.
    fn link_hard(&self, first: &[CString], name: &CStr) -> io::Result<()> {
        let Some((own, above)) = first.split_last() else { return Ok(()) };
        let mut there = self.top.try_clone()?;
        for name in above {
            there = directory(&there, name)?;
        }
        Ok(rustix::fs::linkat(there, own, &self.at.to, name, AtFlags::empty())?)
    }
}

fn directory(at: impl AsFd, name: impl rustix::path::Arg) -> io::Result<File> {
    Ok(rustix::fs::openat(at, name, DIRECTORY, Mode::empty())?.into())
}

/// Copies what a file holds. Its holes stay holes: they take no room, and the room that they would take may not be there.
fn content(mut from: &File, mut to: &File) -> io::Result<()> {
    to.set_len(from.metadata()?.len())?;
    let mut end = 0;
    loop {
        let begin = match rustix::fs::seek(from, SeekFrom::Data(end)) {
            Err(Errno::NXIO) => return Ok(()),
            begin => begin?,
        };
        end = rustix::fs::seek(from, SeekFrom::Hole(begin))?;
        from.seek(io::SeekFrom::Start(begin))?;
        to.seek(io::SeekFrom::Start(begin))?;
        io::copy(&mut from.take(end - begin), &mut to)?;
    }
}

/// Gives something the owner, permissions and times of another.
fn same(source: &File, target: &File) -> io::Result<()> {
    let found = source.metadata()?;
    let _not_ours = fchown(target, Some(found.uid()), Some(found.gid()));
    let times = FileTimes::new().set_accessed(found.accessed()?).set_modified(found.modified()?);
    target.set_times(times)?;
    // After the owner: a change of owner takes the special bits away.
    target.set_permissions(fs::Permissions::from_mode(found.mode() & 0o7777))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{FileExt, symlink};
    use std::path::PathBuf;

    use super::*;

    /// Two directories, the first of which is copied into the second.
    fn two(machine: &tempfile::TempDir) -> (PathBuf, PathBuf) {
        let (from, to) = (machine.path().join("from"), machine.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&to).unwrap();
        (from, to)
    }

    #[test]
    fn a_copy_has_the_same_files_links_and_permissions() {
        let machine = tempfile::tempdir().unwrap();
        let (from, to) = two(&machine);
        fs::create_dir(from.join("sub")).unwrap();
        fs::write(from.join("sub/file"), "1").unwrap();
        fs::hard_link(from.join("sub/file"), from.join("other")).unwrap();
        fs::set_permissions(from.join("sub/file"), fs::Permissions::from_mode(0o400)).unwrap();
        symlink("/nowhere", from.join("link")).unwrap();
        fs::set_permissions(from.join("sub"), fs::Permissions::from_mode(0o2750)).unwrap();
        fs::set_permissions(&from, fs::Permissions::from_mode(0o1777)).unwrap();
        let sparse = File::create(from.join("sparse")).unwrap();
        sparse.write_all_at(b"middle", 3 << 20).unwrap();
        sparse.set_len(5 << 20).unwrap();
        copy(&from, &to).unwrap();
        let (one, other) =
            (fs::metadata(to.join("sub/file")).unwrap(), fs::metadata(to.join("other")).unwrap());
        assert_eq!((one.ino(), one.mode() & 0o7777), (other.ino(), 0o400));
        assert_eq!(one.mtime_nsec(), fs::metadata(from.join("other")).unwrap().mtime_nsec());
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("/nowhere"));
        for (directory, mode) in [(to.join("sub"), 0o2750), (to.clone(), 0o1777)] {
            assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o7777, mode);
        }
        let modified = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
        assert_eq!(modified(&to.join("sub")), modified(&from.join("sub")));
        assert!(fs::read(from.join("sparse")).unwrap() == fs::read(to.join("sparse")).unwrap());
        let room = |path: &Path| fs::metadata(path.join("sparse")).unwrap().blocks();
        assert!(room(&to) <= room(&from), "{} of {}", room(&to), room(&from));
    }

    #[test]
    fn a_copy_may_be_deeper_than_a_path_is_long() {
        const DEEP: usize = 2_200;
        let machine = tempfile::tempdir().unwrap();
        let (from, to) = two(&machine);
        let at_the_bottom = |top: &Path, make: bool| {
            let mut at = directory(CWD, top).unwrap();
            for _ in 0..DEEP {
                if make {
                    rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
                }
                at = directory(&at, "d").unwrap();
            }
            at
        };
        let bottom = at_the_bottom(&from, true);
        let file = rustix::fs::openat(&bottom, "file", MADE, Mode::RWXU).unwrap();
        File::from(file).write_all(b"1").unwrap();
        rustix::fs::linkat(&bottom, "file", &bottom, "other", AtFlags::empty()).unwrap();
        rustix::fs::linkat(&bottom, "file", directory(CWD, &from).unwrap(), "top", AtFlags::empty()).unwrap();
        copy(&from, &to).unwrap();
        let bottom = at_the_bottom(&to, false);
        assert_eq!(fs::read_to_string(to.join("top")).unwrap(), "1");
        for name in ["file", "other"] {
            let found = rustix::fs::statat(&bottom, name, AtFlags::empty()).unwrap();
            assert_eq!(found.st_ino, fs::metadata(to.join("top")).unwrap().ino());
        }
        drydock_sandbox::remove_all(&from).unwrap();
        drydock_sandbox::remove_all(&to).unwrap();
    }
}
