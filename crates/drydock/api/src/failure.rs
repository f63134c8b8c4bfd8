//! Every way a request can fail, and the `Status` that says so in Kubernetes' words.
//!
//! **Always holds:** a failure's code, reason, message and details stand together here; nothing
//! else in the crate writes a `Status` of failure.

use std::fmt;

use drydock_schema::FieldError;
use http::StatusCode;
use serde_json::{Map, Value, json};

/// A resource as messages name it: `deployments.apps`, `pods`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupResource {
    /// The group; empty for the core group.
    pub group: String,
    /// The plural, or the kind where Kubernetes puts the kind in its place.
    pub resource: String,
}

impl GroupResource {
    /// A resource of a group.
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.resource)
        } else {
            write!(f, "{}.{}", self.resource, self.group)
        }
    }
}

/// Text of the conflict that optimistic locking reports.
pub const OPTIMISTIC_LOCK: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// One cause in `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The machine-readable type.
    pub reason: String,
    /// What a person should read.
    pub message: String,
    /// The field, where there is one.
    pub field: String,
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Failure {
    /// No object of that name.
    #[error("{0} {1:?} not found")]
    NotFound(GroupResource, String),
    /// No such path: what the mux of the real server answers, as plain text.
    #[error("404 page not found")]
    UnknownPath,
    /// A path that is served but has nothing behind it.
    #[error("the server could not find the requested resource")]
    NoSuchResource,
    /// There is an object of that name already.
    #[error("{prefix}{resource} {name:?} already exists{}", if *.generated { ", the server was not able to generate a unique name for the object" } else { "" })]
    AlreadyExists {
        /// The resource.
        resource: GroupResource,
        /// The name.
        name: String,
        /// The name was made up by the server.
        generated: bool,
        /// `object is being deleted: ` or nothing.
        prefix: &'static str,
    },
    /// The object is not what the writer thought.
    #[error("Operation cannot be fulfilled on {0} {1:?}: {2}")]
    Conflict(GroupResource, String, String),
    /// Server-side apply met fields of other managers.
    #[error("{message}")]
    ApplyConflict {
        /// The whole sentence.
        message: String,
        /// One cause per field.
        causes: Vec<Cause>,
    },
    /// The object is not acceptable.
    #[error("{}", invalid_message(.kind, .name, .errors))]
    Invalid {
        /// Group and kind.
        kind: GroupResource,
        /// The object's name.
        name: String,
        /// What is wrong.
        errors: Vec<FieldError>,
    },
    /// The request itself is wrong.
    #[error("{0}")]
    BadRequest(String),
    /// The caller may not do this.
    #[error("{}", forbidden_message(.resource, .name, .why))]
    Forbidden {
        /// The resource; `None` for other paths.
        resource: Option<GroupResource>,
        /// The object's name, if any.
        name: String,
        /// Why.
        why: String,
        /// Machine-readable causes.
        causes: Vec<Cause>,
    },
    /// Nobody knows who asks.
    #[error("Unauthorized")]
    Unauthorized,
    /// The resource does not do this.
    #[error("{action} is not supported on resources of kind \"{resource}\"")]
    MethodNotSupported {
        /// The resource.
        resource: GroupResource,
        /// What was asked.
        action: String,
    },
    /// The path does not take this method.
    #[error("the server does not allow this method on the requested resource")]
    MethodNotAllowed,
    /// No answer in a form that the client accepts.
    #[error("406: Not Acceptable\n\nAvailable representations: {0}")]
    NotAcceptable(&'static str),
    /// No answer about the API itself in a form that the client accepts.
    #[error("only the following media types are accepted: {0}")]
    UndescribedIn(&'static str),
    /// A patch is in a form that nobody reads.
    #[error("415: Unsupported Media Type")]
    UnsupportedPatch,
    /// The body is in a form that nobody reads.
    #[error("the body of the request was in an unknown format - accepted media types include: {0}")]
    UnsupportedMediaType(&'static str),
    /// The body is too large.
    #[error("Request entity too large: limit is {0}")]
    TooLarge(usize),
    /// The revision is gone.
    #[error("{0}")]
    Expired(String),
    /// A list could not be continued and a new token is offered.
    #[error("{message}")]
    ExpiredContinue {
        /// What happened.
        message: String,
        /// A token that continues at the present, inconsistently.
        token: String,
    },
    /// Later, please.
    #[error("{message}")]
    TooManyRequests {
        /// Why.
        message: String,
        /// After how many seconds; zero when nobody knows.
        retry_after: u64,
        /// Machine-readable causes.
        causes: Vec<Cause>,
    },
    /// It took too long.
    #[error("Timeout: {0}")]
    Timeout(String),
    /// The revision asked for is in the future.
    #[error("Timeout: Too large resource version: {wanted}, current: {current}")]
    TooLargeResourceVersion {
        /// The one asked for.
        wanted: u64,
        /// The latest there is.
        current: u64,
    },
    /// A fault of ours.
    #[error("Internal error occurred: {0}")]
    Internal(String),
    /// Headers that make no sense together: plain text, as the real server says it.
    #[error("Internal Server Error: {path:?}: {why}")]
    Headers {
        /// The path that was asked for.
        path: String,
        /// What makes no sense.
        why: String,
    },
    /// A fault that Kubernetes has no reason for, said as it is.
    #[error("{0}")]
    Unexpected(String),
    /// The server is going away.
    #[error("{0}")]
    Unavailable(String),
    /// There is no room to write anything down. What was etcd's own failure has no words of Kubernetes'.
    #[error(
        "there is no room left where the cluster is kept: {0}. Reads go on, and so do writes once there is room"
    )]
    Full(String),
    /// A patch that can't be carried out. The real server does not say why; the reason is kept for logs.
    #[error("the server rejected our request due to an error in our request")]
    Unprocessable(String),
    /// A refusal made up for a test.
    #[error("{message}")]
    Injected {
        /// The HTTP status code.
        code: u16,
        /// What to say.
        message: String,
    },
}

fn invalid_message(kind: &GroupResource, name: &str, errors: &[FieldError]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [] => format!("{kind} {name:?} is invalid"),
        [one] => format!("{kind} {name:?} is invalid: {one}"),
        many => format!("{kind} {name:?} is invalid: [{}]", many.join(", ")),
    }
}

