//! Why something was not done, in the words and classes of the Kubernetes API.

use std::fmt;

use drydock_schema::FieldError;

use drydock_schema::words::{joined, quoted};

/// An answer other than success. `Display` is the `message` of the `Status`.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    /// 422: the body is not acceptable.
    Invalid {
        /// API group of the kind.
        group: &'static str,
        /// The kind; reviews of authorization have none in their messages.
        kind: &'static str,
        /// The name in the message, often empty.
        name: String,
        /// What is wrong.
        errors: Vec<FieldError>,
    },
    /// 400, with the whole message.
    BadRequest(String),
    /// 403: the user may not.
    Forbidden {
        /// API group of the resource.
        group: String,
        /// The plural; empty for a path that is no resource.
        resource: String,
        /// The object's name, empty when there is none.
        name: String,
        /// Who may not do what.
        detail: String,
    },
    /// 404: something that was referred to is not there.
    NotFound {
        /// API group of the resource.
        group: &'static str,
        /// The plural.
        resource: &'static str,
        /// The object's name.
        name: String,
    },
    /// 409: the world is not as the request believes.
    Conflict {
        /// API group.
        group: &'static str,
        /// What the details call `kind`.
        kind: String,
        /// The object's name.
        name: String,
        /// What differs.
        detail: String,
    },
    /// 500: Kubernetes answers malformed impersonation this way, as plain text:
    /// `Internal Server Error: "URI": detail`.
    Internal(String),
}

impl Refusal {
    /// The HTTP status.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Self::Invalid { .. } => 422,
            Self::BadRequest(_) => 400,
            Self::Forbidden { .. } => 403,
            Self::NotFound { .. } => 404,
            Self::Conflict { .. } => 409,
            Self::Internal(_) => 500,
        }
    }

    /// The `reason` of the `Status`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "Invalid",
            Self::BadRequest(_) => "BadRequest",
            Self::Forbidden { .. } => "Forbidden",
            Self::NotFound { .. } => "NotFound",
            Self::Conflict { .. } => "Conflict",
            Self::Internal(_) => "InternalError",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { group, kind, name, errors } => {
                let errors = joined(errors.iter().map(ToString::to_string));
                write!(f, "{} {} is invalid: {errors}", qualified(kind, group), quoted(name))
            }
            Self::BadRequest(message) | Self::Internal(message) => f.write_str(message),
            Self::Forbidden { resource, detail, .. } if resource.is_empty() => {
                write!(f, "forbidden: {detail}")
            }
            Self::Forbidden { group, resource, name, detail } if name.is_empty() => {
                write!(f, "{} is forbidden: {detail}", qualified(resource, group))
            }
            Self::Forbidden { group, resource, name, detail } => {
                write!(f, "{} {} is forbidden: {detail}", qualified(resource, group), quoted(name))
            }
            Self::NotFound { group, resource, name } => {
                write!(f, "{} {} not found", qualified(resource, group), quoted(name))
            }
            Self::Conflict { group, kind, name, detail } => {
                let what = qualified(kind, group);
                write!(f, "Operation cannot be fulfilled on {what} {}: {detail}", quoted(name))
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// `resource.group`, or the resource alone for the core group.
fn qualified(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}
