//! The table of kinds.
//!
//! A [`Kind`] is everything the server needs to know about one group, version and resource: its
//! names, its shape, its defaults, its rules, its columns. Built-in kinds are rows of one table
//! ([`row`]); custom resources become kinds from their definition ([`crd`]). A [`Registry`] holds
//! the kinds that are served, and the documents that describe them to clients are made from it:
//! [`discovery`], [`openapi`], [`table`].
//!
//! **Always holds:** nothing here does I/O, reads a clock or draws a random number. What an object
//! becomes is a function of the object, the old object and the kind.
//!
//! **Deliberately absent:** names, uids, times, addresses and whatever else needs a look at other
//! objects; those are the API server's.

pub mod crd;
pub mod discovery;
mod event;
mod hash;
mod json;
mod kind;
pub mod meta;
pub mod names;
pub mod openapi;
mod path;
mod prepare;
pub mod quantity;
mod registry;
mod row;
mod rules;
pub mod selector;
pub mod table;

pub use kind::{Kind, ScalePaths, Subresource, Subresources};
pub use registry::{GroupInfo, Registry};