fn forbidden_message(resource: &Option<GroupResource>, name: &str, why: &str) -> String {
    match resource {
        None => format!("forbidden: {why}"),
        Some(resource) if name.is_empty() => format!("{resource} is forbidden: {why}"),
        Some(resource) => format!("{resource} {name:?} is forbidden: {why}"),
    }
}

impl Failure {
    /// A refusal of one resource's request.
    pub fn forbidden(resource: GroupResource, name: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Forbidden { resource: Some(resource), name: name.into(), why: why.into(), causes: Vec::new() }
    }

    /// The HTTP status.
    #[must_use]
    pub fn code(&self) -> StatusCode {
        match self {
            Self::NotFound(..) | Self::UnknownPath | Self::NoSuchResource => StatusCode::NOT_FOUND,
            Self::AlreadyExists { .. } | Self::Conflict(..) | Self::ApplyConflict { .. } => {
                StatusCode::CONFLICT
            }
            Self::Invalid { .. } | Self::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::MethodNotSupported { .. } | Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAcceptable(_) | Self::UndescribedIn(_) => StatusCode::NOT_ACCEPTABLE,
            Self::UnsupportedMediaType(_) | Self::UnsupportedPatch => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Expired(_) | Self::ExpiredContinue { .. } => StatusCode::GONE,
            Self::TooManyRequests { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Timeout(_) | Self::TooLargeResourceVersion { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::Internal(_) | Self::Unexpected(_) | Self::Headers { .. } => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
            Self::Injected { code, .. } => {
                StatusCode::from_u16(*code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }

    /// The machine-readable reason.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFound(..) | Self::UnknownPath | Self::NoSuchResource => "NotFound",
            Self::AlreadyExists { .. } => "AlreadyExists",
            Self::Conflict(..) | Self::ApplyConflict { .. } => "Conflict",
            Self::Invalid { .. } | Self::Unprocessable(_) => "Invalid",
            Self::BadRequest(_) => "BadRequest",
            Self::Forbidden { .. } => "Forbidden",
            Self::Unauthorized => "Unauthorized",
            Self::MethodNotSupported { .. } | Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable(_) | Self::UndescribedIn(_) => "NotAcceptable",
            Self::UnsupportedMediaType(_) | Self::UnsupportedPatch => "UnsupportedMediaType",
            Self::TooLarge(_) => "RequestEntityTooLarge",
            Self::Expired(_) | Self::ExpiredContinue { .. } => "Expired",
            Self::TooManyRequests { .. } => "TooManyRequests",
            Self::Timeout(_) | Self::TooLargeResourceVersion { .. } => "Timeout",
            Self::Internal(_) => "InternalError",
            Self::Unexpected(_) | Self::Headers { .. } => "",
            Self::Unavailable(_) => "ServiceUnavailable",
            Self::Full(_) => "InsufficientStorage",
            Self::Injected { code, .. } => match code {
                400 => "BadRequest",
                403 => "Forbidden",
                404 => "NotFound",
                409 => "Conflict",
                410 => "Expired",
                413 => "RequestEntityTooLarge",
                422 => "Invalid",
                429 => "TooManyRequests",
                503 => "ServiceUnavailable",
                504 => "Timeout",
                _ => "InternalError",
            },
        }
    }

    /// Seconds after which the client should come again.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::TooManyRequests { retry_after, .. } => Some(*retry_after).filter(|seconds| *seconds > 0),
            Self::AlreadyExists { generated: true, .. } | Self::TooLargeResourceVersion { .. } => Some(1),
            Self::Injected { code: 429 | 503, .. } => Some(1),
            _ => None,
        }
    }

    fn details(&self) -> Option<Value> {
        let of = |resource: &GroupResource, name: &str| {
            let mut details = Map::new();
            put(&mut details, "name", name);
            put(&mut details, "group", &resource.group);
            put(&mut details, "kind", &resource.resource);
            details
        };
        let mut details = match self {
            Self::NotFound(resource, name)
            | Self::Conflict(resource, name, _)
            | Self::AlreadyExists { resource, name, .. } => of(resource, name),
            Self::Forbidden { resource, name, causes, .. } => {
                let mut details = resource.as_ref().map(|r| of(r, name)).unwrap_or_default();
                put_causes(&mut details, causes);
                details
            }
            Self::MethodNotSupported { resource, .. } => of(resource, ""),
            Self::Invalid { kind, name, errors } => {
                let mut details = of(kind, name);
                let causes: Vec<Value> = errors
                    .iter()
                    .map(|e| json!({"reason": e.kind.reason(), "message": e.body(), "field": e.path}))
                    .collect();
                if !causes.is_empty() {
                    details.insert("causes".into(), causes.into());
                }
                details
            }
            Self::ApplyConflict { causes, .. } | Self::TooManyRequests { causes, .. } => {
                let mut details = Map::new();
                put_causes(&mut details, causes);
                details
            }
            Self::TooLargeResourceVersion { .. } => {
                let mut details = Map::new();
                details.insert(
                    "causes".into(),
                    json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]),
                );
                details
            }
            Self::Internal(message) => {
                let mut details = Map::new();
                details.insert("causes".into(), json!([{"message": message}]));
                details
            }
            Self::MethodNotAllowed
            | Self::NoSuchResource
            | Self::Unprocessable(_)
            | Self::NotAcceptable(_)
            | Self::UnsupportedPatch
            | Self::Injected { .. } => Map::new(),
            _ => return None,
        };
        if let Some(seconds) = self.retry_after() {
            details.insert("retryAfterSeconds".into(), seconds.into());
        }
        Some(details.into())
    }

    /// The `Status` object.
    #[must_use]
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.to_string(),
            "code": self.code().as_u16(),
        });
        if !self.reason().is_empty() {
            status["reason"] = self.reason().into();
        }
        if let Some(details) = self.details() {
            status["details"] = details;
        }
        if let Self::ExpiredContinue { token, .. } = self {
            status["metadata"]["continue"] = token.clone().into();
        }
        status
    }
}

