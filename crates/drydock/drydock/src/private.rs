//! Files that only their owner may read, and that are either there whole or not there.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: can't {doing}", path.display())]
pub struct FileError {
    /// Which file.
    pub path: PathBuf,
    /// What was tried.
    pub doing: &'static str,
    /// Why not.
    #[source]
    pub source: io::Error,
}

impl FileError {
    fn new(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> FileError {
        let path = path.to_owned();
        move |source| FileError { path, doing, source }
    }
}

/// Writes beside `path`, with mode 0600, and renames: a reader sees the old file or the new one, and nobody else
/// sees either, also after a power failure. A directory that has to be made first is 0700.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(FileError::new(directory, "make the directory"))?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    // Two writers of one file must not write into each other's; the last to rename wins.
    name.push(format!(".{:x}.new", std::process::id()));
    let beside = directory.join(name);
    let written = write_new(&beside, content)
        .and_then(|()| std::fs::rename(&beside, path))
        .and_then(|()| File::open(directory)?.sync_all());
    written.map_err(|error| {
        // The error to tell is the first; a leftover is replaced by the next attempt.
        let _ = std::fs::remove_file(&beside);
        FileError::new(path, "write it")(error)
    })
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Writes a directory of such files that is there whole, or not at all: where there was none, or an empty one.
pub(crate) fn write_all(directory: &Path, files: &[(&str, String)]) -> Result<(), FileError> {
    let beside = directory.with_extension("new");
    match std::fs::remove_dir_all(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(FileError::new(&beside, "remove it")(error));
        }
        _ => {}
    }
    for (name, content) in files {
        write(&beside.join(name), content.as_bytes())?;
    }
    std::fs::rename(&beside, directory)
        .and_then(|()| File::open(directory.parent().unwrap_or(directory))?.sync_all())
        .map_err(FileError::new(directory, "write it"))
}

/// What the file says, `None` when there is none. What is no text is so still when it was read.
pub(crate) fn read(path: &Path) -> Result<Option<String>, FileError> {
    match std::fs::read(path) {
        Ok(content) => Ok(Some(String::from_utf8_lossy(&content).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::new(path, "read it")(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_stays_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("made/on/the/way/secret");
        assert_eq!(read(&path).unwrap(), None);
        for content in ["one", "two"] {
            write(&path, content.as_bytes()).unwrap();
            assert_eq!(read(&path).unwrap().as_deref(), Some(content));
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        write(&path, b"three").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "nothing is left beside it"
        );
    }
}
