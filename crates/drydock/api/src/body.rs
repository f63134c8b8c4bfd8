//! Request bodies: JSON, YAML and, for built-in kinds, protobuf, read into a `Value`.
//!
//! **Always holds:** a body that is read here is at most [`LIMIT`] bytes and no deeper than `json::MAX_DEPTH`, so that
//! nobody can exhaust memory or stack with one request. What is wrong with a body is said in the
//! words of the real server.

use std::fmt::Write as _;
use std::pin::{Pin, pin};

use bytes::{Buf, Bytes};
use drydock_kinds::Kind;
use drydock_schema::{
    FieldErrorKind, Schema,
    json::{self, MAX_FINDINGS},
    unknown::{self, Finding},
    words,
};
use http::{HeaderMap, header};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use serde_json::Value;

use crate::failure::{Failure, GroupResource};

/// What the real server takes at most: twice etcd's own limit for one request.
pub const LIMIT: usize = 3 * 1024 * 1024;

/// How much more is read of a body that is larger, before it is refused.
const PASSED_OVER: usize = 8 * LIMIT;

/// The media types that bodies come in, for the message of a refusal.
const READ: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// Bytes of a broken body that are shown in its error.
const SHOWN: usize = 30;

/// Why a body ends before its end.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaType {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

/// What becomes of unknown and duplicate fields (`fieldValidation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped, and the client is told.
    Warn,
    /// The request is refused.
    Strict,
}

impl FieldValidation {
    /// Reads the option; `kind` names the options in the error.
    ///
    /// # Errors
    /// For any other word.
    pub fn parse(text: Option<&str>, kind: &str) -> Result<Self, Failure> {
        match text {
            None | Some("Warn") => Ok(Self::Warn),
            Some("Ignore") => Ok(Self::Ignore),
            Some("Strict") => Ok(Self::Strict),
            Some(other) => Err(unsupported_option(
                kind,
                "fieldValidation",
                other.into(),
                r#"supported values: "", "Ignore", "Strict", "Warn""#,
            )),
        }
    }
}

/// An option's value that is none of the allowed ones.
pub fn unsupported_option(kind: &str, field: &str, value: Value, supported: &str) -> Failure {
    invalid_option(
        kind,
        drydock_schema::FieldError::new(FieldErrorKind::NotSupported, field, Some(value), supported),
    )
}

/// An option that is not acceptable.
pub fn invalid_option(kind: &str, error: drydock_schema::FieldError) -> Failure {
    Failure::Invalid {
        kind: GroupResource::new("meta.k8s.io", kind),
        name: String::new(),
        errors: vec![error],
    }
}

/// A body, read but not yet held against a schema.
#[derive(Debug)]
pub struct Decoded {
    /// The object.
    pub object: Value,
    /// Paths of keys that occur twice, as `duplicate field "data.a"` shows them.
    pub duplicates: Vec<String>,
}

/// Collects a body.
///
/// # Errors
/// When it is larger than [`LIMIT`], or the client went away.
pub async fn read<B>(body: B) -> Result<Bytes, Failure>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let mut body = pin!(body);
    match Limited::new(body.as_mut(), LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            pass_over(body).await;
            Err(Failure::TooLarge(LIMIT))
        }
        Err(error) => Err(Failure::BadRequest(format!("the request's body could not be read: {error}"))),
    }
}

