//! What the node, the keeper and the inits say to each other: JSON with a length before it, over Unix sockets,
//! with open files beside it.
//!
//! Both ends are the same program, so there is no versioning; the records that outlive a program are in
//! [`crate::state`]. One connection carries one request and its answers.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::Path;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// At most this many files travel with one message: three standard ones are the most anyone needs.
const FILES: usize = 4;

/// Longer messages are a mistake or an attack; an environment may be large, so this is generous.
const LONGEST: usize = 16 << 20;

fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut frame = length.to_le_bytes().to_vec();
    frame.extend(body);
    Ok(frame)
}

/// Sends as much of a frame as fits now, the files with its first byte.
fn send_some(socket: impl AsFd, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("too many files in one message"));
    }
    Ok(rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL)?)
}

/// What has arrived of the frame under way.
#[derive(Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    files: Vec<OwnedFd>,
}

impl Inbox {
    /// Receives what is there; false at the end of the stream.
    pub fn receive_some(&mut self, socket: impl AsFd) -> io::Result<bool> {
        let mut chunk = [0u8; 16 * 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        // Not past the end of this frame: the files of the next one belong to the next one.
        let wanted = self.missing().min(chunk.len());
        let got = rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut chunk[..wanted])],
            &mut beside,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                self.files.extend(files);
            }
        }
        self.bytes.extend(&chunk[..got.bytes]);
        Ok(got.bytes > 0)
    }

    /// How many bytes the frame still lacks, as far as known.
    fn missing(&self) -> usize {
        match self.bytes.get(..4).and_then(|head| head.try_into().ok()).map(u32::from_le_bytes) {
            Some(length) => (4 + length as usize).saturating_sub(self.bytes.len()),
            None => 4 - self.bytes.len(),
        }
    }

    /// The message, once it is whole.
    pub fn take<T: DeserializeOwned>(&mut self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        if self.bytes.len() < 4 || self.missing() > 0 {
            if self.missing() > LONGEST {
                return Err(io::Error::other("a message is too long"));
            }
            return Ok(None);
        }
        let message = serde_json::from_slice(&self.bytes[4..])?;
        self.bytes.clear();
        Ok(Some((message, std::mem::take(&mut self.files))))
    }
}

/// Sends a message and waits until it is on its way.
pub(crate) fn send(socket: impl AsFd, message: &impl Serialize, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let frame = encode(message)?;
    let mut sent = send_some(&socket, &frame, files)?;
    while sent < frame.len() {
        sent += send_some(&socket, &frame[sent..], &[])?;
    }
    Ok(())
}

/// Receives a message, waiting for it; none at the end of the stream.
pub(crate) fn receive<T: DeserializeOwned>(socket: &BlockingStream) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut inbox = Inbox::default();
    loop {
        if !inbox.receive_some(socket)? {
            return Ok(None);
        }
        if let Some(whole) = inbox.take()? {
            return Ok(Some(whole));
        }
    }
}

/// The node's end of a connection.
pub(crate) struct Line {
    stream: UnixStream,
    inbox: Inbox,
}

impl Line {
    /// Connects and sends the request.
    pub async fn call(path: &Path, request: &impl Serialize, files: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let stream = UnixStream::connect(path).await?;
        let frame = encode(request)?;
        let mut sent = stream.async_io(Interest::WRITABLE, || send_some(&stream, &frame, files)).await?;
        while sent < frame.len() {
            sent += stream.async_io(Interest::WRITABLE, || send_some(&stream, &frame[sent..], &[])).await?;
        }
        Ok(Self { stream, inbox: Inbox::default() })
    }

    /// The next answer; none when the other end is gone. May be dropped and called again.
    pub async fn answer<T: DeserializeOwned>(&mut self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        loop {
            let Self { stream, inbox } = self;
            if !stream.async_io(Interest::READABLE, || inbox.receive_some(&*stream)).await? {
                return Ok(None);
            }
            if let Some(whole) = self.inbox.take()? {
                return Ok(Some(whole));
            }
        }
    }

    /// The bare stream, for what follows the answers.
    pub fn into_stream(self) -> UnixStream {
        self.stream
    }
}
