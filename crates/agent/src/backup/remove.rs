//! Removes a backup.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use super::error::{BackupError, on};
use super::file::{is_name, manifest_of};

/// Removes a backup from a directory: its file, then its manifest. What is gone already is no failure.
///
/// # Errors
/// When the name is none of a backup's, when it is being restored from, and when the disk refuses.
pub fn remove(directory: &Path, name: &str) -> Result<(), BackupError> {
    if !is_name(name) {
        return Err(BackupError::Refused(format!("{name:?} is not the name of a backup")));
    }
    let path = directory.join(name);
    let gone = |removed: io::Result<()>| match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    if let Ok(file) = File::open(&path)
        && let Err(TryLockError::WouldBlock) = file.try_lock()
    {
        return Err(BackupError::Refused(format!("{path:?} is being restored from")));
    }
    gone(fs::remove_file(&path))
        .and_then(|()| File::open(directory)?.sync_all())
        .and_then(|()| gone(fs::remove_file(manifest_of(&path))))
        .and_then(|()| File::open(directory)?.sync_all())
        .map_err(on("can't remove", path))
}

#[cfg(test)]
mod tests {
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
        let error = remove(directory.path(), "backup-20260101-000000.sql.zst").unwrap_err();
        assert!(error.to_string().ends_with("is being restored from"), "{error}");
        drop(held);
        for _ in 0..2 {
            remove(directory.path(), "backup-20260101-000000.sql.zst").unwrap();
        }
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
