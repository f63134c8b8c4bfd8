//! What a list or a watch is narrowed by.

mod fields;
mod labels;

pub use fields::{FieldSelector, FieldTerm};
pub use labels::{LabelSelector, Operator, Requirement, text_of};

/// A selector that can't be understood; the message is Kubernetes' own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);
