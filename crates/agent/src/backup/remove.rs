//! Removes a backup.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::error::{BackupError, on};
use super::file::{is_name, manifest_of};

/// Removes a backup from a directory: its file, then its manifest. What is gone already is no failure. Whoever is being
/// restored from it is waited for.
///
/// # Errors
/// When the name is none of a backup's, and when the disk refuses.
pub fn remove(directory: &Path, name: &str) -> Result<(), BackupError> {
    if !is_name(name) {
        return Err(BackupError::Refused(format!("{name:?} is not the name of a backup")));
    }
    let path = directory.join(name);
    let gone = |removed: io::Result<()>| match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    if let Ok(file) = File::open(&path) {
        // Where the disk knows no locks, nobody can hold one.
        let _free = file.lock();
    }
    gone(fs::remove_file(&path))
        .and_then(|()| File::open(directory)?.sync_all())
        .and_then(|()| gone(fs::remove_file(manifest_of(&path))))
        .and_then(|()| File::open(directory)?.sync_all())
        .map_err(on("can't remove", path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_backup_goes_with_its_manifest_and_going_twice_is_no_failure() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["backup-20260101-000000.sql.zst", "backup-20260101-000000.sql.zst.json", "mine.sql.zst"]
        {
            fs::write(directory.path().join(name), "x").unwrap();
        }
        let held = File::open(directory.path().join("backup-20260101-000000.sql.zst")).unwrap();
        held.lock_shared().unwrap();
        std::thread::scope(|scope| {
            let removal = scope.spawn(|| remove(directory.path(), "backup-20260101-000000.sql.zst"));
            // It opens the file, and waits for the lock: nothing else can be seen of that from here.
            let file = format!(":{} ", held.metadata().unwrap().ino());
            let waits = || {
                let locks = fs::read_to_string("/proc/locks").unwrap();
                locks.lines().any(|line| line.contains("->") && line.contains(&file))
            };
            while !waits() && !removal.is_finished() {
                std::thread::yield_now();
            }
            assert!(directory.path().join("backup-20260101-000000.sql.zst").exists());
            drop(held);
            removal.join().unwrap().unwrap();
        });
        remove(directory.path(), "backup-20260101-000000.sql.zst").unwrap();
        let left: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(left.len(), 1);
    }

    #[test]
    fn nothing_but_backups_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        for name in
            ["mine.sql.zst", "../backup-20260101-000000.sql.zst", "backup-/../../x.sql.zst", "", "backup-1"]
        {
            assert_eq!(remove(directory.path(), name).unwrap_err().reason(), "Refused", "{name}");
        }
    }
}
