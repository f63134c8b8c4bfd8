//! The images of one machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

use crate::apt::{Apt, Mirror};
use crate::archive::{Archive, ArchiveError, Image};
use crate::config::Config;
use crate::import;
use crate::layer::Limits;
use crate::layout::{DiskError, ImageId, Layout, Origin, Pointer, Record, at};
use crate::packages::{Packages, PackagesError};
use crate::progress::Report;
use crate::recipe::Recipe;
use crate::reference::{DEFAULT_TAG, InvalidReference, Reference};
use crate::tree::TreeError;
use crate::{export, recipe};

/// What time it is.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How a store is to behave.
#[derive(Clone)]
pub struct Options {
    /// The images that can be made.
    pub recipes: Vec<Recipe>,
    /// Whether a tag that can't be satisfied exactly is an error rather than a note.
    pub strict: bool,
    /// How much an imported image may hold.
    pub limits: Limits,
    /// What time it is.
    pub now: Clock,
    /// Where Debian's packages are; none asks this machine's own apt.
    pub mirror: Option<Mirror>,
    /// Where packages come from, in place of apt.
    pub packages: Option<Arc<dyn Packages>>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            recipes: recipe::builtin(),
            strict: false,
            limits: Limits::default(),
            now: Arc::new(Timestamp::now),
            mirror: None,
            packages: None,
        }
    }
}

/// When an image is looked for beyond what is there: a pod's `imagePullPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pull {
    /// What is there is looked at again when that was some hours ago.
    Always,
    /// What is there is taken.
    IfNotPresent,
    /// Only what is there is taken.
    Never,
}

/// An image that is there.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The image's id.
    pub id: ImageId,
    /// What a pod's status says in `imageID`.
    pub image_id: String,
    /// Its root file system. It belongs to the store: it is to be read, and a container writes elsewhere.
    pub tree: PathBuf,
    /// How to run it.
    pub config: Config,
    /// What of the tag it does not satisfy: the text of an event.
    pub note: Option<String>,
    /// How many bytes its files have.
    pub bytes: u64,
    /// Whether it was there before it was asked for.
    pub present: bool,
}

/// An image that was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The image's id.
    pub id: ImageId,
    /// The names it can now be asked for by.
    pub references: Vec<String>,
}

/// One line of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The names that mean it.
    pub references: Vec<String>,
    /// What it is.
    pub record: Record,
}

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name is none.
    #[error(transparent)]
    InvalidName(#[from] InvalidReference),
    /// No recipe and no imported image has the name.
    #[error(
        "failed to pull and unpack image {image:?}: failed to resolve reference {image:?}: not found; there are: {known}"
    )]
    Unknown {
        /// What was asked for.
        image: String,
        /// What there is.
        known: String,
    },
    /// It is not there, and is not to be made.
    #[error("Container image {0:?} is not present with pull policy of Never")]
    NotPresent(String),
    /// Only something near it is to be had, and that is not wanted.
    #[error("failed to pull and unpack image {image:?}: {note}")]
    NotExact {
        /// What was asked for.
        image: String,
        /// What it would be.
        note: String,
    },
    /// It can't be made.
    #[error("failed to pull and unpack image {image:?}")]
    Make {
        /// What was asked for.
        image: String,
        /// Why.
        #[source]
        error: TreeError,
    },
    /// An archive can't be imported.
    #[error("can't import {path:?}")]
    Import {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        error: ArchiveError,
    },
    /// A name was given for an archive that holds more than one image.
    #[error("{0:?} holds several images, which can't all be given one name")]
    Several(PathBuf),
    /// There is none of that name or id to remove.
    #[error("there is no image {0:?}")]
    NoSuchImage(String),
    /// A beginning of an id that several have.
    #[error("{0:?} is the beginning of several images' ids")]
    Ambiguous(String),
    /// A container runs from it.
    #[error("the image {0} is in use")]
    InUse(ImageId),
    /// The disk fails.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl Error {
    /// The reason that a kubelet gives in a waiting container's status.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::InvalidName(_) => "InvalidImageName",
            Error::NotPresent(_) => "ErrImageNeverPull",
            Error::Disk(_) => "ImageInspectError",
            _ => "ErrImagePull",
        }
    }

    /// The message beside the reason: this error and what caused it, in one line. What a cause quotes of a damaged
    /// file may be anything, and can neither end that line nor speak to the terminal.
    pub fn message(&self) -> String {
        if let Error::InvalidName(error) = self {
            return error.kubelet_message();
        }
        let mut message = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            message.push_str(&format!(": {error}"));
            cause = error.source();
        }
        message
            .chars()
            .map(|part| if part.is_control() { char::REPLACEMENT_CHARACTER } else { part })
            .collect()
    }

    pub(crate) fn packages(image: &Reference, error: PackagesError) -> Error {
        Error::Make { image: image.to_string(), error: TreeError::Packages(error) }
    }
}

