//! Where images come from, as the node sees it.

use drydock_images::{Pull, Reference, Report, Resolved, Store};

/// Why an image is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ImageError {
    /// What a waiting container's status says: `ErrImagePull`, `ErrImageNeverPull`, ….
    pub reason: String,
    /// What it says beside.
    pub message: String,
}

/// Who gives images.
///
/// The store itself does. A node in a network of its own reaches no package archive, so a process that does may
/// stand between: it makes the image in the same store, and tells what came of it.
pub trait Images: Send + Sync {
    /// The image that a reference means, made where that is needed and wanted. Blocks.
    ///
    /// # Errors
    /// When there is none.
    fn resolve(&self, reference: &Reference, pull: Pull, report: Report<'_>) -> Result<Resolved, ImageError>;
}

impl Images for Store {
    fn resolve(&self, reference: &Reference, pull: Pull, report: Report<'_>) -> Result<Resolved, ImageError> {
        Store::resolve(self, reference, pull, report)
            .map_err(|error| ImageError { reason: error.reason().to_owned(), message: error.message() })
    }
}
