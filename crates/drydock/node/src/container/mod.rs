//! From a container of a pod to what the sandbox starts.
//!
//! Everything here is a function of the pod, the image's configuration and the config maps and secrets that
//! were fetched before; none of it reaches the API.

pub(crate) mod build;
pub(crate) mod environment;
pub(crate) mod expand;
pub(crate) mod fields;
pub(crate) mod naming;
pub(crate) mod services;
pub(crate) mod user;

/// Why a container can't be made from what the pod says. Shown as `CreateContainerConfigError`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigError(pub String);
