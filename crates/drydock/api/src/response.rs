//! Answers: their bodies, their headers, their compression.

use std::{
    convert::Infallible,
    io::Write as _,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::Stream;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header};
use http_body::{Body, Frame, SizeHint};
use serde_json::Value;

use crate::{
    accept::{Accept, Format},
    call,
    failure::Failure,
};

/// Bodies of at least this size are compressed for clients that ask for it; the real server uses
/// the same threshold, below which compression costs more than it saves.
const COMPRESS_FROM: usize = 128 * 1024;

/// The connection is to be cut here: no more bytes, no proper end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection was cut")]
pub struct Cut;

/// The body of an answer: whole, or a stream that goes on.
pub struct ResponseBody(Inner);

enum Inner {
    Whole(Option<Bytes>),
    Stream(Pin<Box<dyn Stream<Item = Result<Bytes, Cut>> + Send>>),
}

impl ResponseBody {
    /// A body that is there.
    #[must_use]
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self(Inner::Whole(Some(bytes.into())))
    }

    /// No body.
    #[must_use]
    pub fn empty() -> Self {
        Self(Inner::Whole(None))
    }

    /// A body that comes in pieces, each sent as soon as it is there.
    pub fn stream(stream: impl Stream<Item = Result<Bytes, Cut>> + Send + 'static) -> Self {
        Self(Inner::Stream(Box::pin(stream)))
    }

    /// The bytes of a whole body.
    #[must_use]
    pub fn bytes(&self) -> Option<&Bytes> {
        match &self.0 {
            Inner::Whole(bytes) => bytes.as_ref(),
            Inner::Stream(_) => None,
        }
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Inner::Whole(bytes) => write!(f, "{} bytes", bytes.as_ref().map_or(0, Bytes::len)),
            Inner::Stream(_) => f.write_str("stream"),
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match &mut self.0 {
            Inner::Whole(bytes) => {
                Poll::Ready(bytes.take().filter(|b| !b.is_empty()).map(|b| Ok(Frame::data(b))))
            }
            Inner::Stream(stream) => {
                stream.as_mut().poll_next(context).map(|n| n.map(|r| r.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Inner::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Inner::Stream(_) => SizeHint::default(),
        }
    }
}

impl From<Infallible> for Cut {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// An answer.
pub type Answer = Response<ResponseBody>;

/// JSON that is already written.
#[must_use]
pub fn json_bytes(code: StatusCode, bytes: impl Into<Bytes>) -> Answer {
    with_type(code, HeaderValue::from_static("application/json"), ResponseBody::whole(bytes))
}

/// Plain text.
#[must_use]
pub fn text(code: StatusCode, text: impl Into<String>) -> Answer {
    let mut answer = with_type(
        code,
        HeaderValue::from_static("text/plain; charset=utf-8"),
        ResponseBody::whole(text.into()),
    );
    answer.headers_mut().insert("X-Content-Type-Options", HeaderValue::from_static("nosniff"));
    answer
}

/// A value in the form the client accepts.
#[must_use]
pub fn value(code: StatusCode, value: &Value, accept: &Accept) -> Answer {
    written(code, serde_json::to_vec(value).unwrap_or_default(), accept)
}

/// JSON bytes in the form the client accepts: as they are, or as YAML.
#[must_use]
pub fn written(code: StatusCode, json: impl Into<Bytes>, accept: &Accept) -> Answer {
    let json = json.into();
    match accept.format {
        Format::Json => json_bytes(code, json),
        Format::Yaml => {
            let yaml = serde_json::from_slice::<Value>(&json)
                .ok()
                .and_then(|value| serde_saphyr::to_string(&value).ok())
                .unwrap_or_default();
            with_type(code, HeaderValue::from_static("application/yaml"), ResponseBody::whole(yaml))
        }
    }
}

/// A failure in the form the client accepts.
#[must_use]
pub fn failure(failure: &Failure, accept: Option<&str>) -> Answer {
    if matches!(failure, Failure::UnknownPath) {
        return text(StatusCode::NOT_FOUND, "404 page not found\n");
    }
    if matches!(failure, Failure::Headers { .. }) {
        return text(failure.code(), format!("{failure}\n"));
    }
    let accept = crate::accept::negotiate(accept).unwrap_or(crate::accept::JSON);
    let mut answer = value(failure.code(), &failure.status(), &accept);
    if let Some(seconds) = failure.retry_after() {
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

fn with_type(code: StatusCode, content_type: HeaderValue, body: ResponseBody) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    answer.headers_mut().insert(header::CONTENT_TYPE, content_type);
    answer
}

/// Adds `Warning: 299` headers.
pub fn warn<'a>(answer: &mut Answer, warnings: impl IntoIterator<Item = &'a str>) {
    for warning in warnings {
        let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"");
        let clean: String = escaped.chars().filter(|c| !c.is_control()).collect();
        if let Ok(header) = HeaderValue::from_str(&format!("299 - \"{clean}\"")) {
            answer.headers_mut().append(header::WARNING, header);
        }
    }
}

/// Breaks JSON into lines for a person who reads it: who asks for that, or looks with a program that people look with.
#[must_use]
pub fn indent(mut answer: Answer, uri: &Uri, request: &HeaderMap) -> Answer {
    let asked = uri.query().unwrap_or_default().split('&').find_map(|part| part.strip_prefix("pretty="));
    let agent = call::user_agent(request);
    let wanted = match asked.filter(|value| !value.is_empty()) {
        Some(value) => matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        None => ["curl", "Wget", "Mozilla/5.0"].iter().any(|program| agent.starts_with(program)),
    };
    // What is passed on from elsewhere, and what only programs read, stays as it is.
    let ours = !uri.path().starts_with("/openapi/") && !uri.path().contains("/proxy");
    let is_json = answer.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if !(wanted && ours && is_json) {
        return answer;
    }
    let value = answer.body().bytes().and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
    if let Some(lines) = value.and_then(|value| serde_json::to_vec_pretty(&value).ok()) {
        *answer.body_mut() = ResponseBody::whole(lines);
    }
    answer
}

/// Compresses a large whole body for a client that asks for it.
#[must_use]
pub fn compress(mut answer: Answer, request: &HeaderMap) -> Answer {
    let asked = request
        .get(header::ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.split(',').any(|coding| coding.trim().starts_with("gzip")));
    let large = answer.body().bytes().is_some_and(|bytes| bytes.len() >= COMPRESS_FROM);
    if !asked || !large {
        return answer;
    }
    let Some(packed) = answer.body().bytes().and_then(|bytes| gzip(bytes)) else { return answer };
    answer.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    answer.headers_mut().append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    *answer.body_mut() = ResponseBody::whole(packed);
    answer
}

fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
    // Level 1: on a local connection the time of the server is dearer than the bytes.
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}
