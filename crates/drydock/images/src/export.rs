//! Writes trees as layers, and images as archives that every container tool can load.
//!
//! **Guarantees.** The same files give the same bytes: names are sorted, there are no times, and what this
//! process owns is root's. So the digest of a tree's layer says what is in the tree, and the id of an image that
//! is made twice is the same.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use tar::{Builder, EntryType, Header};

use crate::config::{Config, Document, architecture};
use crate::digest::{self, Digesting};
use crate::reference::Reference;

/// What an archive is to hold.
#[derive(Clone, Debug)]
pub enum Contents<'a> {
    /// Everything below a directory.
    Tree(&'a Path),
    /// These files, and the directories above them.
    Files(&'a [FileEntry]),
}

/// A file that is put into an archive.
#[derive(Clone, Debug)]
pub struct FileEntry {
    /// Where it is in the image: `/usr/bin/ballast`.
    pub path: PathBuf,
    /// Its permissions.
    pub mode: u32,
    /// What is in it.
    pub content: Content,
}

/// Where a file's content comes from.
#[derive(Clone, Debug)]
pub enum Content {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A file of this machine.
    File(PathBuf),
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The image's id: the digest of its configuration.
    pub id: String,
    /// The digest of its manifest.
    pub manifest: String,
}

/// Writes an image of one layer as an OCI archive that `docker load` takes too. `reference` is the name it is
/// loaded under.
///
/// # Errors
/// When something can't be read or written; what was written by then is no archive.
pub fn write_oci_archive(
    out: impl Write,
    contents: &Contents<'_>,
    config: &Config,
    reference: &Reference,
) -> io::Result<Written> {
    let mut spool = tempfile::tempfile()?;
    let compressed = Digesting::new(GzEncoder::new(Digesting::new(&mut spool), Compression::new(6)));
    let (diff_id, _, encoder) = write_layer(compressed, contents)?.finish();
    let (layer, layer_size, _) = encoder.finish()?.finish();
    let document = serde_json::to_vec(&Document::new(config, vec![diff_id]))?;
    let id = digest::of(&document);
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json", "digest": id, "size": document.len()
        },
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": layer, "size": layer_size
        }],
    }))?;
    let manifest_digest = digest::of(&manifest);
    let index = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": manifest_digest,
            "size": manifest.len(),
            "platform": { "os": "linux", "architecture": architecture() },
            "annotations": {
                "io.containerd.image.name": reference.tagged(),
                "org.opencontainers.image.ref.name": reference.tag_or_latest(),
            },
        }],
    }))?;
    let blob = |digest: &str| format!("blobs/sha256/{}", digest::hex(digest).unwrap_or_default());
    let rows = serde_json::to_vec(&json!([{
        "Config": blob(&id),
        "RepoTags": [format!("{}:{}", reference.familiar_name(), reference.tag_or_latest())],
        "Layers": [blob(&layer)],
    }]))?;

    let mut archive = Builder::new(out);
    for directory in ["blobs/", "blobs/sha256/"] {
        append(&mut archive, Path::new(directory), EntryType::Directory, 0o755, 0, io::empty())?;
    }
    spool.seek(SeekFrom::Start(0))?;
    append(&mut archive, Path::new(&blob(&layer)), EntryType::Regular, 0o644, layer_size, spool)?;
    for (name, bytes) in [
        (blob(&id), document.as_slice()),
        (blob(&manifest_digest), &manifest),
        ("index.json".to_owned(), &index),
        ("manifest.json".to_owned(), &rows),
        ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#),
    ] {
        append(&mut archive, Path::new(&name), EntryType::Regular, 0o644, bytes.len() as u64, bytes)?;
    }
    archive.into_inner()?.flush()?;
    Ok(Written { id, manifest: manifest_digest })
}

/// The digest of `tree` as a layer.
pub(crate) fn diff_id(tree: &Path) -> io::Result<String> {
    Ok(write_layer(Digesting::new(io::sink()), &Contents::Tree(tree))?.finish().0)
}

/// How much there is below a directory.
pub(crate) struct Usage {
    /// In files, each counted once however many names it has.
    pub(crate) bytes: u64,
    /// Names of all kinds.
    pub(crate) entries: u64,
}