/// A handle to the images of one directory; clones share it. Every method blocks.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) layout: Layout,
    pub(crate) options: Options,
    pub(crate) packages: Arc<dyn Packages>,
}

impl Store {
    /// Opens the store in `directory`, which is made where it is not there. What a maker that died left behind is
    /// removed. Several processes may have it open.
    ///
    /// # Errors
    /// When the directory can't be used.
    pub fn open(directory: &Path, options: Options) -> Result<Store, Error> {
        let layout = Layout::open(directory)?;
        let packages = options.packages.clone().unwrap_or_else(|| {
            Arc::new(Apt::new(layout.packages(), options.mirror.clone(), Arc::clone(&options.now)))
        });
        Ok(Store { inner: Arc::new(Inner { layout, options, packages }) })
    }

    /// The images that can be made.
    pub fn recipes(&self) -> &[Recipe] {
        &self.inner.options.recipes
    }

    /// The images that are there, the oldest first.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn list(&self) -> Result<Vec<Listed>, Error> {
        let references = self.inner.layout.references()?;
        let records = self.inner.layout.records()?;
        Ok(records
            .into_iter()
            .map(|record| {
                let mine = references.iter().filter(|(_, pointer)| pointer.id == record.id);
                Listed { references: mine.map(|(name, _)| name.clone()).collect(), record }
            })
            .collect())
    }

    /// Removes the image that `image` means: a reference, an id, or the beginning of one. All names that mean it
    /// go too, and are returned.
    ///
    /// # Errors
    /// When there is no such image, or it is one of those in use.
    pub fn remove(&self, image: &str, in_use: &BTreeSet<ImageId>) -> Result<Vec<String>, Error> {
        let id = self.find(image)?;
        if in_use.contains(&id) {
            return Err(Error::InUse(id));
        }
        Ok(self.inner.layout.remove(&id)?)
    }

    /// The images that something on this machine is mounted from, as far as this user can see: those that
    /// containers run from, whichever node started them.
    ///
    /// # Errors
    /// When the disk, or the list of processes, can't be read.
    pub fn in_use(&self) -> Result<BTreeSet<ImageId>, Error> {
        let processes = Path::new("/proc");
        let ids: Vec<ImageId> = self.inner.layout.records()?.into_iter().map(|record| record.id).collect();
        let mut in_use = BTreeSet::new();
        for process in at(processes, std::fs::read_dir(processes))?.flatten() {
            // A process that is gone, or somebody else's, has no mounts of ours.
            let Ok(mounts) = std::fs::read_to_string(process.path().join("mountinfo")) else { continue };
            in_use.extend(ids.iter().filter(|id| mounts.contains(id.digits())).cloned());
        }
        Ok(in_use)
    }

    fn find(&self, image: &str) -> Result<ImageId, Error> {
        let records = self.inner.layout.records()?;
        let digits = image.strip_prefix("sha256:").unwrap_or(image);
        let mut begun =
            records.iter().filter(|record| digits.len() >= 4 && record.id.digits().starts_with(digits));
        match (begun.next(), begun.next()) {
            (Some(record), None) => return Ok(record.id.clone()),
            (Some(_), Some(_)) => return Err(Error::Ambiguous(image.to_owned())),
            _ => {}
        }
        let reference = Reference::parse(image)?;
        let found = match reference.digest() {
            Some(digest) => records.iter().find(|record| record.is(digest)).map(|record| record.id.clone()),
            None => self.inner.layout.references()?.remove(&reference.tagged()).map(|pointer| pointer.id),
        };
        found.ok_or_else(|| Error::NoSuchImage(image.to_owned()))
    }

    /// Imports the images for this machine from an OCI archive, a docker archive or an OCI layout directory. They
    /// get the names that the archive gives them, or `name`; one without any is named after the file.
    ///
    /// # Errors
    /// When the archive is damaged, incomplete, hostile, or too large. Nothing of the image in question is left
    /// then.
    pub fn import(
        &self,
        path: &Path,
        name: Option<&Reference>,
        report: Report<'_>,
    ) -> Result<Vec<Imported>, Error> {
        let failed = |error| Error::Import { path: path.to_owned(), error };
        let layout = &self.inner.layout;
        let archive =
            Archive::open(path, &layout.scratch(), self.inner.options.limits.bytes).map_err(failed)?;
        let images = archive.images().map_err(failed)?;
        if name.is_some() && images.len() > 1 {
            return Err(Error::Several(path.to_owned()));
        }
        let mut imported = Vec::with_capacity(images.len());
        for image in &images {
            let references = match name {
                Some(name) => vec![name.clone()],
                None => names(image, path),
            };
            imported.push(self.import_one(path, &archive, image, &references, report)?);
        }
        Ok(imported)
    }

    fn import_one(
        &self,
        path: &Path,
        archive: &Archive,
        image: &Image,
        references: &[Reference],
        report: Report<'_>,
    ) -> Result<Imported, Error> {
        let failed = |error| Error::Import { path: path.to_owned(), error };
        let layout = &self.inner.layout;
        let now = (self.inner.options.now)();
        let what =
            || ArchiveError::Document { what: "manifest".to_owned(), why: "it has no digest".to_owned() };
        let id = ImageId::parse(&image.id).ok_or_else(|| failed(what()))?;
        let tagged: Vec<String> = references.iter().map(Reference::tagged).collect();
        let pointer =
            Pointer { id: id.clone(), since: now, fingerprint: None, note: None, provisional: false };
        let pointers: Vec<(String, Pointer)> =
            tagged.iter().map(|name| (name.clone(), pointer.clone())).collect();
        if layout.record(&id)?.is_some() {
            layout.refer(&pointers)?;
            return Ok(Imported { id, references: tagged });
        }
        let making = layout.begin()?;
        import::unpack(archive, image, &making.tree(), &self.inner.options.limits, report).map_err(failed)?;
        let usage = at(&making.tree(), export::usage(&making.tree()))?;
        let record = Record {
            id: id.clone(),
            name: references.first().map(Reference::name).unwrap_or_default(),
            origin: Origin::Archive { path: path.to_owned(), manifest: image.manifest.clone() },
            packages: Vec::new(),
            created: now,
            bytes: usage.bytes,
            entries: usage.entries,
            config: image.document.config(),
        };
        layout.finish(making, &record, &pointers)?;
        Ok(Imported { id, references: tagged })
    }
}

/// What an archive calls an image. A bare tag, and an image without a name, is called as the file is.
fn names(image: &Image, path: &Path) -> Vec<Reference> {
    let stem = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let stem = stem.split('.').next().filter(|stem| Reference::parse(stem).is_ok()).unwrap_or("imported");
    let mut named: Vec<Reference> = image
        .names
        .iter()
        .map(|name| if name.contains(['/', ':']) { name.clone() } else { format!("{stem}:{name}") })
        .filter_map(|name| Reference::parse(&name).ok())
        .collect();
    if named.is_empty() {
        named.extend(Reference::parse(&format!("{stem}:{DEFAULT_TAG}")));
    }
    named
}
