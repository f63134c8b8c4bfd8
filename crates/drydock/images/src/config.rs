//! What an image says about running it, and how that is written in an OCI image's configuration.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The search path of an image that sets none.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How to run what an image holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// What a pod's `command` takes the place of.
    pub entrypoint: Vec<String>,
    /// What a pod's `args` take the place of.
    pub command: Vec<String>,
    /// `NAME=value`, in the image's order.
    pub env: Vec<String>,
    /// `user`, `uid`, `user:group` or `uid:gid`; empty is root.
    pub user: String,
    /// Empty is the root directory.
    pub working_dir: String,
    /// What it listens on.
    pub ports: Vec<Port>,
    /// What asks it to stop, where that is not SIGTERM.
    pub stop_signal: Option<String>,
    /// What else is said about it.
    pub labels: BTreeMap<String, String>,
}

/// A port that an image says it listens on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Port {
    /// Its number.
    pub number: u16,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: String,
}

impl Port {
    /// A TCP port.
    pub fn tcp(number: u16) -> Port {
        Port { number, protocol: "tcp".to_owned() }
    }

    fn parse(text: &str) -> Option<Port> {
        let (number, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        Some(Port { number: number.parse().ok()?, protocol: protocol.to_owned() })
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.protocol)
    }
}

/// The name that Debian and OCI give to this machine's processor.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

/// An OCI image configuration, as far as it is read and written here. Its digest is the image's id.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Document {
    #[serde(default)]
    pub(crate) architecture: String,
    #[serde(default)]
    pub(crate) os: String,
    #[serde(default)]
    config: Option<Execution>,
    pub(crate) rootfs: RootFs,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct RootFs {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    pub(crate) diff_ids: Vec<String>,
}

/// Fields may be absent or null: both are written in the wild.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
struct Execution {
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exposed_ports: Option<BTreeMap<String, Option<serde_json::Value>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    env: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entrypoint: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cmd: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    working_dir: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_signal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<BTreeMap<String, String>>,
}

impl Document {
    /// The configuration of an image for this machine with these layers. It carries no time, so that the same
    /// image made twice has the same digest.
    pub(crate) fn new(config: &Config, diff_ids: Vec<String>) -> Document {
        let some = |list: &[String]| (!list.is_empty()).then(|| list.to_vec());
        let said = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let ports = config
            .ports
            .iter()
            .map(|port| (port.to_string(), Some(serde_json::Value::Object(serde_json::Map::new()))))
            .collect();
        Document {
            architecture: architecture().to_owned(),
            os: "linux".to_owned(),
            config: Some(Execution {
                user: said(&config.user),
                exposed_ports: (!config.ports.is_empty()).then_some(ports),
                env: some(&config.env),
                entrypoint: some(&config.entrypoint),
                cmd: some(&config.command),
                working_dir: said(&config.working_dir),
                stop_signal: config.stop_signal.clone(),
                labels: (!config.labels.is_empty()).then(|| config.labels.clone()),
            }),
            rootfs: RootFs { kind: "layers".to_owned(), diff_ids },
        }
    }

    /// What it says about running the image.
    pub(crate) fn config(&self) -> Config {
        let execution = self.config.clone().unwrap_or_default();
        let ports = execution.exposed_ports.unwrap_or_default();
        Config {
            entrypoint: execution.entrypoint.unwrap_or_default(),
            command: execution.cmd.unwrap_or_default(),
            env: execution.env.unwrap_or_default(),
            user: execution.user.unwrap_or_default(),
            working_dir: execution.working_dir.unwrap_or_default(),
            ports: ports.keys().filter_map(|port| Port::parse(port)).collect(),
            stop_signal: execution.stop_signal.filter(|signal| !signal.is_empty()),
            labels: execution.labels.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let config = Config {
            entrypoint: vec!["docker-entrypoint.sh".into()],
            command: vec!["memcached".into()],
            env: vec![format!("PATH={DEFAULT_PATH}")],
            user: "memcache".into(),
            ports: vec![Port::tcp(11211)],
            ..Config::default()
        };
        let written = serde_json::to_vec(&Document::new(&config, vec!["sha256:00".into()])).unwrap();
        let read: Document = serde_json::from_slice(&written).unwrap();
        assert_eq!(read.config(), config);
        assert_eq!(read.rootfs.diff_ids, ["sha256:00"]);
    }

    #[test]
    fn absent_and_null_fields_are_nothing_said() {
        let read: Document = serde_json::from_str(
            r#"{"config":{"Entrypoint":null,"Cmd":["sh"],"ExposedPorts":{"53/udp":null,"x":{}}},"rootfs":{}}"#,
        )
        .unwrap();
        assert_eq!(
            read.config(),
            Config {
                command: vec!["sh".into()],
                ports: vec![Port { number: 53, protocol: "udp".into() }],
                ..Config::default()
            }
        );
    }
}
