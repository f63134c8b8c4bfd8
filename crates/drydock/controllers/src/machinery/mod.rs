//! The one mechanism all controllers are driven by: watch → cache → queue → act.
//!
//! A kind is watched once per process ([`informer`]), kept in one slim [`cache`] with its [`index`], and each change is shown
//! to whoever asked. Those put keys on their [`queue`]; the queue hands each key to a reconcile function,
//! never twice at a time, with back-off of its own per key. Writes go through [`rest`], and what was written
//! is [`awaited`] in the caches before the same key is decided again. Nothing here polls.

pub mod awaited;
pub mod cache;
pub mod index;
pub mod informer;
pub mod queue;
pub mod recorder;
pub mod rest;
