//! What people write in a pod's `image` field, parsed once.
//!
//! The grammar is `[domain/]path[:tag][@digest]` as container registries define it: a name without a domain is
//! Docker Hub's, one without a namespace is in its `library`. What is refused is refused with the words that a
//! kubelet puts into a container's status under `InvalidImageName`.

use std::fmt;

/// A name that is longer is refused, as registries refuse it.
const LONGEST_PATH: usize = 255;
const LONGEST_TAG: usize = 128;
const DEFAULT_DOMAIN: &str = "docker.io";
const LEGACY_DOMAIN: &str = "index.docker.io";
const OFFICIAL: &str = "library/";
/// What is meant where neither tag nor digest is written.
pub const DEFAULT_TAG: &str = "latest";

/// An image's name, made whole: `memcached:1.6` is `docker.io/library/memcached:1.6`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    domain: String,
    path: String,
    tag: Option<String>,
    digest: Option<String>,
}

/// A string that is no image name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("couldn't parse image name {image:?}: {why}")]
pub struct InvalidReference {
    image: String,
    why: String,
}

impl InvalidReference {
    /// What a kubelet says in the container's status, beside the reason `InvalidImageName`.
    pub fn kubelet_message(&self) -> String {
        format!("Failed to apply default image tag {:?}: {self}", self.image)
    }
}

impl Reference {
    /// Parses what stands in an `image` field.
    ///
    /// # Errors
    /// When the string is no image name; the message is the kubelet's.
    pub fn parse(image: &str) -> Result<Reference, InvalidReference> {
        parse(image).map_err(|why| InvalidReference { image: image.to_owned(), why })
    }

    /// Domain and path, without tag and digest.
    pub fn name(&self) -> String {
        if self.domain.is_empty() { self.path.clone() } else { format!("{}/{}", self.domain, self.path) }
    }

    /// The name as people write it: `memcached` for `docker.io/library/memcached`.
    pub fn familiar_name(&self) -> String {
        if self.domain != DEFAULT_DOMAIN {
            return self.name();
        }
        match self.path.strip_prefix(OFFICIAL) {
            Some(rest) if !rest.contains('/') => rest.to_owned(),
            _ => self.path.clone(),
        }
    }

    /// The tag, where one is written.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The tag that is meant: the one written, or `latest`.
    pub fn tag_or_latest(&self) -> &str {
        self.tag.as_deref().unwrap_or(DEFAULT_TAG)
    }

