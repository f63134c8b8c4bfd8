//! From the spec that people write to what must be: parsed, defaulted, impossible states gone.
//!
//! The schema says the same as this module, and a test holds them to it. The messages stand here once; the schema
//! takes them from here.

use std::sync::LazyLock;

use ballast_operator::image::{MAX_REPOSITORY, is_repository, is_tag};
use kube_core::ResourceExt as _;

use crate::{Gordon, IMAGE};

/// Far fewer than would hurt a cluster by a slip of the hand.
pub(crate) const MAX_REPLICAS: i32 = 1000;
/// The longest image, with its tag.
pub(crate) const MAX_IMAGE: usize = MAX_REPOSITORY;
/// The longest name of a Gordon: with what is put around it, it is the host name of a pod, of 63 characters at most.
pub(crate) const MAX_NAME: usize = 51;

pub(crate) const REPLICAS_NEGATIVE: &str = "replicas must not be negative";
pub(crate) static REPLICAS_TOO_MANY: LazyLock<String> =
    LazyLock::new(|| format!("replicas must be at most {MAX_REPLICAS}"));
pub(crate) const IMAGE_NOT_ONE: &str = "image must be the name of an image with an optional tag, such as \
     registry.example.com/gordon:v1.0";
pub(crate) static NAME_MESSAGE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "the name must hold only lower-case letters, digits and '-', neither begin nor end with '-', and be at \
         most {MAX_NAME} characters long: pods are named after it"
    )
});

/// What must be. Every value of this type can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The resource's name.
    pub name: String,
    /// How many pods: 0 to 1000.
    pub replicas: usize,
    /// The image with its tag.
    pub image: String,
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

fn problem(path: &'static str, message: &str) -> Problem {
    Problem { path, message: message.to_owned() }
}

impl TryFrom<&Gordon> for Wanted {
    type Error = Vec<Problem>;

    fn try_from(resource: &Gordon) -> Result<Self, Vec<Problem>> {
        let (name, pods) = (resource.name_any(), &resource.spec.gordon);
        let mut problems = Vec::new();
        if !is_name(&name) {
            problems.push(problem("metadata.name", &NAME_MESSAGE));
        }
        if pods.replicas < 0 {
            problems.push(problem("spec.gordon.replicas", REPLICAS_NEGATIVE));
        } else if pods.replicas > MAX_REPLICAS {
            problems.push(problem("spec.gordon.replicas", &REPLICAS_TOO_MANY));
        }
        let image = pods.image.clone().unwrap_or_else(|| IMAGE.to_owned());
        if !is_image(&image) {
            problems.push(problem("spec.gordon.image", IMAGE_NOT_ONE));
        }
        match usize::try_from(pods.replicas) {
            Ok(replicas) if problems.is_empty() => Ok(Wanted { name, replicas, image }),
            _ => Err(problems),
        }
    }
}

fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let word = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.len() <= MAX_NAME
        && bytes.first().is_some_and(word)
        && bytes.last().is_some_and(word)
        && bytes.iter().all(|byte| word(byte) || *byte == b'-')
}

fn is_image(image: &str) -> bool {
    // What follows the last colon is a tag, unless it is a port and a path.
    let tagged = image.rsplit_once(':').is_some_and(|(name, tag)| is_repository(name) && is_tag(tag));
    image.len() <= MAX_IMAGE && (tagged || is_repository(image))
}
