//! The channels of `v4.channel.k8s.io` and `v5.channel.k8s.io`: each message begins with its channel's number.

use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::websocket::Socket;

pub(crate) const STDIN: u8 = 0;
pub(crate) const STDOUT: u8 = 1;
pub(crate) const STDERR: u8 = 2;
pub(crate) const ERROR: u8 = 3;
pub(crate) const RESIZE: u8 = 4;
/// Only in v5: the other side is done with the channel named in the message.
const CLOSE: u8 = 255;

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Data(u8, Vec<u8>),
    Closed(u8),
}

/// What comes.
pub(crate) struct Incoming(SplitStream<Socket>);

/// What goes. Whoever sends shares it.
#[derive(Clone)]
pub(crate) struct Outgoing(std::sync::Arc<tokio::sync::Mutex<SplitSink<Socket, Message>>>);

pub(crate) fn split(socket: Socket) -> (Incoming, Outgoing) {
    let (sink, stream) = socket.split();
    (Incoming(stream), Outgoing(std::sync::Arc::new(tokio::sync::Mutex::new(sink))))
}

impl Incoming {
    /// The next message; none when the other side is gone.
    pub async fn next(&mut self) -> Option<Came> {
        loop {
            let bytes = self.bytes().await?;
            match bytes.split_first() {
                Some((&CLOSE, rest)) => return rest.first().map(|channel| Came::Closed(*channel)),
                Some((channel, rest)) => return Some(Came::Data(*channel, rest.to_vec())),
                None => {}
            }
        }
    }

    /// The next message as it is.
    pub async fn bytes(&mut self) -> Option<Vec<u8>> {
        loop {
            match self.0.next().await? {
                Ok(Message::Binary(bytes)) => return Some(bytes.to_vec()),
                Ok(Message::Text(text)) => return Some(text.as_bytes().to_vec()),
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }
}

impl Outgoing {
    /// Sends to a channel; false when the other side is gone.
    pub async fn send(&self, channel: u8, bytes: &[u8]) -> bool {
        let mut message = Vec::with_capacity(bytes.len() + 1);
        message.push(channel);
        message.extend_from_slice(bytes);
        self.send_bytes(message).await
    }

    /// Sends a message as it is.
    pub async fn send_bytes(&self, message: Vec<u8>) -> bool {
        self.0.lock().await.send(Message::Binary(message.into())).await.is_ok()
    }

    /// Says good-bye, with the code that clients take for a good end.
    pub async fn close(&self) {
        let mut sink = self.0.lock().await;
        let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        let _gone = sink.send(Message::Close(Some(frame))).await;
        let _gone = sink.close().await;
    }
}
