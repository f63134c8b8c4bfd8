//! Turning a request into a WebSocket.

use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::{Body, Refusal, full};

pub(crate) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Agrees on one of the protocols, the best first, and gives the answer together with the socket to come.
pub(crate) fn accept(
    mut request: Request<Incoming>,
    protocols: &[&'static str],
) -> Result<(Response<Body>, &'static str, impl Future<Output = Option<Socket>> + Send + 'static), Refusal> {
    let headers = request.headers();
    let is = |name, word: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
    };
    if !is(header::UPGRADE, "websocket") || !is(header::CONNECTION, "upgrade") {
        return Err(Refusal::bad("Upgrade request required"));
    }
    let key =
        headers.get(header::SEC_WEBSOCKET_KEY).ok_or_else(|| Refusal::bad("Sec-WebSocket-Key is missing"))?;
    let accept = derive_accept_key(key.as_bytes());
    let asked: Vec<&str> = headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .collect();
    let Some(protocol) = protocols.iter().copied().find(|known| asked.contains(known)) else {
        let message =
            format!("unable to negotiate protocol: client supports {asked:?}, server accepts {protocols:?}");
        return Err(Refusal(StatusCode::FORBIDDEN, message));
    };
    let upgraded = hyper::upgrade::on(&mut request);
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    if let Ok(accept) = HeaderValue::from_str(&accept) {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    let socket = async move {
        match upgraded.await {
            Ok(upgraded) => {
                Some(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await)
            }
            Err(error) => {
                tracing::debug!(%error, "a connection was not upgraded");
                None
            }
        }
    };
    Ok((response, protocol, socket))
}
