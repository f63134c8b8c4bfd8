//! Datagrams to Services. Those of one client go to one endpoint for as long as either says something.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::balance::Balancer;
use crate::proxy::Backend;

/// How long a client is remembered that says nothing and is told nothing.
const IDLE: Duration = Duration::from_secs(60);

/// Clients at a time. Each takes a socket; beyond this, datagrams of new ones are lost, as datagrams may be.
const CLIENTS: usize = 1024;

/// The longest datagram there is.
const LONGEST: usize = 65_535;

/// One client's way to its endpoint.
struct Session {
    backend: Backend,
    socket: UdpSocket,
    last: Mutex<Instant>,
}

/// Leads datagrams on, and the answers back.
pub(crate) async fn serve(front: UdpSocket, balancer: Arc<Balancer>) {
    let front = Arc::new(front);
    let mut sessions: HashMap<SocketAddr, Arc<Session>> = HashMap::new();
    let mut answers = JoinSet::new();
    let mut buffer = vec![0; LONGEST];
    loop {
        let received = tokio::select! {
            received = front.recv_from(&mut buffer) => received,
            Some(ended) = answers.join_next() => {
                if let Ok((client, session)) = ended
                    && sessions.get(&client).is_some_and(|own| Arc::ptr_eq(own, &session))
                {
                    sessions.remove(&client);
                }
                continue;
            }
        };
        // An error here is about a datagram that was sent before.
        let Ok((length, client)) = received else { continue };
        let known = sessions.get(&client).filter(|session| balancer.has(&session.backend)).cloned();
        let session = match known {
            Some(session) => session,
            None if sessions.len() >= CLIENTS => continue,
            None => match begin(&balancer, client).await {
                Some(session) => {
                    let session = Arc::new(session);
                    sessions.insert(client, session.clone());
                    answers.spawn(answer(front.clone(), client, session.clone()));
                    session
                }
                None => continue,
            },
        };
        *session.last.lock() = Instant::now();
        if let Err(error) = session.socket.send(&buffer[..length]).await {
            tracing::trace!(%error, "a datagram was lost");
        }
    }
}

async fn begin(balancer: &Balancer, client: SocketAddr) -> Option<Session> {
    for backend in balancer.order(client.ip()) {
        match connect(&backend).await {
            Ok(socket) => {
                balancer.chosen(client.ip(), &backend);
                return Some(Session { backend, socket, last: Mutex::new(Instant::now()) });
            }
            Err(error) => tracing::debug!(?backend, %error, "an endpoint can't be reached"),
        }
    }
    None
}

async fn connect(backend: &Backend) -> io::Result<UdpSocket> {
    let Backend::Address(address) = backend else { return Err(io::ErrorKind::Unsupported.into()) };
    let socket = UdpSocket::bind(("0.0.0.0", 0)).await?;
    socket.connect(address).await?;
    Ok(socket)
}

/// Sends a client what its endpoint says, until neither has said anything for a while.
async fn answer(
    front: Arc<UdpSocket>,
    client: SocketAddr,
    session: Arc<Session>,
) -> (SocketAddr, Arc<Session>) {
    // The answers of most are small, so little is held until one is not.
    let mut buffer = vec![0; 4096];
    loop {
        let until = *session.last.lock() + IDLE;
        match tokio::time::timeout_at(until, session.socket.readable()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => break,
            Err(_) if *session.last.lock() + IDLE > Instant::now() => continue,
            Err(_) => break,
        }
        match receive(&session.socket, &mut buffer).await {
            Ok(length) => {
                *session.last.lock() = Instant::now();
                let _ = front.send_to(&buffer[..length], client).await;
            }
            // Nobody is there: the next datagram finds another.
            Err(_) => break,
        }
    }
    (client, session)
}

/// The next datagram, whole.
async fn receive(socket: &UdpSocket, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let length = socket.peek(buffer).await?;
    if length == buffer.len() {
        buffer.resize(LONGEST, 0);
    }
    socket.recv(buffer).await
}
