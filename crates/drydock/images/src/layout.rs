//! How the store lies on disk, and how things get there whole or not at all.
//!
//! ```text
//! lock               held while names change and while something comes or goes
//! references.json    which image a name and tag mean
//! images/<digits>/   image.json, what it is; tree/, the root file system
//! making/            what is not finished; swept when its maker is gone
//! locks/             one file per recipe: two who want the same image wait for each other
//! packages/          what the package manager keeps
//! ```
//!
//! **Guarantees.** What is under `images/` is complete. A maker that dies leaves something under `making/` whose
//! lock is free, and the next one who opens the store removes it.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tempfile::{NamedTempFile, TempDir};

use crate::config::Config;
use crate::digest;
use crate::layer;
use crate::packages::Package;
use crate::progress::{Progress, Report};

/// What an image is called by its content: `sha256:` and 64 digits, the digest of its configuration, which holds
/// the digests of its layers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImageId(String);

impl ImageId {
    /// An id, where the string is one.
    pub fn parse(text: &str) -> Option<ImageId> {
        digest::hex(text).map(|_| ImageId(text.to_owned()))
    }

    /// What [`digest::of`] returns is always one.
    pub(crate) fn of_digest(digest: String) -> ImageId {
        ImageId(digest)
    }

    /// With the algorithm in front.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The digits alone.
    pub fn digits(&self) -> &str {
        digest::hex(&self.0).unwrap_or_default()
    }
}

impl std::fmt::Display for ImageId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the store knows about one image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The image's id.
    pub id: ImageId,
    /// The whole name it was made or imported under first.
    pub name: String,
    /// Where it came from.
    pub origin: Origin,
    /// The packages it holds.
    pub packages: Vec<Package>,
    /// When it was made or imported.
    pub created: Timestamp,
    /// How many bytes its files have.
    pub bytes: u64,
    /// How many files, directories and links it has.
    pub entries: u64,
    /// How to run it.
    pub config: Config,
}

/// Where an image came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// It was made by a recipe.
    Recipe {
        /// The Debian suite its packages are from; none where it has no packages.
        suite: Option<String>,
        /// Its version upstream.
        version: String,
        /// Its version in Debian, where it has one.
        debian: Option<String>,
        /// What the recipe was, so that a changed one makes a new image.
        fingerprint: String,
    },
    /// It was imported.
    Archive {
        /// From which file or directory.
        path: PathBuf,
        /// The digest of its manifest, where it had one.
        manifest: Option<String>,
    },
}

impl Record {
    /// What a pod's status says in `imageID`: name, version and content, in the form of a reference.
    pub fn image_id(&self) -> String {
        match &self.origin {
            Origin::Recipe { suite: Some(suite), version, debian: Some(_), .. } => {
                format!("{}:{version}-{suite}@{}", self.name, self.id)
            }
            Origin::Recipe { version, .. } => format!("{}:{version}@{}", self.name, self.id),
            Origin::Archive { manifest: Some(manifest), .. } => format!("{}@{manifest}", self.name),
            Origin::Archive { manifest: None, .. } => format!("{}@{}", self.name, self.id),
        }
    }

    pub(crate) fn is(&self, digest: &str) -> bool {
        let manifest = match &self.origin {
            Origin::Archive { manifest, .. } => manifest.as_deref(),
            Origin::Recipe { .. } => None,
        };
        self.id.as_str() == digest || manifest == Some(digest)
    }
}

/// Which image a name and tag mean, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pointer {
    pub(crate) id: ImageId,
    pub(crate) since: Timestamp,
    /// For a recipe's: what the recipe was. An imported image's is none.
    pub(crate) fingerprint: Option<String>,
    /// What of the tag it does not satisfy, as a sentence.
    pub(crate) note: Option<String>,
    /// Set when not every suite could be looked at, so that there may be something nearer.
    #[serde(default)]
    pub(crate) provisional: bool,
}

pub(crate) type References = BTreeMap<String, Pointer>;

/// An error of the disk, with the path it is about.
#[derive(Debug, thiserror::Error)]
#[error("can't use {path:?} of the image store")]
pub struct DiskError {
    /// What could not be read or written.
    pub path: PathBuf,
    #[source]
    error: io::Error,
}

pub(crate) fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, DiskError> {
    result.map_err(|error| DiskError { path: path.to_owned(), error })
}

/// The directory.
#[derive(Debug)]
pub(crate) struct Layout {
    root: PathBuf,
}

/// An image that is not finished. Dropped, it is gone.
pub(crate) struct Making {
    directory: TempDir,
    _lock: File,
}

impl Making {
    pub(crate) fn tree(&self) -> PathBuf {
        self.directory.path().join("tree")
    }
}

impl Layout {
    /// Opens the store, makes it where it is not there, and sweeps what dead makers left.
    pub(crate) fn open(root: &Path) -> Result<Layout, DiskError> {
        for below in ["", "images", "making", "locks", "packages"] {
            let path = root.join(below);
            // For its owner alone: trees have directories that everybody may write to.
            at(&path, DirBuilder::new().recursive(true).mode(0o700).create(&path))?;
        }
        let layout = Layout { root: at(root, root.canonicalize())? };
        layout.sweep()?;
        Ok(layout)
    }

    pub(crate) fn packages(&self) -> PathBuf {
        self.root.join("packages")
    }

    pub(crate) fn scratch(&self) -> PathBuf {
        self.root.join("making")
    }

    pub(crate) fn tree(&self, id: &ImageId) -> PathBuf {
        self.image(id).join("tree")
    }

    fn image(&self, id: &ImageId) -> PathBuf {
        self.root.join("images").join(id.digits())
    }

