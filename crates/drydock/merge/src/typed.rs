//! Objects read together with their schema: checking, listing fields, comparing, merging,
//! removing. The vocabulary in which [`crate::managed`] is written.

mod compare;
mod field_set;
mod merge;
mod remove;
mod validate;

pub(crate) use compare::compare;
pub(crate) use field_set::{field_set, reconcile};
pub(crate) use merge::merge;
pub(crate) use remove::remove;
pub(crate) use validate::{TypeErrors, validate};
