//! How two versions of an object become one: the four patches and field management.
//!
//! Everything here is a pure function over `serde_json::Value` and a
//! [`Schema`](drydock_schema::Schema): what is stored, what was sent, who sent it and when come
//! in, the next object comes out.
//!
//! - [`patch`]: JSON patch, merge patch and strategic merge patch.
//! - [`fields`]: sets of field paths, as `metadata.managedFields` writes them.
//! - [`managed`]: server-side apply, and who owns which field after any other write.
//!
//! **Always holds:** no input panics; the same input gives the same output; an apply that
//! changes nothing returns an object equal to the live one, times included.
//!
//! **Deliberately absent:** defaulting, validation beyond types, conversion between versions of
//! a kind (all entries are read with the one schema that is given), and storage.

pub mod fields;
pub mod managed;
pub mod patch;

mod node;
mod typed;
mod value;
mod wording;
