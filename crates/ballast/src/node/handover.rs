//! What `ballast up` and its node tell each other: one line of JSON when the node starts, lines back, and sockets.

use std::fs::File;
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use drydock_sandbox::Cidr;
use serde::{Deserialize, Serialize};

/// What a node needs to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Handover {
    /// What the node is called.
    pub name: String,
    /// Where the sockets are.
    pub sockets: PathBuf,
    /// Where the node writes down what it runs.
    pub state: PathBuf,
    /// Where volumes and logs are.
    pub files: PathBuf,
    /// The addresses of Services.
    pub services: Cidr,
    /// Whether the cluster is kept, and its pods taken over by the next node.
    pub kept: bool,
    /// Whether a tag that can't be had exactly is an error.
    pub strict_images: bool,
}

impl Handover {
    /// As one line.
    ///
    /// # Errors
    /// A path is no text.
    pub fn to_line(&self) -> serde_json::Result<String> {
        Ok(format!("{}\n", serde_json::to_string(self)?))
    }

    /// Reads what was handed over, and nothing beyond it.
    ///
    /// # Errors
    /// Nothing was, or something else.
    pub fn receive(from: &mut impl Read) -> io::Result<Self> {
        let mut line = Vec::new();
        let mut byte = [0];
        // Byte by byte: what comes after the line is for somebody else.
        while from.read(&mut byte)? == 1 && byte != *b"\n" {
            line.push(byte[0]);
        }
        Ok(serde_json::from_slice(&line)?)
    }
}

/// What a node tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Report {
    /// It takes pods.
    Ready {
        /// The range of their addresses.
        pods: String,
        /// The node's own address, which they reach.
        address: Ipv4Addr,
        /// Whether this machine reaches them.
        reachable: bool,
        /// Whether it reaches Services by their addresses.
        services: bool,
        /// Whether it runs as the machine's root.
        root: bool,
    },
    /// It was told to stop and is about it: said anew all the while.
    Stopping,
    /// It can't.
    Failed {
        /// Why, in a line.
        message: String,
    },
}

impl Report {
    /// As one line, without its end.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The sockets between `up` and its node. Their directory is the owner's alone, so whoever connects is.
///
/// They are named by an open directory: a socket's path must be short, and a data directory's need not be.
#[derive(Debug)]
pub struct Sockets {
    directory: File,
}

impl Sockets {
    /// Those in a directory that is there.
    ///
    /// # Errors
    /// It is not.
    pub fn open(directory: &Path) -> io::Result<Self> {
        Ok(Sockets { directory: File::open(directory)? })
    }

    fn named(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.directory.as_raw_fd()))
    }

    /// Where the API is served over TLS, for pods.
    pub fn api(&self) -> PathBuf {
        self.named("api.sock")
    }

    /// Where the API is served to the node.
    pub fn api_as_node(&self) -> PathBuf {
        self.named("api-as-node.sock")
    }

    /// Where images are made.
    pub fn images(&self) -> PathBuf {
        self.named("images.sock")
    }

    /// Where the node is asked for logs and the like.
    pub fn node(&self) -> PathBuf {
        self.named("node.sock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_over_is_one_line_and_the_rest_is_left() {
        let handover = Handover {
            name: "here".to_owned(),
            sockets: "/a b".into(),
            state: "/s".into(),
            files: "/f".into(),
            services: "10.96.0.0/12".parse().unwrap(),
            kept: true,
            strict_images: false,
        };
        let text = format!("{}stop\n", handover.to_line().unwrap());
        let mut input = text.as_bytes();
        let received = Handover::receive(&mut input).unwrap();
        assert_eq!(received.to_line().unwrap(), handover.to_line().unwrap());
        assert_eq!(input, b"stop\n");
        assert!(Handover::receive(&mut b"".as_slice()).is_err());
    }
}
