//! The server of names: UDP and TCP, one question each.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::names::{Found, TTL, Zone};
use crate::view::View;
use crate::wire::{self, Code, Reply, Unreadable};

/// The class of all names there are.
const INTERNET: u16 = 1;

/// The longest question that is read over UDP: no honest one comes near.
const LONGEST: usize = 4096;

/// How long others are waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a TCP connection may say nothing.
const IDLE: Duration = Duration::from_secs(10);

/// Questions that are being asked of others, and TCP connections: more than that wait.
const AT_ONCE: usize = 256;

/// What answers are made from.
struct Names {
    zone: Zone,
    upstream: Vec<SocketAddr>,
    view: watch::Receiver<Arc<View>>,
    busy: Semaphore,
}

/// Serves until dropped.
pub(crate) async fn serve(
    address: SocketAddr,
    zone: Zone,
    upstream: Vec<SocketAddr>,
    view: watch::Receiver<Arc<View>>,
) -> io::Result<()> {
    let datagrams = Arc::new(UdpSocket::bind(address).await?);
    let connections = TcpListener::bind(address).await?;
    let names = Arc::new(Names { zone, upstream, view, busy: Semaphore::new(AT_ONCE) });
    tokio::join!(answer_datagrams(datagrams, names.clone()), answer_connections(connections, names));
    Ok(())
}

async fn answer_datagrams(socket: Arc<UdpSocket>, names: Arc<Names>) {
    let mut buffer = vec![0; LONGEST];
    let mut asking = JoinSet::new();
    loop {
        while asking.try_join_next().is_some() {}
        // An error here is about a datagram that was sent before.
        let Ok((length, client)) = socket.recv_from(&mut buffer).await else { continue };
        match names.answer(&buffer[..length], Carrier::Datagram) {
            Answer::Known(answer) => {
                let _ = socket.send_to(&answer, client).await;
            }
            Answer::Ask(refusal) => {
                let (socket, names, question) = (socket.clone(), names.clone(), buffer[..length].to_vec());
                asking.spawn(async move {
                    let _permit = names.busy.acquire().await;
                    let answer = names.ask_by_datagram(&question).await.unwrap_or(refusal);
                    let _ = socket.send_to(&answer, client).await;
                });
            }
            Answer::None => {}
        }
    }
}

async fn answer_connections(listener: TcpListener, names: Arc<Names>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let names = names.clone();
                connections.spawn(async move {
                    let _permit = names.busy.acquire().await;
                    if let Err(error) = names.converse(stream).await {
                        tracing::trace!(%error, "a question about names ended");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "can't accept a question about names");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// What a question came by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carrier {
    Datagram,
    Connection,
}

/// What is to be said to a question.
enum Answer {
    /// This.
    Known(Vec<u8>),
    /// What others say, or this when they say nothing.
    Ask(Vec<u8>),
    /// Nothing: it is no question.
    None,
}

impl Names {
    fn answer(&self, bytes: &[u8], carrier: Carrier) -> Answer {
        let question = match wire::read(bytes) {
            Ok(question) => question,
            Err(Unreadable::Malformed(id)) => return Answer::Known(wire::malformed(id)),
            Err(Unreadable::Noise) => return Answer::None,
        };
        let limit = match carrier {
            Carrier::Datagram => question.limit(),
            Carrier::Connection => usize::from(u16::MAX),
        };
        let (reply, ask) = self.reply(&question);
        let written = reply.write(&question, TTL, limit);
        if ask { Answer::Ask(written) } else { Answer::Known(written) }
    }

    /// What is known here, and whether others know better.
    fn reply(&self, question: &wire::Question<'_>) -> (Reply, bool) {
        let refusal = |code| Reply { code, ..Reply::default() };
        if question.operation != 0 {
            return (refusal(Code::NotImplemented), false);
        }
        if question.class != INTERNET {
            return (refusal(Code::Refused), false);
        }
        let view = self.view.borrow().clone();
        let own = Reply { authoritative: true, ..Reply::default() };
        let authorities = || vec![self.zone.authority()];
        match self.zone.find(&view, &question.name, question.kind, usize::from(question.id)) {
            Found::Records(answers, additionals) => (Reply { answers, additionals, ..own }, false),
            Found::Nothing => (Reply { authorities: authorities(), ..own }, false),
            Found::Unknown => (Reply { code: Code::NoSuchName, authorities: authorities(), ..own }, false),
            // There is nothing outside.
            Found::Elsewhere if self.upstream.is_empty() => (refusal(Code::NoSuchName), false),
            Found::Elsewhere => (refusal(Code::Failed), true),
        }
    }

    /// What others say, one after another until one says something.
    async fn ask_by_datagram(&self, question: &[u8]) -> Option<Vec<u8>> {
        for server in &self.upstream {
            let ask = async {
                let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = UdpSocket::bind(any).await?;
                socket.connect(server).await?;
                socket.send(question).await?;
                let mut answer = vec![0; LONGEST];
                loop {
                    let length = socket.recv(&mut answer).await?;
                    // Somebody who guesses would have to guess the number, too.
                    if answer.get(..2) == question.get(..2) {
                        answer.truncate(length);
                        return io::Result::Ok(answer);
                    }
                }
            };
            if let Ok(Ok(answer)) = timeout(PATIENCE, ask).await {
                return Some(answer);
            }
        }
        None
    }

    async fn ask_by_connection(&self, question: &[u8]) -> Option<Vec<u8>> {
        for server in &self.upstream {
            let ask = async {
                let mut stream = TcpStream::connect(server).await?;
                write_framed(&mut stream, question).await?;
                read_framed(&mut stream).await
            };
            if let Ok(Ok(Some(answer))) = timeout(PATIENCE, ask).await {
                return Some(answer);
            }
        }
        None
    }

    /// Answers the questions of one connection, one after another.
    async fn converse(&self, mut stream: TcpStream) -> io::Result<()> {
        while let Some(question) = timeout(IDLE, read_framed(&mut stream)).await?? {
            let answer = match self.answer(&question, Carrier::Connection) {
                Answer::Known(answer) => answer,
                Answer::Ask(refusal) => self.ask_by_connection(&question).await.unwrap_or(refusal),
                Answer::None => return Ok(()),
            };
            write_framed(&mut stream, &answer).await?;
        }
        Ok(())
    }
}

async fn read_framed(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let length = match stream.read_u16().await {
        Ok(length) => usize::from(length),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Ok(Some(bytes))
}

async fn write_framed(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    let length = u16::try_from(bytes.len()).map_err(|_| io::Error::other("longer than a message can be"))?;
    let mut framed = Vec::with_capacity(bytes.len() + 2);
    framed.extend(length.to_be_bytes());
    framed.extend(bytes);
    stream.write_all(&framed).await
}
