//! What an object may look like.
//!
//! One type, [`Schema`], says it for built-in kinds (read from Kubernetes' own published
//! OpenAPI definitions) and for custom resources (read from their definition). Everything that
//! depends on an object's shape works from it: validation with Kubernetes' messages, pruning,
//! defaulting, CEL rules, decoding of protobuf bodies, and, in `drydock-merge`, strategic merge
//! and field management.
//!
//! **Always holds:** nothing here does I/O, reads a clock or keeps state beyond the lazily read
//! table of built-in types. Objects are `serde_json::Value`.
//!
//! **Deliberately absent:** what makes one kind special (that is `drydock-kinds`), and merging.

pub mod builtin;
pub mod defaults;
mod field;
mod formats;
pub mod json;
pub mod protobuf;
mod rules;
mod shape;
mod structural;
pub mod typed;
pub mod unknown;
pub mod validate;
pub mod words;

pub use field::{FieldError, FieldErrorKind};
pub use rules::Rule;
pub use shape::{Checks, ListKind, MapKind, PatchStrategy, Schema, Type};
