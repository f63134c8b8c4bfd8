//! Custom resource definitions, and the kinds they define.
//!
//! A definition is checked by [`validate`] and [`validate_update`], as every object is, and then
//! settled by [`settle`] against the other definitions of its group: which names it got, and whether
//! it is served. [`kinds_of`] turns a settled definition into kinds.

mod custom;
pub(crate) mod scale;
mod status;
mod validate;

pub(crate) use custom::Custom;
pub use custom::{kinds_of, version_priority};
pub(crate) use status::remember_storage_version;
pub use status::{condition, default, is_established, settle};
pub use validate::{validate, validate_update};
