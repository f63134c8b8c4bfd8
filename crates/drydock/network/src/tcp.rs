//! Connections to Services.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use drydock_splice::splice;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_util::sync::CancellationToken;

use crate::balance::Balancer;
use crate::proxy::Backend;

/// How long an endpoint is waited for before the next is tried. A pod on this machine answers within
/// milliseconds, also when its program is busy: it is the kernel that does.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long to wait when the system has no more descriptors.
const BREATH: Duration = Duration::from_millis(50);

/// Leads connections on. Those that are led stay when this ends, until `stop`.
pub(crate) async fn serve(listener: TcpListener, balancer: Arc<Balancer>, stop: CancellationToken) {
    loop {
        match listener.accept().await {
            Ok((client, peer)) => {
                let (balancer, stop) = (balancer.clone(), stop.clone());
                tokio::spawn(
                    async move { stop.run_until_cancelled(lead(client, peer.ip(), balancer)).await },
                );
            }
            Err(error) => {
                tracing::warn!(%error, "can't accept a connection to a service");
                tokio::time::sleep(BREATH).await;
            }
        }
    }
}

async fn lead(client: TcpStream, peer: IpAddr, balancer: Arc<Balancer>) {
    // Small requests, each awaited: nothing is gained by collecting them.
    let _ = client.set_nodelay(true);
    for backend in balancer.order(peer) {
        match connect(&backend).await {
            Ok(server) => {
                balancer.chosen(peer, &backend);
                return splice(client, server).await;
            }
            Err(error) => tracing::debug!(?backend, %error, "an endpoint can't be reached"),
        }
    }
}

/// A connection to an endpoint.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

async fn connect(backend: &Backend) -> io::Result<Box<dyn Stream>> {
    let connecting = async {
        Ok(match backend {
            Backend::Address(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Box::new(stream) as Box<dyn Stream>
            }
            Backend::Socket(path) => Box::new(UnixStream::connect(path).await?),
        })
    };
    tokio::time::timeout(PATIENCE, connecting).await?
}
