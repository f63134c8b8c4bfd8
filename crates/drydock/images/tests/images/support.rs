//! Stores in temporary directories, archives written by hand.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use drydock_images::{
    Error, Fetched, Imported, Options, Package, Packages, PackagesError, Progress, Pull, Report, Resolved,
    Store, silently,
};
use jiff::{SignedDuration, Timestamp};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A store that is gone with the test.
pub struct Machine {
    pub store: Store,
    pub directory: TempDir,
    clock: Arc<Mutex<Timestamp>>,
}

impl Machine {
    pub fn new(change: impl FnOnce(&mut Options)) -> Machine {
        let clock = Arc::new(Mutex::new(Timestamp::UNIX_EPOCH));
        let now = Arc::clone(&clock);
        let mut options = Options { now: Arc::new(move || *now.lock().unwrap()), ..Options::default() };
        change(&mut options);
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("store"), options).unwrap();
        Machine { store, directory, clock }
    }

    pub fn with_packages(packages: Arc<dyn Packages>) -> Machine {
        Machine::new(|options| options.packages = Some(packages))
    }

    pub fn hours_pass(&self, hours: i64) {
        *self.clock.lock().unwrap() += SignedDuration::from_hours(hours);
    }

    pub fn resolve(&self, image: &str, pull: Pull) -> Result<Resolved, Error> {
        self.store.resolve_image(image, pull, &silently)
    }

    /// Imports an archive of these bytes, under the name `archive.tar`.
    pub fn import(&self, bytes: &[u8]) -> Result<Vec<Imported>, Error> {
        let path = self.directory.path().join("archive.tar");
        std::fs::write(&path, bytes).unwrap();
        self.store.import(&path, None, &silently)
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join("store").join(below)
    }

    /// Nothing half-made is left, and nothing is there that was not finished.
    pub fn assert_empty(&self) {
        for below in ["making", "images"] {
            let left: Vec<_> = std::fs::read_dir(self.path(below)).unwrap().collect();
            assert!(left.is_empty(), "{below}: {left:?}");
        }
    }
}

/// Debian, made up: what each suite has. A package holds one file, `/lib/tool/<name>`, and that is its version.
pub struct Pretended {
    pub versions: Mutex<BTreeMap<(String, String), String>>,
    pub asked: Mutex<Vec<String>>,
    debs: TempDir,
}

