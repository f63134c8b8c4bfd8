//! Container images for one machine: each a root file system tree of its own, and how to run what is in it.
//!
//! Images come from [recipes](recipe), which say which Debian packages they are made of and are carried out on
//! first use without root, and from local archives ([`Store::import`]). [`Store::resolve`] goes from the name in
//! a pod to a tree on disk.
//!
//! **Guarantees.** A tree is complete or not there. Images are called by their content, so two that are the same
//! are one, and several versions stand side by side. An archive is believed in nothing: its digests are verified,
//! and nothing in it can reach out of its tree. Whatever is not exactly what a tag says is said in a note.
//!
//! **What it does not do.** It talks to no image registry. It runs nothing in a tree, and does not say how a
//! container writes: trees belong to the store and are to be read.
//!
//! | file | idea |
//! | --- | --- |
//! | `reference` | image names |
//! | `recipe`, `table`, `version` | what images are made of; those there are; which version a tag means |
//! | `packages`, `apt` | where packages come from |
//! | `tree`, `linkage` | carrying a recipe out; whether the result can run |
//! | `rooted`, `tarball`, `stream`, `layer` | unpacking what nobody vouches for |
//! | `archive`, `import`, `export` | images as archives, read and written |
//! | `layout`, `store`, `resolve` | the directory, what is in it, and from a name to a tree |
//! | `config`, `users` | how an image is run, and as whom |

mod apt;
mod archive;
mod config;
mod digest;
mod export;
mod import;
mod layer;
mod layout;
mod linkage;
mod packages;
mod progress;
pub mod recipe;
mod reference;
mod resolve;
pub mod rooted;
mod store;
mod stream;
mod table;
mod tarball;
mod tree;
pub mod users;
pub mod version;

pub use apt::{Apt, FRESH_FOR, Mirror};
pub use archive::ArchiveError;
pub use config::{Config, DEFAULT_PATH, Port, architecture};
pub use export::{Content, Contents, FileEntry, Written, write_oci_archive};
pub use layer::{LayerError, Limits};
pub use layout::{DiskError, ImageId, Origin, Record};
pub use linkage::{LinkageError, check as check_linkage, is_static};
pub use packages::{Fetched, Package, Packages, PackagesError};
pub use progress::{Progress, Report, silently};
pub use recipe::Recipe;
pub use reference::{InvalidReference, Reference};
pub use store::{Clock, Error, Imported, Listed, Options, Pull, Resolved, Store};
pub use tree::TreeError;
