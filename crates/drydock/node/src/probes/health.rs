//! The health of a program that speaks gRPC, by gRPC's own protocol for it: `grpc.health.v1.Health/Check`.
//!
//! In the clear, as a kubelet asks, and with its words for what goes wrong. The two messages have one field each, so
//! they are written and read here by hand.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::SignedDuration;
use percent_encoding::percent_decode_str;

use super::ask::{Bad, Target, dial};
use crate::pods::backoff::seconds;

/// Before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// How long a message may be; what gRPC takes where nothing else is said.
const LARGEST: usize = 4 << 20;
/// The first field of either message: a text in the question, a number in the answer.
const QUESTION: u8 = 0x0a;
const ANSWER: u8 = 0x08;

/// gRPC's codes by number, as Go names them.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];
const UNKNOWN: usize = 2;
const RESOURCE_EXHAUSTED: usize = 8;
const UNIMPLEMENTED: usize = 12;

/// Asks a service of a program, or with no name the program as a whole, whether it serves.
pub(super) async fn check(
    target: &Target,
    address: SocketAddr,
    service: &str,
    timeout: Duration,
) -> Result<(), Bad> {
    let within = seconds(SignedDuration::try_from(timeout).unwrap_or(SignedDuration::MAX));
    // A kubelet goes on trying to connect until its time is over; here the next question tries.
    let unconnected = || {
        format!("timeout: failed to connect service \"{address}\" within {within}: context deadline exceeded")
    };
    let asking = async {
        let stream = dial(target, address, timeout).await.map_err(|bad| match bad {
            Bad::Failed(_) => Bad::Failed(unconnected()),
            unasked @ Bad::Unasked(_) => unasked,
        })?;
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .map_err(|_| unconnected())?;
        let connection = tokio::spawn(connection);
        let request = http::Request::post(format!("http://{address}/grpc.health.v1.Health/Check"))
            .header("content-type", "application/grpc")
            .header("user-agent", "kube-probe/1.34")
            .header("te", "trailers")
            .body(Full::new(question(service)))
            .map_err(|error| error.to_string())?;
        // Who does not speak the protocol is not connected to.
        let answered = match sender.send_request(request).await {
            Ok(answer) => {
                let (head, body) = answer.into_parts();
                read(body).await.map(|body| (head, body)).map_err(|words| words.unwrap_or_else(unconnected))
            }
            Err(_) => Err(unconnected()),
        };
        connection.abort();
        let (head, (body, trailers)) = answered?;
        Ok(judge(head.status, &head.headers, trailers.as_ref(), &body)?)
    };
    match tokio::time::timeout(timeout, asking).await {
        Ok(answer) => answer,
        Err(_) => Err(Bad::Failed(format!("timeout: health rpc did not complete within {within}"))),
    }
}

fn question(service: &str) -> Bytes {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(QUESTION);
        let mut length = service.len();
        while length > 0x7f {
            message.push(u8::try_from(length & 0x7f).unwrap_or_default() | 0x80);
            length >>= 7;
        }
        message.push(u8::try_from(length).unwrap_or_default());
        message.extend(service.as_bytes());
    }
    let mut framed = vec![0];
    framed.extend(u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    framed.extend(message);
    framed.into()
}

/// Reads an answer to its end, as long as it is no longer than one may be.
///
/// # Errors
/// What is said of one that is longer; nothing of one that breaks off.
async fn read<B>(body: B) -> Result<(Vec<u8>, Option<HeaderMap>), Option<String>>
where
    B: Body<Data = Bytes>,
{
    let (mut body, mut message, mut trailers) = (std::pin::pin!(body), Vec::new(), None);
    while let Some(frame) = body.frame().await {
        match frame.map_err(|_| None)?.into_data() {
            Ok(data) => message.extend_from_slice(&data),
            Err(other) => trailers = other.into_trailers().ok(),
        }
        if message.len() > PREFIX + LARGEST {
            return Err(Some(too_long(&message)));
        }
    }
    Ok((message, trailers))
}

fn too_long(message: &[u8]) -> String {
    let said = message.get(1..PREFIX).and_then(|length| length.try_into().ok()).map(u32::from_be_bytes);
    let said = said.and_then(|length| usize::try_from(length).ok()).filter(|length| *length > LARGEST);
    let length = said.unwrap_or(message.len() - PREFIX);
    failed(RESOURCE_EXHAUSTED, &format!("grpc: received message larger than max ({length} vs. {LARGEST})"))
}

/// What is said of a call that failed.
fn failed(code: usize, message: &str) -> String {
    let name = CODES.get(code).map_or_else(|| format!("Code({code})"), |name| (*name).to_owned());
    format!("error: health rpc probe failed: rpc error: code = {name} desc = {message}")
}

