//! Paths inside a tree that is somebody's root directory.
//!
//! **Guarantees.** A path that is resolved here stays under the tree: an absolute link starts again at the
//! tree's root, `..` stops there, as they would for a process whose root it is. The answer has no link in any
//! component but perhaps the last. It is a look, not a lock: the tree must belong to the caller alone while the
//! answer is used.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// As many links as the kernel follows in one path.
const MOST_LINKS: usize = 40;
/// A deeper tree is refused: removing one level holds one file descriptor.
const DEEPEST: usize = 128;

/// What to do about a directory on the way that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Answer with an error.
    Refuse,
    /// Make it.
    Create,
}

/// The directory that `path` is in and its name there, with every link on the way followed inside `root`. A last
/// component that is a link itself is not followed. Nothing for the root itself.
///
/// # Errors
/// When a directory on the way is none, is not there, or links go round in circles.
pub fn parent(root: &Path, path: &Path, missing: Missing) -> io::Result<Option<(PathBuf, OsString)>> {
    let mut components = components(path);
    let Some(name) = components.pop_back() else { return Ok(None) };
    if name == ".." {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path ends in .."));
    }
    Ok(Some((walk(root, components, missing)?, name)))
}

/// Where `path` leads inside `root`, with a link in the last component followed too.
///
/// # Errors
/// As for [`parent`], and when nothing is there.
pub fn resolve(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let all = components(&path);
        if all.back().is_some_and(|last| last == "..") {
            return walk(root, all, Missing::Refuse);
        }
        let Some((parent, name)) = parent(root, &path, Missing::Refuse)? else { return Ok(root.to_owned()) };
        let full = parent.join(&name);
        if !fs::symlink_metadata(&full)?.is_symlink() {
            return Ok(full);
        }
        let target = fs::read_link(&full)?;
        let inside = parent.strip_prefix(root).unwrap_or(Path::new(""));
        path = if target.is_absolute() { target } else { inside.join(target) };
    }
    Err(too_many_links())
}

/// Opens the regular file that `path` leads to inside `root` for reading.
///
/// # Errors
/// As for [`resolve`], and when it is no regular file.
pub fn open(root: &Path, path: &Path) -> io::Result<File> {
    let found = resolve(root, path)?;
    if !fs::symlink_metadata(&found)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no regular file"));
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(&found, flags, Mode::empty())?))
}

fn components(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsStr::new("..").to_owned()),
            _ => None,
        })
        .collect()
}

fn walk(root: &Path, mut ahead: VecDeque<OsString>, missing: Missing) -> io::Result<PathBuf> {
    let mut inside: Vec<OsString> = Vec::new();
    let mut links = 0;
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            inside.pop();
            continue;
        }
        inside.push(name);
        if inside.len() > DEEPEST {
            return Err(io::Error::other(format!("more than {DEEPEST} directories deep")));
        }
        let here: PathBuf =
            std::iter::once(root.as_os_str()).chain(inside.iter().map(OsString::as_os_str)).collect();
        match fs::symlink_metadata(&here) {
            Ok(found) if found.is_dir() => {}
            Ok(found) if found.is_symlink() => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(too_many_links());
                }
                inside.pop();
                let target = fs::read_link(&here)?;
                if target.is_absolute() {
                    inside.clear();
                }
                for component in components(&target).into_iter().rev() {
                    ahead.push_front(component);
                }
            }
            Ok(_) => return Err(io::Error::from(io::ErrorKind::NotADirectory)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && missing == Missing::Create => {
                fs::create_dir(&here)?;
                chmod_directory(&here, 0o755)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(std::iter::once(root.as_os_str()).chain(inside.iter().map(OsString::as_os_str)).collect())
}

/// Sets the mode of a directory that is known to be one, whatever the umask; a link is never followed.
pub(crate) fn chmod_directory(path: &Path, mode: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty())?;
    Ok(rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode))?)
}

fn too_many_links() -> io::Error {
    io::Error::from(rustix::io::Errno::LOOP)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_lead_where_they_would_for_a_process_with_that_root() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("tree");
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(root.join("etc/passwd"), "inside").unwrap();
        for (target, link) in [
            ("usr/bin", "bin"),
            ("/etc", "absolute"),
            ("../../../../etc", "above"),
            ("/etc/passwd", "secret"),
            ("round", "round"),
            ("/nowhere/at/all", "dangling"),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        for (path, expected) in [
            ("bin/sh", Some("usr/bin/sh")),
            ("/absolute/passwd", Some("etc/passwd")),
            ("above/passwd", Some("etc/passwd")),
            ("../../etc/passwd", Some("etc/passwd")),
            ("secret", Some("secret")),
            ("round/x", None),
            ("dangling/x", None),
            ("etc/passwd/x", None),
            ("x/..", None),
        ] {
            let answer = parent(&root, Path::new(path), Missing::Refuse).ok().flatten();
            assert_eq!(answer.map(|(dir, name)| dir.join(name)), expected.map(|e| root.join(e)), "{path}");
        }
        assert_eq!(io::read_to_string(open(&root, Path::new("/secret")).unwrap()).unwrap(), "inside");
        assert_eq!(resolve(&root, Path::new("/..")).unwrap(), root);
        assert!(resolve(&root, Path::new("round")).is_err());
        let made = parent(&root, Path::new("dangling/x"), Missing::Create).unwrap().unwrap().0;
        assert_eq!(made, root.join("nowhere/at/all"));
        assert!(made.is_dir());
    }
}
