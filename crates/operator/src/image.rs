//! The names of images, as specs have them. Each rule stands here twice: as a regular expression for a schema, and
//! as code for `validate`; tests of the operators hold both to the same answer.

/// The longest tag an image can have.
pub const MAX_TAG: usize = 128;
/// The longest name that registries take.
pub const MAX_REPOSITORY: usize = 255;

/// What a tag looks like.
pub const TAG: &str = "[A-Za-z0-9_][A-Za-z0-9._-]*";

/// What the name of an image without its tag looks like: a host with an optional port, then path components of
/// lower-case letters and digits with separators between them.
pub fn repository() -> String {
    let host = "[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]+)?/";
    let component = "[a-z0-9]+([._-]+[a-z0-9]+)*";
    format!("({host})?{component}(/{component})*")
}

/// Whether it is a tag.
pub fn is_tag(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= MAX_TAG
        && bytes.first().is_some_and(|first| first.is_ascii_alphanumeric() || *first == b'_')
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

/// Whether it is the name of an image without a tag: `[host[:port]/]component[/component…]`
pub fn is_repository(text: &str) -> bool {
    if text.is_empty() || text.len() > MAX_REPOSITORY {
        return false;
    }
    let all_components = |path: &str| path.split('/').all(is_component);
    match text.split_once('/') {
        Some((host, path)) if is_host(host) => all_components(path) || all_components(text),
        _ => all_components(text),
    }
}

/// Whether it names an image: a name, then a tag or a digest or both, or neither.
pub fn is_reference(text: &str) -> bool {
    let (named, digest) = match text.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (text, None),
    };
    let (repository, tag) = match named.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
        _ => (named, None),
    };
    let is_digest = |digest: &str| {
        let hex = digest.strip_prefix("sha256:").unwrap_or_default();
        hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'))
    };
    is_repository(repository) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest)
}

fn is_host(host: &str) -> bool {
    let (name, port) = match host.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (host, None),
    };
    let bytes = name.as_bytes();
    port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
}

fn is_component(component: &str) -> bool {
    let word = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    bytes.first().is_some_and(word)
        && bytes.last().is_some_and(word)
        && bytes.iter().all(|byte| word(byte) || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_named_as_registries_take_it() {
        let digest = format!("@sha256:{}", "0a".repeat(32));
        for good in ["ballast", "ballast:0.1.0", "example.com:5000/team/ballast", "localhost:5000/a:b_c"] {
            assert!(is_reference(good), "{good}");
            assert!(is_reference(&format!("{good}{digest}")), "{good}");
        }
        for bad in ["", "Bad Image", "a:", ":a", "a@sha256:12", "A/b:c d", "http://x/y", "a:b:c", "a/"] {
            assert!(!is_reference(bad), "{bad}");
        }
    }
}
