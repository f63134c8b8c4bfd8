//! Fields that an apply would take from another manager.

use std::fmt::Write;

use super::Operation;
use crate::{fields::Path, wording};

/// One field that another manager owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Who owns the field.
    pub manager: String,
    /// How the field came to be theirs.
    pub operation: Operation,
    /// The version of the kind that they wrote.
    pub api_version: String,
    /// The subresource that they wrote, if any.
    pub subresource: Option<String>,
    /// When they last wrote.
    pub time: Option<String>,
    /// The field.
    pub path: Path,
}

impl Conflict {
    /// What `Status.details.causes[].message` says: `conflict with "kubectl" using apps/v1`.
    #[must_use]
    pub fn cause(&self) -> String {
        format!("conflict with {}", self.owner())
    }

    fn owner(&self) -> String {
        let mut text = wording::quoted(&self.manager);
        // Writing to a String can't fail.
        if let Some(subresource) = &self.subresource {
            let _ = write!(text, " with subresource {}", wording::quoted(subresource));
        }
        if self.operation == Operation::Update {
            let _ = write!(text, " using {}", self.api_version);
        }
        text
    }
}

/// `Apply failed with 1 conflict: …`, grouped by manager where there are several.
pub(super) fn message(conflicts: &[Conflict]) -> String {
    if let [conflict] = conflicts {
        return format!("Apply failed with 1 conflict: {}: {}", conflict.cause(), conflict.path);
    }
    let mut lines: Vec<String> = Vec::new();
    let mut last = None;
    for conflict in conflicts {
        let owner = conflict.owner();
        if last.as_ref() != Some(&owner) {
            lines.push(format!("conflicts with {owner}:"));
            last = Some(owner);
        }
        lines.push(format!("- {}", conflict.path));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}
