//! Removing a directory with all it holds.
//!
//! What pods leave behind is theirs to make: deeper than there are descriptors or stack, longer than a path may be, with
//! nobody's permission to look into it. So nothing here goes down into a tree. A directory that is found below another is
//! moved up beside it, until all are at the top and empty.
//!
//! **Always holds:** two directories are open at a time, however deep the tree. No link is followed, and nothing outside
//! of the directory is touched, whatever is done to the tree meanwhile: all is done by name in directories that are open.
//! What is mounted somewhere below stays as it is, and with it what it is mounted on. Several may remove a tree at once:
//! what one finds gone is what all of them wanted.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes a file, a link, or a directory with all it holds; fine when it is not there. Blocks.
///
/// # Errors
/// Something can't be removed: another file system is mounted on it, or it is not this user's.
pub fn remove_all(path: &Path) -> io::Result<()> {
    let top = match open(rustix::fs::CWD, path) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => return gone(rustix::fs::unlink(path)),
        Err(error) => return Err(error.into()),
    };
    let mut moved = 0;
    // What is moved here while it is read may be seen or not: so it is read until there is nothing.
    loop {
        let mut failed = None;
        let any = each(&top, |name| {
            // One that stays keeps the others from nothing.
            failed = failed.take().or(top_entry(&top, name, &mut moved).err());
            Ok(())
        });
        match (any, failed) {
            // Somebody else was the last; whatever has the name now is not what was to be removed.
            (Err(Errno::NOENT), _) => return Ok(()),
            (Err(error), _) | (_, Some(error)) => return Err(error.into()),
            (Ok(true), None) => {}
            (Ok(false), None) => match gone(rustix::fs::rmdir(path)) {
                // Whoever was still writing has written one more.
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                other => return other,
            },
        }
    }
}

fn gone(removed: Result<(), Errno>) -> io::Result<()> {
    match removed {
        Err(Errno::NOENT) => Ok(()),
        other => Ok(other?),
    }
}

/// Does something about each entry; false when there is none.
fn each(directory: &OwnedFd, mut handle: impl FnMut(&CStr) -> Result<(), Errno>) -> Result<bool, Errno> {
    let mut any = false;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            any = true;
            handle(name)?;
        }
    }
    Ok(any)
}

/// Removes what is at the top, or moves what is in it to the top.
fn top_entry(top: &OwnedFd, name: &CStr, moved: &mut u64) -> Result<(), Errno> {
    if unlinked(top, name)? {
        return Ok(());
    }
    match rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    let emptied = open(top, name).and_then(|inner| {
        each(&inner, |name| match unlinked(&inner, name)? {
            true => Ok(()),
            false => raise(&inner, name, top, moved),
        })
    });
    match emptied.and_then(|_| rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR)) {
        // What was not seen, or went while it was looked at, is seen next time.
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Whether it is gone; false for a directory.
fn unlinked(directory: &OwnedFd, name: &CStr) -> Result<bool, Errno> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Moves a directory to the top, under a name that nothing has there.
fn raise(from: &OwnedFd, name: &CStr, top: &OwnedFd, moved: &mut u64) -> Result<(), Errno> {
    loop {
        *moved += 1;
        match rustix::fs::renameat(from, name, top, format!(".{moved}")) {
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            // A directory that changes its parent is written to.
            Err(Errno::ACCESS) => drop(open(from, name)?),
            other => return other,
        }
    }
}

/// Opens a directory, and lets its owner do everything in it: overlay's work directories have no permissions at all.
fn open<Fd: std::os::fd::AsFd>(at: Fd, name: impl rustix::path::Arg + Copy) -> Result<OwnedFd, Errno> {
    let opened = match rustix::fs::openat(&at, name, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            let seen = rustix::fs::openat(&at, name, DIRECTORY | OFlags::PATH, Mode::empty())?;
            rustix::fs::chmod(crate::rootfs::name_of(&seen), Mode::RWXU)?;
            rustix::fs::openat(&at, name, DIRECTORY, Mode::empty())?
        }
        opened => opened?,
    };
    // Whoever is not its owner may do without.
    let _refused = rustix::fs::fchmod(&opened, Mode::RWXU);
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_tree_goes_with_all_it_holds_and_nothing_beside_it() {
        let place = tempfile::tempdir().unwrap();
        let (tree, beside) = (place.path().join("tree"), place.path().join("beside"));
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        fs::create_dir_all(tree.join(".1/.1/.2")).unwrap();
        fs::write(tree.join(".2"), "a name that would have been given").unwrap();
        fs::write(tree.join("a/b/file"), "x").unwrap();
        fs::create_dir(&beside).unwrap();
        fs::write(beside.join("kept"), "x").unwrap();
        symlink(&beside, tree.join("a/b/link")).unwrap();
        fs::set_permissions(tree.join("a/b/c"), fs::Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(tree.join("a/b"), fs::Permissions::from_mode(0o000)).unwrap();
        remove_all(&tree).unwrap();
        assert!(!tree.exists() && beside.join("kept").exists());
        symlink(&beside, &tree).unwrap();
        remove_all(&tree).unwrap();
        assert!(!tree.exists() && beside.join("kept").exists());
        remove_all(&tree).unwrap();
        remove_all(&beside.join("kept")).unwrap();
        assert!(!beside.join("kept").exists());
    }

    #[test]
    fn a_tree_may_be_deeper_than_there_are_descriptors_and_stack() {
        let place = tempfile::tempdir().unwrap();
        let tree = place.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let mut at = open(rustix::fs::CWD, &tree).unwrap();
        for level in 0..2_000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            if level % 10 == 0 {
                rustix::fs::mkdirat(&at, "wide", Mode::RWXU).unwrap();
            }
            at = open(&at, "d").unwrap();
        }
        remove_all(&tree).unwrap();
        assert!(!tree.exists());
    }
    #[test]
    fn several_may_remove_a_tree_at_once() {
        let place = tempfile::tempdir().unwrap();
        let tree = place.path().join("tree");
        for _ in 0..100 {
            for inner in ["a/b/c", "a/d/e", "f/g/h", "i"] {
                fs::create_dir_all(tree.join(inner)).unwrap();
                fs::write(tree.join(inner).join("file"), "x").unwrap();
            }
            std::thread::scope(|scope| {
                let removers: Vec<_> = (0..4).map(|_| scope.spawn(|| remove_all(&tree))).collect();
                removers.into_iter().for_each(|remover| remover.join().unwrap().unwrap());
            });
            assert!(!tree.exists());
        }
    }
}
