//! SHA-256 over what passes by, written as registries write it: `sha256:` and 64 lower-case hexadecimal digits.

use std::fmt::Write as _;
use std::io::{self, Read, Write};

use ring::digest::{Context, SHA256};

/// The digest of some bytes.
pub(crate) fn of(bytes: &[u8]) -> String {
    written(ring::digest::digest(&SHA256, bytes).as_ref())
}

fn written(digest: &[u8]) -> String {
    digest.iter().fold(String::from("sha256:"), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String can't fail
        text
    })
}

/// The hexadecimal digits of a well-formed SHA-256 digest; nothing for any other string.
pub(crate) fn hex(digest: &str) -> Option<&str> {
    digest
        .strip_prefix("sha256:")
        .filter(|hex| hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
}

/// Digests and counts what is read or written through it.
pub(crate) struct Digesting<T> {
    inner: T,
    context: Context,
    bytes: u64,
}

impl<T> Digesting<T> {
    pub(crate) fn new(inner: T) -> Digesting<T> {
        Digesting { inner, context: Context::new(&SHA256), bytes: 0 }
    }

    /// What came by, how many bytes of it, and what it came from or went to.
    pub(crate) fn finish(self) -> (String, u64, T) {
        (written(self.context.finish().as_ref()), self.bytes, self.inner)
    }

    fn passed(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl<R: Read> Read for Digesting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.passed(buffer.get(..n).unwrap_or_default());
        Ok(n)
    }
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buffer)?;
        self.passed(buffer.get(..n).unwrap_or_default());
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_as_registries_write_it() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(of(b""), empty);
        assert_eq!(hex(empty).map(str::len), Some(64));
        assert_eq!(hex("sha256:../../../../etc/passwd"), None);
        let mut reader = Digesting::new(&b"abc"[..]);
        io::copy(&mut reader, &mut io::sink()).unwrap();
        let (digest, bytes, _) = reader.finish();
        assert_eq!((digest, bytes), (of(b"abc"), 3));
    }
}
