//! Short fingerprints in documents.

use base64::{Engine, engine::general_purpose::STANDARD};
use ring::digest::{SHA256, SHA512, digest};

/// The hash by which clients see that the storage version of a resource changed.
pub(crate) fn storage_version(group: &str, version: &str, kind: &str) -> String {
    let sum = digest(&SHA256, format!("{group}/{version}/{kind}").as_bytes());
    STANDARD.encode(&sum.as_ref()[..8])
}

/// The hash under which an OpenAPI document may be cached for ever.
pub(crate) fn document(content: &[u8]) -> String {
    digest(&SHA512, content).as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}
