//! Services and what is derived from them, and the small kinds: namespaces, accounts, roles, definitions.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::condition::Condition;
use super::meta::{Meta, Pairs, nullable};
use super::selector::LabelSelector;
use super::workload::IntOrPercent;

/// A Service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Service {
    /// Metadata.
    pub metadata: Meta,
    /// What was asked for.
    pub spec: ServiceSpec,
}

/// `spec` of a Service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// Which pods answer; nobody looks for pods when it is empty.
    #[serde(deserialize_with = "nullable")]
    pub selector: Pairs,
    /// Ports.
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<ServicePort>,
    /// The address, or `None` for a headless service.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: Box<str>,
    /// Which of the four types.
    pub r#type: Box<str>,
    /// Whether pods that are not ready are published as ready.
    pub publish_not_ready_addresses: bool,
    /// `IPv4`, `IPv6` or both.
    #[serde(deserialize_with = "nullable")]
    pub ip_families: Vec<Box<str>>,
}

impl ServiceSpec {
    /// Whether it has no address of its own.
    pub fn headless(&self) -> bool {
        self.cluster_ip.is_empty() || &*self.cluster_ip == "None"
    }

    /// Whether its pods are looked for.
    pub fn selects(&self) -> bool {
        !self.selector.is_empty() && &*self.r#type != "ExternalName"
    }
}

/// A port of a Service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// Its name.
    pub name: Box<str>,
    /// `TCP` when not said.
    pub protocol: Box<str>,
    /// A hint at what is spoken.
    pub app_protocol: Option<Box<str>>,
    /// Its number.
    pub port: i32,
    /// The port of the pod, by number or by name.
    pub target_port: Option<IntOrPercent>,
}

/// The object an address belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// Its kind.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub kind: Box<str>,
    /// Its namespace.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub namespace: Box<str>,
    /// Its name.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: Box<str>,
    /// Its uid.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub uid: Box<str>,
    /// Its group and version, where a person says it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub api_version: Box<str>,
    /// Its version, where a person says it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub resource_version: Box<str>,
    /// A part of it, where a person says it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub field_path: Box<str>,
}

/// Endpoints of a Service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Endpoints {
    /// Metadata.
    pub metadata: Meta,
    /// Addresses by the ports they answer on.
    #[serde(deserialize_with = "nullable")]
    pub subsets: Vec<Subset>,
}

/// Addresses that answer on the same ports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subset {
    /// Those that are ready.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub addresses: Vec<EndpointAddress>,
    /// Those that are not.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub not_ready_addresses: Vec<EndpointAddress>,
    /// The ports.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub ports: Vec<SubsetPort>,
}

/// One address of Endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointAddress {
    /// The address.
    pub ip: Box<str>,
    /// The host name the pod asked for.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub hostname: Box<str>,
    /// The node it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<Box<str>>,
    /// The pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<ObjectReference>,
}

/// One port of Endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubsetPort {
    /// Its name.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: Box<str>,
    /// Its number.
    pub port: i32,
    /// Its protocol.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub protocol: Box<str>,
    /// A hint at what is spoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<Box<str>>,
}

/// An EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    /// Metadata.
    pub metadata: Meta,
    /// `IPv4` or `IPv6`.
    pub address_type: Box<str>,
    /// Up to a hundred of them.
    #[serde(deserialize_with = "nullable")]
    pub endpoints: Vec<Endpoint>,
    /// The ports all of them answer on.
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<SlicePort>,
}

/// One endpoint of a slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// Its addresses.
    pub addresses: Vec<Box<str>>,
    /// Whether it answers.
    pub conditions: EndpointConditions,
    /// The host name the pod asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<Box<str>>,
    /// The node it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<Box<str>>,
    /// Where that node is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<Box<str>>,
    /// The pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<ObjectReference>,
}

/// Whether an endpoint answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointConditions {
    /// Whether it may be given work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Whether it would answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serving: Option<bool>,
    /// Whether it is ending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<bool>,
}

/// One port of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SlicePort {
    /// Its name; empty when it has none.
    pub name: Option<Box<str>>,
    /// Its number.
    pub port: Option<i32>,
    /// Its protocol.
    pub protocol: Option<Box<str>>,
    /// A hint at what is spoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<Box<str>>,
}

/// A Namespace.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Namespace {
    /// Metadata.
    pub metadata: Meta,
    /// Who must let it go.
    #[serde(deserialize_with = "nullable")]
    pub spec: NamespaceSpec,
    /// What is.
    #[serde(deserialize_with = "nullable")]
    pub status: NamespaceStatus,
}

/// `spec` of a Namespace.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespaceSpec {
    /// Who must let it go.
    #[serde(deserialize_with = "nullable")]
    pub finalizers: Vec<Box<str>>,
}

/// `status` of a Namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespaceStatus {
    /// `Active` or `Terminating`.
    pub phase: Box<str>,
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
}

/// A ServiceAccount.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ServiceAccount {
    /// Metadata.
    pub metadata: Meta,
}

/// A ConfigMap: the certificate in it, and nothing else of what it holds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ConfigMap {
    /// Metadata.
    pub metadata: Meta,
    /// The one entry that is looked at.
    #[serde(deserialize_with = "nullable")]
    pub data: Certificate,
}

/// The data of the ConfigMap that carries the cluster's certificate.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Certificate {
    /// The certificate in PEM.
    #[serde(rename = "ca.crt")]
    pub ca: Option<Box<str>>,
}

/// A ClusterRole.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterRole {
    /// Metadata.
    pub metadata: Meta,
    /// Where its rules come from, when they come from others.
    pub aggregation_rule: Option<AggregationRule>,
    /// Its rules, as they came.
    #[serde(deserialize_with = "nullable")]
    pub rules: Vec<Box<RawValue>>,
}

/// Which roles are put together.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AggregationRule {
    /// Those that one of these selects.
    #[serde(deserialize_with = "nullable")]
    pub cluster_role_selectors: Vec<LabelSelector>,
}

/// A CustomResourceDefinition: which versions it serves, and whether it does.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Definition {
    /// Metadata.
    pub metadata: Meta,
    /// What was asked for.
    pub spec: DefinitionSpec,
    /// What is.
    #[serde(deserialize_with = "nullable")]
    pub status: DefinitionStatus,
}

/// `spec` of a definition.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DefinitionSpec {
    /// Its versions.
    #[serde(deserialize_with = "nullable")]
    pub versions: Vec<DefinitionVersion>,
}

/// One version of a definition.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DefinitionVersion {
    /// Its name.
    pub name: Box<str>,
    /// Whether it is served.
    pub served: bool,
}

/// `status` of a definition.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DefinitionStatus {
    /// Conditions.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
}

impl Definition {
    /// What of it changes the kinds a cluster has.
    pub fn offer(&self) -> (&DefinitionSpec, bool) {
        let established = self
            .status
            .conditions
            .iter()
            .any(|condition| &*condition.r#type == "Established" && &*condition.status == "True");
        (&self.spec, established)
    }
}

/// An object of any kind: only its metadata.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Bare {
    /// Metadata.
    pub metadata: Meta,
}
