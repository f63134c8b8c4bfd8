//! Puts this very program into a directory that the pod's containers share.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// This program, whatever its file is called by now.
const SELF: &str = "/proc/self/exe";

/// Why it is not there.
#[derive(Debug, thiserror::Error)]
#[error("can't put this program into {directory:?}")]
pub struct InstallError {
    directory: PathBuf,
    #[source]
    error: io::Error,
}

/// Copies this program into a directory as `ballast`, whole or not at all, for everybody to run.
///
/// # Errors
/// When it can't be written there.
pub fn install(directory: &Path) -> Result<PathBuf, InstallError> {
    copy(Path::new(SELF), directory).map_err(|error| InstallError { directory: directory.to_owned(), error })
}

fn copy(program: &Path, directory: &Path) -> io::Result<PathBuf> {
    let mut part = tempfile::Builder::new().prefix(".ballast-").tempfile_in(directory)?;
    io::copy(&mut fs::File::open(program)?, &mut part)?;
    part.as_file().set_permissions(Permissions::from_mode(0o755))?;
    let place = directory.join("ballast");
    part.persist(&place)?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_copied_over_what_was_there() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("ballast"), "older").unwrap();
        let place = install(directory.path()).unwrap();
        let copied = fs::metadata(&place).unwrap();
        assert_eq!(copied.permissions().mode() & 0o777, 0o755);
        assert_eq!(copied.len(), fs::metadata(SELF).unwrap().len());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(install(Path::new("/nonexistent")).unwrap_err().to_string().contains("/nonexistent"));
    }
}
