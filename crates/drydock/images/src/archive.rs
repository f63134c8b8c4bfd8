//! What an image archive holds: blobs under names, in a directory or inside a tar file, and the documents among
//! them that say which image is made of which.
//!
//! **Guarantees.** Nothing of an archive is written anywhere under a name that the archive chose: a tar file is
//! indexed, and its bodies are read in place. Every blob that a digest is known of is verified against it.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use crate::config::{self, Document};
use crate::digest;
use crate::layer::LayerError;
use crate::stream;
use crate::tarball::{self, Kind};

/// Indexes, manifests and configurations are some kilobytes; registries refuse more than this too.
const LARGEST_DOCUMENT: u64 = 4 << 20;
/// An archive with more files is no image archive.
const MOST_FILES: usize = 100_000;
/// Indexes may point to indexes, a little.
const DEEPEST_INDEX: usize = 4;
/// Manifests in one archive.
const MOST_MANIFESTS: usize = 256;

/// Why an archive can't be imported.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It can't be opened or read.
    #[error("can't read {path:?}")]
    Unreadable {
        /// The archive.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// It is neither of the formats.
    #[error("{0:?} is no image archive: it has neither an index.json nor a manifest.json")]
    NotAnImage(PathBuf),
    /// Something that is referred to is not there.
    #[error("the archive is incomplete: {0} is missing")]
    Missing(String),
    /// What is there is not what was meant to be.
    #[error("the archive is damaged: {what} should have the digest {expected}, and has {found}")]
    Mismatch {
        /// Which part.
        what: String,
        /// What the referrer says.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A document that is not what it should be.
    #[error("the archive's {what} can't be read: {why}")]
    Document {
        /// Which one.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// There is no image for this machine in it.
    #[error("the archive holds no image for linux/{here}, only for {others}", here = config::architecture())]
    OtherPlatform {
        /// What it holds images for.
        others: String,
    },
    /// A layer can't be applied.
    #[error("layer {number} of {of}")]
    Layer {
        /// Which one, counted from 1.
        number: usize,
        /// How many there are.
        of: usize,
        /// Why.
        #[source]
        error: LayerError,
    },
}

/// One image of an archive: its configuration, its layers, the names it is given.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    /// The digest of the configuration.
    pub(crate) id: String,
    /// The digest of the manifest, where there is one.
    pub(crate) manifest: Option<String>,
    pub(crate) document: Document,
    pub(crate) layers: Vec<Layer>,
    pub(crate) names: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Layer {
    /// Its name in the archive.
    pub(crate) blob: String,
    /// What the manifest says about it; a docker archive's says nothing.
    pub(crate) expected: Option<(String, u64)>,
    /// The digest of what is unpacked from it.
    pub(crate) diff_id: String,
}

/// An opened archive.
#[derive(Debug)]
pub(crate) struct Archive {
    path: PathBuf,
    blobs: Blobs,
}

#[derive(Debug)]
enum Blobs {
    Directory,
    Tar { file: File, bodies: HashMap<PathBuf, (u64, u64)> },
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<Platform>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

#[derive(Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

/// One row of a docker archive's `manifest.json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Row {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl Archive {
    /// Opens an OCI layout directory, or a tar file (perhaps compressed) of such a layout or of `docker save`.
    /// `scratch` is where a compressed one is unpacked, into a file without a name.
    pub(crate) fn open(path: &Path, scratch: &Path, most: u64) -> Result<Archive, ArchiveError> {
        let unreadable = |error| ArchiveError::Unreadable { path: path.to_owned(), error };
        let blobs = if fs::metadata(path).map_err(unreadable)?.is_dir() {
            Blobs::Directory
        } else {
            let file = uncompressed(path, scratch, most).map_err(unreadable)?;
            let bodies = bodies(&file).map_err(unreadable)?;
            Blobs::Tar { file, bodies }
        };
        Ok(Archive { path: path.to_owned(), blobs })
    }

    /// The images for this machine.
    pub(crate) fn images(&self) -> Result<Vec<Image>, ArchiveError> {
        if self.size("index.json").is_some() {
            self.oci_images()
        } else if self.size("manifest.json").is_some() {
            self.docker_images()
        } else {
            Err(ArchiveError::NotAnImage(self.path.clone()))
        }
    }

    /// Reads a blob from its beginning.
    pub(crate) fn blob(&self, name: &str) -> Result<Box<dyn Read + '_>, ArchiveError> {
        let missing = || ArchiveError::Missing(name.to_owned());
        let unreadable = |error| ArchiveError::Unreadable { path: self.path.clone(), error };
        let inside = inner(Path::new(name)).ok_or_else(missing)?;
        match &self.blobs {
            Blobs::Directory => {
                self.size(name).ok_or_else(missing)?; // a pipe in its place would never end
                Ok(Box::new(File::open(self.path.join(inside)).map_err(unreadable)?))
            }
            Blobs::Tar { file, bodies } => {
                let (position, size) = *bodies.get(&inside).ok_or_else(missing)?;
                Ok(Box::new(Body { file, position, left: size }))
            }
        }
    }

    fn size(&self, name: &str) -> Option<u64> {
        let inside = inner(Path::new(name))?;
        match &self.blobs {
            Blobs::Directory => {
                fs::metadata(self.path.join(inside)).ok().filter(|m| m.is_file()).map(|m| m.len())
            }
            Blobs::Tar { bodies, .. } => bodies.get(&inside).map(|(_, size)| *size),
        }
    }

    fn small(&self, name: &str) -> Result<Vec<u8>, ArchiveError> {
        let size = self.size(name).ok_or_else(|| ArchiveError::Missing(name.to_owned()))?;
        if size > LARGEST_DOCUMENT {
            let why = format!("it has {size} bytes");
            return Err(ArchiveError::Document { what: name.to_owned(), why });
        }
        let mut bytes = Vec::new();
        self.blob(name)?
            .take(LARGEST_DOCUMENT)
            .read_to_end(&mut bytes)
            .map_err(|error| ArchiveError::Unreadable { path: self.path.clone(), error })?;
        Ok(bytes)
    }

    fn verified(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ArchiveError> {
        let bytes = self.small(&blob_name(&descriptor.digest)?)?;
        matches(&descriptor.digest, &digest::of(&bytes), &descriptor.digest)?;
        Ok(bytes)
    }

    fn oci_images(&self) -> Result<Vec<Image>, ArchiveError> {
        let index: Index = document("index.json", &self.small("index.json")?)?;
        let mut images = Vec::new();
        let mut others = Vec::new();
        let mut ahead: Vec<(Descriptor, Vec<String>, usize)> =
            index.manifests.into_iter().rev().map(|d| (d, Vec::new(), 1)).collect();
        let mut seen = 0;
        while let Some((descriptor, mut names, depth)) = ahead.pop() {
            seen += 1;
            if depth > DEEPEST_INDEX || seen > MOST_MANIFESTS {
                let why = "it has too many manifests".to_owned();
                return Err(ArchiveError::Document { what: "index.json".to_owned(), why });
            }
            names.extend(names_of(&descriptor));
            if let Some(platform) = descriptor.platform.as_ref().filter(|p| !p.is_ours()) {
                others.push(platform.to_string());
                continue;
            }
            let bytes = self.verified(&descriptor)?;
            if descriptor.is_index() {
                let index: Index = document(&descriptor.digest, &bytes)?;
                ahead.extend(index.manifests.into_iter().rev().map(|d| (d, names.clone(), depth + 1)));
                continue;
            }
            let image = self.oci_image(&descriptor, &bytes, names)?;
            if image.document.is_ours() {
                images.push(image);
            } else {
                others.push(format!("{}/{}", image.document.os, image.document.architecture));
            }
        }
        if images.is_empty() {
            return Err(ArchiveError::OtherPlatform { others: others.join(", ") });
        }
        Ok(images)
    }

    fn oci_image(&self, from: &Descriptor, bytes: &[u8], names: Vec<String>) -> Result<Image, ArchiveError> {
        let manifest: Manifest = document(&from.digest, bytes)?;
        let document: Document = document(&manifest.config.digest, &self.verified(&manifest.config)?)?;
        let blobs = manifest.layers.into_iter().map(|layer| {
            if layer.media_type.ends_with("+encrypted") {
                let why = "it is encrypted".to_owned();
                return Err(ArchiveError::Document { what: layer.digest, why });
            }
            Ok((blob_name(&layer.digest)?, Some((layer.digest, layer.size))))
        });
        let layers = layers(blobs.collect::<Result<_, _>>()?, &document)?;
        Ok(Image { id: manifest.config.digest, manifest: Some(from.digest.clone()), document, layers, names })
    }

    fn docker_images(&self) -> Result<Vec<Image>, ArchiveError> {
        let rows: Vec<Row> = document("manifest.json", &self.small("manifest.json")?)?;
        if rows.len() > MOST_MANIFESTS {
            let why = "it has too many images".to_owned();
            return Err(ArchiveError::Document { what: "manifest.json".to_owned(), why });
        }
        let (ours, others): (Vec<Image>, Vec<Image>) = rows
            .into_iter()
            .map(|row| self.docker_image(row))
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .partition(|image| image.document.is_ours());
        if ours.is_empty() {
            let others = others.iter().map(|i| format!("{}/{}", i.document.os, i.document.architecture));
            return Err(ArchiveError::OtherPlatform { others: others.collect::<Vec<_>>().join(", ") });
        }
        Ok(ours)
    }

    fn docker_image(&self, row: Row) -> Result<Image, ArchiveError> {
        let bytes = self.small(&row.config)?;
        let id = digest::of(&bytes);
        let stem = Path::new(&row.config).file_stem().map(|s| format!("sha256:{}", s.to_string_lossy()));
        if let Some(named) = stem.filter(|stem| digest::hex(stem).is_some()) {
            matches(&row.config, &id, &named)?;
        }
        let document: Document = document(&row.config, &bytes)?;
        let layers = layers(row.layers.into_iter().map(|name| (name, None)).collect(), &document)?;
        Ok(Image { id, manifest: None, document, layers, names: row.repo_tags.unwrap_or_default() })
    }
}

impl Descriptor {
    fn is_index(&self) -> bool {
        matches!(
            self.media_type.as_str(),
            "application/vnd.oci.image.index.v1+json"
                | "application/vnd.docker.distribution.manifest.list.v2+json"
        )
    }
}

impl Platform {
    fn is_ours(&self) -> bool {
        self.os == "linux" && self.architecture == config::architecture()
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)
    }
}

impl Document {
    /// One that says nothing about a platform is believed to be for this one.
    fn is_ours(&self) -> bool {
        matches!(self.os.as_str(), "" | "linux")
            && (self.architecture.is_empty() || self.architecture == config::architecture())
    }
}

/// What a descriptor's annotations call the image; a whole name before a bare tag.
fn names_of(descriptor: &Descriptor) -> Option<String> {
    let annotations = descriptor.annotations.as_ref()?;
    let of = |key: &str| annotations.get(key).cloned();
    of("io.containerd.image.name").or_else(|| of("org.opencontainers.image.ref.name"))
}

fn layers(
    blobs: Vec<(String, Option<(String, u64)>)>,
    document: &Document,
) -> Result<Vec<Layer>, ArchiveError> {
    let diff_ids = &document.rootfs.diff_ids;
    if blobs.len() != diff_ids.len() {
        let why = format!("it describes {} layers, and {} are there", diff_ids.len(), blobs.len());
        return Err(ArchiveError::Document { what: "configuration".to_owned(), why });
    }
    Ok(blobs
        .into_iter()
        .zip(diff_ids)
        .map(|((blob, expected), diff_id)| Layer { blob, expected, diff_id: diff_id.clone() })
        .collect())
}

/// An error unless two digests are the same.
pub(crate) fn matches(what: &str, found: &str, expected: &str) -> Result<(), ArchiveError> {
    if found == expected {
        return Ok(());
    }
    Err(ArchiveError::Mismatch {
        what: what.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
    })
}

fn blob_name(digest: &str) -> Result<String, ArchiveError> {
    match digest::hex(digest) {
        Some(hex) => Ok(format!("blobs/sha256/{hex}")),
        None => Err(ArchiveError::Document {
            what: "manifest".to_owned(),
            why: format!("{digest:?} is no SHA-256 digest"),
        }),
    }
}

fn document<T: for<'de> Deserialize<'de>>(what: &str, bytes: &[u8]) -> Result<T, ArchiveError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ArchiveError::Document { what: what.to_owned(), why: error.to_string() })
}

