//! The server of names: UDP and TCP, one question each.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::DNSClass;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::names::{Found, Zone};
use crate::view::View;

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
        match names.answer(&buffer[..length]) {
            Answer::Known(mut message) => {
                if let Some(bytes) = fitting(&mut message) {
                    let _ = socket.send_to(&bytes, client).await;
                }
            }
            Answer::Ask(refusal) => {
                let (socket, names, question) = (socket.clone(), names.clone(), buffer[..length].to_vec());
                asking.spawn(async move {
                    let _permit = names.busy.acquire().await;
                    let answer = names.ask_by_datagram(&question).await.or_else(|| refusal.to_vec().ok());
                    if let Some(answer) = answer {
                        let _ = socket.send_to(&answer, client).await;
                    }
                });
            }
            Answer::None => {}
        }
    }
}

/// A message that fits into a datagram that the client takes: cut off, where it would not.
fn fitting(message: &mut Message) -> Option<Vec<u8>> {
    let bytes = message.to_vec().ok()?;
    if bytes.len() <= usize::from(message.max_payload().max(512)) {
        return Some(bytes);
    }
    message.truncate().to_vec().ok()
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

/// What is to be said to a question.
enum Answer {
    /// This.
    Known(Message),
    /// What others say, or this when they say nothing.
    Ask(Message),
    /// Nothing: it is no question.
    None,
}

impl Names {
    fn answer(&self, question: &[u8]) -> Answer {
        let Ok(asked) = Message::from_vec(question) else {
            return match question {
                // Bit 7 of the third byte tells an answer from a question.
                [high, low, flags, ..] if flags & 0x80 == 0 => Answer::Known(Message::error_msg(
                    u16::from_be_bytes([*high, *low]),
                    OpCode::Query,
                    ResponseCode::FormErr,
                )),
                _ => Answer::None,
            };
        };
        if asked.metadata.message_type != MessageType::Query {
            return Answer::None;
        }
        let mut answer = Message::response(asked.metadata.id, asked.metadata.op_code);
        answer.metadata.recursion_desired = asked.metadata.recursion_desired;
        answer.metadata.recursion_available = true;
        answer.add_queries(asked.queries.iter().cloned());
        if asked.edns.is_some() {
            let mut edns = Edns::new();
            edns.set_max_payload(asked.max_payload().clamp(512, 4096));
            answer.set_edns(edns);
        }
        let [query] = asked.queries.as_slice() else {
            answer.metadata.response_code = ResponseCode::FormErr;
            return Answer::Known(answer);
        };
        if asked.metadata.op_code != OpCode::Query {
            answer.metadata.response_code = ResponseCode::NotImp;
            return Answer::Known(answer);
        }
        if query.query_class != DNSClass::IN {
            answer.metadata.response_code = ResponseCode::Refused;
            return Answer::Known(answer);
        }
        let view = self.view.borrow().clone();
        answer.metadata.authoritative = true;
        match self.zone.find(&view, &query.name, query.query_type, usize::from(asked.metadata.id)) {
            Found::Records(answers, more) => {
                answer.add_answers(answers);
                answer.add_additionals(more);
            }
            Found::Nothing => {
                answer.add_authorities(self.zone.authority());
            }
            Found::Unknown => {
                answer.metadata.response_code = ResponseCode::NXDomain;
                answer.add_authorities(self.zone.authority());
            }
            Found::Elsewhere if self.upstream.is_empty() => {
                // There is nothing outside.
                answer.metadata.authoritative = false;
                answer.metadata.response_code = ResponseCode::NXDomain;
            }
            Found::Elsewhere => {
                answer.metadata.authoritative = false;
                answer.metadata.response_code = ResponseCode::ServFail;
                return Answer::Ask(answer);
            }
        }
        Answer::Known(answer)
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
            let bytes = match self.answer(&question) {
                Answer::Known(answer) => answer.to_vec().ok(),
                Answer::Ask(refusal) => {
                    self.ask_by_connection(&question).await.or_else(|| refusal.to_vec().ok())
                }
                Answer::None => return Ok(()),
            };
            match bytes {
                Some(bytes) => write_framed(&mut stream, &bytes).await?,
                None => return Ok(()),
            }
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
