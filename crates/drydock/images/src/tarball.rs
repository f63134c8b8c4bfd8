//! Reads a tar stream that nobody vouches for.
//!
//! **Guarantees.** Memory is bounded whatever the stream says: long names are capped, bodies are streamed. What
//! is not understood for certain (sparse files, sizes that contradict each other) is an error, never a guess.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use tar::EntryType;

/// Longer names and extension records are refused; the kernel takes no path beyond 4096 bytes.
const LONGEST_RECORD: u64 = 64 << 10;

/// What an entry of the archive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink(PathBuf),
    /// The path, in the archive, of what it is another name of.
    Hardlink(PathBuf),
    /// A device, a pipe: what no image needs and no plain user may make.
    Special,
}

/// An entry's header, with its extensions applied.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) modified: u64,
    pub(crate) size: u64,
    /// Where the body begins in the stream.
    pub(crate) position: u64,
}

/// What the extension records before an entry say about it.
#[derive(Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u32>,
    gid: Option<u32>,
}

/// Calls `visit` with every entry and its body, in order. The first error ends it.
pub(crate) fn each<R, E>(
    reader: R,
    mut visit: impl FnMut(Header, &mut dyn Read) -> Result<(), E>,
) -> Result<(), E>
where
    R: Read,
    E: From<io::Error>,
{
    let mut archive = tar::Archive::new(reader);
    let mut extensions = Extensions::default();
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        match kind {
            EntryType::GNULongName => extensions.path = Some(long_name(&mut entry)?),
            EntryType::GNULongLink => extensions.link = Some(long_name(&mut entry)?),
            EntryType::XHeader => read_pax(&record(&mut entry)?, &mut extensions)?,
            EntryType::XGlobalHeader => drop(record(&mut entry)?), // says nothing that is kept here
            _ => {
                let header = header(&entry, std::mem::take(&mut extensions))?;
                visit(header, &mut entry)?;
            }
        }
    }
    Ok(())
}

fn header<R: Read>(entry: &tar::Entry<'_, R>, extensions: Extensions) -> io::Result<Header> {
    let raw = entry.header();
    let path = extensions.path.unwrap_or_else(|| raw.path_bytes().into_owned());
    let link = || match &extensions.link {
        Some(link) => link.clone(),
        None => raw.link_name_bytes().map(|name| name.into_owned()).unwrap_or_default(),
    };
    let kind = match raw.entry_type() {
        EntryType::Regular | EntryType::Continuous if path.ends_with(b"/") => Kind::Directory, // as tar of old wrote it
        EntryType::Regular | EntryType::Continuous => Kind::File,
        EntryType::Directory => Kind::Directory,
        EntryType::Symlink => Kind::Symlink(to_path(link())),
        EntryType::Link => Kind::Hardlink(to_path(link())),
        EntryType::Char | EntryType::Block | EntryType::Fifo => Kind::Special,
        EntryType::GNUSparse => return Err(damaged("it has a sparse file, which images don't")),
        other => {
            return Err(damaged(&format!(
                "it has an entry of the unknown type {:?}",
                other.as_byte() as char
            )));
        }
    };
    let size = raw.entry_size()?;
    if extensions.size.is_some_and(|extended| extended != size) {
        return Err(damaged("an entry has two sizes"));
    }
    let number = |number: io::Result<u64>| number.ok().and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
    Ok(Header {
        path: to_path(path),
        kind,
        mode: raw.mode().unwrap_or(0o644) & 0o7777,
        uid: extensions.uid.unwrap_or_else(|| number(raw.uid())),
        gid: extensions.gid.unwrap_or_else(|| number(raw.gid())),
        modified: raw.mtime().unwrap_or(0),
        size,
        position: entry.raw_file_position(),
    })
}

fn to_path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

fn record<R: Read>(entry: &mut tar::Entry<'_, R>) -> io::Result<Vec<u8>> {
    if entry.header().entry_size()? > LONGEST_RECORD {
        return Err(damaged("it has an extension record that is too long"));
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn long_name<R: Read>(entry: &mut tar::Entry<'_, R>) -> io::Result<Vec<u8>> {
    let mut name = record(entry)?;
    while name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

/// A record is `length key=value\n`, the length counting all of it.
fn read_pax(mut bytes: &[u8], into: &mut Extensions) -> io::Result<()> {
    let wrong = || damaged("it has an extension record that can't be read");
    while !bytes.is_empty() {
        let space = bytes.iter().position(|b| *b == b' ').ok_or_else(wrong)?;
        let (digits, _) = bytes.split_at(space);
        let length: usize =
            std::str::from_utf8(digits).ok().and_then(|d| d.parse().ok()).ok_or_else(wrong)?;
        let body =
            bytes.get(space + 1..length).and_then(|body| body.strip_suffix(b"\n")).ok_or_else(wrong)?;
        let equals = body.iter().position(|b| *b == b'=').ok_or_else(wrong)?;
        let (key, value) = body.split_at(equals);
        let value = value.get(1..).unwrap_or_default();
        let number = || std::str::from_utf8(value).ok().and_then(|v| v.parse::<u64>().ok());
        match key {
            b"path" => into.path = Some(value.to_vec()),
            b"linkpath" => into.link = Some(value.to_vec()),
            b"size" => into.size = Some(number().ok_or_else(wrong)?),
            b"uid" => into.uid = number().and_then(|id| u32::try_from(id).ok()),
            b"gid" => into.gid = number().and_then(|id| u32::try_from(id).ok()),
            _ if key.starts_with(b"GNU.sparse") => {
                return Err(damaged("it has a sparse file, which images don't"));
            }
            _ => {}
        }
        bytes = bytes.get(length..).unwrap_or_default();
    }
    Ok(())
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