    /// The digest, where one is written: `sha256:…`.
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// `name:tag` with the tag that is meant and without the digest: what tags are kept under.
    pub fn tagged(&self) -> String {
        format!("{}:{}", self.name(), self.tag_or_latest())
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

const INVALID: &str = "invalid reference format";

fn parse(image: &str) -> Result<Reference, String> {
    if image.len() == 64 && image.bytes().all(is_lower_hex) {
        return Err(format!("invalid repository name ({image}), cannot specify 64-byte hexadecimal strings"));
    }
    let (domain, remainder) = split_domain(image);
    let remote = remainder.split(':').next().unwrap_or_default();
    if remote.to_lowercase() != remote {
        return Err(format!("{INVALID}: repository name ({remote}) must be lowercase"));
    }
    match matched(&domain, &remainder) {
        Some(reference) => finish(reference),
        None if matched(&domain.to_lowercase(), &remainder.to_lowercase()).is_some() => {
            Err("repository name must be lowercase".to_owned())
        }
        None => Err(INVALID.to_owned()),
    }
}

/// Which registry is meant, and what is left to be read there. Only the shape of the first component tells:
/// `localhost`, a dot, a colon or an upper-case letter make it a domain.
fn split_domain(image: &str) -> (String, String) {
    let Some((first, rest)) = image.split_once('/') else {
        return (DEFAULT_DOMAIN.to_owned(), format!("{OFFICIAL}{image}"));
    };
    let is_domain = first == "localhost" || first.contains(['.', ':']) || first.to_lowercase() != first;
    let (domain, path) = match first {
        LEGACY_DOMAIN => (DEFAULT_DOMAIN, rest),
        _ if is_domain => (first, rest),
        _ => (DEFAULT_DOMAIN, image),
    };
    let official = domain == DEFAULT_DOMAIN && !path.contains('/');
    (domain.to_owned(), if official { format!("{OFFICIAL}{path}") } else { path.to_owned() })
}

/// The parts, where every one has the right letters; lengths and digests are looked at by [`finish`].
fn matched(domain: &str, remainder: &str) -> Option<Reference> {
    let (before, digest) = match remainder.split_once('@') {
        Some((before, digest)) => (before, Some(digest)),
        None => (remainder, None),
    };
    let (path, tag) = match before.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (before, None),
    };
    if !path.split('/').all(is_path_component)
        || !tag.is_none_or(is_tag)
        || !digest.is_none_or(is_digest_shaped)
    {
        return None;
    }
    let (domain, path) = if is_domain(domain) {
        (domain.to_owned(), path.to_owned())
    } else if is_path_component(domain) {
        (String::new(), format!("{domain}/{path}"))
    } else {
        return None;
    };
    Some(Reference { domain, path, tag: tag.map(str::to_owned), digest: digest.map(str::to_owned) })
}

fn finish(reference: Reference) -> Result<Reference, String> {
    if reference.path.len() > LONGEST_PATH {
        return Err(format!("repository name must not be more than {LONGEST_PATH} characters"));
    }
    if let Some((algorithm, hex)) = reference.digest.as_deref().and_then(|d| d.split_once(':')) {
        let length = match algorithm {
            "sha256" => 64,
            "sha384" => 96,
            "sha512" => 128,
            _ => return Err("unsupported digest algorithm".to_owned()),
        };
        if hex.len() != length {
            return Err("invalid checksum digest length".to_owned());
        }
        if !hex.bytes().all(is_lower_hex) {
            return Err("invalid checksum digest format".to_owned());
        }
    }
    Ok(reference)
}

fn is_lower_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.rfind(']') {
        Some(end) => domain.split_at(end + 1),
        None => domain.split_at(domain.find(':').unwrap_or(domain.len())),
    };
    let port_ok = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()));
    let host_ok = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':'),
        None => host.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        }),
    };
    port_ok && host_ok
}

