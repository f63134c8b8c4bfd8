//! Files of a volume that change all at once.
//!
//! The files are in a directory with the time in its name; `..data` is a link to it, and what is seen are links
//! through `..data`. A change is a new directory and one rename. Who follows `..data` sees either all old or all
//! new files.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use drydock_sandbox::remove_all;
use jiff::Timestamp;

use super::payload::Payload;

const DATA: &str = "..data";
const NEW: &str = "..data_tmp";

/// Makes the directory show these files, and no others. False when it did already.
pub(crate) fn write(
    directory: &Path,
    payload: &Payload,
    mode: u32,
    group: Option<u32>,
    now: Timestamp,
) -> io::Result<bool> {
    fs::create_dir_all(directory)?;
    own(directory, None, group);
    let mode = if group.is_some() { mode | 0o2000 } else { mode };
    fs::set_permissions(directory, fs::Permissions::from_mode(mode))?;
    let old = fs::read_link(directory.join(DATA)).ok();
    let changes = !old.is_some_and(|old| shows(&directory.join(old), payload));
    if changes {
        let name = format!("..{}", now.strftime("%Y_%m_%d_%H_%M_%S.%9f"));
        let fresh = directory.join(&name);
        if let Err(error) = fill(&fresh, payload, group).and_then(|()| show(directory, &name)) {
            // The room that half of it takes may be what the next try needs.
            let _stays = remove_all(&fresh);
            return Err(error);
        }
    }
    tidy(directory, payload)?;
    Ok(changes)
}

/// Makes a directory with these files.
fn fill(fresh: &Path, payload: &Payload, group: Option<u32>) -> io::Result<()> {
    remove_all(fresh)?;
    fs::DirBuilder::new().mode(0o755).create(fresh)?;
    own(fresh, None, group);
    for (path, file) in payload {
        let path = fresh.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mode = if group.is_some() { file.mode | 0o440 } else { file.mode };
        let made = fs::OpenOptions::new().create_new(true).write(true).mode(mode).open(&path)?;
        io::Write::write_all(&mut &made, &file.bytes)?;
        made.set_permissions(fs::Permissions::from_mode(mode))?;
        own(&path, file.owner, group);
    }
    Ok(())
}

/// Lets `..data` lead to the directory of this name.
fn show(directory: &Path, name: &str) -> io::Result<()> {
    remove_all(&directory.join(NEW))?;
    symlink(name, directory.join(NEW))?;
    fs::rename(directory.join(NEW), directory.join(DATA))
}

/// Makes the links that are missing, and removes what nothing leads to any more: of the change before, and of one that
/// somebody was killed in.
fn tidy(directory: &Path, payload: &Payload) -> io::Result<()> {
    let current = fs::read_link(directory.join(DATA))?;
    let mut missing: BTreeSet<&str> = payload.keys().filter_map(|path| path.split('/').next()).collect();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let found = entry.file_name();
        let Some(found) = found.to_str() else { continue };
        let stays = found == DATA || current.as_os_str() == found || missing.remove(found);
        if !stays {
            remove_all(&entry.path())?;
        }
    }
    missing.into_iter().try_for_each(|name| symlink(Path::new(DATA).join(name), directory.join(name)))
}

/// Gives something to a user and a group, where this node may.
pub(crate) fn own(path: &Path, user: Option<u32>, group: Option<u32>) {
    if user.is_some() || group.is_some() {
        // A node with a single user can't, and the files are readable to that user anyway.
        let _refused = std::os::unix::fs::chown(path, user, group);
    }
}

fn shows(directory: &Path, payload: &Payload) -> bool {
    fn count(directory: &Path) -> usize {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
    }
    count(directory) == payload.len()
        && payload.iter().all(|(path, file)| {
            let path = directory.join(path);
            fs::read(&path).is_ok_and(|bytes| bytes == file.bytes)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volumes::payload::File;

    fn payload(files: &[(&str, &str)]) -> Payload {
        let file = |text: &str| File { bytes: text.as_bytes().to_vec(), mode: 0o640, owner: None };
        files.iter().map(|(path, text)| ((*path).to_owned(), file(text))).collect()
    }

    /// What is seen, without what is hidden.
    fn check(directory: &Path, expected: &[&str]) {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with("..1970"))
            .collect();
        names.sort();
        assert_eq!(names, expected);
    }

    #[test]
    fn files_change_together_and_old_ones_go() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("v");
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        assert!(write(&directory, &payload(&[("a", "1"), ("d/e", "2")]), 0o777, None, at(1)).unwrap());
        check(&directory, &["..data", "a", "d"]);
        assert_eq!(fs::read_to_string(directory.join("d/e")).unwrap(), "2");
        assert_eq!(fs::metadata(directory.join("a")).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(!write(&directory, &payload(&[("a", "1"), ("d/e", "2")]), 0o777, None, at(2)).unwrap());
        assert!(write(&directory, &payload(&[("a", "3"), ("b", "4")]), 0o777, None, at(3)).unwrap());
        check(&directory, &["..data", "a", "b"]);
        assert_eq!(fs::read_to_string(directory.join("a")).unwrap(), "3");
        let kept = fs::read_dir(&directory)
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with("..1970"));
        assert_eq!(kept.count(), 1);
    }

    #[test]
    fn what_somebody_was_killed_in_is_brought_to_its_end() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("v");
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let says = payload(&[("a", "1"), ("b", "2")]);
        write(&directory, &says, 0o777, None, at(1)).unwrap();
        // The links were yet to be made, and the directory of the change before was yet to go.
        fs::remove_file(directory.join("b")).unwrap();
        fs::create_dir(directory.join("..1970_half")).unwrap();
        symlink("..1970_half", directory.join(NEW)).unwrap();
        assert!(!write(&directory, &says, 0o777, None, at(2)).unwrap());
        assert_eq!(fs::read_to_string(directory.join("b")).unwrap(), "2");
        check(&directory, &["..data", "a", "b"]);
        assert!(!directory.join("..1970_half").exists());
    }

    #[test]
    fn a_change_that_can_not_be_made_leaves_nothing_of_itself() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("v");
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        write(&directory, &payload(&[("a", "1")]), 0o777, None, at(1)).unwrap();
        // A file and a directory of the same name.
        write(&directory, &payload(&[("a", "2"), ("a/b", "3")]), 0o777, None, at(2)).unwrap_err();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3, "..data, what it leads to, and a");
        assert_eq!(fs::read_to_string(directory.join("a")).unwrap(), "1");
    }
}
