//! The way to a pod through the API: from wherever kubectl works, a connection works too.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::{Sink, SinkExt as _, Stream, StreamExt as _, future::BoxFuture};
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, Resource as _, core::Request};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::{Connection, DialError, Dialer, Place};

/// The most that goes into one message: as much as nodes put into theirs.
const LARGEST: usize = 32 << 10;

/// Goes by `pods/portforward`, for whoever is outside of the cluster's network. By name, never by address: seen from
/// elsewhere a pod's address is nobody's, or somebody else's.
///
/// The node takes a connection before it knows whether anybody listens. So a refusal comes when the connection is
/// used: as [`ConnectionRefused`](io::ErrorKind::ConnectionRefused). An end that the way itself came to is
/// [`NetworkDown`](io::ErrorKind::NetworkDown); only one that the pod's server made is an end of the stream.
///
/// There is no half of an end: what shuts down its side of such a connection goes on to hear the other.
#[derive(Clone)]
pub struct PortForward {
    client: Client,
}

impl PortForward {
    /// As the one whom this client is, who must be allowed `get` and `create` of `pods/portforward`.
    pub fn new(client: Client) -> Self {
        PortForward { client }
    }
}

impl Dialer for PortForward {
    fn dial<'a>(&'a self, to: &'a Place) -> BoxFuture<'a, Result<Connection, DialError>> {
        Box::pin(async move {
            let pods = Request::new(Pod::url_path(&(), Some(&to.namespace)));
            let request = pods.portforward(&to.pod, &[to.port]).map_err(|error| lost(error.to_string()))?;
            let upgraded = self.client.connect(request).await.map_err(|error| match error {
                // The server's own words.
                kube::Error::Api(status) if !status.message.is_empty() => lost(status.message),
                error => lost(said(&error)),
            })?;
            Ok(Box::new(Forwarded::new(upgraded.into_stream(), to.port)) as Connection)
        })
    }
}

fn lost(why: String) -> DialError {
    DialError::NoWay(io::Error::other(why))
}

/// An error with everything that it came from, each said once.
fn said(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

/// A connection that is forwarded, in the messages of a WebSocket. Each begins with the number of its channel: one is
/// for data, the other for what went wrong. The first on each has the port's number.
struct Forwarded<S> {
    socket: S,
    port: u16,
    begun: [bool; 2],
    /// What came and was not read yet.
    heard: Vec<u8>,
    end: Option<End>,
}

const DATA: u8 = 0;
const AMISS: u8 = 1;

/// How a connection ended.
enum End {
    /// The pod's server made it.
    HungUp,
    /// It never began, or the way is gone.
    By(io::ErrorKind, String),
}

impl End {
    fn said(text: String) -> Self {
        let refused = text.to_lowercase().contains("connection refused");
        let kind = if refused { io::ErrorKind::ConnectionRefused } else { io::ErrorKind::NetworkDown };
        End::By(kind, text)
    }

    fn cut() -> Self {
        End::By(io::ErrorKind::NetworkDown, "the forwarding was cut off".to_owned())
    }

    fn nonsense() -> Self {
        End::By(io::ErrorKind::NetworkDown, "what forwards the port is not understood".to_owned())
    }

    fn for_reader(&self) -> io::Result<()> {
        match self {
            End::HungUp => Ok(()),
            End::By(kind, why) => Err(io::Error::new(*kind, why.clone())),
        }
    }

    fn for_writer(&self) -> io::Error {
        self.for_reader().err().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl<S> Forwarded<S>
where
    S: Stream<Item = Result<Message, Error>> + Sink<Message, Error = Error> + Unpin,
{
    fn new(socket: S, port: u16) -> Self {
        Forwarded { socket, port, begun: [false; 2], heard: Vec::new(), end: None }
    }

    /// Takes the next message.
    fn poll_hear(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match ready!(self.socket.poll_next_unpin(context)) {
            Some(Ok(Message::Binary(bytes))) => {
                if let Some((&channel, rest)) = bytes.split_first() {
                    self.hear(channel, rest);
                }
            }
            Some(Ok(Message::Close(_))) => self.end = Some(End::HungUp),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => self.end = Some(End::cut()),
        }
        Poll::Ready(())
    }

    fn hear(&mut self, channel: u8, bytes: &[u8]) {
        match self.begun.get_mut(usize::from(channel)) {
            Some(begun) if !*begun => {
                *begun = true;
                if bytes != self.port.to_le_bytes() {
                    self.end = Some(End::nonsense());
                }
            }
            Some(_) if channel == DATA => self.heard.extend_from_slice(bytes),
            Some(_) if channel == AMISS => {
                self.end = Some(End::said(String::from_utf8_lossy(bytes).into_owned()));
            }
            _ => self.end = Some(End::nonsense()),
        }
    }

    /// Why nothing can be said any more. What was heard before stays to be read.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            if let Some(end) = &self.end {
                return Poll::Ready(end.for_writer());
            }
            ready!(self.poll_hear(context));
        }
    }
}

impl<S> AsyncRead for Forwarded<S>
where
    S: Stream<Item = Result<Message, Error>> + Sink<Message, Error = Error> + Unpin,
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if !self.heard.is_empty() {
                let count = self.heard.len().min(buffer.remaining());
                buffer.put_slice(&self.heard[..count]);
                self.heard.drain(..count);
                return Poll::Ready(Ok(()));
            }
            if let Some(end) = &self.end {
                return Poll::Ready(end.for_reader());
            }
            ready!(self.poll_hear(context));
        }
    }
}

impl<S> AsyncWrite for Forwarded<S>
where
    S: Stream<Item = Result<Message, Error>> + Sink<Message, Error = Error> + Unpin,
{
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let part = &bytes[..bytes.len().min(LARGEST)];
        let message = Message::binary([&[DATA], part].concat());
        let ready = ready!(self.socket.poll_ready_unpin(context));
        match ready.and_then(|()| self.socket.start_send_unpin(message)) {
            Ok(()) => Poll::Ready(Ok(part.len())),
            Err(_) => self.poll_end(context).map(Err),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(self.socket.poll_flush_unpin(context)) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(_) => self.poll_end(context).map(Err),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}
