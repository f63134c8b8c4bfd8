//! From the spec that people write to a cache as it must be: parsed, defaulted, impossible states gone.
//!
//! The schema says the same as this module, and a test holds them to it. The messages stand here once; the schema
//! takes them from here.

use std::{fmt::Display, sync::LazyLock};

use ballast_operator::{
    image::{is_repository, is_tag},
    resources::Resources,
};
use k8s_openapi::api::core::v1::ResourceRequirements;
use kube_core::ResourceExt as _;

use crate::Memcached;

/// More nodes than any client spreads its keys over, and far fewer than would hurt a cluster by a slip of the hand.
pub(crate) const MAX_SIZE: i32 = 1000;
/// The longest value a label can have, and the longest name a Service can have.
pub(crate) const MAX_NAME: usize = 63;

pub(crate) const SIZE_TOO_SMALL: &str = "size must be greater than 0";
pub(crate) static SIZE_TOO_LARGE: LazyLock<String> =
    LazyLock::new(|| format!("size must be at most {MAX_SIZE}"));
pub(crate) const VERSION_MISSING: &str = "version must be specified";
pub(crate) const VERSION_NOT_A_TAG: &str = "version must be an image tag: letters, digits, '_', '.' and '-', \
     not beginning with '.' or '-'";
pub(crate) const IMAGE_NOT_A_REPOSITORY: &str = "image must be the name of an image without a tag, such as \
     registry.example.com/memcached; the tag is taken from version";
pub(crate) const NAME_MESSAGE: &str = "the name must begin with a lower-case letter, hold only lower-case letters, \
     digits and '-', not end with '-', and be at most 63 characters long: a Service of the same name is made";

/// A set of nodes as it must be. Every value of this type can be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Cache {
    /// The name of the resource and of everything it owns.
    pub name: String,
    /// How many nodes: 1 to 1000.
    pub size: i32,
    /// The version wanted: a tag.
    pub version: String,
    /// The image with its tag.
    pub image: String,
    /// What each node may use.
    pub resources: ResourceRequirements,
}

/// Something in a spec that can't be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct Problem {
    /// The field.
    pub path: &'static str,
    /// What is wrong with it, in the words that the schema uses.
    pub message: String,
}

fn problem(path: &'static str, message: impl Display) -> Problem {
    Problem { path, message: message.to_string() }
}

impl TryFrom<&Memcached> for Cache {
    type Error = Vec<Problem>;

    fn try_from(resource: &Memcached) -> Result<Self, Vec<Problem>> {
        let (name, spec) = (resource.name_any(), &resource.spec);
        let mut problems = Vec::new();
        if !is_service_name(&name) {
            problems.push(problem("metadata.name", NAME_MESSAGE));
        }
        if spec.size <= 0 {
            problems.push(problem("spec.size", SIZE_TOO_SMALL));
        } else if spec.size > MAX_SIZE {
            problems.push(problem("spec.size", &*SIZE_TOO_LARGE));
        }
        let version = spec.version.clone().unwrap_or_default();
        if version.is_empty() {
            problems.push(problem("spec.version", VERSION_MISSING));
        } else if !is_tag(&version) {
            problems.push(problem("spec.version", VERSION_NOT_A_TAG));
        }
        let image = spec.image.clone().unwrap_or_else(|| "memcached".to_owned());
        if !is_repository(&image) {
            problems.push(problem("spec.image", IMAGE_NOT_A_REPOSITORY));
        }
        let resources = spec.resources.iter().flat_map(Resources::problems);
        problems.extend(resources.map(|(side, message)| match side {
            "limits" => problem("spec.resources.limits", message),
            "requests" => problem("spec.resources.requests", message),
            _ => problem("spec.resources", message),
        }));
        if !problems.is_empty() {
            return Err(problems);
        }
        let resources = spec.resources.clone().unwrap_or_else(usual_resources).into();
        Ok(Cache { name, size: spec.size, image: format!("{image}:{version}"), version, resources })
    }
}

/// 64 MB for the cache, the rest for connections, threads and the hash table. No limit on CPU: it would only delay
/// answers that are there.
fn usual_resources() -> Resources {
    Resources::of(&[("cpu", "100m"), ("memory", "96Mi")], &[("memory", "128Mi")])
}

/// What a Service may be called: a DNS label that begins with a letter.
fn is_service_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.len() <= MAX_NAME
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.last().is_some_and(|last| *last != b'-')
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
}
