//! What is asked of a server, and what comes back: the words that this operator and its engine share.

use serde::{Deserialize, Serialize};

/// Ask a server what it is and how it fares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The pod's address.
    pub address: String,
    /// The port that memcached listens on.
    pub port: u16,
    /// Which of the pod's containers in time: an answer of one that is gone says nothing of its successor.
    pub instance: String,
}

/// What came of asking a server. That it says nothing is an answer too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// It answered `version` and `stats`.
    Serves {
        /// The version that runs.
        version: String,
        /// How it fares.
        stats: Stats,
    },
    /// Nobody listens there.
    Refuses,
    /// It took the connection and said nothing in time. A process that is stopped does that: its kernel goes on
    /// taking connections.
    Silent,
    /// It speaks, and not as memcached does.
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

/// What `stats` says that matters here. Counters begin when the server does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Reads that found something.
    pub get_hits: u64,
    /// Reads that found nothing.
    pub get_misses: u64,
    /// Entries that had to go before their time, to make room.
    pub evictions: u64,
    /// How much is held.
    pub bytes: u64,
    /// How much may be held.
    pub limit_maxbytes: u64,
}
