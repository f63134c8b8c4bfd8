//! What a layer's bytes go through before they are read as tar: decompression, and a meter that stops a bomb.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Decompresses gzip and Zstandard, told by their first bytes; anything else is passed on as it is.
pub(crate) fn decompressed<'a>(reader: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut reader = BufReader::with_capacity(128 << 10, reader);
    let start = reader.fill_buf()?;
    Ok(if start.starts_with(&[0x1f, 0x8b]) {
        Box::new(MultiGzDecoder::new(reader))
    } else if is_zstd(start) {
        Box::new(Frames { source: reader, decoder: FrameDecoder::new(), within: false })
    } else {
        Box::new(reader)
    })
}

/// Whether these are the first bytes of something compressed.
pub(crate) fn is_compressed(start: &[u8]) -> bool {
    start.starts_with(&[0x1f, 0x8b]) || is_zstd(start)
}

/// A Zstandard frame, or a frame to be skipped that stands before one.
fn is_zstd(start: &[u8]) -> bool {
    match start {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => true,
        [first, 0x2a, 0x4d, 0x18, ..] => first & 0xf0 == 0x50,
        _ => false,
    }
}

/// Zstandard frames one after another, as `zstd` itself and lazily pulled images write them.
struct Frames<R> {
    source: R,
    decoder: FrameDecoder,
    within: bool,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.within {
                while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                    let one = BlockDecodingStrategy::UptoBlocks(1);
                    self.decoder.decode_blocks(&mut self.source, one).map_err(io::Error::other)?;
                }
                let n = self.decoder.read(buffer)?;
                if n > 0 || buffer.is_empty() {
                    return Ok(n);
                }
                self.within = false;
            }
            if self.source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            match self.decoder.init(&mut self.source) {
                Ok(()) => self.within = true,
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    io::copy(&mut (&mut self.source).take(u64::from(length)), &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

/// Lets so many bytes through, and is an error when more come.
pub(crate) struct Metered<'a, R> {
    pub(crate) inner: R,
    pub(crate) left: &'a mut u64,
    pub(crate) allowed: u64,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        match self.left.checked_sub(n as u64) {
            Some(left) => *self.left = left,
            None => {
                return Err(io::Error::new(
                    io::ErrorKind::FileTooLarge,
                    format!("the image holds more than {} bytes", self.allowed),
                ));
            }
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn check(compressed: &[u8], expected: Result<&str, ()>) {
        let answer = decompressed(compressed).and_then(io::read_to_string).map_err(|_| ());
        assert_eq!(answer, expected.map(str::to_owned));
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn gzip_and_zstandard_are_told_by_their_first_bytes() {
        let zstd = |text: &str| compress_to_vec(text.as_bytes(), CompressionLevel::Fastest);
        let skipped = [&[0x51, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"xyz"].concat();
        check(b"plain", Ok("plain"));
        check(b"", Ok(""));
        check(&[gzip("one "), gzip("two")].concat(), Ok("one two"));
        check(&[skipped.clone(), zstd("one "), skipped, zstd("two")].concat(), Ok("one two"));
        check(&gzip("a text that is cut")[..15], Err(()));
        check(&zstd("a text that is cut")[..9], Err(()));
        check(&[0x28, 0xb5, 0x2f, 0xfd], Err(()));
    }

    #[test]
    fn a_meter_stops_what_is_too_much() {
        let mut left = 3;
        let text = io::read_to_string(Metered { inner: &b"abc"[..], left: &mut left, allowed: 3 }).unwrap();
        assert_eq!((text.as_str(), left), ("abc", 0));
        let error =
            io::read_to_string(Metered { inner: &b"d"[..], left: &mut left, allowed: 3 }).unwrap_err();
        assert_eq!(error.to_string(), "the image holds more than 3 bytes");
    }
}
