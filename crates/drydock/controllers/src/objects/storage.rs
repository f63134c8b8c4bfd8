//! Claims, volumes and the classes that lead from one to the other.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::meta::{Meta, nullable};
use super::placement::{Amounts, NodeSelector};
use super::selector::LabelSelector;

/// How a claim, or a volume, named its class before there was a field for it.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The annotations by which a class is the default, today's and that of long ago.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// Metadata.
    pub metadata: Meta,
    /// What is claimed.
    #[serde(deserialize_with = "nullable")]
    pub spec: ClaimSpec,
    /// What was given.
    #[serde(deserialize_with = "nullable")]
    pub status: ClaimStatus,
}

/// `spec` of a claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpec {
    /// How it is to be mounted.
    #[serde(deserialize_with = "nullable")]
    pub access_modes: Vec<Box<str>>,
    /// Which volumes will do.
    pub selector: Option<LabelSelector>,
    /// How much.
    #[serde(deserialize_with = "nullable")]
    pub resources: Requests,
    /// The volume that it has, or wants.
    #[serde(deserialize_with = "nullable")]
    pub volume_name: Box<str>,
    /// Its class; empty is none, and unsaid is whatever is the default.
    pub storage_class_name: Option<Box<str>>,
    /// `Filesystem` or `Block`.
    #[serde(deserialize_with = "nullable")]
    pub volume_mode: Box<str>,
}

/// What is asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Requests {
    /// At least this.
    pub requests: Amounts,
}

/// `status` of a claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimStatus {
    /// `Pending`, `Bound` or `Lost`.
    pub phase: Box<str>,
    /// How it can be mounted.
    #[serde(deserialize_with = "nullable")]
    pub access_modes: Vec<Box<str>>,
    /// How much there is.
    pub capacity: Amounts,
}

impl Claim {
    /// How much it asks for, in bytes.
    pub fn requested(&self) -> i64 {
        self.spec.resources.requests.get("storage")
    }

    /// The name of its class, empty where it has none.
    pub fn class(&self) -> &str {
        let old = self.metadata.annotations.get(OLD_CLASS);
        old.or(self.spec.storage_class_name.as_deref()).unwrap_or_default()
    }

    /// Whether it says which class it is of, and be it none.
    pub fn says_class(&self) -> bool {
        self.spec.storage_class_name.is_some() || self.metadata.annotations.get(OLD_CLASS).is_some()
    }

    /// Whether one pod alone may use it.
    pub fn for_one_pod(&self) -> bool {
        self.spec.access_modes.iter().any(|mode| &**mode == "ReadWriteOncePod")
    }
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Volume {
    /// Metadata.
    pub metadata: Meta,
    /// What it is.
    #[serde(deserialize_with = "nullable")]
    pub spec: VolumeSpec,
    /// What became of it.
    #[serde(deserialize_with = "nullable")]
    pub status: VolumeStatus,
}

/// `spec` of a volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSpec {
    /// How it can be mounted.
    #[serde(deserialize_with = "nullable")]
    pub access_modes: Vec<Box<str>>,
    /// How much it holds.
    pub capacity: Amounts,
    /// The claim that has it, or is to have it.
    pub claim_ref: Option<ClaimRef>,
    /// `Retain`, `Delete` or `Recycle`.
    #[serde(rename = "persistentVolumeReclaimPolicy", deserialize_with = "nullable")]
    pub reclaim_policy: Box<str>,
    /// Its class.
    #[serde(deserialize_with = "nullable")]
    pub storage_class_name: Box<str>,
    /// `Filesystem` or `Block`.
    #[serde(deserialize_with = "nullable")]
    pub volume_mode: Box<str>,
    /// From which nodes it is reached; unsaid, from all.
    #[serde(rename = "nodeAffinity", deserialize_with = "affinity")]
    pub nodes: Option<NodeSelector>,
    /// The path, where it is one of a node's own.
    #[serde(deserialize_with = "path")]
    pub host_path: Option<Box<str>>,
    /// Whether a driver holds it.
    #[serde(rename = "csi", deserialize_with = "is_there")]
    pub by_driver: bool,
}

fn affinity<'de, D: Deserializer<'de>>(input: D) -> Result<Option<NodeSelector>, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Affinity {
        required: Option<NodeSelector>,
    }
    Ok(Option::<Affinity>::deserialize(input)?.unwrap_or_default().required)
}

fn path<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Box<str>>, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Path {
        path: Box<str>,
    }
    Ok(Option::<Path>::deserialize(input)?.map(|source| source.path))
}

fn is_there<'de, D: Deserializer<'de>>(input: D) -> Result<bool, D::Error> {
    Ok(!Value::deserialize(input)?.is_null())
}

/// A volume's claim.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClaimRef {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Which of that name; empty as long as that is not settled.
    pub uid: Box<str>,
}

/// `status` of a volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeStatus {
    /// `Pending`, `Available`, `Bound`, `Released` or `Failed`.
    pub phase: Box<str>,
}

impl Volume {
    /// How much it holds, in bytes.
    pub fn capacity(&self) -> i64 {
        self.spec.capacity.get("storage")
    }

    /// The name of its class, empty where it has none.
    pub fn class(&self) -> &str {
        self.metadata.annotations.get(OLD_CLASS).unwrap_or(&self.spec.storage_class_name)
    }

    /// Whether it is, or is to be, this claim's.
    pub fn is_for(&self, claim: &Claim) -> bool {
        self.spec.claim_ref.as_ref().is_some_and(|of| {
            *of.name == *claim.metadata.name
                && *of.namespace == *claim.metadata.namespace
                && (of.uid.is_empty() || of.uid == claim.metadata.uid)
        })
    }

    /// Whether a node of these labels reaches it.
    pub fn reached_from(&self, node: &Meta) -> bool {
        self.spec.nodes.as_ref().is_none_or(|selector| {
            selector.node_selector_terms.iter().any(|term| term.matches(&node.name, &node.labels))
        })
    }
}

/// Whether two modes of use are the same: a file system where nothing is said.
pub fn same_mode(one: &str, other: &str) -> bool {
    (one == "Block") == (other == "Block")
}

/// A StorageClass.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Class {
    /// Metadata.
    pub metadata: Meta,
    /// Who makes volumes of this class.
    pub provisioner: Box<str>,
    /// `Immediate` or `WaitForFirstConsumer`.
    #[serde(deserialize_with = "nullable")]
    pub volume_binding_mode: Box<str>,
}

impl Class {
    /// Whether a volume is chosen only when it is known where the pod will be.
    pub fn waits(&self) -> bool {
        &*self.volume_binding_mode == "WaitForFirstConsumer"
    }

    /// Whether claims that say no class are of this one.
    pub fn is_default(&self) -> bool {
        DEFAULT_CLASS.iter().any(|name| self.metadata.annotations.get(name) == Some("true"))
    }
}
