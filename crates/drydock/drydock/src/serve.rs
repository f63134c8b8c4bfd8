//! The API over TLS, on a listener that somebody opened; or as one user, on a socket that only that user opens.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use drydock_access::Identity;
use drydock_api::Caller;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;

use crate::link::Link;

/// Who takes longer to shake hands is not served.
const PATIENCE: Duration = Duration::from_secs(10);
/// Who says nothing for so long is hung up on. Longer than clients keep an idle connection for later, so that it
/// is they who close it, and not we while they send.
const IDLE: Duration = Duration::from_secs(180);
/// Requests at a time on one HTTP/2 connection; each watch is one.
const STREAMS: u32 = 1000;
/// After a failure to accept, which is most often a lack of descriptors: time for some to come back.
const BREATH: Duration = Duration::from_millis(50);

/// Where connections come in.
pub(crate) trait Listener: Send + 'static {
    /// What a connection is.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// The next connection.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// Looks whether TLS is spoken before TLS is, where one can look.
    fn greet(stream: &mut Self::Stream) -> impl Future<Output = io::Result<()>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        self.accept().await.map(|(stream, _)| stream)
    }

    async fn greet(socket: &mut TcpStream) -> io::Result<()> {
        // Small answers, each awaited: nothing is gained by collecting them.
        socket.set_nodelay(true)?;
        let mut first = [0];
        if socket.peek(&mut first).await? == 1 && first[0] != HANDSHAKE {
            socket.write_all(NOT_TLS).await?;
            socket.shutdown().await?;
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the client does not speak TLS"));
        }
        Ok(())
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        self.accept().await.map(|(stream, _)| stream)
    }

    async fn greet(_: &mut UnixStream) -> io::Result<()> {
        Ok(())
    }
}

/// Serves over TLS until the link stops.
pub(crate) async fn serve<L: Listener>(link: Link, listener: L, tls: Arc<ServerConfig>) {
    let acceptor = TlsAcceptor::from(tls);
    while let Some(stream) = accept(&link, &listener).await {
        link.tasks.spawn(encrypted::<L>(link.clone(), stream, acceptor.clone()));
    }
}

/// Serves as one user, without TLS, until the link stops.
pub(crate) async fn serve_as(link: Link, listener: UnixListener, identity: Arc<Identity>) {
    while let Some(stream) = accept(&link, &listener).await {
        let caller = Caller::Trusted((*identity).clone());
        link.tasks.spawn(connection(link.clone(), stream, caller));
    }
}

/// The next connection; none when the link stops.
async fn accept<L: Listener>(link: &Link, listener: &L) -> Option<L::Stream> {
    loop {
        let accepted = tokio::select! {
            () = link.stopping.cancelled() => return None,
            accepted = listener.next() => accepted,
        };
        match accepted {
            Ok(stream) => return Some(stream),
            Err(error) => {
                tracing::warn!(%error, "can't accept a connection");
                tokio::time::sleep(BREATH).await;
            }
        }
    }
}

/// What the first byte of a TLS connection is.
const HANDSHAKE: u8 = 22;
/// What the real server says to who forgot the `s`.
const NOT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

async fn encrypted<L: Listener>(link: Link, mut stream: L::Stream, acceptor: TlsAcceptor) {
    let handshake = async {
        L::greet(&mut stream).await?;
        acceptor.accept(stream).await
    };
    let accepted = tokio::select! {
        () = link.stopping.cancelled() => return,
        accepted = tokio::time::timeout(PATIENCE, handshake) => accepted,
    };
    match accepted {
        Ok(Ok(stream)) => connection(link, stream, Caller::Bearer).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn connection<S>(link: Link, stream: S, caller: Caller)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(Duration::from_secs(30));
    let service = service_fn(|request| {
        let (link, caller) = (link.clone(), caller.clone());
        async move { link.answer(request, caller).await }
    });
    link.drive(builder.serve_connection_with_upgrades(TokioIo::new(stream), service)).await;
}
