//! Errors that name a field, worded as Kubernetes words them.

use std::fmt;

use serde_json::Value;

/// What is wrong with a field. `Display` of [`FieldError`] follows `field.Error` of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// A value is missing (`FieldValueRequired`).
    Required,
    /// A value is there but is not acceptable (`FieldValueInvalid`).
    Invalid,
    /// A value is of another type (`FieldValueTypeInvalid`).
    TypeInvalid,
    /// A value is none of the allowed ones (`FieldValueNotSupported`).
    NotSupported,
    /// The same value occurs twice (`FieldValueDuplicate`).
    Duplicate,
    /// A value may not be set here (`FieldValueForbidden`).
    Forbidden,
    /// A value is too long (`FieldValueTooLong`).
    TooLong,
    /// There are too many items (`FieldValueTooMany`).
    TooMany,
    /// A referenced thing is not there (`FieldValueNotFound`).
    NotFound,
}

/// One thing that is wrong with one field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// What is wrong.
    pub kind: FieldErrorKind,
    /// The path as Kubernetes writes it: `spec.containers[0].name`, `metadata.labels[app]`.
    pub path: String,
    /// The offending value, where Kubernetes shows it.
    pub value: Option<Value>,
    /// What a person should know beyond the kind.
    pub detail: String,
    /// The value as it is printed, where that is not its JSON.
    pub shown: Option<Box<str>>,
}

impl FieldErrorKind {
    /// The machine-readable cause in `Status.details.causes[].reason`.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
        }
    }
}

impl FieldError {
    /// An error of `kind` at `path`.
    pub fn new(
        kind: FieldErrorKind,
        path: impl Into<String>,
        value: Option<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self { kind, path: path.into(), value, detail: detail.into(), shown: None }
    }

    /// `path: Required value: detail`.
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, path, None, detail)
    }

    /// `path: Invalid value: value: detail`.
    pub fn invalid(path: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, path, Some(value.into()), detail)
    }

    /// `path: Forbidden: detail`.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, path, None, detail)
    }

    /// The message without the path, as in `Status.details.causes[].message`.
    #[must_use]
    pub fn body(&self) -> String {
        let head = match self.kind {
            FieldErrorKind::Required => "Required value",
            FieldErrorKind::Invalid | FieldErrorKind::TypeInvalid => "Invalid value",
            FieldErrorKind::NotSupported => "Unsupported value",
            FieldErrorKind::Duplicate => "Duplicate value",
            FieldErrorKind::Forbidden => "Forbidden",
            FieldErrorKind::TooLong => "Too long",
            FieldErrorKind::TooMany => "Too many",
            FieldErrorKind::NotFound => "Not found",
        };
        let mut text = String::from(head);
        let is_silent = matches!(
            self.kind,
            FieldErrorKind::Required | FieldErrorKind::Forbidden | FieldErrorKind::TooLong
        );
        match (&self.shown, &self.value) {
            (Some(shown), _) => {
                text.push_str(": ");
                text.push_str(shown);
            }
            (None, Some(value)) if !is_silent => {
                text.push_str(": ");
                text.push_str(&printed(value));
            }
            (None, _) => {}
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

/// A value as Kubernetes prints it: JSON, made safe for HTML inside of objects and lists.
fn printed(value: &Value) -> String {
    let text = value.to_string();
    match value {
        Value::Array(_) | Value::Object(_) => html_safe(&text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => text,
    }
}

/// JSON as Go's encoder escapes it.
pub(crate) fn html_safe(text: &str) -> String {
    text.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}