pub(crate) fn usage(tree: &Path) -> io::Result<Usage> {
    let mut counted = HashSet::new();
    let mut usage = Usage { bytes: 0, entries: 0 };
    for path in walk(tree)? {
        let found = fs::symlink_metadata(tree.join(path))?;
        usage.entries += 1;
        if found.is_file() && (found.nlink() == 1 || counted.insert((found.dev(), found.ino()))) {
            usage.bytes += found.len();
        }
    }
    Ok(usage)
}

fn write_layer<W: Write>(out: W, contents: &Contents<'_>) -> io::Result<W> {
    let mut layer = Builder::new(out);
    match contents {
        Contents::Tree(tree) => tree_layer(&mut layer, tree)?,
        Contents::Files(files) => files_layer(&mut layer, files)?,
    }
    layer.into_inner()
}

fn files_layer<W: Write>(layer: &mut Builder<W>, files: &[FileEntry]) -> io::Result<()> {
    let mut sorted: Vec<(PathBuf, &FileEntry)> =
        files.iter().map(|f| (f.path.strip_prefix("/").unwrap_or(&f.path).to_owned(), f)).collect();
    sorted.sort_by(|one, other| one.0.cmp(&other.0));
    let mut made: Vec<PathBuf> = Vec::new();
    for (path, file) in sorted {
        let mut above: Vec<&Path> = path.ancestors().skip(1).filter(|a| !a.as_os_str().is_empty()).collect();
        above.reverse();
        for directory in above {
            if !made.iter().any(|known| known == directory) {
                append(layer, directory, EntryType::Directory, 0o755, 0, io::empty())?;
                made.push(directory.to_owned());
            }
        }
        match &file.content {
            Content::Bytes(bytes) => {
                append(layer, &path, EntryType::Regular, file.mode, bytes.len() as u64, bytes.as_slice())?;
            }
            Content::File(source) => {
                let source = File::open(source)?;
                let size = source.metadata()?.len();
                append(layer, &path, EntryType::Regular, file.mode, size, source)?;
            }
        }
    }
    Ok(())
}

fn append<W: Write>(
    archive: &mut Builder<W>,
    path: &Path,
    kind: EntryType,
    mode: u32,
    size: u64,
    body: impl Read,
) -> io::Result<()> {
    let mut header = header(kind, mode);
    header.set_size(size);
    archive.append_data(&mut header, path, body)
}

/// Root's, without a time.
fn header(kind: EntryType, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode & 0o7777);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header
}

fn tree_layer<W: Write>(layer: &mut Builder<W>, tree: &Path) -> io::Result<()> {
    let me = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut names: HashMap<(u64, u64), PathBuf> = HashMap::new();
    for path in walk(tree)? {
        let full = tree.join(&path);
        let found = fs::symlink_metadata(&full)?;
        let mut header = header(EntryType::Regular, found.mode());
        header.set_uid(u64::from(if found.uid() == me.0 { 0 } else { found.uid() }));
        header.set_gid(u64::from(if found.gid() == me.1 { 0 } else { found.gid() }));
        if found.is_dir() {
            header.set_entry_type(EntryType::Directory);
            layer.append_data(&mut header, &path, io::empty())?;
        } else if found.is_symlink() {
            header.set_entry_type(EntryType::Symlink);
            layer.append_link(&mut header, &path, fs::read_link(&full)?)?;
        } else if found.is_file() {
            match names.get(&(found.dev(), found.ino())).filter(|_| found.nlink() > 1) {
                Some(original) => {
                    header.set_entry_type(EntryType::Link);
                    layer.append_link(&mut header, &path, original)?;
                }
                None => {
                    header.set_size(found.len());
                    layer.append_data(&mut header, &path, File::open(&full)?)?;
                    names.insert((found.dev(), found.ino()), path);
                }
            }
        }
    }
    Ok(())
}

/// Every path below `tree`, sorted, directories before what is in them.
fn walk(tree: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut ahead = vec![PathBuf::new()];
    while let Some(directory) = ahead.pop() {
        for child in fs::read_dir(tree.join(&directory))? {
            let child = child?;
            let path = directory.join(child.file_name());
            if child.file_type()?.is_dir() {
                ahead.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