    fn lock(&self) -> Result<File, DiskError> {
        let path = self.root.join("lock");
        at(&path, File::create(&path).and_then(|file| file.lock().map(|()| file)))
    }

    /// Held while an image of one recipe is chosen and made.
    pub(crate) fn lock_recipe(&self, name: &str, report: Report<'_>) -> Result<File, DiskError> {
        let digits = digest::of(name.as_bytes());
        let path = self.root.join("locks").join(digest::hex(&digits).unwrap_or_default());
        let file = at(&path, File::create(&path))?;
        if file.try_lock().is_err() {
            report(&Progress::Waiting);
            at(&path, file.lock())?;
        }
        Ok(file)
    }

    fn sweep(&self) -> Result<(), DiskError> {
        let _lock = self.lock()?;
        let making = self.scratch();
        for entry in at(&making, fs::read_dir(&making))? {
            let path = at(&making, entry)?.path();
            let alive = File::open(path.join("lock")).is_ok_and(|lock| lock.try_lock().is_err());
            if !alive {
                at(&path, layer::clear(&path))?;
            }
        }
        Ok(())
    }

    /// Begins an image.
    pub(crate) fn begin(&self) -> Result<Making, DiskError> {
        let _lock = self.lock()?;
        let making = self.scratch();
        let directory = at(&making, tempfile::Builder::new().prefix("image-").tempdir_in(&making))?;
        let path = directory.path().join("lock");
        let lock = at(&path, File::create(&path).and_then(|file| file.lock().map(|()| file)))?;
        let tree = directory.path().join("tree");
        at(&tree, DirBuilder::new().mode(0o755).create(&tree))?;
        at(&tree, crate::rooted::chmod_directory(&tree, 0o755))?;
        Ok(Making { directory, _lock: lock })
    }

    /// Puts a finished image in its place and points `references` to it. One that is there already is the same,
    /// being called by its content, and stays.
    pub(crate) fn finish(
        &self,
        making: Making,
        record: &Record,
        references: &[(String, Pointer)],
    ) -> Result<(), DiskError> {
        let from = making.directory.path().to_owned();
        let json = at(&from, serde_json::to_vec_pretty(record).map_err(io::Error::from))?;
        at(&from, fs::write(from.join("image.json"), json))?;
        // A power cut must not leave an image that has its name and not its files.
        at(&from, File::open(&from).and_then(|directory| Ok(rustix::fs::syncfs(&directory)?)))?;
        let _lock = self.lock()?;
        let to = self.image(&record.id);
        if !to.exists() {
            at(&from, fs::remove_file(from.join("lock")))?;
            at(&to, fs::rename(&from, &to))?;
            let _ = making.directory.keep(); // it is no longer there to be removed
        }
        self.point(references)
    }

    /// Points names to an image that is there.
    pub(crate) fn refer(&self, references: &[(String, Pointer)]) -> Result<(), DiskError> {
        let _lock = self.lock()?;
        self.point(references)
    }

    fn point(&self, references: &[(String, Pointer)]) -> Result<(), DiskError> {
        let mut all = self.references()?;
        all.extend(references.iter().cloned());
        self.write_references(&all)
    }

    pub(crate) fn references(&self) -> Result<References, DiskError> {
        let path = self.root.join("references.json");
        match fs::read(&path) {
            Ok(bytes) => at(&path, serde_json::from_slice(&bytes).map_err(io::Error::from)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(References::new()),
            Err(error) => at(&path, Err(error)),
        }
    }

    fn write_references(&self, references: &References) -> Result<(), DiskError> {
        let path = self.root.join("references.json");
        let written = || -> io::Result<()> {
            let mut file = NamedTempFile::new_in(self.scratch())?;
            file.write_all(&serde_json::to_vec_pretty(references)?)?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            Ok(())
        };
        at(&path, written())
    }

    /// One image, where it is there.
    pub(crate) fn record(&self, id: &ImageId) -> Result<Option<Record>, DiskError> {
        let path = self.image(id).join("image.json");
        match fs::read(&path) {
            Ok(bytes) => at(&path, serde_json::from_slice(&bytes).map(Some).map_err(io::Error::from)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => at(&path, Err(error)),
        }
    }

    /// All images, the oldest first.
    pub(crate) fn records(&self) -> Result<Vec<Record>, DiskError> {
        let images = self.root.join("images");
        let mut records = Vec::new();
        for entry in at(&images, fs::read_dir(&images))? {
            let name = at(&images, entry)?.file_name();
            if let Some(id) = ImageId::parse(&format!("sha256:{}", name.to_string_lossy())) {
                records.extend(self.record(&id)?);
            }
        }
        records.sort_by(|one, other| (one.created, &one.id).cmp(&(other.created, &other.id)));
        Ok(records)
    }

    /// Takes an image and the names that mean it away. Returns the names.
    pub(crate) fn remove(&self, id: &ImageId) -> Result<Vec<String>, DiskError> {
        let grave = {
            let _lock = self.lock()?;
            let mut references = self.references()?;
            let gone: Vec<String> = references
                .iter()
                .filter(|(_, pointer)| &pointer.id == id)
                .map(|(name, _)| name.clone())
                .collect();
            references.retain(|_, pointer| &pointer.id != id);
            self.write_references(&references)?;
            let grave = self.scratch().join(format!("removed-{}", id.digits()));
            at(&grave, layer::clear(&grave))?;
            let image = self.image(id);
            at(&image, fs::rename(&image, &grave))?;
            (grave, gone)
        };
        at(&grave.0, layer::clear(&grave.0))?;
        Ok(grave.1)
    }
}