impl Pretended {
    pub fn new(versions: &[(&str, &str, &str)]) -> Arc<Pretended> {
        let versions = versions
            .iter()
            .map(|(suite, name, v)| (((*suite).into(), (*name).into()), (*v).into()))
            .collect();
        let debs = tempfile::tempdir().unwrap();
        Arc::new(Pretended { versions: Mutex::new(versions), asked: Mutex::default(), debs })
    }

    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl Packages for Pretended {
    fn version(&self, suite: &str, package: &str, _: Report<'_>) -> Result<Option<String>, PackagesError> {
        self.asked.lock().unwrap().push(format!("look {suite}"));
        let versions = self.versions.lock().unwrap();
        match versions.get(&(suite.to_owned(), package.to_owned())).map(String::as_str) {
            Some("unreachable") => Err(PackagesError::NoMirror),
            version => Ok(version.map(str::to_owned)),
        }
    }

    fn fetch(
        &self,
        suite: &str,
        packages: &[String],
        _without: &[String],
        report: Report<'_>,
    ) -> Result<Vec<Fetched>, PackagesError> {
        self.asked.lock().unwrap().push(format!("fetch {suite}"));
        let versions = self.versions.lock().unwrap();
        packages
            .iter()
            .zip(1..)
            .map(|(name, number)| {
                report(&Progress::Download { number, of: packages.len() });
                let version =
                    versions.get(&(suite.to_owned(), name.clone())).ok_or(PackagesError::NoMirror)?;
                let file = self.debs.path().join(format!("{name}_{version}.deb"));
                build(&self.debs.path().join("build"), name, version, &file);
                Ok(Fetched { package: Package { name: name.clone(), version: version.clone() }, file })
            })
            .collect()
    }
}

fn build(directory: &Path, name: &str, version: &str, deb: &Path) {
    let _ = std::fs::remove_dir_all(directory);
    for below in ["DEBIAN", "lib/tool", "usr/share/doc/x"] {
        std::fs::create_dir_all(directory.join(below)).unwrap();
    }
    let control = format!(
        "Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: x <x@x>\nDescription: x\n"
    );
    std::fs::write(directory.join("DEBIAN/control"), control).unwrap();
    std::fs::write(directory.join("lib/tool").join(name), version).unwrap();
    std::fs::write(directory.join("usr/share/doc/x/copyright"), "free").unwrap();
    std::fs::write(directory.join("usr/share/doc/x/README"), "long").unwrap();
    let status = std::process::Command::new("dpkg-deb")
        .args(["--root-owner-group", "-Znone", "--build"])
        .args([directory, deb])
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
}

pub fn sha256(bytes: &[u8]) -> String {
    let digits: String = digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

/// A tar stream, entry by entry, with any name at all.
pub struct Tar(tar::Builder<Vec<u8>>);

impl Tar {
    pub fn new() -> Tar {
        Tar(tar::Builder::new(Vec::new()))
    }

    pub fn entry(mut self, kind: tar::EntryType, name: &str, link: &str, mode: u32, body: &[u8]) -> Tar {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(body.len() as u64);
        // The builder refuses what these tests need: names are written past it.
        let raw = header.as_old_mut();
        raw.name[..name.len()].copy_from_slice(name.as_bytes());
        raw.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        self.0.append(&header, body).unwrap();
        self
    }

    /// A file of somebody.
    pub fn owned(mut self, name: &str, uid: u64, gid: u64, mode: u32) -> Tar {
        let mut header = tar::Header::new_gnu();
        header.set_mode(mode);
        header.set_uid(uid);
        header.set_gid(gid);
        header.set_size(0);
        self.0.append_data(&mut header, name, &b""[..]).unwrap();
        self
    }

    pub fn file(self, name: &str, body: &str) -> Tar {
        self.entry(tar::EntryType::Regular, name, "", 0o644, body.as_bytes())
    }

    pub fn directory(self, name: &str) -> Tar {
        self.entry(tar::EntryType::Directory, name, "", 0o755, b"")
    }

    pub fn symlink(self, name: &str, target: &str) -> Tar {
        self.entry(tar::EntryType::Symlink, name, target, 0o777, b"")
    }

    pub fn hardlink(self, name: &str, target: &str) -> Tar {
        self.entry(tar::EntryType::Link, name, target, 0o644, b"")
    }

    pub fn done(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// An OCI layout: its files by name. Layers are given as (blob, what it unpacks to).
pub struct Layout {
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Layout {
    pub fn new(layers: &[(Vec<u8>, Vec<u8>)]) -> Layout {
        Layout::with(layers, |_, _| {})
    }

    /// With something to say about the configuration and the index before they are written.
    pub fn with(layers: &[(Vec<u8>, Vec<u8>)], change: impl FnOnce(&mut Value, &mut Value)) -> Layout {
        let mut config = json!({
            "os": "linux",
            "architecture": drydock_images::architecture(),
            "config": { "Cmd": ["/hello"], "User": "5:6" },
            "rootfs": { "type": "layers", "diff_ids": layers.iter().map(|(_, plain)| sha256(plain)).collect::<Vec<_>>() },
        });
        let mut entry = json!({ "mediaType": "application/vnd.oci.image.manifest.v1+json" });
        change(&mut config, &mut entry);
        let mut layout = Layout { files: BTreeMap::new() };
        let config = layout.blob(&serde_json::to_vec(&config).unwrap());
        let layers: Vec<Value> = layers.iter().map(|(blob, _)| layout.blob(blob)).collect();
        let manifest = json!({ "schemaVersion": 2, "config": config, "layers": layers });
        let described = layout.blob(&serde_json::to_vec(&manifest).unwrap());
        entry["digest"] = described["digest"].clone();
        entry["size"] = described["size"].clone();
        let index = json!({ "schemaVersion": 2, "manifests": [entry] });
        layout.files.insert("index.json".into(), serde_json::to_vec(&index).unwrap());
        layout.files.insert("oci-layout".into(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec());
        layout
    }

    /// One plain layer.
    pub fn of(layer: Vec<u8>) -> Layout {
        Layout::new(&[(layer.clone(), layer)])
    }

    fn blob(&mut self, bytes: &[u8]) -> Value {
        let digest = sha256(bytes);
        self.files.insert(digest.replace("sha256:", "blobs/sha256/"), bytes.to_vec());
        json!({ "digest": digest, "size": bytes.len() })
    }

    pub fn archive(&self) -> Vec<u8> {
        self.files
            .iter()
            .fold(Tar::new(), |tar, (name, body)| tar.entry(tar::EntryType::Regular, name, "", 0o644, body))
            .done()
    }
}
