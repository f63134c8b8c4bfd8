//! How a server is reached, and how its programs are told.
//!
//! **What always holds.** Who and where the server is, and the password, are in a file in memory that only this user
//! can open; nothing of it is an argument or in the environment.

use std::ffi::OsString;
use std::path::PathBuf;

use super::error::BackupError;
use super::tools::dialect;
use crate::flavour::Flavour;
use crate::memory::InMemory;
use crate::secret::Secret;

/// Where a server is.
#[derive(Clone, Debug)]
pub enum Address {
    /// By its name or number in the network.
    Network {
        /// Which machine.
        host: String,
        /// Which port.
        port: u16,
    },
    /// On this machine.
    Socket(PathBuf),
}

/// How to reach a server.
#[derive(Debug)]
pub struct Connection {
    /// Which server it is.
    pub flavour: Flavour,
    /// Where it is.
    pub address: Address,
    /// Whom it knows us as.
    pub user: String,
    /// That user's password.
    pub password: Secret,
}

/// Who and where, for a program of the server's to read.
pub(crate) struct Login {
    client: &'static str,
    options: InMemory,
}

impl Login {
    pub(crate) fn new(connection: &Connection) -> Result<Login, BackupError> {
        let client = dialect(connection.flavour)?.client;
        let options = InMemory::of(&options(connection)).map_err(|error| BackupError::Disk {
            what: "can't write to",
            path: "memory".into(),
            error,
        })?;
        Ok(Login { client, options })
    }

    /// The client.
    pub(crate) fn client(&self) -> &'static str {
        self.client
    }

    /// The first argument.
    pub(crate) fn option(&self) -> OsString {
        format!("--defaults-file={}", self.options.path()).into()
    }
}

/// The options that say who and where.
fn options(connection: &Connection) -> String {
    let place = match &connection.address {
        Address::Network { host, port } => format!("protocol=tcp\nhost={}\nport={port}\n", quoted(host)),
        Address::Socket(path) => format!("protocol=socket\nsocket={}\n", quoted(&path.to_string_lossy())),
    };
    let (user, password) = (quoted(&connection.user), quoted(connection.password.expose()));
    format!("[client]\nuser={user}\npassword={password}\n{place}")
}

/// A value as files of options have it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}
