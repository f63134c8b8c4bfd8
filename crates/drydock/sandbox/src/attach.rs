//! What a container writes, as it is passed on to those who attached: the output's number, a length, the bytes; and
//! a zero at the end.
//!
//! **What always holds.** One who reads slowly gets everything. While it has not taken what was read, no more is read,
//! so that the container waits for it, and what is kept for it stays small. One who is gone keeps nobody waiting. What
//! a container wrote before its end is not lost with its init: what nobody has taken by then is left in a file in
//! memory that the other side has open. Where the zero is missing, something was cut off.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream as BlockingStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::MemfdFlags;
use tokio::io::{AsyncRead, AsyncReadExt, Chain, ReadBuf};
use tokio::net::UnixStream;

use crate::log::Output;

/// In place of an output's number: that was all.
const ALL: u8 = 0;

/// One who attached, on the side of the container's init.
pub(crate) struct Listener {
    stream: BlockingStream,
    /// What the stream has had no room for.
    waiting: Vec<u8>,
    rest: File,
}

/// Where the other side finds, in the end, what its stream had no room for.
pub(crate) fn rest() -> io::Result<OwnedFd> {
    Ok(rustix::fs::memfd_create(c"attached", MemfdFlags::CLOEXEC)?)
}

impl Listener {
    pub fn new(stream: BlockingStream, rest: OwnedFd) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, waiting: Vec::new(), rest: rest.into() })
    }

    /// Whether it has yet to take what was said before.
    pub fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// What to poll for: when it can take more, or is gone.
    pub fn polled(&self) -> PollFd<'_> {
        PollFd::new(&self.stream, if self.is_behind() { PollFlags::OUT } else { PollFlags::empty() })
    }

    /// Has a piece for it.
    pub fn say(&mut self, output: Output, bytes: &[u8]) {
        self.waiting.push(if output == Output::Out { 1 } else { 2 });
        self.waiting.extend(u32::try_from(bytes.len()).unwrap_or(0).to_le_bytes());
        self.waiting.extend(bytes);
    }

    /// Passes on what it can take now; false when it is gone.
    pub fn pass_on(&mut self) -> bool {
        let mut sent = 0;
        let there = loop {
            if sent == self.waiting.len() {
                break self.is_there();
            }
            match (&self.stream).write(&self.waiting[sent..]) {
                Ok(length) => sent += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break false,
            }
        };
        self.waiting.drain(..sent);
        there
    }

    /// It says nothing, until it is gone.
    fn is_there(&self) -> bool {
        match (&self.stream).read(&mut [0]) {
            Ok(length) => length > 0,
            Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        }
    }

    /// Says that this was all, however slowly it is heard.
    pub fn finish(mut self) {
        self.waiting.push(ALL);
        if self.pass_on() {
            // Without it the other side misses the end, and says so.
            let _no_memory = self.rest.write_all_at(&self.waiting, 0);
        }
    }
}

/// What an init passes on, on the side of the one who attached.
pub(crate) struct Pieces(Chain<UnixStream, Rest>);

impl Pieces {
    /// From the stream and, after its end, from the file that came with it.
    pub fn new(stream: UnixStream, rest: OwnedFd) -> Self {
        Self(stream.chain(Rest(rest.into())))
    }

    /// Whether a piece came from standard error, and the piece; none at the end.
    ///
    /// # Errors
    ///
    /// When it breaks off before the end.
    pub async fn next(&mut self) -> io::Result<Option<(bool, Vec<u8>)>> {
        self.read().await.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "its output broke off"),
            _ => error,
        })
    }

    async fn read(&mut self) -> io::Result<Option<(bool, Vec<u8>)>> {
        let output = self.0.read_u8().await?;
        if output == ALL {
            return Ok(None);
        }
        let length = self.0.read_u32_le().await?;
        let mut bytes = vec![0; length as usize];
        self.0.read_exact(&mut bytes).await?;
        Ok(Some((output == 2, bytes)))
    }
}

/// A file in memory: to read it is to copy.
struct Rest(File);

impl AsyncRead for Rest {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let length = (&self.0).read(buffer.initialize_unfilled())?;
        buffer.advance(length);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Listener, BlockingStream, OwnedFd) {
        let (near, far) = BlockingStream::pair().unwrap();
        let rest = rest().unwrap();
        (Listener::new(near, rest.try_clone().unwrap()).unwrap(), far, rest)
    }

    async fn heard(far: BlockingStream, rest: OwnedFd) -> io::Result<Vec<(bool, Vec<u8>)>> {
        far.set_nonblocking(true).unwrap();
        let mut pieces = Pieces::new(UnixStream::from_std(far).unwrap(), rest);
        let mut all = Vec::new();
        while let Some(piece) = pieces.next().await? {
            all.push(piece);
        }
        Ok(all)
    }

    /// Says pieces until the stream is full.
    fn fill(listener: &mut Listener) -> Vec<(bool, Vec<u8>)> {
        let mut said = Vec::new();
        while !listener.is_behind() {
            let bytes = vec![u8::try_from(said.len() % 251).unwrap(); 16 * 1024];
            listener.say(Output::Err, &bytes);
            said.push((true, bytes));
            assert!(listener.pass_on());
        }
        said
    }

    #[tokio::test]
    async fn one_who_reads_only_after_the_end_hears_everything() {
        let (mut listener, far, rest) = pair();
        let mut said = fill(&mut listener);
        listener.say(Output::Out, b"last words");
        said.push((false, b"last words".to_vec()));
        listener.finish();
        assert!(heard(far, rest).await.unwrap() == said);
    }

    #[tokio::test]
    async fn what_is_cut_off_is_no_end() {
        for full in [false, true] {
            let (mut listener, far, rest) = pair();
            listener.say(Output::Out, b"and then");
            assert!(listener.pass_on());
            if full {
                fill(&mut listener);
            }
            drop(listener);
            assert_eq!(heard(far, rest).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{full}");
        }
    }

    #[test]
    fn one_who_is_gone_is_missed() {
        for full in [false, true] {
            let (mut listener, far, _) = pair();
            if full {
                fill(&mut listener);
            }
            assert!(listener.pass_on());
            drop(far);
            let polled = &mut [listener.polled()];
            assert_eq!(rustix::event::poll(polled, None), Ok(1));
            assert!(!listener.pass_on());
        }
    }
}
