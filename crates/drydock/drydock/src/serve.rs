//! The API over TLS, on a listener that somebody opened.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use drydock_api::Caller;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

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

/// Serves until the link stops.
pub(crate) async fn serve(link: Link, listener: TcpListener, tls: Arc<ServerConfig>) {
    let acceptor = TlsAcceptor::from(tls);
    loop {
        let accepted = tokio::select! {
            () = link.stopping.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, _)) => {
                link.tasks.spawn(connection(link.clone(), socket, acceptor.clone()));
            }
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

async fn handshake(mut socket: TcpStream, acceptor: TlsAcceptor) -> io::Result<TlsStream<TcpStream>> {
    // Small answers, each awaited: nothing is gained by collecting them.
    socket.set_nodelay(true)?;
    let mut first = [0];
    if socket.peek(&mut first).await? == 1 && first[0] != HANDSHAKE {
        socket.write_all(NOT_TLS).await?;
        socket.shutdown().await?;
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the client does not speak TLS"));
    }
    acceptor.accept(socket).await
}

async fn connection(link: Link, socket: TcpStream, acceptor: TlsAcceptor) {
    let accepted = tokio::select! {
        () = link.stopping.cancelled() => return,
        accepted = tokio::time::timeout(PATIENCE, handshake(socket, acceptor)) => accepted,
    };
    let stream = match accepted {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => return tracing::debug!("a TLS handshake took too long"),
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(Duration::from_secs(30));
    let service = service_fn(|request| {
        let link = link.clone();
        async move { link.answer(request, Caller::Bearer).await }
    });
    link.drive(builder.serve_connection_with_upgrades(TokioIo::new(stream), service)).await;
}
