//! What is known of an object, and since when.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A condition in the older form, in which everything but the status may be left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What it is about.
    pub r#type: Box<str>,
    /// `True`, `False` or `Unknown`.
    pub status: Box<str>,
    /// When it was last looked at: said of Jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Timestamp>,
    /// When it was last looked at and changed: said of Deployments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Timestamp>,
    /// When its status changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
    /// Why, in one word.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: Box<str>,
    /// Why, in a sentence.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub message: Box<str>,
}

impl Condition {
    /// A condition that holds, or does not, since this time.
    pub fn new(
        r#type: &str,
        status: &str,
        reason: &str,
        message: impl Into<Box<str>>,
        since: Timestamp,
    ) -> Self {
        Self {
            r#type: r#type.into(),
            status: status.into(),
            last_transition_time: Some(since),
            reason: reason.into(),
            message: message.into(),
            ..Self::default()
        }
    }
}

/// The condition of this type.
pub fn condition<'a>(conditions: &'a [Condition], r#type: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| &*condition.r#type == r#type)
}