/// Runs of lower-case letters and digits, between them one dot, one or two underscores, or any hyphens.
fn is_path_component(component: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    component.starts_with(is_word)
        && component.ends_with(is_word)
        && component
            .split(is_word)
            .all(|between| matches!(between, "" | "." | "_" | "__") || between.bytes().all(|b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= LONGEST_TAG
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|b| is_word(b) || matches!(b, b'.' | b'-'))
}

fn is_digest_shaped(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    hex.len() >= 32
        && hex.bytes().all(|b| b.is_ascii_hexdigit())
        && algorithm.split(['-', '_', '+', '.']).all(|word| {
            word.starts_with(|c: char| c.is_ascii_alphabetic())
                && word.bytes().all(|b| b.is_ascii_alphanumeric())
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(image: &str, expected: Result<&str, &str>) {
        let answer = Reference::parse(image).map(|r| r.to_string()).map_err(|e| e.why);
        assert_eq!(answer, expected.map(str::to_owned).map_err(str::to_owned), "{image:?}");
    }

    #[test]
    fn names_are_made_whole_and_refused_as_a_registry_does_it() {
        let hex = "a".repeat(64);
        let with = |prefix: &str, rest: &str| format!("{prefix}{rest}");
        for (image, expected) in [
            ("memcached", Ok("docker.io/library/memcached")),
            ("docker.io/memcached:1.6", Ok("docker.io/library/memcached:1.6")),
            ("index.docker.io/a/b", Ok("docker.io/a/b")),
            ("prgcont/gordon:v1.0", Ok("docker.io/prgcont/gordon:v1.0")),
            ("localhost/x", Ok("localhost/x")),
            ("localhost:5000/x:1", Ok("localhost:5000/x:1")),
            ("Example/x", Ok("Example/x")),
            ("example.com/A", Err("invalid reference format: repository name (A) must be lowercase")),
            (
                "Memcached",
                Err("invalid reference format: repository name (library/Memcached) must be lowercase"),
            ),
            (
                "UPPER/case/Thing",
                Err("invalid reference format: repository name (case/Thing) must be lowercase"),
            ),
            ("", Err(INVALID)),
            ("mem cached", Err(INVALID)),
            ("a..b/c", Err(INVALID)),
            ("a__b.c/d", Ok("a__b.c/d")),
            ("A__b/c", Err("repository name must be lowercase")),
            ("a//b", Err(INVALID)),
            ("a/", Err(INVALID)),
            ("/a", Err(INVALID)),
            ("-a", Err(INVALID)),
            ("a-", Err(INVALID)),
            ("a:", Err(INVALID)),
            ("a:b:c", Err(INVALID)),
            ("a:.x", Err(INVALID)),
            ("a:Tag_1.0-x", Ok("docker.io/library/a:Tag_1.0-x")),
            ("a---b", Ok("docker.io/library/a---b")),
            ("a___b", Err(INVALID)),
            ("a_.b", Err(INVALID)),
            ("ü", Err(INVALID)),
            ("a:ü", Err(INVALID)),
            ("x.y:80", Ok("docker.io/library/x.y:80")),
            ("foo.com:http/a", Err(INVALID)),
            ("http://x/y", Err(INVALID)),
            ("[::1]:5000/x", Ok("[::1]:5000/x")),
            ("[::1]/x:t", Ok("[::1]/x:t")),
            ("a@sha256:abc", Err(INVALID)),
            (&with("a@sha256:", &hex.to_uppercase()), Err("invalid checksum digest format")),
            (&with("a@sha256:", &hex[..40]), Err("invalid checksum digest length")),
            (&with("a@md5:", &hex[..32]), Err("unsupported digest algorithm")),
            (&with("a:1@sha256:", &hex), Ok(&with("docker.io/library/a:1@sha256:", &hex))),
            (&with("a:", &"t".repeat(128)), Ok(&with("docker.io/library/a:", &"t".repeat(128)))),
            (&with("a:", &"t".repeat(129)), Err(INVALID)),
            (&with("a/", &"b".repeat(253)), Ok(&with("docker.io/a/", &"b".repeat(253)))),
            (&with("a/", &"b".repeat(254)), Err("repository name must not be more than 255 characters")),
        ] {
            check(image, expected);
        }
    }

    #[test]
    fn the_kubelet_names_the_image_twice_when_it_refuses_one() {
        let message = Reference::parse("Mem Cached").unwrap_err().kubelet_message();
        assert_eq!(
            message,
            "Failed to apply default image tag \"Mem Cached\": couldn't parse image name \"Mem Cached\": invalid \
             reference format: repository name (library/Mem Cached) must be lowercase"
        );
    }

    #[test]
    fn a_familiar_name_is_what_people_write() {
        for (image, familiar) in [
            ("docker.io/library/memcached:1", "memcached"),
            ("docker.io/prgcont/gordon", "prgcont/gordon"),
            ("localhost:5000/x", "localhost:5000/x"),
        ] {
            assert_eq!(Reference::parse(image).unwrap().familiar_name(), familiar);
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_written_makes_the_parser_panic(image in "\\PC{0,80}") {
            let _ = Reference::parse(&image);
        }

        #[test]
        fn a_whole_name_is_read_back_as_itself(
            image in "([a-zA-Z0-9.-]{1,12}(:[0-9]{1,4})?/)?[a-z0-9._-]{1,12}(/[a-z0-9_-]{1,8})?(:[A-Za-z0-9_.-]{1,10})?"
        ) {
            if let Ok(first) = Reference::parse(&image) {
                let again = Reference::parse(&first.to_string());
                prop_assert_eq!(Ok(first), again);
            }
        }

        #[test]
        fn well_formed_names_are_taken(
            path in "[a-z0-9]{1,8}((\\.|_|__|-{1,3})[a-z0-9]{1,5}){0,2}", tag in "[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}"
        ) {
            let reference = Reference::parse(&format!("{path}:{tag}")).unwrap();
            prop_assert_eq!(reference.familiar_name(), path);
            prop_assert_eq!(reference.tag(), Some(tag.as_str()));
        }
    }
}