/// Reads on without keeping anything: many clients look at the answer only once they have sent all they had. Whoever
/// sends without end is cut off.
async fn pass_over<B: Body>(mut body: Pin<&mut B>) {
    let mut left = PASSED_OVER;
    while let Some(Ok(frame)) = body.frame().await {
        let sent = frame.data_ref().map_or(0, Buf::remaining);
        match left.checked_sub(sent) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

/// The media type of a body, without its parameters.
#[must_use]
pub fn content_type(headers: &HeaderMap) -> &str {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim()
}

/// The media type of an object in a body.
///
/// # Errors
/// When it is one that nobody reads.
pub fn media_type(headers: &HeaderMap) -> Result<MediaType, Failure> {
    match content_type(headers) {
        "" | "application/json" | "*/*" => Ok(MediaType::Json),
        "application/yaml" => Ok(MediaType::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(MediaType::Protobuf),
        _ => Err(Failure::UnsupportedMediaType(READ)),
    }
}

/// Reads an object that should be of `kind`, and checks that its type fits.
///
/// # Errors
/// When it can't be read, or is of another type.
pub fn decode(kind: &Kind, media: MediaType, bytes: &Bytes) -> Result<Decoded, Failure> {
    let mut decoded = parse(media, bytes).map_err(|why| unrecognized(&kind.kind, &why, bytes))?;
    check_type(kind, &mut decoded.object, bytes)?;
    Ok(decoded)
}

/// Reads an object of any type.
///
/// # Errors
/// A sentence that says what is wrong with the body.
pub fn parse(media: MediaType, bytes: &Bytes) -> Result<Decoded, String> {
    let (object, duplicates) = match media {
        MediaType::Json => {
            let parsed = json::parse(bytes)
                .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?;
            (parsed.value, parsed.duplicates)
        }
        MediaType::Yaml => {
            let parsed = json::parse_yaml(bytes).map_err(|error| error.to_string())?;
            (parsed.value, parsed.duplicates)
        }
        MediaType::Protobuf => {
            let object = drydock_schema::protobuf::decode(bytes).map_err(|error| error.to_string())?;
            (object, Vec::new())
        }
    };
    if !object.is_object() {
        let go = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
        return Err(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type {go}",
            words::json_kind(&object)
        ));
    }
    Ok(Decoded { object, duplicates })
}

/// Fills a missing type in for built-in kinds; refuses one that does not fit.
fn check_type(kind: &Kind, object: &mut Value, bytes: &Bytes) -> Result<(), Failure> {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (version, name) = (text("apiVersion"), text("kind"));
    let expected = kind.api_version();
    if version == expected && name == *kind.kind {
        return Ok(());
    }
    if kind.is_custom() {
        return check_custom_type(kind, &version, &name, object, bytes);
    }
    if (version.is_empty() || version == expected) && (name.is_empty() || name == *kind.kind) {
        object["apiVersion"] = expected.into();
        object["kind"] = kind.kind.to_string().into();
        return Ok(());
    }
    let short = version.rsplit('/').next().unwrap_or_default();
    let fault = other_type(&kind.group, &kind.kind, &version, &name);
    Err(Failure::BadRequest(format!(
        "{name} in version {short:?} cannot be handled as a {}: {fault}",
        kind.kind
    )))
}

/// What the real server says of an object of another built-in type than the one expected.
#[must_use]
pub fn other_type(expected_group: &str, expected: &str, version: &str, name: &str) -> String {
    let (group, short) = version.rsplit_once('/').unwrap_or(("", version));
    let known = version.is_empty() || drydock_schema::builtin::definition_for(group, short, name).is_some();
    if !known {
        return format!(
            "no kind {name:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:110\""
        );
    }
    let package = match expected_group.split('.').next() {
        None | Some("") => "core",
        Some(package) => package,
    };
    format!("converting ({short}.{name}) to ({package}.{expected}): unknown conversion")
}

fn check_custom_type(
    kind: &Kind,
    version: &str,
    name: &str,
    object: &Value,
    bytes: &Bytes,
) -> Result<(), Failure> {
    if name.is_empty() {
        let why = format!("Object 'Kind' is missing in '{object}'");
        return Err(unrecognized(&kind.kind, &why, bytes));
    }
    if version != kind.api_version() {
        return Err(Failure::BadRequest(format!(
            "the API version in the data ({version}) does not match the expected API version ({})",
            kind.api_version()
        )));
    }
    Err(Failure::Invalid {
        kind: GroupResource::new(&*kind.group, name),
        name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        errors: vec![drydock_schema::FieldError::invalid("kind", name, format!("must be {}", kind.kind))],
    })
}

/// The refusal of a body whose type could not even be read.
fn unrecognized(kind: &str, why: &str, bytes: &[u8]) -> Failure {
    Failure::BadRequest(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({})",
        summary(bytes)
    ))
}

/// The beginning of a body, as errors show it.
fn summary(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN)];
    let mut text = match shown.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(shown).into_owned(),
        Some(_) => shown.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }),
    };
    if bytes.len() > SHOWN {
        text.push_str(" ...");
    }
    text
}

/// What a body had too much of.
#[derive(Debug, Default)]
pub struct Excess {
    /// Paths that the schema does not know.
    pub unknown: Vec<String>,
    /// Paths that occur twice.
    pub duplicates: Vec<String>,
}

impl Excess {
    /// The findings, as the real server words them: in the order of the text, where there is one.
    fn findings(self, text: Option<(&Schema, &[u8])>) -> Vec<String> {
        let found = match text {
            Some((schema, text)) => unknown::findings(schema, text, unknown::Root::Resource),
            None => {
                let unknown = self.unknown.into_iter().map(Finding::Unknown);
                unknown.chain(self.duplicates.into_iter().map(Finding::Duplicate)).collect()
            }
        };
        found.iter().take(MAX_FINDINGS).map(Finding::to_string).collect()
    }
}

/// Refuses, or gives as warnings, what a body had too much of. `text` is the body and its schema, where the order of
/// its fields counts.
///
/// # Errors
/// In strict mode, when there is anything: what the real server's decoder says.
pub fn judge(
    validation: FieldValidation,
    excess: Excess,
    text: Option<(&Schema, &[u8])>,
) -> Result<Vec<String>, String> {
    if validation == FieldValidation::Ignore || (excess.unknown.is_empty() && excess.duplicates.is_empty()) {
        return Ok(Vec::new());
    }
    let findings = excess.findings(text);
    if validation == FieldValidation::Warn || findings.is_empty() {
        return Ok(findings);
    }
    Err(format!("strict decoding error: {}", findings.join(", ")))
}

/// The refusal of an object that the decoder can't handle.
#[must_use]
pub fn mishandled(kind: &str, version: &str, fault: &str) -> Failure {
    Failure::BadRequest(format!("{kind} in version {version:?} cannot be handled as a {kind}: {fault}"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::StreamExt as _;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    /// Reads a body of so many mebibytes; gives the answer and how many of them were taken.
    async fn taken(mebibytes: usize) -> (Result<usize, Failure>, usize) {
        let mut count = 0;
        let piece = Bytes::from(vec![0; 1 << 20]);
        let frames = futures::stream::iter(0..mebibytes)
            .inspect(|_| count += 1)
            .map(|_| Ok::<_, Infallible>(Frame::data(piece.clone())));
        let read = read(StreamBody::new(frames)).await.map(|bytes| bytes.len());
        (read, count)
    }

    #[tokio::test]
    async fn a_body_that_is_too_large_is_sent_to_its_end_unless_it_has_none() {
        assert!(matches!(taken(3).await, (Ok(LIMIT), 3)));
        assert!(matches!(taken(9).await, (Err(Failure::TooLarge(LIMIT)), 9)));
        let (read, count) = taken(1_000_000).await;
        assert!(matches!(read, Err(Failure::TooLarge(LIMIT))) && count < 40, "{count}");
    }
}
