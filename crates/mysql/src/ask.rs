//! What is asked of the agents in the pods, and what comes back: the words that these operators and their engine share.

use serde::{Deserialize, Serialize};

use crate::{
    flavour::{Flavour, Server, Version},
    resource::TableDigest,
};

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// How a server fares: `GET /status` of the agent beside it. Answered by [`Told`].
    Server {
        /// The pod's address.
        address: String,
        /// The port that the agent listens on.
        port: u16,
        /// Which of the pod's containers in time: an answer of one that is gone says nothing of its successor.
        instance: String,
    },
    /// The last line of a finished container's log, which is a backup's manifest. Answered by [`Manifest`].
    Manifest {
        /// The container.
        container: String,
    },
}

/// What came of asking how a server fares. That it says nothing is an answer too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// The agent answered.
    Fares(ServerStatus),
    /// Nobody listens there.
    Refuses,
    /// It took the connection and said nothing in time.
    Silent,
    /// It speaks, and not as the agent does.
    Babbles {
        /// How it began.
        said: String,
    },
    /// There is no way to it from here, so nothing is known of it.
    Unreachable {
        /// What stood in the way.
        why: String,
    },
}

/// What an agent says of the server that it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatus {
    /// Which server: `mysql` or `mariadb`.
    pub flavour: String,
    /// Its version, as far as it begins with one.
    pub version: String,
    /// Whether a query succeeded just now.
    pub ready: bool,
    /// Whether it serves, but not the agent, whose password it does not know or does not take.
    #[serde(default)]
    pub denied: bool,
    /// Whether what keeps it from that is a failure that does not go away by waiting.
    #[serde(default)]
    pub failed: bool,
    /// What keeps it from that.
    #[serde(default)]
    pub message: String,
    /// How much of the volume is used.
    #[serde(default)]
    pub data_bytes: u64,
    /// How much of the volume is free.
    #[serde(default)]
    pub free_bytes: u64,
}

/// The server that calls itself so, where it is one of the two: `mariadb`, `11.8.6-MariaDB`.
pub(crate) fn server(flavour: &str, version: &str) -> Option<Server> {
    let flavour =
        [Flavour::MySQL, Flavour::MariaDB].into_iter().find(|known| known.traits().word == flavour)?;
    Some(Server { flavour, version: Version::parse(version)? })
}

/// A manifest as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The SHA-256 of the line, computed by whoever read it.
    pub sha256: String,
    /// What it says of each table.
    pub tables: Vec<TableDigest>,
}

/// The termination message of a pod that makes a backup, restores one, or runs a script.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastWords {
    /// Whether it did what it was to do, and proved it.
    pub ok: bool,
    /// Why not, in one CamelCase word.
    pub reason: String,
    /// Why not, in a sentence.
    pub message: String,
    /// The backup's file.
    pub file: String,
    /// Its size.
    pub bytes: i64,
    /// The size of what is in it.
    pub content_bytes: i64,
    /// The SHA-256 of the file.
    pub sha256: String,
    /// The SHA-256 of its manifest.
    pub manifest_sha256: String,
    /// How many tables.
    pub tables: i64,
    /// How many rows.
    pub rows: i64,
    /// How long it took.
    pub seconds: f64,
    /// Which server: `mysql` or `mariadb`.
    pub flavour: String,
    /// Its version.
    pub version: String,
}
