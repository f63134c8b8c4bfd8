//! What a failed request asks of us.

use std::{error::Error as _, time::Duration};

use ballast_operator::{Class, Failure};
use kube::core::Status;

use crate::fence::NotHeld;

/// A request that failed.
#[derive(Debug, thiserror::Error)]
#[error("{failure}")]
pub(crate) struct Refusal {
    pub(crate) failure: Failure,
    /// The HTTP status, where there was an answer.
    pub(crate) code: Option<u16>,
    /// The fields that the server names as wrong: `spec.ports[1].name`.
    pub(crate) fields: Vec<String>,
    /// How long the server asks us to wait.
    pub(crate) retry_after: Option<Duration>,
    /// Whether a write may have taken effect all the same.
    pub(crate) uncertain: bool,
}

impl Refusal {
    pub(crate) fn new(class: Class, message: impl Into<String>) -> Self {
        Failure::new(class, message).into()
    }

    pub(crate) fn is(&self, code: u16) -> bool {
        self.code == Some(code)
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Refusal { failure, code: None, fields: Vec::new(), retry_after: None, uncertain: false }
    }
}

impl From<NotHeld> for Refusal {
    fn from(not_held: NotHeld) -> Self {
        Refusal::new(Class::Retry, not_held.to_string())
    }
}

impl From<kube::Error> for Refusal {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                let details = status.details.as_ref();
                let seconds =
                    details.map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0);
                let causes = details.into_iter().flat_map(|details| &details.causes);
                Refusal {
                    failure: Failure::new(class_of(status.code), answer(&status)),
                    code: Some(status.code),
                    fields: causes.map(|cause| cause.field.clone()).collect(),
                    retry_after: seconds.map(|seconds| Duration::from_secs(u64::from(seconds))),
                    // A gateway or a timeout says nothing about what the server behind it did.
                    uncertain: matches!(status.code, 408 | 500 | 502 | 503 | 504),
                }
            }
            kube::Error::BuildRequest(error) => Refusal::new(Class::Bug, format!("no such request: {error}")),
            kube::Error::SerdeError(error) => Refusal {
                uncertain: true,
                ..Refusal::new(Class::Bug, format!("the server's answer can't be read: {error}"))
            },
            other => Refusal { uncertain: true, ..Refusal::new(Class::Retry, innermost(&other)) },
        }
    }
}

/// What an error of the client says, for people. Its own `Display` carries the whole `Status` as a dump.
pub(crate) fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => answer(status),
        other => innermost(other),
    }
}

/// What the server said, on one line.
pub(crate) fn answer(status: &Status) -> String {
    let said = status.message.split_whitespace().collect::<Vec<_>>().join(" ");
    if !said.is_empty() {
        return said;
    }
    // A reason is one word. What the client puts in its place when there is none is a sentence about itself.
    let reason = Some(status.reason.as_str()).filter(|reason| !reason.is_empty() && !reason.contains(' '));
    match reason {
        Some(reason) => format!("the server answered {} {reason}", status.code),
        None => format!("the server answered {}", status.code),
    }
}

/// 4xx is for us to mend, 5xx for the server; the exceptions are those that a moment mends.
fn class_of(code: u16) -> Class {
    match code {
        // Somebody else was faster; not there yet; a token that is just being renewed.
        401 | 404 | 408 | 409 | 410 | 429 => Class::Retry,
        400..=499 => Class::Terminal,
        _ => Class::Retry,
    }
}

/// The text of the error at the bottom, which says what happened; those above say only where.
fn innermost(error: &kube::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = inner.to_string();
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: u16, class: Class) {
        let status = Status { code, message: "no".into(), ..Status::default() };
        let refusal = Refusal::from(kube::Error::Api(Box::new(status)));
        assert_eq!(refusal.failure, Failure::new(class, "no"), "{code}");
    }

    #[test]
    fn what_a_moment_mends_is_tried_again() {
        for code in [401, 404, 409, 410, 429, 500, 502, 503, 504] {
            check(code, Class::Retry);
        }
    }

    #[test]
    fn what_is_refused_waits_for_a_change() {
        for code in [400, 403, 405, 413, 415, 422] {
            check(code, Class::Terminal);
        }
    }

    #[test]
    fn the_server_says_how_long_to_wait() {
        let answer = serde_json::json!({"code": 429, "details": {"retryAfterSeconds": 7}});
        let status: Status = serde_json::from_value(answer).unwrap();
        let refusal = Refusal::from(kube::Error::Api(Box::new(status)));
        assert_eq!(refusal.retry_after, Some(Duration::from_secs(7)));
    }

    #[test]
    fn what_the_server_said_is_said_and_nothing_of_how_it_is_kept() {
        let said = |message: &str, reason: &str| {
            let status =
                Status { message: message.into(), reason: reason.into(), code: 404, ..Status::default() };
            words(&kube::Error::Api(Box::new(status)))
        };
        assert_eq!(said("404 page not found\n", "Failed to parse error data"), "404 page not found");
        assert_eq!(said("a\n  b", "NotFound"), "a b");
        assert_eq!(said("", "NotFound"), "the server answered 404 NotFound");
        assert_eq!(said("", "Failed to parse error data"), "the server answered 404");
    }
}