fn put(details: &mut Map<String, Value>, key: &str, value: &str) {
    if !value.is_empty() {
        details.insert(key.into(), value.into());
    }
}

fn put_causes(details: &mut Map<String, Value>, causes: &[Cause]) {
    let causes: Vec<Value> = causes
        .iter()
        .map(|cause| {
            let mut item = Map::new();
            put(&mut item, "reason", &cause.reason);
            put(&mut item, "message", &cause.message);
            put(&mut item, "field", &cause.field);
            item.into()
        })
        .collect();
    if !causes.is_empty() {
        details.insert("causes".into(), causes.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(failure: Failure, expected: &str) {
        let status = failure.status();
        let details = status.get("details").map(Value::to_string).unwrap_or_default();
        let actual = format!(
            "{} {} {} {details}",
            status["code"],
            status["reason"].as_str().unwrap(),
            status["message"].as_str().unwrap()
        );
        assert_eq!(actual.trim_end(), expected);
    }

    fn memcacheds() -> GroupResource {
        GroupResource::new("cache.example.com", "memcacheds")
    }

    #[test]
    fn statuses_are_worded_as_kubernetes_words_them() {
        check(
            Failure::NotFound(memcacheds(), "x".into()),
            r#"404 NotFound memcacheds.cache.example.com "x" not found {"group":"cache.example.com","kind":"memcacheds","name":"x"}"#,
        );
        check(
            Failure::Conflict(GroupResource::new("apps", "deployments"), "x".into(), OPTIMISTIC_LOCK.into()),
            r#"409 Conflict Operation cannot be fulfilled on deployments.apps "x": the object has been modified; please apply your changes to the latest version and try again {"group":"apps","kind":"deployments","name":"x"}"#,
        );
        check(
            Failure::Invalid {
                kind: GroupResource::new("cache.example.com", "Memcached"),
                name: "x".into(),
                errors: vec![
                    FieldError::required("spec.version", ""),
                    FieldError::invalid("spec.size", 0, "no"),
                ],
            },
            r#"422 Invalid Memcached.cache.example.com "x" is invalid: [spec.version: Required value, spec.size: Invalid value: 0: no] {"causes":[{"field":"spec.version","message":"Required value","reason":"FieldValueRequired"},{"field":"spec.size","message":"Invalid value: 0: no","reason":"FieldValueInvalid"}],"group":"cache.example.com","kind":"Memcached","name":"x"}"#,
        );
        check(Failure::Unauthorized, "401 Unauthorized Unauthorized");
        check(
            Failure::TooLarge(3 << 20),
            "413 RequestEntityTooLarge Request entity too large: limit is 3145728",
        );
        check(
            Failure::Internal("oops".into()),
            r#"500 InternalError Internal error occurred: oops {"causes":[{"message":"oops"}]}"#,
        );
    }
}
