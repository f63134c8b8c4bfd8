//! An image of an archive, made into a tree.

use std::io::{self, Read};
use std::path::Path;

use crate::archive::{self, Archive, ArchiveError, Image};
use crate::digest::Digesting;
use crate::layer::{self, Budget, LayerError, Limits, Rules};
use crate::progress::{Progress, Report};
use crate::stream::{self, Metered};

/// Applies all layers of `image` to the empty directory `tree`. What comes out is verified against both digests
/// of each layer: of the blob, and of what is unpacked from it. After an error the tree is to be thrown away.
pub(crate) fn unpack(
    archive: &Archive,
    image: &Image,
    tree: &Path,
    limits: &Limits,
    report: Report<'_>,
) -> Result<(), ArchiveError> {
    let mut budget = Budget::new(limits);
    let mut bytes_left = limits.bytes;
    let of = image.layers.len();
    let rules = Rules { whiteouts: true, through_links: false, wanted: &|_| true };
    for (layer, number) in image.layers.iter().zip(1..) {
        report(&Progress::Layer { number, of });
        let wrapped = |error| ArchiveError::Layer { number, of, error };
        let damaged = |error| wrapped(LayerError::Damaged(error));
        let mut compressed = Digesting::new(archive.blob(&layer.blob)?);
        let inner = stream::decompressed(&mut compressed).map_err(damaged)?;
        let mut plain = Digesting::new(Metered { inner, left: &mut bytes_left, allowed: limits.bytes });
        layer::apply(tree, &mut plain, &rules, &mut budget).map_err(wrapped)?;
        drain(&mut plain).map_err(damaged)?; // what stands behind the end of the tar stream belongs to the digest
        let (diff_id, _, rest) = plain.finish();
        drop(rest);
        archive::matches(&format!("what layer {number} unpacks to"), &diff_id, &layer.diff_id)?;
        drain(&mut compressed).map_err(damaged)?;
        let (found, size, _) = compressed.finish();
        if let Some((expected, expected_size)) = &layer.expected {
            archive::matches(&format!("layer {number}"), &found, expected)?;
            let described = |size: u64| format!("{size} bytes");
            archive::matches(&format!("layer {number}"), &described(size), &described(*expected_size))?;
        }
    }
    Ok(())
}

fn drain(reader: &mut impl Read) -> io::Result<()> {
    io::copy(reader, &mut io::sink()).map(drop)
}
