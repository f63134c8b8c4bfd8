//! Backups of MySQL and MariaDB: taken, proved, restored, removed.
//!
//! **What always holds**
//!
//! - A file that has a backup's name was read back from the disk and is what was dumped, to the last line of the dump.
//!   Whatever went wrong, there is none.
//! - What a restore leaves on a volume was dumped once more and holds the same rows. Otherwise it leaves nothing.
//! - A script that was begun is never begun again by itself.
//! - Passwords are in memory only, as everywhere in this crate.
//!
//! **What it does not do.** It keeps no accounts: a restored server has those that it was prepared with, and locked ones
//! in place of those in whose names something is carried out. It decides neither when a backup is taken nor which of them
//! is kept.
//!
//! | file | idea |
//! | --- | --- |
//! | `dump`, `restore`, `script`, `remove` | what is asked for, each from its beginning to its end |
//! | `file`, `verify` | a backup's file: how it comes to be, and how it is known to be whole |
//! | `digest`, `manifest` | what is in a dump; what is written down of it |
//! | `definers` | who stands in for accounts that a backup does not hold |
//! | `tools`, `load`, `server` | the server's own programs, how they are given rows, and itself while it is filled |
//! | `pieces`, `stop`, `error` | streams in several threads; signals; what goes wrong |

mod definers;
mod digest;
mod dump;
mod error;
mod file;
mod load;
mod login;
mod manifest;
mod pieces;
mod remove;
mod restore;
mod script;
mod server;
mod stop;
mod tools;
mod verify;

pub use digest::DigestError;
pub use dump::{Dump, dump};
pub use error::BackupError;
pub(crate) use login::Login;
pub use login::{Address, Connection};
pub(crate) use manifest::hex;
pub use manifest::{Definers, Digest, Manifest, ManifestError, Table, Wording};
pub use remove::remove;
pub use restore::{Restore, Restored, restore};
pub use script::{Ran, Script, script};
pub(crate) use tools::complaint;
pub use verify::{Known, verify};