/// What an answer means. A failed call has its code in the trailers, or, without a message, in the headers.
fn judge(
    status: StatusCode,
    headers: &HeaderMap,
    trailers: Option<&HeaderMap>,
    body: &[u8],
) -> Result<(), String> {
    let said = |name: &str| {
        let found = trailers.and_then(|trailers| trailers.get(name)).or_else(|| headers.get(name));
        found.and_then(|value| value.to_str().ok())
    };
    let (code, message) = if status == StatusCode::OK {
        let code = said("grpc-status").and_then(|code| code.parse().ok()).unwrap_or(UNKNOWN);
        let message = said("grpc-message").unwrap_or_default();
        (code, percent_decode_str(message).decode_utf8_lossy())
    } else {
        let code = if status == StatusCode::NOT_FOUND { UNIMPLEMENTED } else { UNKNOWN };
        let words = status.canonical_reason().unwrap_or_default();
        let status = status.as_u16();
        (code, Cow::Owned(format!("unexpected HTTP status code received from server: {status} ({words})")))
    };
    match code {
        0 => {}
        UNIMPLEMENTED => {
            return Err(format!(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
            ));
        }
        _ => return Err(failed(code, &message)),
    }
    // A field that is not there is zero.
    let serving = match body.get(PREFIX..) {
        Some([ANSWER, status, ..]) => *status,
        _ => 0,
    };
    let name = match serving {
        1 => return Ok(()),
        0 => "UNKNOWN".to_owned(),
        2 => "NOT_SERVING".to_owned(),
        3 => "SERVICE_UNKNOWN".to_owned(),
        other => other.to_string(),
    };
    Err(format!("service unhealthy (responded with {name:?})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, headers: &[(&'static str, &str)], body: &[u8], expected: &str) {
        let fields = headers.iter().map(|(name, value)| {
            (http::HeaderName::from_static(name), value.parse::<http::HeaderValue>().unwrap())
        });
        let fields: HeaderMap = fields.collect();
        let status = StatusCode::from_u16(status).unwrap();
        // Both are read, wherever the server writes it.
        for (headers, trailers) in [(&fields, None), (&HeaderMap::new(), Some(&fields))] {
            let judged = judge(status, headers, trailers, body);
            assert_eq!(judged.err().unwrap_or_default(), expected);
        }
    }

    #[test]
    fn an_answer_means_what_it_means_to_a_kubelet() {
        let fine = [("grpc-status", "0")];
        check(200, &fine, &[0, 0, 0, 0, 2, 8, 1], "");
        check(200, &fine, &[0, 0, 0, 0, 2, 8, 2], r#"service unhealthy (responded with "NOT_SERVING")"#);
        check(200, &fine, &[0, 0, 0, 0, 0], r#"service unhealthy (responded with "UNKNOWN")"#);
        check(
            200,
            &[("grpc-status", "5"), ("grpc-message", "unknown%20service")],
            b"",
            "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service",
        );
        let none = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): ";
        check(200, &[("grpc-status", "12"), ("grpc-message", "no such")], b"", &format!("{none}no such"));
        let other = "unexpected HTTP status code received from server: 404 (Not Found)";
        check(404, &[], b"", &format!("{none}{other}"));
    }

    #[tokio::test]
    async fn an_answer_without_an_end_is_not_read_to_it() {
        let check = async |prefix: [u8; PREFIX], pieces: usize, expected: Result<usize, &str>| {
            let piece = || Bytes::from(vec![0; LARGEST / 64]);
            let pieces = std::iter::once(Bytes::from(prefix.to_vec())).chain((0..pieces).map(|_| piece()));
            let frames = pieces.map(|data| Ok::<_, std::io::Error>(hyper::body::Frame::data(data)));
            let answer = read(http_body_util::StreamBody::new(futures::stream::iter(frames))).await;
            let length = answer.map(|(message, _)| message.len()).map_err(Option::unwrap_or_default);
            assert_eq!(length.as_ref().map_err(String::as_str), expected.as_ref().map_err(|text| *text));
        };
        check([0, 0, 64, 0, 0], 64, Ok(PREFIX + LARGEST)).await;
        let said = "error: health rpc probe failed: rpc error: code = ResourceExhausted desc = grpc: received message larger \
                    than max (5242880 vs. 4194304)";
        check([0, 0, 80, 0, 0], 80, Err(said)).await;
        // One that says less than it has, for some sixteen times as much.
        let found = "error: health rpc probe failed: rpc error: code = ResourceExhausted desc = grpc: received message larger \
                     than max (4259840 vs. 4194304)";
        check([0, 0, 0, 0, 2], 1000, Err(found)).await;
    }

    #[test]
    fn a_question_names_its_service() {
        assert_eq!(question("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(question("ab")[..], [0, 0, 0, 0, 4, 10, 2, b'a', b'b']);
        assert_eq!(question(&"x".repeat(300))[..8], [0, 0, 0, 1, 47, 10, 0xac, 2]);
    }
}