/// A name inside an archive, without detours; nothing for one that leads out of it.
fn inner(path: &Path) -> Option<PathBuf> {
    let mut inside = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => inside.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !inside.pop() {
                    return None;
                }
            }
            _ => return None,
        }
    }
    Some(inside)
}

fn uncompressed(path: &Path, scratch: &Path, most: u64) -> io::Result<File> {
    let mut file = File::open(path)?;
    let mut start = Vec::new();
    (&mut file).take(4).read_to_end(&mut start)?;
    file.seek(SeekFrom::Start(0))?;
    if !stream::is_compressed(&start) {
        return Ok(file);
    }
    let mut plain = tempfile::tempfile_in(scratch)?;
    let mut left = most;
    let inner = stream::decompressed(file)?;
    io::copy(&mut stream::Metered { inner, left: &mut left, allowed: most }, &mut plain)?;
    plain.seek(SeekFrom::Start(0))?;
    Ok(plain)
}

/// Where the bodies are. Links among them are other names of the same body, as `docker save` once wrote them.
fn bodies(file: &File) -> io::Result<HashMap<PathBuf, (u64, u64)>> {
    let length = file.metadata()?.len();
    let mut bodies = HashMap::new();
    let mut links = Vec::new();
    tarball::each(io::BufReader::new(Body { file, position: 0, left: length }), |header, _| {
        if bodies.len() + links.len() >= MOST_FILES {
            return Err(io::Error::other("it has too many files to be an image archive"));
        }
        let Some(name) = inner(&header.path) else { return Ok(()) };
        match header.kind {
            Kind::File if header.position.checked_add(header.size).is_none_or(|end| end > length) => {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
            Kind::File => drop(bodies.insert(name, (header.position, header.size))),
            Kind::Symlink(target) => {
                let beside = name.parent().unwrap_or(Path::new("")).join(target);
                links.push((name, inner(&beside)));
            }
            Kind::Hardlink(target) => links.push((name, inner(&target))),
            Kind::Directory | Kind::Special => {}
        }
        Ok(())
    })?;
    for (name, target) in links {
        if let Some(body) = target.and_then(|target| bodies.get(&target).copied()) {
            bodies.insert(name, body);
        }
    }
    Ok(bodies)
}

/// A stretch of a file, read without moving the file's own position.
struct Body<'a> {
    file: &'a File,
    position: u64,
    left: u64,
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let n = self.file.read_at(buffer.get_mut(..most).unwrap_or_default(), self.position)?;
        if n == 0 && most > 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        self.position += n as u64;
        self.left -= n as u64;
        Ok(n)
    }
}
